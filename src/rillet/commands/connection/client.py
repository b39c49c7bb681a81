"""CLIENT for the calling connection: name, library, replies, tracking (Redis: networking.c, tracking.c).

Client-side caching is not supported: CLIENT TRACKING ON returns an error, because rillet sends no invalidation
messages.
"""

from __future__ import annotations

from rillet.commands.arguments import integer, syntax_error, text
from rillet.commands.connection import command
from rillet.commands.replies import ReplySet, bulk_or_null, write_tree
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.runtime.session_state import REPLY_OFF

_CONNECTION_FLAGS = "noscript loading stale"


def _set_name(session: Session, name: bytes) -> None:
    if any(not 33 <= byte <= 126 for byte in name):
        raise CommandError("Client names cannot contain spaces, newlines or special characters.")
    session.name = name


@command("client|id", arity=2, flags=_CONNECTION_FLAGS, since="5.0.0", complexity="O(1)")
def client_id(session: Session, argv: list[bytes]) -> None:
    """Return the ID of this connection."""
    session.out.integer(session.id)


@command("client|getname", arity=2, flags=_CONNECTION_FLAGS, since="2.6.9", complexity="O(1)")
def client_getname(session: Session, argv: list[bytes]) -> None:
    """Return the name of this connection."""
    bulk_or_null(session.out, session.name or None)


@command("client|setname", arity=3, flags=_CONNECTION_FLAGS, since="2.6.9", syntax="connection-name", complexity="O(1)")
def client_setname(session: Session, argv: list[bytes]) -> None:
    """Set the name of this connection."""
    _set_name(session, argv[2])
    session.out.ok()


@command("client|setinfo", arity=4, flags=_CONNECTION_FLAGS, since="7.2.0",
         syntax="<LIB-NAME libname | LIB-VER libver>", complexity="O(1)")
def client_setinfo(session: Session, argv: list[bytes]) -> None:
    """Set the name or version of the client library; `compat 7.0` accepts it too, because libraries always send it."""
    attribute = {b"lib-name": "lib_name", b"lib-ver": "lib_ver"}.get(argv[2].lower())
    if attribute is None:
        raise CommandError(f"Unrecognized option '{text(argv[2])}'")
    if any(not 33 <= byte <= 126 for byte in argv[3]):
        raise CommandError(f"{text(argv[2].lower())} cannot contain spaces, newlines or special characters.")
    setattr(session, attribute, argv[3])
    session.out.ok()


@command("client|reply", arity=3, flags=_CONNECTION_FLAGS, since="3.2.0", syntax="<ON | OFF | SKIP>", complexity="O(1)")
def client_reply(session: Session, argv: list[bytes]) -> None:
    """Turn replies on or off, or skip the next one."""
    mode = argv[2].lower()
    if mode == b"on":
        session.enter("reply on")
        session.out.ok()
    elif mode == b"off":
        session.enter("reply off")
    elif mode == b"skip":
        if not session.state & REPLY_OFF:
            session.enter("reply skip")
    else:
        raise syntax_error()


def _on_or_off(raw: bytes) -> bool:
    if raw.lower() not in (b"on", b"off"):
        raise syntax_error()
    return raw.lower() == b"on"


@command("client|no-evict", arity=3, flags="admin " + _CONNECTION_FLAGS, since="7.0.0", syntax="<ON | OFF>",
         complexity="O(1)")
def client_no_evict(session: Session, argv: list[bytes]) -> None:
    """Exempt this connection from eviction of clients."""
    session.extra["no_evict"] = _on_or_off(argv[2])
    session.out.ok()


@command("client|no-touch", arity=3, flags=_CONNECTION_FLAGS, since="7.2.0", syntax="<ON | OFF>", complexity="O(1)")
def client_no_touch(session: Session, argv: list[bytes]) -> None:
    """Do not record accesses of keys by this connection, except by TOUCH."""
    session.enter("no touch" if _on_or_off(argv[2]) else "touch")
    session.out.ok()


@command("client|tracking", arity=-3, flags=_CONNECTION_FLAGS, since="6.0.0",
         syntax="<ON | OFF> [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]",
         complexity="O(1)")
def client_tracking(session: Session, argv: list[bytes]) -> None:
    """Turn invalidation messages off; ON returns an error, because they are not supported."""
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


@command("client|caching", arity=3, flags=_CONNECTION_FLAGS, since="6.0.0", syntax="<YES | NO>", complexity="O(1)")
def client_caching(session: Session, argv: list[bytes]) -> None:
    """Return an error, because the tracking of keys is always off."""
    raise CommandError(
        "CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled"
    )


@command("client|getredir", arity=2, flags=_CONNECTION_FLAGS, since="6.0.0", complexity="O(1)")
def client_getredir(session: Session, argv: list[bytes]) -> None:
    """Return -1: no connection receives invalidation messages."""
    session.out.integer(-1)


@command("client|trackinginfo", arity=2, flags=_CONNECTION_FLAGS, since="6.2.0", complexity="O(1)")
def client_trackinginfo(session: Session, argv: list[bytes]) -> None:
    """Return that the tracking of keys is off."""
    write_tree(session.out, {b"flags": ReplySet((b"off",)), b"redirect": -1, b"prefixes": []})
