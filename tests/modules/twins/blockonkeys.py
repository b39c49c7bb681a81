"""The twin of Redis's tests/modules/blockonkeys.c: clients that wait for a list of integers, or for a list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rillet.modules import (
    KEEP_WAITING,
    CommandError,
    Context,
    KeyPlace,
    Module,
    ModuleReader,
    ModuleType,
    ModuleWriter,
    WrongType,
)

module = Module("blockonkeys", 1)
MOST = 1024


@module.type
class FixedList(ModuleType):
    name = "fsltype_t"

    def rdb_save(self, out: ModuleWriter, value: list[int]) -> None:
        out.unsigned(len(value))
        for element in value:
            out.signed(element)

    def rdb_load(self, source: ModuleReader, version: int) -> Any:
        return None if version != 0 else [source.signed() for _ in range(source.unsigned())]

    def aof_rewrite(self, place: KeyPlace, value: list[int]) -> Iterator[list[Any]]:
        for element in value:
            yield ["FSL.PUSH", place.key, element]


def elements(context: Context, name: bytes, create: bool = False) -> Any:
    """Return the list of a key; count keys of other types in fsl_wrong_type."""
    key = context.key(name)
    try:
        value = key.get(FixedList)
    except WrongType:
        context.call("INCR", "fsl_wrong_type", replicate=False)
        raise
    if value is None and create:
        value = []
        key.set(FixedList, value)
    return value


def waiting_elements(context: Context, name: bytes, create: bool = False) -> Any:
    try:
        return elements(context, name, create)
    except WrongType:
        return None


def integer(raw: bytes, text: str) -> int:
    try:
        return int(raw)
    except ValueError:
        raise CommandError(text) from None


def timeout(raw: bytes) -> int:
    value = integer(raw, "invalid timeout")
    if value < 0:
        raise CommandError("invalid timeout")
    return value


def timed_out(context: Context) -> str:
    return "Request timedout"


@module.command("fsl.push", arity=3, flags="write", keys=(1, 1, 1))
def push(context: Context, argv: list[bytes]) -> str:
    element = integer(argv[2], "invalid integer")
    value = elements(context, argv[1], create=True)
    if len(value) == MOST:
        raise CommandError("list is full")
    if value and value[-1] >= element:
        raise CommandError("new element has to be greater than the head element")
    value.append(element)
    context.signal_ready(argv[1])
    context.replicate_verbatim()
    return "OK"


def pop(context: Context, value: list[int]) -> int:
    element = value.pop()
    context.replicate_verbatim()
    return element


@module.command("fsl.bpop", arity=-3, flags="write", keys=(1, 1, 1))
def bpop(context: Context, argv: list[bytes]) -> Any:
    milliseconds = timeout(argv[2])
    if len(argv) == 4 and argv[3].upper() != b"NO_TO_CB":
        raise CommandError("invalid argument")
    value = elements(context, argv[1])
    if value is not None:
        return pop(context, value)

    def serve(context: Context, key: bytes) -> Any:
        value = waiting_elements(context, key)
        return pop(context, value) if value else KEEP_WAITING

    return context.block_on_keys(
        [argv[1]], serve, timeout_ms=milliseconds, on_timeout=timed_out if len(argv) == 3 else None
    )


@module.command("fsl.bpopgt", arity=4, flags="write", keys=(1, 1, 1))
def bpopgt(context: Context, argv: list[bytes]) -> Any:
    least, milliseconds = integer(argv[2], "invalid integer"), timeout(argv[3])
    value = elements(context, argv[1])
    if value and value[-1] > least:
        return pop(context, value)

    def serve(context: Context, key: bytes) -> Any:
        value = waiting_elements(context, key)
        return pop(context, value) if value and value[-1] > least else KEEP_WAITING

    return context.block_on_keys([argv[1]], serve, timeout_ms=milliseconds, on_timeout=timed_out)


@module.command("fsl.bpoppush", arity=4, flags="write", keys=(1, 2, 1))
def bpoppush(context: Context, argv: list[bytes]) -> Any:
    milliseconds = timeout(argv[3])

    def move(context: Context, source: list[int], find: Callable[..., Any]) -> Any:
        target = find(context, argv[2], create=True)
        if target is None:
            return KEEP_WAITING
        element = source.pop()
        target.append(element)
        context.signal_ready(argv[2])
        context.replicate_verbatim()
        return element

    source = elements(context, argv[1])
    if source is not None:
        return move(context, source, elements)

    def serve(context: Context, key: bytes) -> Any:
        source = waiting_elements(context, key)
        return move(context, source, waiting_elements) if source else KEEP_WAITING

    return context.block_on_keys([argv[1]], serve, timeout_ms=milliseconds, on_timeout=timed_out)


@module.command("fsl.getall", arity=2, keys=(1, 1, 1))
def getall(context: Context, argv: list[bytes]) -> Any:
    return elements(context, argv[1]) or []


def timeout_error(context: Context) -> Any:
    raise CommandError("Timeout")


def take(context: Context, key: bytes, count: int) -> Any:
    found = context.call("LPOP", key, count, replicate=False)
    context.replicate_verbatim()
    return found


@module.command("blockonkeys.popall", arity=2, flags="write", keys=(1, 1, 1))
def popall(context: Context, argv: list[bytes]) -> Any:
    if context.key(argv[1]).exists:
        raise CommandError("Key not empty")

    def serve(context: Context, key: bytes) -> Any:
        if context.key(key).type != "list":
            raise CommandError("Not a list")
        return take(context, key, 1 << 30)

    return context.block_on_keys([argv[1]], serve, timeout_ms=3000, on_timeout=timeout_error)


def lpush(context: Context, argv: list[bytes]) -> str:
    context.call("LPUSH", *argv[1:], replicate=False)
    if argv[0].lower() == b"blockonkeys.lpush_unblock":
        context.signal_ready(argv[1])
    context.replicate_verbatim()
    return "OK"


for name in ("blockonkeys.lpush", "blockonkeys.lpush_unblock"):
    module.command(name, arity=-3, flags="write", keys=(1, 1, 1))(lpush)


@module.command("blockonkeys.blpopn", arity=-3, flags="write", keys=(1, 1, 1))
def blpopn(context: Context, argv: list[bytes]) -> Any:
    count = integer(argv[2], "Invalid N")

    def serve(context: Context, key: bytes) -> Any:
        kind = context.key(key).type
        if kind not in ("list", "none"):
            raise WrongType()
        if kind == "none" or context.call("LLEN", key) < count:
            return KEEP_WAITING
        return take(context, key, count)

    found = serve(context, argv[1])
    if found is not KEEP_WAITING:
        return found
    return context.block_on_keys([argv[1]], serve, timeout_ms=3000, on_timeout=timeout_error)
