"""`rillet import PATH|URL TARGET`: copy all keys of files or of a server into a store or a server.

PATH|URL is an RDB file, a log (its folder, its manifest, or a single file), the directory of a store or a server, or a
url. TARGET is the directory of a store, which is created if it does not exist, or a url. A url is redis://[user:
password@]host[:port][/db], rediss://..., redis+cluster://host:port,... or unix:///path. With /db (or ?db=n), it means
that database only; without it, all databases. The source is not changed.

TARGET must have no keys. Otherwise --merge decides what happens to keys that exist on both sides: refuse (nothing is
copied), skip (the target keeps its value), or replace. Other keys of the target stay.

A new store is complete or empty: its log is put in force at the end. If the copy to a server or to an existing store
fails, the keys copied so far stay there. A server that is running may change during the copy: each key has its value of
the moment at which it was read, and keys created meanwhile may be missing. Stop its writers first for an exact copy.

Exit status: 0 everything was copied, or omissions are accepted (--lossy); 3 some data was not copied; 1 the source is
damaged or has data that rillet cannot read; 2 there is nothing to import, or the target does not accept it.
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack, closing
from pathlib import Path

import rillet
from rillet.cli.export import read_source
from rillet.cli.output import guarded, json_argument
from rillet.cli.places import PLACE
from rillet.errors import StoreError
from rillet.persistence.checking import MANY_DATABASES, held
from rillet.persistence.rdb.writer import Lost
from rillet.real_time import monotonic
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.store.display.json_line import print_json
from rillet.store.display.progress import ProgressBar
from rillet.transfer.key_transfer import (
    Copied,
    EngineTarget,
    FileSource,
    ServerSource,
    ServerTarget,
    copy_keys,
    server_options,
    write_directory,
)
from rillet.units import counted

COPIED, DAMAGED, LEFT_OUT = 0, 1, 3
_NAMED = 20  # how many rejected keys are named


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar=PLACE,
                        help="an RDB file, a log, a directory of a store or server, or a server's url")  # fmt: skip
    parser.add_argument("target", metavar="TARGET", help="a directory of a store, new or existing, or a server's url")
    parser.add_argument("--merge", choices=("refuse", "skip", "replace"),
                        help="allow a target with keys; what to do with a key that it already has")  # fmt: skip
    parser.add_argument("--lossy", action="store_true", help="exit with status 0 even if data was omitted")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS",
                        help="how long to wait for a server (default: 60)")  # fmt: skip
    json_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Copy the keys and print what was omitted; return the exit status."""

    def work() -> int:
        with ExitStack() as stack:
            return _Import(options, stack).run()

    return guarded(work, damaged=DAMAGED, place=options.source)


class _Import:
    """One import; `stack` closes what it opens."""

    def __init__(self, options: argparse.Namespace, stack: ExitStack) -> None:
        self.options = options
        self.stack = stack
        self.source, self.target = str(options.source), str(options.target)
        self.began = monotonic()

    def run(self) -> int:
        to_server = _is_url(self.target)
        if not _is_url(self.source) and not to_server and _is_same(Path(self.source), Path(self.target)):
            raise StoreError(f"{self.source} is both the source and the target")
        new = None if to_server or not _is_new(Path(self.target)) else self._engine()
        if _is_url(self.source):
            where, only = server_options(self.source, self.options.timeout)
            server = self.stack.enter_context(closing(ServerSource(where, _now_ms, only)))
            source: ServerSource | FileSource = server
            shown = str(server)
        else:
            source, shown = self._read(new), self.source
        if new is not None and isinstance(source, FileSource):
            result = self._omit_foreign(source)
        else:
            target = EngineTarget(new) if new is not None else self._opened()
            with ProgressBar(f"{shown}: copying", unit="keys") as bar:
                result = copy_keys(source, target, merge=self.options.merge, progress=bar)
        if new is not None:
            write_directory(Path(self.target), new)
            highest = max((database.index for database in new.databases if len(database)), default=0)
            if highest >= Settings().databases and not self.options.json:
                print(f"{self.target} has keys in database {highest}: open it with databases={highest + 1}")
        return self._report(shown, source, result)

    def _engine(self) -> Engine:
        engine = Engine(Settings(databases=MANY_DATABASES, aof_checksums=True))
        engine.loading = True
        return engine

    def _read(self, new: Engine | None) -> FileSource:
        """Load the source's files, into the engine of the new store if there is one."""
        path = Path(self.source)
        engine = new or self._engine()
        with held(path), ProgressBar(f"{path.name}: reading") as bar:
            read_source(path, engine, "keep", bar)
        engine.loading = False
        return FileSource(engine, _now_ms())

    def _omit_foreign(self, source: FileSource) -> Copied:
        """Remove from the engine what a store cannot open, and return the figures of the rest."""
        kept = source.engine.preserved
        result = Copied(sum(map(len, source.engine.databases)))
        if kept is not None:
            result.lost = [Lost(value.database, value.key, "the value of a module") for value in kept.values]
            data = [*kept.before, *kept.after]
            if data:
                result.lost.append(Lost(-1, b"", f"{len(data)} pieces of modules' data"))
            kept.values, kept.before, kept.after = [], [], []
        return result

    def _opened(self) -> ServerTarget:
        """Open the target, which exists."""
        if _is_url(self.target):
            options, only = server_options(self.target, self.options.timeout)
        else:
            store = self.stack.enter_context(rillet.open(self.target))
            if store.url is None:
                raise StoreError(f"{self.target} exists: without Unix sockets, import into a new directory")
            options, only = server_options(store.url, self.options.timeout)[0], None
        target = ServerTarget(options, _now_ms, only)
        self.stack.enter_context(closing(target))
        return target

    def _report(self, shown: str, source: ServerSource | FileSource, result: Copied) -> int:
        target = self.target.rpartition("@")[2] if _is_url(self.target) else self.target
        status = LEFT_OUT if (result.lost or result.rejected) and not self.options.lossy else COPIED
        if self.options.json:
            print_json({
                "source": shown, "target": target, "keys": result.keys, "kept": result.kept,
                "expired": source.expired if isinstance(source, FileSource) else 0,
                "rejected": [{"database": database, "key": key, "reason": reason}
                             for database, key, reason in result.rejected],
                "lost": [lost._asdict() for lost in result.lost], "seconds": monotonic() - self.began,
            })  # fmt: skip
            return status
        for lost in result.lost:
            print(f"omitted from {_name(lost.database, lost.key)}: {lost.what}")
        for database, key, reason in result.rejected[:_NAMED]:
            print(f"rejected {_name(database, key)}: {reason}")
        if len(result.rejected) > _NAMED:
            print(f"rejected {len(result.rejected) - _NAMED} more keys")
        parts = [f"{counted(result.keys, 'key')} copied from {shown}"]
        if result.kept:
            parts.append(f"{result.kept:,} that it already had kept")
        if isinstance(source, FileSource) and source.expired:
            parts.append(f"{source.expired:,} expired")
        print(f"{target}: {', '.join(parts)} in {monotonic() - self.began:.1f} s")
        return status


def _name(database: int, key: bytes) -> str:
    if database < 0:
        return "the target"
    return f"{key.decode('utf-8', 'backslashreplace')!r} (database {database})"


def _is_url(text: str) -> bool:
    return "://" in text


def _is_new(path: Path) -> bool:
    """Return whether a path does not exist, or is an empty folder."""
    return not path.exists() or (path.is_dir() and not any(path.iterdir()))


def _is_same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
