"""The CLIENT subcommands about other connections: LIST, INFO, KILL, UNBLOCK, PAUSE (Redis: networking.c).

`session.transport` is the connection that the frontend attached to a session; it has addresses and `close`. The host
pauses clients. A session of an embedded store has no transport, and the host of such a store cannot pause clients.
"""

from __future__ import annotations

from typing import Any

from rillet.commands.arguments import integer, subcommand_error, syntax_error, text, timeout_ms
from rillet.commands.connection import command
from rillet.errors import CommandError, Unblocked
from rillet.runtime.channels import Subscriptions
from rillet.runtime.session import Session
from rillet.runtime.session_state import BLOCKED, IN_MULTI, SUBSCRIBED
from rillet.runtime.settings import UNCOUNTED_OUTPUT

_CONNECTION_FLAGS = "noscript loading stale"
_CLIENT_TYPES = (b"normal", b"master", b"slave", b"replica", b"pubsub")


def _flag_letters(session: Session) -> bytes:
    letters = b""
    for bit, letter in ((SUBSCRIBED, b"P"), (IN_MULTI, b"x"), (BLOCKED, b"b")):
        if session.state & bit:
            letters += letter
    for is_set, letter in ((session.watcher.dirty, b"d"), (session.closing, b"c"),
                           (session.extra.get("unix"), b"U"), (session.extra.get("no_evict"), b"e")):  # fmt: skip
        if is_set:
            letters += letter
    return letters or b"N"


def _address(session: Session, side: str) -> bytes:
    """Return ip:port of the peer or the local side; ?:0 for a session without a socket."""
    address: str = getattr(session.transport, side, "") or "?:0"
    return address.encode()


