"""The manifest of an archive: the list of its files, and the source's offset after them, as a base and increments.

    _rillet/manifest.json                the base: the whole manifest after some commit
    _rillet/commits/000000000018.json    an increment: the changes of commit 18 ...
    _rillet/commits/000000000019.json    ... and of commit 19, the newest

A commit writes one increment, whose size does not depend on the number of files. After MOST_INCREMENTS of them, or when
they are as large as the base, a commit writes a new base instead, and the older increments are removed. So the cost of
the bases is spread over the commits between them. docs/formats/archive.md documents both texts.

In memory, `FileTable` finds the last ID of a stream, the files of a folder, and the folders that changed, without
looking at all files. The manifest of a commit takes over the table of the manifest before it.

Format 1, of earlier versions, is a base only. It is read; the next commit writes a base of format 2. A base of format 3
also has the partition columns, if they are not date and stream; the values follow the size of a file.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rillet.types.stream.id import StreamID

FORMAT = 2
PARTITIONED = 3  # the base of an archive with partition columns of its own
OLDEST = 1
Value = str | int | bool | None  # of a partition column
MOST_INCREMENTS = 1000
FEW_INCREMENTS = 16  # so many are kept also if they are larger than the base


class Part(NamedTuple):
    """A Parquet file with entries of one stream and one day: its path, IDs, rows and bytes."""

    path: str  # path relative to the archive's folder
    stream: str
    day: int | None  # days since 1970; None beyond the year 9999
    first: StreamID
    last: StreamID
    rows: int
    bytes: int
    values: tuple[Value, ...] = ()  # of the partition columns other than date and stream

    @property
    def folder(self) -> str:
        """The folder of the file, relative to the archive's folder."""
        return self.path.rpartition("/")[0]


class FileTable:
    """The files of an archive in the order of their commits, by path and by folder. Each change costs O(1) per file."""

    def __init__(self, files: Iterable[Part] = ()) -> None:
        self._files: dict[str, Part] = {}
        self._folders: dict[str, dict[str, Part]] = {}
        self._lasts: dict[str, StreamID] = {}
        self.changed: set[str] = set()  # the folders that changed since compaction last looked at them
        self.add(files)

    def __iter__(self) -> Iterator[Part]:
        return iter(self._files.values())

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def add(self, files: Iterable[Part]) -> None:
        """Add files."""
        for file in files:
            folder = file.folder
            self._files[file.path] = file
            self._folders.setdefault(folder, {})[file.path] = file
            self.changed.add(folder)
            if file.last > self._lasts.get(file.stream, _NONE):
                self._lasts[file.stream] = file.last

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files that other files replace; the last ID of their stream stays the same."""
        for path in paths:
            folder = self._files.pop(path).folder
            del self._folders[folder][path]
            self.changed.add(folder)

    def undo(self, added: Iterable[Part], removed: Iterable[Part], lasts: dict[str, StreamID]) -> None:
        """Take back the changes of a commit that failed; lasts: the last IDs of the added files' streams before it."""
        self.remove([file.path for file in added])
        self.add(removed)
        for stream, last in lasts.items():
            if last == _NONE:
                self._lasts.pop(stream, None)
            else:
                self._lasts[stream] = last

    def select(self, paths: Iterable[str]) -> list[Part]:
        """Return the files with the given paths."""
        return [self._files[path] for path in paths]

    def in_folder(self, folder: str) -> list[Part]:
        """Return the files of a folder."""
        return list(self._folders.get(folder, {}).values())

    def folders(self) -> list[str]:
        """Return the folders that have files."""
        return [folder for folder, files in self._folders.items() if files]

    def last(self, stream: str) -> StreamID:
        """Return the ID of a stream's last archived entry; 0-0 if no entry is archived."""
        return self._lasts.get(stream, _NONE)

    def streams(self) -> list[str]:
        """Return the streams that have archived entries, sorted."""
        return sorted(self._lasts)


_NONE = StreamID(0, 0)


@dataclass(frozen=True)
class ArchiveManifest:
    """The manifest of an archive after a commit: the archive's files, and the source's offset after them."""

    commit: int = 0
    schema: str = ""  # The schema of the rows, as Spark's JSON.
    offset: dict[str, Any] = field(default_factory=dict)  # The source's offset after the last commit.
    files: FileTable = field(default_factory=FileTable)
    place: dict[str, str] = field(default_factory=dict)
    swap: dict[str, str] = field(default_factory=dict)
    replaced: dict[str, float] = field(default_factory=dict)
    foreign: int = 0  # files of other programs in a Delta table
    partition_by: tuple[str, ...] = ()  # (): date, stream

    def last(self, stream: str) -> StreamID:
        """Return the ID of a stream's last archived entry; 0-0 if no entry is archived."""
        return self.files.last(stream)

    def held(self, stream: str) -> StreamID:
        """Return the ID up to which all entries that the stream now holds are archived; 0-0 if no entry is archived.

        This is the last archived ID, or the stored offset for a stream that was recreated with lower IDs.
        """
        position = self.offset.get("streams", {}).get(stream)
        return min(self.last(stream), _NONE if position is None else StreamID.parse(position))

    def read_up_to(self, stream: str) -> StreamID:
        """Return the ID up to which every entry of a stream is in the archive or was deleted before archiving."""
        position = self.offset.get("streams", {}).get(stream)
        return self.last(stream) if position is None else max(StreamID.parse(position), self.last(stream))

    def streams(self) -> list[str]:
        """Return the streams that have archived entries, sorted."""
        return self.files.streams()


