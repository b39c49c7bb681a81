"""SHUTDOWN of a master waits for its replicas; the master's link of a replica in CLIENT LIST; restarts of masters."""

from __future__ import annotations

import os
import signal
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import redis

from tests.judge import running_redis
from tests.replication.fake_replica import FakeReplica
from tests.replication.load import await_equal
from tests.replication.test_replica_following import client_of, master_of, replica_of
from tests.server.harness import Client, Running, running
from tests.waiting import until

MASTER = ("--compat", "7.0", "--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes", "--hz", "100")
FAILED = b"-ERR Errors trying to SHUTDOWN. Check logs.\r\n"


def blocked(client: Client) -> int:
    return int(client.info("blocked_clients"))


def server_field(client: Client, name: str) -> bool:
    return f"\r\n{name}:" in client.call("INFO server").decode()


def facts(client: redis.Redis, section: str) -> dict[str, str]:
    text = client_of(client.connection_pool.connection_kwargs["port"]).execute_command("INFO", section).decode()
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def master(folder: Path, *arguments: str) -> AbstractContextManager[Running]:
    return running(folder, *MASTER, *arguments)


def test_an_aborted_shutdown_and_one_that_a_replica_ends(tmp_path: Path) -> None:
    with master(tmp_path, "--save", "") as server, FakeReplica(server.port) as replica:
        replica.follow()
        with server.client() as one, server.client() as two, server.client() as writer, server.client() as client:
            assert client.call("SHUTDOWN ABORT") == b"-ERR No shutdown in progress.\r\n"
            client.call("INCR n")
            one.send("SHUTDOWN")
            two.send("SHUTDOWN")
            until(lambda: blocked(client) == 2)
            assert server_field(client, "shutdown_in_milliseconds")
            writer.send("INCR n")  # writes pause, reads do not
            assert client.call("GET n") == b"$1\r\n1\r\n"
            number = client.call("CLIENT LIST").split(b" cmd=shutdown ")[0].rpartition(b"id=")[2].split()[0].decode()
            assert client.call(f"CLIENT UNBLOCK {number}") == b":0\r\n"
            assert client.call("SHUTDOWN ABORT") == b"+OK\r\n"
            assert (one.reply(), two.reply(), writer.reply()) == (FAILED, FAILED, b":2\r\n")
            assert not server_field(client, "shutdown_in_milliseconds")
            assert client.call("CLIENT KILL TYPE normal SKIPME yes") == b":3\r\n"
            client.send("SHUTDOWN")
            assert replica.commands(4) == [b"SELECT 0", b"INCR n", b"REPLCONF GETACK *", b"INCR n"]
            assert replica.commands(1) == [b"REPLCONF GETACK *"]
            replica.ack()
            assert client.rest() == b""
        status, log = server.ended()
        assert status == 0
        for line in ("Waiting for replicas before shutting down.", "Shutdown manually aborted.",
                     "1 of 1 replicas are in sync when shutting down.", "ready to exit, bye bye"):  # fmt: skip
            assert line in log
        assert "Lagging replica" not in log


@pytest.mark.parametrize("how", ["signal", "timeout", "now"])
def test_a_shutdown_that_does_not_wait_for_a_silent_replica(how: str, tmp_path: Path) -> None:
    limit = {"signal": "1", "timeout": "0", "now": "1000"}[how]
    with master(tmp_path, "--save", "", "--shutdown-timeout", limit) as server, FakeReplica(server.port) as replica:
        replica.follow()
        with server.client() as client:
            client.call("INCR n")
            if how == "signal":
                os.kill(server.process.pid, signal.SIGTERM)
                until(lambda: server_field(client, "shutdown_in_milliseconds"))
            else:
                client.send("SHUTDOWN NOW" if how == "now" else "SHUTDOWN")
        status, log = server.ended()
        assert status == 0
        assert ("Waiting for replicas" in log) == (how == "signal")
        assert "Lagging replica 127.0.0.1:1 reported offset " in log
        assert "0 of 1 replicas are in sync when shutting down." in log


