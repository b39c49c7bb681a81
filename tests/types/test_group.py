"""Groups: an entry has one owner whatever happens, and nothing of a dropped group stays in memory."""

from __future__ import annotations

import gc
import sys

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rillet.types.group import Consumer, Group
from rillet.types.stream import Stream
from rillet.types.stream_id import encode_key

keys = st.integers(0, 12).map(lambda number: encode_key(number, number))
names = st.sampled_from([b"alice", b"bob", b"carol"])


class GroupAndModel(RuleBasedStateMachine):
    """Random operations on a group, and on a dict from key to (owner, count)."""

    def __init__(self) -> None:
        super().__init__()
        self.group = Group(b"g", 0, 0, 0)
        self.model: dict[bytes, tuple[bytes, int]] = {}

    def consumer(self, name: bytes) -> Consumer:
        return self.group.find_consumer(name) or self.group.create_consumer(name, 1)

    @rule(key=keys, name=names)
    def deliver(self, key: bytes, name: bytes) -> None:
        entry = self.group.add_pending(key, self.consumer(name), 5)
        assert (entry.delivery_count, entry.delivery_time) == (1, 5)
        self.model[key] = (name, 1)

    @rule(key=keys, name=names)
    def claim(self, key: bytes, name: bytes) -> None:
        entry = self.group.find_pending(key)
        if entry is None:
            assert key not in self.model
            entry = self.group.force_pending(key, 9)
        owner, count = self.model.get(key, (b"", 1))
        assert self.group.transfer(key, entry, self.consumer(name)) == (owner != name)
        entry.redelivered(7)
        assert entry.delivery_time == 7
        self.model[key] = (name, count + 1)

    @rule(key=keys)
    def acknowledge(self, key: bytes) -> None:
        assert self.group.acknowledge(key) == (self.model.pop(key, None) is not None)

    @rule(name=names)
    def leave(self, name: bytes) -> None:
        known = name in self.group.consumers
        owned = [key for key, (owner, _) in self.model.items() if owner == name]
        assert self.group.delete_consumer(name) == (len(owned) if known else -1)
        for key in owned:
            del self.model[key]

    @invariant()
    def agrees(self) -> None:
        self.group.check()
        assert self.group.orphans() == 0
        found = {key: (entry.consumer.name, entry.delivery_count) for key, entry in self.group.pel.items()}
        assert found == self.model
        assert list(found) == sorted(self.model)


TestGroupAndModel = GroupAndModel.TestCase
TestGroupAndModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_name_is_taken_once() -> None:
    stream = Stream()
    group = stream.create_group(b"g", 0, 0, 0)
    assert group is not None and stream.create_group(b"g", 1, 0, 0) is None and stream.find_group(b"g") is group
    consumer = group.create_consumer(b"c", 5)
    assert consumer is not None and consumer.seen_time == 5
    assert group.create_consumer(b"c", 6) is None and group.find_consumer(b"c") is consumer
    assert group.find_consumer(b"d") is None and group.find_pending(encode_key(1, 1)) is None
    assert stream.destroy_group(b"g") and not stream.destroy_group(b"g") and stream.find_group(b"g") is None


def test_names_are_listed_in_byte_order() -> None:
    stream = Stream()
    for name in (b"b", b"\xff", b"a", b"ab", b"", b"B"):
        stream.create_group(name, 0, 0, 0)
        stream.groups[b"b"].create_consumer(name, 0)
    assert [group.name for group in stream.sorted_groups()] == [b"", b"B", b"a", b"ab", b"b", b"\xff"]
    listed = stream.groups[b"b"].sorted_consumers()
    assert [consumer.name for consumer in listed] == [b"", b"B", b"a", b"ab", b"b", b"\xff"]


def test_loading_gives_each_entry_one_owner() -> None:
    group = Group(b"g", 5, 0, -1)
    keys_ = [encode_key(ms, 0) for ms in range(4)]
    for key in keys_:
        assert group.load_pending(key, 77, 3)
    assert not group.load_pending(keys_[0], 1, 1)
    alice, bob = group.create_consumer(b"alice", 1), group.create_consumer(b"bob", 1)
    assert group.assign_pending(keys_[0], alice) and group.assign_pending(keys_[1], bob)
    assert not group.assign_pending(keys_[0], bob), "two consumers must not share one pending entry"
    assert not group.assign_pending(keys_[0], alice) and not group.assign_pending(encode_key(9, 9), alice)
    assert group.orphans() == 2
    with pytest.raises(AssertionError, match="owner"):
        group.check()
    group.assign_pending(keys_[2], alice)
    group.assign_pending(keys_[3], alice)
    group.check()
    assert [entry.delivery_count for _, entry in alice.pel.items()] == [3, 3, 3]


def test_counters_wrap_alike_at_both_speeds() -> None:
    group = Group(b"g", 0, 0, (1 << 63) - 1)
    group.load_pending(encode_key(1, 1), 0, (1 << 64) - 1)
    entry = group.find_pending(encode_key(1, 1))
    entry.redelivered(1)
    assert entry.delivery_count == 0
    stream = Stream()
    stream.append([b"f", b"v"], 0, 1, 1, 0, 4096, 100)
    assert stream.lag(group) == 1 - ((1 << 63) - 1)
    stream.advance_group(group, 1, 0)
    assert group.entries_read == -(1 << 63)
    assert not stream.advance_group(group, 1, 0)


def drop_a_group() -> Consumer:
    """Return a consumer whose group, and all else of it, was let go."""
    stream = Stream()
    group = stream.create_group(b"g", 0, 0, 0)
    alice = group.create_consumer(b"alice", 1)
    for ms in range(100):
        group.add_pending(encode_key(ms, 0), alice, 1)
    return alice


def test_a_dropped_group_leaves_no_ring_behind() -> None:
    gc.collect()
    gc.disable()
    try:
        alice = drop_a_group()
        assert alice.pel.numele == 0
        # Only this name and the call's argument are left: no pending entry refers to the consumer.
        assert sys.getrefcount(alice) == 2
        stream = Stream()
        group = stream.create_group(b"g", 0, 0, 0)
        bob = group.create_consumer(b"bob", 1)
        group.add_pending(encode_key(1, 0), bob, 1)
        assert sys.getrefcount(bob) == 4
        assert group.delete_consumer(b"bob") == 1 and sys.getrefcount(bob) == 2
    finally:
        gc.enable()
