"""The twin of Redis's tests/modules/infotest.c: sections of INFO, and the fields of INFO as a module reads them."""

from __future__ import annotations

from typing import Any

from rillet.modules import CommandError, Context, Module

module = Module("infotest", 1)


@module.info
def info(context: Context) -> dict[str, Any]:
    return {
        "": {"global": -2, "uglobal": 2**64 - 2},
        "Spanish": {"uno": "one", "dos": 2},
        "Italian": {"due": 2, "tre": 3.3},
        "keyspace": {"db0": {"keys": 3, "expires": 1}},
        "unsafe": {"unsafe_field": {"value": 1}},
    }


def field(context: Context, argv: list[bytes]) -> bytes:
    for line in context.call("INFO", argv[1]).split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if colon and name == argv[2]:
            return bytes(value)
    raise CommandError("not found")


@module.command("info.gets", arity=-3)
def gets(context: Context, argv: list[bytes]) -> bytes:
    return field(context, argv)


@module.command("info.getc", arity=-3)
def getc(context: Context, argv: list[bytes]) -> bytes:
    return field(context, argv)


@module.command("info.geti", arity=-3)
def geti(context: Context, argv: list[bytes]) -> int:
    return int(field(context, argv))


@module.command("info.getu", arity=-3)
def getu(context: Context, argv: list[bytes]) -> int:
    value = int(field(context, argv))
    return value - (1 << 64) if value >> 63 else value


@module.command("info.getd", arity=-3)
def getd(context: Context, argv: list[bytes]) -> float:
    return float(field(context, argv))
