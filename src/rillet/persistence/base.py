"""The base of an append-only log: the data as it is at one moment.

It is an RDB file (`aof-use-rdb-preamble yes`, rillet.persistence.rdb_writer), or commands that bring the data back:

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

from collections.abc import Iterator
from pathlib import Path

from rillet.engine import Engine
from rillet.persistence.disk import REAL, Disk, write_all
from rillet.persistence.rdb_writer import readable_by, write_rdb
from rillet.protocol.parser import pack_command
from rillet.types import rdb

_PIECE = 1 << 20


def base_commands(engine: Engine) -> Iterator[bytes]:
    """Yield the commands, packed, that bring back every key whose time has not come. O(data)"""
    compression, compat = engine.settings.rdbcompression, engine.settings.compat
    if engine.settings.aof_timestamp_enabled:
        yield b"#TS:%d\r\n" % (engine.clock.now_ms() // 1000)
    for database in engine.databases:
        keys = list(database.live_keys())
        if keys:
            yield pack_command([b"SELECT", b"%d" % database.index])
        for key in keys:
            expiry = b"%d" % database.expires.get(key, 0)
            value = database.values[key]
            payload = rdb.dump(value, compression, readable_by(compat, value))
            yield pack_command([b"RESTORE", key, expiry, payload, b"ABSTTL"])


def write_base(path: Path, engine: Engine, disk: Disk = REAL) -> str:
    """Write the base as the settings ask, and return its kind, "rdb" or "aof"; it is on the disk, whole, then. O(data)

    The path is one that nobody takes for a base yet; where the writing fails (OSError) nothing stays there.
    """
    if engine.settings.aof_use_rdb_preamble:
        write_rdb(path, engine, log_base=True)
        return "rdb"
    try:
        out = disk.create(path)
        try:
            for piece in _pieces(base_commands(engine)):
                write_all(out, piece)
            out.sync()
        finally:
            out.close()
    except BaseException:
        disk.remove(path)
        raise
    return "aof"


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


__all__ = ["base_commands", "write_base"]
