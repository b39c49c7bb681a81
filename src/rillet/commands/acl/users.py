"""ACL SETUSER, GETUSER, DELUSER, LIST, USERS, LOAD and SAVE: the users and their rules (Redis: acl.c).

`EngineServices.read_acl_file` and `write_acl_file` read and write the ACL file.
"""

from __future__ import annotations

from typing import Any

from rillet.commands.acl import ADMIN, FLAGS, command
from rillet.commands.replies import ReplySet, bulk_or_null, write_bulks, write_tree
from rillet.errors import CommandError
from rillet.runtime.acl.control import DEFAULT
from rillet.runtime.acl.selector import Selector
from rillet.runtime.session import Session

_RULES = "username [rule [rule ...]]"


@command("acl|whoami", arity=2, flags=FLAGS, since="6.0.0", complexity="O(1)")
def acl_whoami(session: Session, argv: list[bytes]) -> None:
    """Return the name of the user."""
    bulk_or_null(session.out, None if session.account is None else session.user)


@command("acl|users", arity=2, flags=ADMIN, since="6.0.0", complexity="O(N) for N users")
def acl_users(session: Session, argv: list[bytes]) -> None:
    """List the names of the users."""
    write_bulks(session.out, sorted(session.engine.acl.users))


@command("acl|list", arity=2, flags=ADMIN, since="6.0.0", complexity="O(N) for N users")
def acl_list(session: Session, argv: list[bytes]) -> None:
    """List the users with their rules, as lines of an ACL file."""
    write_bulks(session.out, session.engine.acl.lines())


@command("acl|setuser", arity=-3, flags=ADMIN, since="6.0.0", syntax=_RULES, complexity="O(N) for N rules")
def acl_setuser(session: Session, argv: list[bytes]) -> None:
    """Create a user, or change the rules of one; if one rule is invalid, change nothing."""
    session.engine.acl.set_user(argv[2], argv[3:])
    session.out.ok()


@command(
    "acl|deluser",
    arity=-3,
    flags=ADMIN,
    since="6.0.0",
    syntax="username [username ...]",
    complexity="O(N) for N connections",
)
def acl_deluser(session: Session, argv: list[bytes]) -> None:
    """Delete users, and close their connections."""
    if DEFAULT in argv[2:]:
        raise CommandError("The 'default' user cannot be removed")
    session.out.integer(sum(session.engine.acl.delete_user(name) for name in argv[2:]))


def _fields(selector: Selector, valkey: bool) -> dict[bytes, Any]:
    """Return the fields of a selector in ACL GETUSER (aclAddReplySelectorDescription)."""
    fields = {
        b"commands": selector.describe_commands(),
        b"keys": b"~*" if selector.all_keys else b" ".join(selector.key_patterns()),
        b"channels": b"&*" if selector.all_channels else b" ".join(selector.channel_patterns()),
    }
    if valkey:
        fields[b"databases"] = b"alldbs" if selector.all_dbs else selector.databases()
    return fields


@command("acl|getuser", arity=3, flags=ADMIN, since="6.0.0", syntax="username", complexity="O(N) for N rules")
def acl_getuser(session: Session, argv: list[bytes]) -> None:
    """Return the rules of a user by their kind."""
    user = session.engine.acl.users.get(argv[2])
    if user is None:
        session.out.null()
        return
    valkey: bool = session.engine.settings.compat.valkey
    root, *others = user.selectors
    write_tree(session.out, {
        b"flags": ReplySet(user.flags()), b"passwords": user.passwords, **_fields(root, valkey),
        b"selectors": [_fields(selector, valkey) for selector in others],
    })  # fmt: skip


# -- the ACL file -----------------------------------------------------------------------------------


def _file_name(session: Session) -> str:
    """Return the setting `aclfile`; CommandError if it is empty."""
    settings = session.engine.settings
    if not settings.aclfile:
        if settings.compat.valkey:
            raise CommandError(
                "This instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER "
                "command and then issue a CONFIG REWRITE (assuming you have a configuration file set) in order to "
                "store users in the configuration."
            )
        raise CommandError(
            "This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL "
            "SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in "
            "order to store users in the Redis configuration."
        )
    name: str = settings.aclfile
    return name


@command("acl|load", arity=2, flags=ADMIN, since="6.0.0", complexity="O(N) for N users")
def acl_load(session: Session, argv: list[bytes]) -> None:
    """Replace the users by those of the ACL file; if the file has a mistake, change nothing."""
    engine, name = session.engine, _file_name(session)
    engine.acl.load(engine.services.read_acl_file(), name)
    session.out.ok()


@command("acl|save", arity=2, flags=ADMIN, since="6.0.0", complexity="O(N) for N users")
def acl_save(session: Session, argv: list[bytes]) -> None:
    """Write the users to the ACL file."""
    engine = session.engine
    _file_name(session)
    engine.services.write_acl_file(b"".join(line + b"\n" for line in engine.acl.lines()))
    session.out.ok()
