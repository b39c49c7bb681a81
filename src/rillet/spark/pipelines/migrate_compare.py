"""Compares a stream on two servers: entries, counters, groups, consumers and pending entries.

Both streams are read in pages, and their entries are paired by ID, so the memory is one page of each stream. The digest
in the report is a hash of the entries' RESP bytes (copying.py).
"""

from __future__ import annotations

import hashlib
import heapq
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any

from rillet.client.errors import ConnectorError
from rillet.client.servers import Servers
from rillet.spark.options import Options
from rillet.spark.pipelines.copying import RawEntry, RawPages
from rillet.spark.pipelines.group_info import (
    XpendingRow,
    pending_pages,
    shown,
    xinfo_consumers,
    xinfo_groups,
    xinfo_stream,
)
from rillet.types.stream.id import MAX, StreamID

REFUSE, RESUME, REPLACE = "refuse", "resume", "replace"  # Policies for a stream or key that the target has.
POLICIES = (REFUSE, RESUME, REPLACE)
SMALL = 8 << 20  # Streams of up to this many bytes (MEMORY USAGE) are copied by DUMP.
LAST = StreamID(MAX, MAX)
_CLOCKS = 2  # tolerance of delivery times, in milliseconds
_COUNTERS = ("length", "last-generated-id", "max-deleted-entry-id", "entries-added")


@dataclass
class StreamMigrated:
    """The result of migrating one stream, which is one row of the migration's report."""

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
        """Add a note to the migration's report, each text only once."""
        if text not in self.notes:
            self.notes.append(text)


@dataclass(frozen=True)
class Plan:
    """The options of a migration."""

    source: Options
    target: Options
    policy: str = REFUSE
    follow: bool = False
    follow_for: float | None = None
    small: int = SMALL
    verify: bool = True


class StreamPair:
    """A stream at the source and at the target of a migration; the methods compare both and change neither."""

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

    def counter_differences(self) -> list[str]:
        """Return the differences in the counters of the stream and its groups; count groups for the report."""
        here, there = self.source_info(), xinfo_stream(self.target, self.to)
        if there is None:
            return ["the target no longer exists"]
        wrong = [
            f"{name} is {_both(here[name], there[name])}"
            for name in _COUNTERS if name in here and name in there and here[name] != there[name]
        ]  # fmt: skip
        groups = {group["name"]: group for group in xinfo_groups(self.source, self.key)}
        groups_there = {group["name"]: group for group in xinfo_groups(self.target, self.to)}
        self.outcome.groups = len(groups_there)
        self.outcome.pending = sum(group["pending"] for group in groups_there.values())
        for name in sorted(groups.keys() | groups_there.keys()):
            if name not in groups_there:
                wrong.append(f"the group {shown(name)!r} is missing")
            elif name not in groups:
                wrong.append(f"the group {shown(name)!r} is at the target only")
            else:
                wrong += [
                    f"{column} of the group {shown(name)!r} is {_both(value, other)}"
                    for column, value in groups[name].items()
                    if (other := groups_there[name].get(column, value)) != value and column not in ("name", "lag")
                ]
        return wrong

    def compare_entries(self) -> list[bytes]:
        """Compare all entries of the stream at source and target; return the IDs that only the target has."""
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
        """Yield the pending entries of a group at the source and at the target, paired by ID."""
        with Servers(self.plan.target) as reading:  # a second connection: the caller sends XCLAIM between the pages
            here, there = pending_pages(self.source, self.key, name), pending_pages(reading, self.to, name)
            merged = heapq.merge(
                ((one.id, "here", one) for page in here for one in page),
                ((one.id, "there", one) for page in there for one in page),
            )
            for _, rows in groupby(merged, key=itemgetter(0)):
                both = {side: one for _, side, one in rows}
                yield both.get("here"), both.get("there")


def alike(mine: XpendingRow, theirs: XpendingRow) -> bool:
    """Return whether two pending entries have the same consumer and delivery count, and delivery times within 2 ms."""
    return (
        mine.consumer == theirs.consumer
        and mine.deliveries == theirs.deliveries
        and abs(mine.delivered - theirs.delivered) <= _CLOCKS
    )


def _both(here: object, there: object) -> str:
    """Return the two values of a counter as text: <value> at the source, <value> at the target."""
    mine, theirs = (shown(value) if isinstance(value, bytes) else str(value) for value in (here, there))
    return f"{mine} at the source, {theirs} at the target"


def _paired(
    here: Iterator[list[RawEntry]], there: Iterator[list[RawEntry]]
) -> Iterator[tuple[list[RawEntry], list[RawEntry]]]:
    """Yield pairs of lists: the source's and the target's entries in the same range of IDs."""
    mine, theirs = next(here, []), next(there, [])
    while mine or theirs:
        end = min(StreamID.parse(page[-1].id) for page in (mine, theirs) if page)
        cut, cut_there = (bisect_right(page, end, key=_id) for page in (mine, theirs))
        yield mine[:cut], theirs[:cut_there]
        mine, theirs = mine[cut:] or next(here, []), theirs[cut_there:] or next(there, [])


def _id(entry: RawEntry) -> StreamID:
    return StreamID.parse(entry.id)


def places(servers: Servers) -> set[tuple[bytes, int]]:
    """Return identifiers of the servers' data sets; two addresses of the same data set have an identifier in common."""
    identifiers = set()
    for connection in servers.masters():
        for reply in connection.replies([(b"INFO", b"server"), (b"INFO", b"replication")]):
            for line in reply.splitlines() if isinstance(reply, bytes) else ():  # an error if an ACL forbids INFO
                if line.startswith((b"run_id:", b"master_replid:")):
                    identifiers.add((line, connection.address.db))
    return identifiers
