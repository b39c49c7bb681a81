"""Fuzzes the file readers: RDB files, logs, manifests and redis.conf are damaged, given valid checksums, and loaded.

    python -m tests.persistence.fuzz_files rdb|aof|manifest|config|check COUNT [SEED]       both speeds: set PYTHONPATH
    python -m tests.persistence.fuzz_files rdb|aof|manifest|config|check --atheris [FOLDER] [-max_total_time=600 ...]

The files come from damaged_files.py. With atheris (`pip install atheris`), the mutations follow the coverage of the
interpreted readers; they start from the same files, and the checksums are recomputed in the same way.

Requirements for each file: it is loaded, or rejected by an exception of the reader that names the file and an offset in
it. No other exception is raised, and memory is proportional to the file. Loaded data passes `check`, each value
survives DUMP and RESTORE, and saving and loading again gives the same data. A log whose end was cut off is complete at
the next reading. A failure prints the number of its case, which `case` repeats.
"""

from __future__ import annotations

import argparse
import io
import random
import re
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import rillet
from rillet.errors import Corrupt, LogCorrupt, NewerFormat, StoreError
from rillet.keyspace.clock import ManualClock
from rillet.persistence.aof.base import write_base
from rillet.persistence.aof.loader import replay
from rillet.persistence.aof.log import AppendOnlyLog
from rillet.persistence.aof.manifest import read_manifest
from rillet.persistence.checking import MANY_DATABASES, check
from rillet.persistence.rdb.reader import load_rdb, load_rdb_from
from rillet.persistence.rdb.writer import write_rdb
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import PARAMETERS, Settings
from rillet.server.config_rewrite import rewritten
from rillet.server.redis_conf import ConfigurationError, load
from rillet.types.compat import COMPATS
from rillet.types.digest import value_digest
from rillet.types.rdb import value as rdb
from tests.persistence.damaged_files import (
    NOW,
    mutated_config,
    mutated_log,
    mutated_manifest,
    mutated_rdb,
    sealed_log,
    sealed_rdb,
)
from tests.persistence.simulated_disk import SimulatedDisk
from tests.types.fuzz_restore import mutate_bytes, pool

FOLDER = Path("/data/appendonlydir")
RDB, LOG, MANIFEST = FOLDER / "dump.rdb", FOLDER / "appendonly.aof", FOLDER / "appendonly.aof.manifest"
# The memory limit: an engine with its databases, and some for a file that claims large sizes.
MEMORY_AT_ALL = 24 << 20
MEMORY_PER_BYTE = 600

State = dict[tuple[int, bytes], tuple[bytes, int]]


def disk_with(files: dict[Path, bytes]) -> SimulatedDisk:
    """Return a disk in memory with the files."""
    return SimulatedDisk({str(path): data for path, data in files.items()}, folders=("/", "/data", str(FOLDER)))


def new_engine() -> Engine:
    """Return an engine with a fixed clock."""
    return Engine(Settings(compat="newest", databases=MANY_DATABASES), ManualClock(NOW))


# -- what must hold --------------------------------------------------------------------------------------


def sound(engine: Engine) -> State:
    """Verify all data of an engine; return for each key a digest of its value and its expiry."""
    engine.check()
    found: State = {}
    for database in engine.databases:
        for key, value in database.items():
            value.check()
            again: Any = rdb.restore(rdb.dump(value))
            again.check()
            digest = _digest(value)
            assert _digest(again) == digest, key
            found[database.index, key] = digest, database.get_expire(key)
    return found


def _digest(value: Any) -> bytes:
    # Streams must be identical; other values may change their encoding.
    if type(value).__name__ == "Stream":
        return rdb.dump(value, True, COMPATS["newest"])
    return value_digest(value, False)


def refused_well(error: Exception, path: Path, size: int | None = None) -> None:
    """Verify that an error names the file, and an offset within `size` if given."""
    assert str(path) in str(error), error
    if isinstance(error, LogCorrupt) and size is not None:
        assert error.path == str(path), error
        assert 0 <= error.offset <= size, error


class _Trickle(io.RawIOBase):
    """A source that returns a few bytes at a time, so that an item may cross the end of a window."""

    def __init__(self, data: bytes, piece: int) -> None:
        self._file = io.BytesIO(data)
        self._piece = piece

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._file.readinto(memoryview(buffer)[: self._piece])


