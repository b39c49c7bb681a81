"""Saves the sound parts of a stream whose RDB bytes are damaged, while the lengths in them are right.

    nodes      each one is validated alone; a damaged one is lost, with the IDs between its neighbours
    counters   computed again from the nodes that are left
    segments   each node of a range is read; those that cannot be read are lost, and the range splits around them
    groups     each pending entry is in two lists, that of the group and that of its consumer, which are compared
    producers  saved, unless one of them is damaged

**Nodes.** A node with a damaged ID is valid, but its entries are in the wrong place. So of the valid nodes, those are
saved that follow each other in order and have the most entries.

**Counters.** Lost entries count as deleted by XDEL: entries-added stays, and the greatest deleted ID rises to the end
of the last gap. So a group before a gap has an unknown lag, as after XDEL. The last ID never falls, so no ID is used
twice.

**Pending entries.** Redis leaves the pending entries of deleted entries where they are, so those of lost entries stay
too: XPENDING lists which of the lost entries had been delivered, and XAUTOCLAIM returns and removes them. A pending
entry that only one of the two lists contains is saved if the stream has the entry, because a delivery too many is
better than an entry that no consumer ever gets. If its consumer is unknown, it belongs to the consumer `salvaged`.

**Producers** (IDMP) forget the messages whose entries may be lost, so that they can send them again.

Costs: O(bytes + nodes log nodes + pending entries log pending entries).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

from rillet.errors import Corrupt, SegmentUnreadable
from rillet.persistence.segments.segment import Segment
from rillet.structs.listpack import Listpack
from rillet.types.rdb.primitives import RdbReader
from rillet.types.rdb.stream import (
    STREAM_TYPES,
    TYPE_STREAM_5,
    TYPE_STREAM_72,
    TYPE_STREAM_86,
    TYPE_STREAM_88,
    load_producers,
)
from rillet.types.stream.group import Group
from rillet.types.stream.nodes import SealedNodes
from rillet.types.stream.stream import Stream
from rillet.types.stream.validation import LivingEntries

SALVAGED = b"salvaged"
"""The consumer that gets the pending entries whose consumer is unknown."""

_U64 = (1 << 64) - 1
_MAX_I64 = (1 << 63) - 1
_END_OF_TIME = 1 << 62
_KEY = 17  # bytes of a node's ID with their length
_MOST_SHOWN = 10  # IDs in a message
_BAD = (Corrupt, IndexError, OverflowError, MemoryError)


class StreamLoss(NamedTuple):
    """Bytes of a stream that were not saved, or not used: first and last offset + 1, a description."""

    start: int
    end: int
    what: str


class SegmentLoss(NamedTuple):
    """Nodes that a segment does not contain any more: its file, first and last offset + 1, a description."""

    path: Path
    start: int
    end: int
    what: str


class _Range(NamedTuple):
    """Nodes of a stream that are in a segment: the first ID, as bytes, and which nodes."""

    key: bytes
    segment: Segment
    first: int
    nodes: int

    @property
    def id(self) -> int:
        return int.from_bytes(self.key, "big")


class _Node(NamedTuple):
    """A valid node: its place in the file, its ID as 128 bits and as bytes, its entries that are not tombstones."""

    start: int
    end: int
    id: int
    key: bytes
    data: Listpack
    entries: int
    first: int
    last: int

    @property
    def high(self) -> int:
        """The greatest ID that the next node must exceed."""
        return max(self.id, self.last)


class _Counters(NamedTuple):
    """The counters of a stream as they are stored; added is the length if the RDB type has no such counter."""

    start: int
    end: int
    length: int
    last: int
    max_deleted: int
    added: int
    first: int


class _ConsumerPart(NamedTuple):
    """A consumer as it is stored; name is None if it is damaged."""

    name: bytes | None
    seen: int
    active: int
    pending: list[int]


def salvage_stream(
    data: bytes, start: int, end: int, kind: int, is_end: bool = True
) -> tuple[Stream, list[StreamLoss]] | None:
    """Return the sound parts of the stream data[start:end], and what was lost; None if no node and no group is sound.

    kind: its RDB type. is_end: whether other records follow at `end`. If they do not, a length in the stream may be
    wrong: what follows the first contradiction is lost.
    """
    return _StreamSalvage(data, start, end, kind, is_end).run()


def salvage_sealed(
    data: bytes, start: int, end: int, source: Callable[[bytes], Segment], is_end: bool = True
) -> tuple[Stream, list[StreamLoss], list[SegmentLoss]] | None:
    """Do `salvage_stream` for a stream of TYPE_SEALED, with those nodes of its segments that can be read. O(bytes)

    source: opens a segment by its reference. The nodes stay in their segments: the stream refers to them. Corrupt,
    IndexError: what refers to the segments is damaged.
    """
    reader = RdbReader(data, start, end)
    kind = reader.byte()
    if kind not in STREAM_TYPES:
        raise Corrupt(f"RDB type {kind} is not a stream")
    ranges = []
    for _ in range(reader.length()):
        key, segment = reader.string(), source(reader.string())
        first, count, _ = reader.length(), reader.length(), reader.length()
        if len(key) != 16 or not 0 <= first < first + count <= segment.sealed.nodes:
            raise Corrupt("a range of nodes in a segment is malformed")
        ranges.append(_Range(key, segment, first, count))
    work = _StreamSalvage(data, reader.position, end, kind, is_end, ranges)
    found = work.run()
    return None if found is None else (*found, work.segment_losses)


class _StreamSalvage:
    def __init__(
        self, data: bytes, start: int, end: int, kind: int, is_end: bool, ranges: Sequence[_Range] = ()
    ) -> None:
        self.ranges = ranges
        self.segment_losses: list[SegmentLoss] = []
        self.last_sealed = 0  # the ID of the last entry that is sealed
        self.data = data
        self.reader = RdbReader(data, start, end)
        self.end = end
        self.is_end = is_end
        self.kind = kind
        self.stream = Stream()
        self.losses: list[StreamLoss] = []
        self.gaps: list[tuple[int, int]] = []  # the first and last ID that lost entries may have
        self.sound_groups = 0

    def run(self) -> tuple[Stream, list[StreamLoss]] | None:
        sound, places = self._nodes()
        counters = self._counters()
        kept = _in_order(sound, counters)
        for node in kept:
            self.stream.add_node(node.key, node.data)
        self._find_gaps(kept, places, counters)
        self._add_ranges(kept, counters)
        self._set_counters(kept, counters)
        if self.losses and not self.is_end:
            return None
        for _ in range(self._length()):
            start = self.at
            if not self._group() and not self.is_end:
                self._lose_rest(start, "the rest of a stream, with consumer groups")
                break
        if self.kind >= TYPE_STREAM_86 and self.at < self.end:
            self._producers()
        return (self.stream, self.losses) if kept or self.sound_groups or self.stream.sealed else None

    def _lose(self, start: int, what: str) -> None:
        self.losses.append(StreamLoss(start, self.at, what))

    def _lose_rest(self, start: int, what: str) -> None:
        """Report everything from an offset on as lost, instead of the parts that were read there."""
        self.losses = [loss for loss in self.losses if loss.start < start]
        self.reader.seek(self.end)
        self._lose(start, what)

    # -- the parts of the format -----------------------------------------------------------------------

    @property
    def at(self) -> int:
        return self.reader.position

    def _length(self) -> int:
        return self.reader.length()

    def _string(self) -> bytes | None:
        """Read a string; return None if it is damaged."""
        start = self.at
        self.reader.skip_string()
        try:
            return RdbReader(self.data, start, self.at).string()
        except _BAD:
            return None

    def _id(self) -> int:
        ms = self._length()
        return ms << 64 | self._length()

    def _raw_id(self) -> int:
        return int.from_bytes(self.reader.raw(16), "big")

    def _raw_ids(self) -> list[int]:
        return [self._raw_id() for _ in range(self._length())]

    def _time(self) -> int:
        """Read a time in ms; return 0 if it is impossible."""
        time = self.reader.milliseconds()
        return time if -1 <= time < _END_OF_TIME else 0

    # -- nodes -----------------------------------------------------------------------------------------

    def _nodes(self) -> tuple[list[_Node], list[tuple[int, int]]]:
        """Read the nodes; return the valid ones, and the places of all in the file."""
        sound, places = [], []
        for _ in range(self._length()):
            start = self.at
            self.reader.skip(_KEY)
            self.reader.skip_string()
            places.append((start, self.at))
            node = _valid_node(self.data, start, self.at)
            if node is not None:
                sound.append(node)
        return sound, places

    def _find_gaps(self, kept: list[_Node], places: list[tuple[int, int]], counters: _Counters) -> None:
        """Report the nodes that were not saved, neighbours together, and remember the IDs of their entries."""
        for before, after in pairwise([None, *kept, None]):
            low = 0 if before is None else before.end
            high = counters.start if after is None else after.start
            lost = [place for place in places[bisect_left(places, (low, 0)) :] if place[0] < high]
            if not lost:
                continue
            first = 0 if before is None else before.high + 1
            last = max(first, counters.last) if after is None else after.id - 1
            self.gaps.append((first, last))
            bounds = [f"after {_shown(before.high)}"] if before is not None else []
            bounds += [f"before {_shown(after.id)}"] if after is not None else []
            nodes = "a node" if len(lost) == 1 else f"{len(lost)} nodes"
            what = f"{nodes} of a stream: its entries {' and '.join(bounds)}".rstrip()
            self.losses.append(StreamLoss(lost[0][0], lost[-1][1], what))

    def _add_ranges(self, kept: list[_Node], counters: _Counters) -> None:
        """Add the nodes in segments that can be read, and report the others, neighbours together."""
        starts = sorted([*(node.id for node in kept), *(one.id for one in self.ranges)])
        for one in self.ranges:
            above = bisect_right(starts, one.id)
            last = starts[above] - 1 if above < len(starts) else max(one.id, counters.last)
            try:
                sound = [self._is_readable(one.segment, one.first + at) for at in range(one.nodes)]
            except SegmentUnreadable as error:  # its index
                where = f"from {_shown(one.id)}" + (f" to before {_shown(last + 1)}" if above < len(starts) else " on")
                what = f"{_reason(error)}: the entries {where}"
                self._lose_sealed(one, 0, one.segment.sealed.size, what, one.id, last)
                continue
            for readable, group in groupby(range(one.nodes), key=sound.__getitem__):
                run = [one.first + at for at in group]
                first, size = run[0], len(run)
                nodes = SealedNodes(one.segment, first, size, one.segment.living_of(first, size))
                if readable and self.stream.add_sealed(one.segment.key(first), nodes):
                    self.last_sealed = max(self.last_sealed, one.segment.last_id(run[-1]))
                    continue
                low, high = int.from_bytes(one.segment.key(first), "big"), one.segment.last_id(run[-1])
                what = "damaged nodes" if size > 1 else "a damaged node"
                self._lose_sealed(one, one.segment.place(first)[0], one.segment.place(run[-1])[1],
                                  f"{what}: the entries {_shown(low)} to {_shown(high)}", low, high)  # fmt: skip

    def _is_readable(self, segment: Segment, number: int) -> bool:
        key = segment.key(number)
        try:
            return LivingEntries().take_node(key, segment.node(number))
        except (SegmentUnreadable, *_BAD):
            return False

    def _lose_sealed(self, one: _Range, start: int, end: int, what: str, first: int, last: int) -> None:
        what = f"{what.removeprefix(f'{one.segment.path}: ')} of a stream"
        self.segment_losses.append(SegmentLoss(one.segment.path, start, end, what))
        self.gaps.append((first, last))

    # -- counters --------------------------------------------------------------------------------------

    def _counters(self) -> _Counters:
        start = self.at
        length, last = self._length(), self._id()
        if self.kind == TYPE_STREAM_5:
            return _Counters(start, self.at, length, last, 0, length, 0)
        first, max_deleted, added = self._id(), self._id(), self._length()
        return _Counters(start, self.at, length, last, max_deleted, added, first)

    def _set_counters(self, kept: list[_Node], counters: _Counters) -> None:
        """Compute the counters from the nodes, and report those that contradict the nodes."""
        stream = self.stream
        count = sum(node.entries for node in kept) + stream.sealed_entries
        greatest = max((node.last for node in kept), default=self.last_sealed)
        last = max(counters.last, greatest)
        added = counters.added if count <= counters.added <= _MAX_I64 else max(count, min(counters.length, _MAX_I64))
        wrong = []
        if counters.length < count or (counters.length > count and not self.gaps):
            wrong.append(f"its length {counters.length} is now {count}")
        if counters.last < greatest:
            wrong.append(f"its last ID {_shown(counters.last)} is now {_shown(greatest)}")
        if counters.added != added:
            wrong.append(f"its number of entries ever added {counters.added} is now {added}")
        if wrong:
            self.losses.append(StreamLoss(counters.start, counters.end, "counters of a stream: " + ", ".join(wrong)))
        deleted = min(last, max([counters.max_deleted, *(high for _, high in self.gaps)]))
        stream.length, stream.entries_added = count, added
        stream.last_ms, stream.last_seq = _both(last)
        stream.max_deleted_ms, stream.max_deleted_seq = _both(deleted)
        stream.settle_first()

    # -- groups ----------------------------------------------------------------------------------------

    def _group(self) -> bool:
        """Read a group, and save it with its pending entries; return whether nothing in it is damaged."""
        start = self.at
        name, last = self._string(), self._id()
        read = self._entries_read(last)
        listed = [(self._raw_id(), (self._time(), self._length())) for _ in range(self._length())]
        consumers = [self._consumer() for _ in range(self._length())]
        released = self._raw_ids() if self.kind >= TYPE_STREAM_88 else []
        group = None if name is None else self.stream.create_group(name, *_both(last), read)
        if group is None:
            what = "damaged" if name is None else "that of another group"
            self._lose(start, f"a consumer group whose name is {what}, with the last delivered ID {_shown(last)} and "
                              f"{len(listed)} pending entries")  # fmt: skip
            return False
        problems = _PendingSalvage(self.stream, group, dict(listed)).load(consumers, released)
        if len({one for one, _ in listed}) < len(listed):
            problems.append("a pending entry occurs twice")
        if problems and not self.is_end:
            self.stream.destroy_group(group.name)
        if problems:
            self._lose(start, f"the consumer group {_text(group.name)}: {'; '.join(problems)}")
        self.sound_groups += not problems
        return not problems

    def _entries_read(self, last: int) -> int:
        """Read the number of entries that a group has read; return -1 (unknown) if it is impossible."""
        if self.kind == TYPE_STREAM_5:
            return self.stream.distance_from_first(*_both(last))
        number = self._length()
        return number if number <= self.stream.entries_added else -1

    def _consumer(self) -> _ConsumerPart:
        name, seen = self._string(), self._time()
        active = self._time() if self.kind >= TYPE_STREAM_72 else seen
        return _ConsumerPart(name, seen, active, self._raw_ids())

    # -- idempotent producers --------------------------------------------------------------------------

    def _producers(self) -> None:
        start = self.at
        try:
            producers = load_producers(RdbReader(self.data, start, self.end), 0)
        except _BAD as error:
            self._lose_rest(start, f"the idempotent producers of a stream: {error}")
            return
        for pid, producer in list(producers.producers.items()):
            for iid, entry in list(producer.ids.items()):
                if any(low <= entry <= high for low, high in self.gaps):
                    producer.remove(iid)
            if not producer.order:
                del producers.producers[pid]
        self.stream.idmp = producers


class _PendingSalvage:
    """Joins the pending entries of a group with those of its consumers."""

    def __init__(self, stream: Stream, group: Group, unowned: dict[int, tuple[int, int]]) -> None:
        self.stream = stream
        self.group = group
        self.unowned = unowned  # ID -> delivery time and count: the entries of the group that no consumer had so far
        self.taken: set[int] = set()
        self.lost: list[int] = []

    def load(self, consumers: list[_ConsumerPart], released: list[int]) -> list[str]:
        """Load all pending entries about which there is no doubt, and the existing ones; return the problems."""
        problems = []
        for part in consumers:
            if part.name is None or part.name in self.group.consumers:
                what = "is damaged" if part.name is None else "occurs twice"
                problems.append(f"the name of a consumer with {len(part.pending)} pending entries {what}")
            else:
                self._load_consumer(part)
        for entry in released:
            if entry in self.unowned:
                self._load(entry, self.unowned.pop(entry))
                self.group.load_nacked(*_both(entry))
            else:
                self.lost.append(entry)
        found = sorted(entry for entry in self.unowned if self.stream.contains(*_both(entry)))
        self.lost += self.unowned.keys() - set(found)
        if found:
            consumer = self.group.find_consumer(SALVAGED) or self.group.create_consumer(SALVAGED, 0)
            consumer.active_time = max(consumer.active_time, 0)  # Redis before 7.2 has no consumers without it
            for entry in found:
                self._load(entry, self.unowned[entry])
                self.group.assign(*_both(entry), consumer)
            problems.append(f"{_ids(found)} without a consumer: now pending with the consumer {_text(SALVAGED)}")
        self.group.settle()
        if self.lost:
            problems.append(f"{_ids(sorted(set(self.lost)))} lost")
        return problems

    def _load_consumer(self, part: _ConsumerPart) -> None:
        assert part.name is not None
        consumer = self.group.create_consumer(part.name, part.seen)
        consumer.active_time = part.active
        for entry in part.pending:
            if entry in self.unowned:
                self._load(entry, self.unowned.pop(entry))
            elif entry not in self.taken and self.stream.contains(*_both(entry)):
                self._load(entry, (0, 1))  # the group's list has lost it: time and count are unknown
            else:
                self.lost.append(entry)
                continue
            self.group.assign(*_both(entry), consumer)

    def _load(self, entry: int, delivery: tuple[int, int]) -> None:
        self.taken.add(entry)
        self.group.load(*_both(entry), *delivery)


def _reason(error: SegmentUnreadable) -> str:
    return str(error).removeprefix(f"{error.prefix} ")


def _valid_node(data: bytes, start: int, end: int) -> _Node | None:
    """Return the node at an offset, None if it is damaged."""
    key = data[start + 1 : start + _KEY]
    try:
        node = Listpack.from_bytes(RdbReader(data, start + _KEY, end).string())
        entries = LivingEntries()
        if not entries.take_node(key, node) or not entries.rises:
            return None
    except _BAD:
        return None
    first, last = (entries.first_ms << 64 | entries.first_seq), (entries.last_ms << 64 | entries.last_seq)
    return _Node(start, end, int.from_bytes(key, "big"), key, node, entries.count, first, last)


def _in_order(nodes: list[_Node], counters: _Counters) -> list[_Node]:
    """Return the nodes with the most entries that follow each other in order. O(nodes log nodes)"""
    if all(one.high < other.id for one, other in pairwise(nodes)):
        return nodes
    # The best chains found so far: each one ends at a greater ID than the one before it, and weighs more.
    ends: list[int] = []
    chains: list[tuple[int, int]] = []  # weight, number of the last node
    before: list[int] = []  # the node that precedes each node in its chain
    for number, node in enumerate(nodes):
        at = bisect_left(ends, node.id)
        # Among chains with as many entries, one that agrees with the stored first and last ID is more likely.
        weight = 4 * node.entries + 1 + (node.first == counters.first) + (node.last == counters.last)
        weight += chains[at - 1][0] if at else 0
        before.append(chains[at - 1][1] if at else -1)
        at = bisect_left(ends, node.high)
        if at and chains[at - 1][0] >= weight:
            continue
        stop = at
        while stop < len(ends) and chains[stop][0] <= weight:
            stop += 1
        if stop == at and at < len(ends) and ends[at] == node.high:
            continue
        ends[at:stop], chains[at:stop] = [node.high], [(weight, number)]
    number, kept = chains[-1][1], []
    while number >= 0:
        kept.append(nodes[number])
        number = before[number]
    return kept[::-1]


def _both(entry: int) -> tuple[int, int]:
    """Return the ms and the seq of an ID of 128 bits."""
    return entry >> 64, entry & _U64


def _shown(entry: int) -> str:
    ms, seq = _both(entry)
    return f"{ms}-{seq}"


def _ids(entries: Sequence[int]) -> str:
    shown = ", ".join(map(_shown, entries[:_MOST_SHOWN])) + (", ..." if len(entries) > _MOST_SHOWN else "")
    return f"{len(entries)} pending {'entry' if len(entries) == 1 else 'entries'} ({shown})"


def _text(name: bytes) -> str:
    return repr(name.decode("utf-8", "backslashreplace"))
