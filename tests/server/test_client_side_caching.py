"""redis-py's client-side caching, CLIENT KILL and MONITOR over a socket."""

from __future__ import annotations

import pytest
import redis
from redis.cache import CacheConfig

from tests.server.harness import Running

pytestmark = pytest.mark.once


def test_redis_py_caches_replies_until_a_key_changes(server: Running) -> None:
    other = redis.Redis(port=server.port, decode_responses=True)
    cached = redis.Redis(port=server.port, protocol=3, decode_responses=True, cache_config=CacheConfig())
    other.set("tracked", 1)
    assert cached.get("tracked") == "1"
    processed = other.info("stats")["total_commands_processed"]
    assert cached.get("tracked") == "1"
    assert other.info("stats")["total_commands_processed"] == processed + 1  # INFO alone
    other.set("tracked", 2)
    assert cached.get("tracked") == "2"
    other.flushall()
    assert cached.get("tracked") is None
    cached.close()
    other.close()


def test_a_killed_client_is_gone_at_once(server: Running) -> None:
    client, victim = redis.Redis(port=server.port), redis.Redis(port=server.port)
    number = victim.client_id()
    with client.pipeline(transaction=False) as pipeline:
        pipeline.client_kill_filter(_id=str(number))
        pipeline.client_list()
        killed, listed = pipeline.execute()
    assert killed == 1
    assert str(number) not in [one["id"] for one in listed]
    client.close()
    victim.close()


def test_redis_py_monitors(server: Running) -> None:
    client = redis.Redis(port=server.port)
    with client.monitor() as monitor:
        client.set("watched", "a b")
        shown = monitor.next_command()
        while not shown["command"].startswith("SET "):  # redis-py introduces its new connection first
            shown = monitor.next_command()
    assert shown["command"] == "SET watched a b"
    assert shown["client_type"] == "tcp"
    client.close()
