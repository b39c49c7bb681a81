"""SLOWLOG, COMMANDLOG, LATENCY and HOTKEYS: what the engine measures."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from rillet.keyspace.clock import ManualClock
from rillet.protocol.command_parser import CommandParser
from rillet.runtime.engine import Engine
from rillet.runtime.latency_histogram import LatencyHistogram
from rillet.runtime.settings.settings import Settings
from tests.commands.ends import NOW, Bench, CreepingClock
from tests.differential.wire import Local, pack, read


@pytest.fixture
def bench() -> Bench:
    return Bench(slowlog_log_slower_than=100_000)


def words(bench: Bench, *command: str) -> list[Any]:
    return [entry[3] for entry in bench(*(command or ("SLOWLOG", "GET", "-1")))]


# -- the slow log -------------------------------------------------------------------------------------


def test_only_slow_commands_are_logged_newest_first(bench: Bench) -> None:
    bench("CLIENT", "SETNAME", "me")
    bench("PING")
    bench("DEBUG", "SLEEP", "0.2")
    bench("DEBUG", "SLEEP", "0.3")
    first, second = bench("SLOWLOG", "GET")
    assert first == [1, NOW // 1000, 300_000, [b"DEBUG", b"SLEEP", b"0.3"], b"?:0", b"me"]
    assert second[:3] == [0, NOW // 1000, 200_000]
    assert bench("SLOWLOG", "LEN") == 2
    assert bench("SLOWLOG", "RESET") == b"OK"
    bench("DEBUG", "SLEEP", "0.2")
    assert [entry[0] for entry in bench("SLOWLOG", "GET")] == [2]


def test_the_log_has_a_limit_and_can_be_turned_off(bench: Bench) -> None:
    bench("CONFIG", "SET", "slowlog-log-slower-than", 0, "slowlog-max-len", 3)
    for _ in range(5):
        bench("PING")
    assert bench("SLOWLOG", "LEN") == 3
    assert len(bench("SLOWLOG", "GET", 2)) == 2
    bench("CONFIG", "SET", "slowlog-log-slower-than", -1)
    bench("SLOWLOG", "RESET")
    bench("DEBUG", "SLEEP", 1)
    assert bench("SLOWLOG", "LEN") == 0
    bench("CONFIG", "SET", "slowlog-log-slower-than", 0, "slowlog-max-len", 0)
    bench("PING")
    assert bench("SLOWLOG", "LEN") == 0


def test_long_commands_are_cut(bench: Bench) -> None:
    bench("CONFIG", "SET", "slowlog-log-slower-than", 0)
    bench("SADD", "set", *range(3, 34))
    bench("SET", "k", "A" * 129)
    long, many = words(bench)[:2]
    assert (many[-2:], len(many)) == ([b"31", b"... (2 more arguments)"], 32)
    assert long == [b"SET", b"k", b"A" * 128 + b"... (1 more bytes)"]


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("AUTH secret", "AUTH (redacted)"),
        ("AUTH user secret", "AUTH (redacted) (redacted)"),
        ("HELLO 2 SETNAME x AUTH default secret", "HELLO 2 SETNAME x AUTH (redacted) (redacted)"),
        ("CONFIG SET requirepass secret hz 10", "CONFIG SET requirepass (redacted) hz 10"),
        ("MIGRATE h 1 k 0 1 COPY AUTH secret KEYS auth x", "MIGRATE h 1 k 0 1 COPY AUTH (redacted) KEYS auth x"),
        ("MIGRATE h 1 k 0 1 AUTH2 user secret", "MIGRATE h 1 k 0 1 AUTH2 (redacted) (redacted)"),
    ],
)
def test_secrets_are_not_shown(bench: Bench, command: str, shown: str) -> None:
    bench("CONFIG", "SET", "slowlog-log-slower-than", 0)
    bench("SLOWLOG", "RESET")
    bench(*command.split())
    assert words(bench)[0] == [word.encode() for word in shown.split()]


def test_exec_is_left_out_and_its_commands_are_logged(bench: Bench) -> None:
    bench("MULTI")
    bench("DEBUG", "SLEEP", "0.2")
    bench("PING")
    bench("EXEC")
    assert words(bench) == [[b"DEBUG", b"SLEEP", b"0.2"]]


def test_a_blocked_command_is_logged_when_it_ends(bench: Bench) -> None:
    bench("CONFIG", "SET", "slowlog-log-slower-than", 0)
    other = bench.beside()
    bench("SLOWLOG", "RESET")
    assert not bench.engine.execute(other.session, [b"BLPOP", b"l", b"0"])
    assert [b"BLPOP", b"l", b"0"] not in words(bench)
    bench("LPUSH", "l", "x")
    assert [b"BLPOP", b"l", b"0"] in words(bench)
    calls = read(bench.run([b"INFO", b"commandstats"])).decode()
    assert "cmdstat_blpop:calls=1," in calls


@pytest.mark.parametrize("transaction", [False, True])
def test_each_command_of_a_pipeline_is_logged_as_it_was_sent(bench: Bench, transaction: bool) -> None:
    """Also one whose effect is logged in another form; the oldest entries are dropped, the numbers continue."""
    bench("CONFIG", "SET", "slowlog-log-slower-than", 0, "slowlog-max-len", 7)
    sent = [[b"XADD", b"s", b"*", b"f", b"%d" % n] for n in range(4)] + [[b"EXPIRE", b"s", b"9"], [b"GET", b"a"]]
    parser = CommandParser()
    parser.feed(b"".join(map(pack, [[b"MULTI"], *sent, [b"EXEC"]] if transaction else sent)))
    bench.engine.drain(bench.session, parser, 1 << 20)
    bench.session.out.take_bytes()
    first, *entries = bench("SLOWLOG", "GET", -1)[::-1]
    assert first[3][0] == (b"MULTI" if transaction else b"CONFIG")
    assert [entry[3] for entry in entries] == sent
    assert [entry[0] for entry in entries] == list(range(first[0] + 1, first[0] + 7))
    assert b"cmdstat_xadd:calls=4," in read(bench.run([b"INFO", b"commandstats"]))
    bench("CONFIG", "SET", "slowlog-max-len", 2)
    assert [entry[3][0] for entry in bench("SLOWLOG", "GET", -1)] == [b"CONFIG", b"INFO"]


def test_the_newest_server_counts_slow_commands() -> None:
    bench = Bench(compat="newest", slowlog_log_slower_than=100_000)
    bench("DEBUG", "SLEEP", "0.2")
    bench("DEBUG", "SLEEP", "0.3")
    bench("SLOWLOG", "RESET")
    text = bench("INFO", "everything").decode()
    assert "slowlog_commands_count:2\r\nslowlog_commands_time_ms_max:300.00" in text
    assert "slowlog_commands_time_ms_sum:500.00" in text
    assert ",slowlog_count=2,slowlog_time_ms_sum=500.00,slowlog_time_ms_max=300.00" in text
    bench("CONFIG", "RESETSTAT")
    assert "slowlog_commands_count:0" in bench("INFO").decode()
    bench("CONFIG", "SET", "slowlog-entry-max-argc", 2, "slowlog-entry-max-string-len", 4, "slowlog-log-slower-than", 0)
    bench("SADD", "set-with-long-name", "a", "b")
    assert words(bench)[0] == [b"SADD", b"... (3 more arguments)"]


class SlowStep(ManualClock):
    """A clock that jumps by 20 ms at one of its readings."""

    def __init__(self, at: int) -> None:
        super().__init__(NOW)
        self.left = at

    def ticks(self) -> int:
        self.left -= 1
        if self.left == 0:
            self.advance(20)
        return super().ticks()


def test_a_slow_call_among_consecutive_ones_is_logged() -> None:
    """The time of a chunk of calls is that of its longest one."""
    found: list[list[bytes]] = []
    for reading in range(2, 9):
        clock = SlowStep(0)
        engine = Engine(Settings(compat="7.0"), clock)
        client = Local(engine, door=True)
        clock.left = reading
        assert client.parser is not None
        client.parser.feed(b"".join(pack([b"SET", b"k%d" % n, b"v" * (50 if n == 77 else 5)]) for n in range(200)))
        while engine.drain(client.session, client.parser, 1 << 30):
            pass
        logged = [read(entry.words) for entry in engine.command_log.logs["slow"].entries]
        assert len(logged) <= 1
        assert all(argv[0] == b"SET" for argv in logged)
        assert engine.stats.of_command(client.session.command).calls == 200
        found += logged
    assert found


def test_valkey_logs_large_requests_and_replies() -> None:
    bench = Bench(compat="valkey", commandlog_request_larger_than=90, commandlog_reply_larger_than=50)
    bench("SET", "k", "v" * 80)
    bench("GET", "k")
    assert words(bench, "COMMANDLOG", "GET", "-1", "large-request") == [[b"SET", b"k", b"v" * 80]]
    assert bench("COMMANDLOG", "GET", 10, "large-reply")[1][2:4] == [87, [b"GET", b"k"]]
    assert (bench("COMMANDLOG", "LEN", "large-reply"), bench("COMMANDLOG", "LEN", "slow")) == (3, 0)
    assert bench("COMMANDLOG", "RESET", "large-reply") == b"OK"
    assert bench("COMMANDLOG", "LEN", "large-reply") == 0
    assert bench("COMMANDLOG", "LEN", "other") == (
        "ERR type should be one of the following: slow, large-request, large-reply"
    )


@pytest.mark.parametrize(("compat", "address"), [("valkey", b"192.0.2.7:4711"), ("newest", b"?:0")])
def test_valkey_logs_the_caller_of_a_script(compat: str, address: bytes) -> None:
    bench = Bench(compat=compat, slowlog_log_slower_than=0)
    bench.session.transport = SimpleNamespace(peer="192.0.2.7:4711", local="192.0.2.1:6379")
    bench("EVAL", "return redis.call('PING')", 0)
    logged = {entry[3][0].upper(): entry[4] for entry in bench("SLOWLOG", "GET", 10)}
    assert logged == {b"PING": address, b"EVAL": b"192.0.2.7:4711"}


# -- latency ------------------------------------------------------------------------------------------


def test_events_are_recorded_and_forgotten(bench: Bench) -> None:
    bench("DEBUG", "SLEEP", 1)
    assert bench("LATENCY", "LATEST") == []
    bench("CONFIG", "SET", "latency-monitor-threshold", 100)
    second = bench.clock.now_ms() // 1000
    bench("DEBUG", "SLEEP", "0.3")
    bench("DEBUG", "SLEEP", "0.2")
    bench.clock.advance(5000)
    bench("DEBUG", "SLEEP", "0.2")
    assert bench("LATENCY", "HISTORY", "command") == [[second, 300], [second + 5, 200]]
    assert bench("LATENCY", "LATEST") == [[b"command", second + 5, 200, 300]]
    graph = bench("LATENCY", "GRAPH", "command").decode().splitlines()
    assert graph[:3] == ["command - high 300 ms, low 200 ms (all time high 300 ms)", "-" * 80, "# "]
    assert "1. command: 2 times" in bench("LATENCY", "DOCTOR").decode()
    assert bench("LATENCY", "GRAPH", "fork") == "ERR No samples available for event 'fork'"
    assert (bench("LATENCY", "RESET", "fork", "COMMAND"), bench("LATENCY", "LATEST")) == (1, [])


@pytest.mark.parametrize(("compat", "eviction"), [
    ("7.0", b"eviction-del"), ("8.6", b"evict-del"), ("newest", b"evict-del"), ("valkey", b"eviction-del"),
])  # fmt: skip
def test_deletions_of_expired_and_evicted_keys_are_measured(compat: str, eviction: bytes) -> None:
    """The names are those of the servers: db.c, deleteKeyAndPropagate; evict.c, performEvictions."""
    clock = CreepingClock(NOW)
    engine = Engine(Settings(compat=compat, latency_monitor_threshold=1), clock)
    client = Local(engine)

    def events() -> set[bytes]:
        engine_events = set(engine.latency.events) - {b"command", b"fast-command"}
        engine.latency.reset([])
        return engine_events

    client.run([b"SET", b"k", b"v", b"PX", b"1"])
    assert events() == set()
    clock.advance(10)
    client.run([b"GET", b"k"])
    assert events() == {b"expire-del"}
    client.run([b"SET", b"k", b"v", b"PX", b"1"])
    clock.advance(10)
    engine.expire_cycle()
    assert (events(), len(engine.databases[0])) == ({b"expire-cycle", b"expire-del"}, 0)
    client.run([b"SET", b"k", b"v" * 5000])
    client.run([b"CONFIG", b"SET", b"maxmemory-policy", b"allkeys-lru", b"maxmemory", b"1000"])
    client.run([b"GET", b"k"])
    assert events() == {b"eviction-cycle", eviction}
    client.run([b"CONFIG", b"SET", b"latency-monitor-threshold", b"0", b"maxmemory", b"0"])
    events()
    client.run([b"SET", b"k", b"v", b"PX", b"1"])
    clock.advance(10)
    engine.expire_cycle()
    assert (events(), len(engine.databases[0])) == (set(), 0)


def test_histograms_count_the_calls_of_each_command(bench: Bench) -> None:
    bench("CONFIG", "RESETSTAT")
    bench("SET", "a", 1)
    bench("SET", "b", 1)
    bench("CLIENT", "ID")
    facts = bench("LATENCY", "HISTOGRAM")
    assert dict(zip(facts[::2], facts[1::2], strict=True)) == {
        b"config|resetstat": [b"calls", 1, b"histogram_usec", [1, 1]],
        b"set": [b"calls", 2, b"histogram_usec", [1, 2]], b"client|id": [b"calls", 1, b"histogram_usec", [1, 1]],
    }  # fmt: skip
    assert bench("LATENCY", "HISTOGRAM", "nosuch", "client")[0] == b"client|id"
    assert "latency_percentiles_usec_set:p50=0.001,p99=0.001,p99.9=0.001" in bench("INFO", "latencystats").decode()
    bench("CONFIG", "SET", "latency-tracking-info-percentiles", "0 50.5 100")
    assert "usec_set:p0=0.001,p50.5=0.001,p100=0.001" in bench("INFO", "latencystats").decode()
    bench("CONFIG", "SET", "latency-tracking", "no")
    assert bench("INFO", "latencystats") == b"# Latencystats\r\n"


def test_percentiles_are_within_one_percent() -> None:
    rng = random.Random(1)
    times = sorted(int(rng.paretovariate(1) * 300) for _ in range(5000))
    histogram = LatencyHistogram()
    for time in times:
        histogram.record(time, 1)
    for percent in (0, 1, 50, 90, 99, 99.9, 100):
        exact = min(times[max(int(percent / 100 * 5000 + 0.5) - 1, 0)], 10**9)
        assert abs(histogram.percentile(percent) - exact) <= max(exact // 100, 1)
    lines = histogram.doubling()
    assert [line[0] for line in lines[:7]] == [1, 2, 4, 8, 16, 33, 66]
    for microseconds, calls in lines[:7]:
        assert abs(calls - sum(time <= microseconds * 1000 for time in times)) <= 60
    assert lines[-1][1] == histogram.total == 5000


def test_a_duration_is_counted_once_in_the_line_that_reaches_it() -> None:
    for time in (1, 255, 256, 1023, 1024, 1500, 2047, 2048, 10**9, 5 * 10**9):
        histogram = LatencyHistogram()
        histogram.record(time, 3)
        assert [calls for _, calls in histogram.doubling()] == [3]
        assert sum(count for _, count in histogram.rows()) == 3


# -- hot keys -----------------------------------------------------------------------------------------


def test_hot_keys_are_counted_by_time_and_traffic() -> None:
    bench = Bench(compat="newest")
    assert bench.run([b"HOTKEYS", b"GET"]) == b"$-1\r\n"
    assert bench("HOTKEYS", "START", "METRICS", 2, "CPU", "NET", "COUNT", 2) == b"OK"
    bench("SET", "big", "v" * 1000)
    bench("MGET", "small", "big")
    bench("PING")
    assert bench("HOTKEYS", "RESET").startswith("ERR hotkey tracking session in progress")
    assert bench("HOTKEYS", "STOP") == b"OK"
    bench("GET", "big")
    facts = bench("HOTKEYS", "GET")[0]
    reply = dict(zip(facts[::2], facts[1::2], strict=True))
    assert (reply[b"tracking-active"], reply[b"selected-slots"]) == (0, [[0, 16383]])
    assert reply[b"by-net-bytes"][::2] == [b"big", b"small"]
    assert reply[b"total-net-bytes"] <= reply[b"net-bytes-all-commands-all-slots"]
    assert bench("HOTKEYS", "RESET") == b"OK"
    assert bench.run([b"HOTKEYS", b"GET"]) == b"$-1\r\n"


def test_a_session_of_hot_keys_ends_after_its_duration() -> None:
    bench = Bench(compat="newest")
    bench("HOTKEYS", "START", "METRICS", 1, "NET", "DURATION", 2)
    bench.clock.advance(2000)
    bench("SET", "k", "v")
    facts = bench("HOTKEYS", "GET")[0]
    reply = dict(zip(facts[::2], facts[1::2], strict=True))
    assert (reply[b"tracking-active"], reply[b"collection-duration-ms"], reply[b"by-net-bytes"]) == (0, 2000, [])
