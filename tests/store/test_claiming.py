"""Claiming during a read, and releasing, on every kind of store; an old server rejects the newer commands."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from rillet import Store
from rillet.errors import CommandError
from rillet.store.group import Group
from tests.store.conftest import RILLET, Frontend, only


@pytest.fixture
def group(frontend: Frontend) -> Group:
    """A group of a stream of three; the first two are pending with consumer one."""
    stream = frontend.store.stream("s")
    group = stream.group("g")
    stream.add_many((n, {"n": n}) for n in (1, 2, 3))
    assert len(group.consumer("one").read(2)) == 2
    return group


def _told(messages: list[Any]) -> list[tuple[str, int]]:
    return [(message["n"], message.deliveries) for message in messages]


@RILLET
def test_a_read_claims_idle_messages_first(group: Group) -> None:
    two = group.consumer("two")
    assert _told(two.read(claim_idle=3600)) == [("3", 1)]
    assert two.read(claim_idle=3600) == []
    found = two.read(claim_idle=0, count=2)
    assert _told(found) == [("1", 2), ("2", 2)]
    assert all(message.idle_ms is not None and message.idle_ms >= 0 for message in found)
    assert group.pending_count() == 3
    assert group.pending(consumer="one") == []
    assert two.read(after="0")[0].deliveries == 3


@RILLET
def test_a_message_given_back_is_delivered_again(group: Group) -> None:
    one, two = group.consumer("one"), group.consumer("two")
    first, second = one.read(after="0")
    assert first.nack()
    assert first.nack("silent")
    assert second.nack(deliveries=7)
    assert [(pending.consumer, pending.idle_ms, pending.deliveries) for pending in group.pending()] == [
        ("", -1, 1), ("", -1, 7),
    ]  # fmt: skip
    assert _told(two.read(claim_idle=3600, count=2)) == [("1", 2), ("2", 8)]
    assert two.ack(first, second) == 2
    assert not first.nack()
    assert group.nack(1, 2, 9, force=True) == 2
    assert group.nack(1, mode="fatal") == 1
    assert group.pending()[0].deliveries == (1 << 63) - 1
    with pytest.raises(ValueError, match="mode must be 'fail', 'silent' or 'fatal', not 'loud'"):
        group.nack(1, mode="loud")


@RILLET
def test_consumers_release_messages(frontend: Frontend, group: Group) -> None:
    one = group.consumer("one")
    assert one.nack(*one.read(after="0"), deliveries=4) == 2
    assert one.nack() == 0
    assert _told(group.consumer("two").claim(3600)[1]) == [("1", 5), ("2", 5)]
    several = frontend.store.consumer("h", "one", ["s", "t"])
    frontend.store.stream("t").add({"n": 1}, 1)
    messages = several.read()
    assert several.nack(*messages, mode="silent") == 4
    assert sorted(message.deliveries for message in several.messages(claim_idle=3600, timeout=0)) == [1, 1, 1, 1]


def _waiting(store: Store, call: Callable[[], Any]) -> Future[Any]:
    """Run the call in a thread and return once a client of the store waits in it."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(call)
    pool.shutdown(wait=False)
    while int(store.info()["blocked_clients"]) == 0 and not future.done():
        threading.Event().wait(0.005)
    return future


@RILLET
def test_waiting_for_what_is_given_back(frontend: Frontend, group: Group) -> None:
    two = group.consumer("two")
    two.read()
    future = _waiting(frontend.store, lambda: two.read(claim_idle=3600, block=20))
    assert frontend.another().stream("s").group("g", create=False).nack(2) == 1
    assert _told(future.result(60)) == [("2", 2)]


@RILLET
def test_waiting_until_messages_are_idle_for_long_enough(frontend: Frontend, group: Group) -> None:
    """Nothing comes, nobody gives back: the time alone ends the waiting, and the log has what was claimed."""
    two = group.consumer("two")
    two.read()
    found = two.read(claim_idle=0.2, block=20, count=2)
    assert [message["n"] for message in found] == ["1", "2"]
    assert all(message.idle_ms is not None and message.idle_ms >= 200 for message in found)
    assert len(group.pending(consumer="two")) == 3


@RILLET
def test_a_task_waits_until_messages_are_idle_for_long_enough(frontend: Frontend, group: Group) -> None:
    async def body() -> None:
        there = await frontend.store.aio().stream("s").group("g", create=False)
        two = there.consumer("two")
        await two.read()
        async with asyncio.timeout(20):
            found = await two.read(claim_idle=0.2, block=20, count=1)
        assert _told(found) == [("1", 2)]
        assert await there.nack(1, deliveries=0) == 1

    asyncio.run(body())


@RILLET
def test_a_redis_py_client_waits_too(frontend: Frontend, group: Group) -> None:
    with frontend.store.redis(decode_responses=True) as client:
        client.execute_command("XREADGROUP", "GROUP", "g", "two", "STREAMS", "s", ">")
        words = ("GROUP", "g", "two", "BLOCK", 20_000, "CLAIM", 200, "COUNT", 1, "STREAMS", "s", ">")
        reply = client.execute_command("XREADGROUP", *words)
    _, entries = reply[0] if isinstance(reply, list) else next(iter(reply.items()))
    assert "1-0" in str(entries)


@only("redis")
def test_an_old_server_says_so(frontend: Frontend) -> None:
    group = frontend.store.stream("s").group("g")
    with pytest.raises(CommandError, match="syntax error"):
        group.consumer("one").read(claim_idle=1)
    with pytest.raises(CommandError, match="unknown command"):
        group.nack(1)
