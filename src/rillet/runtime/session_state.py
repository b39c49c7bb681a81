"""The state of a session: one integer of independent flags, and the table of the events that change them.

    flag              set while
    UNAUTHENTICATED   the session has not given the password that the server requires
    IN_MULTI          commands are queued between MULTI and EXEC
    MULTI_FAILED      a command could not be queued, so EXEC will be refused
    BLOCKED           the session waits for a key, for a time, or for the end of CLIENT PAUSE
    SUBSCRIBED        the session has subscriptions
    REPLY_OFF         CLIENT REPLY OFF drops all replies
    REPLY_SKIP_NEXT   CLIENT REPLY SKIP drops the reply of the next command
    REPLY_SKIP        CLIENT REPLY SKIP drops the reply of the current command
    CLOSING           the connection is closed once its output is sent
    TRUSTED           the session replays a log or a master: no password, no limits, never blocked
    IN_EXEC           EXEC runs the queued commands
    NO_TOUCH          accesses of keys are not recorded (CLIENT NO-TOUCH)
    IMPORT_SOURCE     the session sees expired keys in import-mode (CLIENT IMPORT-SOURCE of Valkey)
    MONITOR           the session watches all commands (MONITOR)
    MASTER            the session, which is trusted, applies the stream of a master; its changes are logged
    RESTRICTED        the user of the session lacks a permission (runtime/acl)
    AUTHENTICATED     the session has logged in, or needed no password when it began
    IN_SCRIPT         the session runs the commands of scripts
    KEEPS_TEXT        a script runs in a Valkey, which stores its words as text, also those that are integers
    RUNNING           a handler is between the first and the last byte of its reply
    REPLICA           the session is that of an attached replica (PSYNC, SYNC)

A session without a flag of SPECIAL runs a command without further checks, if the engine has no condition either: it
tests one integer.

TRANSITIONS is the specification. `Session.enter` applies it where speed does not matter; the engine sets and clears
RUNNING and BLOCKED itself. `check` asserts the combinations that are impossible between two commands.
(Redis: the CLIENT_ flags of server.h.)
"""

from __future__ import annotations

from typing import NamedTuple

from rillet._cython import cython

UNAUTHENTICATED = 1
IN_MULTI = 2
MULTI_FAILED = 4
BLOCKED = 8
SUBSCRIBED = 16
REPLY_OFF = 32
REPLY_SKIP = 64
REPLY_SKIP_NEXT = 128
CLOSING = 256
TRUSTED = 512
IN_EXEC = 1024
RUNNING = 2048
NO_TOUCH = 4096
RESTRICTED = 8192
AUTHENTICATED = 16384
IN_SCRIPT = 32768
MONITOR = 65536
MASTER = 131072
REPLICA = 262144
IMPORT_SOURCE = 524288
KEEPS_TEXT = 1048576

MUTED = REPLY_OFF | REPLY_SKIP
# Conditions of the engine, as flags beside those of a session (runtime/admission.py).
PAUSED = 1 << 24
REFUSING = 1 << 25
BUSY = 1 << 26
LOADING = 1 << 27
FOLLOWS = 1 << 28
FULL = 1 << 29
# Conditions that do not concern a trusted session.
FOR_CLIENTS = PAUSED | REFUSING | LOADING | FOLLOWS | FULL
# If any of these flags is set, the engine makes all checks before it runs a command.
SPECIAL = UNAUTHENTICATED | IN_MULTI | MULTI_FAILED | BLOCKED | SUBSCRIBED | MUTED | REPLY_SKIP_NEXT | NO_TOUCH
SPECIAL |= RESTRICTED | MONITOR | REPLICA


class Transition(NamedTuple):
    """The flags that an event requires and forbids, and those that it sets and clears."""

    requires: int = 0
    forbids: int = 0
    sets: int = 0
    clears: int = 0


