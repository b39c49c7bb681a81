"""What a retention policy removes from a stream, in memory and partly sealed, against a plain list of its entries."""

from __future__ import annotations

import random

import pytest

from rillet.types.stream.retention import Amount, Cut, Policy, policy_of
from rillet.types.stream.stream import Stream
from tests.types.test_sealed_nodes import filled, ids, sealed
from tests.variants import by_speed

NOW = 1000
TOP = (1 << 64) - 1


def limits(age: int = 0, entries: int = 0, size: int = 0, acknowledged: bool = False) -> Policy:
    return Policy(age, entries, size, acknowledged)


def apply(stream: Stream, policy: Policy, floor: Cut | None = None, most: int = 64) -> int:
    """Apply a policy until nothing goes; return the number of steps."""
    cut, steps = Cut(), 0
    while cut.find(stream, policy, NOW, floor, most):
        before = (stream.length, stream.node_count)
        stream.trim_minid(cut.ms, cut.seq, False, 0)
        assert (stream.length, stream.node_count) < before
        steps += 1
        stream.check()
    return steps


def numbers(stream: Stream) -> list[int]:
    return [ms for ms, _ in ids(stream)]


def at(ms: int, seq: int = 0) -> Cut:
    """Return the floor of a group that needs the entries from an ID on."""
    stream = Stream()
    stream.create_group(b"g", ms - 1 if seq == 0 else ms, TOP if seq == 0 else seq - 1, 0)
    floor = Cut()
    assert floor.find_floor(stream)
    return floor


@pytest.mark.parametrize(
    ("policy", "first"),
    [
        (limits(age=100), 900),
        (limits(age=2000), 1),
        (limits(age=1), 999),
        (limits(entries=10), 991),
        (limits(entries=1), 1000),
        (limits(entries=1001), 1),
        (limits(age=100, entries=5), 996),
        (limits(age=100, entries=500), 900),
    ],
)
def test_entries_in_memory_go_one_by_one(policy: Policy, first: int) -> None:
    stream = filled(1000)
    apply(stream, policy)
    assert numbers(stream) == list(range(first, 1001))


def test_all_entries_may_be_too_old() -> None:
    stream = filled(33)
    apply(stream, limits(age=1))
    assert len(numbers(stream)) == 0
    assert (stream.last_ms, stream.entries_added) == (33, 33)
    assert not Cut().find(stream, limits(age=1), NOW, None)
    assert not Cut().find(Stream(), limits(age=1, entries=1, size=1), NOW, None)


