"""Offsets of an archive: the ID up to which each stream is archived, and how a job continues from these IDs.

The manifest stores the offset of the streaming source (`spark.read.offsets.Offset`) after the last commit. Several jobs
may write different streams into one archive in turn, so a job replaces only the parts of its own streams.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from rillet.client.errors import ConnectorError
from rillet.spark.archive.manifest import ArchiveManifest
from rillet.spark.metrics import counted_at, evenly_spread
from rillet.spark.options import Options
from rillet.spark.read.offsets import Offset
from rillet.structs.glob import matches

if TYPE_CHECKING:
    from rillet.client.servers import Servers

FEW_ENTRIES = 100  # so few are not measured


def position_only(offset: dict[str, Any]) -> dict[str, Any]:
    """Return an offset without the plan of its batch, because the archive stores only the streams' positions."""
    return replace(Offset.parse(offset), plan=None, start=None, initial=False).json()


def merged(kept: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the archive's offset after a batch; the streams of other jobs keep their positions.

    Each position is stored with the stream's counters, from which the next run detects data loss.
    """
    before, after = (Offset.parse({"streams": {}, **one}) for one in (kept, new))
    return combined(before, after, after.streams.keys()).json()


def combined(offset: Offset, other: Offset, streams: Set[str]) -> Offset:
    """Combine two offsets: the given streams from `other`, all other streams from `offset`."""

    def joined(one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
        return {
            **{stream: value for stream, value in one.items() if stream not in streams},
            **{stream: value for stream, value in two.items() if stream in streams},
        }

    return Offset(
        joined(offset.streams, other.streams), joined(offset.added, other.added),
        unread=(offset.unread - streams) | (other.unread & streams), deleted=joined(offset.deleted, other.deleted),
        between=joined(offset.between, other.between), removed=joined(offset.removed, other.removed),
    )  # fmt: skip


def starting_offset(manifest: ArchiveManifest, initial: dict[str, Any], options: Options) -> dict[str, Any]:
    """Return the offset at which a job starts: the archive's or, for streams not in the archive, the options' start."""
    keys, pattern = options.keys(), options.stream_pattern
    kept, first = Offset.parse({"streams": {}, **manifest.offset}), Offset.parse(initial)
    archived = {
        stream for stream in kept.streams
        if (stream in keys if keys is not None else pattern is not None and matches(pattern.encode(), stream.encode()))
    }  # fmt: skip
    if not archived:
        return initial
    new = replace(first, unread=frozenset(first.streams))  # do not report entries lost before the first batch
    return combined(new, kept, archived).json()


class Behind(NamedTuple):
    """The estimated work after an offset: entries, and bytes of the server's memory."""

    entries: int
    size: float


def entries_behind(servers: Servers, offset: Offset) -> Behind:
    """Return the approximate number of entries after an offset, and their size if there are many."""
    from rillet.spark.read.metadata import mean_entry_size
    from rillet.spark.read.stream_info import stream_infos

    unread = {
        stream: (info, counted_at(offset, stream).behind(info).nearest(evenly_spread(offset.streams[stream], info)))
        for stream, info in stream_infos(servers, offset.streams).items() if info is not None
    }  # fmt: skip
    entries = sum(count for _, count in unread.values())
    if entries <= FEW_ENTRIES:
        return Behind(entries, 0.0)
    try:
        return Behind(entries, entries * mean_entry_size(servers, unread))
    except ConnectorError:  # a user without the right to run MEMORY USAGE
        return Behind(entries, 0.0)
