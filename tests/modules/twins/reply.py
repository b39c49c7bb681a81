"""The twin of Redis's tests/modules/reply.c: each kind of reply."""

from __future__ import annotations

from typing import Any

from rillet.modules import NO_REPLY, Attributes, Context, ErrorReply, Module, Verbatim

module = Module("replywith", 1)


@module.command("rw.string", arity=2)
def string(context: Context, argv: list[bytes]) -> bytes:
    return argv[1]


@module.command("rw.cstring", arity=1)
def cstring(context: Context, argv: list[bytes]) -> str:
    return "A simple string"


@module.command("rw.int", arity=2)
def integer(context: Context, argv: list[bytes]) -> int:
    return int(argv[1])


@module.command("rw.double", arity=2)
def double(context: Context, argv: list[bytes]) -> float:
    return float(argv[1])


@module.command("rw.longdouble", arity=2)
def longdouble(context: Context, argv: list[bytes]) -> Any:
    if context.out.resp == 2:
        return argv[1]
    context.out.raw(b",%b\r\n" % argv[1])
    return NO_REPLY


@module.command("rw.bignumber", arity=2)
def bignumber(context: Context, argv: list[bytes]) -> int:
    return int(argv[1])


@module.command("rw.array", arity=2)
def array(context: Context, argv: list[bytes]) -> list[int]:
    return list(range(int(argv[1])))


@module.command("rw.map", arity=2)
def map_(context: Context, argv: list[bytes]) -> dict[int, float]:
    return {number: number * 1.5 for number in range(int(argv[1]))}


@module.command("rw.set", arity=2)
def set_(context: Context, argv: list[bytes]) -> set[int]:
    return set(range(int(argv[1])))


@module.command("rw.attribute", arity=2)
def attribute(context: Context, argv: list[bytes]) -> Attributes:
    return Attributes({number: number * 1.5 for number in range(int(argv[1]))}, "OK")


@module.command("rw.bool", arity=1)
def boolean(context: Context, argv: list[bytes]) -> list[bool]:
    return [False, True]


@module.command("rw.null", arity=1)
def null(context: Context, argv: list[bytes]) -> None:
    return None


@module.command("rw.error", arity=1)
def error(context: Context, argv: list[bytes]) -> Any:
    raise ErrorReply("An error")


@module.command("rw.verbatim", arity=2)
def verbatim(context: Context, argv: list[bytes]) -> Verbatim:
    return Verbatim(argv[1])
