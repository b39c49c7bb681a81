"""The twin of Redis's tests/modules/datatype.c: a type with an integer and a string."""

from __future__ import annotations

import time
from typing import Any

from rillet.errors import Corrupt
from rillet.modules import CommandError, Context, KeyPlace, Module, ModuleReader, ModuleType, ModuleWriter, WrongType
from rillet.types.module import NOWHERE, TypeHandle
from rillet.types.rdb.primitives import RdbReader, RdbWriter

module = Module("datatype", 1)
module.options = ("handle-io-errors",)
slow = {"loading": 0, "inside": 0, "version": 0}


@module.type
class DataType(ModuleType):
    name = "test___dt"
    encoding_version = 1

    def rdb_save(self, out: ModuleWriter, value: Any) -> None:
        out.signed(value[0])
        out.string(value[1])

    def rdb_load(self, source: ModuleReader, version: int) -> Any:
        slow["version"] = version
        return [source.signed(), source.string()]

    def copy(self, source: KeyPlace, target: KeyPlace, value: Any) -> Any:
        return None if value[0] == 42 else [value[0], b"/".join((value[1], source.key, target.key))]


def integer(raw: bytes) -> int:
    try:
        return int(raw)
    except ValueError:
        raise CommandError("Invalid integer value") from None


@module.command("datatype.set", arity=4, flags="write deny-oom", keys=(1, 1, 1))
def set_(context: Context, argv: list[bytes]) -> str:
    context.key(argv[1]).set(DataType, [integer(argv[2]), argv[3]])
    return "OK"


@module.command("datatype.get", arity=2, keys=(1, 1, 1))
def get(context: Context, argv: list[bytes]) -> Any:
    return context.key(argv[1]).get(DataType)


def handle(context: Context) -> TypeHandle:
    return context.module.services.calls.handle_of(DataType)


@module.command("datatype.dump", arity=2, keys=(1, 1, 1))
def dump(context: Context, argv: list[bytes]) -> bytes:
    out = RdbWriter()
    DataType().rdb_save(ModuleWriter(out, NOWHERE), context.key(argv[1]).get(DataType))
    return bytes(out.out)


@module.command("datatype.restore", arity=4, flags="write deny-oom", keys=(1, 1, 1))
def restore(context: Context, argv: list[bytes]) -> int:
    try:
        value = DataType().rdb_load(ModuleReader(RdbReader(argv[2]), NOWHERE), int(argv[3]))
    except Corrupt:
        raise CommandError("Invalid data") from None
    context.key(argv[1]).set(DataType, value)
    return slow["version"]


@module.command("datatype.swap", arity=3, flags="write", keys=(1, 1, 1))
def swap(context: Context, argv: list[bytes]) -> str:
    one, other = context.key(argv[1]), context.key(argv[2])
    try:
        one.replace(DataType, other.replace(DataType, one.get(DataType)))
    except WrongType:
        raise CommandError("failed") from None
    return "OK"


@module.command("datatype.slow_loading", arity=2, flags="allow-loading")
def slow_loading(context: Context, argv: list[bytes]) -> str:
    slow["loading"] = integer(argv[1])
    return "OK"


@module.command("datatype.is_in_slow_loading", arity=1, flags="allow-loading")
def is_in_slow_loading(context: Context, argv: list[bytes]) -> int:
    return slow["inside"]


@module.command("datatype.sleep", arity=2)
def sleep(context: Context, argv: list[bytes]) -> str:
    time.sleep(float(argv[1]))
    return "OK"