class ArchiveChange(NamedTuple):
    """The changes of one commit to a manifest, and the steps that remain after the commit."""

    added: Sequence[Part]
    removed: Sequence[str] = ()  # paths of files that added files replace
    at: float = 0.0  # the time of the removal
    offset: dict[str, Any] | None = None  # None: unchanged
    schema: str | None = None
    place: dict[str, str] = {}
    swap: dict[str, str] = {}

    def applied(self, manifest: ArchiveManifest) -> ArchiveManifest:
        """Return the manifest after this change; it takes over the given manifest's table of files."""
        manifest.files.remove(self.removed)
        manifest.files.add(self.added)
        gone = dict.fromkeys(self.removed, self.at)
        return replace(
            manifest,
            commit=manifest.commit + 1,
            schema=manifest.schema if self.schema is None else self.schema,
            offset=manifest.offset if self.offset is None else self.offset,
            place=self.place,
            swap=self.swap,
            replaced={**manifest.replaced, **gone} if gone else manifest.replaced,
        )


# ---- texts ----------------------------------------------------------------------------------------------------------


def base_text(manifest: ArchiveManifest) -> bytes:
    """Return the text of a base: the whole manifest, one file on each line. O(files)"""
    head = {
        "format": PARTITIONED if manifest.partition_by else FORMAT, "commit": manifest.commit,
        "schema": manifest.schema, "offset": manifest.offset, "place": manifest.place, "swap": manifest.swap,
        "replaced": manifest.replaced,
    }  # fmt: skip
    if manifest.partition_by:
        head["partition_by"] = manifest.partition_by
    files = ",\n".join([json.dumps(_stored(file)) for file in manifest.files])
    return b'%b,\n"files": [\n%b\n]}\n' % (json.dumps(head)[:-1].encode(), files.encode())


def parse_base(text: bytes) -> tuple[int, ArchiveManifest]:
    """Return the format and the manifest of a base; raise ValueError, KeyError or TypeError if it is damaged."""
    stored = json.loads(text)
    number = int(stored["format"])
    if not OLDEST <= number <= PARTITIONED:
        raise UnknownFormat(number)
    files = [_part_of_format_1(one) for one in stored["files"]] if number == 1 else map(_part, stored["files"])
    return number, ArchiveManifest(
        int(stored["commit"]), stored["schema"], stored["offset"], FileTable(files), stored["place"], stored["swap"],
        stored["replaced"], partition_by=tuple(stored.get("partition_by", ())),
    )  # fmt: skip


def increment_text(commit: int, change: ArchiveChange) -> bytes:
    """Return the text of an increment: the changes of one commit. O(changes)"""
    stored: dict[str, Any] = {"format": FORMAT, "commit": commit, "at": change.at or time.time()}
    stored.update({name: value for name, value in change._asdict().items() if name != "at" and value})
    if change.added:
        stored["added"] = [_stored(file) for file in change.added]
    return json.dumps(stored).encode()


def parse_increment(text: bytes, commit: int) -> ArchiveChange:
    """Return the changes of an increment; raise ValueError, KeyError or TypeError if it is damaged."""
    stored = json.loads(text)
    if stored["format"] != FORMAT:
        raise UnknownFormat(stored["format"])
    if stored["commit"] != commit:
        raise ValueError(f"the increment {commit} holds commit {stored['commit']}")
    return ArchiveChange(
        [_part(one) for one in stored.get("added", ())], stored.get("removed", ()), float(stored["at"]),
        stored.get("offset"), stored.get("schema"), stored.get("place", {}), stored.get("swap", {}),
    )  # fmt: skip


class UnknownFormat(Exception):
    """The manifest has a format that this version does not read; the argument is its number."""


def _stored(file: Part) -> tuple[Any, ...]:
    return (*file[:7], *file.values)


def _part(stored: Sequence[Any]) -> Part:
    path, stream, day, first, last, rows, size, *values = stored
    return Part(path, stream, day, StreamID(*first), StreamID(*last), rows, size, tuple(values))


def _part_of_format_1(stored: dict[str, Any]) -> Part:
    return Part(**{**stored, "first": StreamID.parse(stored["first"]), "last": StreamID.parse(stored["last"])})
