"""The twin of Redis's tests/modules/publish.c."""

from __future__ import annotations

from typing import Any

from rillet.modules import Context, Module

module = Module("publish", 1)


@module.command("publish.classic", arity=3)
def classic(context: Context, argv: list[bytes]) -> Any:
    return context.publish(argv[1], argv[2])


@module.command("publish.shard", arity=3)
def shard(context: Context, argv: list[bytes]) -> Any:
    return context.call("SPUBLISH", argv[1], argv[2])
