"""aiocache: values, a decorator, and its locks against a stampede (RedLock, OptimisticLock)."""

from __future__ import annotations

import asyncio

import pytest

pytestmark = pytest.mark.environment("RILLET_FRAMEWORKS")


def test_a_cache_with_locks(served):
    asyncio.run(_cache(served))


async def _cache(served):
    from aiocache import RedisCache
    from aiocache.lock import OptimisticLock, OptimisticLockError, RedLock
    from aiocache.serializers import JsonSerializer

    place = {"endpoint": "127.0.0.1", "port": served.port}
    async with RedisCache(**place, namespace="main", serializer=JsonSerializer()) as cache:
        await cache.set("one", {"a": 1}, ttl=60)
        assert await cache.multi_get(["one", "none"]) == [{"a": 1}, None]
        assert await cache.increment("count", 2) == 2
        with pytest.raises(ValueError, match="already exists"):
            await cache.add("one", 2)
        assert await cache.expire("one", 30)
        await _stampede(cache, RedLock)
        async with OptimisticLock(cache, "one") as lock:
            await cache.set("one", "changed meanwhile")
            with pytest.raises(OptimisticLockError):
                await lock.cas("mine")
        async with OptimisticLock(cache, "one") as lock:
            await lock.cas("mine")
        assert await cache.get("one") == "mine"
        assert await cache.delete("one") == 1
        await cache.clear(namespace="main")
        with served.client() as client:
            assert client.dbsize() == 0


async def _stampede(cache, lock):
    """Five tasks want a value that one of them computes."""
    computed: list[str] = []

    async def value() -> str:
        async with lock(cache, "costly", lease=10):
            found = await cache.get("costly")
            if found is not None:
                return found
            await asyncio.sleep(0.1)
            computed.append("computed")
            await cache.set("costly", "result")
            return "result"

    assert await asyncio.gather(*(value() for _ in range(5))) == ["result"] * 5
    assert computed == ["computed"]
