"""ACL for the only user, `default`, who may run every command (Redis: acl.c)."""

from __future__ import annotations

from hashlib import sha256

from rillet.commands.arguments import subcommand_error, text
from rillet.commands.replies import write_bulks
from rillet.commands.server.info import all_commands
from rillet.commands.server.introspection import CATEGORIES, categories
from rillet.errors import CommandError
from rillet.runtime.registry import command
from rillet.runtime.session import Session


@command("acl|whoami", arity=2, flags="noscript loading stale", group="server", since="6.0.0", complexity="O(1)")
def acl_whoami(session: Session, argv: list[bytes]) -> None:
    """Return the name of the user."""
    session.out.bulk(session.user)


@command("acl|users", arity=2, flags="admin noscript loading stale", group="server", since="6.0.0", complexity="O(1)")
def acl_users(session: Session, argv: list[bytes]) -> None:
    """List the names of the users."""
    write_bulks(session.out, (b"default",))


@command("acl|list", arity=2, flags="admin noscript loading stale", group="server", since="6.0.0", complexity="O(1)")
def acl_list(session: Session, argv: list[bytes]) -> None:
    """List the users with their rules."""
    password: str = session.engine.settings.requirepass
    secret = "#" + sha256(password.encode("utf-8", "surrogateescape")).hexdigest() if password else "nopass"
    write_bulks(session.out, (f"user default on {secret} ~* &* +@all".encode(),))


@command("acl|cat", arity=-2, flags="noscript loading stale", group="server", since="6.0.0",
         complexity="O(N) for N commands", syntax="[categoryname]")
def acl_cat(session: Session, argv: list[bytes]) -> None:
    """List the categories of commands, or the commands of one category."""
    if len(argv) > 3:
        raise subcommand_error(argv)
    if len(argv) == 2:
        names = list(CATEGORIES)
    else:
        wanted = text(argv[2]).lower()
        if wanted not in CATEGORIES:
            raise CommandError(f"Unknown category '{text(argv[2])}'")
        compat = session.engine.settings.compat
        names = [one.fullname for one in all_commands() if one.known(compat) and wanted in categories(one)]
    write_bulks(session.out, [name.encode() for name in names])
