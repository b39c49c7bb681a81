"""store.redis(): a genuine redis-py client on every kind of store, with either of its parsers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

from tests.store.conftest import IN_PROCESS, Frontend, only
from tests.waiting import until


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def client(request: pytest.FixtureRequest, frontend: Frontend) -> Iterator[redis.Redis]:
    made = frontend.store.redis(protocol=request.param)
    yield made
    made.close()
    made.connection_pool.disconnect()


@pytest.fixture(autouse=True)
def _flushed(frontend: Frontend) -> None:
    frontend.store.execute("FLUSHALL")


def test_ping_streams_and_shaped_replies(client: Any) -> None:
    assert client.ping() is True
    made = client.xadd("s", {"a": "1"})
    assert client.xrange("s") == [(made, {b"a": b"1"})]
    assert client.xlen("s") == 1
    assert client.type("s") == b"stream"
    assert client.xinfo_stream("s")["length"] == 1
    assert client.set("k", "v") is True
    assert client.get("k") == b"v"
    assert client.get("none") is None
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        client.xadd("k", {"a": "1"})
    with pytest.raises(redis.ResponseError, match="unknown command"):
        client.execute_command("NOSUCH")


def test_pipelines_and_transactions_return_all_replies(client: Any) -> None:
    with client.pipeline(transaction=False) as pipeline:
        for n in range(2000):
            pipeline.xadd("s", {"n": n}, id=f"{n + 1}-0")
        assert len(pipeline.execute()) == 2000
    with client.pipeline() as transaction:
        assert transaction.set("a", 1).incr("a").get("a").execute() == [True, 2, b"2"]
    with client.pipeline() as transaction:
        transaction.watch("a")
        client.set("a", "changed by another connection")
        transaction.multi()
        transaction.set("a", "never")
        with pytest.raises(redis.WatchError):
            transaction.execute()

    def change(transaction: Any) -> None:
        transaction.multi()
        transaction.set("b", 1)

    assert client.transaction(change, "b") == [True]
    assert len(client.xrange("s")) == 2000


def test_groups_and_blocking_reads(frontend: Frontend, client: Any) -> None:
    client.xgroup_create("s", "g", id="0", mkstream=True)
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(client.xreadgroup("g", "c", {"s": ">"}, block=0)))
    thread.start()
    while frontend.store.info()["blocked_clients"] != "1":
        threading.Event().wait(0.005)
    frontend.store.stream("s").add({"n": 1}, "1-0")
    thread.join(60)
    found = results[0]
    entries = found[b"s"] if isinstance(found, dict) else found[0][1]
    entries = entries[0] if isinstance(entries[0], list) else entries
    assert entries == [(b"1-0", {b"n": b"1"})]
    assert client.xack("s", "g", "1-0") == 1
    started = time.monotonic()
    assert not client.xreadgroup("g", "c", {"s": ">"}, block=30)
    assert time.monotonic() - started > 0.02


@pytest.mark.parametrize("protocol", [2, 3])
def test_replies_are_decoded_to_text(frontend: Frontend, protocol: int) -> None:
    with frontend.store.redis(decode_responses=True, protocol=protocol) as client:
        client.xadd("s", {"é": "\N{SNOWMAN}"}, id="1-1")
        assert client.xrange("s") == [("1-1", {"é": "\N{SNOWMAN}"})]
        assert client.client_setname("me")
        assert client.client_getname() == "me"
        client.connection_pool.disconnect()


def test_a_socket_timeout_ends_a_blocking_read(frontend: Frontend) -> None:
    with frontend.store.redis(socket_timeout=0.05, retry=None) as client:
        with pytest.raises(redis.TimeoutError):
            client.xread({"s": "$"}, block=0)
        answered = False
        while not answered:  # on a busy machine PING may take longer than the timeout, too
            with contextlib.suppress(redis.TimeoutError):
                answered = client.ping()
        client.connection_pool.disconnect()


def test_databases_of_ones_own(frontend: Frontend) -> None:
    with frontend.store.redis(db=5) as five, frontend.store.redis() as zero:
        five.set("k", "five")
        assert zero.get("k") is None
        assert five.get("k") == b"five"
        five.connection_pool.disconnect()
        zero.connection_pool.disconnect()


def test_redis_py_s_pure_python_parser_works(frontend: Frontend) -> None:
    from redis._parsers import _RESP2Parser

    client = frontend.store.redis(parser_class=_RESP2Parser, protocol=2)
    for _ in range(3):
        assert client.ping()
        assert client.xadd("s", {"a": "b"})
        assert client.xlen("s") > 0
    client.connection_pool.disconnect()


@IN_PROCESS
def test_a_client_after_the_stores_end(frontend: Frontend) -> None:
    client = frontend.store.redis()
    assert client.ping()
    frontend.store.close()
    with pytest.raises(redis.ConnectionError):
        client.ping()


def test_a_client_keeps_its_store_open() -> None:
    import rillet

    client = rillet.open().redis()
    assert client.set("k", "v")
    assert client.get("k") == b"v"


def test_reads_have_no_time_limit_by_default(frontend: Frontend) -> None:
    pool = frontend.store.redis().connection_pool
    assert pool.connection_kwargs["socket_timeout"] is None
    assert frontend.store.redis(socket_timeout=3).connection_pool.connection_kwargs["socket_timeout"] == 3


@pytest.mark.slow
@only("memory")
def test_a_blocking_command_waits_longer_than_five_seconds(frontend: Frontend) -> None:
    with frontend.store.redis(retry=None) as client:
        assert client.blpop("none", timeout=5.5) is None


@only("memory", "owner", "attached")
def test_two_hundred_connections_wait(frontend: Frontend) -> None:
    client = frontend.store.redis()
    got: list[Any] = []
    threads = [threading.Thread(target=lambda: got.append(client.blpop("l", 0))) for _ in range(120)]
    for thread in threads:
        thread.start()
    while client.info("clients")["blocked_clients"] != len(threads):
        threading.Event().wait(0.01)
    client.rpush("l", *range(len(threads)))
    for thread in threads:
        thread.join(60)
    assert sorted(int(value) for _, value in got) == list(range(len(threads)))
    client.connection_pool.disconnect()


@only("attached")
def test_a_client_follows_its_store_to_a_new_owner(frontend: Frontend, request: pytest.FixtureRequest) -> None:
    path = frontend.store.path
    assert path is not None
    client = frontend.store.redis()
    assert client.set("k", "v")
    # The owner ends; the attached process becomes the owner, and the client's next connection reaches it.
    pid = client.info("server")["process_id"]
    os.kill(pid, signal.SIGKILL)
    found: list[Any] = []

    def follows() -> bool:
        with contextlib.suppress(redis.ConnectionError):  # the old connection ends, and redis-py makes a new one
            found.append(client.get("k"))
        return frontend.store.owner

    until(follows, "the attached store is the owner")
    assert found[-1] == b"v"
    client.connection_pool.disconnect()


@IN_PROCESS
def test_a_client_after_a_fork(frontend: Frontend) -> None:
    client = frontend.store.redis()
    assert client.set("k", "parent")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            client.set("k", "child")
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    # A child of a durable store is attached to its parent; a child of a store in memory has a copy.
    assert client.get("k") == (b"parent" if frontend.kind == "memory" else b"child")
    client.connection_pool.disconnect()


def test_a_client_with_a_single_connection(frontend: Frontend) -> None:
    with frontend.store.redis(single_connection_client=True) as client:
        assert client.client_id() == client.client_id()
        client.execute_command("SELECT", 3)
        client.set("k", "three")
        assert client.get("k") == b"three"
    assert frontend.store.execute("EXISTS", "k") == 0
    client.connection_pool.disconnect()


@IN_PROCESS
def test_client_kill_ends_a_waiting_connection(frontend: Frontend) -> None:
    client = frontend.store.redis(retry=None)
    name = "victim"
    errors: list[Exception] = []

    def wait() -> None:
        try:
            frontend.store.redis(client_name=name).blpop("l", 0)
        except redis.ConnectionError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while frontend.store.info()["blocked_clients"] != "1":
        threading.Event().wait(0.005)
    victim = next(one["id"] for one in client.client_list() if one["name"] == name)
    assert client.client_kill_filter(_id=victim) == 1
    thread.join(60)
    assert len(errors) == 1
    assert victim not in [one["id"] for one in client.client_list()]
    client.connection_pool.disconnect()


@only("owner")
def test_client_pause_holds_a_connection_back(frontend: Frontend) -> None:
    with frontend.store.redis() as client, frontend.store.redis() as other:
        assert client.ping()
        assert client.client_pause(600_000, all=False)
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(other.set("k", "v")))
        thread.start()
        while client.info("clients")["blocked_clients"] != 1:
            threading.Event().wait(0.005)
        assert client.get("k") is None
        client.client_unpause()
        thread.join(60)
        assert results == [True]
        for one in (client, other):
            one.connection_pool.disconnect()


def test_an_unknown_option_is_refused_at_once(frontend: Frontend) -> None:
    for make in (frontend.store.redis, frontend.store.redis_async):
        with pytest.raises(TypeError, match=r"unknown option 'foo': it takes those of redis\.Redis"):
            make(foo=1)
        assert make(decode_responses=True, protocol=3, db=1, max_connections=5, ssl_cert_reqs="none") is not None


@only("memory")
def test_a_store_takes_the_place_of_the_class(frontend: Frontend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code under test makes its client by itself: `redis.Redis(host=..., port=...)`."""
    monkeypatch.setattr(redis, "Redis", frontend.store.redis)
    monkeypatch.setattr(redis.asyncio, "Redis", frontend.store.redis_async)
    client = redis.Redis(host="redis.internal", port=6380, decode_responses=True)
    assert client.set("k", "v")

    async def read() -> object:
        return await redis.asyncio.Redis(host="redis.internal", port=6380, decode_responses=True).get("k")

    assert asyncio.run(read()) == "v"


def test_without_redis_py_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    import rillet

    monkeypatch.setitem(sys.modules, "redis", None)
    with rillet.open() as store:
        for call in (store.redis, store.redis_async):
            with pytest.raises(ModuleNotFoundError, match=r"pip install 'rillet\[redis\]'"):
                call()
