"""The engine: admission of commands, statistics, events and logging."""

from __future__ import annotations

import pytest

from rillet.keyspace.clock import ManualClock
from rillet.keyspace.database import Database
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.commands.ends import Bench
from tests.differential.wire import Redis
from tests.judge import Judge


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("argv", [
    [b"NOSUCH"], [b"nosuch", b"a" * 100, b"b" * 100, b"c"], [b"N\r\nO", b"\x00\xff"], [b"x" * 300], [b"GET"],
    [b"get", b"a", b"b"], [b"CONFIG"], [b"CONFIG", b"NoSuch"], [b"config", b"get"], [b"COMMAND", b"NOSUCH"],
    [b"XGROUP", b"CREATE"], [b"HELLO", b"x"], [b"XINFO"], [b"DEBUG"], [b"client", b"x" * 200],
])  # fmt: skip
def test_errors_equal_those_of_redis(bench: Bench, judge: Judge, argv: list[bytes]) -> None:
    with Redis(judge.port) as redis:
        assert bench.run(argv) == redis.run(argv)[0]


def test_calls_rejections_and_failures_are_counted(bench: Bench) -> None:
    bench("CONFIG", "RESETSTAT")
    bench("SET", "k", "x")
    bench("INCR", "k")
    bench("INCR")
    facts = bench("INFO", "commandstats").decode()
    assert "cmdstat_incr:calls=1,usec=0,usec_per_call=0.00,rejected_calls=1,failed_calls=1" in facts
    assert bench.engine.stats.errors == {"ERR": 2}


def test_writes_and_ping_are_refused_while_the_log_is_broken(bench: Bench) -> None:
    bench.engine.refusal = "Errors writing to the AOF file: No space left on device"
    for command in (("SET", "k", "v"), ("PING",), ("XADD", "s", "*", "f", "v")):
        assert bench(*command) == "MISCONF Errors writing to the AOF file: No space left on device"
    assert bench("GET", "k") == b"-1"
    assert bench("ECHO", "x") == b"x"
    bench.session.trusted = True
    assert bench("SET", "k", "v") == b"OK"


def test_a_keyspace_event_names_the_database_the_class_and_the_key(bench: Bench) -> None:
    heard: list[tuple[int, bytes, bytes, bytes]] = []

    def hear(database: Database, kind: bytes, event: bytes, key: bytes) -> None:
        heard.append((database.index, kind, event, key))

    bench.engine.notify_events = True
    bench.engine.on_keyspace_event = hear
    for command in (("SET", "k", "v", "PX", 5), ("COPY", "k", "l", "DB", 2), ("RENAME", "k", "m"), ("DEL", "m")):
        bench(*command)
    bench("SELECT", 2)
    bench.clock.advance(6)
    bench("GET", "l")
    assert heard == [
        (0, b"$", b"set", b"k"), (0, b"g", b"expire", b"k"), (2, b"g", b"copy_to", b"l"),
        (0, b"g", b"rename_from", b"k"), (0, b"g", b"rename_to", b"m"), (0, b"g", b"del", b"m"),
        (2, b"x", b"expired", b"l"),
    ]  # fmt: skip


def test_each_logged_command_has_its_database(bench: Bench) -> None:
    bench("SELECT", 3)
    bench("SET", "k", "v")
    assert bench.log.commands == [(3, [b"SET", b"k", b"v"])]


def test_a_trusted_session_is_not_logged_again(bench: Bench) -> None:
    replay = bench.engine.session(trusted=True)
    bench.engine.execute(replay, [b"SET", b"k", b"v"])
    assert bench.log.commands == []


def test_the_expire_cycle_removes_keys_without_a_lookup(bench: Bench) -> None:
    for number in range(30):
        bench("SET", number, "v", "PX", 5)
    bench.log.take()
    bench.clock.advance(6)
    assert bench.engine.expire_cycle() == 30
    assert len(bench.log.take()) == 30
    bench.engine.loading = True
    assert bench.engine.expire_cycle() == 0


def test_engines_share_nothing() -> None:
    one, two = Bench(), Bench()
    one("SET", "k", "v")
    assert two("GET", "k") == b"-1"
    assert one.engine.run_id != Engine().run_id


def test_the_last_command_is_found_again_only_while_it_exists() -> None:
    """The engine remembers the entry of the last name; `compat` and loading change which names exist."""
    engine = Engine(Settings(compat="newest"), ManualClock(1000))
    session = engine.session()
    command = [b"XDELEX", b"s", b"IDS", b"1", b"1-1"]
    for compat, loading, known in [
        ("newest", False, True), ("7.0", False, False), ("7.0", True, True),
        ("7.0", False, False), ("newest", False, True),
    ]:  # fmt: skip
        engine.execute(session, [b"CONFIG", b"SET", b"compat", compat.encode()])
        session.enter("trust")
        engine.loading = loading
        for _ in range(3):
            session.out.take_bytes()
            engine.execute(session, command)
            assert session.out.take_bytes().startswith(b"-ERR unknown command") is not known
        engine.loading = False


def test_commands_are_timed() -> None:
    engine = Engine(Settings(enable_debug_command="yes", compat="7.0"), ManualClock(1000))
    session = engine.session()
    engine.execute(session, [b"CONFIG", b"RESETSTAT"])
    engine.execute(session, [b"DEBUG", b"SLEEP", b"0.25"])
    engine.execute(session, [b"INFO", b"commandstats"])
    assert b"cmdstat_debug:calls=1,usec=250000,usec_per_call=250000.00" in session.out.take_bytes()


@pytest.mark.parametrize("mode", ["SKIP", "OFF"])
def test_a_muted_session_gets_no_reply_after_it_was_blocked(mode: str) -> None:
    bench = Bench()
    waiting = bench.engine.session()
    bench.engine.execute(waiting, [b"CLIENT", b"REPLY", mode.encode()])
    assert not bench.engine.execute(waiting, [b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", b"$"])
    bench("XADD", "s", "1-1", "a", "b")
    assert waiting.blocked is None
    assert waiting.out.take_bytes() == b""
    bench.engine.execute(waiting, [b"PING"])
    assert waiting.out.take_bytes() == (b"+PONG\r\n" if mode == "SKIP" else b"")


def test_an_expired_key_is_logged_while_writes_are_refused() -> None:
    """The log keeps the command until it can be written again."""
    bench = Bench()
    bench("SET", "k", "v", "PX", "100")
    bench.engine.refusal = "Errors writing to the AOF file: No space left on device"
    bench.clock.advance(200)
    assert bench.logged("GET", "k") == [[b"DEL", b"k"]]


def test_the_periodic_rehash_moves_no_key_while_an_iteration_is_under_way(bench: Bench) -> None:
    for number in range(1025):
        bench("SET", number, "v")
    database = bench.engine.databases[0]
    assert database.keys.rehashing
    keys = iter(database.keys)
    found = [next(keys)]
    bench.engine.rehash(1000)
    assert sorted([*found, *keys]) == sorted(b"%d" % number for number in range(1025))
    bench.engine.rehash(1000)
    assert not database.keys.rehashing
    bench.engine.check()


def test_two_sessions_that_write_into_one_buffer_are_detected(bench: Bench) -> None:
    first, second = bench.engine.session(), bench.engine.session()
    bench.engine.check()  # both have no reply yet, and share the empty buffer
    bench.engine.execute(first, [b"PING"])
    second.out = first.out
    with pytest.raises(AssertionError, match="two sessions write into one buffer"):
        bench.engine.check()
