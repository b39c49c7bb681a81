"""What a replica receives from a master: snapshots, the stream, and the answers to PSYNC."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import rillet
from tests.judge import running_redis
from tests.replication.fake_replica import FakeReplica, loaded, words_of
from tests.replication.nodes import until
from tests.server.harness import Client, Running, connected, running

AT_ONCE = ("--repl-diskless-sync-delay", "0", "--save", "", "--enable-debug-command", "yes")
_TIME = re.compile(rb"1\d{12}")
Start = Callable[..., tuple[Running, Client]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a master with arguments, and return it with a client."""
    with ExitStack() as stack:

        def begin(*arguments: str) -> tuple[Running, Client]:
            server = stack.enter_context(running(tmp_path, "--compat", "7.0", *AT_ONCE, *arguments))
            return server, stack.enter_context(server.client())

        yield begin


def info(client: Client, section: str) -> dict[str, str]:
    """Return the fields of a section of INFO."""
    text = client.call(f"INFO {section}").decode()
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


@pytest.mark.parametrize("diskless", ["yes", "no"])
def test_a_snapshot_and_the_stream_behind_it(start: Start, tmp_path: Path, diskless: str) -> None:
    server, client = start("--repl-diskless-sync", diskless)
    for number in range(200):
        client.call(f"SET key:{number} {number}")
    client.call("XADD s 1-1 a 1")
    with FakeReplica(server.port) as replica:
        data = replica.follow()
        engine = loaded(data, tmp_path)
        assert len(engine.databases[0]) == 201
        assert data.count(b"repl-id") == data.count(b"repl-offset") == data.count(b"repl-stream-db") == 1
        assert replica.id.encode() in data
        client.call("SET a 1")
        client.send("SELECT 3", "MULTI", "INCR n", "LPUSH l x", "EXEC")
        for _ in range(5):
            client.reply()
        assert replica.commands(6) == [b"SELECT 0", b"SET a 1", b"SELECT 3", b"MULTI", b"INCR n", b"LPUSH l x"]
        assert replica.commands(1) == [b"EXEC"]
        assert info(client, "replication")["master_repl_offset"] == str(replica.offset)
        assert info(client, "replication")["master_replid"] == replica.id
        assert b" flags=S " in client.call("CLIENT LIST TYPE replica")
        stats = info(client, "stats")
        assert (stats["sync_full"], stats["sync_partial_ok"]) == ("1", "0")


def test_the_stream_is_that_of_redis(start: Start) -> None:
    commands = (
        "SET a 1", "GET a", "SETEX b 100000 x", "PUBLISH channel message", "MULTI", "PUBLISH c m", "SET m 1", "EXEC",
        "MULTI", "SET single 1", "EXEC", "MULTI", "PUBLISH c n", "PUBLISH c o", "EXEC", "SELECT 5", "XADD s 5-1 f v",
        "XADD s MAXLEN ~ 1 6-1 f v", "XGROUP CREATE s g 0", "XREADGROUP GROUP g c COUNT 1 STREAMS s >", "SPOP set",
        "SADD set a b", "SPOP set 2", "INCRBYFLOAT f 1.5", "EXPIRE a 100000", "SWAPDB 0 1", "EVAL "
        "redis.call('set','k','1')redis.set_repl(redis.REPL_AOF)redis.call('set','l','1')redis.set_repl"
        "(redis.REPL_REPLICA)redis.call('set','n','1') 0", "FLUSHDB", "FLUSHALL", "LPUSH l a b", "LMPOP 1 l LEFT",
        "BLMPOP 0.01 1 l RIGHT", "HSET h f v", "HINCRBYFLOAT h f2 2", "GETEX b PERSIST", "SET end 1",
    )  # fmt: skip
    received: list[list[list[bytes]]] = []
    with ExitStack() as stack:
        judge = stack.enter_context(running_redis("--repl-diskless-sync-delay", "0"))
        ours = start("--appendonly", "yes", "--aof-timestamp-enabled", "yes")[0]
        for port in (judge.port, ours.port):
            client, replica = stack.enter_context(connected(port)), stack.enter_context(FakeReplica(port))
            replica.follow()
            for command in commands:
                client.call(command)
            raw = b""
            while b"$3\r\nend\r\n$1\r\n1\r\n" not in raw:
                raw += replica.stream(1)
            received.append([argv for argv in words_of(raw) if argv != [b"PING"]])
    ours_and_theirs = [[[word for word in argv if not _TIME.fullmatch(word)] for argv in one] for one in received]
    assert ours_and_theirs[1] == ours_and_theirs[0]


