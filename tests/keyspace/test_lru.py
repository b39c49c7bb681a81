"""The LRU and LFU data of keys: which commands record an access, decay, growth, and the clock's wrap."""

from __future__ import annotations

from typing import Any

import pytest

from rillet.keyspace.clock import ManualClock
from rillet.keyspace.lru import LFU, AccessClock, set_child_saves
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.structs.dict import Dict
from tests.differential.wire import Local

pytestmark = pytest.mark.both

NOW = 1_700_000_000_000


class _Timed(Local):
    """An engine whose clock the test moves."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock(NOW)
        super().__init__(Engine(Settings(**{"compat": "7.0", "enable_debug_command": "yes", **settings}), self.clock))

    def idle_after(self, *words: Any, key: str = "k") -> Any:
        """Return OBJECT IDLETIME of a key 100 s after it was used, and a command later."""
        self.clock.advance(100_000)
        self(*words)
        return self("OBJECT", "IDLETIME", key)


READS = ("GET k", "STRLEN k", "TOUCH k", "SET k v", "APPEND k v", "PEXPIRE k 1000000", "PERSIST k", "GETRANGE k 0 1",
         "SETNX k v", "RENAME k k", "DUMP k", "MGET x k", "SET k v NX", "COPY k other REPLACE")  # fmt: skip
NO_READS = ("TTL k", "PTTL k", "EXISTS k", "TYPE k", "OBJECT ENCODING k", "OBJECT FREQ k", "SCAN 0", "KEYS *",
            "DEBUG OBJECT k", "MEMORY USAGE k", "RANDOMKEY", "EXPIRETIME k", "SCAN 0 TYPE string")  # fmt: skip


@pytest.mark.parametrize("line", READS)
def test_a_lookup_records_the_access(line: str) -> None:
    client = _Timed()
    client("SET", "k", "value")
    assert client.idle_after(*line.split()) == 0


@pytest.mark.parametrize("line", NO_READS)
def test_an_inspection_does_not_record_an_access(line: str) -> None:
    client = _Timed()
    client("SET", "k", "value")
    assert client.idle_after(*line.split()) == 100


def test_idle_times_count_seconds() -> None:
    client = _Timed()
    client("SET", "k", "v")
    for seconds in (1, 2, 3):
        client.clock.advance(1000)
        assert client("OBJECT", "IDLETIME", "k") == seconds
    fields = dict(word.split(b":") for word in client("DEBUG", "OBJECT", "k").split() if b":" in word)
    assert int(fields[b"lru"]) == NOW // 1000 % (1 << 24)
    assert fields[b"lru_seconds_idle"] == b"3"
    assert client("OBJECT", "IDLETIME", "missing") == b"-1"


def test_the_clock_wraps() -> None:
    client = _Timed()
    wrap = (1 << 24) - NOW // 1000 % (1 << 24)
    client.clock.advance((wrap - 5) * 1000)
    client("SET", "k", "v")
    client.clock.advance(10_000)
    assert client("OBJECT", "IDLETIME", "k") == 9  # one less: Redis's estimateObjectIdleTime omits the wrap itself


def test_streams_record_accesses_in_batches_too() -> None:
    for door in (False, True):
        clock = ManualClock(NOW)
        client = Local(Engine(Settings(compat="7.0"), clock), door=door)
        for line in ("XADD k * a b", "XLEN k", "XRANGE k - +", "XREAD STREAMS k 0", "XINFO STREAM k"):
            client(*line.split())
            clock.advance(50_000)
            assert client("OBJECT", "IDLETIME", "k") == 50, line


def test_no_touch_exempts_all_commands_but_touch() -> None:
    client = _Timed(compat="newest")
    other = Local(client.engine)
    client("SET", "k", "v")
    assert client("CLIENT", "NO-TOUCH", "ON") == b"OK"
    assert client.idle_after("GET", "k") == 100
    assert client.idle_after("TOUCH", "k") == 0
    client.clock.advance(1000)
    client("MULTI")
    client("GET", "k")
    client("EXEC")
    assert client("OBJECT", "IDLETIME", "k") == 1
    other("GET", "k")
    assert client("OBJECT", "IDLETIME", "k") == 0
    client("CLIENT", "NO-TOUCH", "OFF")
    assert client.idle_after("GET", "k") == 0
    client("CLIENT", "NO-TOUCH", "ON")
    client("RESET")
    assert client.idle_after("GET", "k") == 0


def test_no_access_is_recorded_while_a_child_saves() -> None:
    client = _Timed()
    client("SET", "k", "v")
    set_child_saves(True)
    try:
        assert client.idle_after("GET", "k") == 100
    finally:
        set_child_saves(False)
    assert client.idle_after("GET", "k") == 0


def test_each_policy_reports_its_own_data() -> None:
    client = _Timed()
    client("SET", "k", "v")
    switching = "Please note that when switching between policies at runtime LRU and LFU data will take some time to "
    assert client("OBJECT", "FREQ", "k") == (
        f"ERR An LFU maxmemory policy is not selected, access frequency not tracked. {switching}adjust."
    )
    client("CONFIG", "SET", "maxmemory-policy", "volatile-lfu")
    assert client("OBJECT", "IDLETIME", "k") == (
        f"ERR An LFU maxmemory policy is selected, idle time not tracked. {switching}adjust."
    )
    client("SET", "new", "v")
    assert client("OBJECT", "FREQ", "new") == 5


def test_frequencies_grow_and_decay() -> None:
    client = _Timed(maxmemory_policy="allkeys-lfu", lfu_log_factor=0)
    client("SET", "k", "v")
    for _ in range(10):
        client("GET", "k")
    assert client("OBJECT", "FREQ", "k") == 15
    client("SET", "k", "w")
    assert client("OBJECT", "FREQ", "k") == 16
    client.clock.advance(3 * 60_000)
    assert client("OBJECT", "FREQ", "k") == 13
    client("CONFIG", "SET", "lfu-decay-time", "0")
    assert client("OBJECT", "FREQ", "k") == 16
    client("CONFIG", "SET", "lfu-decay-time", "3")
    assert client("OBJECT", "FREQ", "k") == 15
    client("CONFIG", "SET", "lfu-decay-time", "1")
    client("GET", "k")
    assert client("OBJECT", "FREQ", "k") == 14
    client.clock.advance(60 * 60_000)
    assert client("OBJECT", "FREQ", "k") == 0
    client("INCR", "n")
    client("INCR", "n")
    assert client("OBJECT", "FREQ", "n") == 6


def test_the_growth_of_a_frequency_is_logarithmic() -> None:
    """With the factor 10, Redis's redis.conf states about 10 after 100 accesses and 18 after 1,000; 255 is the end."""
    access, table = AccessClock(ManualClock(NOW)), Dict(objects=True)
    access.mode = LFU
    n = table.add_or_find(b"k")
    found = []
    for _ in range(200):
        access.start(table, n)
        for _ in range(100):
            access.touch(table, n)
        found.append(access.frequency(table.lru(n)))
    assert 9 < sum(found) / len(found) < 12
    table.set_lru(n, access.minutes << 8 | 255)
    access.touch(table, n)
    assert access.frequency(table.lru(n)) == 255


