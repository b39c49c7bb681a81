"""The base of an append-only log: the data as it is at one moment.

It is an RDB file (`aof-use-rdb-preamble yes`, rillet.persistence.rdb.writer), or commands that bring the data back:

    SELECT <database>
    RESTORE <key> <expiry, ms since the epoch, or 0> <DUMP payload> ABSTTL

One command for each key, whatever its type: a payload holds all of a value, a stream's groups, consumers, pending
entries and idempotent producers too, and its checksum. Redis reads such a file as it reads any other. What Redis writes
itself (aof.c: rewriteStreamObject, an XADD for each entry, an XCLAIM for each pending one) was rejected: it loses
when consumers were seen and active, the shape of the nodes and their tombstones, and is many times longer.

Either is written under another name, and gets its own together with the manifest that names it (manifest.commit), so
that half a base is never taken for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from rillet.persistence.debug_delay import debug_delay
from rillet.persistence.disk import REAL, Disk, write_all
from rillet.persistence.rdb.writer import readable_by, write_rdb
from rillet.protocol.command_parser import pack_command
from rillet.runtime.engine import Engine
from rillet.types.rdb import value as rdb

_PIECE = 1 << 20
_PROGRESS_MASK = 1023


Progress = Callable[[int], None]


def base_commands(engine: Engine, progress: Progress | None = None) -> Iterator[bytes]:
    """Yield the commands, packed, that bring back every key. O(data)

    One whose time has come is written, too, as Redis does: the log behind the base says when it went, and if that is
    read later than it was written, it may say before that the key was to stay.
    """
    settings = engine.settings
    done = 0
    if settings.aof_timestamp_enabled:
        yield b"#TS:%d\r\n" % (engine.clock.now_ms() // 1000)
    for database in engine.databases:
        keys = list(database.values)
        if keys:
            yield pack_command([b"SELECT", b"%d" % database.index])
        for key in keys:
            expiry = b"%d" % database.expires.get(key, 0)
            value = database.values[key]
            payload = rdb.dump(value, settings.rdbcompression, readable_by(settings.compat, value))
            yield pack_command([b"RESTORE", key, expiry, payload, b"ABSTTL"])
            done += 1
            if progress is not None and done & _PROGRESS_MASK == 0:
                progress(done)
            if settings.rdb_key_save_delay:
                debug_delay(settings.rdb_key_save_delay)


def write_base(path: Path, engine: Engine, disk: Disk = REAL, progress: Progress | None = None) -> str:
    """Write the base as the settings ask, and return its kind, "rdb" or "aof"; it is on the disk, whole, then. O(data)

    The path is one that nobody takes for a base yet; where the writing fails (OSError) nothing stays there, where it
    is killed the path or its part. progress(keys done so far).
    """
    if engine.settings.aof_use_rdb_preamble:
        write_rdb(path, engine, log_base=True, draft=part_of(path), progress=progress, disk=disk)
        return "rdb"
    try:
        out = disk.create(path)
        try:
            for piece in _pieces(base_commands(engine, progress)):
                write_all(out, piece)
            out.sync()
        finally:
            out.close()
    except BaseException:
        disk.remove(path)
        raise
    return "aof"


def part_of(path: Path) -> Path:
    """Return the name that a base has until all of it is written."""
    return path.with_name(f"{path.name}.part")


def _pieces(commands: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the commands in pieces worth a call to the operating system."""
    gathered: list[bytes] = []
    size = 0
    for command in commands:
        gathered.append(command)
        size += len(command)
        if size >= _PIECE:
            yield b"".join(gathered)
            gathered, size = [], 0
    yield b"".join(gathered)


__all__ = ["base_commands", "part_of", "write_base"]
