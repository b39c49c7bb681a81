"""The twin of Redis's tests/modules/testrdb.c: data without a key, before and after the keys of an RDB file."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from rillet.errors import Corrupt
from rillet.modules import AFTER_KEYS, BEFORE_KEYS, Context, Module, ModuleReader, ModuleType, ModuleWriter

module = Module("testrdb", 1)
module.options = ("handle-io-errors", "handle-repl-async-load")
THIRD = Fraction(6148914691236517199, 1 << 64)  # the long double nearest to 0.333333333333333333
# How many moments the module saves data at; and the data before and after the keys.
globals_: dict[Any, Any] = {"count": 0, BEFORE_KEYS: None, AFTER_KEYS: None}


@module.type
class RdbType(ModuleType):
    name = "test__rdb"
    encoding_version = 1

    def rdb_save(self, out: ModuleWriter, value: Any) -> None:
        out.signed(1)
        out.string(value)
        out.float(1.5)
        out.long_double(THIRD)

    def rdb_load(self, source: ModuleReader, version: int) -> Any:
        count, text, small, large = source.signed(), source.string(), source.float(), source.long_double()
        if (count, version, small, large) != (1, 1, 1.5, THIRD):
            raise Corrupt(f"unexpected values: {count}, {version}, {small}, {large}")
        return text

    def aux_save(self, out: ModuleWriter, when: int) -> None:
        value = globals_[when]
        out.signed(int(value is not None))
        if value is not None:
            out.string(value)

    def aux_load(self, source: ModuleReader, version: int, when: int) -> None:
        globals_[when] = source.string() if source.signed() else None


@module.on_load
def load(context: Context, arguments: list[bytes]) -> None:
    globals_["count"] = int(arguments[0]) if arguments else 0
    RdbType.aux_save_triggers = (0, AFTER_KEYS, BEFORE_KEYS | AFTER_KEYS)[globals_["count"]]


def declare(name: str, when: int) -> None:
    @module.command(f"testrdb.set.{name}", arity=2, flags="deny-oom")
    def set_(context: Context, argv: list[bytes]) -> int:
        globals_[when] = argv[1]
        return 1

    @module.command(f"testrdb.get.{name}", arity=1)
    def get(context: Context, argv: list[bytes]) -> bytes:
        return globals_[when] or b""


declare("before", BEFORE_KEYS)
declare("after", AFTER_KEYS)


@module.command("testrdb.set.key", arity=3, flags="deny-oom", keys=(1, 1, 1))
def set_key(context: Context, argv: list[bytes]) -> int:
    context.key(argv[1]).set(RdbType, argv[2])
    return 1


@module.command("testrdb.get.key", arity=2, keys=(1, 1, 1))
def get_key(context: Context, argv: list[bytes]) -> Any:
    return context.key(argv[1]).get(RdbType)