def test_bytes_remove_whole_nodes_but_never_the_last_one() -> None:
    stream = filled(1000)
    size = stream.node_bytes
    apply(stream, limits(size=size // 2))
    assert size // 2 - 4096 < stream.node_bytes <= size // 2
    assert numbers(stream)[0] % 5 == 1
    apply(stream, limits(size=1))
    assert numbers(stream) == [996, 997, 998, 999, 1000]


def test_a_step_examines_a_bounded_number_of_nodes() -> None:
    stream = filled(1000)
    cut = Cut()
    assert cut.find(stream, limits(entries=10), NOW, None, 8)
    assert (cut.ms, cut.seq, cut.is_complete) == (41, 0, False)
    assert apply(stream, limits(entries=10), most=8) == 25


def test_groups_keep_what_they_need() -> None:
    stream = filled(1000)
    apply(stream, limits(entries=10), at(500))
    assert numbers(stream) == list(range(500, 1001))
    apply(stream, limits(entries=10, age=1), at(503))
    assert numbers(stream) == list(range(503, 1001))
    apply(stream, limits(entries=10), at(2000))
    assert numbers(stream) == list(range(991, 1001))


def test_the_floor_is_the_oldest_pending_entry_or_the_next_one() -> None:
    stream = filled(20)
    floor = Cut()
    assert not floor.find_floor(stream)
    a, b = stream.create_group(b"a", 10, 0, 10), stream.create_group(b"b", 15, 7, 15)
    assert a is not None
    assert b is not None
    assert floor.find_floor(stream)
    assert (floor.ms, floor.seq) == (10, 1)
    consumer = b.create_consumer(b"c", 0)
    for number in (12, 7, 3):
        b.force(number, 0, consumer, 0)
    floor.find_floor(stream)
    assert (floor.ms, floor.seq) == (3, 0)
    floor.find_needed(b)
    assert (floor.ms, floor.seq) == (3, 0)
    b.acknowledge(3, 0)
    floor.find_floor(stream)
    assert (floor.ms, floor.seq) == (7, 0)
    a.set_id(TOP, TOP, 20)
    b.clear()
    b.set_id(5, TOP, 5)
    floor.find_floor(stream)
    assert (floor.ms, floor.seq) == (6, 0)
    floor.find_needed(a)
    assert (floor.ms, floor.seq) == (TOP, TOP)


def test_a_whole_range_goes_without_a_read() -> None:
    stream = filled(1000)
    source = sealed(stream, 0, 150)
    assert source is not None
    source.find = source.living_of = None  # type: ignore[assignment]
    cut = Cut()
    assert cut.find(stream, limits(entries=250), NOW, None)
    assert cut.ms == 751
    assert stream.trim_minid(cut.ms, cut.seq, True, 0) == 750
    assert source.read == 0
    assert stream.sealed == stream.ranges == stream.sealed_bytes == stream.sealed_entries == 0


def test_a_part_of_a_range_goes_without_reading_its_nodes() -> None:
    for policy in (limits(entries=400), limits(age=400), limits(entries=403)):
        stream = filled(1000)
        source = sealed(stream, 0, 150)
        assert source is not None
        apply_once = Cut()
        assert apply_once.find(stream, policy, NOW, None)
        assert apply_once.ms in (596, 601)
        stream.trim_minid(apply_once.ms, 0, False, 0)
        assert source.read == 1  # that of the node that is the first now: its first entry
        assert stream.sealed == 30 + (apply_once.ms == 596)
        stream.check()


@pytest.mark.parametrize("seed", range(4))
def test_random_policies_keep_what_they_promise(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(by_speed(40, 10)):
        stream = filled(chance.randint(1, 300), chance.randint(1, 9))
        for number in chance.sample(range(1, 301), chance.randint(0, 40)):
            stream.delete(number, 0)
        for _ in range(chance.randint(0, 4)):
            sealed(stream, chance.randint(0, 20), chance.randint(1, 30))
        living = numbers(stream)
        policy = limits(chance.choice([0, NOW - 100, NOW - 250, 1]), chance.choice([0, 1, 37, 150]),
                        chance.choice([0, 0, 1, 500, 5000]))  # fmt: skip
        floor = chance.choice([None, at(chance.randint(1, 320))])
        apply(stream, policy, floor, chance.choice([1, 3, 64]))
        kept = numbers(stream)
        gone = living[: len(living) - len(kept)]
        assert kept == living[len(gone) :]
        if floor is not None:
            assert all(number < floor.ms for number in gone)
        needed = [number for number in kept if floor is None or number < floor.ms]
        exceeding = [number for at, number in enumerate(needed)
                     if (policy.age and number < NOW - policy.age)
                     or (policy.entries and at < len(kept) - policy.entries)]  # fmt: skip
        if not stream.sealed:
            assert not exceeding
        else:
            assert len(exceeding) < 9  # of the first node
        if not policy.size:
            promised = {number for at, number in enumerate(living)
                        if not (policy.age and number < NOW - policy.age)
                        and not (policy.entries and at < len(living) - policy.entries)}  # fmt: skip
            assert promised <= set(kept)


@pytest.mark.parametrize("seed", range(4))
def test_amounts_before_ids(seed: int) -> None:
    chance = random.Random(seed)
    stream = filled(300, 7)
    for number in chance.sample(range(1, 301), 30):
        stream.delete(number, 0)
    living, total = numbers(stream), stream.node_bytes
    amount, seen = Amount(stream), 0
    for ms in sorted(chance.choices(range(400), k=30)):
        entries, size = amount.before(ms, 0)
        assert entries == sum(number < ms for number in living)
        assert seen <= size <= total
        seen = size
    sealed(stream, 0, 20)
    sealed(stream, 30, 5)
    amount = Amount(stream)
    for ms in sorted(chance.choices(range(400), k=30)):
        entries, _ = amount.before(ms, 0)
        assert 0 <= sum(number < ms for number in living) - entries < 7
    assert Amount(Stream()).before(5, 0) == (0, 0)


def test_the_text_of_a_policy() -> None:
    policy = Policy(86_400_000, 10, 0, True)
    assert policy.text() == b"age=86400000 entries=10 bytes=0 groups=acknowledged"
    assert policy_of(policy.text()) == policy
    assert policy_of(Policy(0, 0, 5, False).text()) == (0, 0, 5, False)
    for wrong in (b"", b"age=1", b"age=-1 entries=0 bytes=0 groups=ignore", policy.text() + b"\n"):
        assert policy_of(wrong) is None
