"""`rillet serve --maxmemory` evicts keys; `--maxmemory-clients` disconnects the clients with the largest buffers."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tests.server.harness import Client, running


def size(client: Client) -> int:
    return int(client.call("DBSIZE")[1:-2])


def test_the_option_limits_the_data_and_config_set_changes_the_limit(tmp_path: Path) -> None:
    options = ("--maxmemory", "2mb", "--maxmemory-policy", "allkeys-lfu")
    with running(tmp_path, *options) as server, server.client() as client:
        for number in range(3000):
            assert client.call(f"SET key:{number} {'x' * 1000}") == b"+OK\r\n"
        assert 1000 < size(client) < 2100
        assert int(client.info("evicted_keys")) >= 3000 - 2100
        assert client.call("CONFIG SET maxmemory 1mb") == b"+OK\r\n"
        # One run of the eviction is limited in time; each command continues it.
        assert any(size(client) < 1050 for _ in range(10_000))
        assert client.call("CONFIG SET maxmemory-policy noeviction maxmemory 100kb") == b"+OK\r\n"
        assert client.call("SET one more").startswith(b"-OOM command not allowed when used memory > 'maxmemory'")
        assert client.call("CONFIG GET maxmemory") == b"*2\r\n$9\r\nmaxmemory\r\n$6\r\n102400\r\n"


def test_the_client_with_the_largest_buffers_is_disconnected(tmp_path: Path) -> None:
    with running(tmp_path, "--maxmemory-clients", "3mb") as server, server.client() as small, server.client() as large:
        assert small.call("PING") == b"+PONG\r\n"
        with suppress(OSError):  # the argument of a command whose end does not follow stays in the client's buffer
            large.socket.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9000000\r\n" + b"x" * 8_000_000)
        with suppress(ConnectionResetError):
            assert large.rest() == b""
        assert small.call("PING") == b"+PONG\r\n"
        assert small.info("evicted_clients") == "1"


def test_names_of_subscriptions_count(tmp_path: Path) -> None:
    options = ("--maxmemory", "1mb", "--maxmemory-policy", "noeviction", "--compat", "newest")
    with running(tmp_path, *options) as server, server.client() as client, server.client() as other:
        name, count = "n" * 10_000, 0
        while (reply := client.call(f"SUBSCRIBE {name}{count}")).startswith(b"*3"):
            count += 1
        assert reply.startswith(b"-OOM command not allowed when used memory > 'maxmemory'")
        assert 10 < count < 110
        assert other.call("SET a 1").startswith(b"-OOM")
        assert client.call("UNSUBSCRIBE").startswith(b"*3")


def test_info_shows_the_present_size_of_the_clients(tmp_path: Path) -> None:
    """A transaction of 500 commands was the largest part of a small server's memory until the next periodic job."""
    with running(tmp_path) as server, server.client() as client:
        before = int(client.info("mem_clients_normal"))
        client.call("MULTI")
        for _ in range(500):
            client.call("SET key value")
        with server.client() as other:
            assert int(other.info("mem_clients_normal")) > before + 40_000
        client.call("DISCARD")
        assert int(client.info("mem_clients_normal")) < before + 20_000
