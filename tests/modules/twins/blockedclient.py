"""The twin of Redis's tests/modules/blockedclient.c: commands that a module runs for a client, also from a thread."""

from __future__ import annotations

from typing import Any

from rillet.modules import CommandError, Context, Module

module = Module("blockedclient", 1)


def refused(context: Context) -> str | None:
    """Return why a command cannot block its client here."""
    if context.session is not None and context.session.id == 0:
        return "Blocked client is not allowed"
    return "Blocked client is not supported inside multi" if context.in_transaction else None


@module.command("acquire_gil", arity=-1)
def acquire_gil(context: Context, argv: list[bytes]) -> Any:
    return refused(context) or context.in_thread(lambda: "OK")


def run(context: Context, words: list[bytes]) -> Any:
    return context.call(*words)


@module.command("do_rm_call", arity=-2, flags="write")
def do_rm_call(context: Context, argv: list[bytes]) -> Any:
    return run(context, argv[1:])


def in_background(words: list[bytes], context: Context) -> Any:
    """Let a thread post the command to the engine, and reply with its result."""
    blocked = context.block()

    def work() -> None:
        blocked.unblock(words, run)

    import threading

    threading.Thread(target=work).start()
    return blocked


@module.command("do_bg_rm_call", arity=-2)
def do_bg_rm_call(context: Context, argv: list[bytes]) -> Any:
    return refused(context) or in_background(argv[1:], context)


@module.command("do_bg_rm_call_format", arity=-3)
def do_bg_rm_call_format(context: Context, argv: list[bytes]) -> Any:
    return refused(context) or in_background(argv[2:], context)


@module.command("do_fake_bg_true", arity=1)
def do_fake_bg_true(context: Context, argv: list[bytes]) -> Any:
    blocked = context.block()
    blocked.unblock(True)
    return blocked


@module.command("slow_fg_command", arity=2)
def slow_fg_command(context: Context, argv: list[bytes]) -> Any:
    raise CommandError("rillet serves no clients while a module's command runs")
