"""Synchronisations over two connections that fail at each step, between rillet and genuine servers, and recover."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest
import redis

from tests.replication.fake_replica import FakeReplica, loaded
from tests.replication.load import await_equal, info
from tests.replication.nodes import Node
from tests.replication.proxy import Proxy
from tests.replication.test_rdb_channel import PATIENCE, STARTED, fill, followers, genuine, ours, same, stats
from tests.replication.test_replica_following import client_of, logged, replica_of
from tests.variants import by_speed
from tests.waiting import until


def again(replica: redis.Redis, port: int) -> None:
    """Let a replica that has never synchronised, or no longer, connect at once."""
    replica.execute_command("REPLICAOF", "NO", "ONE")
    replica.execute_command("DEBUG", "CHANGE-REPL-ID")
    replica.execute_command("REPLICAOF", "127.0.0.1", port)


@pytest.mark.peer("newest")
@pytest.mark.long
@pytest.mark.parametrize("second", [False, True], ids=["first", "second"])
def test_links_cut_at_each_byte_of_the_handshake(tmp_path: Path, second: bool) -> None:
    """One of the two links ends after each number of the master's bytes, up to the first ones behind the handshake."""
    with genuine(tmp_path / "m") as judge, Proxy(judge.port) as proxy:
        master = judge.client()
        master.set("a", "1")
        with replica_of(proxy.port, tmp_path) as server:
            replica = client_of(server.port)
            await_equal(master, replica)
            for at in range(1, 130 if second else 42):
                cuts = proxy.cuts
                proxy.limits = [-1] * proxy.links + ([-1, at] if second else [at])
                again(replica, proxy.port)
                master.incr("a")
                until(lambda cuts=cuts: proxy.cuts > cuts)  # type: ignore[misc]
                if at % 20 == 0:
                    again(replica, proxy.port)
                    await_equal(master, replica)
            again(replica, proxy.port)
            same(master, replica)
            assert logged(tmp_path, "CRITICAL") == 0


@pytest.mark.peer("newest")
@pytest.mark.long
@pytest.mark.parametrize("role", ["replica", "master"])
@pytest.mark.parametrize("way", ["disabled", "swapdb", "flushdb"])
def test_links_cut_anywhere(tmp_path: Path, role: str, way: str) -> None:
    """Links end at random bytes of the handshake, the snapshot and the stream; rillet has one of the roles."""
    chance = random.Random(int(os.environ.get("RILLET_SEED", "5")))
    servers = (genuine, "rillet") if role == "replica" else (ours, "genuine")
    with servers[0](tmp_path / "m", "--rdb-key-save-delay", "30") as judge, Proxy(judge.port) as proxy:
        master = client_of(judge.port)
        maker = fill(master)
        with followers(servers[1], proxy.port, tmp_path / "r", "--repl-diskless-load", way) as replica:
            for _ in range(int(os.environ.get("RILLET_ROUNDS", "25"))):
                cuts = proxy.cuts
                at = chance.choice((200, 3000, 100_000, 450_000))
                limit = chance.randrange(1, at)
                proxy.limits = [-1] * proxy.links + chance.choice(([limit], [-1, limit], [limit, limit]))
                again(replica, proxy.port)
                while proxy.cuts == cuts and proxy.links < 20_000 and not (
                        info(replica)["master_link_status"] == "up" and not chance.randrange(20)):  # fmt: skip
                    maker.run(master, 30)
            proxy.limits = []
            proxy.cut()
            await_equal(master, replica, PATIENCE)
            same(master, replica)
            for name in ("m", "r"):
                assert logged(tmp_path / name, "CRITICAL") == 0
            assert "slave1" not in info(master)


@pytest.mark.peer("newest")
@pytest.mark.long
@pytest.mark.parametrize(("role", "way"), [("replica", "disabled"), ("replica", "swapdb"), ("master", "disabled")])
def test_a_master_that_is_killed(tmp_path: Path, role: str, way: str) -> None:
    kinds = ("newest", "rillet") if role == "replica" else ("rillet", "newest")
    options = ["--repl-diskless-sync", "yes", "--repl-rdb-channel", "yes", "--repl-diskless-load", way]
    lasting = ["--rdb-key-save-delay", "500", "--appendonly", "yes"]
    master = Node("m", kinds[0], "newest", tmp_path / "m", [*options, *lasting])
    replica = Node("r", kinds[1], "newest", tmp_path / "r", [*options, "--repl-timeout", "10", "--save", ""])
    try:
        master.start()
        fill(master.client)
        master.client.execute_command("CONFIG", "SET", "rdb-key-save-delay", "500")
        replica.start()
        replica.follow(master)
        until(lambda: info(replica.client).get("master_sync_in_progress") == "1", PATIENCE)
        master.client.set("during", 1)
        master.kill()
        until(lambda: info(replica.client)["master_sync_in_progress"] == "0", PATIENCE)
        master.options += ["--rdb-key-save-delay", "0"]
        master.start()
        until(replica.follows, PATIENCE)
        same(master.client, replica.client)
        assert replica.logged("parallel") >= 2
    finally:
        master.close()
        replica.close()


