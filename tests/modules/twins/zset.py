"""The twin of Redis's tests/modules/zset.c."""

from __future__ import annotations

from typing import Any

from rillet.modules import Context, Module

module = Module("zset", 1)


@module.command("zset.rem", arity=3, flags="write", keys=(1, 1, 1))
def rem(context: Context, argv: list[bytes]) -> Any:
    return context.call("ZREM", argv[1], argv[2])
