"""rillet.follow: a store in this process that replication keeps equal to genuine servers and to rillet."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

import rillet
from rillet.errors import ChangesLost, MasterDown, NotAStore, ReadOnly, StoreClosed, StoreError, StoreTimeout
from rillet.protocol.command_parser import pack_command
from rillet.records import Change
from rillet.replication.applier import Applier
from rillet.store.follow import directory
from tests.authority import make_authority
from tests.judge import Judge, free_port, required_binary, running_redis
from tests.replication.load import Load, differences, info, lasts
from tests.replication.proxy import Proxy
from tests.server.harness import running

COMPATS = ("7.0", "8.6", "newest", "valkey")
SECONDS = 30


@contextmanager
def master_of(compat: str = "7.0", *options: str) -> Iterator[Judge]:
    with running_redis("--repl-diskless-sync-delay", "0", "--repl-backlog-size", "20mb", *options,
                       binary=required_binary(compat)) as judge:  # fmt: skip
        yield judge


def url_of(port: int) -> str:
    return f"redis://127.0.0.1:{port}"


def client_of(store: rillet.Store) -> redis.Redis:
    client = store.redis(protocol=2)
    client.response_callbacks.clear()
    return client


class Mirror:
    """Applies changes to a store in memory."""

    def __init__(self, store: rillet.Store) -> None:
        transport: Any = store.transport
        self._lock = transport.lock
        self.refused: list[str] = []
        with self._lock:
            session = transport.engine.session(trusted=True)
            session.enter("follow")
            self._applier = Applier(session, 0, self.refused.append)

    def take(self, change: Change) -> None:
        """Apply a change."""
        with self._lock:  # else the store's own thread, which tidies up, works in the middle of a command
            self._applier.feed(pack_command([b"SELECT", b"%d" % change.database]) + pack_command(change.words))


@pytest.mark.peer(*COMPATS)
@pytest.mark.parametrize("compat", COMPATS)
def test_random_load_with_cut_links(compat: str) -> None:
    """The data equals that of the server; and the changes, applied to another store, make the same data."""
    chance = random.Random(11)
    with master_of(compat) as judge, Proxy(judge.port) as proxy:
        master, maker = judge.client(), Load(9, compat)
        settings: Any = {"compat": compat, "enable_debug_command": "yes"}
        with rillet.follow(url_of(proxy.port), **settings) as replica, rillet.open(**settings) as mirror:
            changes = replica.changes(timeout=0)
            for _ in range(6):
                maker.run(master, 60)
                replica.wait_synced(SECONDS)
                proxy.limits += [-1] * (proxy.links - len(proxy.limits)) + [chance.randrange(1, 9000)]
                proxy.cut()
            proxy.limits = []
            lasts(master)
            position = replica.wait_synced(SECONDS)
            assert position.id == info(master)["master_replid"]
            assert differences(master, client_of(replica), streams=False) == []
            state = replica.link
            assert (state.full_syncs, state.refused, state.resyncs) == (1, 0, 0)
            assert state.reconnections >= 5
            copy = Mirror(mirror)
            for change in changes:
                copy.take(change)
            assert copy.refused == []
            assert changes.position.offset <= position.offset
            assert differences(master, client_of(mirror), streams=False) == []


def test_a_directory_survives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "replica"
    with master_of() as judge:
        master = judge.client()
        master.execute_command("SELECT", 2)
        master.set("a", "1")
        with rillet.follow(url_of(judge.port) + "/2", folder) as replica:
            assert replica.execute("GET", "a") == b"1"
            with pytest.raises(StoreError, match="in use"):
                rillet.follow(url_of(judge.port), folder)
            master.set("a", "2")
            with master.pipeline() as pipeline:
                for words in (("INCR", "n"), ("SELECT", "3"), ("INCR", "m"), ("SELECT", "2")):
                    pipeline.execute_command(*words)
                pipeline.execute()
            replica.wait_synced(SECONDS)
        log = next(folder.glob("changes-*"))
        whole = log.read_bytes()
        master.incr("n")
        for cut in (len(whole), len(whole) - 7, len(whole) // 2):  # a torn end: the server sends it again
            log.write_bytes(whole[:cut])
            with rillet.follow(url_of(judge.port) + "/2", folder) as replica:
                assert replica.execute("GET", "a") in (b"1", b"2")  # at once, without the server
                replica.wait_synced(SECONDS)
                assert replica.execute_many([("GET", "a"), ("GET", "n")]) == [b"2", b"2"]
                assert (replica.link.full_syncs, replica.redis(db=3).get("m")) == (0, b"1")
        # A new base in a separate process, while changes arrive.
        monkeypatch.setattr(directory, "REWRITE_SIZE", 3000)
        with rillet.follow(url_of(judge.port) + "/2", folder) as replica:
            for number in range(200):
                master.xadd("s", {"n": number})
            replica.wait_synced(SECONDS)
            while not (folder / "base-2.rdb").exists():
                replica.wait(0)
                master.xadd("s", {"n": "more"})
            master.set("last", "1")
            replica.wait_synced(SECONDS)
            assert not (folder / "base-1.rdb").exists()
            length = len(replica.stream("s"))
        with rillet.follow(url_of(judge.port) + "/2", folder) as replica:
            replica.wait_synced(SECONDS)
            assert (replica.link.full_syncs, replica.execute("GET", "last"), len(replica.stream("s"))) == (
                0, b"1", length)  # fmt: skip
        with rillet.follow(url_of(judge.port) + "/2", folder, keys=["n"]) as replica:  # another filter: a snapshot
            assert (replica.link.full_syncs, list(replica.keys())) == (1, ["n"])
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "notes.txt").write_text("mine")
        with pytest.raises(NotAStore):
            rillet.follow(url_of(judge.port), tmp_path / "other")
    with rillet.follow(url_of(judge.port) + "/2", folder, keys=["n"]) as replica:  # the server is away
        assert replica.execute("GET", "n") is not None
        assert not replica.connected
        with pytest.raises(StoreTimeout):
            replica.wait_synced(0.1)


def test_a_failover(tmp_path: Path) -> None:
    """The other server takes over the address; the replica and its consumer continue without a snapshot."""
    with master_of() as one, master_of("7.0", "--replicaof", f"127.0.0.1 {one.port}") as two, Proxy(one.port) as proxy:
        first, second = one.client(), two.client()
        first.set("a", "1")
        with rillet.follow(url_of(proxy.port), tmp_path) as replica:
            changes = replica.changes(timeout=1)
            first.execute_command("WAIT", 2, 5000)
            while first.execute_command("WAIT", 2, 1000) < 2:
                first.set("a", "2")
            first.set("b", "1")
            assert first.execute_command("WAIT", 2, 5000) == 2
            second.execute_command("REPLICAOF", "NO", "ONE")
            proxy.target = two.port
            proxy.cut()
            second.set("c", "1")
            replica.wait_synced(SECONDS)
            assert (replica.link.full_syncs, replica.execute("GET", "c")) == (1, b"1")
            keys = [(change.key, change.position) for change in changes]
            assert [key for key, _ in keys if key != "a"] == ["b", "c"]
            before = keys[0][1]._replace(id=info(second)["master_replid2"])  # a position of the earlier history
            assert [one.key for one in replica.changes(before, timeout=0)][-1:] == ["c"]
        with rillet.follow(url_of(proxy.port), tmp_path) as replica:
            second.set("d", "1")
            replica.wait_synced(SECONDS)
            assert (replica.link.full_syncs, replica.execute("GET", "d")) == (0, b"1")
            assert [one.key for one in replica.changes(before, timeout=0)][-2:] == ["c", "d"]


def test_consumers_continue_or_learn_what_is_lost() -> None:
    with master_of("7.0", "--repl-backlog-size", "16kb") as judge:
        master = judge.client()
        with rillet.follow(url_of(judge.port), backlog=1) as replica:
            changes = replica.changes(timeout=SECONDS)
            for number in range(10):
                master.set("k", number)
            seen = [next(changes) for _ in range(4)]
            assert [one.words[2] for one in seen] == [b"0", b"1", b"2", b"3"]
            replica.wait_synced(SECONDS)
            later = replica.changes(str(seen[1].position), timeout=2)  # the server's backlog holds them
            assert [one.words[2] for one in later] == [b"%d" % number for number in range(2, 10)]
            with master.pipeline(transaction=False) as pipeline:
                for _ in range(100):
                    pipeline.set("k", "x" * 1000)
                pipeline.execute()
            replica.wait_synced(SECONDS)
            with pytest.raises(ChangesLost) as lost:
                next(replica.changes(seen[1].position))
            assert lost.value.after == str(seen[1].position)
            assert lost.value.position == str(replica.position)
            master.set("end", "1")
            assert next(replica.changes(lost.value.position)).key == "end"
            with pytest.raises(ChangesLost):
                next(replica.changes("f" * 40 + ":1:0"))


def test_transactions_are_never_torn() -> None:
    with master_of() as judge, rillet.follow(url_of(judge.port)) as replica:
        stop, torn, reads = threading.Event(), [], [0]

        def read() -> None:
            while not stop.is_set():
                a, b = replica.execute("MGET", "a", "b")
                reads[0] += 1
                if a != b:
                    torn.append((a, b))

        reader = threading.Thread(target=read)
        reader.start()
        master = judge.client()
        for _ in range(20):
            with master.pipeline(transaction=False) as pipeline:
                for _ in range(20):
                    pipeline.execute_command("MULTI")
                    for key in ("a", "b"):
                        pipeline.incr(key)
                    pipeline.execute_command("EXEC")
                pipeline.execute()
        replica.wait_synced(SECONDS)
        stop.set()
        reader.join()
        assert (torn, replica.execute("GET", "a")) == ([], b"400")
        assert reads[0] > 0
        with replica.paused() as position:
            master.incr("a")
            assert replica.position == position
            assert replica.execute("GET", "a") == b"400"
        replica.wait_synced(SECONDS)
        assert replica.execute("GET", "a") == b"401"
        assert replica.lag.bytes == 0


def test_reads_wait_and_writes_are_refused() -> None:
    with master_of() as judge, rillet.follow(url_of(judge.port)) as replica:
        master = judge.client()
        found: list[Any] = []
        waiting = threading.Thread(target=lambda: found.append(replica.stream("s").read("$", block=SECONDS)))
        messages = replica.subscribe("news")
        waiting.start()
        while waiting.is_alive():
            master.xadd("s", {"n": 1})
            waiting.join(0.05)
        assert found[0][0]["n"] == "1"
        master.publish("news", "hello")
        message = messages.get(SECONDS)
        assert message is not None
        assert message.data == "hello"
        for words in (("SET", "a", "1"), ("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">"), ("FLUSHALL",),
                      ("EVAL", "return redis.call('set', 'a', 1)", "0"), ("BLPOP", "l", "1")):  # fmt: skip
            with pytest.raises(ReadOnly):
                replica.execute(*words)
        replica.execute("CONFIG", "SET", "replica-read-only", "no")
        with pytest.raises(ReadOnly):
            replica.execute("SET", "a", "1")
        with pytest.raises(rillet.CommandError, match="rillet.follow"):
            replica.execute("REPLICAOF", "NO", "ONE")
        with replica.serve() as served:
            client = redis.Redis(port=served.port or 0)
            assert client.xlen("s") > 0
            with pytest.raises(redis.exceptions.ResponseError, match="rillet.follow"):
                client.execute_command("REPLICAOF", "127.0.0.1", "1")
            client.close()
        master.set("soon", "1", px=1)
        master.hset("h", mapping={"a": "1"})
        replica.wait_synced(SECONDS)
        assert replica.hash("h").get_all() == {"a": "1"}
        names = {thread.name for thread in threading.enumerate()}
        assert "rillet-follow" in names
    assert not any(thread.name.startswith("rillet-follow") for thread in threading.enumerate())
    with pytest.raises(StoreClosed):
        replica.wait(1 << 60)


def test_a_child_process_keeps_the_data_as_it_was() -> None:
    with master_of() as judge, rillet.follow(url_of(judge.port)) as replica:
        judge.client().set("a", "1")
        replica.wait_synced(SECONDS)
        pid = os.fork()
        if not pid:
            os._exit(0 if replica.execute("GET", "a") == b"1" and not replica.connected else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        judge.client().set("a", "2")
        replica.wait_synced(SECONDS)
        assert replica.execute("GET", "a") == b"2"


def test_addresses_and_users(tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    with master_of("7.0", "--unixsocket", str(path)) as judge:
        master = judge.client()
        master.execute_command("ACL", "SETUSER", "follower", "on", ">secret", "+psync", "+replconf", "+ping")
        master.execute_command("CONFIG", "SET", "requirepass", "other")
        master.set("a", "1")
        with rillet.follow(f"unix://follower:secret@{path}") as replica:
            assert replica.execute("GET", "a") == b"1"
            assert "secret" not in repr(replica)
            replica.wait_synced(SECONDS)  # INFO is refused: the link counts
            master.set("a", "2")
            changes = replica.changes(timeout=SECONDS)
            if replica.execute("GET", "a") != b"2":
                assert next(changes).key == "a"
            assert replica.execute("GET", "a") == b"2"
        with pytest.raises(StoreError, match="refused"):
            rillet.follow(f"redis://follower:wrong@127.0.0.1:{judge.port}")
        with pytest.raises(StoreTimeout, match="first data"):
            rillet.follow("redis://127.0.0.1:1", timeout=0.2)
        with rillet.follow("redis://127.0.0.1:1", timeout=0) as replica, pytest.raises(MasterDown):
            replica.execute("GET", "a")
        with pytest.raises(StoreError, match="cluster"):
            rillet.follow("redis+cluster://127.0.0.1:1")
        with pytest.raises(TypeError, match="an iterable of globs"):
            rillet.follow("redis://127.0.0.1:1", keys="a*")


@pytest.mark.parametrize("kind", ["redis", "rillet"])
def test_tls(kind: str, tmp_path: Path) -> None:
    """The link, wait_synced and consumers that are behind use TLS, and check the certificate of the server."""
    authority = make_authority(tmp_path)
    port = free_port()
    (tmp_path / "server").mkdir()
    options = ["--tls-port", str(port), "--tls-cert-file", authority.path("server.crt"), "--tls-key-file",
               authority.path("server.key"), "--tls-ca-cert-file", authority.path("ca.crt"),
               "--repl-diskless-sync-delay", "0"]  # fmt: skip
    server: Any = master_of("7.0", *options) if kind == "redis" else running(tmp_path / "server", *options)
    files = {"ssl_ca_certs": "ca.crt", "ssl_certfile": "client.crt", "ssl_keyfile": "client.key"}
    query = "&".join(f"{name}={authority.path(file)}" for name, file in files.items())
    url = f"rediss://localhost:{port}/1?{query}"

    async def use() -> None:
        async with rillet.follow(url, timeout=0).aio() as replica:
            await replica.wait_synced(SECONDS)
            assert await replica.execute("GET", "a") == b"9"

    with server as found, redis.Redis(port=found.port, db=1) as master:
        master.set("a", "1")
        with rillet.follow(url, backlog=1) as replica:
            position = replica.position
            for number in range(2, 10):
                master.set("a", number)
            replica.wait_synced(SECONDS)
            assert replica.execute("GET", "a") == b"9"
            assert [one.words[2] for one in replica.changes(position, timeout=2)] == [
                b"%d" % number for number in range(2, 10)]  # fmt: skip
            master.execute_command("CLIENT", "KILL", "TYPE", "replica")
            master.set("b", "1")
            replica.wait_synced(SECONDS)
            assert (replica.link.full_syncs, replica.execute("GET", "b")) == (1, b"1")
        asyncio.run(use())
        with pytest.raises(StoreError, match="certificate"):
            rillet.follow(f"rediss://localhost:{port}/1")


def test_of_a_rillet_server(tmp_path: Path) -> None:
    with running(tmp_path, "--repl-diskless-sync-delay", "0", "--save", "") as server:
        master = redis.Redis(port=server.port)
        master.xadd("s", {"n": 1}, id="1-1")
        with rillet.follow(url_of(server.port)) as replica, rillet.follow(url_of(server.port), keys=["s"]) as some:
            changes = replica.changes(timeout=0)
            master.xadd("s", {"n": 2}, id="2-1")
            master.xgroup_create("s", "g", "0")
            for store in (replica, some):
                store.wait_synced(SECONDS)
                assert [str(entry.id) for entry in store.stream("s")] == ["1-1", "2-1"]
            assert [one.command for one in changes] == ["XADD", "XGROUP"]
            with some.serve() as served, pytest.raises(redis.exceptions.ResponseError, match="a part of its master"):
                redis.Redis(port=served.port or 0).execute_command("PSYNC", "?", "-1")
            with replica.serve() as served, rillet.follow(served.url) as third:  # a replica of the replica
                master.set("x", "1")
                replica.wait_synced(SECONDS)
                third.wait_synced(SECONDS)
                assert (third.execute("GET", "x"), third.position) == (b"1", replica.position)


def test_the_same_for_asyncio() -> None:
    async def use(judge: Judge) -> None:
        async with rillet.follow(url_of(judge.port), timeout=0).aio() as replica:
            await replica.wait_synced(SECONDS)
            master = judge.client()
            reading = asyncio.create_task(replica.stream("s").read("$", block=SECONDS))
            changes = replica.changes(timeout=SECONDS)
            while not reading.done():
                await asyncio.to_thread(master.xadd, "s", {"n": 1})
                await asyncio.wait([reading], timeout=0.05)
            assert reading.result()[0]["n"] == "1"
            first = await anext(changes)
            assert (first.command, first.key) == ("XADD", "s")
            waiting = asyncio.create_task(anext(replica.changes(timeout=SECONDS)))
            while not waiting.done():
                await asyncio.to_thread(master.set, "k", "1")
                await asyncio.wait([waiting], timeout=0.05)
            assert waiting.result().key == "k"
            position = await replica.wait_synced(SECONDS)
            await replica.wait(position, 1)
            with pytest.raises(StoreTimeout):
                await replica.wait(position.offset + 10_000, 0.1)
            again = [one async for one in replica.changes(first.position, timeout=0)]
            assert "SET" in {one.command for one in again}
            with pytest.raises(ChangesLost):
                await anext(replica.changes("f" * 40 + ":1:0"))
            assert replica.connected
            assert (replica.resyncs, replica.lag.bytes, replica.link.status) == (0, 0, "connected")
            with replica.paused() as position:
                assert replica.position == position
                assert replica.offset == position.offset

    with master_of() as judge:
        asyncio.run(use(judge))
