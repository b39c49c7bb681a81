"""walrus: containers, its locks and rate limits in Lua, a cache, a stream with consumer groups."""

from __future__ import annotations

import threading

import pytest

pytestmark = pytest.mark.environment("RILLET_FRAMEWORKS")


def test_walrus(client):
    from walrus import Database
    from walrus.rate_limit import RateLimitException

    database = Database(connection_pool=client.connection_pool)
    first, second = database.lock("door", ttl=5000), database.lock("door", ttl=5000)
    assert first.acquire()
    assert not second.acquire(block=False)
    taken: list[bool] = []
    thread = threading.Thread(target=lambda: taken.append(second.acquire()))
    thread.start()
    assert first.release()
    thread.join(30)
    assert taken == [True]
    second.clear()
    for limit in (database.rate_limit("a", limit=2, per=60), database.rate_limit_lua("b", limit=2, per=60)):
        assert [limit.limit("ann") for _ in range(3)] == [False, False, True]
        with pytest.raises(RateLimitException):
            limit.rate_limited(lambda: "ann")(lambda: None)()
    _containers(database)


def _containers(database):
    array = database.Array("numbers")
    array.extend(["a", "b", "c"])
    assert array.pop() == b"c"
    assert [array[0], len(array)] == [b"a", 2]
    scores = database.ZSet("scores")
    scores.add({"ann": 1, "bob": 2})
    assert list(scores) == [(b"ann", 1.0), (b"bob", 2.0)]
    calls: list[int] = []
    cache = database.cache("main")

    @cache.cached(timeout=60)
    def squared(n):
        calls.append(n)
        return n * n

    assert [squared(3), squared(3), calls] == [9, 9, [3]]
    database.set("word", "old")
    assert not database.cas("word", "other", "new")
    assert database.cas("word", "old", "new")
    assert database.get("word") == b"new"
    group = database.consumer_group("readers", ["events"])
    group.create()
    group.set_id("0")
    group.events.add({"n": "1"})
    [(one, fields)] = group.events.read()
    assert fields == {b"n": b"1"}
    assert group.events.ack(one) == 1
