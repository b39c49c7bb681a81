"""The versions of replicas: what the server of a replica knows, and which values it can hold.

    handshake  REPLCONF capa rillet-8.10.0    a rillet server: it applies commands and reads values of all versions
               REPLCONF version 9.1.2         Valkey 8 and newer
               (nothing)                      Redis, and Valkey 7.2: their INFO shows the version
    setting    repl-compat 7.0                all replicas are treated as this server

A replica of Redis ignores a command that it does not know, and goes on: its data then differs from that of its master.
So a master must not send such a command (rillet.replication.older_replicas), nor an RDB file with a newer type
(rillet.persistence.rdb.writer). `UNKNOWN` is the version of a replica that cannot be asked: the oldest one.

**Accepted losses.** The time at which a consumer was last active (7.2), and the messages of idempotent producers (8.6),
are omitted for an older replica: they are no part of the data that clients read. Everything else is refused.
"""

from __future__ import annotations

from dataclasses import replace

from rillet.runtime.registry import Command
from rillet.types.array import Array
from rillet.types.compat import COMPATS, NEVER, Compat, level_of
from rillet.types.hash import Hash
from rillet.types.rdb.hash import TYPE_HASH_VALKEY, losses
from rillet.types.rdb.stream import TYPE_STREAM_88, oldest_type
from rillet.types.rdb.value import NEWEST_VERSION, STREAMS_OF_VALKEY, type_of
from rillet.types.stream.stream import Stream

RILLET = "rillet-"
"""The beginning of the capability with which a replica of rillet shows its version."""
UNKNOWN = COMPATS["7.0"]
_HASHES_OF_VALKEY = 90  # the first Valkey with RDB version 80
_MAJOR = 8  # of the newest Redis; builds between two versions say 255.255.255
_LAST = 88  # from this level on, Redis writes RDB version 14
_TIMES = 12  # the RDB version with the expiry of hash fields


def compat_of(version: str, valkey: bool) -> Compat:
    """Return the server of a version such as "8.6.3"; ValueError if it has another form."""
    if version.count(".") < 1 or not version.replace(".", "").isdigit():
        raise ValueError(f"{version!r} is not a version")
    level = level_of(version) if valkey or int(version.split(".")[0]) <= _MAJOR else NEVER - 1
    if valkey:
        rdb = COMPATS["valkey"].rdb_version if level >= _HASHES_OF_VALKEY else STREAMS_OF_VALKEY
        return replace(COMPATS["valkey"], rdb_version=rdb, valkey_version=version)
    newest = COMPATS["newest"]
    if level >= _LAST:
        return replace(newest, name=version, level=level, redis_version=version)
    older = [one for one in COMPATS.values() if not one.valkey and one.level <= level]
    base = max(older, key=lambda one: one.level, default=UNKNOWN)
    return replace(base, name=version, level=level, redis_version=version)


def compat_in_info(info: str) -> Compat | None:
    """Return the server whose INFO this is; None if the text shows no version."""
    fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    valkey = fields.get("valkey_version", "")
    try:
        return compat_of(valkey or fields.get("redis_version", ""), bool(valkey))
    except ValueError:
        return None


def shown(server: Compat) -> str:
    """Return the name of a server for a line of the log."""
    return f"Valkey {server.valkey_version}" if server.valkey else f"Redis {server.redis_version}"


def knows(server: Compat, entry: Command) -> bool:
    """Return whether a server has a command. The modules of a replica are not known: it should have the master's."""
    if entry.module:
        return True
    if server.valkey and entry.valkey:
        return entry.level <= server.level or level_of(entry.valkey) <= level_of(server.valkey_version)
    return entry.level <= server.level and entry.level != NEVER


def problem(value: object, server: Compat) -> str:
    """Return why a server cannot hold a value, or "". O(fields that expire)"""
    if isinstance(value, Array):
        return "" if server.rdb_version == NEWEST_VERSION else "it is an array"
    if isinstance(value, Stream):
        released = sum(group.nacked_count for group in value.groups.values())
        return f"it has {released} released entries (XNACK)" if released and server.stream_type < TYPE_STREAM_88 else ""
    if isinstance(value, Hash) and value.earliest():
        able = server.rdb_version == COMPATS["valkey"].rdb_version if server.valkey else server.rdb_version >= _TIMES
        return "" if able else "; ".join(losses(value, 0))
    return ""


def rdb_type(value: object, server: Compat) -> int:
    """Return the oldest RDB type for a value that a server can hold."""
    if isinstance(value, Stream):
        return min(oldest_type(value), server.stream_type)
    if isinstance(value, Hash) and server.valkey and value.earliest():
        return TYPE_HASH_VALKEY
    return type_of(value)
