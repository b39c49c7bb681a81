"""Groups: every pending entry has one owner, and deleting a group frees all its memory."""

from __future__ import annotations

import gc
import random
import sys

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rillet.types.stream.group import Consumer, Group
from rillet.types.stream.pending import PendingIterator
from rillet.types.stream.stream import Stream
from tests.variants import by_speed, long_interpreted, seeds

numbers = st.integers(0, 12)
names = st.sampled_from([b"alice", b"bob", b"carol"])
times = st.integers(0, 6)
group_names = st.sampled_from([b"g", b"h"])


class GroupsAndModel(RuleBasedStateMachine):
    """Random operations on two groups, and on a dict from ID to [owner, time, count] for each, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 7
        self.stream = Stream()
        self.model: dict[bytes, dict[int, tuple[bytes, int, int]]] = {}
        self.order: dict[bytes, list[int]] = {}
        for name in (b"g", b"h"):
            self.stream.create_group(name, 0, 0, 0)
            self.model[name] = {}
            self.order[name] = []

    def consumer(self, group: Group, name: bytes) -> Consumer:
        return group.find_consumer(name) or group.create_consumer(name, 1)

    def reorder(self, name: bytes, number: int, time: int) -> None:
        """Move the number behind the released entries and those with the same or an earlier time."""
        order, model = self.order[name], self.model[name]
        if number in order:
            order.remove(number)
        at = len(order)
        while at and model[order[at - 1]][1] > time and model[order[at - 1]][0]:
            at -= 1
        order.insert(at, number)

    @rule(group=group_names, number=numbers, name=names, passed=st.integers(0, 1))
    def deliver(self, group: bytes, number: int, name: bytes, passed: int) -> None:
        self.now = now = self.now + passed  # the order by time is exact only while the clock is not set back
        g = self.stream.groups[group]
        slot = g.deliver(number, number, self.consumer(g, name), now)
        assert (g.table.delivery_count(slot), g.table.delivery_time(slot)) == (1, now)
        if number in self.model[group]:
            self.reorder(group, number, now)
        else:
            self.order[group].append(number)
        self.model[group][number] = (name, now, 1)

    @rule(group=group_names, number=numbers, name=names, time=times)
    def claim(self, group: bytes, number: int, name: bytes, time: int) -> None:
        g = self.stream.groups[group]
        consumer = self.consumer(g, name)
        slot = g.find(number, number)
        assert (slot >= 0) == (number in self.model[group])
        if slot < 0:
            slot = g.force(number, number, consumer, self.now)
            self.order[group].append(number)
            self.model[group][number] = (name, self.now, 1)
        owner, _, count = self.model[group][number]
        assert g.transfer(slot, consumer) == (owner != name)
        g.set_delivery(slot, time, count + 1)
        self.order[group].remove(number)
        self.model[group][number] = (name, time, count + 1)
        self.reorder(group, number, time)

    @rule(group=group_names, number=numbers)
    def release(self, group: bytes, number: int) -> None:
        g = self.stream.groups[group]
        slot = g.find(number, number)
        if slot < 0:
            slot = g.force_released(number, number, 3)
        else:
            g.release(slot, 3)
            self.order[group].remove(number)
        released = sum(not self.model[group][other][0] for other in self.order[group])
        self.order[group].insert(released, number)
        self.model[group][number] = (b"", 0, 3)

    @rule(group=group_names, number=numbers)
    def acknowledge(self, group: bytes, number: int) -> None:
        known = self.model[group].pop(number, None) is not None
        assert self.stream.groups[group].acknowledge(number, number) == known
        if known:
            self.order[group].remove(number)

    @rule(number=numbers)
    def drop_references(self, number: int) -> None:
        dropped = 0
        for group in self.model:
            if self.model[group].pop(number, None) is not None:
                self.order[group].remove(number)
                dropped += 1
        assert self.stream.drop_references(number, number) == dropped

    @rule(group=group_names, name=names)
    def leave(self, group: bytes, name: bytes) -> None:
        g = self.stream.groups[group]
        known = name in g.consumers
        owned = [number for number, (owner, _, _) in self.model[group].items() if owner == name]
        assert g.delete_consumer(name) == (len(owned) if known else -1)
        for number in owned:
            del self.model[group][number]
            self.order[group].remove(number)

    @rule(group=group_names)
    def destroy(self, group: bytes) -> None:
        assert self.stream.destroy_group(group)
        assert self.stream.create_group(group, 0, 0, 0) is not None
        self.model[group] = {}
        self.order[group] = []

    @rule()
    def pack(self) -> None:
        self.stream.pack_pending()

    @invariant()
    def agrees(self) -> None:
        self.stream.pending.check()
        for name, group in self.stream.groups.items():
            group.check()
            assert group.orphans() == 0
            found = {row["id"][0]: (row["consumer"], row["time"], row["count"]) for row in group.pending()}
            assert found == self.model[name]
            assert list(found) == sorted(self.model[name])
            assert [group.table.ms(slot) for slot in group.order.slots(group.table)] == self.order[name]
            assert group.nacked_count == sum(not owner for owner, _, _ in self.model[name].values())
        for number in range(13):
            pending = any(number in model for model in self.model.values())
            assert (self.stream.pending.first_reference(number, number) >= 0) == pending


TestGroupsAndModel = pytest.mark.slow(GroupsAndModel.TestCase)
TestGroupsAndModel.settings = settings(max_examples=by_speed(40, 20, 80), stateful_step_count=40, deadline=None)


def test_the_names_of_groups_and_consumers_are_unique() -> None:
    stream = Stream()
    group = stream.create_group(b"g", 0, 0, 0)
    assert group is not None
    assert stream.create_group(b"g", 1, 0, 0) is None
    assert stream.find_group(b"g") is group
    consumer = group.create_consumer(b"c", 5)
    assert consumer is not None
    assert consumer.seen_time == 5
    assert consumer.active_time == -1
    assert group.create_consumer(b"c", 6) is None
    assert group.find_consumer(b"c") is consumer
    assert group.delete_consumer(b"nobody") == -1
    assert [one.name for one in group.sorted_consumers()] == [b"c"]
    assert stream.destroy_group(b"g")
    assert not stream.destroy_group(b"g")
    assert stream.find_group(b"g") is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, 3))
def test_thousands_of_entries_are_acknowledged_in_any_order(seed: int) -> None:
    random_ = random.Random(seed)
    stream = Stream()
    group = stream.create_group(b"g", 0, 0, 0)
    other = stream.create_group(b"h", 0, 0, 0)
    consumers = [group.create_consumer(b"%d" % number, 0) for number in range(3)]
    reader = other.create_consumer(b"r", 0)
    ids = list(range(5000))
    if seed:
        random_.shuffle(ids)
    for ms in ids:
        group.deliver(ms, 1, random_.choice(consumers), ms)
        if ms % 3 == 0:
            other.deliver(ms, 1, reader, ms)
    group.check()
    other.check()
    stream.pending.check()
    random_.shuffle(ids)
    for ms in ids[:4900]:
        assert group.acknowledge(ms, 1)
        assert not group.acknowledge(ms, 1)
    group.check()
    stream.pending.check()
    assert [row["id"] for row in group.pending()] == [(ms, 1) for ms in sorted(ids[4900:])]
    assert stream.pending.slots == 5000 + 1667
    assert not stream.tidy_pending()
    for ms in range(0, 5000, 3):
        assert other.acknowledge(ms, 1)
    assert stream.tidy_pending()
    assert not stream.tidy_pending()
    assert stream.pending.slots == stream.pending.count == 100
    assert len(stream.pending.buf) == 5200
    group.check()
    other.check()
    stream.pending.check()
    for ms in ids[4900:]:
        assert group.acknowledge(ms, 1)
    assert stream.pending.count == stream.pending.slots == len(stream.pending.buf) == 0
    assert [len(consumer.index.pages) for consumer in consumers] == [0, 0, 0]


@long_interpreted
def test_nearly_empty_pages_are_merged() -> None:
    for ids in (range(10_000), range(9_999, -1, -1)):
        group = Group(b"g", 0, 0, 0)
        consumer = group.create_consumer(b"c", 0)
        for ms in range(10_000):
            group.deliver(ms, 0, consumer, ms)
        for ms in ids:
            assert ms % 250 == 0 or group.acknowledge(ms, 0)
        group.check()
        group.table.check()
        for index in (group.index, consumer.index, group.table.refs):
            assert len(index.slots()) == 40
            assert len(index.pages) == 1
        for ms in range(0, 10_000, 250):
            assert group.acknowledge(ms, 0)
        assert consumer.index.count == len(consumer.index.pages) == len(consumer.index.bounds) == 0


def test_an_index_has_bounds_if_it_has_several_pages() -> None:
    group = Group(b"g", 0, 0, 0)
    consumer = group.create_consumer(b"c", 0)
    for ms in range(256, 0, -1):
        group.deliver(ms, 0, consumer, 1)
    assert (len(group.index.pages), len(group.index.bounds)) == (1, 0)
    group.deliver(0, 5, consumer, 1)
    assert (len(group.index.pages), len(group.index.bounds)) == (2, 32)
    group.deliver(0, 4, consumer, 1)
    group.check()
    group.table.check()
    other = Group(b"h", 0, 0, 0)
    assert len(other.index.pages) == len(other.index.bounds) == 0


def test_an_iterator_continues_after_its_last_id_whatever_changes() -> None:
    group = Group(b"g", 0, 0, 0)
    consumer = group.create_consumer(b"c", 0)
    pending = PendingIterator(group.table, group.index)
    assert not pending.next()
    for ms in range(1, 1000):
        group.deliver(ms, 0, consumer, 1)
        assert pending.next()
        assert pending.ms == ms
        assert not pending.next()
    pending.seek(0, 0)
    seen = []
    while pending.next():
        seen.append(pending.ms)
        group.drop(pending.slot)
        if pending.ms % 3 == 0:
            group.acknowledge(pending.ms + 2, 0)
        if pending.ms < 300:
            group.deliver(pending.ms + 2000, 0, consumer, 1)
        if pending.ms == 1000:
            group.order.renumber(group.table.pack([group.index, consumer.index]))
    kept = [ms for ms in range(1, 1000) if ms < 5 or ms % 3 != 2]
    assert seen[: len(kept)] == kept
    assert seen == sorted(seen)
    assert group.pending_count == group.table.count == 0


def test_loading_assigns_one_owner_per_entry_and_sorts_by_time() -> None:
    stream = Stream()
    group = stream.create_group(b"g", 0, 0, 0)
    for ms, time in ((1, 30), (2, 10), (3, 30), (4, 20), (5, 7), (6, 5)):
        assert group.load(ms, 0, time, 2)
        assert not group.load(ms, 0, time, 2)
    alice, bob = group.create_consumer(b"alice", 1), group.create_consumer(b"bob", 1)
    for ms, consumer in ((1, alice), (2, bob), (3, alice), (4, bob)):
        assert group.assign(ms, 0, consumer)
        assert not group.assign(ms, 0, bob)
    assert not group.assign(9, 0, alice)
    assert not group.load_nacked(9, 0)
    assert not group.load_nacked(1, 0)
    assert group.orphans() == 2
    assert group.load_nacked(6, 0)
    assert not group.load_nacked(6, 0)
    assert group.load_nacked(5, 0)
    group.settle()
    assert group.orphans() == 0
    assert group.nacked_count == 2
    assert [group.table.ms(slot) for slot in group.order.slots(group.table)] == [6, 5, 2, 4, 1, 3]
    group.check()
    stream.pending.check()
    slot = group.oldest()
    assert group.table.owner(slot) is group.nobody
    assert group.transfer(slot, alice)
    assert group.nacked_count == 1
    assert [group.table.ms(slot) for slot in group.order.slots(group.table)] == [5, 6, 2, 4, 1, 3]
    group.check()


def test_the_delivery_count_saturates_or_wraps() -> None:
    group = Group(b"g", 0, 0, 0)
    slot = group.deliver(1, 0, group.create_consumer(b"c", 0), 5)
    group.set_delivery(slot, 5, (1 << 63) - 1)
    group.redeliver(slot, 6, True)
    assert group.table.delivery_count(slot) == (1 << 63) - 1
    group.redeliver(slot, 6, False)
    assert group.table.delivery_count(slot) == 1 << 63
    group.set_delivery(slot, -7, (1 << 64) - 1)
    group.redeliver(slot, 7, False)
    assert group.table.delivery_count(slot) == 0


@pytest.mark.slow
def test_a_deleted_stream_is_freed_without_the_garbage_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        stream = Stream()
        group = stream.create_group(b"g", 0, 0, 0)
        consumer = group.create_consumer(b"c", 0)
        for ms in range(1000):
            group.deliver(ms, 0, consumer, 0)
        held = sys.getrefcount(consumer)
        del stream, group
        assert sys.getrefcount(consumer) == held - 2  # those of the group's dict and the list of owners
        del consumer
        assert gc.collect() == 0
    finally:
        gc.enable()
