"""The twin of Redis's tests/modules/blockonbackground.c: replies from threads, and a client that another releases."""

from __future__ import annotations

import random
import time
from typing import Any

from rillet.modules import CommandError, Context, Module

module = Module("block", 1)
waiting: list[Any] = []


def work(milliseconds: int) -> int:
    time.sleep(milliseconds / 1000)
    return random.randrange(1 << 30)


def timed_out(context: Context) -> str:
    return "Request timedout"


def debug(context: Context, argv: list[bytes]) -> Any:
    return context.in_thread(work, int(argv[1]), timeout_ms=int(argv[2]), on_timeout=timed_out)


module.command("block.debug", arity=3)(debug)
module.command("block.debug_no_track", arity=3)(debug)


@module.command("block.double_debug", arity=2)
def double_debug(context: Context, argv: list[bytes]) -> Any:
    return context.in_thread(work, 2 * int(argv[1]))


def released(context: Context) -> str:
    waiting.clear()
    return "Timed out"


@module.command("block.block", arity=2)
def block(context: Context, argv: list[bytes]) -> Any:
    if waiting:
        raise CommandError("another client already blocked")
    milliseconds = int(argv[1])
    waiting.append(context.block(timeout_ms=milliseconds, on_timeout=released if milliseconds else None))
    return waiting[0]


@module.command("block.is_blocked", arity=1)
def is_blocked(context: Context, argv: list[bytes]) -> int:
    return len(waiting)


@module.command("block.release", arity=2)
def release(context: Context, argv: list[bytes]) -> str:
    if not waiting:
        raise CommandError("No blocked client")
    waiting.pop().unblock(argv[1])
    return "OK"
