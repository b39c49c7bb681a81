"""CLIENT CAPA REDIRECT of Valkey: a replica sends such a client to its master, as a genuine Valkey does."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.judge import required_binary, running_redis
from tests.replication.load import await_equal, info
from tests.replication.test_replica_following import client_of, master_of, replica_of
from tests.server.harness import Client, connected, running
from tests.waiting import until

pytestmark = pytest.mark.peer("valkey")
# Each line is a client of its own; commands that reveal times, addresses or sizes are left out.
LINES = (
    ("SET a 1", "GET a", "PING", "CLIENT CAPA x", "SET a 1", "CLIENT CAPA x REDIRECT", "SET a 1", "GET a", "PING",
     "DBSIZE", "KEYS *", "TYPE a", "WAIT 0 1", "PUBLISH c m", "INCR a b", "SELECT 1", "GET a", "FLUSHALL", "NOTHING",
     "SCRIPT LOAD x y"),
    ("CLIENT CAPA redirect", "READONLY", "GET a", "SET a 1", "XREAD COUNT 1 STREAMS s 0", "READWRITE", "GET a", "RESET",
     "GET a", "READONLY", "GET a"),
    ("CLIENT CAPA redirect", "MULTI", "SET a 1", "EXEC", "MULTI", "PING", "EXEC", "MULTI", "GET a", "PING", "EXEC",
     "READONLY", "MULTI", "GET a", "EXEC", "MULTI", "GET a", "SET a 1", "EXEC", "MULTI", "GET a", "READWRITE", "EXEC"),
    ("CLIENT CAPA redirect", "EVAL return(1) 0", "EVAL_RO return(1) 0", "EVAL #!lua\nreturn(1) 0",
     "EVAL #!lua\tflags=no-writes\nreturn(1) 0", "EVAL return(redis.call('get',KEYS[1])) 1 a",
     "EVAL return(redis.call('set',KEYS[1],1)) 1 a", "READONLY", "EVAL_RO return(1) 0", "EVAL #!lua\nreturn(1) 0"),
    ("CLIENT CAPA redirect", "BLPOP list 1", "XREAD BLOCK 1 STREAMS s $", "SUBSCRIBE c", "GET a"),
)  # fmt: skip
# Pipelines of one command take fast paths.
PIPELINES = ("GET a", "SET a 1", "LRANGE l 0 -1", "HGET h f")


def _split(command: str) -> bytes:
    words = command.encode().split(b" ")
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def _conversation(port: int, commands: tuple[str, ...]) -> list[bytes]:
    """Return the replies, one command after the other; the words are split at blanks, so that scripts keep lines."""
    replies = []
    with connected(port) as client:
        for command in commands:
            client.socket.sendall(_split(command))
            replies.append(client.reply())
    return replies


def _pipeline(port: int, command: str) -> list[bytes]:
    with connected(port) as client:
        client.send("CLIENT CAPA redirect", *[command] * 30)
        return [client.reply() for _ in range(31)]


def test_every_reply_is_valkeys(tmp_path: Path) -> None:
    with (
        master_of("valkey") as judge, replica_of(judge.port, tmp_path, "--compat", "valkey") as server,
        running_redis("--replicaof", f"127.0.0.1 {judge.port}", binary=required_binary("valkey")) as twin,
    ):  # fmt: skip
        master = judge.client()
        master.set("a", "1")
        master.rpush("l", "x")
        master.hset("h", "f", "v")
        for port in (server.port, twin.port):
            await_equal(master, client_of(port))
        for line in LINES:
            ours, theirs = _conversation(server.port, line), _conversation(twin.port, line)
            assert list(zip(line, ours, strict=True)) == list(zip(line, theirs, strict=True))
        for command in PIPELINES:
            ours, theirs = _pipeline(server.port, command), _pipeline(twin.port, command)
            assert ours == theirs
            assert ours[1] == b"-REDIRECT 127.0.0.1:%d\r\n" % judge.port


def _waiting(client: Client, *commands: str) -> Client:
    for command in commands[:-1]:
        assert client.call(command) == b"+OK\r\n"
    client.wait_in(commands[-1])
    return client


def _end(client: Client) -> list[bytes]:
    """Return the lines that a client has received, with b"" if it was disconnected."""
    received = []
    client.socket.settimeout(0.3)
    try:
        while line := client.reply():
            received.append(line)
    except TimeoutError:
        return received
    finally:
        client.close()
    return [*received, b""]


def _when_it_becomes_a_replica(port: int, master: int) -> list[list[bytes]]:
    """Return what blocked clients get when their server begins to follow another one."""
    capable = "CLIENT CAPA redirect"
    clients = [
        _waiting(connected(port), *commands) for commands in (
            (capable, "BLPOP list 0"), (capable, "BZPOPMIN zset 0"), (capable, "XREAD BLOCK 0 STREAMS s 0"),
            ("BLPOP list 0",), (capable, "READONLY", "BLPOP list 0"),
            (capable, "READONLY", "XREAD BLOCK 0 STREAMS s 0"),
            ("READONLY", "XREAD BLOCK 0 STREAMS s 0"), (capable, "WAIT 1 0"),
        )
    ]  # fmt: skip
    transaction = connected(port)
    for command in (capable, "MULTI", "SET a 1"):
        transaction.call(command)
    with connected(port) as control:
        assert control.call(f"REPLICAOF 127.0.0.1 {master}") == b"+OK\r\n"
    transaction.send("EXEC")
    return [_end(client) for client in (transaction, *clients)]


def test_blocked_clients_of_a_new_replica(tmp_path: Path) -> None:
    with (
        master_of("valkey") as judge, running(tmp_path, "--compat", "valkey", "--save", "") as server,
        running_redis(binary=required_binary("valkey")) as twin,
    ):  # fmt: skip
        ours = _when_it_becomes_a_replica(server.port, judge.port)
        assert ours == _when_it_becomes_a_replica(twin.port, judge.port)
        assert ours[1] == [b"-REDIRECT 127.0.0.1:%d\r\n" % judge.port]


def test_commands_wait_while_a_failover_is_in_progress(tmp_path: Path) -> None:
    with (
        running(tmp_path, "--compat", "valkey", "--save", "", "--repl-diskless-sync-delay", "0") as server,
        running_redis("--replicaof", f"127.0.0.1 {server.port}", binary=required_binary("valkey")) as replica,
    ):  # fmt: skip
        control = client_of(server.port)
        await_equal(control, replica.client())
        blocked = _waiting(connected(server.port), "CLIENT CAPA redirect", "BLPOP list 0")
        replica.process.send_signal(signal.SIGSTOP)
        try:
            control.execute_command("SET", "a", "1")
            control.execute_command("FAILOVER", "TO", "127.0.0.1", replica.port, "FORCE", "TIMEOUT", "20")
            until(lambda: info(control)["master_failover_state"] == "failover-in-progress")
            capable, other = connected(server.port), connected(server.port)
            assert capable.call("CLIENT CAPA redirect") == b"+OK\r\n"
            capable.send("GET a")
            assert other.call("GET a") == b"$1\r\n1\r\n"
            until(lambda: other.info("blocked_clients") == "2")
        finally:
            replica.process.send_signal(signal.SIGCONT)
        for client in (capable, blocked):
            assert client.reply() == b"-REDIRECT 127.0.0.1:%d\r\n" % replica.port
        for client in (capable, blocked, other):
            client.close()
