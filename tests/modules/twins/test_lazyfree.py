"""The twin of Redis's tests/modules/test_lazyfree.c: a long list that UNLINK leaves to the background."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rillet.modules import CommandError, Context, KeyPlace, Module, ModuleReader, ModuleType, ModuleWriter

module = Module("lazyfreetest", 1)


@module.type
class Link(ModuleType):
    name = "test_lazy"

    def rdb_save(self, out: ModuleWriter, value: list[int]) -> None:
        out.unsigned(len(value))
        for element in value:
            out.signed(element)

    def rdb_load(self, source: ModuleReader, version: int) -> Any:
        return None if version != 0 else [source.signed() for _ in range(source.unsigned())]

    def aof_rewrite(self, place: KeyPlace, value: list[int]) -> Iterator[list[Any]]:
        for element in value:
            yield ["LAZYFREELINK.INSERT", place.key, element]

    def free_effort(self, place: KeyPlace, value: list[int]) -> int:
        return len(value)

    def mem_usage(self, value: list[int], samples: int) -> int:
        return 40 * len(value)


@module.command("lazyfreelink.insert", arity=3, flags="write deny-oom", keys=(1, 1, 1))
def insert(context: Context, argv: list[bytes]) -> int:
    key = context.key(argv[1])
    value = key.get(Link)
    try:
        element = int(argv[2])
    except ValueError:
        raise CommandError("invalid value: must be a signed 64 bit integer") from None
    if value is None:
        value = []
        key.set(Link, value)
    value.append(element)
    context.signal_ready(argv[1])
    context.replicate_verbatim()
    return len(value)


@module.command("lazyfreelink.len", arity=2, flags="readonly", keys=(1, 1, 1))
def length(context: Context, argv: list[bytes]) -> int:
    return len(context.key(argv[1]).get(Link) or ())
