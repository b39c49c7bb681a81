"""The snapshot over a second connection (repl-rdb-channel of Redis 8), between rillet and genuine servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from tests.authority import make_authority
from tests.judge import Judge, free_port, required_binary, running_redis
from tests.replication.load import Load, await_equal, differences, info, lasts
from tests.replication.test_replica_following import client_of, logged, replica_of
from tests.server.harness import Running, running
from tests.variants import long
from tests.waiting import until

WAYS = ("disabled", "on-empty-db", "swapdb", "flushdb")
STARTED = "Starting to receive RDB and replication stream in parallel"
APPLIED = "Successfully streamed replication buffer into the db"
PATIENCE = 120


def stats(client: redis.Redis, name: str) -> int:
    text = client.execute_command("INFO", "stats").decode()
    return int(text.partition(f"{name}:")[2].split()[0])


@contextmanager
def genuine(folder: Path, *options: str, compat: str = "newest") -> Iterator[Judge]:
    folder.mkdir(exist_ok=True)
    with running_redis("--repl-diskless-sync-delay", "0", "--repl-rdb-channel", "yes", "--repl-backlog-size", "20mb",
                       "--logfile", str(folder / "log"), *options,
                       binary=required_binary(compat)) as judge:  # fmt: skip
        yield judge


@contextmanager
def ours(folder: Path, *options: str) -> Iterator[Running]:
    folder.mkdir(exist_ok=True)
    with running(folder, "--enable-debug-command", "yes", "--logfile", str(folder / "log"), "--save", "",
                 "--repl-diskless-sync-delay", "0", "--repl-backlog-size", "20mb", *options) as server:  # fmt: skip
        yield server


def fill(client: redis.Redis, compat: str = "newest") -> Load:
    maker = Load(7, compat)
    maker.run(client, 200)
    client.execute_command("DEBUG", "POPULATE", "3000", "filler", "100")
    return maker


def same(master: redis.Redis, replica: redis.Redis) -> None:
    """Assert that both have the same data, once the replica has everything and nothing expires any more."""
    await_equal(master, replica)
    lasts(master)
    await_equal(master, replica)
    assert differences(master, replica) == []


# -- rillet is the replica -----------------------------------------------------------------------------------


@pytest.mark.peer("newest", "8.6")
@pytest.mark.long
@pytest.mark.parametrize(("compat", "way"), [("8.6", "disabled"), *(("newest", way) for way in WAYS)])
def test_a_replica_of_redis(tmp_path: Path, compat: str, way: str) -> None:
    with genuine(tmp_path / "m", "--rdb-key-save-delay", "300", compat=compat) as judge:
        master = judge.client()
        maker = fill(master, compat=compat)
        with replica_of(judge.port, tmp_path, "--repl-diskless-load", way, "--compat", compat) as server:
            replica = client_of(server.port)
            until(lambda: "send_bulk_and_stream" in info(master).get("slave0", ""), PATIENCE)
            assert info(master)["connected_slaves"] == "1"
            maker.run(master, 300)  # while the snapshot is sent
            await_equal(master, replica)
            maker.run(master, 100)
            same(master, replica)
            assert logged(tmp_path, STARTED) == logged(tmp_path, APPLIED) == 1
            facts = info(replica)
            assert facts["replica_full_sync_buffer_size"] == "0"
            assert int(facts["replica_full_sync_buffer_peak"]) > 0
            assert stats(master, "sync_full") == 1
            replica.execute_command("CLIENT", "KILL", "TYPE", "master")
            maker.run(master, 100)
            await_equal(master, replica)
            until(lambda: stats(master, "sync_partial_ok") == 1)
            assert stats(master, "sync_full") == 1
            same(master, replica)
            assert logged(tmp_path, "CRITICAL") == 0


# -- rillet is the master ------------------------------------------------------------------------------------


@contextmanager
def followers(kind: str, port: int, folder: Path, *options: str, compat: str = "newest") -> Iterator[redis.Redis]:
    """Start a replica, of rillet or genuine, and return its client."""
    if kind == "rillet":
        with replica_of(port, folder, *options) as server:
            yield client_of(server.port)
    else:
        with genuine(folder, "--replicaof", f"127.0.0.1 {port}", *options, compat=compat) as judge:
            yield judge.client()


@pytest.mark.peer("newest", "8.6")
@pytest.mark.long
@pytest.mark.parametrize(("compat", "kind", "way"), [
    ("8.6", "genuine", "disabled"), ("newest", "genuine", "disabled"), ("newest", "genuine", "swapdb"),
    ("newest", "rillet", "disabled"), ("newest", "rillet", "swapdb"),
])  # fmt: skip
def test_a_master(tmp_path: Path, compat: str, kind: str, way: str) -> None:
    with ours(tmp_path / "m", "--rdb-key-save-delay", "300", "--compat", compat) as server:
        master = client_of(server.port)
        maker = fill(master, compat)
        options = ("--repl-diskless-load", way)
        with followers(kind, server.port, tmp_path / "r", *options, compat=compat) as replica:
            until(lambda: "send_bulk_and_stream" in info(master).get("slave0", ""), PATIENCE)
            facts = info(master)
            assert facts["connected_slaves"] == "1"
            assert "slave1" not in facts
            lines = master.execute_command("CLIENT", "LIST", "TYPE", "replica").decode().splitlines()
            assert ["flags=SC" in line for line in lines] == [False, True]
            maker.run(master, 300)  # while the snapshot is sent
            same(master, replica)
            assert logged(tmp_path / "m", "replicas sockets (rdb-channel)") == 1
            assert logged(tmp_path / "r", STARTED) == 1
            assert "state=online" in info(master)["slave0"]
            assert stats(master, "sync_full") == 1
            assert len(master.execute_command("CLIENT", "LIST", "TYPE", "replica").splitlines()) == 1
            master.execute_command("CLIENT", "KILL", "TYPE", "replica")
            maker.run(master, 100)
            same(master, replica)
            assert (stats(master, "sync_full"), stats(master, "sync_partial_ok")) == (1, 1)


@pytest.mark.parametrize("way", ["swapdb", *long("disabled")])
def test_with_tls_and_a_user(tmp_path: Path, way: str) -> None:
    """Both connections use TLS and log in."""
    authority, port = make_authority(tmp_path), free_port()
    tls = ("--tls-port", str(port), "--tls-cert-file", authority.path("server.crt"), "--tls-key-file",
           authority.path("server.key"), "--tls-ca-cert-file", authority.path("ca.crt"))  # fmt: skip
    with ours(tmp_path / "m", *tls) as server:
        master = client_of(server.port)
        master.execute_command("DEBUG", "POPULATE", "2000", "filler", "5000")
        master.execute_command("ACL", "SETUSER", "follower", "on", ">secret", "+psync", "+replconf", "+ping")
        options = ("--tls-replication", "yes", "--tls-ca-cert-file", authority.path("ca.crt"), "--masteruser",
                   "follower", "--masterauth", "secret", "--repl-diskless-load", way, "--tls-cert-file",
                   authority.path("client.crt"), "--tls-key-file", authority.path("client.key"))  # fmt: skip
        with replica_of(port, tmp_path / "r", *options) as other:
            same(master, client_of(other.port))
            assert logged(tmp_path / "r", STARTED) == 1
            assert client_of(other.port).dbsize() == 2000
