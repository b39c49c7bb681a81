"""The longest argument of a command is the same in this process, attached, connected and served."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

import rillet
from rillet.store.store import Store
from rillet.store.transports.connected import AttachedTransport

MEGABYTE = 1 << 20
GREAT = b"x" * (2 * MEGABYTE)
TEXT = "ERR Protocol error: invalid bulk length"
PLACES = ("memory", "owner", "attached")


def owned(path: Path, ready: Any, done: Any) -> None:
    """Own a directory whose arguments have at most a megabyte, until `done` is set."""
    with rillet.open(path, proto_max_bulk_len=MEGABYTE):
        ready.set()
        done.wait(60)


@contextmanager
def opened(place: str, path: Path) -> Iterator[Store]:
    if place in ("memory", "owner"):
        with rillet.open(None if place == "memory" else path, proto_max_bulk_len=MEGABYTE) as store:
            yield store
        return
    spawn = multiprocessing.get_context("spawn")
    ready, done = spawn.Event(), spawn.Event()
    process = spawn.Process(target=owned, args=(path, ready, done))
    process.start()
    try:
        assert ready.wait(60)
        with rillet.open(path) as store:
            yield store
    finally:
        done.set()
        process.join(60)


def transact(store: Store) -> None:
    """Run a transaction whose second command has too long an argument."""
    with store.transaction() as block:
        block.execute("SET", "other", "1")
        block.execute("SET", "k", GREAT)


@pytest.mark.parametrize("place", PLACES)
def test_a_longer_argument_is_refused_before_anything_is_executed(place: str, tmp_path: Path) -> None:
    with opened(place, tmp_path / "x") as store:
        assert isinstance(store.transport, AttachedTransport) == (place == "attached")
        store.execute("SET", "k", GREAT[:MEGABYTE])
        for call in (
            lambda: store.execute("SET", "k", GREAT), lambda: store.stream("s").add({"f": GREAT}),
            lambda: store.execute_many([["SET", "other", "1"], ["SET", "k", GREAT]]),
        ):  # fmt: skip
            with pytest.raises(rillet.CommandError, match=TEXT):
                call()
        with pytest.raises(redis.RedisError, match=r"invalid bulk length|Broken pipe|reset"):  # redis-py on a socket
            store.redis().set("k", GREAT)
        with pytest.raises(rillet.CommandError, match=TEXT):
            transact(store)

        async def run() -> None:
            asynchronous = store.aio()
            for _ in range(3):
                with pytest.raises(rillet.CommandError, match=TEXT):
                    await asynchronous.execute("SET", "k", GREAT)
            with pytest.raises(rillet.CommandError, match=TEXT):
                await asynchronous.execute_many([["SET", "other", "1"], ["SET", "k", GREAT]])
            with pytest.raises(rillet.CommandError, match=TEXT):
                await asynchronous.stream("s").add({"f": GREAT})
            assert await asynchronous.execute("STRLEN", "k") == MEGABYTE

        asyncio.run(run())
        assert store.execute("STRLEN", "k") == MEGABYTE
        assert store.execute("EXISTS", "other", "s") == 0
        store.execute("CONFIG", "SET", "proto-max-bulk-len", 2 * MEGABYTE)
        store.execute("SET", "k", GREAT)
        assert store.execute("STRLEN", "k") == 2 * MEGABYTE


def test_the_default_limit_is_that_of_redis_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a gigabyte is sent to nobody: a store that is connected compares the length, too."""
    large = bytes(512 * MEGABYTE + 1)
    with rillet.open() as store, store.serve() as server, rillet.connect(server.url) as connected:
        for one in (store, connected):
            with pytest.raises(rillet.CommandError, match=f"{TEXT}: an argument has 536,870,913 bytes, but the setting "
                               "proto-max-bulk-len is 536,870,912"):  # fmt: skip
                one.execute("SET", "k", large)
            assert one.execute("EXISTS", "k") == 0
