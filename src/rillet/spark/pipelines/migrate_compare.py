"""Compares a stream on two servers: entries, counters, groups, consumers and pending entries.

Both streams are read in pages and their entries are paired by ID, so memory is one page of each stream. The digest is a
hash of the entries' RESP bytes. All servers encode an entry identically, so streams with equal digests hold equal
entries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rillet.client.errors import ConnectorError
from rillet.client.servers import Servers
from rillet.spark.options import Options
from rillet.spark.pipelines.copying import RawEntry, RawPages
from rillet.spark.pipelines.group_info import XpendingRow, pending_pages, xinfo_consumers, xinfo_groups, xinfo_stream
from rillet.types.stream.id import MAX, StreamID

REFUSE, RESUME, REPLACE = "refuse", "resume", "replace"
SMALL = 8 << 20  # streams up to this MEMORY USAGE are copied by DUMP
LAST = StreamID(MAX, MAX)
_CLOCKS = 2  # tolerance of delivery times, in milliseconds
_COUNTERS = ("length", "last-generated-id", "max-deleted-entry-id", "entries-added")


@dataclass
class StreamMigrated:
    """The result of migrating one stream: a row of the report."""

    stream: str
    target: str
    how: str = ""
    entries: int = 0
    bytes: int = 0
    groups: int = 0
    pending: int = 0
    rounds: int = 0
    digest: str = ""
    equal: bool = False
    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def note(self, text: str) -> None:
        """Add a note to the report unless it is there already."""
        if text not in self.notes:
            self.notes.append(text)


@dataclass(frozen=True)
class Plan:
    """The options of a migration, for source and target."""

    source: Options
    target: Options
    policy: str = REFUSE
    follow: bool = False
    follow_for: float | None = None
    small: int = SMALL
    verify: bool = True


class StreamPair:
    """A stream at the source and at the target; its methods only read."""

    def __init__(
        self, plan: Plan, source: Servers, target: Servers, key: bytes, to: bytes, outcome: StreamMigrated
    ) -> None:
        self.plan = plan
        self.source, self.target = source, target
        self.key, self.to = key, to
        self.outcome = outcome

    def source_info(self) -> dict[str, Any]:
        """Return the XINFO STREAM reply of the source; raise ConnectorError if the stream does not exist."""
        info = xinfo_stream(self.source, self.key)
        if info is None:
            raise ConnectorError(f"rillet: the stream {self.outcome.stream!r} does not exist at {self.source}")
        return info

    def settled(self) -> bool:
        """Return whether the counters of the stream and its groups are equal now."""
        return not self.counter_differences() and not self.group_counter_differences()

    def counter_differences(self) -> list[str]:
        """Return the differences in the stream's counters."""
        here, there = self.source_info(), xinfo_stream(self.target, self.to)
        if there is None:
            return ["the target no longer exists"]
        return [
            f"{name} is {_value(here[name])} at the source, {_value(there[name])} at the target"
            for name in _COUNTERS if name in here and name in there and here[name] != there[name]
        ]  # fmt: skip

    def group_counter_differences(self) -> list[str]:
        """Return the differences in the groups' counters; add the numbers of groups and pending entries."""
        here = {group["name"]: group for group in xinfo_groups(self.source, self.key)}
        there = {group["name"]: group for group in xinfo_groups(self.target, self.to)}
        self.outcome.groups = len(there)
        self.outcome.pending = sum(group["pending"] for group in there.values())
        wrong = [f"the group {shown(name)!r} is missing" for name in sorted(here.keys() - there.keys())]
        wrong += [f"the group {shown(name)!r} is at the target only" for name in sorted(there.keys() - here.keys())]
        for name in sorted(here.keys() & there.keys()):
            for column, value in here[name].items():
                other = there[name].get(column, value)
                if column not in ("name", "lag") and other != value:
                    values = f"{_value(value)} at the source, {_value(other)} at the target"
                    wrong.append(f"{column} of the group {shown(name)!r} is {values}")
        return wrong

    def compare_entries(self) -> list[bytes]:
        """Compare all entries of source and target; return the IDs that only the target has."""
        outcome = self.outcome
        outcome.differences = []
        extra: list[bytes] = []
        missing = other = 0
        first = b""
        digest = hashlib.sha256()
        start = StreamID(0, 0)
        outcome.entries = 0
        with (
            RawPages(self.plan.source, self.key, start, LAST) as pages,
            RawPages(self.plan.target, self.to, start, LAST) as pages_there,
        ):
            for here, there in _paired(iter(pages), iter(pages_there)):
                digest.update(b"".join([b"%b %b" % (one.id, one.body) for one in there]))
                outcome.entries += len(there)
                if here != there:
                    at_target = {one.id: one for one in there}
                    lost = [one.id for one in here if one.id not in at_target]
                    first = first or (lost[0] if lost else b"")
                    missing += len(lost)
                    other += sum(at_target.get(one.id, one) != one for one in here)
                    ours = {one.id for one in here}
                    extra += [one.id for one in there if one.id not in ours]
        outcome.digest = digest.hexdigest()
        if missing:
            outcome.differences.append(f"{missing} entries are missing, the first is {shown(first)}")
        if other:
            outcome.differences.append(f"{other} entries differ")
        if extra:
            outcome.differences.append(f"{len(extra)} entries are at the target only, the first is {shown(extra[0])}")
        return extra

    def group_differences(self, name: bytes) -> list[str]:
        """Return the differences in a group's consumers and pending entries."""
        here = {one["name"]: one["pending"] for one in xinfo_consumers(self.source, self.key, name)}
        there = {one["name"]: one["pending"] for one in xinfo_consumers(self.target, self.to, name)}
        wrong = [] if here == there else [f"the consumers of the group {shown(name)!r} differ"]
        missing = other = extra = 0
        for mine, theirs in self.paired_pending(name):
            missing += theirs is None
            extra += mine is None
            other += mine is not None and theirs is not None and not alike(mine, theirs)
        for count, state in ((missing, "missing"), (extra, "at the target only"), (other, "different")):
            if count:
                wrong.append(f"{count} pending entries of the group {shown(name)!r} are {state}")
        return wrong

    def paired_pending(self, name: bytes) -> Iterator[tuple[XpendingRow | None, XpendingRow | None]]:
        """Yield the pending entries of the source and the target, paired by ID."""
        with Servers(self.plan.target) as reading:  # a second connection: XCLAIM is sent between the pages
            mine = (one for page in pending_pages(self.source, self.key, name) for one in page)
            theirs = (one for page in pending_pages(reading, self.to, name) for one in page)
            here, there = next(mine, None), next(theirs, None)
            while here is not None or there is not None:
                if there is None or (here is not None and here.id < there.id):
                    yield here, None
                    here = next(mine, None)
                elif here is None or there.id < here.id:
                    yield None, there
                    there = next(theirs, None)
                else:
                    yield here, there
                    here, there = next(mine, None), next(theirs, None)