def test_answers_to_psync_are_those_of_redis(start: Start) -> None:
    answers: list[list[str]] = []
    with ExitStack() as stack:
        judge = stack.enter_context(running_redis("--repl-diskless-sync-delay", "0"))
        for port in (judge.port, start()[0].port):
            client, first = stack.enter_context(connected(port)), stack.enter_context(FakeReplica(port))
            first.follow()
            for number in range(50):
                client.call(f"SET k {number:03}")
            first.commands(51)
            end = first.offset
            told = []
            for history, offset, capable in (
                (first.id, end + 1, True), (first.id.upper(), 10, True), (first.id, 1, False),
                (first.id, end + 2, True), (first.id, 0, True),
                ("f" * 40, 1, True), ("0" * 40, 1, True), ("?", -1, True), (first.id, 5, True),
            ):  # fmt: skip
                with FakeReplica(port) as replica:
                    answer = replica.declare("eof", *(("psync2",) if capable else ())).psync(history, offset).decode()
                    told.append(answer.replace(first.id, "ID"))
                    if answer.startswith("+CONTINUE"):
                        left = end - (offset - 1)
                        assert len(replica.stream(left)) == left
            facts = info(client, "stats")
            told += [facts["sync_full"], facts["sync_partial_ok"], facts["sync_partial_err"]]
            told += [client.call(f"PSYNC {words}").decode() for words in ("x", "x y", "x 1 FAILOVER")]
            answers.append([line.partition("ID ")[0] if line.startswith("+F") else line for line in told])
    assert answers[1] == answers[0]


def test_a_replica_without_a_link_rejects_replicas_as_redis_does(start: Start) -> None:
    with running_redis("--replicaof", "127.0.0.1 1") as judge, ExitStack() as stack:
        answers = []
        for port in (judge.port, start("--replicaof", "127.0.0.1 1")[0].port):
            client = stack.enter_context(connected(port))
            answers.append([client.call(words) for words in ("PSYNC ? -1", "SYNC", "PSYNC " + "f" * 40 + " 1")])
    assert answers[1] == answers[0]
    assert answers[0][0].startswith(b"-NOMASTERLINK ")


def test_the_stream_waits_for_the_acknowledgement_of_a_snapshot_without_a_file(start: Start) -> None:
    server, client = start()
    with FakeReplica(server.port) as replica:
        replica.declare("eof", "psync2").psync()
        replica.snapshot()
        client.call("SET a 1")
        assert info(client, "replication")["slave0"].startswith("ip=127.0.0.1,port=1,state=online,offset=0,lag=")
        replica.socket.settimeout(0.1)
        with pytest.raises(TimeoutError):
            replica.socket.recv(1)
    with FakeReplica(server.port) as replica:
        replica.follow()
        client.call("SET a 2")
        assert replica.commands(2) == [b"SELECT 0", b"SET a 2"]


@pytest.mark.parametrize("diskless", ["yes", "no"])
def test_replicas_share_a_snapshot_and_miss_no_change(start: Start, tmp_path: Path, diskless: str) -> None:
    server, client = start("--repl-diskless-sync", diskless, "--rdb-key-save-delay", "2000", "--appendonly", "yes",
                           "--repl-diskless-sync-delay", "100", "--repl-diskless-sync-max-replicas", "2")  # fmt: skip
    for number in range(200):
        client.call(f"SET key:{number} {number}")
    with FakeReplica(server.port) as first, FakeReplica(server.port) as second:
        first.declare("eof", "psync2").send("PSYNC", "?", "-1")
        second.declare("eof", "psync2").send("PSYNC", "?", "-1")
        client.call("PING")
        while info(client, "persistence")["rdb_bgsave_in_progress"] == "0":
            pass
        client.call("SET during 1")
        answers = [one.line().split() for one in (first, second)]
        assert answers[0] == answers[1]
        for replica in (first, second):
            engine = loaded(replica.snapshot(), tmp_path)
            assert len(engine.databases[0]) == 200
            replica.offset = int(answers[0][2])
            replica.ack()
            assert replica.commands(2) == [b"SELECT 0", b"SET during 1"]
        assert info(client, "stats")["total_forks"] == "1"


def test_a_command_with_a_reply_disconnects_a_replica(start: Start) -> None:
    server, client = start()
    with FakeReplica(server.port) as replica:
        replica.follow()
        replica.send("GET", "a")
        assert replica.ended()
    assert info(client, "replication")["connected_slaves"] == "0"


