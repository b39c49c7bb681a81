"""The twin of Redis's tests/modules/datatype2.c: values whose blocks of 4 KiB are in a pool outside of the keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rillet.modules import CommandError, Context, Digest, KeyPlace, Module, ModuleReader, ModuleType, ModuleWriter

module = Module("datatype2", 1)
BLOCK = 4096
pool: list[dict[bytes, list[bytes]]] = [{} for _ in range(16)]


class Memory:
    """The number of blocks, the number of used blocks, and a bit for each of these."""

    def __init__(self, size: int = 0, used: int = 0, mask: int = 0) -> None:
        self.size, self.used, self.mask = size, used, mask


@module.type
class MemoryType(ModuleType):
    name = "mem_alloc"

    def rdb_save(self, out: ModuleWriter, value: Memory) -> None:
        out.signed(value.size)
        out.signed(value.used)
        out.unsigned(value.mask)
        for block in pool[out.place.database][out.place.key] if value.size else ():
            out.string(block)

    def rdb_load(self, source: ModuleReader, version: int) -> Any:
        if version != 0:
            return None
        value = Memory(source.signed(), source.signed(), source.unsigned())
        if value.size:
            pool[source.place.database][source.place.key] = [source.string() for _ in range(value.size)]
        return value

    def aof_rewrite(self, place: KeyPlace, value: Memory) -> Iterator[list[Any]]:
        words: list[Any] = ["mem.allocandwrite", place.key, value.size]
        for at, block in enumerate(pool[place.database][place.key] if value.size else ()):
            words += [at, block]
        yield words

    def unlink(self, place: KeyPlace, value: Memory) -> None:
        if value.size:
            del pool[place.database][place.key]

    def digest(self, digest: Digest, place: KeyPlace, value: Memory) -> None:
        for number in (value.size, value.used, value.mask):
            digest.add(number)
        for block in pool[place.database][place.key] if value.size else ():
            digest.add(block)

    def copy(self, source: KeyPlace, target: KeyPlace, value: Memory) -> Any:
        if value.size:
            pool[target.database][target.key] = list(pool[source.database][source.key])
        return Memory(value.size, value.used, value.mask)

    def mem_usage(self, value: Memory, samples: int) -> int:
        return 24 + value.size * (BLOCK + 8)

    def free_effort(self, place: KeyPlace, value: Memory) -> int:
        return value.size


@module.on_flush
def flush(context: Context, database: int) -> None:
    for blocks in pool if database == -1 else [pool[database]]:
        blocks.clear()


@module.on_swap
def swap(context: Context, one: int, other: int) -> None:
    pool[one], pool[other] = pool[other], pool[one]


def number(raw: bytes, text: str) -> int:
    try:
        return int(raw)
    except ValueError:
        raise CommandError(text) from None


@module.command("mem.alloc", arity=3, flags="write deny-oom", keys=(1, 1, 1))
def alloc(context: Context, argv: list[bytes]) -> int:
    count = number(argv[2], "invalid block_num: must be a value greater than 0")
    key = context.key(argv[1])
    value = key.get(MemoryType)
    if value is None:
        value = Memory()
        key.set(MemoryType, value)
    if value.size:
        value.used = value.mask = 0
        pool[context.db].pop(argv[1], None)
    pool[context.db][argv[1]] = [bytes(BLOCK)] * count
    value.size = count
    context.replicate_verbatim()
    return count


@module.command("mem.free", arity=2, flags="write deny-oom", keys=(1, 1, 1))
def free(context: Context, argv: list[bytes]) -> int:
    value = context.key(argv[1]).get(MemoryType)
    if value is None:
        return 0
    if value.size:
        pool[context.db].pop(argv[1], None)
        value.size = value.used = value.mask = 0
    context.replicate_verbatim()
    return 1


@module.command("mem.write", arity=4, flags="write deny-oom", keys=(1, 1, 1))
def write(context: Context, argv: list[bytes]) -> int:
    at = number(argv[2], "invalid block_index: must be a value greater than 0")
    value = context.key(argv[1]).get(MemoryType)
    if value is None:
        raise CommandError("Memory has not been allocated")
    if value.mask >> at & 1:
        raise CommandError("block is busy")
    blocks = pool[context.db].get(argv[1], [])
    written = 0
    if at < len(blocks):
        data = argv[3][:BLOCK]
        blocks[at] = data + blocks[at][len(data) :]
        written = len(data)
        value.mask |= 1 << at
        value.used += 1
    context.replicate_verbatim()
    return written


@module.command("mem.read", arity=3, flags="readonly", keys=(1, 1, 1))
def read(context: Context, argv: list[bytes]) -> Any:
    at = number(argv[2], "invalid block_index: must be a value greater than 0")
    value = context.key(argv[1]).get(MemoryType)
    if value is None:
        raise CommandError("Memory has not been allocated")
    if not value.mask >> at & 1:
        return None
    return pool[context.db][argv[1]][at].partition(b"\0")[0]


@module.command("mem.usage", arity=2, flags="readonly", keys=(1, 1, 1))
def usage(context: Context, argv: list[bytes]) -> list[Any]:
    there = context.in_database(number(argv[1], "invalid value: must be a integer"))
    values = [there.key(key).get(MemoryType) for key in pool[there.db]]
    return ["total", sum(value.size for value in values), "used", sum(value.used for value in values)]


@module.command("mem.allocandwrite", arity=-3, flags="write deny-oom", keys=(1, 1, 1))
def alloc_and_write(context: Context, argv: list[bytes]) -> str:
    key = context.key(argv[1])
    value = key.get(MemoryType) or Memory()
    blocks = [bytes(BLOCK)] * int(argv[2])
    value.size, value.used, value.mask = len(blocks), 0, 0
    for at, data in zip(argv[3::2], argv[4::2], strict=True):
        blocks[int(at)] = data + blocks[int(at)][len(data) :]
        value.used += 1
        value.mask |= 1 << int(at)
    key.set(MemoryType, value)
    pool[context.db][argv[1]] = blocks
    context.replicate_verbatim()
    return "OK"
