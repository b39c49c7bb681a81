"""Damages RDB files and logs at random, salvages them, and compares the result with the data outside of the damage.

    python -m tests.persistence.fuzz_salvage rdb 1000          # or frames, plain; further arguments: seeds to repeat

Each round changes one region: random bytes, zeroes, one flipped bit, or removed bytes. The law: every key whose bytes,
and those of its frame and transaction, are outside of the region is saved unchanged; nothing else appears, apart from
the keys of the region; no transaction is torn. An RDB file has no checksums of records, so in rare cases the place at
which its records continue is ambiguous: a round may then lose or invent a neighbour of the region (`exact` is False).
"""

from __future__ import annotations

import random
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import rillet
from rillet.persistence.aof.salvage import _command_at, salvage_log
from rillet.persistence.rdb.record_scan import RdbScan
from rillet.persistence.rdb.records import DATABASE
from rillet.persistence.rdb.salvage import Salvaged, salvage_rdb
from rillet.persistence.rdb.writer import write_rdb
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.types.rdb import value as rdb
from rillet.types.rdb.primitives import RdbReader
from tests.persistence.damaged_files import _BATCH, NOW
from tests.persistence.state import LATER
from tests.persistence.test_rdb_versions import all_types

Key = tuple[int, bytes]
SIZES = (1, 1, 2, 8, 50, 500)


@dataclass
class Sample:
    """A sound file: its bytes, and for each key its payload and the region that it depends on."""

    data: bytes
    values: dict[Key, bytes]
    places: dict[Key, tuple[int, int]]


@dataclass
class Round:
    """A damaged file and its salvage."""

    data: bytes
    engine: Engine
    report: Salvaged
    missing: set[Key]
    strange: set[Key]
    changed: set[Key]
    torn: list[bytes]

    @property
    def exact(self) -> bool:
        """Whether all keys outside of the damage, and no others, were saved."""
        return not (self.missing or self.strange or self.changed or self.torn)


def values_of(engine: Engine) -> dict[Key, bytes]:
    """Return the DUMP payload of every key."""
    return {(database.index, key): rdb.dump(value) for database in engine.databases
            for key, value in database.items()}  # fmt: skip


def rdb_sample(folder: Path, keys: int = 40) -> Sample:
    """Return an RDB file with values of every type, and many small ones."""
    source, one = random.Random(1), all_types(NOW, compat="newest").work(LATER)
    for number in range(keys):
        one("SET", f"string:{number}", "x" * source.randint(0, 60))
        one("HSET", f"hash:{number}", *(word for at in range(source.randint(1, 9))
                                        for word in (f"f{at}", source.randint(0, 10**9))))  # fmt: skip
        one("RPUSH", f"list:{number}", *(f"element {at}" for at in range(source.randint(1, 30))))
        if number % 3 == 0:
            one("PEXPIREAT", f"string:{number}", 1 << 45)
    path = folder / "sample.rdb"
    write_rdb(path, one.engine)
    data = path.read_bytes()
    places, database = {}, 0
    for record in RdbScan(data, lambda _: True).records:
        if record.key >= 0:
            name = RdbReader(data, record.key, record.value).string()
            places[database, name] = record.start, record.end
        elif record.kind == DATABASE:
            database = data[record.start + 1]
    return Sample(data, values_of(one.engine), places)


def log_sample(folder: Path, frames: bool, writes: int = 300) -> Sample:
    """Return a log with strings, lists, streams and transactions, with or without frames."""
    source = random.Random(5)
    path = folder / f"frames-{frames}"
    with rillet.open(path, aof_checksums=frames, appendfsync="no") as store:
        for number in range(writes):
            what = source.randrange(4)
            if what == 0:
                store.execute("SET", f"string:{number}", "v" * source.randrange(50))
            elif what == 1:
                store.execute("RPUSH", f"list:{number}", *["e"] * source.randint(1, 4))
            elif what == 2:
                store.execute("XADD", f"stream:{number}", f"{number}-1", "f", number)
            else:
                both = ("SET", f"a:{number}", number), ("SET", f"b:{number}", number)
                store.execute_many([("MULTI",), *both, ("EXEC",)])
    [file] = path.glob("*/*.incr.aof")
    data = file.read_bytes()
    engine = Engine(Settings())
    salvage_log([file], engine, Salvaged())
    return Sample(data, values_of(engine), _places(data))


