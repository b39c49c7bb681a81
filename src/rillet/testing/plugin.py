"""The pytest plugin `rillet`: each test that requests one of these fixtures gets its own empty store in memory.

    rillet_store          the store                                       rillet.Store
    rillet_redis          a redis-py client of the store                  redis.Redis
    rillet_redis_async    a redis.asyncio client of the store             redis.asyncio.Redis
    rillet_url            redis://127.0.0.1:PORT/0 of a server around it  str
    rillet_clock          the time of the store, which the test moves     rillet.testing.StoreClock

Two fixtures exist to be overridden in a conftest.py: `rillet_settings` (the settings of `rillet.open`, such as
`compat`) and `rillet_redis_options` (the options of both clients, such as `decode_responses`).

All fixtures of a test lead to the same store. If a test requests `rillet_clock`, the store's time stands still until
the test moves it; otherwise the store has the time of the machine.

pytest imports this module in every run of an environment in which rillet is installed, so it imports nothing but
pytest: the first test that uses the store imports it. `-p no:rillet` turns the plugin off.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import redis
    import redis.asyncio

    from rillet.store.store import Store
    from rillet.testing.clock import StoreClock


@pytest.fixture
def rillet_settings() -> dict[str, Any]:
    """The settings of rillet_store, none by default. Override it: return {"compat": "7.0"}."""
    return {}


@pytest.fixture
def rillet_redis_options() -> dict[str, Any]:
    """The options of rillet_redis and rillet_redis_async, none by default; such as {"decode_responses": True}."""
    return {}


@pytest.fixture
def rillet_clock() -> StoreClock:
    """The time of rillet_store, which stands still until the test calls rillet_clock.advance(seconds)."""
    from rillet.testing.clock import StoreClock

    return StoreClock()


@pytest.fixture
def rillet_store(request: pytest.FixtureRequest, rillet_settings: dict[str, Any]) -> Iterator[Store]:
    """An empty rillet store in memory, closed after the test."""
    import rillet

    if "rillet_clock" in request.fixturenames:
        store = request.getfixturevalue("rillet_clock").open(**rillet_settings)
    else:
        store = rillet.open(**rillet_settings)
    with store:
        yield store


@pytest.fixture
def rillet_redis(rillet_store: Store, rillet_redis_options: dict[str, Any]) -> Iterator[redis.Redis]:
    """A redis-py client (redis.Redis) of rillet_store, without a socket."""
    client = rillet_store.redis(**rillet_redis_options)
    yield client
    client.close()
    client.connection_pool.disconnect()


@pytest.fixture
def rillet_redis_async(rillet_store: Store, rillet_redis_options: dict[str, Any]) -> Iterator[redis.asyncio.Redis]:
    """A redis.asyncio client of rillet_store, without a socket. Needs no plugin for asyncio and no running loop."""
    client = rillet_store.redis_async(**rillet_redis_options)
    yield client
    pool: Any = client.connection_pool
    pool.end_sessions()


@pytest.fixture
def rillet_url(rillet_store: Store) -> Iterator[str]:
    """The URL of a server in front of rillet_store, on a free port of 127.0.0.1, for code that takes a URL."""
    with rillet_store.serve() as served:
        yield served.url
