"""A segment: a file with consecutive nodes of one stream, written once and never changed.

    header    16 bytes    magic, version
    nodes                 each node's listpack, byte for byte as in memory, or compressed by zstd
    index     68 bytes    for each node: first and last ID, where it lies, entries, tombstones, checksum, size
    footer    64 bytes    the totals, where the index lies, and checksums of the index and of the footer itself

A reader needs the footer to open a segment, the index to find a node (`NodeSource`: key, living, find), and the node.
It checks each part when it reads it: the checksum of the footer covers that of the index, which covers those of the
nodes, so one number identifies the content of the whole file. A damaged part makes only what it describes unreadable,
with a SegmentUnreadable that names the file and the IDs.

A writer appends nodes to a file with another name, which gets the index and the footer, is synced and renamed; then the
folder is synced. So a segment with its right name is complete.

The index of a segment, 1.7 % of the size of nodes of 4 KiB, is read as a whole once, to check it. What stays is its
directory: the first ID and a checksum of each page of 64 rows. After that a page is read, checked and kept when it is
needed, until `IndexCache` needs the room. So a node of any segment costs a search in memory and two short reads.

Any process may read a segment, because nobody changes it: Spark's tasks do, by `blocks`, many nodes with one read. They
get the reference from the owner of the store (RILLET.XSEGMENTS).
"""

from __future__ import annotations

import contextlib
import re
import struct
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias
from zlib import crc32

from rillet.errors import Corrupt, SegmentUnreadable, StoreError
from rillet.persistence.disk import Disk, DiskFile, write_all
from rillet.persistence.segments.compression import decompress
from rillet.structs.listpack import Listpack
from rillet.types.stream.id import encode_key
from rillet.types.stream.validation import LivingEntries

