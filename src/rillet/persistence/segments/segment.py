"""A segment: a file with consecutive nodes of one stream, written once and never changed.

    header    16 bytes    magic, version
    nodes                 each node's listpack, byte for byte as in memory, one behind the other
    index     64 bytes    for each node: first and last ID, where it lies, entries, tombstones, checksum
    footer    64 bytes    the totals, where the index lies, and checksums of the index and of the footer itself

A reader needs the footer to open a segment, the index to find a node (`NodeSource`: key, living, find), and the node.
It checks each part when it reads it: the checksum of the footer covers that of the index, which covers those of the
nodes, so one number identifies the content of the whole file. A damaged part makes only what it describes unreadable,
with a SegmentUnreadable that names the file and the IDs.

A writer appends nodes to a file with another name, which gets the index and the footer, is synced and renamed; then the
folder is synced. So a segment with its right name is complete.

The index of a segment is read when it is needed, and dropped when `IndexCache` needs the room: 1.6 % of the size of
nodes of 4 KiB.

Any process may read a segment, because nobody changes it: Spark's tasks do, by `blocks`, many nodes with one read. They
get the reference from the owner of the store (RILLET.XSEGMENTS).
"""

from __future__ import annotations

import contextlib
import re
import struct
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple
from zlib import crc32

from rillet.errors import Corrupt, SegmentUnreadable
from rillet.persistence.disk import Disk, DiskFile, write_all
from rillet.structs.listpack import Listpack
from rillet.types.stream.id import encode_key
from rillet.types.stream.validation import LivingEntries

MAGIC: Final = b"RILLETSG"
VERSION: Final = 1
HEADER: Final = struct.Struct("<8sII")
"""magic, version, 0"""
ROW: Final = struct.Struct("<16s16sQQIIII")
"""first ID, last ID (both as in the tree: big endian), offset, entries of the nodes before, bytes, entries, tombstones,
CRC-32 of the node"""
FOOTER: Final = struct.Struct("<QQQQQI16sI")
"""nodes, entries, tombstones, offset of the index, time in ms, CRC-32 of the index, zeroes, CRC-32 of the footer"""
PART: Final = ".part"
_WRITE: Final = 1 << 18
_READ: Final = 1 << 18  # small enough for a processor's cache
_REFERENCE = re.compile(rb"(\d{10}\.segment) (\d{1,18}) (\d{1,18}) (\d{1,18}) (\d{1,10})")
_NO_ROOM: Final = b"\0" * 16


class Sealed(NamedTuple):
    """What a reader must find: nodes, entries, bytes of the file, and the checksum of its footer."""

    nodes: int
    entries: int
    size: int
    checksum: int


def parse_reference(reference: bytes) -> tuple[str, Sealed]:
    """Return the file's name and content that `Segment.reference` names. Raise Corrupt if it is malformed."""
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise Corrupt(f"a reference to a segment expected, found {reference[:80]!r}")
    sealed = Sealed(*(int(number) for number in match.groups()[1:]))
    if not sealed.nodes or sealed.size < sealed.nodes:
        raise Corrupt("a reference to a segment without nodes")
    return match[1].decode(), sealed


