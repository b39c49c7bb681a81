"""A session: what the engine knows of one client, and the only thing that a handler is given.

A handler reads `session.db`, writes its reply into `session.out`, raises a CommandError to refuse,
and says what it did:

    session.modified(key)      the key changed: WATCH is told, one change is counted (`dirty`)
    session.notify(kind, event, key)   a keyspace event
    session.propagate(argv)    log and replicate this instead of the command as it came; may be
                               said several times; `session.propagate_nothing()` for no command at all
    session.block(...)         no reply now: `serve` is called when one of the keys is ready
    session.push(data)         a confirmation of (un)subscribing: sent even where replies are not wanted

These are notes that the engine acts on after the handler. A handler that notes nothing but
`dirty` is propagated as it came.

Messages of channels come from other sessions' commands, at any time. `running` says that a command of
this session is half-way through its reply: what it has to hear meanwhile waits in `pushes` until the reply
is whole (networking.c: pending_push_messages). At any other time a message goes straight into `out`, and
`on_message` tells the door that there is something to send.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

from rillet.keyspace.database import Database, Watcher
from rillet.protocol.reply_writer import ReplyWriter

# Bits of `Session.state`; a session without any takes the engine's short way.
UNAUTHENTICATED = 1
IN_MULTI = 2
MULTI_FAILED = 4
BLOCKED = 8
SUBSCRIBED = 16
REPLY_OFF = 32
REPLY_SKIP = 64
REPLY_SKIP_NEXT = 128


class Blocked:
    """A client that waits: for which keys, until when, and how to serve or give up.

    serve(session, key) -> bool   tries to reply because key changed; True ends the waiting
    expired(session)              writes the reply of a time-out
    deadline                      ms since the epoch; 0 waits for ever
    retry_at                      when it is to be asked again though no key changed (ms since the epoch); 0 = not
    postponed                     the client is paused, and its command is still to be run
    queue                         what it waits for, where others wait for the same (`waiting`); None stands alone
    number                        how many clients waited before it
    """

    __slots__ = ("session", "db", "keys", "deadline", "retry_at", "serve", "expired", "argv", "postponed", "queue",
                 "number")  # fmt: skip

    def __init__(self, session: Any, db: Database, keys: list[bytes], deadline: int,
                 serve: Callable[[Any, bytes], bool], expired: Callable[[Any], None], argv: list[bytes],
                 queue: bytes | None, number: int) -> None:
        self.session = session
        self.db = db
        self.keys = keys
        self.deadline = deadline
        self.retry_at = 0
        self.serve = serve
        self.expired = expired
        self.argv = argv
        self.postponed = False
        self.queue = queue
        self.number = number

    @property
    def wakes_at(self) -> int:
        """When whoever owns the clock has to call Engine.time_has_come (ms since the epoch); 0 = never."""
        if self.deadline and self.retry_at:
            return min(self.deadline, self.retry_at)
        return self.deadline or self.retry_at


@cython.final
@cython.cclass
class Session:
    """One client's state. `engine` is the Engine; `on_wake` is called after a blocked client got its reply."""

    __slots__ = (
        "engine", "db", "out", "id", "name", "user", "state", "watcher", "queue", "blocked", "in_exec", "dirty",
        "propagated", "argv", "command", "closing", "on_wake", "transport", "created_ms", "last_ms", "lib_name",
        "lib_ver", "extra", "trusted", "subscriptions", "pushes", "running", "on_message",
    )  # fmt: skip
    engine: Any
    queue: list[Any]
    blocked: Any
    propagated: list[list[bytes]] | None
    argv: list[bytes]
    command: Any
    on_wake: Any
    transport: Any
    extra: dict[str, Any]
    subscriptions: Any
    pushes: Any  # list[bytes] | None
    on_message: Any

    def __init__(self, engine: Any, db: Database, session_id: int) -> None:
        self.engine = engine
        self.db = db
        self.out = ReplyWriter()
        self.id = session_id
        self.name = b""
        self.user = b"default"
        self.lib_name = b""
        self.lib_ver = b""
        self.state = 0
        self.watcher = Watcher()
        self.queue = []
        self.blocked = None
        self.in_exec = False
        self.dirty = 0
        self.propagated = None
        self.argv = []
        self.command = None
        self.closing = False
        # Commands of the log and of a master are obeyed even where a client's would be refused.
        self.trusted = False
        self.on_wake = None
        self.transport = None
        self.created_ms = 0
        self.last_ms = 0
        self.extra = {}
        # runtime/channels.py: Subscriptions, once there were any.
        self.subscriptions = None
        self.pushes = None
        self.running = False
        self.on_message = None

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def push(self, data: bytes) -> cython.bint:
        """Reply with bytes that CLIENT REPLY OFF and SKIP do not hold back (networking.c: CLIENT_PUSHING)."""
        if self.state & (REPLY_OFF | REPLY_SKIP):
            return self.postpone(data)
        return self.out.raw(data)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def postpone(self, data: bytes) -> cython.bint:
        """Keep a message until the reply of the command that runs is whole."""
        if self.pushes is None:
            self.pushes = []
        self.pushes.append(data)
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def flush_pushes(self) -> cython.bint:
        """Put the messages that waited behind the reply."""
        waiting: list[bytes] = self.pushes
        self.pushes = None
        for data in waiting:
            self.out.raw(data)
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def modified(self, key: bytes) -> cython.bint:
        """Note one change of the key: its watchers are marked (signalModifiedKey, server.dirty++)."""
        self.dirty += 1
        if self.db.watched_keys:
            self.db.touch(key)
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def propagate(self, argv: list[bytes]) -> cython.bint:
        """Log and replicate this command (after those noted before it) in place of the one that came."""
        if self.propagated is None:
            self.propagated = [argv]
        else:
            self.propagated.append(argv)
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def propagate_nothing(self) -> cython.bint:
        """Log and replicate nothing for this call unless `propagate` says so (preventCommandPropagation)."""
        if self.propagated is None:
            self.propagated = []
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def notify(self, kind: bytes, event: bytes, key: bytes) -> cython.bint:
        """Note a keyspace event; `kind` is its letter in notify-keyspace-events (t = stream, g = generic)."""
        if self.engine.notify_events:
            self.engine.keyspace_event(self.db, kind, event, key)
        return True

    def notify_deleted_by_time(self, key: bytes) -> None:
        """Note that a command deleted the key by giving it a time in the past; to Valkey that is an expiry."""
        if self.engine.settings.compat.valkey:
            self.notify(b"x", b"expired", key)
        else:
            self.notify(b"g", b"del", key)

    @property
    def can_block(self) -> bool:
        """Whether this call may wait: not inside EXEC, and not while a log is replayed."""
        return not self.in_exec and not self.trusted

    def block(self, keys: list[bytes], timeout_ms: int, serve: Callable[[Any, bytes], bool],
              expired: Callable[[Any], None], queue: bytes | None = None) -> None:
        """Wait for any of the keys; see Blocked. timeout_ms 0 waits for ever."""
        self.engine.block(self, keys, timeout_ms, serve, expired, queue)