MAGIC: Final = b"RILLETSG"
VERSION: Final = 2
HEADER: Final = struct.Struct("<8sII")
"""magic, version, 0"""
ROW: Final = struct.Struct("<16s16sQQIIIII")
"""first ID, last ID (both as in the tree: big endian), offset, entries of the nodes before, bytes in the file, entries,
tombstones, CRC-32 of the node, bytes of the node: more than in the file if the node is compressed there"""
FOOTER: Final = struct.Struct("<QQQQQI16sI")
"""nodes, entries, tombstones, offset of the index, time in ms, CRC-32 of the index, zeroes, CRC-32 of the footer"""
_ROWS: Final = {1: struct.Struct("<16s16sQQIIII"), VERSION: ROW}
"""The rows by the version of the file. In version 1 no node is compressed."""
PART: Final = ".part"
PAGE: Final = 64
"""The rows of a page of the index."""
_FILES: Final = 64  # that are open at most
_WRITE: Final = 1 << 18
_READ: Final = 1 << 18  # small enough for a processor's cache
_REFERENCE = re.compile(rb"(\d{10}\.segment) (\d{1,18}) (\d{1,18}) (\d{1,18}) (\d{1,10})")
_NO_ROOM: Final = b"\0" * 16
_Row: TypeAlias = tuple[bytes, bytes, int, int, int, int, int, int, int]


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

    def __init__(self, disk: Disk, path: Path, now: int, compress: Callable[[bytes], bytes] | None = None) -> None:
        """Begin the file with another name; now: ms since the epoch. OSError."""
        self._compress = compress
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
        self.node_bytes = 0
        """The bytes of the nodes in memory."""

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
        stored: bytes | memoryview = data if self._compress is None else self._compress(bytes(data))
        if len(stored) >= node.used:
            stored = data
        place = (self.size, self._entries, len(stored), seen.count, tombstones)
        self._rows.append(ROW.pack(key, last, *place, crc32(data), node.used))
        self._pending += stored
        self._last = last
        self._entries += seen.count
        self._tombstones += tombstones
        self.size += len(stored)
        self.node_bytes += node.used
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
    """The pages of indexes that are in memory, at most `limit` bytes of them (and at least the last one that was used).

    The directories of the indexes, 0.5 % of the indexes, have the same limit, apart from the pages.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self.hits = self.misses = 0
        self._pages: OrderedDict[tuple[Segment, int], int] = OrderedDict()
        self._directories: OrderedDict[Segment, int] = OrderedDict()
        self.directory_bytes = 0
        self._files: OrderedDict[Segment, None] = OrderedDict()

    def use(self, segment: Segment, page: int) -> None:
        """Note that a page was used."""
        self.hits += 1
        self._pages.move_to_end((segment, page))

    def keep(self, segment: Segment, page: int, size: int) -> None:
        """Note that a page was read; drop those that were not used for the longest time."""
        self.misses += 1
        self._pages[segment, page] = size
        self.size += size
        while self.size > self.limit and len(self._pages) > 1:
            (other, number), size = self._pages.popitem(last=False)
            self.size -= size
            other.drop_page(number)

    def keep_directory(self, segment: Segment, size: int) -> None:
        """Note that a directory was made; drop the oldest ones."""
        self._directories[segment] = size
        self.directory_bytes += size
        while self.directory_bytes > self.limit and len(self._directories) > 1:
            other, size = self._directories.popitem(last=False)
            self.directory_bytes -= size
            other.drop_directory()

    def opened(self, segment: Segment) -> None:
        """Note that a file was opened; close the one that was opened before the others."""
        self._files[segment] = None
        if len(self._files) > _FILES:
            self._files.popitem(last=False)[0].close_file()

    def forget(self, segment: Segment, pages: Iterable[int]) -> None:
        """Forget a segment that is closed, with these pages."""
        for page in pages:
            self.size -= self._pages.pop((segment, page), 0)
        self.directory_bytes -= self._directories.pop(segment, 0)
        self._files.pop(segment, None)


class Segment:
    """A segment that can be read: a `NodeSource`."""

    def __init__(self, disk: Disk, path: Path, sealed: Sealed, cache: IndexCache) -> None:
        self.path = path
        self.sealed = sealed
        self._disk = disk
        self._cache = cache
        self._file: BinaryIO | None = None
        self._firsts = b""  # the directory: the first ID of each page of the index, and its CRC-32
        self._sums: list[int] = []
        self._pages: dict[int, bytes] = {}
        self._rows = ROW

    def __repr__(self) -> str:
        return f"<Segment {self.path.name}: {self.sealed.nodes} nodes>"

    # -- the source of nodes ---------------------------------------------------------------------------

    def reference(self) -> bytes:
        """Return the name of the file and what it must contain, for `SegmentFolder.open`."""
        return " ".join([self.path.name, *map(str, self.sealed)]).encode()

    def matches(self, number: int, node: Listpack) -> bool:
        """Return whether a node in memory has the bytes of this one. O(bytes)"""
        row = self._row_of(number)
        return node.used == row[8] and crc32(memoryview(node.buf)[: node.used]) == row[7]

    def key(self, number: int) -> bytes:
        """Return the first ID of a node."""
        page = self._page_of(number)
        at = self._rows.size * (number % PAGE)
        return page[at : at + 16]

    def living(self, number: int) -> int:
        """Return the number of entries of a node that are not tombstones."""
        return self._row_of(number)[5]

    def living_of(self, first: int, count: int) -> int:
        """Return the number of entries of `count` nodes. O(1)"""
        after = self.sealed.entries if first + count == self.sealed.nodes else self._row_of(first + count)[3]
        return after - self._row_of(first)[3]

    def bytes_of(self, first: int, count: int) -> int:
        """Return the bytes in the file of `count` nodes at their average size, without the index. O(1)"""
        nodes = self.sealed.nodes
        total = max(self.sealed.size - HEADER.size - FOOTER.size - nodes * ROW.size, 0)
        return total * (first + count) // nodes - total * first // nodes

    def find(self, key: bytes) -> int:
        """Return the number of the last node whose first ID is at most `key`, -1 if there is none. O(log nodes)"""
        firsts = self._directory()
        number = bisect_right(range(len(self._sums)), key, key=lambda at: firsts[16 * at : 16 * at + 16]) - 1
        if number < 0:
            return -1
        page, size = self._page(number), self._rows.size
        rows = range(len(page) // size)
        return PAGE * number + bisect_right(rows, key, key=lambda at: page[size * at : size * at + 16]) - 1

    def last_id(self, number: int) -> int:
        """Return the ID of the last entry of a node that is not a tombstone, as 128 bits."""
        return int.from_bytes(self._row_of(number)[1], "big")

    def place(self, number: int) -> tuple[int, int]:
        """Return the first and the last offset + 1 of a node."""
        _, _, offset, _, size, *_ = self._row_of(number)
        return offset, offset + size

    def node(self, number: int) -> Listpack:
        """Read a node. Raise SegmentUnreadable if its bytes are missing or damaged."""
        _, _, offset, _, stored, _, _, checksum, size = self._row_of(number)
        data = self._plain(self._read(offset, stored, number), size, number)
        if crc32(data) != checksum:
            raise self._damaged(offset, number)
        return Listpack.from_bytes(data, False)

    def blocks(self, first: int, count: int) -> Iterator[tuple[bytearray, list[tuple[bytes, int, int]]]]:
        """Yield consecutive nodes, many with one read: a buffer, and each node's key, and its place and size in it.

        The buffer is always the same: decode its nodes before the next step. Raise SegmentUnreadable if the file is
        missing or damaged; the nodes that were yielded before are sound.
        """
        rows = [self._row_of(number) for number in range(first, min(first + count, self.sealed.nodes))]
        buffer = bytearray()
        at = 0
        while at < len(rows):
            begin, stored, size, end = rows[at][2], 0, 0, at
            while end < len(rows) and size < _READ:
                stored += rows[end][4]
                size += rows[end][8]
                end += 1
            if size > len(buffer):
                buffer = bytearray(max(size, _READ + (_READ >> 2)))
            nodes = []
            with memoryview(buffer) as view:
                if stored == size:
                    self._read_into(begin, view[:size], first + at)
                else:
                    self._read_compressed(begin, stored, view, rows[at:end], first + at)
                place = 0
                for number in range(at, end):
                    key, *_, checksum, size = rows[number]
                    if crc32(view[place : place + size]) != checksum:
                        raise self._damaged(rows[number][2], first + number)
                    nodes.append((key, place, size))
                    place += size
            yield buffer, nodes
            at = end

    def _read_compressed(self, begin: int, stored: int, view: memoryview, rows: list[_Row], first: int) -> None:
        """Read consecutive nodes, some of them compressed, and put them into a buffer, one behind the other."""
        place, data = 0, self._read(begin, stored, first)
        for number, (_, _, offset, _, stored, _, _, _, size) in enumerate(rows, first):
            view[place : place + size] = self._plain(data[offset - begin : offset - begin + stored], size, number)
            place += size

    def _plain(self, stored: bytes, size: int, number: int) -> bytes:
        """Return a node from its bytes in the file."""
        if len(stored) == size:
            return stored
        try:
            return decompress(stored, size)
        except Corrupt as error:
            reason = f"offset {self._row_of(number)[2]}: {self._named(number)} is damaged: {error}"
            raise SegmentUnreadable(f"{self.path}: {reason}") from None
        except StoreError as error:
            raise SegmentUnreadable(f"{self.path}: {error}") from error

    def size(self, number: int) -> int:
        """Return the bytes of a node in the file."""
        return self._row_of(number)[4]

    def size_in_memory(self, number: int) -> int:
        """Return the bytes of a node in memory."""
        return self._row_of(number)[8]

    def absent(self, first: int, count: int) -> FilePart | None:
        """Return the part of the file with `count` nodes, or, if first is -1, with the index, if the disk must read it.

        A file that cannot be opened is not absent: the command that needs it reports the error.
        """
        if first < 0 and self._firsts:
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
            found, checksum, self._rows = _footer_of(self._disk, self._opened(), self.path, sealed.size)
        except FileNotFoundError:
            raise SegmentUnreadable(f"{self.path}: this segment of a stream is missing") from None
        except OSError as error:
            raise SegmentUnreadable(f"{self.path}: this segment cannot be read: {error.strerror}") from error
        except Corrupt as error:
            raise SegmentUnreadable(str(error)) from error
        if found != sealed:
            raise SegmentUnreadable(f"{self.path}: the footer contradicts what was sealed")
        return checksum

    def _directory(self) -> bytes:
        """Return the first ID of each page of the index, after the index was read and checked once."""
        if self._firsts:
            return self._firsts
        checksum = self._checked_footer()
        at = self._index_at()
        index = self._read(at, self.sealed.nodes * self._rows.size, "the index")
        if crc32(index) != checksum:
            raise SegmentUnreadable(f"{self.path}: offset {at}: the index of the segment is damaged")
        step = PAGE * self._rows.size
        pages = range(0, len(index), step)
        self._sums = [crc32(index[page : page + step]) for page in pages]
        self._firsts = b"".join([index[page : page + 16] for page in pages])
        self._cache.keep_directory(self, 24 * len(pages))
        return self._firsts

    def _index_at(self) -> int:
        return self.sealed.size - FOOTER.size - self.sealed.nodes * self._rows.size

    def _page(self, number: int) -> bytes:
        """Return a page of the index, from memory or from the file."""
        page = self._pages.get(number)
        if page is not None:
            self._cache.use(self, number)
            return page
        self._directory()
        at = PAGE * self._rows.size * number
        size = min(PAGE * self._rows.size, self.sealed.nodes * self._rows.size - at)
        page = self._read(self._index_at() + at, size, "the index")
        if crc32(page) != self._sums[number]:
            raise SegmentUnreadable(f"{self.path}: offset {self._index_at() + at}: the index of the segment is damaged")
        self._pages[number] = page
        self._cache.keep(self, number, size)
        return page

    def _page_of(self, number: int) -> bytes:
        """Return the page with the row of a node."""
        if not 0 <= number < self.sealed.nodes:
            raise IndexError("the segment has no node of this number")
        return self._page(number // PAGE)

    def _row_of(self, number: int) -> _Row:
        page, rows = self._page_of(number), self._rows
        row: Any = rows.unpack_from(page, rows.size * (number % PAGE))
        found: _Row = row if rows is ROW else (*row, row[4])
        return found

    def _opened(self) -> BinaryIO:
        if self._file is None:
            self._file = self._disk.read_from(self.path)
            self._cache.opened(self)
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

    def drop_page(self, number: int) -> None:
        """Forget a page of the index."""
        self._pages.pop(number, None)

    def drop_directory(self) -> None:
        """Forget the directory of the index; the next use reads the index again. The pages stay."""
        self._firsts = b""
        self._sums = []

    def close_file(self) -> None:
        """Close the file; the next read opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        """Free what the segment holds."""
        self._cache.forget(self, self._pages)
        self._pages = {}
        self.drop_directory()
        self.close_file()


