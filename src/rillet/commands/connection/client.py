"""CLIENT for the calling connection: name, library, replies, capabilities (Redis: networking.c).

`tracking.py` has the commands of client-side caching, `client_admin.py` those about other connections.
"""

from __future__ import annotations

from rillet.commands.arguments import syntax_error, text
from rillet.commands.connection import command
from rillet.commands.replies import bulk_or_null
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
        raise CommandError(f"{text(argv[2])} cannot contain spaces, newlines or special characters.")
    setattr(session, attribute, argv[3])
    session.out.ok()


@command("client|import-source", arity=3, flags="noscript loading stale", since="", valkey="8.1.0",
         syntax="<ON | OFF>", complexity="O(1)")
def client_import_source(session: Session, argv: list[bytes]) -> None:
    """Let this connection see expired keys in import-mode, or end that."""
    mode = argv[2].lower()
    if mode != b"off" and not session.engine.importing:
        raise CommandError("Server is not in import mode")
    if mode not in (b"on", b"off"):
        raise syntax_error()
    session.enter("import" if mode == b"on" else "stop importing")
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
    session.remember("no_evict", _on_or_off(argv[2]))
    session.out.ok()


@command("client|no-touch", arity=3, flags=_CONNECTION_FLAGS, since="7.2.0", syntax="<ON | OFF>", complexity="O(1)")
def client_no_touch(session: Session, argv: list[bytes]) -> None:
    """Do not record accesses of keys by this connection, except by TOUCH."""
    session.enter("no touch" if _on_or_off(argv[2]) else "touch")
    session.out.ok()


@command("client|capa", arity=-3, flags=_CONNECTION_FLAGS, since="", valkey="8.0.0",
         syntax="capability [capability ...]", complexity="O(1)")
def client_capa(session: Session, argv: list[bytes]) -> None:
    """Record what this connection can handle: `redirect`, to be sent to the master; other names are ignored."""
    if any(word.lower() == b"redirect" for word in argv[2:]):
        session.remember("redirects", True)
    session.out.ok()
