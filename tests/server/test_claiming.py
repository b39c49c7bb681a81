"""XREADGROUP with BLOCK and CLAIM on a socket: a claimable entry wakes a client, and the claim is logged."""

from __future__ import annotations

from pathlib import Path

from tests.server.harness import Client, Running, running

CLAIM = "XREADGROUP GROUP g {} BLOCK {} CLAIM {} STREAMS s >"


def _two_pending(client: Client) -> None:
    assert client.call("XGROUP CREATE s g 0 MKSTREAM") == b"+OK\r\n"
    for number in (1, 2):
        client.call(f"XADD s {number}-1 f v")
    client.call("XREADGROUP GROUP g a STREAMS s >")


def test_a_client_is_served_when_an_entry_becomes_claimable(client: Client) -> None:
    """The reply arrives when the first entry is claimable, before the time-out."""
    _two_pending(client)
    client.send(CLAIM.format("c", 20_000, 150), "XPENDING s g", "PING")
    reply = client.reply()
    assert b"$3\r\n1-1\r\n" in reply
    assert b"$3\r\n2-1\r\n" in reply
    assert b"$1\r\nc\r\n$1\r\n2\r\n" in client.reply()
    assert client.reply() == b"+PONG\r\n"


def test_an_acknowledged_entry_is_skipped(server: Running, client: Client) -> None:
    """The client is served when the next entry becomes claimable."""
    _two_pending(client)
    with server.client() as waiting:
        waiting.wait_in(CLAIM.format("c", 20_000, 300))
        client.call("XACK s g 1-1")
        client.call("XCLAIM s g a 0 2-1 JUSTID")
        reply = waiting.reply()
        assert b"2-1" in reply
        assert b"1-1" not in reply


def test_the_timeout_fires_before_a_later_claim(client: Client) -> None:
    """An entry that becomes claimable after the time-out does not delay it."""
    _two_pending(client)
    client.send(CLAIM.format("c", 30, 3_600_000), "PING")
    assert [client.reply(), client.reply()] == [b"*-1\r\n", b"+PONG\r\n"]


def test_a_released_entry_wakes_the_first_claiming_client(server: Running, client: Client) -> None:
    """Clients that wait only for new entries stay blocked."""
    _two_pending(client)
    with server.client() as new, server.client() as first, server.client() as second:
        new.wait_in("XREADGROUP GROUP g n BLOCK 0 STREAMS s >")
        first.wait_in(CLAIM.format("c1", 0, 3_600_000))
        second.wait_in(CLAIM.format("c2", 0, 3_600_000))
        assert client.call("XNACK s g FAIL IDS 1 2-1") == b":1\r\n"
        assert b"2-1" in first.reply()
        assert client.call("XNACK s g FAIL IDS 1 1-1") == b":1\r\n"
        assert b"1-1" in second.reply()
        assert client.call("XADD s 3-1 f v") == b"$3\r\n3-1\r\n"
        assert b"3-1" in new.reply()


def test_a_disconnected_client_is_not_served(server: Running, client: Client) -> None:
    """An entry that a disconnected client waited for stays pending with its owner."""
    _two_pending(client)
    gone = server.client()
    gone.wait_in(CLAIM.format("gone", 0, 200))
    gone.close()
    while client.info("blocked_clients") != "0":
        pass
    client.send(CLAIM.format("c", 0, 250))
    assert b"1-1" in client.reply()
    assert b"gone" not in client.call("XPENDING s g")


def test_a_claim_is_postponed_by_client_pause(server: Running, client: Client) -> None:
    """An entry that becomes claimable during the pause is claimed after it, as in Redis."""
    _two_pending(client)
    with server.client() as waiting:
        waiting.wait_in(CLAIM.format("c", 0, 150))
        assert client.call("CLIENT PAUSE 60000 WRITE") == b"+OK\r\n"
        client.send("XREAD BLOCK 400 STREAMS s $")
        assert client.reply() == b"*-1\r\n"
        assert b"$1\r\na\r\n$1\r\n2\r\n" in client.call("XPENDING s g")
        assert client.call("CLIENT UNPAUSE") == b"+OK\r\n"
        assert b"1-1" in waiting.reply()


def test_a_claim_after_a_timeout_is_durable(tmp_path: Path) -> None:
    """The log of a killed server contains the claim."""
    with running(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        with server.client() as client:
            _two_pending(client)
            client.send(CLAIM.format("c", 0, 100))
            assert b"1-1" in client.reply()
            assert client.call("XNACK s g FATAL IDS 1 1-1") == b":1\r\n"
        server.process.kill()
        server.process.wait()
    with running(tmp_path, "--appendonly", "yes") as server, server.client() as client:
        assert b"$1\r\nc\r\n$1\r\n1\r\n" in client.call("XPENDING s g")
        assert client.call("XPENDING s g 1-1 1-1 1").endswith(b"$0\r\n\r\n:-1\r\n:9223372036854775807\r\n")
