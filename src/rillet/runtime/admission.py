"""Admission: whether a command may run now, is queued, or is refused (Redis: server.c, processCommand).

The engine runs a command directly if neither the session nor the command is special. Otherwise `admit` makes the checks
in Redis's order, and writes the reply of a command that does not run.
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: run interpreted
    from rillet import _cython as cython

from rillet.errors import CommandError, ExecAbort, Loading, Misconf, NoAuth, NoReplicas, OutOfMemory, ReadOnly, Redirect
from rillet.runtime.registry import Command
from rillet.runtime.replica import redirect, refuse_stale, refuse_write
from rillet.runtime.session import Session
from rillet.runtime.session_state import IN_MULTI, MONITOR, REPLICA, RESTRICTED, SUBSCRIBED, TRUSTED, UNAUTHENTICATED
from rillet.types.compat import Compat

# The value of Engine.refusal for a store that is open read-only; other values are texts of MISCONF errors.
READ_ONLY = "read-only"
# The value of Engine.refusal while fewer than min-replicas-to-write replicas are in time.
FEW_REPLICAS = "few-replicas"
# Commands that run inside MULTI instead of being queued.
_NOT_QUEUED = frozenset((b"exec", b"discard", b"multi", b"watch", b"quit", b"reset"))
# Commands that a RESP2 session with subscriptions may run.
_WHILE_SUBSCRIBED = frozenset(
    (b"ping", b"subscribe", b"ssubscribe", b"psubscribe", b"unsubscribe", b"sunsubscribe", b"punsubscribe", b"quit",
     b"reset")
)  # fmt: skip
# Commands that need memory in Redis 8.6 and newer, but not in older versions and Valkey.
_SUBSCRIBING = ("subscribe", "psubscribe", "ssubscribe")
# Flags of commands that a replica may not run, and a session with MONITOR (server.c: CLIENT_SLAVE includes it).
_KEYSPACE = frozenset(("write", "readonly", "may_replicate"))
# First words of the lines of an HTTP request, which a web page can make a browser send to the server. The connection is
# closed without a reply (server.c: securityWarningCommand).
_HTTP = frozenset((b"post", b"host:"))


@cython.ccall
@cython.exceptval(-1, check=False)
def admit(engine: Any, session: Session, entry: Command | None, argv: list[bytes]) -> cython.bint:
    """Return whether the command runs now; if not, it is queued, refused (its reply is written), or held back."""
    if entry is None and argv[0].lower() in _HTTP:
        session.enter("close")
        return False
    in_multi: cython.bint = session.state & IN_MULTI != 0
    try:
        _check(engine, session, entry, argv)
    except CommandError as error:
        if not (isinstance(error, Redirect) and engine.hold_during_failover(session, argv)):
            _refuse(engine, session, entry, error)
        return False
    if engine.paused and engine.postpone(session, entry, argv):
        return False
    if in_multi and entry is not None and entry.fullname.encode() not in _NOT_QUEUED:
        session.enqueue(entry, argv)
        session.command = entry
        session.out.simple(b"QUEUED")
        return False
    return True


def _refuse(engine: Any, session: Session, entry: Command | None, error: CommandError) -> None:
    """Reply with an error and count the error; inside MULTI, make the later EXEC fail."""
    if entry is not None:
        engine.statistics.count_rejection(entry)
    if session.state & IN_MULTI:
        session.enter("queueing fails")
    if entry is not None and entry.fullname == "exec":
        session.discard()
        if not isinstance(error, Redirect):
            error = ExecAbort(f"Transaction discarded because of: {str(error).removeprefix('ERR ')}")
    session.reply_error(session.out.mark(), error)


def _check(engine: Any, session: Session, entry: Command | None, argv: list[bytes]) -> None:
    """Raise the first error of Redis's processCommand that applies to the command."""
    if entry is None:
        raise CommandError(_unknown_command(argv, engine.settings.compat))
    if entry.subcommands is not None and len(argv) > 1:
        raise CommandError(f"unknown subcommand '{_text(argv[1][:128])}'. Try {entry.name.upper()} HELP.")
    if not entry.accepts_in(len(argv), engine.settings.compat):
        raise CommandError(f"wrong number of arguments for '{entry.fullname}' command")
    if session.state & UNAUTHENTICATED and not entry.no_auth:
        raise NoAuth()
    if session.state & IN_MULTI:
        _check_queueable(entry, engine.settings.compat.valkey)
    if session.state & RESTRICTED:
        engine.acl.check(session, entry, argv)
    trusted = session.state & TRUSTED
    if engine.follows and not trusted and "redirects" in session.extra:
        redirect(engine, session, entry, argv)
    if engine.out_of_memory and not trusted and _needs_memory(session, entry):
        raise OutOfMemory()
    if engine.refusal is not None and not trusted and _may_write(session, entry):
        _refuse_write(engine.refusal, entry)
    if engine.follows and not trusted:
        refuse_write(engine, session, entry, argv)
    if session.state & SUBSCRIBED and session.out.resp == 2 and entry.fullname.encode() not in _WHILE_SUBSCRIBED:
        raise CommandError(
            f"Can't execute '{entry.fullname}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET "
            "are allowed in this context"
        )
    if engine.follows and not trusted:
        refuse_stale(engine, session, entry)
    if engine.loading and not trusted and "loading" not in entry.flags:
        raise Loading()
    if engine.busy and "allow_busy" not in entry.flags:
        raise engine.busy_error()
    if session.state & (MONITOR | REPLICA) and not _KEYSPACE.isdisjoint(entry.flags):
        session.command = entry  # the log names it
        raise CommandError("Replica can't interact with the keyspace")


def _refuse_write(reason: str, entry: Command) -> None:
    """Raise the error for a command that may write; PING is not rejected for every reason."""
    if reason not in (READ_ONLY, FEW_REPLICAS):
        raise Misconf(reason)
    if entry.fullname != "ping":
        raise ReadOnly() if reason == READ_ONLY else NoReplicas()


def denies_oom(entry: Command, compat: Any) -> bool:
    """Return whether the command has the flag `denyoom`."""
    return "denyoom" in entry.flags or (entry.fullname in _SUBSCRIBING and bool(compat.knows(86)))


def _check_queueable(entry: Command, valkey: bool) -> None:
    """Raise CommandError for a command that may not be queued; in Valkey, CLIENT REPLY is one, too."""
    if entry.no_multi or (valkey and entry.fullname == "client|reply"):
        name = f"'{entry.fullname}' " if valkey else ""
        raise CommandError(f"Command {name}not allowed inside a transaction")


def _needs_memory(session: Session, entry: Command) -> bool:
    """Return whether the command is refused without room: queueing needs memory, too (server.c: reject_cmd_on_oom)."""
    name, compat = entry.fullname, session.engine.settings.compat
    if name == "exec":
        return any(denies_oom(queued, compat) for queued, _ in session.queue)
    if session.state & IN_MULTI and name not in ("discard", "quit", "reset"):
        return True
    return denies_oom(entry, compat)


def _may_write(session: Session, entry: Command) -> bool:
    """Return whether a failed log or save makes Redis refuse the command: writes, and PING for monitoring."""
    if entry.fullname == "exec":
        return any(queued.write for queued, _ in session.queue)
    return entry.write or entry.fullname == "ping"


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


__all__ = ["FEW_REPLICAS", "READ_ONLY", "admit", "denies_oom"]
