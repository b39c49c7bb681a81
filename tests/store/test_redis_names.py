"""Names of redis-py's clients on a store: errors that name what to use instead."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import rillet

CORE = "get setex hset lpush sadd zadd xadd xreadgroup incr pipeline pubsub flushall eval scan_iter ping geoadd pfadd"


@pytest.mark.parametrize("name", CORE.split())
def test_a_method_of_redis_py_is_not_there_and_named(name: str) -> None:
    with rillet.open() as store:
        for one, client in ((store, "redis()"), (store.aio(), "redis_async()")):
            assert not hasattr(one, name)
            assert name not in dir(one)
            text = rf"has no attribute '{name}': .* or store.{client[:-2]}\(\)\.{name}\("
            with pytest.raises(AttributeError, match=text):
                getattr(one, name)


def test_other_names_are_plain_errors() -> None:
    with rillet.open() as store:
        with pytest.raises(AttributeError, match="^'Store' object has no attribute 'nonsense'$"):
            _ = store.nonsense  # type: ignore[attr-defined]
        with pytest.raises(TypeError, match="cannot be pickled"):
            copy.copy(store)


def test_the_commands_of_redis_py_are_known() -> None:
    redis = pytest.importorskip("redis")
    unnamed = []
    with rillet.open() as store:
        for mixin in redis.commands.core.__dict__.values():
            name = getattr(mixin, "__name__", "")
            if name in ("BasicKeyCommands", "ListCommands", "SetCommands", "StreamCommands", "HashCommands",
                        "SortedSetCommands", "GeoCommands", "HyperlogCommands", "ScanCommands"):  # fmt: skip
                unnamed += [one for one in vars(mixin) if not one.startswith("_") and not _is_known(store, one)]
    assert set(unnamed) <= {"digest_local", "stralgo"} | {one for one in unnamed if one.startswith("himport")}


def _is_known(store: rillet.Store, name: str) -> bool:
    try:
        getattr(store, name)
    except AttributeError as error:
        return "redis-py" in str(error)
    return True


def test_set_is_not_that_of_redis_py() -> None:
    with rillet.open() as store:
        for one in (store, store.aio()):
            target: Any = one
            for call in (lambda t=target: t.set("k", "v"), lambda t=target: t.set("k", "v", ex=5)):
                with pytest.raises(TypeError, match=r"use store.string\('k'\).set_value\(...\), or store.redis"):
                    call()
        assert list(store) == []
        assert store.set("k").add("v")
