"""A rillet server that follows genuine servers, whose links are cut, and that genuine servers follow."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from rillet.server.config_rewrite import rewritten
from rillet.server.redis_conf import load
from tests.judge import Judge, required_binary, running_redis
from tests.replication.load import Load, await_equal, differences, info, lasts
from tests.replication.proxy import Proxy
from tests.server.harness import Running, running

COMPATS = ("7.0", "8.6", "newest", "valkey")


def client_of(port: int) -> redis.Redis:
    client = redis.Redis(port=port, protocol=2)
    client.response_callbacks.clear()
    return client


@contextmanager
def master_of(compat: str, *options: str) -> Iterator[Judge]:
    with running_redis("--repl-diskless-sync-delay", "0", "--repl-backlog-size", "20mb", *options,
                       binary=required_binary(compat)) as judge:  # fmt: skip
        yield judge


@contextmanager
def replica_of(port: int, folder: Path, *options: str) -> Iterator[Running]:
    folder.mkdir(exist_ok=True)
    with running(folder, "--enable-debug-command", "yes", "--replicaof", f"127.0.0.1 {port}", "--logfile",
                 str(folder / "log"), "--save", "", "--repl-diskless-sync-delay", "0", *options) as server:  # fmt: skip
        yield server


def logged(folder: Path, text: str) -> int:
    return (folder / "log").read_text().count(text)


@pytest.mark.peer(*COMPATS)
@pytest.mark.parametrize("compat", COMPATS)
def test_random_load_with_cut_links(compat: str, tmp_path: Path) -> None:
    chance = random.Random(5)
    ways = (("yes", "swapdb"), ("no", "disabled"), ("yes", "disabled"), ("no", "on-empty-db"))
    diskless, way = ways[COMPATS.index(compat)]
    with master_of(compat, "--repl-diskless-sync", diskless) as judge, Proxy(judge.port) as proxy:
        master = judge.client()
        maker = Load(7, compat)
        maker.run(master, 200)
        with (
            replica_of(proxy.port, tmp_path, "--compat", compat, "--repl-diskless-load", way) as server,
            running_redis("--replicaof", f"127.0.0.1 {judge.port}", binary=required_binary(compat)) as twin,
        ):
            replica, genuine = client_of(server.port), twin.client()
            await_equal(master, replica)
            await_equal(master, genuine)
            for _ in range(12):
                maker.run(master, 60)
                proxy.limits += [-1] * (proxy.links - len(proxy.limits)) + [chance.randrange(1, 9000)]
                proxy.cut()
            await_equal(master, replica)
            await_equal(master, genuine)
            lasts(master)
            await_equal(master, replica)
            await_equal(master, genuine)
            # A genuine replica differs from its master in fields of XINFO FULL; this one must not differ from it.
            assert differences(genuine, replica) == []
            assert logged(tmp_path, "Full resync") == 1
            assert logged(tmp_path, "Successful partial") >= 12
            assert logged(tmp_path, "CRITICAL") == 0


@pytest.mark.peer("newest", "7.0")
def test_links_cut_at_each_byte_of_the_handshake(tmp_path: Path) -> None:
    with master_of("7.0") as judge, Proxy(judge.port) as proxy:
        master = judge.client()
        master.set("a", "1")
        with replica_of(proxy.port, tmp_path) as server:
            replica = client_of(server.port)
            await_equal(master, replica)
            # The replies to PING, REPLCONF and PSYNC, and the first bytes of the stream.
            for at in range(1, 75):
                proxy.limits = [-1] * proxy.links + [at]
                proxy.cut()
                replica.execute_command("REPLICAOF", "NO", "ONE")
                replica.execute_command("REPLICAOF", "127.0.0.1", proxy.port)
                master.incr("a")
                if at % 15 == 0:
                    proxy.limits = []
                    await_equal(master, replica)
            proxy.limits = []
            await_equal(master, replica)
            assert differences(master, replica) == []


@pytest.mark.peer("newest", "7.0", "valkey")
def test_a_chain(tmp_path: Path) -> None:
    """7.0 ──► rillet ──► (7.0, rillet): all have the offsets of the first master."""
    with (
        master_of("7.0") as judge, replica_of(judge.port, tmp_path / "a", "--compat", "7.0") as middle,
        running_redis("--replicaof", f"127.0.0.1 {middle.port}") as last,
        replica_of(middle.port, tmp_path / "b", "--compat", "7.0") as other,
    ):  # fmt: skip
        master, clients = judge.client(), [client_of(port) for port in (middle.port, last.port, other.port)]
        maker = Load(3, "7.0")
        for client in clients:
            await_equal(master, client)
        maker.run(master, 500)
        lasts(master)
        for client in clients:
            await_equal(master, client)
            assert info(client)["master_replid"] == info(master)["master_replid"]
        for client in clients[:2]:
            assert differences(clients[2], client) == []
        # The first master ends; the one in the middle continues its history, and the others follow without a transfer.
        clients[0].execute_command("REPLICAOF", "NO", "ONE")
        clients[0].set("promoted", "yes")
        for client in clients[1:]:
            await_equal(clients[0], client)
            assert differences(clients[0], client) == []
            assert info(client)["master_replid2"] == info(master)["master_replid"]
        assert logged(tmp_path / "b", "Full resync") == 1
        assert info(clients[0])["second_repl_offset"] != "-1"


def test_what_a_replica_refuses(tmp_path: Path) -> None:
    with master_of("7.0") as judge, replica_of(judge.port, tmp_path, "--compat", "7.0") as server:
        master, replica = judge.client(), client_of(server.port)
        await_equal(master, replica)
        for words in (("SET", "a", "1"), ("EVAL", "return redis.call('set', KEYS[1], 1)", "1", "a"), ("FLUSHALL",),
                      ("EVAL", "#!lua\nreturn 1", "0"), ("FUNCTION", "FLUSH")):  # fmt: skip
            with pytest.raises(redis.exceptions.ReadOnlyError):
                replica.execute_command(*words)
        assert replica.execute_command("EVAL", "return redis.call('get', KEYS[1])", "1", "a") is None
        assert replica.execute_command("EVAL", "#!lua flags=no-writes\nreturn 1", "0") == 1
        with replica.pipeline() as pipeline:
            pipeline.set("a", 1)
            with pytest.raises(redis.exceptions.ResponseError, match="read only replica"):
                pipeline.execute()
        replica.config_set("replica-serve-stale-data", "no")
        assert replica.get("a") is None
        replica.execute_command("REPLICAOF", "127.0.0.1", "1")
        for words in (("GET", "a"), ("EVAL", "return 1", "0"), ("MULTI",)):
            if words == ("MULTI",):
                continue
            with pytest.raises(redis.exceptions.RedisError, match="Link with MASTER is down"):
                replica.execute_command(*words)
        assert replica.execute_command("ROLE")[3] in (b"connect", b"connecting")
        replica.execute_command("REPLICAOF", "NO", "ONE")
        replica.set("a", 1)


def test_a_writable_replica(tmp_path: Path) -> None:
    with master_of("7.0") as judge, replica_of(judge.port, tmp_path, "--replica-read-only", "no") as server:
        master, replica = judge.client(), client_of(server.port)
        await_equal(master, replica)
        master.set("theirs", 1, px=50)
        replica.set("own", 1, px=50)
        replica.set("short", 1, px=1)
        time.sleep(0.005)
        assert replica.execute_command("INCR", "short") == 1
        assert replica.execute_command("TTL", "short") == -1
        deadline = time.monotonic() + 20
        while replica.execute_command("EXISTS", "own") or replica.dbsize() > 1:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        await_equal(master, replica)


@pytest.mark.peer(*COMPATS)
@pytest.mark.parametrize("compat", COMPATS)
def test_info_and_role_have_the_fields_of_a_genuine_replica(compat: str, tmp_path: Path) -> None:
    with (
        master_of(compat) as judge, replica_of(judge.port, tmp_path, "--compat", compat) as server,
        running_redis("--replicaof", f"127.0.0.1 {judge.port}", binary=required_binary(compat)) as twin,
    ):  # fmt: skip
        master, ours, theirs = judge.client(), client_of(server.port), twin.client()
        for client in (ours, theirs):
            await_equal(master, client)
        time.sleep(0.01)
        assert ours.execute_command("ROLE") == theirs.execute_command("ROLE")
        variable = {"master_last_io_seconds_ago", "master_link_up_since_seconds", "repl_backlog_histlen",
                    "master_link_down_since_seconds",
                    "master_current_sync_attempts", "master_total_sync_attempts", "total_disconnect_time_sec",
                    "repl_backlog_first_byte_offset", "repl_backlog_size", "replicas_repl_buffer_peak"}  # fmt: skip
        for down in (False, True):
            if down:
                for client in (ours, theirs):
                    client.execute_command("REPLICAOF", "127.0.0.1", "1")
                    client.execute_command("DEBUG", "SLEEP", "0.01")
            here, there = info(ours), info(theirs)
            assert list(here) == list(there)
            assert {name: (here[name], there[name]) for name in here
                    if name not in variable and here[name] != there[name]} == {}  # fmt: skip


def test_promotion_and_the_other_replicas(tmp_path: Path) -> None:
    """The promoted replica continues the history: genuine replicas and the old master follow without a transfer."""
    with (
        master_of("7.0") as judge, replica_of(judge.port, tmp_path, "--compat", "7.0") as server,
        running_redis("--replicaof", f"127.0.0.1 {judge.port}") as twin,
    ):  # fmt: skip
        master, ours, sibling = judge.client(), client_of(server.port), twin.client()
        for client in (ours, sibling):
            await_equal(master, client)
        Load(11, "7.0").run(master, 200)
        lasts(master)
        for client in (ours, sibling):
            await_equal(master, client)
        ours.execute_command("REPLICAOF", "NO", "ONE")
        assert ours.execute_command("ROLE")[0] == b"master"
        ours.set("after", "1")
        for client in (sibling, master):
            client.execute_command("REPLICAOF", "127.0.0.1", server.port)
        for client in (sibling, master):
            await_equal(ours, client)
            assert differences(ours, client, streams=client is sibling) == []
        stats = ours.execute_command("INFO", "stats")
        assert b"sync_full:0" in stats
        assert b"sync_partial_ok:2" in stats


@pytest.mark.parametrize("saved_by", ["rillet", "redis"])
def test_a_restart_continues_at_the_stored_position(saved_by: str, tmp_path: Path) -> None:
    with master_of("7.0") as judge:
        master = judge.client()
        Load(4, "7.0").run(master, 100)
        lasts(master)
        if saved_by == "rillet":
            with replica_of(judge.port, tmp_path, "--compat", "7.0", "--save", "3600 1") as server:
                await_equal(master, client_of(server.port))
        else:
            with running_redis("--replicaof", f"127.0.0.1 {judge.port}", "--save", "3600", "1",
                               folder=tmp_path) as twin:  # fmt: skip
                await_equal(master, twin.client())
        master.execute_command("SELECT", "2")
        master.set("meanwhile", "1")
        with replica_of(judge.port, tmp_path, "--compat", "7.0") as server:
            replica = client_of(server.port)
            await_equal(master, replica)
            assert differences(master, replica) == []
            assert logged(tmp_path, "Full resync") == (1 if saved_by == "rillet" else 0)
            assert logged(tmp_path, "Successful partial") == 1


def test_a_file_that_flushall_writes_has_the_position_of_flushall(tmp_path: Path) -> None:
    """The commands before it came in the same piece; after a crash they must not run on the empty data."""
    with master_of("7.0") as judge, Proxy(judge.port) as proxy:
        master = judge.client()
        master.set("a", "1")
        with replica_of(proxy.port, tmp_path, "--compat", "7.0", "--save", "3600 1") as server:
            await_equal(master, client_of(server.port))
            proxy.shut = True
            proxy.cut()
            with master.pipeline(transaction=False) as pipeline:
                for words in ("RENAME a b", "SELECT 3", "RPUSH l 1", "LPOP l", "FLUSHALL", "SET c 1", "RENAME c d"):
                    pipeline.execute_command(*words.split())
                pipeline.execute()
            proxy.shut = False
            await_equal(master, client_of(server.port))
            server.process.kill()
            server.process.wait()
        with replica_of(proxy.port, tmp_path, "--compat", "7.0", "--save", "3600 1") as server:
            await_equal(master, client_of(server.port))
            assert logged(tmp_path, "Successful partial") == 2
            assert logged(tmp_path, "CRITICAL") == 0
            client = client_of(server.port)
            client.execute_command("SELECT", "3")
            assert client.execute_command("GET", "d") == b"1"


def test_the_log_of_a_replica_has_its_data(tmp_path: Path) -> None:
    options = ("--compat", "7.0", "--appendonly", "yes")
    with master_of("7.0") as judge:
        master = judge.client()
        maker = Load(6, "7.0")
        maker.run(master, 100)
        with replica_of(judge.port, tmp_path, *options) as server:
            replica = client_of(server.port)
            await_equal(master, replica)
            maker.run(master, 300)
            lasts(master)
            await_equal(master, replica)
            until_the_log_is_complete(replica)
        with running(tmp_path, "--enable-debug-command", "yes", *options) as server:
            assert differences(master, client_of(server.port), streams=False) == []


def test_a_log_has_the_position_of_its_data(tmp_path: Path) -> None:
    with master_of("7.0") as judge:
        master = judge.client()
        for way in ("clean", "clean", "changed", "killed"):
            master.execute_command("SELECT", "1")
            master.incr("n")
            with replica_of(judge.port, tmp_path, "--compat", "7.0", "--appendonly", "yes") as server:
                replica = client_of(server.port)
                await_equal(master, replica)
                until_the_log_is_complete(replica)
                master.incr("n")
                await_equal(master, replica)
                if way == "killed":
                    server.process.kill()
                    server.process.wait()
            if way == "changed":
                with running(tmp_path, "--compat", "7.0", "--appendonly", "yes") as server:
                    client_of(server.port).set("x", 1)
        with replica_of(judge.port, tmp_path, "--compat", "7.0", "--appendonly", "yes") as server:
            await_equal(master, client_of(server.port))
            until_the_log_is_complete(client_of(server.port))
            assert differences(master, client_of(server.port)) == []
        # The first start, and after the log was changed by a master.
        assert logged(tmp_path, "Full resync from") == 2
        assert logged(tmp_path, "Successful partial") == 3


@pytest.mark.parametrize("checksums", ["yes", "no"])
def test_a_killed_master_with_a_log_follows_its_successor_without_a_snapshot(checksums: str, tmp_path: Path) -> None:
    options = ("--compat", "7.0", "--appendonly", "yes", "--aof-checksums", checksums, "--save", "",
               "--enable-debug-command", "yes")  # fmt: skip
    (tmp_path / "old").mkdir()
    with running(tmp_path / "old", *options, "--repl-diskless-sync-delay", "0") as old:
        master = client_of(old.port)
        with running_redis("--replicaof", f"127.0.0.1 {old.port}", "--repl-backlog-size", "20mb") as judge:
            successor = judge.client()
            await_equal(master, successor)
            Load(8, "7.0").run(master, 200)
            lasts(master)
            master.execute_command("SELECT", "2")
            master.set("last", "1")
            await_equal(master, successor)
            master.close()
            old.process.kill()
            old.process.wait()
            successor.execute_command("REPLICAOF", "NO", "ONE")
            successor.set("later", "1")
            with replica_of(judge.port, tmp_path / "old", *options) as server:
                replica = client_of(server.port)
                await_equal(successor, replica)
                assert differences(successor, replica) == []
                assert logged(tmp_path / "old", "Full resync") == 0
                assert logged(tmp_path / "old", "Successful partial") == 1


def test_what_expires_while_a_killed_master_starts_reaches_its_replicas(tmp_path: Path) -> None:
    options = ("--compat", "7.0", "--appendonly", "yes", "--save", "", "--enable-debug-command", "yes")
    (tmp_path / "old").mkdir()
    with running(tmp_path / "old", *options, "--repl-diskless-sync-delay", "0") as old:
        master, proxy = client_of(old.port), Proxy(old.port)
        with proxy, running_redis("--replicaof", f"127.0.0.1 {proxy.port}") as judge:
            replica = judge.client()
            await_equal(master, replica)
            with master.pipeline(transaction=False) as pipeline:
                for number in range(8):
                    pipeline.set(f"k{number}", "v", px=400)
                pipeline.execute()
            await_equal(master, replica)
            master.close()
            old.process.kill()
            old.process.wait()
            time.sleep(0.4)
            with running(tmp_path / "old", *options, "--key-load-delay", "20000") as new:
                proxy.target = new.port
                again = client_of(new.port)
                await_equal(again, replica)
                deadline = time.monotonic() + 20
                while replica.dbsize():
                    assert time.monotonic() < deadline, (again.dbsize(), replica.dbsize())
                    time.sleep(0.02)
                assert b"sync_partial_ok:1" in again.execute_command("INFO", "stats")
                again.close()


def until_the_log_is_complete(client: redis.Redis) -> None:
    deadline = time.monotonic() + 20
    while b"aof_rewrite_in_progress:1" in client.execute_command("INFO", "persistence"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_setting_follows_the_command(tmp_path: Path) -> None:
    with replica_of(1, tmp_path) as server:
        client = client_of(server.port)
        assert client.execute_command("CONFIG", "GET", "replicaof") == [b"replicaof", b"127.0.0.1 1"]
        assert client.execute_command("REPLICAOF", "127.0.0.1", "1") == b"OK Already connected to specified master"
        client.execute_command("REPLICAOF", "localhost", "2")
        assert client.execute_command("CONFIG", "GET", "replicaof") == [b"replicaof", b"localhost 2"]
        client.execute_command("REPLICAOF", "NO", "ONE")
        assert client.execute_command("CONFIG", "GET", "slaveof") == [b"slaveof", b""]
        with pytest.raises(redis.exceptions.ResponseError, match="Invalid master port"):
            client.execute_command("REPLICAOF", "localhost", "70000")
    settings = load(["--replicaof", "localhost", "2"]).settings
    assert b"replicaof localhost 2\n" in rewritten(b"", settings)
    settings.set_text("replicaof", "no one")
    assert rewritten(b"slaveof localhost 2\nport 1\n", settings).startswith(b"\nport")


@pytest.mark.long
@pytest.mark.peer(*COMPATS)
@pytest.mark.parametrize("compat", COMPATS)
def test_many_rounds(compat: str, tmp_path: Path) -> None:
    """RILLET_ROUNDS rounds: random options, cuts in the handshake, in the snapshot and in the stream."""
    for seed in range(int(os.environ.get("RILLET_ROUNDS", "5"))):
        chance = random.Random(seed)
        folder = tmp_path / str(seed)
        way = chance.choice(("disabled", "swapdb", "on-empty-db"))
        with (
            master_of(compat, "--repl-diskless-sync", chance.choice(("yes", "no"))) as judge,
            Proxy(judge.port, [chance.randrange(1, 4000) for _ in range(3)]) as proxy,
            replica_of(proxy.port, folder, "--compat", compat, "--repl-diskless-load", way, "--appendonly",
                       chance.choice(("yes", "no"))) as server,
        ):  # fmt: skip
            master, replica, maker = judge.client(), client_of(server.port), Load(seed, compat)
            for _ in range(40):
                maker.run(master, 100)
                if chance.random() < 0.3:
                    links = range(chance.randrange(1, 4))
                    proxy.limits = [-1] * proxy.links + [chance.randrange(1, 20000) for _ in links]
                    proxy.cut()
            await_equal(master, replica, 120)
            lasts(master)
            await_equal(master, replica, 120)
            assert differences(master, replica, streams=False) == [], seed
            assert logged(folder, "CRITICAL") == 0