def test_wait_counts_the_acknowledgements(start: Start) -> None:
    server, client = start()
    with FakeReplica(server.port) as replica, FakeReplica(server.port) as other:
        replica.follow()
        other.follow()
        client.call("SET a 1")
        assert client.call("WAIT 1 20") == b":0\r\n"
        client.send("SET a 2", "WAIT 1 0", "WAIT 2 1", "WAIT 0 0")
        assert client.reply() == b"+OK\r\n"
        assert replica.commands(5)[-1] == b"REPLCONF GETACK *"
        replica.ack()
        assert [client.reply() for _ in range(3)] == [b":1\r\n", b":1\r\n", b":1\r\n"]
        client.send("MULTI", "SET a 3", "WAIT 1 0", "EXEC")
        assert [client.reply() for _ in range(4)][-1] == b"*2\r\n+OK\r\n:1\r\n"
        client.call("SET a 4")
        client.send("WAIT 1 0")
        replica.close()
        other.commands(8)
        other.ack(1 << 40)
        assert client.reply() == b":1\r\n"


def test_waitaof_counts_the_disks(tmp_path: Path) -> None:
    arguments = ("--compat", "newest", "--appendonly", "yes", "--appendfsync", "always", *AT_ONCE)
    with (running(tmp_path, *arguments) as server, server.client() as client,
          FakeReplica(server.port) as replica):  # fmt: skip
        replica.follow()
        client.call("SET a 1")
        assert client.call("WAITAOF 1 1 20") == b"*2\r\n:1\r\n:0\r\n"
        client.send("WAITAOF 1 1 0")
        replica.ack(1 << 40)
        replica.ack(1 << 40, "FACK", str(1 << 40))
        assert client.reply() == b"*2\r\n:1\r\n:1\r\n"


def test_writes_need_replicas_in_time(start: Start) -> None:
    server, client = start("--min-replicas-to-write", "1")
    error = b"-NOREPLICAS Not enough good replicas to write.\r\n"
    assert client.call("SET a 1") == error
    assert client.call("EVAL redis.call('set','a','1') 0").startswith(b"-NOREPLICAS")
    assert client.call("PING") == b"+PONG\r\n"
    with FakeReplica(server.port) as replica:
        replica.follow()
        assert client.call("SET a 1") == b"+OK\r\n"
        assert info(client, "replication")["min_slaves_good_slaves"] == "1"
        assert client.call("CONFIG SET min-replicas-to-write 2") == b"+OK\r\n"
        assert client.call("SET a 1") == error
        assert client.call("CONFIG SET min-replicas-max-lag 0") == b"+OK\r\n"
        assert client.call("SET a 1") == b"+OK\r\n"
        client.call("CONFIG SET min-replicas-max-lag 10 min-replicas-to-write 1")
        assert client.call("SET a 1") == b"+OK\r\n"
        client.call("CLIENT KILL TYPE replica")
        assert client.call("SET a 1") == error


def test_a_replica_that_does_not_read_is_disconnected(start: Start) -> None:
    server, client = start("--client-output-buffer-limit", "replica 1mb 0 0", "--repl-backlog-size", "16kb")
    with FakeReplica(server.port) as replica:
        replica.follow()
        value = "x" * 500_000
        for _ in range(100):
            client.call(f"SET a {value}")
        assert info(client, "replication")["connected_slaves"] == "0"
        assert int(info(client, "replication")["repl_backlog_histlen"]) < 2_000_000
        assert replica.ended()


def test_a_slow_replica_gets_everything(start: Start) -> None:
    server, client = start("--repl-backlog-size", "16kb")
    with FakeReplica(server.port) as replica:
        replica.follow()
        value = "x" * 500_000
        for number in range(30):
            client.call(f"SET a:{number} {value}")
        assert int(info(client, "replication")["repl_backlog_histlen"]) > 5_000_000
        assert replica.commands(31)[1:] == [f"SET a:{number} {value}".encode() for number in range(30)]
        client.call("SET a 1")
        assert replica.commands(1) == [b"SET a 1"]
        # The bytes are dropped in steps: with each write, and by the cron.
        until(lambda: int(info(client, "replication")["repl_backlog_histlen"]) < 1_100_000, "the backlog is small")


def test_replicas_may_ask_for_a_part_of_the_data(start: Start, tmp_path: Path) -> None:
    server, client = start()
    client.call("SET a 1")
    client.send("FUNCTION LOAD", "PING")
    client.reply()
    client.reply()
    with FakeReplica(server.port) as replica:
        replica.declare("eof", "psync2")
        assert replica.call("REPLCONF", "rdb-only", "1") == b"+OK"
        assert replica.call("REPLCONF", "rdb-filter-only", "functions") == b"+OK"
        answer = replica.call("REPLCONF", "rdb-filter-only", "keys")
        assert answer == b"-ERR Unsupported rdb-filter-only option: keys"
        replica.psync()
        engine = loaded(replica.snapshot(), tmp_path)
        assert len(engine.databases[0]) == 0
        assert replica.ended()
    with FakeReplica(server.port) as replica:
        assert replica.call("REPLCONF", "rdb-filter-only", "functions") == b"+OK"
        assert replica.psync() == b"-ERR Filtered replica requires EOF capability"


