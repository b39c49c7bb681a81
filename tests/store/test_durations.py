"""Where a method accepts seconds, it accepts a timedelta."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet import Store

SHORT, LONG = timedelta(milliseconds=2), timedelta(minutes=1)


def test_streams_and_groups(store: Store) -> None:
    stream = store.stream("s")
    assert stream.read("$", block=SHORT) == []
    assert store.read({"s": "$"}, block=SHORT) == {}
    assert list(stream.follow(block=SHORT, timeout=SHORT)) == []
    stream.add({"n": 1}, 1)
    assert stream.trim(max_age=LONG) == 1
    stream.add({"n": 2}, 2)
    consumer = stream.group("g").consumer("c")
    assert [one["n"] for one in consumer.read(block=SHORT)] == ["2"]
    assert list(consumer.messages(block=SHORT, timeout=SHORT, claim_idle=LONG))[0]["n"] == "2"
    assert consumer.pending(idle=LONG) == stream.group("g").pending(idle=LONG) == []
    assert consumer.claim(LONG)[1] == list(consumer.claim_all(LONG)) == []
    assert consumer.claim_ids(2, idle=timedelta(0), set_idle=LONG)[0]["n"] == "2"
    assert [one.id.ms for one in consumer.pending(idle=LONG)] == [2]
    assert store.consumer("g", "c", ["s"]).read(block=SHORT) == []


def test_lists_sorted_sets_and_channels(store: Store) -> None:
    assert store.list("l").pop(block=SHORT, default=None) is None
    assert store.list("l").popleft(block=SHORT, default=None) is None
    assert store.list("l").move(store.list("m"), block=SHORT) is None
    assert store.zset("z").pop_min(block=SHORT, default=None) is None
    assert store.zset("z").pop_max(block=SHORT, default=None) is None
    with store.subscribe("news") as subscription:
        assert subscription.get(SHORT) is None
        assert not subscription.wait(SHORT)


def test_asyncio(store: Store) -> None:
    async def body() -> None:
        twin = store.aio()
        stream = twin.stream("s")
        assert await stream.read("$", block=SHORT) == []
        assert await twin.read({"s": "$"}, block=SHORT) == {}
        consumer = (await stream.group("g")).consumer("c")
        assert [one async for one in consumer.messages(block=SHORT, timeout=SHORT, claim_idle=LONG)] == []
        assert await twin.list("l").pop(block=SHORT, default=None) is None
        async with await twin.subscribe("news") as subscription:
            assert await subscription.get(SHORT) is None

    asyncio.run(body())


def test_the_timeout_of_a_store(tmp_path: Path) -> None:
    with (
        rillet.open(tmp_path / "a", timeout=LONG, owner_grace=SHORT) as store,
        rillet.connect(f"unix://{store.socket}", timeout=LONG) as other,
    ):
        assert other.execute("PING") == b"PONG"
    with pytest.raises(ValueError, match="timeout must be a number of seconds above 0"):
        rillet.connect("redis://h", timeout=timedelta(0))


def test_other_objects_are_refused(store: Store) -> None:
    wrong: Any = "1"
    stream = store.stream("s")
    calls: list[Any] = [
        lambda: stream.read("$", block=wrong),
        lambda: list(stream.follow(timeout=wrong)),
        lambda: store.list("l").pop(block=wrong),
        lambda: rillet.open(timeout=wrong),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="must be seconds or a timedelta, not '1'"):
            call()
