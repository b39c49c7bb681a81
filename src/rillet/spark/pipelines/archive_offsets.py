"""Offsets of an archive: the position up to which each stream is archived, and its combination with a job's offset.

The manifest stores the offset of the streaming source (`spark.read.offsets.Offset`) after the last commit. Several jobs
may write different streams into one archive in turn, so a job replaces only the parts of its own streams.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rillet.spark.archive.layout import ArchiveManifest
from rillet.spark.metrics import entries_after
from rillet.spark.options import Options
from rillet.spark.read.offsets import Offset
from rillet.store.names import matches

if TYPE_CHECKING:
    from rillet.client.servers import Servers


def position_only(offset: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of an offset that the archive stores: the streams' positions, without the batch's plan."""
    return replace(Offset.parse(offset), plan=None, start=None, initial=False).json()


def merged(kept: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the archive's offset after a batch; the streams of other jobs keep their positions.

    The counters of a stream are stored with its position, so that the next run detects data loss as this run does.
    """
    before, after = (Offset.parse({"streams": {}, **one}) for one in (kept, new))
    return combined(before, after, after.streams.keys()).json()


def combined(offset: Offset, other: Offset, streams: Set[str]) -> Offset:
    """Return an offset that takes the given streams from `other` and the remaining ones from `offset`."""

    def of(one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
        return {
            **{stream: value for stream, value in one.items() if stream not in streams},
            **{stream: value for stream, value in two.items() if stream in streams},
        }

    return Offset(
        of(offset.streams, other.streams), of(offset.added, other.added),
        unread=(offset.unread - streams) | (other.unread & streams), deleted=of(offset.deleted, other.deleted),
    )  # fmt: skip


def starting_offset(manifest: ArchiveManifest, initial: dict[str, Any], options: Options) -> dict[str, Any]:
    """Return the offset at which a job starts: the archive's or, for streams not in the archive, the options' start."""
    keys, pattern = options.keys(), options.stream_pattern
    kept, first = Offset.parse({"streams": {}, **manifest.offset}), Offset.parse(initial)
    archived = {
        stream for stream in kept.streams
        if (stream in keys if keys is not None else pattern is not None and matches(pattern, stream))
    }  # fmt: skip
    if not archived:
        return initial
    new = replace(first, unread=frozenset(first.streams))  # entries lost before the first batch are not reported
    return combined(new, kept, archived).json()


def entries_behind(servers: Servers, offset: Offset) -> int:
    """Return the approximate number of entries after an offset, for the progress bar."""
    from rillet.spark.read.stream_info import stream_infos

    return sum(
        entries_after(offset.streams[stream], offset.added.get(stream), info)[0]
        for stream, info in stream_infos(servers, offset.streams).items() if info is not None
    )  # fmt: skip
