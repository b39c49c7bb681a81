"""The database: expiry, watched keys, blocked clients, and complete scans."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rillet.keyspace.clock import ManualClock
from rillet.keyspace.database import Database, Watcher
from rillet.types.string import new_string
from tests.variants import by_speed

pytestmark = pytest.mark.both


def database() -> Database:
    return Database(0, ManualClock(1000))


def advance(one: Database, ms: int) -> None:
    assert isinstance(one.clock, ManualClock)
    one.clock.advance(ms)


def fill(one: Database, *keys: bytes) -> None:
    for key in keys:
        one.set(key, new_string(b"v"))


def test_a_key_expires_after_its_time_and_not_at_it() -> None:
    one = database()
    gone: list[bytes] = []
    one.on_expired = lambda _database, key: gone.append(key)
    fill(one, b"k")
    one.set_expire(b"k", 1500)
    advance(one, 500)
    assert one.lookup(b"k") is not None
    advance(one, 1)
    assert one.lookup(b"k") is None
    assert gone == [b"k"]
    assert len(one) == 0
    one.check()


def test_no_key_expires_while_the_engine_forbids_it() -> None:
    one = database()
    one.may_expire = lambda: False
    fill(one, b"k")
    one.set_expire(b"k", 1)
    assert one.lookup(b"k") is not None
    assert not one.expire_if_needed(b"k")


def test_a_new_value_loses_the_expiry_unless_it_is_kept() -> None:
    one = database()
    fill(one, b"k")
    one.set_expire(b"k", 5000)
    one.set(b"k", new_string(b"w"), True)
    assert one.get_expire(b"k") == 5000
    one.set(b"k", new_string(b"x"))
    assert one.get_expire(b"k") == -1


@pytest.mark.slow
def test_live_keys_skip_gaps_and_expired_keys() -> None:
    one = database()
    names = [b"key:%d" % n for n in range(5000)]
    fill(one, *names)
    for name in names[::3]:
        one.delete(name)
    for name in names[1::3]:
        one.set_expire(name, 1500)
    one.set_expire(b"key:2", 1501)
    advance(one, 501)
    live = [key for keys in one.live_keys() for key in keys]
    assert sorted(live) == sorted(names[2::3])
    assert len(one) == len(names) - len(names[::3])


def test_only_reads_count_hits_and_misses() -> None:
    one = database()
    fill(one, b"k")
    one.lookup(b"k")
    one.lookup_read(b"k")
    one.lookup_read(b"none")
    assert (one.hits, one.misses) == (1, 1)


def test_watchers_are_marked_by_changes_of_their_keys_only() -> None:
    one, watcher = database(), Watcher()
    fill(one, b"k")
    one.watch(b"k", watcher)
    one.touch(b"other")
    assert not watcher.dirty
    one.touch(b"k")
    assert watcher.dirty


def test_deleting_a_key_that_had_expired_before_watch_is_not_a_change() -> None:
    one, watcher = database(), Watcher()
    one.on_expired = lambda owner, key: owner.touch(key)
    fill(one, b"k")
    one.set_expire(b"k", 1)
    one.watch(b"k", watcher)
    assert one.lookup(b"k") is None
    assert not watcher.dirty
    fill(one, b"k")
    one.touch(b"k")
    assert watcher.dirty


def test_flush_and_swap_mark_the_watchers_of_removed_and_added_keys() -> None:
    one, two = database(), Database(1, ManualClock(1000))
    here, nowhere, there = Watcher(), Watcher(), Watcher()
    fill(one, b"a")
    fill(two, b"b")
    one.watch(b"a", here)
    one.watch(b"b", there)
    one.watch(b"c", nowhere)
    one.swap(two)
    assert here.dirty
    assert there.dirty
    assert not nowhere.dirty
    assert list(one.keys) == [b"b"]
    assert list(two.keys) == [b"a"]
    late = Watcher()
    one.watch(b"b", late)
    assert one.flush() == 1
    assert late.dirty
    one.check()
    two.check()


def test_random_key_returns_an_existing_key_and_skips_expired_ones() -> None:
    one = database()
    assert one.random_key() is None
    fill(one, b"a", b"b", b"c")
    one.set_expire(b"a", 1)
    assert {one.random_key() for _ in range(100)} == {b"b", b"c"}


def whole_scan(one: Database, count: int) -> list[bytes]:
    cursor, found = one.scan(0, count)
    while cursor:
        cursor, more = one.scan(cursor, count)
        found += more
    return found


@pytest.mark.slow
@given(st.integers(1, 40), st.integers(0, 200), st.randoms(use_true_random=False))
@settings(max_examples=by_speed(30, 15, 40))
def test_a_scan_returns_every_permanent_key(count: int, size: int, chooser: random.Random) -> None:
    one = database()
    fill(one, *(b"%b:%d" % (kind, number) for kind in (b"stays", b"goes") for number in range(size)))
    cursor, found, added = 0, [], 0
    while True:
        cursor, more = one.scan(cursor, count)
        found += more
        if not cursor:
            break
        # A scan of a table that grows faster than the scan proceeds would take as long in Redis.
        for _ in range(chooser.randrange(30) if added < 300 else 0):
            one.delete(b"goes:%d" % chooser.randrange(size))
            fill(one, b"comes:%d" % added)
            added += 1
    assert {key for key in found if key.startswith(b"stays")} == {b"stays:%d" % n for n in range(size)}
    assert all(key.startswith((b"stays:", b"goes:", b"comes:")) for key in found)
    one.check()


class Walks(RuleBasedStateMachine):
    """Keys are added and deleted in any order, and each scan of a resting database returns each key once."""

    def __init__(self) -> None:
        super().__init__()
        self.one = database()
        self.model: set[bytes] = set()

    @rule(key=st.integers(0, 150).map(lambda number: b"%d" % number))
    def add(self, key: bytes) -> None:
        fill(self.one, key)
        self.model.add(key)

    @rule(key=st.integers(0, 150).map(lambda number: b"%d" % number))
    def remove(self, key: bytes) -> None:
        assert self.one.delete(key) == (key in self.model)
        self.model.discard(key)

    @rule(low=st.integers(0, 150), high=st.integers(0, 150))
    def fill_or_empty_a_range(self, low: int, high: int) -> None:
        for number in range(min(low, high), max(low, high)):
            if low < high:
                self.add(b"%d" % number)
            else:
                self.remove(b"%d" % number)

    @rule()
    def flush(self) -> None:
        self.one.flush()
        self.model.clear()

    @rule(count=st.integers(1, 200))
    def scan(self, count: int) -> None:
        assert sorted(whole_scan(self.one, count)) == sorted(self.model)

    @rule()
    def pick(self) -> None:
        assert (self.one.random_key() in self.model) is bool(self.model)

    @invariant()
    def holds(self) -> None:
        self.one.check()


TestWalks = pytest.mark.slow(Walks.TestCase)
TestWalks.settings = settings(max_examples=by_speed(30, 5, 200))


def test_an_expired_key_is_missing_but_stays_while_it_may_not_be_deleted() -> None:
    one = database()
    one.may_delete = lambda: False
    fill(one, b"k")
    one.set_expire(b"k", 1)
    assert one.lookup(b"k") is one.lookup_read(b"k") is None
    assert one.find_untouched(b"k") == -1
    assert one.random_key() == b"k"  # as in Redis, instead of a search without end
    assert len(one) == 1
    one.may_delete = lambda: True
    assert one.random_key() is None
    assert len(one) == 0
    one.check()
