"""The CLIENT subcommands about other connections: LIST, INFO, KILL, UNBLOCK, PAUSE (Redis: networking.c).

`session.transport` is the connection that the frontend attached to a session; it has addresses and `close`. A server
pauses clients. A session of an embedded store has no transport, and such a store cannot pause clients.
"""

from __future__ import annotations

from typing import Any

from rillet.commands.arguments import integer, subcommand_error, syntax_error, timeout_ms
from rillet.commands.connection import command
from rillet.commands.connection.client_filters import client_type, listed, parse_filters, type_of
from rillet.commands.help_texts import declare_help
from rillet.errors import CommandError, Unblocked
from rillet.runtime.client_line import client_line
from rillet.runtime.session import Session

_CONNECTION_FLAGS = "noscript loading stale"


@command("client|list", arity=-2, flags="admin " + _CONNECTION_FLAGS, since="2.4.0",
         syntax="[TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] [ID client-id [client-id ...]]",
         complexity="O(N) for N connections")
def client_list(session: Session, argv: list[bytes]) -> None:
    """List the connections, one line each."""
    sessions = listed(session)
    if len(argv) > 2:
        sessions = _selected(session, argv, sessions)
    session.out.verbatim(b"".join([client_line(other, session) + b"\n" for other in sessions]))


def _selected(session: Session, argv: list[bytes], sessions: list[Any]) -> list[Any]:
    """Return the sessions that CLIENT LIST shows with these arguments."""
    option = argv[2].lower()
    if session.engine.settings.compat.valkey and len(argv) > 3:
        matches = parse_filters(session, argv, skip_me=False)
        return [other for other in sessions if matches(other)]
    if len(argv) == 4 and option == b"type":
        kind = client_type(session, argv[3])
        return [other for other in sessions if type_of(other) == kind]
    if len(argv) > 3 and option == b"id":
        by_id = session.engine.sessions
        wanted = [integer(raw, "Invalid client ID") for raw in argv[3:]]
        return [by_id[number] for number in wanted if number in by_id]
    raise syntax_error()


@command("client|info", arity=2, flags=_CONNECTION_FLAGS, since="6.2.0", complexity="O(1)")
def client_info(session: Session, argv: list[bytes]) -> None:
    """Show the line of CLIENT LIST about this connection."""
    session.out.verbatim(client_line(session, session) + b"\n")


@command("client|kill", arity=-3, flags="admin " + _CONNECTION_FLAGS, since="2.4.0",
         syntax="<ip:port | <[ID client-id] | [TYPE <NORMAL | MASTER | SLAVE | REPLICA | PUBSUB>] | [USER username] | "
         "[ADDR ip:port] | [LADDR ip:port] | [SKIPME <YES | NO>] | [MAXAGE maxage]> "
         "[<[ID client-id] | [TYPE <NORMAL | MASTER | SLAVE | REPLICA | PUBSUB>] | [USER username] | [ADDR ip:port] | "
         "[LADDR ip:port] | [SKIPME <YES | NO>] | [MAXAGE maxage]> ...]>", complexity="O(N) for N connections")
def client_kill(session: Session, argv: list[bytes]) -> None:
    """Close the connections that match an address or filters."""
    old_form = len(argv) == 3
    if old_form:
        peer = argv[2].split(b"\0", 1)[0]
        killed = [other for other in listed(session) if other.address("peer") == peer]
    else:
        matches = parse_filters(session, argv, skip_me=True)
        killed = [other for other in listed(session) if matches(other)]
    for other in killed:
        other.closing = True
        if other is not session and other.transport is not None:
            other.transport.kill()
    if not old_form:
        session.out.integer(len(killed))
    elif killed:
        session.out.ok()
    else:
        raise CommandError("No such client")


@command("client|unblock", arity=-3, flags="admin " + _CONNECTION_FLAGS, since="5.0.0",
         syntax="client-id [TIMEOUT | ERROR]", complexity="O(1)")
def client_unblock(session: Session, argv: list[bytes]) -> None:
    """End the blocking of a connection, as if its timeout had passed, or with an error."""
    if len(argv) > 4 and not session.engine.settings.compat.valkey:  # Valkey ignores all words then
        raise subcommand_error(argv)
    reason = argv[3].lower() if len(argv) == 4 else b"timeout"
    if reason not in (b"timeout", b"error"):
        raise CommandError("CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
    other = session.engine.sessions.get(integer(argv[2]))
    if other is None or other.blocked is None or other.blocked.postponed or not other.blocked.unblockable:
        session.out.integer(0)
        return
    if reason == b"error":
        session.engine.blocking.fail(other, Unblocked("client unblocked via CLIENT UNBLOCK"))
    else:
        session.engine.blocking.expire(other)
    session.out.integer(1)


@command("client|pause", arity=-3, flags="admin " + _CONNECTION_FLAGS, since="2.9.50", syntax="timeout [WRITE | ALL]",
         complexity="O(1)")
def client_pause(session: Session, argv: list[bytes]) -> None:
    """Hold back the commands of all clients, or their writes, for some milliseconds."""
    if len(argv) > 4 and not session.engine.settings.compat.valkey:
        raise subcommand_error(argv)
    mode = argv[3].lower() if len(argv) == 4 else b"all"
    if mode not in (b"write", b"all"):
        raise CommandError("CLIENT PAUSE mode must be WRITE or ALL")
    milliseconds = timeout_ms(argv[2])
    until = session.engine.clock.uptime_ms() + milliseconds if milliseconds else 0
    session.engine.services.pause(until, mode == b"write")
    session.out.ok()


@command("client|unpause", arity=2, flags="admin " + _CONNECTION_FLAGS, since="6.2.0",
         complexity="O(N) for N paused clients")
def client_unpause(session: Session, argv: list[bytes]) -> None:
    """Resume the clients that CLIENT PAUSE holds back."""
    session.engine.services.unpause()
    session.out.ok()


declare_help("client", "connection", "5.0.0")