def try_rdb(data: bytes) -> str:
    """Load an RDB file."""
    engine = new_engine()
    engine.loading = True
    source: Any = _Trickle(data, 1 + len(data) % 61)
    try:
        load_rdb_from(source, str(RDB), engine, unknown="keep")
    except (LogCorrupt, NewerFormat) as error:
        refused_well(error, RDB, len(data))
        return "refused"
    found = sound(engine)
    disk = disk_with({})
    write_rdb(RDB, engine, disk=disk)
    other = new_engine()
    load_rdb(RDB, other, disk=disk, unknown="keep")
    assert sound(other) == found
    return "loaded"


def try_aof(data: bytes) -> str:
    """Replay a log file, with or without a preamble."""
    disk = disk_with({LOG: data})
    engine = new_engine()
    try:
        done = replay(engine, [LOG], disk=disk)
    except (LogCorrupt, NewerFormat) as error:
        refused_well(error, LOG, len(data))
        assert bytes(disk.files()[str(LOG)]) == data, "a log that is refused was changed"
        return "refused"
    found = sound(engine)
    left = disk.files()[str(LOG)]
    assert data.startswith(left)
    assert len(data) - len(left) == done.dropped
    again = new_engine()
    once_more = replay(again, [LOG], disk=disk)
    assert (once_more.dropped, once_more.commands) == (0, done.commands)
    assert sound(again) == found
    for preamble in (True, False):
        engine.settings.set_text("aof-use-rdb-preamble", "yes" if preamble else "no")
        write_base(RDB, engine, disk)
        other = new_engine()
        replay(other, [RDB], disk=disk)
        assert sound(other) == found
    return "cut" if done.dropped else "loaded"


