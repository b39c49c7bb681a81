"""The twin of Redis's tests/modules/moduleconfigs.c: a setting of each type."""

from __future__ import annotations

from rillet.modules import CommandError, Context, Module

module = Module("moduleconfigs", 1)
BITS = {"none": 0, "five": 5, "one": 1, "two": 2, "four": 4}


def refuse_freed(context: Context, value: str) -> None:
    if value == "rejectisfreed":
        raise ValueError("Cannot set string to 'rejectisfreed'")


def check_booleans(context: Context) -> None:
    if context.setting("mutable_bool") and context.setting("immutable_bool"):
        raise CommandError("Bool configs cannot both be yes.")


def check_numbers(context: Context) -> None:
    if context.setting("numeric") == context.setting("memory_numeric"):
        raise CommandError("These configs cannot equal each other.")


module.boolean("mutable_bool", "Can be changed", True, apply=check_booleans)
module.boolean("immutable_bool", "Cannot be changed", False, mutable=False, apply=check_booleans)
module.string("string", "A text", "secret password", on_set=refuse_freed)
module.choice("enum", "A word", "one", tuple(BITS))
module.flags("flags", "Words", 3, BITS)
module.memory("memory_numeric", "Bytes", 1024, 0, 3000000, apply=check_numbers)
module.integer("numeric", "A number", -1, -5, 2000, apply=check_numbers)


@module.on_load
def load(context: Context, arguments: list[bytes]) -> None:
    if arguments and arguments[0].lower() == b"noload":
        # In C, the module forgets to call LoadConfigs. Here no call is necessary, so the twin refuses the load.
        context.log(
            "Module Configurations were not set, likely a missing LoadConfigs call. Unloading the module.", "warning"
        )
        raise CommandError("noload")
