"""Channels between processes: messages arrive immediately and in order, and slow subscribers are disconnected."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from rillet.protocol.command_parser import pack_command
from rillet.runtime.settings.settings import OutputLimit
from tests.server.conftest import skip_without
from tests.server.harness import LOOPS, TIMEOUT, Client, Running, field, running


def subscribe(client: Client, line: str, resp: int = 2) -> None:
    """Send a subscribe command for one name and read its confirmation."""
    if resp == 3:
        client.call("HELLO 3")
    client.call(line)


def message(channel: str, data: str, first: str = "*") -> bytes:
    return f"{first}3\r\n$7\r\nmessage\r\n${len(channel)}\r\n{channel}\r\n${len(data)}\r\n{data}\r\n".encode()


def test_every_subscriber_receives_messages_in_order(server: Running, client: Client) -> None:
    listeners = [server.client() for _ in range(20)]
    for number, one in enumerate(listeners):
        subscribe(one, "SUBSCRIBE news", 2 + number % 2)
    client.send(*(f"PUBLISH news {n}" for n in range(500)))
    assert [client.reply() for _ in range(500)] == [b":20\r\n"] * 500
    for number, one in enumerate(listeners):
        assert [one.reply() for _ in range(500)] == [message("news", str(n), "*>"[number % 2]) for n in range(500)]
        one.close()


def test_the_messages_of_each_publisher_stay_in_order(server: Running, client: Client) -> None:
    with server.client() as other, server.client() as listener:
        subscribe(listener, "PSUBSCRIBE *")
        client.send(*(f"PUBLISH a {n}" for n in range(200)))
        other.send(*(f"PUBLISH b {n}" for n in range(200)))
        replies = [listener.reply() for _ in range(400)]
        for channel in ("a", "b"):
            heard = [reply for reply in replies if f"\r\n{channel}\r\n".encode() in reply]
            assert [int(reply.split(b"\r\n")[-2]) for reply in heard] == list(range(200))


def test_a_client_receives_its_own_messages_after_the_replies(server: Running) -> None:
    with server.client() as one:
        subscribe(one, "SUBSCRIBE a", 3)
        one.send("PUBLISH a x", "PING", "MULTI", "PUBLISH a y", "EXEC")
        assert [one.reply() for _ in range(7)] == [
            b":1\r\n", message("a", "x", ">"), b"+PONG\r\n", b"+OK\r\n", b"+QUEUED\r\n", b"*1\r\n:1\r\n",
            message("a", "y", ">"),
        ]  # fmt: skip


def test_a_blocked_reader_receives_messages(server: Running, client: Client) -> None:
    with server.client() as one:
        subscribe(one, "SUBSCRIBE a", 3)
        one.wait_in("XREAD BLOCK 0 STREAMS s $")
        assert client.call("PUBLISH a x") == b":1\r\n"
        assert one.reply() == message("a", "x", ">")
        client.call("XADD s 1-1 f v")
        assert one.reply().startswith(b"%1\r\n$1\r\ns\r\n")


def test_pubsub_reports_the_subscribers(server: Running, client: Client) -> None:
    with server.client() as one:
        subscribe(one, "SUBSCRIBE a", 3)
        one.call("PSUBSCRIBE b*")
        one.call("SSUBSCRIBE c")
        who = int(one.call("CLIENT ID")[1:])
        assert [field(client, who, name) for name in ("sub", "psub", "ssub", "flags")] == ["1", "1", "1", "P"]
        assert f"id={who} ".encode() in client.call("CLIENT LIST TYPE pubsub")
        for name in ("pubsub_channels", "pubsub_patterns", "pubsubshard_channels", "pubsub_clients"):
            assert client.info(name) == "1"
        assert client.call("PUBSUB SHARDNUMSUB c") == b"*2\r\n$1\r\nc\r\n:1\r\n"
        assert client.call("CLIENT KILL TYPE pubsub") == b":1\r\n"
        assert one.rest() == b""
    assert client.info("pubsub_channels") == "0"
    assert client.call("PUBSUB NUMPAT") == b":0\r\n"


def test_a_disconnected_subscriber_is_removed(server: Running, client: Client) -> None:
    gone = server.client()
    subscribe(gone, "SUBSCRIBE a")
    gone.close()
    with server.client() as one:
        subscribe(one, "SUBSCRIBE a")
        one.send("QUIT")
        assert one.rest() == b"+OK\r\n"
    # The server notices the end of the connection within this number of loop iterations.
    for _ in range(1000):
        if client.call("PUBLISH a x") == b":0\r\n":
            break
    assert client.call("PUBSUB CHANNELS") == b"*0\r\n"


def test_subscribers_are_exempt_from_the_idle_timeout(server: Running, client: Client) -> None:
    with server.client() as one, server.client() as bystander:
        subscribe(one, "SUBSCRIBE a")
        configure(client, "timeout", "1")
        assert bystander.rest() == b""  # disconnected as idle; the subscriber has been idle for longer
        with server.client() as last:
            configure(last, "timeout", "0")
            assert last.call("PUBLISH a x") == b":1\r\n"
        assert one.reply() == message("a", "x")


def test_expired_keys_are_published_without_an_access(server: Running, client: Client) -> None:
    configure(client, "notify-keyspace-events", "Ex")
    with server.client() as one:
        subscribe(one, "SUBSCRIBE __keyevent@0__:expired")
        client.call("SET k v PX 20")
        assert one.reply() == message("__keyevent@0__:expired", "k")
    configure(client, "notify-keyspace-events", "")


@pytest.mark.parametrize("loop", LOOPS)
def test_messages_arrive_with_appendfsync_always(loop: str, tmp_path: Path) -> None:
    skip_without(loop)
    arguments = ("--appendonly", "yes", "--appendfsync", "always", "--notify-keyspace-events", "Kt")
    with running(tmp_path, *arguments, loop=loop) as server, server.client() as one, server.client() as client:
        subscribe(one, "PSUBSCRIBE *")
        client.send("XADD s 1-1 f v", "PUBLISH a x")
        assert client.reply() == b"$3\r\n1-1\r\n"
        assert client.reply() == b":1\r\n"
        assert one.reply().endswith(b"$16\r\n__keyspace@0__:s\r\n$4\r\nxadd\r\n")
        assert one.reply().endswith(b"$1\r\na\r\n$1\r\nx\r\n")


# -- who does not read ----------------------------------------------------------------------------------

MESSAGE = 60_000


def configure(client: Client, name: str, value: str) -> None:
    """Set a setting to any text."""
    client.socket.sendall(pack_command([b"CONFIG", b"SET", name.encode(), value.encode()]))
    assert client.reply() == b"+OK\r\n"


def slow_listener(server: Running) -> tuple[Client, int]:
    """Return a subscriber with a small socket buffer, and its client ID."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(TIMEOUT)
    made.connect(("127.0.0.1", server.port))
    slow = Client(made)
    who = int(slow.call("CLIENT ID")[1:])
    subscribe(slow, "SUBSCRIBE a")
    return slow, who


