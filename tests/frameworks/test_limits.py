"""limits and SlowAPI: each of the three strategies is a Lua script; the storage is synchronous or asynchronous."""

from __future__ import annotations

import asyncio

import pytest

pytestmark = pytest.mark.environment("RILLET_FRAMEWORKS")
STRATEGIES = ("FixedWindowRateLimiter", "MovingWindowRateLimiter", "SlidingWindowCounterRateLimiter")
NAMES = ("fixed-window", "moving-window", "sliding-window-counter")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_limits(client, strategy):
    from limits import RateLimitItemPerHour, strategies
    from limits.storage import RedisStorage

    storage = RedisStorage("redis://", connection_pool=client.connection_pool)
    limiter = getattr(strategies, strategy)(storage)
    three = RateLimitItemPerHour(3)
    assert [limiter.hit(three, "ann") for _ in range(5)] == [True, True, True, False, False]
    assert not limiter.test(three, "ann")
    assert limiter.get_window_stats(three, "ann").remaining == 0
    assert limiter.hit(three, "bob", cost=2)
    assert limiter.get_window_stats(three, "bob").remaining == 1
    limiter.clear(three, "ann")
    assert limiter.hit(three, "ann")
    assert storage.check()


@pytest.mark.parametrize("place", ["server", "in process"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_limits_with_asyncio(strategy, place, request):
    asyncio.run(_limits(strategy, place, request))


async def _limits(strategy, place, request):
    import redis.asyncio
    from limits import RateLimitItemPerHour
    from limits.aio import strategies
    from limits.aio.storage import RedisStorage

    if place == "server":
        client = redis.asyncio.Redis.from_url(request.getfixturevalue("served").url)
    else:
        client = request.getfixturevalue("store").redis_async()
    async with client:
        storage = RedisStorage("async+redis://", connection_pool=client.connection_pool, implementation="redispy")
        limiter = getattr(strategies, strategy)(storage)
        three = RateLimitItemPerHour(3)
        assert [await limiter.hit(three, "ann") for _ in range(4)] == [True, True, True, False]


@pytest.mark.parametrize("strategy", NAMES)
def test_slowapi(client, strategy):
    assert asyncio.run(_requests(_application(client, strategy))) == [200, 200, 429, 429]


def _application(client, strategy):
    from slowapi import Limiter, _rate_limit_exceeded_handler
    from slowapi.errors import RateLimitExceeded
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    options = {"connection_pool": client.connection_pool}
    limiter = Limiter(key_func=lambda: "everyone", storage_uri="redis://", storage_options=options, strategy=strategy)

    @limiter.limit("2/hour")
    async def home(request):
        return PlainTextResponse("home")

    application = Starlette(routes=[Route("/", home)])
    application.state.limiter = limiter
    application.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)
    return application


async def _requests(application):
    import httpx

    transport = httpx.ASGITransport(app=application)
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        return [(await client.get("/")).status_code for _ in range(4)]
