"""A module whose functions fail in every way that the guard must contain."""

from __future__ import annotations

import sys
import time
from typing import Any

from rillet.modules import (
    NO_REPLY,
    CommandError,
    Context,
    DefragPass,
    Digest,
    KeyPlace,
    Module,
    ModuleReader,
    ModuleType,
    ModuleWriter,
)

module = Module("faulty", 1)
# The methods that fail, and how: "raise", "loop", "exit", "nonsense", "recursion".
failing: dict[str, str] = {}


class Odd(Exception):
    """An exception whose text cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def fail(where: str) -> Any:
    how = failing.get(where)
    if how == "raise":
        raise ZeroDivisionError(f"in {where}")
    if how == "odd":
        raise Odd
    if how == "exit":
        sys.exit(3)
    if how == "recursion":
        return fail(where)
    if how == "loop":
        while True:
            pass
    if how == "stubborn":
        for _ in range(3):
            try:
                while True:
                    pass
            except BaseException:
                continue
    return object() if how == "nonsense" else None


@module.type
class Faulty(ModuleType):
    name = "faulty-tp"
    aux_save_triggers = 2

    def rdb_save(self, out: ModuleWriter, value: Any) -> None:
        out.unsigned(value[0])
        if fail("rdb_save") is not None:
            out.unsigned(-1)

    def rdb_load(self, source: ModuleReader, version: int) -> Any:
        number = source.unsigned()
        if fail("rdb_load") is not None:
            source.string()
        return None if failing.get("rdb_load") == "none" else [number]

    def aof_rewrite(self, place: KeyPlace, value: Any) -> Any:
        fail("aof_rewrite")
        yield ["faulty.set", place.key, value[0]] if failing.get("aof_rewrite") != "nonsense" else [object()]

    def mem_usage(self, value: Any, samples: int) -> Any:
        return fail("mem_usage") or 100

    def digest(self, digest: Digest, place: KeyPlace, value: Any) -> None:
        fail("digest")
        digest.add(value[0])
        digest.end_sequence()

    def free(self, value: Any) -> None:
        fail("free")

    def free_effort(self, place: KeyPlace, value: Any) -> Any:
        return fail("free_effort") or 1

    def unlink(self, place: KeyPlace, value: Any) -> None:
        fail("unlink")

    def copy(self, source: KeyPlace, target: KeyPlace, value: Any) -> Any:
        return fail("copy") or list(value)

    def defrag(self, run: DefragPass, place: KeyPlace, value: Any) -> Any:
        return fail("defrag")

    def aux_save(self, out: ModuleWriter, when: int) -> None:
        fail("aux_save")
        out.string(b"aux")

    def aux_load(self, source: ModuleReader, version: int, when: int) -> None:
        fail("aux_load")
        source.string()


@module.command("faulty.set", arity=3, flags="write", keys=(1, 1, 1))
def set_(context: Context, argv: list[bytes]) -> str:
    context.key(argv[1]).set(Faulty, [int(argv[2])])
    context.replicate_verbatim()
    return "OK"


@module.command("faulty.get", arity=2, keys=(1, 1, 1))
def get(context: Context, argv: list[bytes]) -> Any:
    value = context.key(argv[1]).get(Faulty)
    return None if value is None else value[0]


@module.command("faulty.fail", arity=-2)
def set_failing(context: Context, argv: list[bytes]) -> str:
    failing.clear()
    for where, how in zip(argv[1::2], argv[2::2], strict=False):
        failing[where.decode()] = how.decode()
    return "OK"


@module.command("faulty.run", arity=2)
def run(context: Context, argv: list[bytes]) -> Any:
    failing["run"] = argv[1].decode()
    try:
        return fail("run")
    finally:
        failing.pop("run", None)


@module.command("faulty.partial", arity=1)
def partial(context: Context, argv: list[bytes]) -> Any:
    context.out.array(3)
    context.out.integer(1)
    return NO_REPLY


@module.command("faulty.nothing", arity=1)
def nothing(context: Context, argv: list[bytes]) -> Any:
    return NO_REPLY


@module.command("faulty.half", arity=1)
def half(context: Context, argv: list[bytes]) -> Any:
    context.out.bulk(b"written before the exception")
    raise KeyError("half")


@module.command("faulty.deep", arity=1)
def deep(context: Context, argv: list[bytes]) -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@module.command("faulty.blocked", arity=1)
def blocked(context: Context, argv: list[bytes]) -> Any:
    context.block()
    raise ValueError("after block")


@module.command("faulty.nested", arity=2)
def nested(context: Context, argv: list[bytes]) -> Any:
    """Call a command that fails, then reply."""
    try:
        context.call("faulty.run", argv[1])
    except CommandError as error:
        return str(error).encode()
    return b"no error"


@module.command("faulty.outer", arity=1)
def outer(context: Context, argv: list[bytes]) -> Any:
    """Run too long in several quick calls of the engine."""
    while True:
        context.call("INCR", "outer")


@module.command("faulty.thread", arity=2)
def thread(context: Context, argv: list[bytes]) -> Any:
    how = argv[1].decode()

    def work() -> Any:
        if how == "raise":
            raise ValueError("in the thread")
        return object() if how == "nonsense" else time.time

    return context.in_thread(work)


@module.command("faulty.timer", arity=1)
def timer(context: Context, argv: list[bytes]) -> int:
    return context.timer(0, fire)


def fire(context: Context, data: Any) -> None:
    context.call("INCR", "fired")
    raise ValueError("in the timer")


@module.on_event("g")
def on_generic(context: Context, event: bytes, key: bytes) -> None:
    if event == b"del":
        fail("event")


@module.info
def info(context: Context) -> Any:
    return fail("info") or {"": {"fine": 1}}