def fill(client: Client, who: int, size: int) -> int:
    """Publish until the server buffers that many bytes for a client; return the number of messages."""
    count = 0
    while int(field(client, who, "omem")) + int(field(client, who, "obl")) < size:
        assert client.call("PUBLISH a " + "x" * MESSAGE) != b":0\r\n"
        count += 1
    return count


def test_a_slow_subscriber_is_disconnected_at_the_hard_limit(server: Running, client: Client) -> None:
    configure(client, "client-output-buffer-limit", "pubsub 2mb 0 0")
    slow, who = slow_listener(server)
    with slow, server.client() as quick:
        subscribe(quick, "SUBSCRIBE a")
        count = fill(client, who, (2 << 20) - 2 * MESSAGE)
        answers = [client.call("PUBLISH a " + "x" * MESSAGE) for _ in range(4)]
        assert answers[0] == b":2\r\n"
        assert answers[-1] == b":1\r\n"
        assert len(slow.rest()) < count * MESSAGE - (1 << 20)  # the bytes in the kernel's buffer; the rest was dropped
        assert client.call(f"CLIENT LIST ID {who}") == b"$0\r\n\r\n"
        assert quick.reply() == message("a", "x" * MESSAGE)
    configure(client, "client-output-buffer-limit", "pubsub 32mb 8mb 60")


def test_a_slow_subscriber_is_disconnected_some_time_after_the_soft_limit(server: Running, client: Client) -> None:
    configure(client, "client-output-buffer-limit", "pubsub 0 1mb 1")
    slow, who = slow_listener(server)
    with slow:
        fill(client, who, 1 << 20)
        # The kernel still buffers data for the client, so it does not see the disconnect yet.
        until = time.monotonic() + TIMEOUT
        while client.call("PUBSUB NUMSUB a").endswith(b":1\r\n"):
            assert time.monotonic() < until, "the server kept it"
            client.call("XREAD BLOCK 20 STREAMS nothing $")
    configure(client, "client-output-buffer-limit", "pubsub 32mb 8mb 60")


def test_a_subscriber_that_catches_up_receives_everything(server: Running, client: Client) -> None:
    slow, who = slow_listener(server)
    with slow:
        for n in range(2000):
            client.send(f"PUBLISH a {n:05}{'x' * 2000}")
        assert [client.reply() for _ in range(2000)] == [b":1\r\n"] * 2000
        assert int(field(client, who, "omem")) + int(field(client, who, "obl")) > 1 << 20
        for n in range(2000):
            assert slow.reply() == message("a", f"{n:05}{'x' * 2000}")
        assert slow.call("PING") == b"*2\r\n$4\r\npong\r\n$0\r\n\r\n"


def test_a_normal_client_is_disconnected_at_its_limit(server: Running, client: Client) -> None:
    client.call("SET big " + "x" * 300_000)
    with server.client() as one:
        configure(client, "client-output-buffer-limit", "normal 200kb 0 0")
        one.send("GET big")
        assert one.rest() == b""
        with server.client() as other:
            assert other.call("PING") == b"+PONG\r\n"
            configure(other, "client-output-buffer-limit", "normal 0 0 0")
    with server.client() as one:
        assert len(one.call("GET big")) > 300_000


def test_output_limits_are_computed_as_in_redis() -> None:
    limit = OutputLimit(1000_000, 100_000, 10)
    assert limit.reached(16_000, 5, 9_000) == (False, 0)
    assert limit.reached(99_999, 5, 99_000) == (False, 0)
    assert limit.reached(100_000, 0, 5_000) == (False, 5_000)
    assert limit.reached(100_000, 5_000, 15_000) == (False, 5_000)
    assert limit.reached(100_000, 5_000, 15_001) == (True, 5_000)
    assert limit.reached(1000_000, 0, 1) == (True, 1)
    assert OutputLimit().reached(1 << 60, 0, 1) == (False, 0)
