"""The folder in which received changes wait until Spark has committed their batch.

    <run>-<start>-<end>.changes     records: a line, then bytes of the stream; each ends outside MULTI
    <run>.rdb, <run>.parts          the snapshot with which a run begins, and the parts that tasks read

    <start> <end> <db> <length> <arrival, ms> <CRC-32>\n <bytes>

The last line of a file, `end <id> <db>`, names the history and the database at its end. A file gets its name when it
is complete, so a file with a name can be read by every executor. The folder is a path that all of them see, or the URL
of a file system that pyarrow knows (s3://, hdfs://, gs://).
"""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rillet.errors import RilletError
from rillet.transfer.rdb_parts import SnapshotPart, SnapshotParts, split

_NAME = re.compile(r"([0-9a-f]{12})-(\d{20})-(\d{20})\.changes")

# Snapshots, and files that are not complete.
_OTHERS = re.compile(r"\.?[0-9a-f]{12}(\.rdb|\.parts(\.draft)?|-.*\.draft)")


class Received(NamedTuple):
    """Bytes of the stream between two positions; db: the selected database before them; arrived: ms since 1970."""

    start: int
    end: int
    db: int
    arrived: int
    data: bytes


class StoredFile(NamedTuple):
    """A file of a run."""

    run: str
    start: int
    end: int

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.run}-{self.start:020}-{self.end:020}.changes"


def _file_of(name: str) -> StoredFile | None:
    found = _NAME.fullmatch(name)
    return None if found is None else StoredFile(found[1], int(found[2]), int(found[3]))


class Storage:
    """The files of one folder."""

    def __init__(self, folder: str) -> None:
        from pyarrow import fs

        if "://" in folder:
            self._fs, self._root = fs.FileSystem.from_uri(folder)
        else:
            self._fs, self._root = fs.LocalFileSystem(), str(Path(folder).absolute())
        self.folder = folder

    def create(self) -> None:
        """Create the folder."""
        self._fs.create_dir(self._root, recursive=True)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def files(self, run: str) -> list[StoredFile]:
        """Return the files of a run, in order."""
        found = map(_file_of, self._names())
        return sorted(file for file in found if file is not None and file.run == run)

    def _names(self) -> list[str]:
        from pyarrow import fs

        selector = fs.FileSelector(self._root, allow_not_found=True)
        return [info.base_name for info in self._fs.get_file_info(selector)]

    def chain(self, run: str, offset: int, end: int | None = None) -> list[StoredFile]:
        """Return the files that continue each other from an offset, up to `end`."""
        found = []
        for file in self.files(run):
            if file.start == offset and (end is None or file.end <= end):
                found.append(file)
                offset = file.end
        return found

    def write(self, run: str, records: Sequence[Received], history: str, db: int) -> StoredFile:
        """Write a file; it exists when this returns."""
        file = StoredFile(run, records[0].start, records[-1].end)
        parts = []
        for one in records:
            head = f"{one.start} {one.end} {one.db} {len(one.data)} {one.arrived} {zlib.crc32(one.data):08x}\n"
            parts += [head.encode(), one.data]
        parts.append(f"end {history} {db}\n".encode())
        self._put(file.name, b"".join(parts))
        return file

    def _put(self, name: str, data: bytes) -> None:
        draft = self._path(f".{name}.draft")
        with self._fs.open_output_stream(draft) as out:
            out.write(data)
        self._fs.move(draft, self._path(name))

    def _get(self, name: str) -> bytes:
        with self._fs.open_input_stream(self._path(name)) as source:
            data: bytes = source.read()
            return data

    def read(self, file: StoredFile) -> Iterator[Received]:
        """Yield the records of a file; RilletError if it is damaged."""
        data, at = self._get(file.name), 0
        while True:
            line = data.find(b"\n", at)
            words = data[at : max(line, at)].split()
            if words[:1] == [b"end"]:
                return
            if len(words) != 6 or not all(word.isdigit() for word in words[:5]):
                raise RilletError(f"rillet: {self.folder}/{file.name} is damaged at byte {at}")
            start, end, db, length, arrived = map(int, words[:5])
            piece = data[line + 1 : line + 1 + length]
            if len(piece) < length or b"%08x" % zlib.crc32(piece) != words[5]:
                raise RilletError(f"rillet: {self.folder}/{file.name} is damaged at byte {at}")
            yield Received(start, end, db, arrived, piece)
            at = line + 1 + length

    def end_of(self, file: StoredFile) -> tuple[str, int]:
        """Return the history and the database at the end of a file."""
        last = self._get(file.name).rstrip(b"\n").rpartition(b"\n")[2].split()
        if len(last) != 3 or last[0] != b"end":
            raise RilletError(f"rillet: {self.folder}/{file.name} is damaged at its end")
        return last[1].decode(), int(last[2])

    # -- snapshots -------------------------------------------------------------------------------------

    def new_snapshot(self, run: str) -> Any:
        """Return a stream that takes the bytes of a snapshot; `finish_snapshot` gives it its name."""
        return self._fs.open_output_stream(self._path(f".{run}.rdb"))

    def finish_snapshot(self, run: str, part_bytes: int) -> None:
        """Divide a closed snapshot into parts, and give it its name; LogCorrupt, OSError."""
        draft = f".{run}.rdb"
        with self._fs.open_input_stream(self._path(draft)) as source:
            parts = split(source, f"{self.folder}/{draft}", part_bytes)
        self._put(f"{run}.parts", parts.json())
        self._fs.move(self._path(draft), self._path(f"{run}.rdb"))

    def parts(self, run: str) -> SnapshotParts:
        """Return the parts of the run's snapshot."""
        return SnapshotParts.parse(self._get(f"{run}.parts"))

    def snapshot_bytes(self, run: str, part: SnapshotPart) -> bytes:
        """Return the bytes of a part; RilletError if the file is shorter."""
        with self._fs.open_input_file(self._path(f"{run}.rdb")) as source:
            source.seek(part.start)
            data: bytes = source.read(part.end - part.start)
        if len(data) < part.end - part.start:
            raise RilletError(f"rillet: {self.folder}/{run}.rdb is damaged: it ends before byte {part.end}")
        return data

    def has_snapshot(self, run: str) -> bool:
        """Return whether the run's snapshot is there."""
        return f"{run}.rdb" in self._names()

    # -- after a commit ----------------------------------------------------------------------------------

    def delete_until(self, run: str, offset: int, keep: str) -> None:
        """Delete the files of a run before an offset, its snapshot, and the files of other runs except `keep`."""
        for name in self._names():
            file, of = _file_of(name), name.lstrip(".")[:12]
            if file is None and not re.fullmatch(_OTHERS, name):
                continue
            if of not in (run, keep) or (of == run and (file is None or file.end <= offset)):
                self._delete(name)

    def _delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # another driver of this query deleted it
            self._fs.delete_file(self._path(name))