def shown(raw: bytes) -> str:
    """Return a name or ID for a message; bytes that are not UTF-8 are escaped."""
    return raw.decode("utf-8", "backslashreplace")


def stream_id(raw: Any) -> StreamID:
    """Parse the text of a stream ID in a server's reply."""
    return StreamID.parse(raw)


def alike(mine: XpendingRow, theirs: XpendingRow) -> bool:
    """Return whether two pending entries have equal owners, counts and (nearly) delivery times."""
    return (
        mine.consumer == theirs.consumer
        and mine.deliveries == theirs.deliveries
        and abs(mine.delivered - theirs.delivered) <= _CLOCKS
    )


def _value(value: object) -> str:
    return shown(value) if isinstance(value, bytes) else str(value)


def _paired(
    here: Iterator[list[RawEntry]], there: Iterator[list[RawEntry]]
) -> Iterator[tuple[list[RawEntry], list[RawEntry]]]:
    """Yield pairs (source entries, target entries) that cover the same range of IDs."""
    mine, theirs = next(here, []), next(there, [])
    while mine or theirs:
        if not mine or not theirs:
            yield mine, theirs
            mine, theirs = next(here, []), next(there, [])
            continue
        end, end_there = stream_id(mine[-1].id), stream_id(theirs[-1].id)
        if end == end_there:
            yield mine, theirs
            mine, theirs = next(here, []), next(there, [])
        elif end < end_there:
            cut = sum(stream_id(one.id) <= end for one in theirs)
            yield mine, theirs[:cut]
            mine, theirs = next(here, []), theirs[cut:]
        else:
            cut = sum(stream_id(one.id) <= end_there for one in mine)
            yield mine[:cut], theirs
            mine, theirs = mine[cut:], next(there, [])
