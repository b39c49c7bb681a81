"""The twin of Redis's tests/modules/getkeys.c: a command whose keys follow the word `key`."""

from __future__ import annotations

from typing import Any

from rillet.modules import CommandError, Context, Module

module = Module("getkeys", 1)


def positions(argv: list[bytes]) -> list[int]:
    return [at + 1 for at, word in enumerate(argv[:-1]) if word.lower() == b"key"]


def reply_keys(context: Context, argv: list[bytes]) -> list[bytes]:
    return [argv[at] for at in positions(argv)]


module.command("getkeys.command", flags="getkeys-api", get_keys=positions)(reply_keys)
module.command("getkeys.command_with_flags", flags="getkeys-api", get_keys=positions, access="RO access")(reply_keys)


@module.command("getkeys.fixed", arity=-3, keys=(2, 4, 1))
def fixed(context: Context, argv: list[bytes]) -> list[bytes]:
    return argv[1:]


@module.command("getkeys.introspect", arity=-4)
def introspect(context: Context, argv: list[bytes]) -> Any:
    with_flags = int(argv[1])
    try:
        found = context.call("COMMAND", "GETKEYSANDFLAGS", *argv[2:])
    except CommandError as error:
        if "Invalid command" in str(error):
            raise CommandError("ENOENT") from None
        if "no key arguments" in str(error):
            return []
        raise CommandError("EINVAL") from None
    return [[key, flags[0]] if with_flags else key for key, flags in found]
