"""AUTH and HELLO: the password, and the version of the protocol (Redis: acl.c, networking.c).

`AUTH password` means the user `default`, whose password `requirepass` sets. runtime/acl/control.py has the users.
"""

from __future__ import annotations

from rillet.commands.arguments import integer, syntax_error, text
from rillet.commands.connection import command
from rillet.commands.connection.client import _set_name
from rillet.commands.replies import write_tree
from rillet.errors import CommandError, NoAuth, NoProto
from rillet.runtime.acl.control import DEFAULT
from rillet.runtime.session import Session
from rillet.runtime.session_state import AUTHENTICATED

_CONNECTION_FLAGS = "noscript loading stale"


@command("auth", arity=-2, flags=_CONNECTION_FLAGS + " fast no_auth allow_busy", since="1.0.0",
         syntax="[username] password", complexity="O(1)")
def auth(session: Session, argv: list[bytes]) -> None:
    """Authenticate with a password."""
    if len(argv) > 3:
        raise syntax_error()
    acl = session.engine.acl
    if len(argv) == 2 and acl.default.no_password:
        raise CommandError(
            "AUTH <password> called without any password configured for the default user. "
            "Are you sure your configuration is correct?"
        )
    acl.log_in(session, argv[1] if len(argv) == 3 else DEFAULT, argv[-1])
    session.out.ok()


@command("hello", arity=-1, flags=_CONNECTION_FLAGS + " fast no_auth allow_busy", since="6.0.0",
         syntax="[protover [AUTH username password] [SETNAME clientname]]", complexity="O(1)")
def hello(session: Session, argv: list[bytes]) -> None:
    """Select the protocol version, authenticate, name the connection, and return properties of the server."""
    version = session.out.resp
    if len(argv) > 1:
        version = integer(argv[1], "Protocol version is not an integer or out of range")
        if version not in (2, 3):
            raise NoProto()
    before = session.name
    try:
        _take_options(session, argv)
    except CommandError:
        if session.engine.settings.compat.knows(72):
            session.name = before
        raise
    session.out.resp = version
    _introduce(session)


def _take_options(session: Session, argv: list[bytes]) -> None:
    """Authenticate and name the connection; since Redis 7.2, the last one of several AUTH and SETNAME counts."""
    acl, new = session.engine.acl, session.engine.settings.compat.knows(72)
    credentials: tuple[bytes, bytes] | None = None
    at = 2
    while at < len(argv):
        option, left = argv[at].lower(), len(argv) - at - 1
        if option == b"auth" and left >= 2:
            credentials = argv[at + 1], argv[at + 2]
            if not new:
                acl.log_in(session, *credentials)
            at += 3
        elif option == b"setname" and left:
            _set_name(session, argv[at + 1])
            at += 2
        else:
            raise CommandError(f"Syntax error in HELLO option '{text(argv[at])}'")
    if new and credentials is not None:
        acl.log_in(session, *credentials)
    if not session.state & AUTHENTICATED:
        raise NoAuth(
            "HELLO must be called with the client already authenticated, otherwise the HELLO "
            f"{'<proto> ' if new else ''}AUTH <user> <pass> option can be used to authenticate the client and select "
            "the RESP protocol version at the same time"
        )


def _introduce(session: Session) -> None:
    """Write the reply of HELLO: the properties of the server and of the connection."""
    settings, follows = session.engine.settings, session.engine.replication.master is not None
    compat, zone = settings.compat, settings.availability_zone
    is_valkey = compat.valkey and not settings.extended_redis_compatibility
    server, version = (b"valkey", compat.valkey_version) if is_valkey else (b"redis", compat.redis_version)
    write_tree(session.out, {
        b"server": server, b"version": version.encode(), b"proto": session.out.resp, b"id": session.id,
        b"mode": b"standalone", b"role": b"replica" if follows else b"master", b"modules": [],
        **({b"availability_zone": zone.encode("utf-8", "surrogateescape")} if zone else {}),
    })  # fmt: skip
