"""redis-py's own Lock and register_script, on which many libraries build."""

from __future__ import annotations

import asyncio
import threading

import pytest
import redis
import redis.asyncio

pytestmark = pytest.mark.environment("RILLET_FRAMEWORKS")
SCRIPT = "local n = redis.call('INCRBY', KEYS[1], ARGV[1]); return {n, redis.call('TYPE', KEYS[1]).ok}"


def test_a_lock(client):
    lock = client.lock("door", timeout=5)
    assert lock.acquire(blocking=False)
    assert not client.lock("door").acquire(blocking=False)
    assert lock.extend(5)
    assert 5000 < client.pttl("door") <= 10000
    assert lock.reacquire()
    assert lock.owned()
    waiting = client.lock("door", timeout=5, thread_local=False)
    taken: list[bool] = []
    thread = threading.Thread(target=lambda: taken.append(waiting.acquire(blocking_timeout=30)))
    thread.start()
    lock.release()
    thread.join()
    assert taken == [True]
    client.set("door", "someone else")
    with pytest.raises(redis.exceptions.LockNotOwnedError):
        waiting.release()


def test_a_script(client):
    script = client.register_script(SCRIPT)
    assert script(keys=["count"], args=[2]) == [2, b"string"]
    client.script_flush()  # the next call receives NOSCRIPT, and loads the script again
    assert script(keys=["count"], args=[3]) == [5, b"string"]
    with client.pipeline() as pipeline:
        pipeline.set("count", 10)
        script(keys=["count"], args=[1], client=pipeline)
        assert pipeline.execute() == [True, [11, b"string"]]
    client.set("word", "x")
    with pytest.raises(redis.exceptions.ResponseError, match="not an integer"):
        script(keys=["word"], args=[1])


@pytest.mark.parametrize("place", ["server", "in process"])
def test_asyncio(place, request):
    asyncio.run(_asyncio(place, request))


async def _asyncio(place, request):
    if place == "server":
        client = redis.asyncio.Redis.from_url(request.getfixturevalue("served").url)
    else:
        client = request.getfixturevalue("store").redis_async()
    async with client:
        async with client.lock("door", timeout=5):
            assert not await client.lock("door").acquire(blocking=False)
        lock = client.lock("door", timeout=5)
        assert await lock.acquire(blocking=False)
        await client.delete("door")
        with pytest.raises(redis.exceptions.LockNotOwnedError):
            await lock.release()
        script = client.register_script(SCRIPT)
        assert await script(keys=["count"], args=[2]) == [2, b"string"]
