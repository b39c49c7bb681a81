"""Admission: whether a command may run now, is queued, or is refused (Redis: server.c, processCommand).

The flags of the session and the conditions of the engine are one integer (runtime/session_state.py), which is 0 in the
ordinary case: then the engine runs a command that exists and has the right number of arguments. Otherwise `admit` takes
the rows of RULES in Redis's order. The first row that applies decides, and the reply of a command that does not run is
written here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine

from rillet._cython import cython
from rillet.errors import CommandError, ExecAbort, Loading, Misconf, NoAuth, NoReplicas, OutOfMemory, ReadOnly, Redirect
from rillet.runtime.registry import (
    ARITY_GREW,
    AT_ONCE,
    ENDS_MULTI,
    IS_EXEC,
    IS_PING,
    LOADS,
    MUTES,
    NEEDS_MEMORY,
    NO_AUTH,
    NO_MULTI,
    SUBSCRIBES,
    USES_KEYSPACE,
    WHILE_BUSY,
    WHILE_SUBSCRIBED,
    WRITES,
    Command,
)  # fmt: skip
from rillet.runtime.replica import redirect, refuse_stale, refuse_write
from rillet.runtime.session import Session
from rillet.runtime.session_state import (
    BUSY,
    FOLLOWS,
    FULL,
    IN_MULTI,
    LOADING,
    MONITOR,
    PAUSED,
    REFUSING,
    REPLICA,
    RESTRICTED,
    SUBSCRIBED,
    UNAUTHENTICATED,
)  # fmt: skip
from rillet.structs.argument_spans import ArgumentSpans
from rillet.types.compat import Compat

# The value of Engine.refusal for a store that is open read-only; other values are texts of MISCONF errors.
READ_ONLY = "read-only"
# The value of Engine.refusal while fewer than min-replicas-to-write replicas are in time.
FEW_REPLICAS = "few-replicas"
# First words of the lines of an HTTP request, which a web page can make a browser send to the server. The connection is
# closed without a reply (server.c: securityWarningCommand).
_HTTP = frozenset((b"post", b"host:"))


REFUSED, RUNS, QUEUES = 0, 1, 2
"""The verdict that `admit` returns."""

# Verdicts.
_LOG_IN, _NOT_IN_MULTI, _ASK_USER, _REDIRECT, _NO_ROOM, _REFUSE, _READ_ONLY, _SUBSCRIBED = 1, 2, 3, 4, 5, 6, 7, 8
_STALE, _LOAD, _WAIT_FOR_SCRIPT, _NO_KEYSPACE, _HOLD, _QUEUE = 9, 10, 11, 12, 13, 14


class Rule(NamedTuple):
    """A row of the table: while a flag of `when` is set, it concerns commands with a trait of `only` and none of `but`.

    only: 0 for all commands.
    """

    when: int
    only: int
    but: int
    verdict: int


RULES: list[Rule] = [
    #    while                     commands with     but not with             verdict
    Rule(UNAUTHENTICATED,          0,                NO_AUTH,                 _LOG_IN),
    Rule(IN_MULTI,                 NO_MULTI | MUTES, 0,                       _NOT_IN_MULTI),
    Rule(RESTRICTED,               0,                0,                       _ASK_USER),
    Rule(FOLLOWS,                  0,                0,                       _REDIRECT),
    Rule(FULL,                     0,                0,                       _NO_ROOM),
    Rule(REFUSING,                 WRITES | IS_PING | IS_EXEC, 0,             _REFUSE),
    Rule(FOLLOWS,                  0,                0,                       _READ_ONLY),
    Rule(SUBSCRIBED,               0,                WHILE_SUBSCRIBED,        _SUBSCRIBED),
    Rule(FOLLOWS,                  0,                0,                       _STALE),
    Rule(LOADING,                  0,                LOADS,                   _LOAD),
    Rule(BUSY,                     0,                WHILE_BUSY,              _WAIT_FOR_SCRIPT),
    Rule(MONITOR | REPLICA,        USES_KEYSPACE,    0,                       _NO_KEYSPACE),
    Rule(PAUSED,                   0,                0,                       _HOLD),
    Rule(IN_MULTI,                 0,                AT_ONCE,                 _QUEUE),
]  # fmt: skip


@cython.final
@cython.cclass
class Rules:
    """The rows of RULES, packed: those that do not apply cost a comparison of integers each."""

    __slots__ = ("_but", "_count", "_only", "_verdict", "_when")
    _count: cython.int
    _when: Annotated[Any, cython.int[16]]
    _only: Annotated[Any, cython.int[16]]
    _but: Annotated[Any, cython.int[16]]
    _verdict: Annotated[Any, cython.int[16]]

    def __init__(self, rows: list[Rule]) -> None:
        self._count = len(rows)
        if not cython.compiled:
            self._but, self._only, self._verdict, self._when = [0] * 16, [0] * 16, [0] * 16, [0] * 16
        for at, row in enumerate(rows):
            self._when[at] = row.when
            self._only[at] = row.only
            self._but[at] = row.but
            self._verdict[at] = row.verdict

    @cython.cfunc
    @cython.exceptval(check=False)
    def find(self, at: cython.int, flags: cython.int, traits: cython.int) -> cython.int:
        """Find the first row from `at` on that concerns a command with these traits.

        Return its verdict + 16 * the row after it, or 0 if there is none.
        """
        while at < self._count:
            if flags & self._when[at] and not traits & self._but[at]:
                if self._only[at] == 0 or traits & self._only[at]:
                    found: cython.int = self._verdict[at] + 16 * (at + 1)
                    return found
            at += 1
        return 0


_RULES = cython.declare(Rules, Rules(RULES))
_QUEUED = cython.declare(cython.int, _QUEUE)
_ARITY_GREW = cython.declare(cython.int, ARITY_GREW)


@cython.ccall
def admit(
    engine: CommandEngine, session: Session, entry: Command | None, words: ArgumentSpans, flags: cython.int
) -> cython.int:
    """Return RUNS, QUEUES, or REFUSED if the command is refused (its reply is written) or held back.

    flags: those of the session, and the conditions of the engine that concern the session.
    """
    at: cython.int = 0
    verdict: cython.int
    try:
        if entry is None:
            if words.get(0).lower() in _HTTP:
                session.enter("close")
                return REFUSED
            raise CommandError(_unknown_command(words.to_list(), engine.settings.compat))
        if entry.subcommands is not None and words.count > 1:
            raise CommandError(f"unknown subcommand '{_text(words.get(1)[:128])}'. Try {entry.name.upper()} HELP.")
        if not entry.accepts(words.count) or (
            entry.traits & _ARITY_GREW and not entry.accepts_in(words.count, engine.settings.compat)
        ):
            raise CommandError(f"wrong number of arguments for '{entry.fullname}' command")
        while True:
            found: cython.int = _RULES.find(at, flags, entry.traits)
            if found == 0:
                return RUNS
            verdict = found & 15
            at = found >> 4
            if verdict == _QUEUED:
                return QUEUES
            if not _decide(engine, session, entry, words, verdict):
                return REFUSED
    except CommandError as error:
        if not (isinstance(error, Redirect) and engine.paused_clients.hold_during_failover(session, words.to_list())):
            _refuse(engine, session, entry, error)
        return REFUSED


def _decide(engine: CommandEngine, session: Session, entry: Command, words: ArgumentSpans, verdict: int) -> bool:
    """Raise the error of a verdict that applies; return whether the command may go on."""
    compat: Compat = engine.settings.compat
    if verdict == _LOG_IN:
        raise NoAuth()
    if verdict == _NOT_IN_MULTI:
        if entry.traits & NO_MULTI or compat.valkey:
            name = f"'{entry.fullname}' " if compat.valkey else ""
            raise CommandError(f"Command {name}not allowed inside a transaction")
    elif verdict == _ASK_USER:
        engine.acl.check(session, entry, words)
    elif verdict == _REDIRECT:
        if "redirects" in session.extra:
            redirect(engine, session, entry, words.to_list())
    elif verdict == _NO_ROOM:
        if _needs_memory(session, entry):
            raise OutOfMemory()
    elif verdict == _REFUSE:
        if entry.fullname != "exec" or any(queued.write for queued in queued_entries(session)):
            _refuse_write(engine.refusal or "", entry)
    elif verdict == _READ_ONLY:
        refuse_write(engine, session, entry, words.to_list())
    elif verdict == _SUBSCRIBED:
        if session.out.resp == 2:
            raise CommandError(
                f"Can't execute '{entry.fullname}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET "
                "are allowed in this context"
            )
    elif verdict == _STALE:
        refuse_stale(engine, session, entry)
    elif verdict == _LOAD:
        raise Loading()
    elif verdict == _WAIT_FOR_SCRIPT:
        raise engine.busy_error()
    elif verdict == _NO_KEYSPACE:
        session.command = entry  # the log names it
        raise CommandError("Replica can't interact with the keyspace")
    else:
        assert verdict == _HOLD
        return not engine.paused_clients.postpone(session, entry, words.to_list())
    return True


def _refuse(engine: CommandEngine, session: Session, entry: Command | None, error: CommandError) -> None:
    """Reply with an error and count the error; inside MULTI, make the later EXEC fail."""
    if entry is not None:
        engine.stats.count_rejection(entry)
    if session.state & IN_MULTI:
        session.enter("queueing fails")
    if entry is not None and entry.fullname == "exec":
        session.discard()
        if not isinstance(error, Redirect):
            error = ExecAbort(f"Transaction discarded because of: {str(error).removeprefix('ERR ')}")
    session.reply_error(session.out.mark(), error)


def _refuse_write(reason: str, entry: Command) -> None:
    """Raise the error for a command that may write; PING is not rejected for every reason."""
    if reason not in (READ_ONLY, FEW_REPLICAS):
        raise Misconf(reason)
    if entry.fullname != "ping":
        raise ReadOnly() if reason == READ_ONLY else NoReplicas()


def denies_oom(entry: Command, compat: Any) -> bool:
    """Return whether the command has the flag `denyoom`."""
    if entry.traits & SUBSCRIBES:  # since Redis 8.6
        return bool(compat.knows(86))
    return entry.traits & NEEDS_MEMORY != 0


def _needs_memory(session: Session, entry: Command) -> bool:
    """Return whether the command is refused without room: queueing needs memory, too (server.c: reject_cmd_on_oom)."""
    compat = session.engine.settings.compat
    if entry.traits & IS_EXEC:
        return any(denies_oom(queued, compat) for queued in queued_entries(session))
    if session.state & IN_MULTI and not entry.traits & ENDS_MULTI:
        return True
    return denies_oom(entry, compat)


def queued_entries(session: Session) -> list[Command]:
    """Return the commands between MULTI and EXEC."""
    return session.queue.entries if session.queue else []


def _text(raw: bytes) -> str:
    """Return a client's bytes as an error message shows them: up to the first NUL, as with C's %s."""
    return raw.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _unknown_command(argv: list[bytes], compat: Compat) -> str:
    """Return server.c's message for an unknown command: its name and first arguments, cut at 128 bytes."""
    arguments = b""
    if len(argv) == 1 and compat.knows(86):
        return f"unknown command '{_text(argv[0][:128])}'"
    for word in argv[1:]:
        if len(arguments) >= 128:
            break
        arguments += b"'" + word.split(b"\0", 1)[0][: 128 - len(arguments)] + b"' "
    return f"unknown command '{_text(argv[0][:128])}', with args beginning with: {_text(arguments)}"
