"""redis-py's client-side caching, CLIENT KILL and MONITOR over a socket."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from redis.cache import CacheConfig

from tests.server.conftest import skip_without
from tests.server.harness import LOOPS, Running, running


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


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_is_gone_when_its_reply_to_quit_arrives(tmp_path: Path, loop: str) -> None:
    skip_without(loop)
    with (running(tmp_path, "--appendonly", "yes", loop=loop) as server,
          server.client() as reader, server.client() as writer):  # fmt: skip
        reader.call("HELLO 3")
        for number in range(20):
            with server.client() as target:
                ident = target.call("CLIENT ID")[1:-2].decode()
                target.call("SUBSCRIBE __redis__:invalidate")
                assert reader.call(f"CLIENT TRACKING ON REDIRECT {ident}") == b"+OK\r\n"
                writer.call(f"SET tracked {number}")
                reader.call("GET tracked")
                assert target.call("QUIT") == b"+OK\r\n"
                writer.call("SET tracked changed")
            reader.send("PING")
            assert reader.reply() == b">2\r\n$21\r\ntracking-redir-broken\r\n:" + ident.encode() + b"\r\n"
            assert reader.reply() == b"+PONG\r\n"
            reader.call("CLIENT TRACKING OFF")


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
