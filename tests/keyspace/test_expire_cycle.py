"""The active expiry cycle: what it deletes, in how much time, and which figures it reports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.keyspace.clock import ManualClock
from rillet.keyspace.database import Database
from rillet.keyspace.expire_cycle import ExpireCycle
from rillet.types.string import new_string
from tests.variants import by_speed


class SlowClock(ManualClock):
    """A clock that moves 200 us with each reading of `ticks`, as if the work took that time."""

    def ticks(self) -> int:
        self.us += 200
        return self.us * 1000


def filled(clock: ManualClock, due: int, later: int, databases: int = 1) -> list[Database]:
    """Return databases in which `due` keys have expired and `later` keys expire in 9 s."""
    found = [Database(index, clock) for index in range(databases)]
    for database in found:
        for number in range(due + later):
            key = b"%d" % number
            database.set(key, new_string(b"v"))
            database.set_expire(key, 500 if number < due else 10_000)
    return found


def run(cycle: ExpireCycle, databases: list[Database], clock: ManualClock, effort: int = 1) -> int:
    """Run one slow cycle to its end; return the number of its slices."""
    cycle.start(len(databases), effort, 10, clock.ticks())
    slices = 1
    while cycle.step(databases, clock, effort):
        slices += 1
    return slices


def test_a_cycle_repeats_while_many_keys_of_a_sample_are_expired() -> None:
    clock = ManualClock(1000)
    databases = filled(clock, 5000, 20)
    cycle = ExpireCycle()
    run(cycle, databases, clock)
    assert len(databases[0]) < 100
    assert {b"%d" % number for number in range(5000, 5020)} <= set(databases[0].keys)


def test_a_cycle_stops_when_few_keys_of_a_sample_are_expired() -> None:
    clock = ManualClock(1000)
    databases = filled(clock, 0, 5000)
    run(ExpireCycle(), databases, clock)
    assert len(databases[0]) == 5000
    assert 8000 < databases[0].average_ttl <= 9000


def test_a_cycle_takes_its_share_of_the_time_in_slices_of_a_millisecond() -> None:
    clock = SlowClock(1000)
    databases = filled(clock, 6_000, 0)
    cycle = ExpireCycle()
    slices = run(cycle, databases, clock)
    # 25 % of the 100 ms between two cycles, 1 ms at a time; the last sample of a slice may end after its time.
    assert 18 <= slices <= 25
    assert 25_000_000 <= cycle.used < 26_500_000
    assert cycle.capped == 1
    assert 0 < len(databases[0]) < 6_000


def test_pauses_keep_the_share_although_some_slices_begin_late() -> None:
    clock = SlowClock(1000)
    databases = filled(clock, by_speed(20_000, 8000), 0)
    cycle = ExpireCycle()
    began = clock.us
    cycle.start(1, 1, 10, clock.ticks())
    late = 0
    while cycle.step(databases, clock, 1):
        clock.us += cycle.pause(clock.ticks()) // 1000
        late = (late + 700) % 2100  # microseconds by which the loop is late
        clock.us += late
    assert 25_000_000 <= cycle.used < 27_000_000
    assert 96_000 < clock.us - began < 106_000
    assert len(databases[0]) > 0


@pytest.mark.parametrize("effort", [1, 3])
def test_a_fast_cycle_runs_only_while_many_keys_are_known_to_be_expired(effort: int) -> None:
    clock = SlowClock(1000)
    databases = filled(clock, 6_000, 0)
    cycle = ExpireCycle()
    assert not cycle.start_fast(1, effort, clock.ticks())
    run(cycle, databases, clock, effort)
    clock.advance(100)
    assert cycle.start_fast(1, effort, clock.ticks())
    before = len(databases[0])
    assert not cycle.step(databases, clock, effort, 2**62)
    assert len(databases[0]) < before
    assert not cycle.start_fast(1, effort, clock.ticks()), "the last one is too short ago"


def test_the_next_cycle_begins_at_the_next_database() -> None:
    clock = SlowClock(1000)
    databases = filled(clock, 6_000, 0, databases=2)
    cycle = ExpireCycle()
    run(cycle, databases, clock)
    assert len(databases[1]) == 6_000
    run(cycle, databases, clock)
    assert len(databases[1]) < 6_000


def test_a_sparse_table_is_left_alone_until_it_has_shrunk() -> None:
    clock = ManualClock(1000)
    (database,) = databases = filled(clock, 10, 5000)
    for number in range(10, 5010):
        database.expires.delete(b"%d" % number)
    run(ExpireCycle(), databases, clock)
    assert len(database.expires) == 10
    while database.expires.shrink_if_needed() or database.expires.rehash(100):
        pass
    run(ExpireCycle(), databases, clock)
    assert len(database.expires) == 0


def test_a_cycle_shrinks_a_sparse_table_if_it_may() -> None:
    clock = ManualClock(1000)
    (database,) = databases = filled(clock, 3000, 0)
    for number in range(10, 3000):
        database.expires.delete(b"%d" % number)
    cycle = ExpireCycle()
    cycle.rehashes = True
    database.expires.pauses += 1  # as in a walk through the table
    run(cycle, databases, clock)
    assert len(database.expires) == 10
    database.expires.pauses -= 1
    run(cycle, databases, clock)
    assert len(database.expires) == 0


def test_a_shrinking_table_ends_with_its_slice() -> None:
    clock = SlowClock(1000)
    (database,) = databases = filled(clock, count := by_speed(20_000, 10_000), 0)
    for number in range(10, count):
        database.expires.delete(b"%d" % number)
    cycle = ExpireCycle()
    cycle.rehashes = True
    cycle.start(1, 1, 10, clock.ticks())
    assert cycle.step(databases, clock, 1)
    assert database.expires.rehashing
    while cycle.step(databases, clock, 1):
        pass
    assert len(database.expires) == 0


@given(st.integers(0, 100), st.integers(0, 100), st.integers(1, 10))
def test_only_expired_keys_are_deleted_and_all_of_them_in_the_end(due: int, later: int, effort: int) -> None:
    clock = ManualClock(1000)
    databases = filled(clock, due, later)
    cycle = ExpireCycle()
    for _ in range(2000):
        run(cycle, databases, clock, effort)
        if len(databases[0]) == later:
            break
        # A cycle leaves one key in a table of 128 buckets alone; the periodic job shrinks the table (databasesCron).
        expires = databases[0].expires
        while expires.shrink_if_needed() or expires.rehash(100):
            pass
    assert set(databases[0].keys) == {b"%d" % number for number in range(due, due + later)}
    databases[0].check()
