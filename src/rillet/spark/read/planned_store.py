"""What the tasks of a batch need of an embedded store, besides their ranges of IDs: the owner's socket, and the files.

    driver   RILLET.XSEGMENTS: which IDs of a stream lie in which segment
             │
    task     (after ─────────────────────────────────────────────── last]      a range of IDs
               owner │    segment 1    │ owner │    segment 2     │ owner      `pieces`: in the order of the IDs
                     nodes 0 to 8191             nodes 12 to 900

The option `path` names a store on this machine, so its files are here, too: segments.py reads them without the owner.
Entries that are in the owner's memory come from the owner.

**The snapshot.** The owner's reply and the files together are the stream at one moment: segments never change, and a
node from which an entry is deleted leaves its segment first. So what is deleted or trimmed after the planning is still
read from the files.

**A file may be gone**, or damaged: the owner removes a segment some time after its last use, but not before the hold of
HOLD_MS ends. A task that cannot read a file, or finds another one of that name, reads the rest of the piece from the
owner, as if it had never been in a file: the owner returns the entries, or the error that names the file; trimmed
entries are skipped, or reported if the query notices data loss (trim_detection.py).

A range of fewer than FEW_NODES nodes is read from the owner: many deletions in a segment leave many such ranges, and
each piece costs a request or a look at an index.

Rejected: the segments in the offset of a streaming query (a batch that is repeated later must be right without the
files), and a task for each segment (the tasks must stay those of the plan, see offsets.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rillet.client.servers import Servers
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.option_types import before
from rillet.spark.options import Options
from rillet.spark.read.metadata import id_text
from rillet.spark.read.offsets import Part, Task
from rillet.types.stream.id import StreamID

HOLD_MS = 600_000
FEW_NODES = 8


class SealedRange(NamedTuple):
    """All entries of a stream from `first` up to `last`: the nodes `number` to `number + nodes - 1` of a segment."""

    first: StreamID
    last: StreamID
    reference: bytes
    number: int
    nodes: int


class Piece(NamedTuple):
    """A part (after, last] of a range of IDs, which lies in a segment, or in the memory of the owner (None)."""

    after: StreamID
    last: StreamID
    sealed: SealedRange | None


@dataclass(frozen=True)
class PlannedStore:
    """The owner's Unix socket, the folder of the segments, and each stream's ranges in them, in the order of IDs."""

    owner: str | None
    folder: str
    sealed: Mapping[str, Sequence[SealedRange]]

    def for_task(self, task: Task) -> PlannedStore:
        """Return what one task needs; Spark sends it with the task."""
        found: dict[str, list[SealedRange]] = {}
        for stream, after, last in task:
            known = found.setdefault(stream, [])
            known += [one for one in self.sealed.get(stream, ())
                      if after < one.last and one.first <= last and one not in known[-1:]]  # fmt: skip
        return PlannedStore(self.owner, self.folder, {stream: ranges for stream, ranges in found.items() if ranges})

    def pieces(self, part: Part) -> Iterator[Piece]:
        """Divide a range of IDs into what lies in segments and what does not, in the order of the IDs."""
        stream, after, last = part
        for one in self.sealed.get(stream, ()):
            begin, end = max(after, before(one.first)), min(last, one.last)
            if begin >= end:
                continue
            if after < begin:
                yield Piece(after, begin, None)
            yield Piece(begin, end, one)
            after = end
        if after < last:
            yield Piece(after, last, None)


def planned_store(options: Options, servers: Servers, tasks: Sequence[Task]) -> PlannedStore | None:
    """Ask the owner of a store for the segments of the tasks' streams, and to hold them; None for a server by url."""
    bounds: dict[str, tuple[StreamID, StreamID]] = {}
    for stream, after, last in (part for task in tasks for part in task):
        low, high = bounds.get(stream, (after, last))
        bounds[stream] = min(low, after), max(high, last)
    if options.path is None or not bounds:
        return None
    hold = b"HOLD", b"%d" % HOLD_MS
    requests = [
        (stream.encode(), (b"RILLET.XSEGMENTS", stream.encode(), id_text(after), id_text(last), *hold))
        for stream, (after, last) in bounds.items()
    ]
    folder, found = b"", {}
    for stream, reply in zip(bounds, servers.each(requests), strict=True):
        if reply and not isinstance(reply, ReplyError):  # a server may reject the command: then all is read from it
            folder = reply[0]
            found[stream] = [
                SealedRange(StreamID.parse(first), before(StreamID.parse(following)), reference, number, nodes)
                for first, reference, number, nodes, following in reply[1:]
                if nodes >= FEW_NODES
            ]
    return PlannedStore(servers.connection(b"").address.unix, os.fsdecode(folder), found)