def try_check(data: bytes) -> str:
    """Run `rillet check` on a file: its result agrees with a load, and it changes nothing."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder) / "appendonly.aof"
        path.write_bytes(data)
        report = check(path)
        assert path.read_bytes() == data
    outcome = try_aof(data)
    assert report.sound == (outcome == "loaded"), (outcome, report)
    assert [one.torn for one in report.damages] == {"loaded": [], "cut": [True], "refused": [False]}[outcome], report
    for one in report.damages:
        assert one.path == path, one
        assert -1 <= one.offset <= len(data), one
    return outcome


def try_manifest(data: bytes) -> str:
    """Read a manifest, and open the log that it describes; some of its files exist."""
    files = {FOLDER / f"appendonly.aof.{n}.{kind}": b"" for n in range(1, 4) for kind in ("incr.aof", "base.aof")}
    disk = disk_with({MANIFEST: data, **files})
    try:
        made = read_manifest(MANIFEST, disk)
    except LogCorrupt as error:
        refused_well(error, MANIFEST, len(data))
        return "refused"
    text = "".join(file.line() for file in made.files).encode("utf-8", "surrogateescape")
    if text:
        assert read_manifest(MANIFEST, disk_with({MANIFEST: text})) == made
    log = AppendOnlyLog(FOLDER, disk=disk, threads=False)
    engine = new_engine()
    try:
        log.open(engine)
    except (Corrupt, StoreError) as error:
        refused_well(error, FOLDER)
        return "not opened"
    engine.log = None
    log.close()
    return "opened"


def try_config(data: bytes) -> str:
    """Read a redis.conf, and the file that CONFIG REWRITE makes of it."""
    data = re.sub(rb"(?i)include", b"exclude", data)  # it could read any file of this machine
    try:
        settings = load(["-"], io.BytesIO(data)).settings
    except ConfigurationError as error:
        where = "standard input, line " in str(error) or "requirepass" in str(error)
        return "refused" if where else f"refused without a line: {error}"
    text = rewritten(data, settings)
    again = load(["-"], io.BytesIO(text)).settings
    for parameter in PARAMETERS.values():
        name = parameter.attribute
        assert getattr(again, name) == getattr(settings, name), (name, getattr(again, name), getattr(settings, name))
    return "loaded"


# -- running ---------------------------------------------------------------------------------------------

Try = Callable[[bytes], str]
Mutate = Callable[[random.Random, Any], bytes]
Seal = Callable[[bytes], bytes]
TARGETS: dict[str, tuple[Try, Mutate, Seal]] = {
    "rdb": (try_rdb, mutated_rdb, sealed_rdb),
    "aof": (try_aof, mutated_log, sealed_log),
    "check": (try_check, mutated_log, sealed_log),
    "manifest": (try_manifest, mutated_manifest, bytes),
    "config": (try_config, mutated_config, bytes),
}


class Fuzzer:
    """Generates and loads files of one kind; `counts` has the number of each result."""

    def __init__(self, target: str, seed: int) -> None:
        self.target = target
        self.seed = seed
        self.attempt, self.mutate, _ = TARGETS[target]
        self.streams = pool(seed, 3) if target in ("rdb", "aof", "check") else []
        self.counts: Counter[str] = Counter()

    def file(self, number: int) -> bytes:
        """Return the file of a case."""
        return self.mutate(random.Random(f"{self.target}:{self.seed}:{number}"), self.streams)

    def case(self, number: int) -> None:
        """Generate and run one case; any exception is a finding."""
        data = self.file(number)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.counts[self.attempt(data)] += 1
        grew = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        assert grew < MEMORY_AT_ALL + MEMORY_PER_BYTE * len(data), f"{len(data)} bytes took {grew}"

    def run(self, count: int, tell: Callable[[int], object] | None = None) -> None:
        """Run the cases 0 to count - 1; a finding is raised with the number of its case."""
        for number in range(count):
            try:
                self.case(number)
            except BaseException as error:
                error.add_note(f"fuzz_files: Fuzzer({self.target!r}, {self.seed}).case({number})")
                raise
            if tell is not None:
                tell(number)


def _readers() -> Iterator[FunctionType]:
    """Yield the functions of the interpreted readers, for the coverage."""
    packages = ("rillet.persistence", "rillet.types", "rillet.structs", "rillet.protocol", "rillet.server.config")
    for name, module in sorted(sys.modules.items()):
        if name.startswith(packages):
            for place in (module, *(one for one in vars(module).values() if isinstance(one, type))):
                if getattr(place, "__module__", name) == name:
                    functions = [one for one in vars(place).values() if isinstance(one, FunctionType)]
                    yield from (one for one in functions if one.__module__ == name)


def _with_atheris(target: str, arguments: list[str]) -> None:
    """Let atheris choose the mutations until it ends the process."""
    atheris: Any = import_module("atheris")
    attempt, mutate, seal = TARGETS[target]
    for function in _readers():
        atheris.instrument_func(function)
    streams = pool(1, 3)

    def one(data: bytes) -> None:
        attempt(seal(data))

    def changed(data: bytes, most: int, seed: int) -> bytes:
        source = random.Random(seed)
        if source.random() < 0.2:
            data = mutate(source, streams)
        elif source.random() < 0.3:
            data = mutate_bytes(source, data)
        else:
            data = atheris.Mutate(data, most)
        return bytes(seal(data)[:most])

    folder = next((Path(word) for word in arguments if not word.startswith("-")), None)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(60):
            (folder / f"genuine{number}").write_bytes(mutate(random.Random(number), streams))
    atheris.Setup([sys.argv[0], "-rss_limit_mb=1000", "-timeout=60", "-max_len=8000", *arguments], one,
                  custom_mutator=changed)  # fmt: skip
    atheris.Fuzz()


def main() -> None:
    """Run from the command line."""
    if "--atheris" in sys.argv:
        _with_atheris(sys.argv[1], [word for word in sys.argv[2:] if word != "--atheris"])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int, nargs="?", default=1)
    options = parser.parse_args()
    fuzzer = Fuzzer(options.target, options.seed)
    began = time.monotonic()
    speed = "compiled" if rillet.compiled() else "interpreted"
    print(f"rillet {speed}, {options.target}, seed {options.seed}", flush=True)
    # A hang is a finding too: no case takes this long (s).
    fuzzer.run(options.count, lambda _number: signal.alarm(60))
    signal.alarm(0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{options.count} files in {time.monotonic() - began:.0f} s, at most {peak} MB")
    for name, number in sorted(fuzzer.counts.items()):
        print(f"{number:9} {name}")


if __name__ == "__main__":
    main()
