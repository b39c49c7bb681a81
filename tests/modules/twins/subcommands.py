"""The twin of Redis's tests/modules/subcommands.c."""

from __future__ import annotations

from rillet.modules import CommandError, Context, Module

module = Module("subcommands", 1)


@module.command("subcommands.bitarray|set", arity=-2, keys=(1, 1, 1), access="RW update", since="")
def set_(context: Context, argv: list[bytes]) -> str:
    return "OK"


@module.command("subcommands.bitarray|get", arity=-2, keys=(1, 1, 1), access="RO access", since="")
def get(context: Context, argv: list[bytes]) -> str:
    if len(argv) > 4:
        raise CommandError(f"wrong number of arguments for '{context.command}' command")
    return "OK"


def get_fullname(context: Context, argv: list[bytes]) -> str:
    return context.command


for name in ("subcommands.parent_get_fullname", "subcommands.sub|get_fullname"):
    module.command(name, arity=-1 if "|" not in name else -2)(get_fullname)
