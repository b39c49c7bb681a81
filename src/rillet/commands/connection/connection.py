"""The commands about the connection itself (Redis: networking.c, and AUTH of acl.c).

There is one user, `default`; its password is the setting `requirepass`.

A session that comes through a socket has a `transport`, which knows its addresses (`peer`, `local`) and
can `close`; the host pauses clients. An embedded store has neither.
"""

from __future__ import annotations

from hmac import compare_digest
from typing import Any

from rillet.commands.arguments import integer, small_integer, syntax_error, text, timeout_ms
from rillet.commands.help import reply_help
from rillet.errors import CommandError, NoAuth, NoProto, Unblocked, WrongPass
from rillet.runtime.channels import Subscriptions
from rillet.runtime.registry import command
from rillet.runtime.session import (
    BLOCKED,
    IN_MULTI,
    REPLY_OFF,
    REPLY_SKIP,
    REPLY_SKIP_NEXT,
    SUBSCRIBED,
    UNAUTHENTICATED,
    Session,
)
from rillet.runtime.settings import UNCOUNTED_OUTPUT

_CONNECTION_FLAGS = "noscript loading stale"
_CLIENT_TYPES = (b"normal", b"master", b"slave", b"replica", b"pubsub")


# -- getting in -------------------------------------------------------------------------------------


def _authenticate(session: Session, user: bytes, password: bytes) -> None:
    """Let the session in, or raise WrongPass (acl.c: ACLAuthenticateUser)."""
    wanted = session.engine.settings.requirepass.encode("utf-8", "surrogateescape")
    if user != b"default" or (wanted and not compare_digest(password, wanted)):
        raise WrongPass()
    session.user = user
    session.state &= ~UNAUTHENTICATED


@command("auth", arity=-2, flags=_CONNECTION_FLAGS + " fast no_auth allow_busy", group="connection", since="1.0.0",
         complexity="O(1)", syntax="[username] password")
def auth(session: Session, argv: list[bytes]) -> None:
    """Log in with a password."""
    if len(argv) > 3:
        raise syntax_error()
    if len(argv) == 2 and not session.engine.settings.requirepass:
        raise CommandError(
            "AUTH <password> called without any password configured for the default user. "
            "Are you sure your configuration is correct?"
        )
    _authenticate(session, argv[1] if len(argv) == 3 else b"default", argv[-1])
    session.out.ok()


@command("hello", arity=-1, flags=_CONNECTION_FLAGS + " fast no_auth allow_busy", group="connection", since="6.0.0",
         complexity="O(1)", syntax="[protover [AUTH username password] [SETNAME clientname]]")
def hello(session: Session, argv: list[bytes]) -> None:
    """Choose the protocol version and introduce both sides."""
    version = session.out.resp
    if len(argv) > 1:
        version = integer(argv[1], "Protocol version is not an integer or out of range")
        if version not in (2, 3):
            raise NoProto()
    at = 2
    while at < len(argv):
        option, left = argv[at].lower(), len(argv) - at - 1
        if option == b"auth" and left >= 2:
            _authenticate(session, argv[at + 1], argv[at + 2])
            at += 3
        elif option == b"setname" and left:
            _set_name(session, argv[at + 1])
            at += 2
        else:
            raise CommandError(f"Syntax error in HELLO option '{text(argv[at])}'")
    if session.state & UNAUTHENTICATED:
        raise NoAuth(
            "HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> "
            "option can be used to authenticate the client and select the RESP protocol version at the same time"
        )
    session.out.resp = version
    _introduce(session)


def _introduce(session: Session) -> None:
    out = session.out
    compat = session.engine.settings.compat
    server = (b"valkey", compat.valkey_version) if compat.valkey else (b"redis", compat.redis_version)
    out.map(7)
    for name, value in ((b"server", server[0]), (b"version", server[1].encode()), (b"proto", out.resp),
                        (b"id", session.id), (b"mode", b"standalone"), (b"role", b"master")):  # fmt: skip
        out.bulk(name)
        if isinstance(value, bytes):
            out.bulk(value)
        else:
            out.integer(value)
    out.bulk(b"modules")
    out.array(0)


