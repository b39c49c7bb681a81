"""Commands that replace or delete an expired key: events and counters by version; moving_time.py compares them."""

from __future__ import annotations

from typing import Any

import pytest

from rillet.keyspace.clock import ManualClock
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.types.rdb.value import dump
from rillet.types.string import new_string
from tests.commands.ends import NOW, Bench
from tests.differential.moving_time import _messages
from tests.differential.wire import Local


class _Watched(Bench):
    """A bench with a subscriber of all keyspace events."""

    def __init__(self, compat: str, **settings: Any) -> None:
        super().__init__(compat=compat, notify_keyspace_events="KEA", **settings)
        self.subscriber = Local(self.engine)
        self.subscriber.run([b"PSUBSCRIBE", b"__keyevent@0__:*"])
        self.engine.active_expire = False
        self.events()

    def events(self) -> list[tuple[str, str]]:
        """Return the events since the last call: name and key."""
        data = self.subscriber.session.out.take_bytes()
        start = data.find(b"*4\r\n")
        found = [] if start < 0 else list(_messages(data[start:]))
        return [(message[2].partition(b":")[2].decode(), message[3].decode()) for message in found]

    def expired(self, key: str) -> None:
        """Create a key that has expired but still exists."""
        self("SET", key, "old", "PX", 1)
        self.clock.advance(10)
        self.events()

    def count(self) -> int:
        return self.engine.stats.expired_keys


PAYLOAD = dump(new_string(b"value"))


@pytest.mark.parametrize("command", ["SINTERSTORE k none", "SUNIONSTORE k none", "SDIFFSTORE k none other",
                                     "ZUNIONSTORE k 1 none", "ZRANGESTORE k none 0 -1"])  # fmt: skip
@pytest.mark.parametrize("compat", ["7.0", "newest", "valkey"])
def test_an_empty_result_deletes_an_expired_key_with_the_event_del(compat: str, command: str) -> None:
    end = _Watched(compat)
    end.expired("k")
    assert end(*command.split()) == 0
    assert end.events() == [("del", "k")]
    assert end.count() == 0
    assert end("DBSIZE") == 0


@pytest.mark.parametrize(("compat", "events"), [
    ("7.0", [("restore", "k")]),
    ("valkey", [("restore", "k")]),
    ("8.6", [("expired", "k"), ("restore", "k")]),
    ("newest", [("expired", "k"), ("restore", "k")]),
])  # fmt: skip
def test_restore_replace_looks_up_the_key_since_8_6(compat: str, events: list[tuple[str, str]]) -> None:
    end = _Watched(compat)
    end.expired("k")
    assert end("RESTORE", "k", 0, PAYLOAD, "REPLACE") == b"OK"
    assert end.events() == events
    assert end.count() == len(events) - 1
    assert end("GET", "k") == b"value"


@pytest.mark.parametrize(("compat", "restored", "stored"), [("7.0", 0, 0), ("8.6", 1, 0), ("newest", 1, 1),
                                                            ("valkey", 0, 0)])  # fmt: skip
def test_values_with_a_past_expiry_count_as_expired(compat: str, restored: int, stored: int) -> None:
    end = _Watched(compat)
    assert end("RESTORE", "k", 1000, PAYLOAD, "ABSTTL") == b"OK"
    assert (end.count(), end("DBSIZE")) == (restored, 0)
    if compat in ("newest", "valkey"):
        assert end("SET", "k", "v", "PXAT", 1000) == b"OK"
        assert end.count() == restored + stored


def test_valkey_counts_a_deletion_by_a_past_expiry() -> None:
    for number, command in enumerate(("EXPIREAT k 1", "SET k v PXAT 1", "GETEX k PXAT 1"), 1):
        for compat, total in (("valkey", 1), ("7.0", 0)):
            end = _Watched(compat)
            end("SET", "k", "v")
            end(*command.split())
            end("GET", "k")
            # Redis 7.0 stores a value with a past expiry and deletes it at the lookup.
            assert end.count() == (1 if number == 2 else total), (compat, command)


def test_valkey_validates_the_time_of_getex_before_the_key() -> None:
    assert Bench(compat="7.0")("GETEX", "none", "EX", 0) == b"-1"
    assert Bench(compat="valkey")("GETEX", "none", "EX", 0) == "ERR invalid expire time in 'getex' command"


def test_expired_keys_active_counts_those_of_the_cycle() -> None:
    end = _Watched("newest")
    for key in ("a", "b", "c"):
        end("SET", key, "v", "PX", 1)
    end.clock.advance(10)
    end("GET", "a")
    assert (end.count(), end.engine.stats.expired_keys_active) == (1, 0)
    end.engine.active_expire = True
    end.engine.expire_cycle()
    assert (end.count(), end.engine.stats.expired_keys_active) == (3, 2)
    text = end("INFO", "stats")
    assert b"expired_keys:3\r\nexpired_keys_active:2\r\n" in text
    end("CONFIG", "RESETSTAT")
    assert end.engine.stats.expired_keys_active == 0
    assert b"expired_keys_active" not in Bench(compat="7.0")("INFO", "stats")