class SegmentWriter:
    """Writes one segment. `add` the nodes in the order of their IDs, then `finish` it, or `abandon` it."""

    def __init__(self, disk: Disk, path: Path, now: int) -> None:
        """Begin the file with another name; now: ms since the epoch. OSError."""
        self._disk = disk
        self.path = path
        self._part = path.with_name(path.name + PART)
        self._now = now
        self._file: DiskFile = disk.create(self._part)
        self._pending = bytearray(HEADER.pack(MAGIC, VERSION, 0))
        self._rows: list[bytes] = []
        self._last = b""
        self._entries = self._tombstones = 0
        self.size = HEADER.size

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, key: bytes, node: Listpack) -> bool:
        """Append a node; return False for one that must stay in memory. OSError. O(bytes)

        A segment takes nodes with entries whose IDs rise, from the node's own ID on, and above those of the node
        before. Other nodes are rare: only XSETID and untrusted files make them.
        """
        seen = LivingEntries()
        if not seen.take_node(key, node) or not seen.rises or seen.set_back or not seen.count or key <= self._last:
            return False
        data = memoryview(node.buf)[: node.used]
        tombstones = node.get_int(node.next(node.first()))
        last = encode_key(seen.last_ms, seen.last_seq)
        self._rows.append(ROW.pack(key, last, self.size, self._entries, node.used, seen.count, tombstones, crc32(data)))
        self._pending += data
        self._last = last
        self._entries += seen.count
        self._tombstones += tombstones
        self.size += node.used
        if len(self._pending) >= _WRITE:
            self._write()
        return True

    def _write(self) -> None:
        write_all(self._file, self._pending)
        self._pending.clear()

    def close_data(self) -> None:
        """Write the index and the footer; the file is complete, but not yet on the disk. OSError."""
        index = b"".join(self._rows)
        footer = FOOTER.pack(
            len(self._rows), self._entries, self._tombstones, self.size, self._now, crc32(index), _NO_ROOM, 0
        )
        self._checksum = crc32(footer[:-4])
        self._pending += index
        self._pending += footer[:-4] + self._checksum.to_bytes(4, "little")
        self.size += len(index) + FOOTER.size
        self._write()

    def sync(self) -> None:
        """Put the file on the disk; needs no lock of the engine, because nobody else knows the file. OSError."""
        self._file.sync()

    def finish(self) -> Sealed:
        """Give the synced file its name; from now on a log may refer to it. OSError."""
        self._file.close()
        self._disk.rename(self._part, self.path)
        self._disk.sync_folder(self.path.parent)
        return Sealed(len(self._rows), self._entries, self.size, self._checksum)

    def abandon(self) -> None:
        """Remove the unfinished file."""
        self._file.close()
        self._disk.remove(self._part)


class FilePart(NamedTuple):
    """A part of a segment's file that is not in the system's memory: an `Absent`."""

    disk: Disk
    path: Path
    offset: int
    size: int

    def load(self) -> None:
        """Read the bytes, and forget them: the system keeps them. An error is left to the command that needs them."""
        with contextlib.suppress(OSError), self.disk.read_from(self.path) as file:
            for at in range(self.offset, self.offset + self.size, _READ):
                self.disk.read_at(file, at, min(_READ, self.offset + self.size - at))