def test_renamed_moved_and_copied_values() -> None:
    for compat, kept in (("7.0", 12), ("newest", 5)):
        client = _Timed(compat=compat, maxmemory_policy="allkeys-lfu", lfu_log_factor=0)
        client("SET", "k", "v")
        for _ in range(6):
            client("GET", "k")
        client("COPY", "k", "copied")
        assert client("OBJECT", "FREQ", "k") == 12
        assert client("OBJECT", "FREQ", "copied") == 5
        client("CONFIG", "SET", "lfu-log-factor", "1000000000")
        client("RENAME", "k", "renamed")
        assert client("OBJECT", "FREQ", "renamed") == kept
        client("MOVE", "renamed", 1)
        client("SELECT", 1)
        assert client("OBJECT", "FREQ", "renamed") == kept


def test_lrm_policies_record_changes_only() -> None:
    client = _Timed(compat="newest", maxmemory_policy="allkeys-lrm")
    client("SET", "k", "v")
    assert client.idle_after("GET", "k") == 100
    assert client.idle_after("APPEND", "k", "w") == 0
    client("XADD", "s", "*", "a", "b")
    assert client.idle_after("XLEN", "s", key="s") == 100
    assert client.idle_after("XADD", "s", "*", "a", "b", key="s") == 0
    old = _Timed()
    assert "lrm" not in old("CONFIG", "SET", "maxmemory-policy", "allkeys-lrm")
