"""The segments of a log: the folder `segments` beside its files.

    appendonlydir/segments/
      0000000001.segment      a segment (segment.py)
      0000000002.segment.part one that is being written, or was when the process ended
      stream-memory           the limit in bytes, for the next opening without the setting
      stream-compression      none or zstd, likewise

A segment is in use while a stream has a range of it, or the files of the log refer to it: the base by its ranges
(types.rdb.stream.save_sealed), later files by RILLET.SEAL. `reference` names the file, the number of nodes and entries,
its size and its checksum, so a file that was replaced is not taken for the right one.

A reader outside of this process may have a segment held (RILLET.XSEGMENTS): its file stays for a while after its last
use. A hold is not stored, so a reader must expect that the file is gone.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Protocol

from rillet.persistence.aof.folder import SEGMENTS
from rillet.persistence.disk import Disk, write_file
from rillet.persistence.segments.segment import PART, IndexCache, Sealed, Segment, SegmentWriter, parse_reference

SUFFIX: Final = ".segment"
LIMIT: Final = "stream-memory"
COMPRESSION: Final = "stream-compression"
_SEGMENT: Final = 2048  # bytes of the objects of a segment
INDEX_BYTES: Final = 16 << 20
"""The bytes of the indexes in memory."""


class Closing(Protocol):
    """What can be closed."""

    def close(self) -> None:
        """Close it."""


def with_segments(paths: list[Path]) -> list[Path]:
    """Return the files of a log, and the segments beside them."""
    return [*paths, *sorted((paths[0].parent / SEGMENTS).glob(f"*{SUFFIX}"))] if paths else paths


class SegmentFolder:
    """The segments beside a log. A segment that was opened stays open, and its file is read when it is needed."""

    def __init__(self, disk: Disk, log: Path) -> None:
        """log: the folder of the log's files."""
        self.path = log / SEGMENTS
        self.cache = IndexCache(INDEX_BYTES)
        self._disk = disk
        self._open: dict[str, Segment] = {}
        self._files: Closing | None = None
        self._held: dict[str, int] = {}  # until when, in ms
        # A tool that only loads a log does not close its engine.
        weakref.finalize(self, _close, self._open)
        self._last = max((int(name[:10]) for name in self.names()), default=0)

    def memory(self) -> int:
        """Return about how many bytes the segments take in memory: what is read of their indexes, and their objects."""
        return self.cache.size + self.cache.directory_bytes + _SEGMENT * len(self._open)

    def names(self) -> list[str]:
        """Return the names of the complete segments."""
        return [name for name in self._disk.names(self.path) if re.fullmatch(r"\d{10}\.segment", name)]

    def open(self, reference: bytes) -> Segment:
        """Return the segment that a reference names, without a look at its file. Raise Corrupt if it is malformed."""
        return self._segment(*parse_reference(reference))

    def _segment(self, name: str, sealed: Sealed) -> Segment:
        segment = self._open.get(name)
        if segment is None or segment.sealed != sealed:
            segment = self._open[name] = Segment(self._disk, self.path / name, sealed, self.cache)
            self._last = max(self._last, int(name[:10]))
        return segment

    def begin(self, now: int, compress: Callable[[bytes], bytes] | None = None) -> SegmentWriter:
        """Begin a new segment. now: ms since the epoch; compress: what is done to each node. OSError."""
        self._disk.make_folder(self.path)
        self._last += 1
        return SegmentWriter(self._disk, self.path / f"{self._last:010}{SUFFIX}", now, compress)

    def add(self, writer: SegmentWriter, sealed: Sealed) -> Segment:
        """Return the segment that a writer has finished."""
        return self._segment(writer.path.name, sealed)

    def remove(self, names: Iterable[str]) -> None:
        """Remove segments that nothing refers to. OSError."""
        for name in names:
            segment = self._open.pop(name, None)
            if segment is not None:
                segment.close()
            self._disk.remove(self.path / name)

    def hold(self, names: Iterable[str], until: int) -> None:
        """Keep segments until a time in ms, even if no stream has them any more."""
        for name in names:
            self._held[name] = max(until, self._held.get(name, 0))

    def held(self, now: int) -> set[str]:
        """Return the segments that are held at a time in ms."""
        self._held = {name: until for name, until in self._held.items() if until > now}
        return set(self._held)

    def remove_parts(self) -> None:
        """Remove what a killed process has begun. OSError."""
        for name in self._disk.names(self.path):
            if name.endswith(PART):
                self._disk.remove(self.path / name)

    def size_of(self, names: Iterable[str]) -> int:
        """Return the bytes of the files."""
        return sum(self._disk.size(self.path / name) for name in names)

    # -- the settings ------------------------------------------------------------------------------------

    def stored_limit(self) -> int:
        """Return the limit of the last opening in bytes, 0 if there was none."""
        text = self._stored(LIMIT)
        return int(text) if re.fullmatch(rb"\d{1,18}", text) else 0

    def stored_compression(self) -> str:
        """Return how the last opening compressed nodes: none or zstd."""
        return "zstd" if self._stored(COMPRESSION) == b"zstd" else "none"

    def store_settings(self, limit: int, compression: str) -> None:
        """Store the limit and the compression for the next opening. OSError."""
        if limit != self.stored_limit():
            self._store(LIMIT, b"%d" % limit)
        if compression != self.stored_compression():
            self._store(COMPRESSION, compression.encode())

    def _stored(self, name: str) -> bytes:
        if not self._disk.exists(self.path / name):
            return b""
        with self._disk.read_from(self.path / name) as file:
            return file.read(64).strip()

    def _store(self, name: str, text: bytes) -> None:
        self._disk.make_folder(self.path)
        part = self.path / f"{name}{PART}"
        write_file(self._disk, part, [text + b"\n"])
        self._disk.rename(part, self.path / name)
        self._disk.sync_folder(self.path)

    def keep(self, files: Closing) -> None:
        """Keep files open as long as this folder is in use: those of a moment, which the owner may remove."""
        self._files = files

    def close(self) -> None:
        """Close the files."""
        _close(self._open)
        if self._files is not None:
            self._files.close()


def _close(segments: dict[str, Segment]) -> None:
    for segment in segments.values():
        segment.close()
    segments.clear()


__all__ = ["SegmentFolder", "with_segments"]
