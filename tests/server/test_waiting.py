"""Blocked clients on sockets: the order of serving, disconnects, CLIENT UNBLOCK, REPLY and PAUSE."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from rillet.protocol.command_parser import pack_command
from tests.judge import PEERS, required_binary, running_redis
from tests.server.harness import Client, Running, connected, running

READ = "XREADGROUP GROUP g {} BLOCK 0 STREAMS s >"


def _group(client: Client) -> None:
    assert client.call("XGROUP CREATE s g $ MKSTREAM") == b"+OK\r\n"


def test_clients_are_served_in_order_of_arrival(server: Running, client: Client) -> None:
    _group(client)
    with ExitStack() as stack:
        waiting = [stack.enter_context(server.client()) for _ in range(5)]
        for number, one in enumerate(waiting):
            one.wait_in(READ.format(f"c{number}"))
        assert client.info("blocked_clients") == "5"
        client.send(*[f"XADD s {number + 1}-1 f {number}" for number in range(5)])
        for number, one in enumerate(waiting):
            assert one.reply().endswith(b"*2\r\n$1\r\nf\r\n$1\r\n%d\r\n" % number)


def test_all_readers_of_a_stream_are_woken(server: Running, client: Client) -> None:
    with server.client() as one, server.client() as two:
        one.wait_in("XREAD BLOCK 0 STREAMS s $")
        two.wait_in("XREAD BLOCK 0 STREAMS s other $ $")
        assert client.call("XADD s 1-1 f v") == b"$3\r\n1-1\r\n"
        assert one.reply() == two.reply() != b""


def test_commands_after_a_blocked_one_run_later(server: Running, client: Client) -> None:
    with server.client() as one:
        one.send("PING", "XREAD BLOCK 0 STREAMS s $", "SET after 1", "XREAD BLOCK 0 STREAMS t $", "GET after")
        assert one.reply() == b"+PONG\r\n"
        one.send("STRLEN after")
        assert client.call("GET after") == b"$-1\r\n"
        assert client.call("XADD s 1-1 f v") == b"$3\r\n1-1\r\n"
        assert b"1-1" in one.reply()
        assert one.reply() == b"+OK\r\n"
        assert client.call("XADD t 2-1 f v") == b"$3\r\n2-1\r\n"
        assert b"2-1" in one.reply()
        assert [one.reply(), one.reply()] == [b"$1\r\n1\r\n", b":1\r\n"]


def test_a_blocked_client_times_out(client: Client) -> None:
    client.send("XREAD BLOCK 20 STREAMS s $", "PING")
    assert [client.reply(), client.reply()] == [b"*-1\r\n", b"+PONG\r\n"]


def test_a_disconnected_blocked_client_consumes_no_entry(server: Running, client: Client) -> None:
    _group(client)
    gone = server.client()
    gone.wait_in(READ.format("gone"))
    gone.close()
    while client.info("blocked_clients") != "0":
        pass
    assert client.call("XADD s 1-1 f v") == b"$3\r\n1-1\r\n"
    assert client.call("XPENDING s g").startswith(b"*4\r\n:0\r\n")
    assert b"1-1" in client.call("XREADGROUP GROUP g here COUNT 1 STREAMS s >")


def test_a_blocked_client_may_send_up_to_the_limit(server: Running, client: Client) -> None:
    assert client.call("CONFIG SET client-query-buffer-limit 1mb") == b"+OK\r\n"
    try:
        with server.client() as one:
            one.wait_in("XREAD BLOCK 0 STREAMS s $")
            with suppress(ConnectionResetError, BrokenPipeError):
                one.socket.sendall(b"x" * (8 << 20))
            assert one.rest() == b""
    finally:
        assert client.call("CONFIG SET client-query-buffer-limit 1gb") == b"+OK\r\n"


def test_client_unblock_ends_the_waiting(server: Running, client: Client) -> None:
    with server.client() as one:
        number = int(one.call("CLIENT ID")[1:])
        one.wait_in("XREAD BLOCK 0 STREAMS s $")
        assert client.call(f"CLIENT UNBLOCK {number}") == b":1\r\n"
        assert one.reply() == b"*-1\r\n"
        one.wait_in("XREAD BLOCK 0 STREAMS s $")
        assert client.call(f"CLIENT UNBLOCK {number} ERROR") == b":1\r\n"
        assert one.reply() == b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"
        assert client.call(f"CLIENT UNBLOCK {number}") == b":0\r\n"
        assert one.call("PING") == b"+PONG\r\n"


def test_client_list_shows_blocked_clients_and_kill_ends_them(server: Running, client: Client) -> None:
    with server.client() as one, server.client() as two:
        number = int(one.call("CLIENT ID")[1:])
        assert one.call("CLIENT SETNAME worker") == b"+OK\r\n"
        one.wait_in("XREAD BLOCK 0 STREAMS s $")
        line = next(line for line in client.call("CLIENT LIST").decode().splitlines() if "name=worker" in line)
        peer = "{}:{}".format(*one.socket.getsockname())
        assert f"id={number} addr={peer} laddr=127.0.0.1:{server.port} " in line
        assert " flags=b db=0 " in line
        assert " cmd=xread " in line
        assert client.call(f"CLIENT KILL ID {number}") == b":1\r\n"
        assert one.rest() == b""
        address = "{}:{}".format(*two.socket.getsockname())
        assert client.call(f"CLIENT KILL {address}") == b"+OK\r\n"
        assert two.rest() == b""
        assert client.call(f"CLIENT KILL {address}") == b"-ERR No such client\r\n"
        own = "{}:{}".format(*client.socket.getsockname())
        client.send(f"CLIENT KILL {own}", "PING")
        assert client.rest() == b"+OK\r\n"


def test_client_reply_off_and_skip_suppress_replies(client: Client) -> None:
    client.send("CLIENT REPLY SKIP", "SET k 1", "GET k")
    client.send("CLIENT REPLY OFF", "SET k 2", "GET k", "CLIENT REPLY ON", "GET k")
    assert [client.reply() for _ in range(3)] == [b"$1\r\n1\r\n", b"+OK\r\n", b"$1\r\n2\r\n"]


def test_client_reply_on_ends_a_skip(client: Client) -> None:
    client.send("CLIENT REPLY SKIP", "CLIENT REPLY ON", "PING")
    assert [client.reply(), client.reply()] == [b"+OK\r\n", b"+PONG\r\n"]


def test_client_pause_write_postpones_writes(server: Running, client: Client) -> None:
    with server.client() as one, server.client() as two:
        assert client.call("CLIENT PAUSE 100000 WRITE") == b"+OK\r\n"
        one.wait_in("INCR n")
        two.send("PING", "MULTI", "INCR n", "EXEC", "INCR n")
        assert [two.reply(), two.reply()] == [b"+PONG\r\n", b"+OK\r\n"]
        assert client.call("GET n") == b"$-1\r\n"
        assert client.info("blocked_clients") == "2"
        assert client.call("CLIENT UNPAUSE") == b"+OK\r\n"
        assert one.reply() == b":1\r\n"
        assert [two.reply() for _ in range(3)] == [b"+QUEUED\r\n", b"*1\r\n:2\r\n", b":3\r\n"]


@pytest.mark.parametrize("compat", PEERS)
def test_a_pause_holds_no_refused_command_back(tmp_path: Path, compat: str) -> None:
    """Errors of the user's rights, of the arity and of missing replicas come at once, as in the server of `compat`."""
    told = []
    with running_redis(binary=required_binary(compat)) as judge, running(tmp_path, "--compat", compat) as ours:
        for port in (judge.port, ours.port):
            with connected(port) as one, connected(port) as other:
                replies = [other.call(line) for line in (
                    "ACL SETUSER alice on nopass +@all -set ~a*", "CONFIG SET min-replicas-to-write 1",
                    "CLIENT PAUSE 100000 WRITE",
                )]  # fmt: skip
                one.send("AUTH alice x", "SET k v", "DEL b", "DEL", "nonsense", "INCR a1", "MULTI", "SET k v", "EXEC")
                replies += [one.reply() for _ in range(9)]
                replies.append(other.call("CONFIG SET min-replicas-to-write 0"))
                one.send("MULTI", "DEL a")
                replies += [one.reply(), other.call("CLIENT UNPAUSE"), one.reply(), one.call("EXEC")]
                told.append(replies)
    assert told[0] == told[1]