@pytest.mark.parametrize("compat", ["7.0", "valkey", "8.6", "newest"])
def test_a_checksum_of_zero_is_valid_since_8_6(compat: str) -> None:
    reply = Bench(compat=compat)("RESTORE", "k", 0, PAYLOAD[:-8] + bytes(8))
    valid = compat in ("8.6", "newest")
    assert reply == (b"OK" if valid else "ERR DUMP payload version or checksum are wrong")


def test_spop_of_a_whole_set_counts_two_lookups() -> None:
    end = Bench(compat="7.0")
    end("SADD", "s", "a", "b")
    end("SPOP", "s", 5)
    assert end.engine.databases[0].hits == 1


def test_storing_a_set_counts_an_access_of_the_destination() -> None:
    end = Bench(compat="7.0", maxmemory_policy="allkeys-lfu", lfu_log_factor=0)
    end("SADD", "s", "a")
    end("SADD", "t", "a")
    before = end("OBJECT", "FREQ", "t")
    end("SUNIONSTORE", "t", "s")
    assert end("OBJECT", "FREQ", "t") == before + 1


def test_valkey_s_idle_time_is_exact_after_the_clock_has_gone_round() -> None:
    period = 1 << 24
    for compat, idle in (("7.0", 8_999_999), ("valkey", 9_000_000)):
        end = Bench(compat=compat, maxmemory_policy="allkeys-lru")
        start = end.clock.now_ms() // 1000 % period
        end.clock.advance((period - start - 1000) * 1000)  # 1,000 s before the clock is 0
        end("SET", "k", "v")
        end.clock.advance(9_000_000 * 1000)
        assert end("OBJECT", "IDLETIME", "k") == idle
        end("RESTORE", "r", 0, PAYLOAD, "IDLETIME", 10_000_000)
        assert end("OBJECT", "IDLETIME", "r") == 10_000_000


def test_valkey_s_object_freq_writes_the_frequency_back() -> None:
    for compat, frequency in (("7.0", 4), ("valkey", 5)):
        end = Bench(compat=compat, maxmemory_policy="allkeys-lfu", lfu_decay_time=3)
        end("SET", "k", "v")
        for _ in range(2):
            end.clock.advance(2 * 60_000)
            end("OBJECT", "FREQ", "k")
        assert end("OBJECT", "FREQ", "k") == frequency


@pytest.mark.parametrize("events", ["", "KEA"])
@pytest.mark.parametrize(("compat", "left"), [("7.0", 1), ("valkey", 1), ("8.6", 0), ("newest", 0)])
def test_the_cycle_deletes_keys_in_the_millisecond_of_their_expiry_since_redis_8(
    compat: str, left: int, events: str
) -> None:
    end = Bench(compat=compat, notify_keyspace_events=events)
    end("SET", "k", "v", "PX", 50)
    end.clock.advance(50)
    end.engine.expire_cycle()
    assert end("DBSIZE") == left
    end.clock.advance(1)
    end.engine.expire_cycle()
    assert end("DBSIZE") == 0
    assert end.engine.stats.expired_keys == 1


@pytest.mark.parametrize("command", ["SET k new", "SET k new XX", "SET k new GET", "MSET k new"])
def test_the_event_overwritten_counts_no_access(command: str) -> None:
    found = []
    for events in ("", "KEAoc"):
        end = Bench(
            compat="newest", notify_keyspace_events=events, maxmemory_policy="allkeys-lfu", lfu_log_factor=0
        )
        end("SET", "k", "v")
        end(*command.split())
        found.append(end("OBJECT", "FREQ", "k"))
    assert found[0] == found[1]


@pytest.mark.parametrize(("compat", "left"), [("7.0", 1), ("newest", 1), ("valkey", 2)])
def test_scan_with_a_type_deletes_expired_keys_of_other_types_except_in_valkey(compat: str, left: int) -> None:
    end = Bench(compat=compat)
    end("SET", "kept", "v")
    end("SET", "text", "v", "PX", 1)
    end("HSET", "hash", "f", "v")
    end("PEXPIRE", "hash", 1)
    end.clock.advance(10)
    assert end("SCAN", 0, "TYPE", "string", "COUNT", 100)[1] == [b"kept"]
    assert end("DBSIZE") == left


def test_valkey_rejects_unknown_types_in_scan() -> None:
    assert Bench(compat="valkey")("SCAN", 0, "TYPE", "String1") == "ERR unknown type name 'String1'"
    assert Bench(compat="newest")("SCAN", 0, "TYPE", "String1") == [b"0", []]
    assert Bench(compat="valkey")("SCAN", 0, "TYPE", "ZSet") == [b"0", []]


class _Hurried(ManualClock):
    """A clock that moves by a millisecond whenever it is read."""

    def now_ms(self) -> int:
        self.us += 1000
        return self.us // 1000


@pytest.mark.parametrize("compat", ["7.0", "newest", "valkey"])
@pytest.mark.parametrize("command", ["PEXPIRE k 1", "EXPIRE k 1", "SET k v PX 1", "SETEX k 1 v", "GETEX k PX 1"])
def test_a_relative_time_is_not_past_if_the_clock_moves_during_the_command(compat: str, command: str) -> None:
    end = Local(Engine(Settings(compat=compat), _Hurried(NOW)))
    end.engine.active_expire = False
    end("SET", "k", "v")
    end(*command.split())
    assert end("DBSIZE") == 1
    assert end.engine.databases[0].get_expire(b"k") > NOW