class IndexCache:
    """The indexes that are in memory, at most `limit` bytes of them (and at least the last one that was used)."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self.hits = self.misses = 0
        self._kept: OrderedDict[Segment, int] = OrderedDict()

    def use(self, segment: Segment) -> None:
        """Note that the index of a segment was used."""
        self.hits += 1
        self._kept.move_to_end(segment)

    def keep(self, segment: Segment, size: int) -> None:
        """Note that an index was read; drop those that were not used for the longest time."""
        self.misses += 1
        self._kept[segment] = size
        self.size += size
        while self.size > self.limit and len(self._kept) > 1:
            dropped, size = self._kept.popitem(last=False)
            self.size -= size
            dropped.rest()

    def forget(self, segment: Segment) -> None:
        """Forget a segment that is closed."""
        self.size -= self._kept.pop(segment, 0)


class Segment:
    """A segment that can be read: a `NodeSource`. It keeps its file open while its index is in memory."""

    def __init__(self, disk: Disk, path: Path, sealed: Sealed, cache: IndexCache) -> None:
        self.path = path
        self.sealed = sealed
        self._disk = disk
        self._cache = cache
        self._file: BinaryIO | None = None
        self._index = b""
        self._row: Callable[..., tuple[bytes, bytes, int, int, int, int, int, int]] = ROW.unpack_from

    def __repr__(self) -> str:
        return f"<Segment {self.path.name}: {self.sealed.nodes} nodes>"

    # -- the source of nodes ---------------------------------------------------------------------------

    def reference(self) -> bytes:
        """Return the name of the file and what it must contain, for `SegmentFolder.open`."""
        return " ".join([self.path.name, *map(str, self.sealed)]).encode()

    def matches(self, number: int, node: Listpack) -> bool:
        """Return whether a node in memory has the bytes of this one. O(bytes)"""
        row = self._row_of(number)
        return node.used == row[4] and crc32(memoryview(node.buf)[: node.used]) == row[7]

    def key(self, number: int) -> bytes:
        """Return the first ID of a node."""
        index = self._used()
        at = ROW.size * number
        if not 0 <= at < len(index):
            raise IndexError("the segment has no node of this number")
        return index[at : at + 16]

    def living(self, number: int) -> int:
        """Return the number of entries of a node that are not tombstones."""
        return self._row_of(number)[5]

    def living_of(self, first: int, count: int) -> int:
        """Return the number of entries of `count` nodes. O(1)"""
        after = self.sealed.entries if first + count == self.sealed.nodes else self._row_of(first + count)[3]
        return after - self._row_of(first)[3]

    def bytes_of(self, first: int, count: int) -> int:
        """Return the bytes of `count` nodes at their average size, without the index. O(1)"""
        nodes = self.sealed.nodes
        total = max(self.sealed.size - HEADER.size - FOOTER.size - nodes * ROW.size, 0)
        return total * (first + count) // nodes - total * first // nodes

    def find(self, key: bytes) -> int:
        """Return the number of the last node whose first ID is at most `key`, -1 if there is none. O(log nodes)"""
        index, size = self._used(), ROW.size
        return bisect_right(range(self.sealed.nodes), key, key=lambda at: index[size * at : size * at + 16]) - 1

    def last_id(self, number: int) -> int:
        """Return the ID of the last entry of a node that is not a tombstone, as 128 bits."""
        return int.from_bytes(self._row_of(number)[1], "big")

    def place(self, number: int) -> tuple[int, int]:
        """Return the first and the last offset + 1 of a node."""
        _, _, offset, _, size, *_ = self._row_of(number)
        return offset, offset + size

    def node(self, number: int) -> Listpack:
        """Read a node. Raise SegmentUnreadable if its bytes are missing or damaged."""
        _, _, offset, _, size, _, _, checksum = self._row_of(number)
        data = self._read(offset, size, number)
        if crc32(data) != checksum:
            raise self._damaged(offset, number)
        return Listpack.from_bytes(data, False)

    def blocks(self, first: int, count: int) -> Iterator[tuple[bytearray, list[tuple[bytes, int, int]]]]:
        """Yield consecutive nodes, many with one read: a buffer, and each node's key, and its place and size in it.

        The buffer is always the same: decode its nodes before the next step. Raise SegmentUnreadable if the file is
        missing or damaged; the nodes that were yielded before are sound.
        """
        rows = list(ROW.iter_unpack(self._used()[ROW.size * first : ROW.size * (first + count)]))
        buffer = bytearray()
        at = 0
        while at < len(rows):
            begin, size, end = rows[at][2], 0, at
            while end < len(rows) and size < _READ:
                size += rows[end][4]
                end += 1
            if size > len(buffer):
                buffer = bytearray(max(size, _READ + (_READ >> 2)))
            nodes = []
            with memoryview(buffer) as view:
                self._read_into(begin, view[:size], first + at)
                for number in range(at, end):
                    key, _, offset, _, size, _, _, checksum = rows[number]
                    if crc32(view[offset - begin : offset - begin + size]) != checksum:
                        raise self._damaged(offset, first + number)
                    nodes.append((key, offset - begin, size))
            yield buffer, nodes
            at = end

    def size(self, number: int) -> int:
        """Return the bytes of a node."""
        return self._row_of(number)[4]

    def absent(self, first: int, count: int) -> FilePart | None:
        """Return the part of the file with `count` nodes, or, if first is -1, with the index, if the disk must read it.

        A file that cannot be opened is not absent: the command that needs it reports the error.
        """
        if first < 0 and self._index:
            return None
        if first < 0:
            size = self.sealed.nodes * ROW.size + FOOTER.size
            part = FilePart(self._disk, self.path, self.sealed.size - size, size)
        else:
            start, last = self._row_of(first)[2], self._row_of(first + count - 1)
            part = FilePart(self._disk, self.path, start, last[2] + last[4] - start)
        try:
            return None if self._disk.is_cached(self._opened(), part.offset, part.size) else part
        except OSError:
            return None

    # -- the file --------------------------------------------------------------------------------------

    def _checked_footer(self) -> int:
        """Return the checksum of the index. Raise SegmentUnreadable if this is not the segment that was sealed."""
        sealed = self.sealed
        try:
            if self._disk.size(self.path) != sealed.size:
                raise SegmentUnreadable(f"{self.path}: a segment of {sealed.size} bytes is expected")
            found, checksum = _footer_of(self._disk, self._opened(), self.path, sealed.size)
        except FileNotFoundError:
            raise SegmentUnreadable(f"{self.path}: this segment of a stream is missing") from None
        except OSError as error:
            raise SegmentUnreadable(f"{self.path}: this segment cannot be read: {error.strerror}") from error
        except Corrupt as error:
            raise SegmentUnreadable(str(error)) from error
        if found != sealed:
            raise SegmentUnreadable(f"{self.path}: the footer contradicts what was sealed")
        return checksum

    def _used(self) -> bytes:
        """Return the index, from memory or from the file."""
        if self._index:
            self._cache.use(self)
            return self._index
        checksum = self._checked_footer()
        size = self.sealed.nodes * ROW.size
        at = self.sealed.size - FOOTER.size - size
        index = self._read(at, size, "the index")
        if crc32(index) != checksum:
            raise SegmentUnreadable(f"{self.path}: offset {at}: the index of the segment is damaged")
        self._index = index
        self._cache.keep(self, size)
        return index

    def _row_of(self, number: int) -> tuple[bytes, bytes, int, int, int, int, int, int]:
        index = self._used()
        if not 0 <= number < self.sealed.nodes:
            raise IndexError("the segment has no node of this number")
        return self._row(index, ROW.size * number)

    def _opened(self) -> BinaryIO:
        if self._file is None:
            self._file = self._disk.read_from(self.path)
        return self._file

    def _damaged(self, offset: int, number: int) -> SegmentUnreadable:
        return SegmentUnreadable(f"{self.path}: offset {offset}: {self._named(number)} is damaged")

    def _named(self, part: str | int) -> str:
        """Name a part of the file; a node by its entries."""
        if isinstance(part, str):
            return part
        keys = self._row_of(part)[:2]
        ids = " to ".join(f"{int.from_bytes(key[:8], 'big')}-{int.from_bytes(key[8:], 'big')}" for key in keys)
        return f"the node with the entries {ids}"

    def _read(self, offset: int, size: int, part: str | int) -> bytes:
        if offset + size > self.sealed.size:
            raise SegmentUnreadable(f"{self.path}: the index says that {self._named(part)} is outside of the file")
        try:
            data = self._disk.read_at(self._opened(), offset, size)
        except OSError as error:
            raise self._unreadable(offset, part, error) from error
        if len(data) != size:
            raise self._short(offset + len(data), part)
        return data

    def _read_into(self, offset: int, buffer: memoryview, part: str | int) -> None:
        try:
            size = self._disk.read_into(self._opened(), offset, buffer)
        except OSError as error:
            raise self._unreadable(offset, part, error) from error
        if size != len(buffer):
            raise self._short(offset + size, part)

    def _unreadable(self, offset: int, part: str | int, error: OSError) -> SegmentUnreadable:
        reason = f"{self._named(part)} cannot be read: {error.strerror}"
        return SegmentUnreadable(f"{self.path}: offset {offset}: {reason}")

    def _short(self, offset: int, part: str | int) -> SegmentUnreadable:
        return SegmentUnreadable(f"{self.path}: offset {offset}: the file ends in {self._named(part)}")

    def rest(self) -> None:
        """Drop the index and close the file; the next use opens it again."""
        self._index = b""
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        """Free what the segment holds."""
        self._cache.forget(self)
        self.rest()


def read_segment(disk: Disk, path: Path) -> Sealed:
    """Return what a file says about itself, for tools that have no reference to it. Raise Corrupt, OSError."""
    with disk.read_from(path) as file:
        return _footer_of(disk, file, path, disk.size(path))[0]


def _footer_of(disk: Disk, file: BinaryIO, path: Path, size: int) -> tuple[Sealed, int]:
    """Check the header and the footer; return what the footer says, and the checksum of the index."""
    if size < HEADER.size + FOOTER.size:
        raise Corrupt(f"{path}: the file is too short for a segment")
    header, at = disk.read_at(file, 0, HEADER.size), size - FOOTER.size
    footer = disk.read_at(file, at, FOOTER.size)
    if len(header) != HEADER.size or len(footer) != FOOTER.size:
        raise Corrupt(f"{path}: the file became shorter")
    magic, version, _ = HEADER.unpack(header)
    if magic != MAGIC:
        raise Corrupt(f"{path}: offset 0: this is not a segment")
    if version != VERSION:
        raise Corrupt(f"{path}: offset 8: a segment of version {version}; this rillet reads version {VERSION}")
    nodes, entries, _, index_at, _, of_index, _, own = FOOTER.unpack(footer)
    if crc32(footer[:-4]) != own or index_at + nodes * ROW.size != at:
        raise Corrupt(f"{path}: offset {at}: the footer of the segment is damaged")
    return Sealed(nodes, entries, size, own), of_index


__all__ = ["IndexCache", "Sealed", "Segment", "SegmentWriter", "parse_reference", "read_segment"]
