"""The base of an append-only log: the data as it is at one moment.

It is an RDB file (`aof-use-rdb-preamble yes`, rillet.persistence.rdb_writer), or commands that bring the data back:

    SELECT <database>
    RESTORE <key> <expiry, ms since the epoch, or 0> <DUMP payload> ABSTTL

One command for each key, whatever its type: a payload holds all of a value, a stream's groups, consumers, pending
entries and idempotent producers too, and its checksum. Redis reads such a file as it reads any other. What Redis writes
itself (aof.c: rewriteStreamObject, an XADD for each entry, an XCLAIM for each pending one) was rejected: it loses
when consumers were seen and active, the shape of the nodes and their tombstones, and is many times longer.

Either is written under another name and renamed when it is on disk, so that half a base is never taken for one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rillet.engine import Engine
from rillet.persistence.manifest import LogFile, read_manifest, write_manifest
from rillet.persistence.rdb_writer import readable_by, write_rdb
from rillet.protocol.parser import pack_command
from rillet.types import rdb


def base_commands(engine: Engine) -> Iterator[bytes]:
    """Yield the commands, packed, that bring back every key whose time has not come. O(data)"""
    compression, compat = engine.settings.rdbcompression, engine.settings.compat
    for database in engine.databases:
        keys = list(database.live_keys())
        if keys:
            yield pack_command([b"SELECT", b"%d" % database.index])
        for key in keys:
            expiry = b"%d" % database.expires.get(key, 0)
            value = database.values[key]
            payload = rdb.dump(value, compression, readable_by(compat, value))
            yield pack_command([b"RESTORE", key, expiry, payload, b"ABSTTL"])


def write_base(path: Path, engine: Engine) -> None:
    """Write the base as commands; it is on disk, whole, when this returns."""
    draft = path.with_name(f"temp-{path.name}")
    try:
        with open(draft, "wb") as out:
            out.writelines(base_commands(engine))
            out.flush()
            os.fsync(out.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def rewrite(folder: Path, name: str, engine: Engine) -> None:
    """Replace a closed log's files by a base of the engine's data and an empty file for what follows (aof.c).

    Until the new manifest is on disk the old files are the log. O(data), during which the engine stands still.
    """
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / f"{name}.manifest"
    old = read_manifest(manifest) if manifest.exists() else []
    seq = max((file.seq for file in old), default=0) + 1
    as_rdb = engine.settings.aof_use_rdb_preamble
    base = LogFile(f"{name}.{seq}.base.{'rdb' if as_rdb else 'aof'}", seq, "b")
    incremental = LogFile(f"{name}.{seq}.incr.aof", seq, "i")
    if as_rdb:
        write_rdb(folder / base.name, engine, log_base=True)
    else:
        write_base(folder / base.name, engine)
    with open(folder / incremental.name, "wb") as out:
        os.fsync(out.fileno())
    write_manifest(manifest, [base, incremental])
    for file in old:
        (folder / file.name).unlink(missing_ok=True)


__all__ = ["base_commands", "rewrite", "write_base"]
