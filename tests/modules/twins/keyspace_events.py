"""The twin of Redis's tests/modules/keyspace_events.c: listeners of events, and commands with effects."""

from __future__ import annotations

from typing import Any

from rillet.modules import Context, Module

module = Module("testkeyspace", 1)
loaded: dict[bytes, bytes] = {}
notified: dict[bytes, bytes] = {}


@module.on_event("L")
def on_loaded(context: Context, event: bytes, key: bytes) -> None:
    if event == b"loaded":
        loaded.setdefault(key, key)


@module.on_event("g")
def on_generic(context: Context, event: bytes, key: bytes) -> None:
    if event == b"del":
        context.call("DEL", key + b"_copy")
        if context.in_transaction:
            context.call("INCR", "multi", replicate=False)


@module.on_event("x")
def on_expired(context: Context, event: bytes, key: bytes) -> None:
    context.call("INCR", "testkeyspace:expired")


@module.on_event("d")
def on_module(context: Context, event: bytes, key: bytes) -> None:
    notified.setdefault(key, key)


@module.command("keyspace.notify", arity=2)
def notify(context: Context, argv: list[bytes]) -> None:
    context.notify("d", "notify", argv[1])


@module.command("keyspace.is_module_key_notified", arity=2)
def is_notified(context: Context, argv: list[bytes]) -> list[Any]:
    return [int(argv[1] in notified), notified.get(argv[1])]


@module.command("keyspace.is_key_loaded", arity=2)
def is_loaded(context: Context, argv: list[bytes]) -> list[Any]:
    return [int(argv[1] in loaded), loaded.get(argv[1])]


@module.command("keyspace.del_key_copy", arity=2, flags="write")
def del_key_copy(context: Context, argv: list[bytes]) -> Any:
    return context.call("DEL", argv[1])


@module.command("keyspace.incr_case1", arity=2, flags="write")
def incr_case1(context: Context, argv: list[bytes]) -> Any:
    return context.call("INCR", argv[1])


@module.command("keyspace.incr_case2", arity=2, flags="write")
def incr_case2(context: Context, argv: list[bytes]) -> Any:
    found = context.call("INCR", argv[1], replicate=False)
    context.replicate("INCR", argv[1])
    return found


@module.command("keyspace.incr_case3", arity=2, flags="write")
def incr_case3(context: Context, argv: list[bytes]) -> Any:
    found = context.call("INCR", argv[1], replicate=False)
    context.replicate_verbatim()
    return found