def test_a_failed_shutdown_and_a_signal_that_is_aborted(tmp_path: Path) -> None:
    with master(tmp_path, "--save", "3600 1") as server, FakeReplica(server.port) as replica:
        replica.follow()
        (tmp_path / "dump.rdb").unlink(missing_ok=True)
        (tmp_path / "dump.rdb").mkdir()
        with server.client() as one, server.client() as client:
            client.call("DEBUG PAUSE-CRON 1")
            os.kill(server.process.pid, signal.SIGTERM)
            until(lambda: client.call("SHUTDOWN ABORT") == b"+OK\r\n")
            client.call("DEBUG PAUSE-CRON 0")
            client.call("INCR n")
            one.send("SHUTDOWN")
            until(lambda: blocked(client) == 1)
            assert replica.commands(3)[2] == b"REPLCONF GETACK *"
            replica.ack()
            assert one.reply() == FAILED
            assert client.call("INCR n") == b":2\r\n"
            client.send("SHUTDOWN NOW FORCE")
            assert client.rest() == b""
        status, log = server.ended()
        assert status == 0
        assert "Error trying to save the DB, can't exit." in log


def test_what_expires_while_a_master_is_down_reaches_the_replicas_that_continue(tmp_path: Path) -> None:
    options = ("--save", "3600 1")
    with master(tmp_path, *options) as server, FakeReplica(server.port) as replica:
        replica.follow()
        with server.client() as client:
            client.call("DEBUG SET-ACTIVE-EXPIRE 0")
            for command in ("SELECT 2", "SET gone 1 PX 1", "SELECT 0", "SET stays 1", "SET gone 1 PX 1"):
                client.call(command)
            assert len(replica.commands(5)) == 5
            replica.ack()
            client.send("SHUTDOWN NOW")
            assert client.rest() == b""
        history, offset = replica.id, replica.offset
    with master(tmp_path, *options) as server, FakeReplica(server.port) as replica:
        replica.declare("eof", "psync2")
        assert replica.psync(history, offset + 1).startswith(b"+CONTINUE ")
        found = replica.commands(4)
        assert sorted((found[0] + found[1], found[2] + found[3])) == [b"SELECT 0DEL gone", b"SELECT 2DEL gone"]
    small = ("--repl-backlog-size", "16384")  # it cannot hold all deletions
    with master(tmp_path, *options, *small) as server, server.client() as client:
        client.call("DEBUG SET-ACTIVE-EXPIRE 0")
        client.send(*(f"SET gone:{number} 1 PX 1" for number in range(1000)))
        for _ in range(1000):
            client.reply()
        with FakeReplica(server.port) as replica:
            replica.follow()
        client.send("SHUTDOWN NOW")
        assert client.rest() == b""
    with master(tmp_path, *options, *small) as server, FakeReplica(server.port) as other:
        other.declare("eof", "psync2")
        assert other.psync(replica.id, replica.offset + 1).startswith(b"+FULLRESYNC ")


def test_the_link_to_the_master_is_a_client(tmp_path: Path) -> None:
    with master_of("7.0") as judge, replica_of(judge.port, tmp_path, "--compat", "7.0") as server:
        leader, ours = judge.client(), client_of(server.port)
        await_equal(leader, ours)
        with running_redis("--replicaof", f"127.0.0.1 {judge.port}") as other:
            theirs = client_of(other.port)
            await_equal(leader, theirs)
            lines = []
            for one in (ours, theirs):
                (line,) = one.execute_command("CLIENT", "LIST", "TYPE", "master").splitlines()
                fields = dict(part.split(b"=", 1) for part in line.split(b" "))
                same = (b"addr", b"name", b"flags", b"db", b"user", b"cmd", b"resp", b"sub", b"multi")
                lines.append({name: fields[name] for name in same})
                assert int(fields[b"laddr"].split(b":")[1]) > 0
                assert facts(one, "clients")["connected_clients"] == "3"  # the master, and those of this test
            assert lines[0] == lines[1]
        assert ours.execute_command("CLIENT", "KILL", "TYPE", "master") == 1
        leader.set("a", "1")
        await_equal(leader, ours)
        transaction = ours.pipeline()
        transaction.execute_command("CLIENT", "KILL", f"127.0.0.1:{judge.port}")
        transaction.execute_command("PING")
        assert len(transaction.execute()) == 2
        assert leader.execute_command("CLIENT", "KILL", "TYPE", "replica") >= 0
        leader.set("a", "2")
        await_equal(leader, ours)
        assert int(facts(leader, "stats")["sync_partial_ok"]) >= 2
        ours.execute_command("CLIENT", "PAUSE", "100000", "WRITE")  # clients wait, the master does not
        leader.set("a", "3")
        await_equal(leader, ours)