_LIBRARY = (b"#!lua name=l\nredis.register_function{function_name='r', flags={'no-writes'},"
            b" callback=function() return 7 end}")  # fmt: skip


def test_a_pause_of_writes_lets_read_only_scripts_run(server: Running, client: Client) -> None:
    """The flags that a script declares decide, not the command that runs it (evalGetCommandFlags)."""
    reads, writes = b"#!lua flags=no-writes\nreturn 7", b"#!lua\nreturn 7"
    with server.client() as one, server.client() as two:

        def ask(*words: bytes) -> bytes:
            two.socket.sendall(pack_command(list(words)))
            return two.reply()

        ask(b"FUNCTION", b"LOAD", _LIBRARY)
        read_sha, write_sha = (ask(b"SCRIPT", b"LOAD", script).split(b"\r\n")[1] for script in (reads, writes))
        assert client.call("CLIENT PAUSE 100000 WRITE") == b"+OK\r\n"
        for words in ((b"EVAL", reads), (b"EVALSHA", read_sha), (b"EVAL_RO", b"return 7"), (b"FCALL", b"r"),
                      (b"FCALL_RO", b"r")):  # fmt: skip
            assert ask(*words, b"0") == b":7\r\n", words
        assert ask(b"MULTI") == b"+OK\r\n"
        assert ask(b"EVAL", reads, b"0") == b"+QUEUED\r\n"
        assert ask(b"EXEC") == b"*1\r\n:7\r\n"
        for words in ((b"EVAL", writes), (b"EVALSHA", write_sha), (b"EVAL", b"return 7")):
            one.socket.sendall(pack_command([b"PING"]) + pack_command([*words, b"0"]))
            assert one.reply() == b"+PONG\r\n"
            assert client.info("blocked_clients") == "1", words
            assert client.call("CLIENT UNPAUSE") == b"+OK\r\n"
            assert one.reply() == b":7\r\n"
            assert client.call("CLIENT PAUSE 100000 WRITE") == b"+OK\r\n"
        assert client.call("CLIENT UNPAUSE") == b"+OK\r\n"


def test_client_pause_all_ends_after_its_time(server: Running, client: Client) -> None:
    with server.client() as one:
        assert client.call("CLIENT PAUSE 50") == b"+OK\r\n"
        one.send("GET k", "INCR n", "INCR n")
        assert [one.reply() for _ in range(3)] == [b"$-1\r\n", b":1\r\n", b":2\r\n"]
