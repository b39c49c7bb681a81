"""Client-side caching at the engine: who receives which message, when, and what the table remembers."""

from __future__ import annotations

import pytest

from tests.commands.ends import Bench
from tests.differential.wire import Local


def push(*keys: str) -> bytes:
    """Return the RESP3 message that invalidates the keys."""
    body = b"".join(b"$%d\r\n%b\r\n" % (len(key), key.encode()) for key in keys)
    return b">2\r\n$10\r\ninvalidate\r\n*%d\r\n%b" % (len(keys), body)


def tracking(bench: Bench, *options: str | int) -> Local:
    """Return a RESP3 session that tracks."""
    client = bench.beside()
    client("HELLO", 3)
    assert client("CLIENT", "TRACKING", "ON", *options) == b"OK"
    return client


def waiting(client: Local) -> bytes:
    """Return what the session received and did not read."""
    received: bytes = client.session.out.take_bytes()
    return received


@pytest.fixture
def bench() -> Bench:
    return Bench(compat="newest")


def test_a_key_that_was_read_is_invalidated_once(bench: Bench) -> None:
    reader = tracking(bench)
    reader("MGET", "a", "b")
    bench("SET", "a", 1)
    bench("SET", "a", 2)
    assert waiting(reader) == push("a")
    bench("SET", "c", 1)
    assert waiting(reader) == b""
    assert bench.engine.tracking.items == 1
    bench.engine.check()


def test_an_expired_an_evicted_and_a_flushed_key_are_invalidated(bench: Bench) -> None:
    reader = tracking(bench)
    bench("SET", "a", 1, "PX", 100)
    reader("GET", "a")
    bench.clock.advance(200)
    bench.engine.expire_all()
    assert waiting(reader) == push("a")
    bench("SET", "b", "x" * 1000)
    reader("GET", "b")
    bench("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
    bench("CONFIG", "SET", "maxmemory", 1)
    bench("GET", "nothing")
    assert waiting(reader) == push("b")
    bench("CONFIG", "SET", "maxmemory", 0)
    reader("GET", "c")
    bench("FLUSHALL")
    assert waiting(reader) == b">2\r\n$10\r\ninvalidate\r\n_\r\n"
    assert not bench.engine.tracking.table


def test_the_cycle_reports_expired_keys(bench: Bench) -> None:
    reader = tracking(bench)
    bench("SET", "a", 1, "PX", 100)
    reader("GET", "a")
    bench.clock.advance(200)
    bench.engine.expire_cycle()
    assert waiting(reader) == push("a")


def test_the_own_message_follows_the_reply_of_the_transaction(bench: Bench) -> None:
    reader = tracking(bench)
    reader("GET", "a")
    for words in (["MULTI"], ["SET", "a", "1"], ["GET", "a"], ["DEL", "a"]):
        reader(*words)
    assert reader.run([b"EXEC"]) == b"*3\r\n+OK\r\n$1\r\n1\r\n:1\r\n" + push("a") + push("a")


def test_the_table_stays_below_its_limit(bench: Bench) -> None:
    reader = tracking(bench)
    bench("CONFIG", "SET", "tracking-table-max-keys", 3)
    reader("MGET", *range(50))
    bench("PING")
    assert len(bench.engine.tracking.table) == 3
    assert waiting(reader).count(b"invalidate") == 47
    bench.engine.check()


def test_a_broadcast_names_the_keys_of_a_round_in_one_message(bench: Bench) -> None:
    reader = tracking(bench, "BCAST", "PREFIX", "a", "PREFIX", "b")
    quiet = tracking(bench, "BCAST", "NOLOOP")
    for key in ("b1", "a2", "c", "a1", "a2"):
        bench("SET", key, 1)
    quiet("SET", "a3", 1)
    assert waiting(reader) == b""
    bench.engine.services.run_jobs()
    assert waiting(reader) == push("a1", "a2", "a3") + push("b1")
    assert waiting(quiet) == push("a1", "a2", "b1", "c")
    bench.engine.close_session(reader.session)
    assert list(bench.engine.tracking.prefixes) == [b""]


def test_the_last_writer_of_a_key_counts_for_noloop(bench: Bench) -> None:
    first, second = tracking(bench, "BCAST", "NOLOOP"), tracking(bench, "BCAST", "NOLOOP")
    for writers in ([first, second, first], [first, second, second, first], [second, first]):
        for writer, command in zip(writers, ("SET a 1", "DEL a", "SET a 1", "SET a 2"), strict=False):
            writer(*command.split())
        bench.engine.services.run_jobs()
        assert waiting(writers[-1]) == b""
        assert waiting(second if writers[-1] is first else first) == push("a")


def test_keys_that_share_a_place_are_all_reported(bench: Bench) -> None:
    reader = tracking(bench, "BCAST")
    keys = sorted(f"{number:03}" for number in range(50))
    for key in (*keys, *reversed(keys), *keys):
        bench("SET", key, 1)
    bench.engine.services.run_jobs()
    assert waiting(reader) == push(*keys)
    bench("SET", keys[0], 1)
    bench.engine.services.run_jobs()
    assert waiting(reader) == push(keys[0])


def test_resp2_receives_messages_of_a_channel_by_redirection(bench: Bench) -> None:
    target, reader = bench.beside(), bench.beside()
    target("SUBSCRIBE", "__redis__:invalidate")
    reader("CLIENT", "TRACKING", "ON", "REDIRECT", target.session.id)
    reader("GET", "a")
    bench("SET", "a", 1)
    assert waiting(target) == b"*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*1\r\n$1\r\na\r\n"
    reader("HELLO", 3)
    bench.engine.close_session(target.session)
    reader("GET", "a")
    bench("SET", "a", 1)
    assert waiting(reader) == b">2\r\n$21\r\ntracking-redir-broken\r\n:%d\r\n" % target.session.id
    assert b"flags=tR " in reader("CLIENT", "INFO")


def test_without_tracking_clients_nothing_is_observed(bench: Bench) -> None:
    assert not bench.engine.observed
    reader = tracking(bench)
    reader("GET", "a")
    assert bench.engine.observed
    reader("CLIENT", "TRACKING", "OFF")
    assert bench.engine.observed  # the table still names the client
    bench.engine.close_session(reader.session)
    assert not bench.engine.observed
    assert all(database.tracking is None for database in bench.engine.databases)


def test_reset_ends_tracking(bench: Bench) -> None:
    reader = tracking(bench, "BCAST")
    reader("RESET")
    assert bench.engine.tracking.clients == 0
    assert not bench.engine.tracking.prefixes
