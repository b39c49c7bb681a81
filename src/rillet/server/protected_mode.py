"""Protected mode: a server whose user `default` has no password serves only clients on its own machine.

A new client from another host gets an error and is disconnected; a client of a Unix socket is local
(networking.c: clientAcceptHandler). The words depend on the server that `compat` names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rillet.types.compat import Compat

if TYPE_CHECKING:
    from rillet.runtime.engine import Engine

_DENIED = (
    "-DENIED {name} protected mode because protected mode is enabled and no password is set for the default user. "
    "In this mode connections are only accepted from the loopback interface. If you want to connect from external "
    "computers{to} may adopt one of the following solutions: 1) Just disable protected mode sending the command "
    "'CONFIG SET protected-mode no' from the loopback interface by connecting{to_it} from the same host the server is "
    "running, however MAKE SURE {it} not publicly accessible from internet if you do so. Use CONFIG REWRITE to make "
    "this change permanent. 2) Alternatively you can just disable the protected mode by editing the {file} "
    "file, and setting the protected mode option to 'no', and then restarting the server. 3) If you started the server "
    "manually just for testing, restart it with the '--protected-mode no' option. 4) {set_up} authentication "
    "password for the default user. NOTE: You only need to do one of the above things in order for the server to start "
    "accepting connections from the outside.\r\n"
)
_REDIS = {"name": "Redis is running in", "to": " to Redis you", "to_it": " to Redis", "it": "Redis is",
          "file": "Redis configuration"}  # fmt: skip
_VALKEY = {"name": "Running in", "to": ", you", "to_it": "", "it": "it's", "file": "configuration"}


def denied(compat: Compat) -> bytes:
    """Return the error that a client from another host gets."""
    words = _VALKEY if compat.valkey else _REDIS
    set_up = "Set up an" if compat.knows(72) else "Setup a an"
    return _DENIED.format(**words, set_up=set_up).encode()


def is_local(host: str, compat: Compat) -> bool:
    """Return whether a client's address is on this machine; 7.0 knows one IPv4 address only."""
    return host in ("127.0.0.1", "::1") or (host.startswith("127.") and compat.knows(72))


def default_user_is_open(engine: Engine) -> bool:
    """Return whether the user `default` needs no password."""
    return bool(engine.acl.default.no_password)
