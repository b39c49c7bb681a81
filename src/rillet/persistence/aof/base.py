"""The base of an append-only log: the data at one moment.

It is an RDB file (`aof-use-rdb-preamble yes`, rillet.persistence.rdb.writer), or commands that restore the data:

    SELECT <database>
    RESTORE <key> <expiry, ms since the epoch, or 0> <DUMP payload> ABSTTL

There is one command per key, whatever its type; only for a module's value the log contains the commands of the
module's `aof_rewrite`, if it has that method. The payload contains the whole value, including a stream's groups,
consumers, pending entries and idempotent producers, and a checksum. Redis reads such a file like any other. Redis's own
format (aof.c: rewriteStreamObject, an XADD per entry and an XCLAIM per pending entry) was rejected: it loses the seen
and active times of consumers, the shape of the nodes and their tombstones, and is many times longer.

A base is written under another name and renamed together with the commit of the manifest that names it
(manifest.commit), so a partial base is never loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from rillet.persistence.debug_delay import debug_delay
from rillet.persistence.disk import REAL, SYNC_EVERY, Disk, write_file
from rillet.persistence.rdb.plain_keys import versioned_values
from rillet.persistence.rdb.writer import readable_by, write_rdb
from rillet.protocol.command_parser import pack_command
from rillet.runtime.engine import Engine
from rillet.scripting.functions import library_codes
from rillet.types.module import KeyPlace, ModuleValue
from rillet.types.rdb import value as rdb
from rillet.types.stream.stream import Stream

_PIECE = 1 << 20
_PROGRESS_MASK = 1023


Progress = Callable[[int], None]


def base_commands(engine: Engine, progress: Progress | None = None) -> Iterator[bytes]:
    """Yield the commands that restore every key, in RESP encoding. O(data)

    Expired keys are included, as in Redis: the log after the base contains the deletion, possibly after a command that
    removes the expiry.
    """
    settings = engine.settings
    done = 0
    if settings.aof_timestamp_enabled:
        yield b"#TS:%d\r\n" % (engine.clock.now_ms() // 1000)
    for code in library_codes(engine):
        yield pack_command([b"FUNCTION", b"LOAD", code])
    for database in engine.databases:
        if len(database):
            yield pack_command([b"SELECT", b"%d" % database.index])
        for key, value in database.items():
            expiry = max(database.get_expire(key), 0)
            place = KeyPlace(database.index, key)
            commands = value.rewrite(place) if isinstance(value, ModuleValue) else None
            if commands is not None:
                yield from _of_module(key, commands, expiry)
            else:
                payload = rdb.dump(value, settings.rdbcompression, readable_by(settings.compat, value), place=place)
                yield pack_command([b"RESTORE", key, b"%d" % expiry, payload, b"ABSTTL"])
            done += 1
            if progress is not None and done & _PROGRESS_MASK == 0:
                progress(done)
            if settings.rdb_key_save_delay:
                debug_delay(settings.rdb_key_save_delay)


def _of_module(key: bytes, commands: list[list[bytes]], expiry: int) -> Iterator[bytes]:
    """Yield the commands of a module's `aof_rewrite`, and the one that sets the expiry (rewriteModuleObject)."""
    for words in commands:
        yield pack_command(words)
    if expiry:
        yield pack_command([b"PEXPIREAT", key, b"%d" % expiry])


def write_base(path: Path, engine: Engine, disk: Disk = REAL, progress: Progress | None = None) -> str:
    """Write and sync the base, and return its kind, "rdb" or "aof". O(data)

    No manifest names the path yet. After OSError no file remains; a killed process may leave a partial file.
    progress: called with the number of keys done so far.
    """
    if engine.settings.aof_use_rdb_preamble or _seals(engine):
        write_rdb(path, engine, log_base=True, draft=part_of(path), progress=progress, disk=disk)
        return "rdb"
    try:
        every = SYNC_EVERY if engine.settings.aof_rewrite_incremental_fsync else 0
        write_file(disk, path, _pieces(base_commands(engine, progress)), every)
    except BaseException:
        disk.remove(path)
        raise
    return "aof"


def _seals(engine: Engine) -> bool:
    """Return whether nodes of streams lie in segments, to which only an RDB file can refer."""
    return engine.segments is not None and any(
        isinstance(value, Stream) and value.sealed
        for database in engine.databases for value in versioned_values(database.keys)
    )  # fmt: skip


def part_of(path: Path) -> Path:
    """Return the path at which a base is written until it is complete."""
    return path.with_name(f"{path.name}.part")


def _pieces(commands: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the bytes of the commands in chunks of about a megabyte."""
    gathered: list[bytes] = []
    size = 0
    for command in commands:
        gathered.append(command)
        size += len(command)
        if size >= _PIECE:
            yield b"".join(gathered)
            gathered, size = [], 0
    yield b"".join(gathered)
