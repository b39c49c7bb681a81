"""LOLWUT: the version, without the pictures of some versions (Redis: lolwut.c)."""

from __future__ import annotations

from rillet.commands.arguments import integer
from rillet.commands.server import command
from rillet.errors import CommandError
from rillet.runtime.session import Session


@command("lolwut", arity=-1, flags="readonly fast", since="5.0.0", syntax="[VERSION version]", complexity="O(1)")
def lolwut(session: Session, argv: list[bytes]) -> None:
    """Show the version."""
    settings = session.engine.settings
    compat = settings.compat
    if len(argv) >= 3 and argv[1].lower() == b"version" and integer(argv[2]) < 0:
        raise CommandError("Invalid version")
    is_valkey = compat.valkey and not settings.extended_redis_compatibility
    version = f"Valkey ver. {compat.valkey_version}" if is_valkey else f"Redis ver. {compat.redis_version}"
    session.out.verbatim(f"{version}\n".encode())
