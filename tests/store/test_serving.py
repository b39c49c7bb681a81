"""store.serve() and store.url: a socket in front of every kind of store."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import redis

import rillet
from rillet.errors import StoreError
from rillet.server.unix_socket import CannotListen
from tests.store.conftest import IN_PROCESS, Frontend, only

SECONDS = 60
SERVED = only("memory", "owner", "attached")


@pytest.mark.parametrize("protocol", [2, 3])
@SERVED
def test_several_clients_on_a_port(frontend: Frontend, protocol: int) -> None:
    frontend.store.execute("FLUSHALL")
    with frontend.store.serve() as served:
        assert served.port
        assert served.url == f"redis://127.0.0.1:{served.port}/0"
        clients = [redis.Redis.from_url(served.url, protocol=protocol) for _ in range(5)]
        for n, client in enumerate(clients):
            client.xadd("s", {"n": n})
        assert len(frontend.store.stream("s")) == 5
        got: list[Any] = []
        waiting = threading.Thread(target=lambda: got.append(clients[0].blpop("l", 0)))
        waiting.start()
        while frontend.store.info()["blocked_clients"] != "1":
            threading.Event().wait(0.005)
        frontend.store.execute("RPUSH", "l", "from the store")
        waiting.join(SECONDS)
        assert got[0][1] == b"from the store"
        pubsub = clients[1].pubsub(ignore_subscribe_messages=True)
        pubsub.subscribe("c")
        while frontend.store.publish("c", "x") == 0:
            pass
        while (message := pubsub.get_message(timeout=SECONDS)) is None:
            pass
        assert message["data"] == b"x"
        pubsub.close()
        for client in clients:
            client.close()
    assert served.closed
    with pytest.raises(redis.ConnectionError):
        redis.Redis.from_url(served.url, retry=None).ping()


@SERVED
def test_a_unix_socket(frontend: Frontend, tmp_path: Path) -> None:
    path = tmp_path / "twin socket"
    with frontend.store.serve(unix=path) as served, rillet.connect(served.url) as other:
        assert served.port is None
        assert other.execute("SET", "k", "v") == b"OK"
        assert frontend.store.execute("GET", "k") == b"v"
    assert not path.exists()


@SERVED
def test_closing_disconnects_the_clients_of_that_socket_only(frontend: Frontend) -> None:
    first, second = frontend.store.serve(), frontend.store.serve()
    one, two = (redis.Redis.from_url(served.url, retry=None) for served in (first, second))
    assert one.ping()
    assert two.ping()
    first.close()
    first.close()
    with pytest.raises(redis.ConnectionError):
        one.ping()
    assert two.ping()
    frontend.store.close()
    assert second.closed
    with pytest.raises(redis.ConnectionError):
        two.ping()
    one.close()
    two.close()


@SERVED
def test_an_address_in_use(frontend: Frontend, tmp_path: Path) -> None:
    with frontend.store.serve() as served:
        assert served.port is not None
        with pytest.raises(CannotListen, match="cannot listen on 127.0.0.1"):
            frontend.store.serve(served.port)
    with pytest.raises(CannotListen, match="cannot listen on"):
        frontend.store.serve(unix=tmp_path / "missing" / "socket")


@only("memory", "owner")
def test_a_password_is_part_of_the_url(frontend: Frontend) -> None:
    frontend.store.execute("CONFIG", "SET", "requirepass", "s/cr:t")
    with frontend.store.serve() as served:
        assert redis.Redis.from_url(served.url).ping()
        with pytest.raises(redis.AuthenticationError):
            redis.Redis.from_url(f"redis://127.0.0.1:{served.port}").ping()


@SERVED
def test_shutdown_is_refused(frontend: Frontend) -> None:
    with frontend.store.serve() as served:
        client = redis.Redis.from_url(served.url)
        with pytest.raises(redis.ResponseError, match="the process that opened"):
            client.execute_command("SHUTDOWN")
        assert client.ping()
        client.close()


def test_url(frontend: Frontend) -> None:
    url = frontend.store.url
    if frontend.kind == "memory":
        assert url is None
        with frontend.store.serve() as served:
            assert frontend.store.url == served.url
        assert frontend.store.url is None
        return
    assert url is not None
    frontend.store.execute("SET", "k", "v")
    with rillet.connect(url) as other:
        assert other.execute("GET", "k") == b"v"


@only("redis")
def test_a_server_serves_itself(frontend: Frontend) -> None:
    with frontend.store.serve() as served:
        assert served.url == frontend.store.url
    with pytest.raises(StoreError, match="is a server already"):
        frontend.store.serve(1)


@IN_PROCESS
def test_another_process_uses_the_url(frontend: Frontend) -> None:
    program = "import sys, rillet; print(rillet.connect(sys.argv[1]).stream('s').add({'a': 1}, '1-1'))"
    environment = {**os.environ, "PYTHONPATH": str(Path(rillet.__file__).parent.parent)}
    with frontend.store.serve() as served:
        said = subprocess.check_output([sys.executable, "-c", program, served.url], env=environment, text=True)
    assert said.strip() == "1-1"
    assert len(frontend.store.stream("s")) == 1


@only("memory")
def test_a_forked_child_has_a_copy_and_leaves_the_socket_alone(frontend: Frontend) -> None:
    with frontend.store.serve() as served:
        client = redis.Redis.from_url(served.url)
        assert client.ping()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                frontend.store.execute("SET", "k", "child")
                assert served.closed
                with frontend.store.serve() as own:
                    assert redis.Redis.from_url(own.url).get("k") == b"child"
                frontend.store.close()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert client.get("k") is None
        client.close()


def test_a_dropped_store_stops_serving() -> None:
    url = rillet.open().serve().url
    gc.collect()
    with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
        probe.connect(("127.0.0.1", int(url.rpartition(":")[2].partition("/")[0])))


@pytest.mark.parametrize("by", ["tcp", "unix"])
def test_a_store_that_is_attached_to_a_server(tmp_path: Path, by: str) -> None:
    from tests.server.harness import running

    extra = ("--unixsocket", str(tmp_path / "server.sock")) if by == "unix" else ()
    with running(tmp_path, "--appendonly", "yes", *extra), rillet.open(tmp_path) as store:
        assert not store.owner
        assert store.url is not None
        client, other = store.redis(), store.redis_async()
        assert client.set("k", "v")

        async def main() -> None:
            assert await other.get("k") == b"v"
            await other.aclose()

        asyncio.run(main())
        with store.serve() as served, redis.Redis.from_url(served.url) as third, rillet.connect(store.url) as fourth:
            assert third.get("k") == b"v"
            assert fourth.execute("GET", "k") == b"v"
        client.close()