@command("quit", arity=-1, flags=_CONNECTION_FLAGS + " fast no_auth allow_busy", group="connection", since="1.0.0",
         complexity="O(1)")
def quit_(session: Session, argv: list[bytes]) -> None:
    """Close the connection once the replies are out."""
    session.out.ok()
    session.closing = True


@command("reset", arity=1, flags=_CONNECTION_FLAGS + " fast no_auth allow_busy", group="connection", since="6.2.0",
         complexity="O(1)")
def reset(session: Session, argv: list[bytes]) -> None:
    """Bring the connection back to the state of a new one."""
    engine = session.engine
    engine.discard(session)
    engine.channels.forget(session)
    session.db = engine.databases[0]
    session.out.resp = 2
    session.name = b""
    session.user = b"default"
    session.state &= ~(REPLY_OFF | REPLY_SKIP_NEXT | UNAUTHENTICATED)
    if engine.settings.requirepass and not session.trusted:
        session.state |= UNAUTHENTICATED
    session.out.simple(b"RESET")


@command("ping", arity=-1, flags="fast", group="connection", since="1.0.0", complexity="O(1)", syntax="[message]")
def ping(session: Session, argv: list[bytes]) -> None:
    """Answer, to show that the server is there."""
    if len(argv) > 2:
        raise CommandError("wrong number of arguments for 'ping' command")
    if session.state & SUBSCRIBED and session.out.resp == 2:
        session.out.array(2)
        session.out.bulk(b"pong")
        session.out.bulk(argv[1] if len(argv) == 2 else b"")
    elif len(argv) == 2:
        session.out.bulk(argv[1])
    else:
        session.out.simple(b"PONG")


@command("echo", arity=2, flags="loading stale fast", group="connection", since="1.0.0", complexity="O(1)",
         syntax="message")
def echo(session: Session, argv: list[bytes]) -> None:
    """Send the message back."""
    session.out.bulk(argv[1])


@command("select", arity=2, flags="loading stale fast", group="connection", since="1.0.0", complexity="O(1)",
         syntax="index")
def select(session: Session, argv: list[bytes]) -> None:
    """Go to another numbered database."""
    index = small_integer(argv[1])
    if not 0 <= index < len(session.engine.databases):
        raise CommandError("DB index is out of range")
    session.db = session.engine.databases[index]
    session.out.ok()


# -- CLIENT: about this connection ------------------------------------------------------------------


def _set_name(session: Session, name: bytes) -> None:
    if any(not 33 <= byte <= 126 for byte in name):
        raise CommandError("Client names cannot contain spaces, newlines or special characters.")
    session.name = name


@command("client|id", arity=2, flags=_CONNECTION_FLAGS, group="connection", since="5.0.0", complexity="O(1)")
def client_id(session: Session, argv: list[bytes]) -> None:
    """Tell the number of this connection."""
    session.out.integer(session.id)


@command("client|getname", arity=2, flags=_CONNECTION_FLAGS, group="connection", since="2.6.9", complexity="O(1)")
def client_getname(session: Session, argv: list[bytes]) -> None:
    """Tell the name of this connection."""
    if session.name:
        session.out.bulk(session.name)
    else:
        session.out.null()


@command("client|setname", arity=3, flags=_CONNECTION_FLAGS, group="connection", since="2.6.9", complexity="O(1)",
         syntax="connection-name")
def client_setname(session: Session, argv: list[bytes]) -> None:
    """Give this connection a name."""
    _set_name(session, argv[2])
    session.out.ok()


@command("client|setinfo", arity=4, flags=_CONNECTION_FLAGS, group="connection", since="7.2.0", complexity="O(1)",
         syntax="<LIB-NAME libname | LIB-VER libver>")
def client_setinfo(session: Session, argv: list[bytes]) -> None:
    """Tell which client library this is; newer than Redis 7.0, but libraries send it to every server."""
    attribute = {b"lib-name": "lib_name", b"lib-ver": "lib_ver"}.get(argv[2].lower())
    if attribute is None:
        raise CommandError(f"Unrecognized option '{text(argv[2])}'")
    if any(not 33 <= byte <= 126 for byte in argv[3]):
        raise CommandError(f"{text(argv[2].lower())} cannot contain spaces, newlines or special characters.")
    setattr(session, attribute, argv[3])
    session.out.ok()