def client_line(session: Session) -> bytes:
    """Return the line of CLIENT LIST about one session (networking.c: catClientInfoString)."""
    now = session.engine.clock.now_ms()
    extra = session.extra
    own = session.subscriptions or Subscriptions()
    in_multi = session.state & IN_MULTI
    queued_bytes = sum(len(word) for _, argv in session.queue for word in argv)
    query_bytes, query_free = getattr(session.transport, "query_buffer", (0, 0))
    unsent = getattr(session.transport, "unsent", 0)
    # Redis keeps the first bytes of the output in a fixed buffer; omem counts only the bytes beyond it.
    waiting = len(session.out) + unsent
    beyond = max(waiting - UNCOUNTED_OUTPUT, 0)
    name = session.command.fullname.encode() if session.command is not None else b"NULL"
    fields: tuple[tuple[bytes, Any], ...] = (
        (b"id", session.id), (b"addr", _address(session, "peer")), (b"laddr", _address(session, "local")),
        (b"fd", extra.get("fd", -1)), (b"name", session.name), (b"age", (now - session.created_ms) // 1000),
        (b"idle", (now - session.last_ms) // 1000), (b"flags", _flag_letters(session)), (b"db", session.db.index),
        (b"sub", len(own.channels)), (b"psub", len(own.patterns)), (b"ssub", len(own.shards)),
        (b"multi", len(session.queue) if in_multi else -1), (b"qbuf", query_bytes),
        (b"qbuf-free", query_free), (b"argv-mem", sum(map(len, session.argv))),
        (b"multi-mem", queued_bytes), (b"rbs", len(session.out.buf)), (b"rbp", len(session.out.buf)),
        (b"obl", min(waiting, UNCOUNTED_OUTPUT)), (b"oll", int(beyond > 0)), (b"omem", beyond),
        (b"tot-mem", len(session.out.buf) + unsent + queued_bytes + query_bytes + query_free),
        (b"events", extra.get("events", b"r")), (b"cmd", name), (b"user", session.user), (b"redir", -1),
        (b"resp", session.out.resp), (b"lib-name", session.lib_name), (b"lib-ver", session.lib_ver),
    )  # fmt: skip
    return b" ".join(key + b"=" + (value if isinstance(value, bytes) else b"%d" % value) for key, value in fields)


def _type_of(session: Session) -> bytes:
    return b"pubsub" if session.state & SUBSCRIBED else b"normal"


def _client_type(raw: bytes) -> bytes:
    if raw.lower() not in _CLIENT_TYPES:
        raise CommandError(f"Unknown client type '{text(raw)}'")
    return raw.lower()


def _listed(session: Session) -> list[Session]:
    """Return the sessions of clients, but not the session that replays the append-only file."""
    sessions: list[Session] = list(session.engine.sessions.values())
    return [other for other in sessions if not other.trusted or other is session]


@command("client|list", arity=-2, flags="admin " + _CONNECTION_FLAGS, since="2.4.0",
         syntax="[TYPE normal | master | replica | pubsub] [ID client-id [client-id ...]]",
         complexity="O(N) for N connections")
def client_list(session: Session, argv: list[bytes]) -> None:
    """List the connections, one line each."""
    sessions = _listed(session)
    option = argv[2].lower() if len(argv) > 2 else b""
    if len(argv) == 4 and option == b"type":
        kind = _client_type(argv[3])
        sessions = [other for other in sessions if _type_of(other) == kind]
    elif len(argv) > 3 and option == b"id":
        by_id = session.engine.sessions
        wanted = [integer(raw, "Invalid client ID") for raw in argv[3:]]
        sessions = [by_id[number] for number in wanted if number in by_id]
    elif len(argv) != 2:
        raise syntax_error()
    session.out.verbatim(b"".join(client_line(other) + b"\n" for other in sessions))


@command("client|info", arity=2, flags=_CONNECTION_FLAGS, since="6.2.0", complexity="O(1)")
def client_info(session: Session, argv: list[bytes]) -> None:
    """Show the line of CLIENT LIST about this connection."""
    session.out.verbatim(client_line(session) + b"\n")


def _kill_filter(argv: list[bytes]) -> tuple[dict[bytes, Any], bool]:
    """Return the filters of CLIENT KILL, and whether to spare the calling connection."""
    wanted: dict[bytes, Any] = {}
    skip_me = True
    for at in range(2, len(argv), 2):
        if at + 1 == len(argv):
            raise syntax_error()
        option, value = argv[at].lower(), argv[at + 1]
        if option == b"id":
            wanted[option] = integer(value, "client-id should be greater than 0")
            if wanted[option] < 1:
                raise CommandError("client-id should be greater than 0")
        elif option == b"type":
            wanted[option] = _client_type(value)
        elif option == b"user":
            if value != b"default":
                raise CommandError(f"No such user '{text(value)}'")
            wanted[option] = value
        elif option in (b"addr", b"laddr"):
            wanted[option] = value
        elif option == b"skipme" and value.lower() in (b"yes", b"no"):
            skip_me = value.lower() == b"yes"
        else:
            raise syntax_error()
    return wanted, skip_me


def _matches(session: Session, wanted: dict[bytes, Any]) -> bool:
    facts = {
        b"id": session.id,
        b"type": _type_of(session),
        b"user": session.user,
        b"addr": _address(session, "peer"),
        b"laddr": _address(session, "local"),
    }
    return all(facts[option] == value for option, value in wanted.items())


@command("client|kill", arity=-3, flags="admin " + _CONNECTION_FLAGS, since="2.4.0",
         syntax="<ip:port | <[ID client-id] | [TYPE normal | master | slave | replica | pubsub] | [USER username] | "
         "[ADDR ip:port] | [LADDR ip:port] | [SKIPME yes/no]> [<[ID client-id] | "
         "[TYPE normal | master | slave | replica | pubsub] | [USER username] | [ADDR ip:port] | [LADDR ip:port] | "
         "[SKIPME yes/no]> ...]>", complexity="O(N) for N connections")
def client_kill(session: Session, argv: list[bytes]) -> None:
    """Close the connections that match an address or filters."""
    old_form = len(argv) == 3
    wanted, skip_me = ({b"addr": argv[2]}, False) if old_form else _kill_filter(argv)
    killed = [other for other in _listed(session) if _matches(other, wanted) and not (other is session and skip_me)]
    for other in killed:
        other.closing = True
        if other is not session and other.transport is not None:
            other.transport.close()
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
    if len(argv) > 4:
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
    if len(argv) > 4:
        raise subcommand_error(argv)
    mode = argv[3].lower() if len(argv) == 4 else b"all"
    if mode not in (b"write", b"all"):
        raise CommandError("CLIENT PAUSE mode must be WRITE or ALL")
    milliseconds = timeout_ms(argv[2])
    session.engine.host.pause(session.engine.clock.now_ms() + milliseconds if milliseconds else 0, mode == b"write")
    session.out.ok()


@command("client|unpause", arity=2, flags="admin " + _CONNECTION_FLAGS, since="6.2.0",
         complexity="O(N) for N paused clients")
def client_unpause(session: Session, argv: list[bytes]) -> None:
    """Resume the clients that CLIENT PAUSE holds back."""
    session.engine.host.unpause()
    session.out.ok()