def test_the_stream_continues_while_the_log_is_turned_on_and_off(start: Start) -> None:
    server, client = start()
    with FakeReplica(server.port) as replica:
        replica.follow()
        for number, value in enumerate(("yes", "no", "yes", "no")):
            client.call(f"SET before:{number} 1")
            assert client.call(f"CONFIG SET appendonly {value}") == b"+OK\r\n"
            client.call(f"SET after:{number} 1")
        found = [one for one in replica.commands(13) if not one.startswith(b"SELECT")]
        assert found == [f"SET {when}:{number} 1".encode() for number in range(4) for when in ("before", "after")]
        assert info(client, "replication")["master_repl_offset"] == str(replica.offset)


def test_published_messages_are_for_replicas_alone(start: Start, tmp_path: Path) -> None:
    server, client = start("--appendonly", "yes", "--appendfsync", "always")
    with FakeReplica(server.port) as replica:
        replica.follow()
        client.call("PUBLISH channel message")
        client.call("SET a 1")
        assert replica.commands(3) == [b"SELECT 0", b"PUBLISH channel message", b"SET a 1"]
    log = b"".join(path.read_bytes() for path in (tmp_path / "appendonlydir").glob("*.incr.aof"))
    assert b"SET" in log
    assert b"PUBLISH" not in log


def test_an_old_replica_synchronises_without_offsets(start: Start, tmp_path: Path) -> None:
    server, client = start()
    client.call("SET a 1")
    with FakeReplica(server.port) as replica:
        replica.send("SYNC")
        assert len(loaded(replica.snapshot(), tmp_path).databases[0]) == 1
        client.call("SET b 1")
        assert replica.commands(2) == [b"SELECT 0", b"SET b 1"]


@contextmanager
def served(tmp_path: Path, durable: bool) -> Iterator[tuple[rillet.Store, int]]:
    """A store of this process that serves a port."""
    with rillet.open(*((tmp_path / "store",) if durable else ())) as store, store.serve() as socket:
        assert socket.port is not None
        yield store, socket.port


@pytest.mark.parametrize("durable", [False, True])
def test_a_store_feeds_replicas_without_a_fork(tmp_path: Path, durable: bool) -> None:
    with served(tmp_path, durable) as (store, port):
        store.execute("SET", "a", "1")
        with FakeReplica(port) as replica:
            engine = loaded(replica.follow(), tmp_path)
            assert engine.databases[0].lookup(b"a") is not None
            store.execute("SET", "b", "2")
            store.execute("XADD", "s", "1-1", "f", "v")
            assert replica.commands(3) == [b"SELECT 0", b"SET b 2", b"XADD s 1-1 f v"]


def test_the_backlog_survives_its_replicas_until_its_time_is_over(start: Start) -> None:
    server, client = start("--repl-backlog-ttl", "1")
    with FakeReplica(server.port) as replica:
        replica.follow()
        client.call("SET a 1")
        replica.commands(2)
        first = replica.id
    with FakeReplica(server.port) as replica:
        assert replica.declare("eof", "psync2").psync(first, 1).startswith(b"+CONTINUE")
    while info(client, "replication")["repl_backlog_active"] == "1":
        client.call("PING")
    assert info(client, "replication")["master_replid"] != first
    with FakeReplica(server.port) as replica:
        assert replica.declare("eof", "psync2").psync(first, 1).startswith(b"+FULLRESYNC")


def test_replicas_are_pinged(start: Start) -> None:
    server, client = start("--repl-ping-replica-period", "1")
    with FakeReplica(server.port) as replica:
        replica.follow()
        assert replica.commands(2, pings=True) == [b"PING", b"PING"]
        assert client.call("CONFIG SET repl-ping-replica-period 1000") == b"+OK\r\n"
        client.call("SET a 1")
        assert replica.commands(2) == [b"SELECT 0", b"SET a 1"]


@pytest.mark.long
def test_a_silent_replica_is_disconnected(start: Start) -> None:
    server, client = start("--repl-timeout", "1")
    with FakeReplica(server.port) as silent, FakeReplica(server.port) as old:
        silent.follow()
        old.send("SYNC")
        old.snapshot()
        assert silent.ended()
        assert info(client, "replication")["connected_slaves"] == "1"


def test_the_size_of_the_backlog_can_change(start: Start) -> None:
    server, client = start("--repl-backlog-size", "1mb")
    with FakeReplica(server.port) as replica:
        replica.follow()
        for number in range(8):
            client.call(f"SET a:{number} {'x' * 50_000}")
        replica.commands(9)
        assert int(info(client, "replication")["repl_backlog_histlen"]) > 400_000
        client.call("CONFIG SET repl-backlog-size 60kb")
        client.call("SET a 1")
        replica.commands(1)
        assert int(info(client, "replication")["repl_backlog_histlen"]) < 130_000
