"""AUTH and HELLO: the password, and the version of the protocol (Redis: acl.c, networking.c).

There is one user, `default`; `requirepass` is its password.
"""

from __future__ import annotations

from hmac import compare_digest

from rillet.commands.arguments import integer, syntax_error, text
from rillet.commands.connection import command
from rillet.commands.connection.client import _set_name
from rillet.commands.replies import write_tree
from rillet.errors import CommandError, NoAuth, NoProto, WrongPass
from rillet.runtime.session import Session
from rillet.runtime.session_state import UNAUTHENTICATED

_CONNECTION_FLAGS = "noscript loading stale"


def _authenticate(session: Session, user: bytes, password: bytes) -> None:
    """Authenticate the session, or raise WrongPass (acl.c: ACLAuthenticateUser)."""
    wanted = session.engine.settings.requirepass.encode("utf-8", "surrogateescape")
    if user != b"default" or (wanted and not compare_digest(password, wanted)):
        raise WrongPass()
    session.user = user
    session.enter("authenticate")


@command("auth", arity=-2, flags=_CONNECTION_FLAGS + " fast no_auth allow_busy", since="1.0.0",
         syntax="[username] password", complexity="O(1)")
def auth(session: Session, argv: list[bytes]) -> None:
    """Authenticate with a password."""
    if len(argv) > 3:
        raise syntax_error()
    if len(argv) == 2 and not session.engine.settings.requirepass:
        raise CommandError(
            "AUTH <password> called without any password configured for the default user. "
            "Are you sure your configuration is correct?"
        )
    _authenticate(session, argv[1] if len(argv) == 3 else b"default", argv[-1])
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
    """Write the reply of HELLO: the properties of the server and of the connection."""
    compat = session.engine.settings.compat
    server, version = (b"valkey", compat.valkey_version) if compat.valkey else (b"redis", compat.redis_version)
    write_tree(session.out, {
        b"server": server, b"version": version.encode(), b"proto": session.out.resp, b"id": session.id,
        b"mode": b"standalone", b"role": b"master", b"modules": [],
    })  # fmt: skip