@pytest.mark.peer("newest")
@pytest.mark.long
@pytest.mark.parametrize(("link", "at"), [(0, 30), (1, 1), (1, 60), (1, 1000)])
def test_a_link_that_stalls(tmp_path: Path, link: int, at: int) -> None:
    """The handshake of each link, the reply of the second one, and the snapshot stall: repl-timeout ends both links."""
    with genuine(tmp_path / "m") as judge, Proxy(judge.port) as proxy:
        master = judge.client()
        fill(master)
        proxy.stalled = {link: at}
        with replica_of(proxy.port, tmp_path, "--repl-timeout", "1") as server:
            replica = client_of(server.port)
            await_equal(master, replica, PATIENCE)
            same(master, replica)
            assert logged(tmp_path, "Timeout") >= 1
            assert proxy.links >= 3


@pytest.mark.peer("newest")
@pytest.mark.long
def test_the_first_link_ends_while_a_file_is_loaded(tmp_path: Path) -> None:
    """The replica loads the file, applies what it has of the stream, and continues with the rest."""
    with genuine(tmp_path / "m") as judge, Proxy(judge.port) as proxy:
        master = judge.client()
        maker = fill(master)
        with replica_of(proxy.port, tmp_path, "--key-load-delay", "1000") as server:
            replica = client_of(server.port)
            until(lambda: logged(tmp_path, "Loading DB in memory"), PATIENCE)
            maker.run(master, 50)
            until(lambda: int(info(replica)["replica_full_sync_buffer_size"]))
            proxy.cut()
            until(lambda: logged(tmp_path, "After loading RDB, replica will try psync with master"))
            maker.run(master, 50)
            replica.config_set("key-load-delay", 0)
            await_equal(master, replica, PATIENCE)
            same(master, replica)
            assert (stats(master, "sync_full"), stats(master, "sync_partial_ok")) == (1, 1)


@pytest.mark.peer("newest")
@pytest.mark.long
@pytest.mark.parametrize("way", ["swapdb", "flushdb"])
def test_the_first_link_ends_while_a_stream_is_loaded(tmp_path: Path, way: str) -> None:
    """The load is aborted: with swapdb the old data stays, with flushdb there is none."""
    with genuine(tmp_path / "m") as judge, Proxy(judge.port) as proxy:
        master = judge.client()
        fill(master)
        options = ("--repl-diskless-load", way, "--key-load-delay", "1000")
        with replica_of(proxy.port, tmp_path, *options) as server:
            replica = client_of(server.port)
            until(lambda: logged(tmp_path, "Loading DB in memory"), PATIENCE)
            proxy.shut = True
            proxy.cut()
            until(lambda: logged(tmp_path, "Failed trying to load the MASTER synchronization DB from socket"))
            until(lambda: info(replica)["master_sync_in_progress"] == "0")
            assert replica.dbsize() == 0
            replica.config_set("key-load-delay", 0)
            proxy.shut = False
            await_equal(master, replica, PATIENCE)
            same(master, replica)
            assert stats(master, "sync_full") == 2


@pytest.mark.peer("newest")
@pytest.mark.long
def test_the_limit_of_the_buffer(tmp_path: Path) -> None:
    """replica-full-sync-buffer-limit: above it the master keeps the stream; nothing is lost and nothing repeated."""
    with genuine(tmp_path / "m", "--client-output-buffer-limit", "replica 0 0 0") as judge:
        master = judge.client()
        fill(master)
        options = ("--key-load-delay", "1000", "--replica-full-sync-buffer-limit", "2mb")
        with replica_of(judge.port, tmp_path, *options) as server:
            replica = client_of(server.port)
            until(lambda: logged(tmp_path, "Loading DB in memory"), PATIENCE)
            for number in range(200):
                master.set(f"large:{number}", b"x" * 100_000)
            until(lambda: logged(tmp_path, "Replication buffer limit has been reached (2097152 bytes)"))
            assert 2 << 20 <= int(info(replica)["replica_full_sync_buffer_size"]) <= 4 << 20
            memory = replica.execute_command("INFO", "memory").decode()
            assert int(memory.partition("mem_replica_full_sync_buffer:")[2].split()[0]) >= 2 << 20
            replica.config_set("key-load-delay", 0)
            await_equal(master, replica, PATIENCE)
            same(master, replica)
            assert stats(master, "sync_full") == 1
            assert info(replica)["replica_full_sync_buffer_size"] == "0"


