"""The settings of a replica: what each of them changes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import redis

from tests.authority import make_authority
from tests.judge import free_port, running_redis
from tests.replication.load import await_equal, differences, info
from tests.replication.proxy import Proxy
from tests.replication.test_replica_following import client_of, logged, master_of, replica_of
from tests.server.harness import running
from tests.waiting import until


def test_credentials_and_the_announced_address(tmp_path: Path) -> None:
    with master_of("7.0") as judge:
        master = client_of(judge.port)
        master.config_set("requirepass", "other")
        master.execute_command("ACL", "SETUSER", "follower", "on", ">secret", "+psync", "+replconf", "+ping")
        options = ("--masteruser", "follower", "--replica-announce-ip", "10.1.2.3", "--replica-announce-port", "77",
                   "--bind-source-addr", "127.0.0.2", "--replica-priority", "7", "--replica-announced", "no",
                   "--repl-timeout", "30")  # fmt: skip
        with replica_of(judge.port, tmp_path, *options, "--masterauth", "wrong") as server:
            replica = client_of(server.port)
            until(lambda: logged(tmp_path, "Unable to AUTH to MASTER: -WRONGPASS"))
            replica.config_set("masterauth", "secret")
            await_equal(master, replica)
            assert "ip=10.1.2.3,port=77,state=online" in info(master)["slave0"]
            assert b" addr=127.0.0.2:" in master.execute_command("CLIENT", "LIST", "TYPE", "replica")
            assert (info(replica)["slave_priority"], info(replica)["replica_announced"]) == ("7", "0")


def test_a_silent_master(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port: int = silent.getsockname()[1]
        with replica_of(port, tmp_path, "--repl-timeout", "1") as server:
            until(lambda: logged(tmp_path, "Timeout connecting to the MASTER..."))
            until(lambda: logged(tmp_path, "Connecting to MASTER") > 1)
            assert client_of(server.port).execute_command("ROLE")[4] == -1


@pytest.mark.parametrize(("way", "same"), [("swapdb", True), ("swapdb", False), ("flushdb", True)])
def test_ways_to_load_a_snapshot(way: str, same: bool, tmp_path: Path) -> None:
    """The old data during and after a transfer that fails; same: the master has the history of the old data."""
    with master_of("7.0", "--repl-diskless-sync", "no") as judge, Proxy(judge.port) as proxy:
        master = judge.client()
        master.set("old", "1")
        with replica_of(proxy.port, tmp_path, "--repl-diskless-load", way) as server:
            replica = client_of(server.port)
            await_equal(master, replica)
            proxy.target, proxy.stalls = 1, 50_000
            proxy.cut()
            master.config_set("repl-backlog-size", "16384")
            master.delete("old")
            master.execute_command("DEBUG", "POPULATE", "3000", "k", "1000")
            master.set("large", "x" * 100_000)
            if not same:
                master.execute_command("DEBUG", "CHANGE-REPL-ID")
            proxy.target = judge.port
            until(lambda: int(info(replica).get("master_sync_read_bytes", "0")) > 40_000)
            beside = int(same and way == "swapdb")
            how = b"loading:%d\r\nasync_loading:%d\r\n" % (1 - beside, beside)
            facts: list[bytes] = []

            def loads() -> bool:
                facts[:] = [replica.execute_command("INFO", "persistence")]
                return how in facts[0]

            until(loads)
            assert b"loading_total_bytes:" in facts[0]
            if beside:
                assert replica.get("old") == b"1"
                for words in (("SAVE",), ("SLAVEOF", "NO", "ONE")):
                    with pytest.raises(redis.exceptions.BusyLoadingError):
                        replica.execute_command(*words)
            else:
                with pytest.raises(redis.exceptions.BusyLoadingError):
                    replica.get("old")
            proxy.stalls = 0
            proxy.target = 1
            proxy.cut()
            until(lambda: info(replica)["master_sync_in_progress"] == "0")
            until(lambda: b"loading:0\r\nasync_loading:0\r\n" in replica.execute_command("INFO", "persistence"))
            assert replica.get("old") == (None if way == "flushdb" else b"1")
            proxy.target = judge.port
            await_equal(master, replica)
            assert (replica.dbsize(), replica.get("old")) == (3001, None)


def test_memory_and_lazy_freeing(tmp_path: Path) -> None:
    options = ("--maxmemory", "2mb", "--maxmemory-policy", "allkeys-random", "--replica-lazy-flush", "yes",
               "--rdb-del-sync-files", "yes", "--dbfilename", "received.rdb")  # fmt: skip
    with master_of("7.0") as judge, replica_of(judge.port, tmp_path, *options) as server:
        master, replica = judge.client(), client_of(server.port)
        await_equal(master, replica)
        master.execute_command("DEBUG", "POPULATE", "3000", "k", "1000")
        replica.execute_command("REPLICAOF", "NO", "ONE")
        replica.execute_command("SADD", "large", *range(2000))
        replica.execute_command("REPLICAOF", "127.0.0.1", judge.port)
        master.execute_command("DEBUG", "CHANGE-REPL-ID")
        await_equal(master, replica)
        assert replica.dbsize() == 3000
        until(lambda: b"lazyfreed_objects:0" not in replica.execute_command("INFO", "memory"))
        assert list(tmp_path.glob("*.rdb")) == []
        replica.config_set("replica-ignore-maxmemory", "no")
        until(lambda: replica.get("x") is None and replica.dbsize() < 3000)


def await_failed_save(client: redis.Redis) -> None:
    until(lambda: b"rdb_last_bgsave_status:err" in client.execute_command("INFO", "persistence"))


def test_a_replica_that_differs_or_cannot_write_ends(tmp_path: Path) -> None:
    with master_of("7.0") as judge:
        master = judge.client()
        for setting, others in (("propagation-error-behavior", ("ignore", "panic")),
                                ("replica-ignore-disk-write-errors", ("yes", "no"))):  # fmt: skip
            folder = tmp_path / setting
            options = ("--replica-read-only", "no", "--save", "3600 1", "--compat", "7.0")
            with replica_of(judge.port, folder, *options, f"--{setting}", others[0]) as server:
                replica = client_of(server.port)
                await_equal(master, replica)
                replica.set("text", "1")
                if setting == "propagation-error-behavior":
                    master.rpush("text", "1")
                else:
                    (folder / "dump.rdb").unlink(missing_ok=True)
                    (folder / "dump.rdb").mkdir()
                    replica.execute_command("BGSAVE")
                    await_failed_save(replica)
                master.incr("counter")
                await_equal(master, replica)
                replica.config_set(setting, others[1])
                replica.config_set("replica-read-only", "yes")
                master.rpush("text", "1")
                status, _ = server.ended()
                assert status == 1
                assert logged(folder, "to disk") or logged(folder, "error to its master: 'WRONGTYPE")
            master.delete("text")


def test_a_replica_that_syncs_always(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    options = ("--compat", "newest", "--appendonly", "yes", "--appendfsync", "always")
    with (
        running(
            tmp_path / "m", "--compat", "newest", "--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"
        ) as server,
        replica_of(server.port, tmp_path / "r", *options) as other,
    ):
        master = client_of(server.port)
        await_equal(master, client_of(other.port))
        for _ in range(3):
            master.incr("n")
            assert master.execute_command("WAITAOF", 0, 1, 30_000) == [0, 1]


def _log_is_on(port: int) -> bool:
    facts = client_of(port).execute_command("INFO", "persistence")
    return b"aof_enabled:1" in facts and b"aof_rewrite_in_progress:0" in facts


@pytest.mark.parametrize(("compat", "reused"), [("valkey", 1), ("7.0", 0)])
def test_the_transferred_file_becomes_the_base_of_the_log(compat: str, reused: int, tmp_path: Path) -> None:
    """As in Valkey 9.1, if the snapshot is a file; Redis rewrites the log."""
    (tmp_path / "m").mkdir()
    line = "Reused RDB file from primary sync as AOF base file: appendonly.aof."
    kind = ("--compat", compat, "--enable-debug-command", "yes")
    options = ("--appendonly", "yes", *kind)
    with running(tmp_path / "m", "--repl-diskless-sync", "no", *kind) as master_server:
        master, port = client_of(master_server.port), master_server.port
        for number in range(50):
            master.xadd("s", {"n": number})
        master.execute_command("FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function() end)")
        with replica_of(port, tmp_path / "r", *options) as server:
            await_equal(master, client_of(server.port))
            until(lambda: _log_is_on(server.port))
            assert logged(tmp_path / "r", line) == reused
            assert (tmp_path / "r" / "dump.rdb").exists() == (not reused)
            assert logged(tmp_path / "r", "AOF rewrite started") == 0 or not reused
            master.xadd("s", {"n": "last"})
            await_equal(master, client_of(server.port))
        with replica_of(port, tmp_path / "r", *options) as server:  # the log is complete
            await_equal(master, client_of(server.port))
            assert differences(master, client_of(server.port)) == []
            assert logged(tmp_path / "r", "Successful partial") == 1
            client_of(server.port).execute_command("BGREWRITEAOF")
            until(lambda: _log_is_on(server.port))
        with replica_of(port, tmp_path / "text", *options, "--aof-use-rdb-preamble", "no") as server:
            await_equal(master, client_of(server.port))
            until(lambda: _log_is_on(server.port))
            assert logged(tmp_path / "text", line) == 0
        with replica_of(port, tmp_path / "diskless", *options, "--repl-diskless-load", "swapdb") as server:
            await_equal(master, client_of(server.port))
            until(lambda: _log_is_on(server.port))
            assert logged(tmp_path / "diskless", line) == 0


def test_links_with_tls(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    authority.make("ec", "-in", "client.key", "-aes256", "-passout", "pass:secret", "-out", "locked.key")
    port = free_port()
    ca = ("--tls-ca-cert-file", authority.path("ca.crt"))
    with running_redis("--tls-port", str(port), "--tls-cert-file", authority.path("server.crt"), "--tls-key-file",
                       authority.path("server.key"), *ca, "--repl-diskless-sync-delay", "0") as judge:  # fmt: skip
        master = judge.client()
        master.set("a", "1")
        options = ("--tls-replication", "yes", "--tls-client-cert-file", authority.path("client.crt"),
                   "--tls-client-key-file", authority.path("locked.key"), "--tls-client-key-file-pass")  # fmt: skip
        with replica_of(port, tmp_path / "r", *ca, *options, "wrong") as server:
            replica = client_of(server.port)
            until(lambda: logged(tmp_path / "r", "Failed to load certificate"))
            replica.config_set("tls-client-key-file-pass", "secret")
            await_equal(master, replica)
            assert replica.get("a") == b"1"


def test_a_plain_link_to_a_port_with_tls_fails(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    secure = ("--tls-replication", "yes")
    with running(tmp_path / "m") as server, replica_of(server.port, tmp_path / "r", *secure) as other:
        until(lambda: logged(tmp_path / "r", "must be specified"))
        assert info(client_of(other.port))["master_link_status"] == "down"