@command("client|reply", arity=3, flags=_CONNECTION_FLAGS, group="connection", since="3.2.0", complexity="O(1)",
         syntax="<ON | OFF | SKIP>")
def client_reply(session: Session, argv: list[bytes]) -> None:
    """Say whether replies are wanted: all, none, or all but the next."""
    mode = argv[2].lower()
    if mode == b"on":
        session.state &= ~(REPLY_OFF | REPLY_SKIP | REPLY_SKIP_NEXT)
        session.out.ok()
    elif mode == b"off":
        session.state |= REPLY_OFF
    elif mode == b"skip":
        if not session.state & REPLY_OFF:
            session.state |= REPLY_SKIP_NEXT
    else:
        raise syntax_error()


def _on_or_off(raw: bytes) -> bool:
    if raw.lower() not in (b"on", b"off"):
        raise syntax_error()
    return raw.lower() == b"on"


@command("client|no-evict", arity=3, flags="admin " + _CONNECTION_FLAGS, group="connection", since="7.0.0",
         complexity="O(1)", syntax="<ON | OFF>")
def client_no_evict(session: Session, argv: list[bytes]) -> None:
    """Spare this connection when clients are closed for the memory they take."""
    session.extra["no_evict"] = _on_or_off(argv[2])
    session.out.ok()


@command("client|no-touch", arity=3, flags=_CONNECTION_FLAGS, group="connection", since="7.2.0", complexity="O(1)",
         syntax="<ON | OFF>")
def client_no_touch(session: Session, argv: list[bytes]) -> None:
    """Leave the access time of keys alone; newer than Redis 7.0, and access times are not kept."""
    session.extra["no_touch"] = _on_or_off(argv[2])
    session.out.ok()


# -- CLIENT: about all connections ------------------------------------------------------------------


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
    # Redis has a fixed buffer for the beginning of what waits, and counts as omem what lies beyond it.
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
    """Return the sessions of clients: what replays a log is none."""
    sessions: list[Session] = list(session.engine.sessions.values())
    return [other for other in sessions if not other.trusted or other is session]


@command("client|list", arity=-2, flags="admin " + _CONNECTION_FLAGS, group="connection", since="2.4.0",
         complexity="O(N) for N connections",
         syntax="[TYPE normal | master | replica | pubsub] [ID client-id [client-id ...]]")
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


@command("client|info", arity=2, flags=_CONNECTION_FLAGS, group="connection", since="6.2.0", complexity="O(1)")
def client_info(session: Session, argv: list[bytes]) -> None:
    """Show the line of CLIENT LIST about this connection."""
    session.out.verbatim(client_line(session) + b"\n")


def _kill_filter(argv: list[bytes]) -> tuple[dict[bytes, Any], bool]:
    """Return what CLIENT KILL's options ask for, and whether the caller is spared."""
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


@command("client|kill", arity=-3, flags="admin " + _CONNECTION_FLAGS, group="connection", since="2.4.0",
         complexity="O(N) for N connections",
         syntax="<ip:port | <[ID client-id] | [TYPE normal | master | slave | replica | pubsub] | [USER username] | "
         "[ADDR ip:port] | [LADDR ip:port] | [SKIPME yes/no]> [<[ID client-id] | "
         "[TYPE normal | master | slave | replica | pubsub] | [USER username] | [ADDR ip:port] | [LADDR ip:port] | "
         "[SKIPME yes/no]> ...]>")
def client_kill(session: Session, argv: list[bytes]) -> None:
    """Close the connections that match."""
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


@command("client|unblock", arity=-3, flags="admin " + _CONNECTION_FLAGS, group="connection", since="5.0.0",
         complexity="O(1)", syntax="client-id [TIMEOUT | ERROR]")