def _places(data: bytes) -> dict[Key, tuple[int, int]]:
    places: dict[Key, tuple[int, int]] = {}
    frames = [(line.start(), line.end() + int(line[1])) for line in _BATCH.finditer(data)]
    whole: list[bytes] | None = None
    at = begin = 0
    while at < len(data):
        command = _command_at(data, at, len(data))
        assert command is not None
        start, at, argv = command
        name = argv[0]
        if name == b"MULTI":
            whole, begin = [], start
        elif name == b"EXEC":
            for key in whole or ():
                places[0, key] = begin, at
            whole = None
        elif whole is not None:
            whole.append(argv[1])
        elif not name.startswith(b"#") and name != b"SELECT":
            places[0, argv[1]] = start, at
    for place, (start, end) in places.items():
        for frame in frames:
            if frame[0] <= start < frame[1]:
                places[place] = frame[0], max(end, frame[1])
    return places


def damage(data: bytes, seed: int, first: int = 0, last: int = 0) -> tuple[bytes, int, int]:
    """Return the data with one region damaged, and the region's begin and end in the original."""
    source = random.Random(seed)
    begin = source.randrange(first, len(data) - last)
    end = min(begin + source.choice(SIZES), len(data) - last)
    how = source.randrange(4)
    if how == 0:
        new = source.randbytes(end - begin)
    elif how == 1:
        new = bytes(end - begin)
    elif how == 2:
        end = begin + 1
        new = bytes((data[begin] ^ 1 << source.randrange(8),))
    else:
        new = b""
    return data[:begin] + new + data[end:], begin, end


def salvaged(sample: Sample, path: Path, seed: int) -> Round:
    """Damage a sample, write it to the path, salvage it and compare."""
    is_rdb = path.suffix == ".rdb"
    data, begin, end = damage(sample.data, seed, 9 if is_rdb else 0, 9 if is_rdb else 0)
    path.write_bytes(data)
    engine, report = Engine(Settings(databases=128)), Salvaged()
    if is_rdb:
        salvage_rdb(path, data, engine, report)
    else:
        salvage_log([path], engine, report)
    engine.check()
    found = values_of(engine)
    outside = {key for key, (start, stop) in sample.places.items() if stop <= begin or start >= end}
    strange = set(found) - set(sample.values)
    if len(strange) <= len(sample.values) - len(outside):
        strange = set()  # damaged names of keys in the region
    names = {name for _, name in found}
    renamed = len(set(found) - set(sample.values))
    torn = [name for name in names for other in (b"b:" + name[2:], b"a:" + name[2:])
            if name[:2] in (b"a:", b"b:") and other not in names]  # fmt: skip
    torn = torn if len(torn) > 2 * renamed else []  # a changed byte of a name cannot be detected
    changed = {key for key in outside & set(found) if found[key] != sample.values[key]}
    return Round(data, engine, report, outside - set(found), strange, changed, torn)


def main(what: str, rounds: int, *seeds: str) -> int:
    """Run rounds, print those that are not exact, and return their number."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        sample = rdb_sample(home) if what == "rdb" else log_sample(home, what == "frames")
        inexact = 0
        for seed in map(int, seeds) if seeds else range(rounds):
            one = salvaged(sample, home / ("damaged.rdb" if what == "rdb" else "damaged.aof"), seed)
            if not one.exact:
                inexact += 1
                print(f"seed {seed}: missing {sorted(one.missing)}, strange {sorted(one.strange)}, changed "
                      f"{sorted(one.changed)}, torn {one.torn}")  # fmt: skip
                print(*one.report.losses, *one.report.remarks, sep="\n")
        print(f"{rounds} rounds, {inexact} not exact")
    return inexact


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])))

__all__ = ["Round", "Sample", "damage", "log_sample", "rdb_sample", "salvaged"]
