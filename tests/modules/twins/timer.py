"""The twin of Redis's tests/modules/timer.c."""

from __future__ import annotations

from typing import Any

from rillet.modules import CommandError, Context, Module

module = Module("timer", 1)


def integer(raw: bytes, text: str) -> int:
    try:
        return int(raw)
    except ValueError:
        raise CommandError(text) from None


def fire(context: Context, key: bytes) -> None:
    context.call("INCR", key, replicate=False)


@module.command("test.createtimer", arity=3)
def create(context: Context, argv: list[bytes]) -> int:
    return context.timer(integer(argv[1], "Invalid time specified."), fire, argv[2])


@module.command("test.gettimer", arity=2)
def get(context: Context, argv: list[bytes]) -> Any:
    try:
        remaining, key = context.timer_info(integer(argv[1], "Invalid id specified."))
    except KeyError:
        return None
    return [key, remaining]


@module.command("test.stoptimer", arity=2)
def stop(context: Context, argv: list[bytes]) -> int:
    try:
        context.stop_timer(integer(argv[1], "Invalid id specified."))
    except KeyError:
        return 0
    return 1