def read_segment(disk: Disk, path: Path) -> Sealed:
    """Return what a file says about itself, for tools that have no reference to it. Raise Corrupt, OSError."""
    with disk.read_from(path) as file:
        return _footer_of(disk, file, path, disk.size(path))[0]


def _footer_of(disk: Disk, file: BinaryIO, path: Path, size: int) -> tuple[Sealed, int, struct.Struct]:
    """Check the header and the footer; return what the footer says, the checksum of the index, and its rows."""
    if size < HEADER.size + FOOTER.size:
        raise Corrupt(f"{path}: the file is too short for a segment")
    header, at = disk.read_at(file, 0, HEADER.size), size - FOOTER.size
    footer = disk.read_at(file, at, FOOTER.size)
    if len(header) != HEADER.size or len(footer) != FOOTER.size:
        raise Corrupt(f"{path}: the file became shorter")
    magic, version, _ = HEADER.unpack(header)
    if magic != MAGIC:
        raise Corrupt(f"{path}: offset 0: this is not a segment")
    rows = _ROWS.get(version)
    if rows is None:
        raise Corrupt(f"{path}: offset 8: a segment of version {version}; this rillet reads versions 1 to {VERSION}")
    nodes, entries, _, index_at, _, of_index, _, own = FOOTER.unpack(footer)
    if crc32(footer[:-4]) != own or index_at + nodes * rows.size != at:
        raise Corrupt(f"{path}: offset {at}: the footer of the segment is damaged")
    return Sealed(nodes, entries, size, own), of_index, rows


__all__ = ["IndexCache", "Sealed", "Segment", "SegmentWriter", "parse_reference", "read_segment"]