def stopped(pid: int) -> bool:
    """Return whether a process has stopped (SIGSTOP)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.peer("newest")
@pytest.mark.long
@pytest.mark.parametrize("command", ["CLIENT KILL TYPE master", "REPLICAOF NO ONE"])
def test_the_link_ends_while_the_buffer_is_applied(tmp_path: Path, command: str) -> None:
    """The replica has a prefix of the stream, at the offset that it reports, and continues there."""
    with genuine(tmp_path / "m") as judge:
        master = judge.client()
        fill(master)
        with replica_of(judge.port, tmp_path, "--key-load-delay", "1000") as server, server.client() as other:
            replica = client_of(server.port)
            assert other.call("DEBUG REPL-PAUSE on-streaming-repl-buf") == b"+OK\r\n"
            until(lambda: logged(tmp_path, "Loading DB in memory"), PATIENCE)
            for number in range(2000):
                master.execute_command("RPUSH", "items:list", number, "x" * 200)
            replica.config_set("key-load-delay", 0)
            until(lambda: stopped(server.process.pid), PATIENCE)
            other.send(command, "DEBUG REPL-PAUSE clear")
            os.kill(server.process.pid, signal.SIGCONT)
            other.reply()
            other.reply()
            until(lambda: logged(tmp_path, "Master client was freed while streaming"), PATIENCE)
            if command.startswith("REPLICAOF"):
                items = replica.execute_command("LRANGE", "items:list", 0, -1)[::2]
                assert items == [b"%d" % number for number in range(len(items))]
                assert len(items) < 2000
                replica.execute_command("REPLICAOF", "127.0.0.1", judge.port)
            await_equal(master, replica, PATIENCE)
            same(master, replica)
            # A server that was a master has a history of its own.
            expected = (2, 0) if command.startswith("REPLICAOF") else (1, 1)
            assert (stats(master, "sync_full"), stats(master, "sync_partial_ok")) == expected


# -- the master's side, byte by byte -------------------------------------------------------------------------


def second(port: int, client: int) -> FakeReplica:
    """Return the second connection of a replica, before PSYNC."""
    made = FakeReplica(port)
    assert made.call("REPLCONF", "capa", "eof", "rdb-only", "1", "rdb-channel", "1", "main-ch-client-id", str(client),
                     "listening-port", "1") == b"+OK"  # fmt: skip
    return made


def first(port: int) -> tuple[FakeReplica, int]:
    """Return the first connection of a replica, and its number at the master."""
    made = FakeReplica(port).declare("eof", "psync2", "rdb-channel-repl")
    answer = made.call("PSYNC", "?", "-1").split()
    assert answer[0] == b"+RDBCHANNELSYNC"
    return made, int(answer[1])


def test_the_stream_comes_beside_the_snapshot(tmp_path: Path) -> None:
    with ours(tmp_path, "--rdb-key-save-delay", "2000") as server:
        client = client_of(server.port)
        client.execute_command("DEBUG", "POPULATE", "300")
        main, number = first(server.port)
        with main, second(server.port, number) as channel:
            assert info(client)["connected_slaves"] == "1"
            assert "state=wait_bgsave" in info(client)["slave0"]
            assert channel.psync().startswith(b"+FULLRESYNC")
            assert "state=send_bulk_and_stream" in info(client)["slave0"]
            client.set("during", 1)
            main.offset = channel.offset
            assert main.commands(2) == [b"SELECT 0", b"SET during 1"]
            with pytest.raises(redis.ResponseError, match=f"Unrecognized RDB client id: {number}"):
                client.execute_command("REPLCONF", "main-ch-client-id", number)
            engine = loaded(channel.snapshot(), tmp_path)
            assert len(engine.databases[0]) == 300
            assert channel.ended()
            until(lambda: "state=online" in info(client)["slave0"])
            client.set("after", 1)
            assert main.commands(1) == [b"SET after 1"]
            main.ack()
            assert client.execute_command("WAIT", 1, 0) == 1


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_second_connection_that_ends(tmp_path: Path, when: str) -> None:
    """Before its transfer begins, another one may take its place; later, the first connection ends, too."""
    with ours(tmp_path, "--rdb-key-save-delay", "20000") as server:
        client = client_of(server.port)
        client.execute_command("DEBUG", "POPULATE", "300")
        main, number = first(server.port)
        with main:
            channel = second(server.port, number)
            if when == "during":
                channel.psync()
            channel.close()
            if when == "during":
                assert main.ended()
                until(lambda: logged(tmp_path, "Background transfer error"))
                until(lambda: info(client)["connected_slaves"] == "0")
            else:
                with second(server.port, number) as other:
                    assert other.psync().startswith(b"+FULLRESYNC")


def test_a_first_connection_that_ends(tmp_path: Path) -> None:
    with ours(tmp_path) as server:
        client = client_of(server.port)
        client.set("a", 1)
        main, number = first(server.port)
        with second(server.port, number) as channel:
            main.close()
            until(lambda: info(client)["connected_slaves"] == "0")
            assert channel.psync().startswith(b"+FULLRESYNC")
            assert loaded(channel.snapshot(), tmp_path).databases[0].find(b"a") >= 0
            assert channel.ended()


@pytest.mark.parametrize("options", [
    ("--repl-rdb-channel", "no"), ("--repl-diskless-sync", "no"), ("--compat", "7.0"), ("--compat", "valkey"),
])  # fmt: skip
def test_masters_that_offer_no_second_connection(tmp_path: Path, options: tuple[str, ...]) -> None:
    with ours(tmp_path, *options) as server, FakeReplica(server.port) as replica:
        client = client_of(server.port)
        replica.declare("eof", "psync2", "rdb-channel-repl")
        assert replica.psync().startswith(b"+FULLRESYNC")
        if options[0] == "--compat":
            assert client.execute_command("CONFIG", "GET", "*rdb-channel", "*full-sync-buffer-limit") == []
            with pytest.raises(redis.ResponseError, match="Unrecognized REPLCONF option"):
                client.execute_command("REPLCONF", "rdb-channel", "1")


def test_a_line_break_shows_that_a_replica_is_there(tmp_path: Path) -> None:
    """A replica that loads for longer than repl-timeout sends line breaks instead of acknowledgements."""
    with ours(tmp_path, "--repl-timeout", "1", "--rdb-key-save-delay", "0") as server:
        client = client_of(server.port)
        main, number = first(server.port)
        with main, second(server.port, number) as channel:
            channel.psync()
            channel.snapshot()
            until(lambda: "state=online" in info(client)["slave0"])
            for _ in range(by_speed(3, 3, 8)):
                until(lambda: ",lag=1," in info(client)["slave0"])
                main.socket.sendall(b"\n")
                until(lambda: ",lag=0," in info(client)["slave0"])
                if stats(client, "total_connections_received") < 0:
                    break
            assert info(client)["connected_slaves"] == "1"


@pytest.mark.peer("newest")
@pytest.mark.long
def test_a_replica_without_the_setting(tmp_path: Path) -> None:
    with genuine(tmp_path / "m") as judge:
        master = judge.client()
        fill(master)
        with replica_of(judge.port, tmp_path, "--repl-rdb-channel", "no") as server:
            same(master, client_of(server.port))
            assert logged(tmp_path, STARTED) == 0


def test_the_time_without_a_master(tmp_path: Path) -> None:
    """total_disconnect_time_sec grows until the stream is followed again, also while the server is a master."""
    with ours(tmp_path / "m") as server, replica_of(server.port, tmp_path / "r") as other:
        master, replica = client_of(server.port), client_of(other.port)
        await_equal(master, replica)
        assert info(replica)["total_disconnect_time_sec"] == "0"
        replica.execute_command("REPLICAOF", "NO", "ONE")
        began = int(replica.execute_command("TIME")[0])
        until(lambda: int(replica.execute_command("TIME")[0]) >= began + 2)
        replica.execute_command("REPLICAOF", "127.0.0.1", server.port)
        await_equal(master, replica)
        assert int(info(replica)["total_disconnect_time_sec"]) >= 1


def test_steps_at_which_a_process_stops(tmp_path: Path) -> None:
    """DEBUG REPL-PAUSE after-fork and before-rdb-channel stop the master and the replica; a wrong step is an error."""
    with ours(tmp_path / "m") as server, ours(tmp_path / "r") as other:
        master, replica = client_of(server.port), client_of(other.port)
        with pytest.raises(redis.ResponseError, match="(?i)unknown subcommand"):
            master.execute_command("DEBUG", "REPL-PAUSE", "nowhere")
        master.execute_command("DEBUG", "REPL-PAUSE", "after-fork")
        replica.execute_command("DEBUG", "REPL-PAUSE", "before-rdb-channel")
        replica.execute_command("REPLICAOF", "127.0.0.1", server.port)
        for process in (other.process, server.process):
            until(lambda process=process: stopped(process.pid))  # type: ignore[misc]
            os.kill(process.pid, signal.SIGCONT)
        same(master, replica)
