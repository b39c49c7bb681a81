"""A pytest plugin that puts rillet in the place of fakeredis, for fakeredis's own tests: see test_fakeredis.py.

The tests create `FakeServer` and clients of it. Here a server is a rillet store in memory with the compat of
RILLET_TWIN_COMPAT, and a client is the store's redis-py client. The module `fakeredis` stays importable, because the
tests also import its helpers.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import redis
import redis.asyncio

import rillet


class TwinServer:
    """A store in the place of fakeredis.FakeServer."""

    def __init__(self, **_: Any) -> None:
        self.store = rillet.open(compat=os.environ["RILLET_TWIN_COMPAT"])
        self.connected = True


_Meta: Any = type(redis.Redis)


class _AnyClient(_Meta):  # type: ignore[misc]
    """Makes every redis-py client an instance: some tests decide by isinstance whether a client is a fake."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__bases__)


class TwinRedis(redis.Redis, metaclass=_AnyClient):
    """A redis-py client in the place of fakeredis.FakeStrictRedis."""

    def __new__(cls, *, server: TwinServer | None = None, lua_modules: object = None, **options: Any) -> Any:
        return (server or TwinServer()).store.redis(**options)


class TwinAsyncRedis(redis.asyncio.Redis, metaclass=_AnyClient):
    """A redis.asyncio client in the place of fakeredis.FakeAsyncRedis."""

    def __new__(cls, *, server: TwinServer | None = None, lua_modules: object = None, **options: Any) -> Any:
        return (server or TwinServer()).store.redis_async(**options)


fakeredis: Any = import_module("fakeredis")
aioredis: Any = import_module("fakeredis.aioredis")
fakeredis.FakeServer = TwinServer
fakeredis.FakeRedis = fakeredis.FakeStrictRedis = TwinRedis
fakeredis.FakeAsyncRedis = aioredis.FakeRedis = TwinAsyncRedis
