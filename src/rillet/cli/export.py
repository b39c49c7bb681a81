"""`rillet export PATH OUT.rdb [--rdb-version N]`: write the data of a store, a log or an RDB file as an RDB file.

PATH is the directory of a store or a server, the folder or the manifest of a log, a log of one file, or an RDB file.
It is not changed. OUT.rdb has the oldest version that can store everything, or the requested one, so that an older
server can load it:

    version     9               10         11              12         13         14         80
    loaded by   Redis 5 and 6   Redis 7.0  Redis 7.2,      Redis 7.4  Redis 8.6  Redis 8.8  Valkey 9
    and newer                              Valkey 7.2, 8   and 8.0

Data that the version cannot store is omitted and reported per value. A change of encoding that loses nothing, such as
from listpack to ziplist, is not reported. Function libraries and modules' data are copied.

Exit status: 0 everything was written, or omissions are accepted (--lossy); 3 the file is written, but data was omitted;
1 the source is damaged or has data that rillet cannot read; 2 there is nothing to export, or OUT.rdb cannot be written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from rillet.cli.output import guarded, json_argument
from rillet.errors import LogCorrupt, StoreError
from rillet.persistence.aof.loader import replay
from rillet.persistence.aof.manifest import read_manifest
from rillet.persistence.checking import MANY_DATABASES, NOT_LOADED, held
from rillet.persistence.disk import Disk, DiskFile
from rillet.persistence.rdb.reader import Unknown, load_rdb
from rillet.persistence.rdb.records import HEADER, MAGICS
from rillet.persistence.rdb.writer import OLDEST_VERSION, Lost, write_rdb
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.store.display.json_line import print_json
from rillet.store.display.progress import ProgressBar
from rillet.types.rdb.value import NEWEST_VERSION, can_write

CARRIED, DAMAGED, LEFT_OUT = 0, 1, 3

_READERS = {
    9: "Redis 5.0 and newer, Valkey", 10: "Redis 7.0 and newer, Valkey", 11: "Redis 7.2 and newer, Valkey",
    12: "Redis 7.4 and newer", 13: "Redis 8.6 and newer", 14: "Redis 8.8 and newer", 80: "Valkey 9 and newer",
}  # fmt: skip

Progress = Callable[[int, int], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="PATH",
                        help="a directory of a store or server, a log, or an RDB file")  # fmt: skip
    parser.add_argument("out", type=Path, metavar="OUT.rdb", help="the file to write")
    parser.add_argument("--rdb-version", type=_version, metavar="N", help="9 to 14, or 80 (Valkey 9)")
    parser.add_argument("--lossy", action="store_true", help="exit with status 0 even if data was omitted")
    parser.add_argument("--skip-foreign", action="store_true", help="omit function libraries and modules' data")
    parser.add_argument("--force", action="store_true", help="replace an existing OUT.rdb")
    json_argument(parser)


def _version(text: str) -> int:
    version = int(text) if text.isdecimal() else 0
    if not can_write(version):
        raise argparse.ArgumentTypeError(f"expected {OLDEST_VERSION} to {NEWEST_VERSION}, or 80 for Valkey 9")
    return version


def run(options: argparse.Namespace) -> int:
    """Read the source, write the RDB file, print the omissions; return the exit status."""
    return guarded(lambda: _run(options), damaged=DAMAGED, place=options.out)


def _run(options: argparse.Namespace) -> int:
    source, out = options.source, options.out
    if out.exists() and not options.force:
        raise StoreError(f"{out} exists; --force replaces it")
    engine = Engine(Settings(databases=MANY_DATABASES))
    engine.loading = True
    with held(source):
        with ProgressBar(f"{source.name}: reading") as bar:
            size = read_source(source, engine, "skip" if options.skip_foreign else "keep", bar)
        lost: list[Lost] = []
        with ProgressBar(f"{out.name}: writing") as bar:
            try:
                keys = write_rdb(out, engine, version=options.rdb_version, lost=lost, disk=_ProgressDisk(bar, size))
            except OSError as error:
                if error.filename is not None and Path(error.filename).parent == out.parent:  # a temporary file
                    error.filename = str(out)
                raise
    version = _version_of(out)
    if options.json:
        print_json({"source": source, "out": out, "version": version, "keys": keys, "bytes": out.stat().st_size,
                    "lost": [entry._asdict() for entry in lost]})  # fmt: skip
        return LEFT_OUT if lost and not options.lossy else CARRIED
    for entry in lost:
        print(f"omitted from {_name(entry)}: {entry.what}")
    print(f"{out}: RDB version {version}, {keys} keys, {out.stat().st_size} bytes, for {_READERS[version]}")
    if lost:
        values = len({(entry.database, entry.key) for entry in lost})
        print(f"version {version} cannot store {values} values completely")
    return LEFT_OUT if lost and not options.lossy else CARRIED


def _name(entry: Lost) -> str:
    if entry.database < 0:
        return "the file"
    return f"{entry.key.decode('utf-8', 'backslashreplace')!r} (database {entry.database})"


def _version_of(path: Path) -> int:
    with open(path, "rb") as file:
        return int(file.read(HEADER).lstrip(b"REDISVALKY"))


# -- reading -------------------------------------------------------------------------------------------


def read_source(path: Path, engine: Engine, unknown: Unknown, progress: Progress) -> int:
    """Load a store, a log or an RDB file into the engine, and return the size of its files in bytes. O(bytes)"""
    files = find_files(path)
    if len(files) == 1 and (files[0].suffix == ".rdb" or (files[0].suffix != ".aof" and _is_rdb(files[0]))):
        size = files[0].stat().st_size
        load_rdb(files[0], engine, unknown=unknown, progress=lambda done: progress(done, size))
        return size
    torn = replay(engine, files, progress, repairs=False).torn
    if torn:
        print(f"rillet: {torn}", file=sys.stderr)
    return sum(file.stat().st_size for file in files)


def find_files(path: Path) -> list[Path]:
    """Return the data files at a path, in order; StoreError if there are none, or several alternatives."""
    if not path.exists():
        raise StoreError(f"{path} does not exist")
    if not path.is_dir():
        return _of_manifest(path) if path.name.endswith(".manifest") else [path]
    found = [one for one in (*path.glob("*.manifest"), *path.glob("*/*.manifest"))
             if not one.name.startswith("temp-") and NOT_LOADED not in one.parent.name]  # fmt: skip
    if not found:
        found = [*path.glob("*.aof")] or [one for one in path.glob("*.rdb") if not one.name.startswith("temp-")]
    if len(found) != 1:
        names = ", ".join(sorted(one.name for one in found))
        what = f"more than one log or RDB file: give one of {names}" if found else "neither a log nor an RDB file"
        raise StoreError(f"{path} holds {what}")
    return find_files(found[0])


def _of_manifest(path: Path) -> list[Path]:
    files = [path.parent / file.name for file in read_manifest(path).loaded]
    for file in files:
        if not file.exists():
            raise LogCorrupt(str(path), 0, f"the file {file.name} is missing")
    if not files:
        raise LogCorrupt(str(path), 0, "the manifest names no file")
    return files


def _is_rdb(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(HEADER).startswith(MAGICS)


# -- writing -------------------------------------------------------------------------------------------


class _ProgressDisk(Disk):
    """A Disk that reports how many bytes were written; the total is estimated as the size of the source."""

    __slots__ = ("progress", "total")

    def __init__(self, progress: Progress, total: int) -> None:
        self.progress = progress
        self.total = total

    def create(self, path: Path) -> DiskFile:
        """Open an empty file for writing."""
        return cast("DiskFile", _ProgressFile(super().create(path), self))


class _ProgressFile:
    """A DiskFile that reports the written bytes; the methods other than `write` are those of the file itself."""

    def __init__(self, file: DiskFile, disk: _ProgressDisk) -> None:
        self.file = file
        self.disk = disk
        self.written = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, data: bytes | bytearray | memoryview) -> int:
        written = self.file.write(data)
        self.written += written
        self.disk.progress(self.written, max(self.written, self.disk.total))
        return written
