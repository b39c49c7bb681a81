"""SLOWLOG and Valkey's COMMANDLOG: the logs of unusual commands (Redis: slowlog.c; Valkey: commandlog.c).

runtime/slowlog.py records the entries. Valkey's SLOWLOG is COMMANDLOG with the type `slow`.
"""

from __future__ import annotations

from rillet.commands.arguments import integer, subcommand_error
from rillet.commands.help_texts import declare_help
from rillet.commands.server import command
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.runtime.slowlog import SLOW, CommandLogList

_FLAGS = "admin loading stale"
_COUNT = "count should be greater than or equal to -1"


def _count(raw: bytes) -> int:
    count = integer(raw, _COUNT)
    if count < -1:
        raise CommandError(_COUNT)
    return count


def _reply(session: Session, log: CommandLogList, count: int) -> None:
    """Reply with the newest entries; -1 means all."""
    out = session.out
    entries = log.newest(count)
    out.array(len(entries))
    for entry in entries:
        out.array(6)
        for number in (entry.number, entry.time, entry.value):
            out.integer(number)
        out.raw(entry.words)
        out.bulk(entry.address)
        out.bulk(entry.name)


@command("slowlog|get", arity=-2, flags=_FLAGS, since="2.2.12", syntax="[count]",
         complexity="O(N) for N returned entries")
def slowlog_get(session: Session, argv: list[bytes]) -> None:
    """Return the newest commands of the slow log, 10 by default, or all with -1."""
    if len(argv) > 3:
        raise subcommand_error(argv)
    _reply(session, session.engine.command_log.logs[SLOW], _count(argv[2]) if len(argv) == 3 else 10)


@command("slowlog|len", arity=2, flags=_FLAGS, since="2.2.12", complexity="O(1)")
def slowlog_len(session: Session, argv: list[bytes]) -> None:
    """Return the number of commands in the slow log."""
    session.out.integer(len(session.engine.command_log.logs[SLOW].entries))


@command("slowlog|reset", arity=2, flags=_FLAGS, since="2.2.12", complexity="O(N) for N entries")
def slowlog_reset(session: Session, argv: list[bytes]) -> None:
    """Empty the slow log."""
    session.engine.command_log.logs[SLOW].entries.clear()
    session.out.ok()


def _log_of(session: Session, raw: bytes) -> CommandLogList:
    log: CommandLogList | None = session.engine.command_log.logs.get(raw.lower().decode("latin-1"))
    if log is None:
        raise CommandError("type should be one of the following: slow, large-request, large-reply")
    return log


_TYPE = "<SLOW | LARGE-REQUEST | LARGE-REPLY>"


@command("commandlog|get", arity=4, flags=_FLAGS, since="", valkey="8.1.0", syntax=f"count {_TYPE}",
         complexity="O(N) for N returned entries")
def commandlog_get(session: Session, argv: list[bytes]) -> None:
    """Return the newest commands of a log, or all with -1."""
    count = _count(argv[2])
    _reply(session, _log_of(session, argv[3]), count)


@command("commandlog|len", arity=3, flags=_FLAGS, since="", valkey="8.1.0", syntax=_TYPE, complexity="O(1)")
def commandlog_len(session: Session, argv: list[bytes]) -> None:
    """Return the number of commands in a log."""
    session.out.integer(len(_log_of(session, argv[2]).entries))


@command("commandlog|reset", arity=3, flags=_FLAGS, since="", valkey="8.1.0", syntax=_TYPE,
         complexity="O(N) for N entries")
def commandlog_reset(session: Session, argv: list[bytes]) -> None:
    """Empty a log."""
    _log_of(session, argv[2]).entries.clear()
    session.out.ok()


declare_help("slowlog", "server", "6.2.0")
declare_help("commandlog", "server", "", valkey="8.1.0")