TRANSITIONS = {
    # event                            requires         forbids                       sets             clears
    "require password":     Transition(0,               TRUSTED,                      UNAUTHENTICATED, 0),
    "authenticate":         Transition(0,               0,                            AUTHENTICATED,
                                       UNAUTHENTICATED),
    "log out":              Transition(0,               0,                            0,
                                       AUTHENTICATED | UNAUTHENTICATED),
    "restrict":             Transition(0,               TRUSTED,                      RESTRICTED,      0),
    "permit all":           Transition(0,               0,                            0,               RESTRICTED),
    "trust":                Transition(0,               BLOCKED,                      TRUSTED,         0),
    "distrust":             Transition(0,               0,                            0,
                                       TRUSTED | MASTER),
    "follow":               Transition(0,               BLOCKED,                      TRUSTED | MASTER, 0),
    "multi":                Transition(0,               IN_MULTI | IN_EXEC,           IN_MULTI,        0),
    "queueing fails":       Transition(IN_MULTI,        0,                            MULTI_FAILED,    0),
    "end transaction":      Transition(0,               IN_EXEC,                      0,
                                       IN_MULTI | MULTI_FAILED),
    "exec":                 Transition(0,               IN_MULTI | IN_EXEC | BLOCKED, IN_EXEC,         0),
    "exec ends":            Transition(IN_EXEC,         0,                            0,               IN_EXEC),
    "handler starts":       Transition(0,               BLOCKED,                      RUNNING,         0),
    "handler ends":         Transition(RUNNING,         0,                            0,               RUNNING),
    "block":                Transition(0,               BLOCKED | IN_EXEC | TRUSTED,  BLOCKED,         0),
    "unblock":              Transition(BLOCKED,         0,                            0,               BLOCKED),
    "subscribe":            Transition(0,               0,                            SUBSCRIBED,      0),
    "unsubscribe all":      Transition(0,               0,                            0,               SUBSCRIBED),
    "reply on":             Transition(0,               0,                            0,
                                       REPLY_OFF | REPLY_SKIP | REPLY_SKIP_NEXT),
    "reply off":            Transition(0,               0,                            REPLY_OFF,       0),
    "reply skip":           Transition(0,               REPLY_OFF,                    REPLY_SKIP_NEXT, 0),
    "skipped call starts":  Transition(REPLY_SKIP_NEXT, 0,                            REPLY_SKIP,      REPLY_SKIP_NEXT),
    "skipped call ends":    Transition(0,               0,                            0,               REPLY_SKIP),
    "reset":                Transition(0,               IN_EXEC,                      0,
                                       REPLY_OFF | REPLY_SKIP_NEXT | UNAUTHENTICATED | NO_TOUCH |
                                       IMPORT_SOURCE),
    "no touch":             Transition(0,               0,                            NO_TOUCH,        0),
    "touch":                Transition(0,               0,                            0,               NO_TOUCH),
    "monitor":              Transition(0,               0,                            MONITOR,         0),
    "stop monitoring":      Transition(0,               0,                            0,               MONITOR),
    "replicate":            Transition(0,               IN_MULTI | IN_EXEC | BLOCKED, REPLICA,         0),
    "import":               Transition(0,               0,                            IMPORT_SOURCE,   0),
    "stop importing":       Transition(0,               0,                            0,               IMPORT_SOURCE),
    "close":                Transition(0,               0,                            CLOSING,         0),
}  # fmt: skip


_ROWS = cython.declare(dict, {event: tuple(row) for event, row in TRANSITIONS.items()})  # quick to unpack


@cython.ccall
def after(state: cython.int, event: str) -> cython.int:
    """Return the flags after the event; raise AssertionError if the event is impossible in this state."""
    row: tuple[int, int, int, int] = _ROWS[event]
    requires: cython.int = row[0]
    forbids: cython.int = row[1]
    sets: cython.int = row[2]
    clears: cython.int = row[3]
    if state & requires != requires or state & forbids:
        raise AssertionError(f"{event} in state {names(state)}")
    return (state & ~clears) | sets


def names(state: int) -> str:
    """Return the names of the flags, for messages, without AUTHENTICATED, which ordinary sessions have."""
    return " ".join(name for name, bit in _FLAGS.items() if state & bit and bit != AUTHENTICATED) or "ordinary"


def check(state: int) -> None:
    """Assert that the flags do not contradict each other; for use between two commands, not inside a handler."""
    assert not state & RUNNING and not state & IN_EXEC, names(state)
    assert state & IN_MULTI or not state & MULTI_FAILED, names(state)
    assert not (state & BLOCKED and state & TRUSTED), names(state)
    assert not (state & TRUSTED and state & (UNAUTHENTICATED | RESTRICTED)), names(state)
    assert not (state & AUTHENTICATED and state & UNAUTHENTICATED), names(state)
    assert state & TRUSTED or not state & MASTER, names(state)


_FLAGS = {
    "UNAUTHENTICATED": UNAUTHENTICATED, "IN_MULTI": IN_MULTI, "MULTI_FAILED": MULTI_FAILED, "BLOCKED": BLOCKED,
    "SUBSCRIBED": SUBSCRIBED, "REPLY_OFF": REPLY_OFF, "REPLY_SKIP": REPLY_SKIP, "REPLY_SKIP_NEXT": REPLY_SKIP_NEXT,
    "CLOSING": CLOSING, "TRUSTED": TRUSTED, "IN_EXEC": IN_EXEC, "RUNNING": RUNNING,
    "NO_TOUCH": NO_TOUCH, "RESTRICTED": RESTRICTED, "AUTHENTICATED": AUTHENTICATED, "IN_SCRIPT": IN_SCRIPT,
    "MONITOR": MONITOR, "MASTER": MASTER, "REPLICA": REPLICA, "IMPORT_SOURCE": IMPORT_SOURCE,
    "KEEPS_TEXT": KEEPS_TEXT,
}  # fmt: skip