def client_unblock(session: Session, argv: list[bytes]) -> None:
    """Wake a waiting connection, as if its time were up or with an error."""
    if len(argv) > 4:
        raise subcommand_error("CLIENT", argv)
    reason = argv[3].lower() if len(argv) == 4 else b"timeout"
    if reason not in (b"timeout", b"error"):
        raise CommandError("CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
    other = session.engine.sessions.get(integer(argv[2]))
    if other is None or other.blocked is None or other.blocked.postponed:
        session.out.integer(0)
        return
    if reason == b"error":
        session.engine.unblock(other, Unblocked("client unblocked via CLIENT UNBLOCK"))
    else:
        session.engine.expire_block(other)
    session.out.integer(1)


def subcommand_error(container: str, argv: list[bytes]) -> CommandError:
    """Return the error of a sub-command with arguments that it does not take (addReplySubcommandSyntaxError)."""
    name = text(argv[1][:128])
    return CommandError(f"unknown subcommand or wrong number of arguments for '{name}'. Try {container} HELP.")


@command("client|pause", arity=-3, flags="admin " + _CONNECTION_FLAGS, group="connection", since="2.9.50",
         complexity="O(1)", syntax="timeout [WRITE | ALL]")
def client_pause(session: Session, argv: list[bytes]) -> None:
    """Hold all clients, or the writing ones, back for some milliseconds."""
    if len(argv) > 4:
        raise subcommand_error("CLIENT", argv)
    mode = argv[3].lower() if len(argv) == 4 else b"all"
    if mode not in (b"write", b"all"):
        raise CommandError("CLIENT PAUSE mode must be WRITE or ALL")
    milliseconds = timeout_ms(argv[2])
    session.engine.host.pause(session.engine.clock.now_ms() + milliseconds if milliseconds else 0, mode == b"write")
    session.out.ok()


@command("client|unpause", arity=2, flags="admin " + _CONNECTION_FLAGS, group="connection", since="6.2.0",
         complexity="O(N) for N paused clients")
def client_unpause(session: Session, argv: list[bytes]) -> None:
    """Let the clients go on that CLIENT PAUSE holds back."""
    session.engine.host.unpause()
    session.out.ok()


# -- CLIENT: caching with the server's help, which is not offered -----------------------------------


@command("client|tracking", arity=-3, flags=_CONNECTION_FLAGS, group="connection", since="6.0.0", complexity="O(1)",
         syntax="<ON | OFF> [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]")
def client_tracking(session: Session, argv: list[bytes]) -> None:
    """Turn invalidation messages off; on is refused, because none would ever be sent."""
    at = 3
    while at < len(argv):
        option = argv[at].lower()
        if option in (b"redirect", b"prefix") and at + 1 < len(argv):
            at += 1
            if option == b"redirect" and integer(argv[at]) not in session.engine.sessions:
                raise CommandError("The client ID you want redirect to does not exist")
        elif option not in (b"bcast", b"optin", b"optout", b"noloop"):
            raise syntax_error()
        at += 1
    if _on_or_off(argv[2]):
        raise CommandError("client side caching is not supported: no invalidation message would be sent")
    session.out.ok()


@command("client|caching", arity=3, flags=_CONNECTION_FLAGS, group="connection", since="6.0.0", complexity="O(1)",
         syntax="<YES | NO>")
def client_caching(session: Session, argv: list[bytes]) -> None:
    """Say whether the keys of the next command are tracked; there is no tracking mode in which it may be said."""
    raise CommandError(
        "CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled"
    )


@command("client|getredir", arity=2, flags=_CONNECTION_FLAGS, group="connection", since="6.0.0", complexity="O(1)")
def client_getredir(session: Session, argv: list[bytes]) -> None:
    """Tell which connection gets the invalidation messages: -1, none."""
    session.out.integer(-1)


@command("client|trackinginfo", arity=2, flags=_CONNECTION_FLAGS, group="connection", since="6.2.0", complexity="O(1)")
def client_trackinginfo(session: Session, argv: list[bytes]) -> None:
    """Tell the state of tracking: off."""
    out = session.out
    out.map(3)
    out.bulk(b"flags")
    out.set(1)
    out.bulk(b"off")
    out.bulk(b"redirect")
    out.integer(-1)
    out.bulk(b"prefixes")
    out.array(0)


@command("client|help", arity=2, flags="loading stale", group="connection", since="5.0.0", complexity="O(1)")
def client_help(session: Session, argv: list[bytes]) -> None:
    """Show this help."""
    reply_help(session, "client")
