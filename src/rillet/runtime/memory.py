"""The figures of INFO memory and MEMORY STATS (Redis: object.c, getMemoryOverheadData).

    resident   [ interpreter, modules | used ........................................... | free memory ]
    used                              [ startup | overhead: tables, clients, log | dataset ]
                                                  dataset = used - overhead

`used` is the sum of keyspace/memory_usage.py; `resident` is what the operating system reports. The fields of features
that rillet lacks (replicas, cluster links, jemalloc) are 0, and those of the allocator repeat `used`.
"""

from __future__ import annotations

import os
from math import log2
from typing import TYPE_CHECKING, Any

from rillet.keyspace.memory_usage import dict_bytes

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine
    from rillet.runtime.session import Session

StatValues = dict[str, Any]
_PREFIX = 24  # the place of a prefix of CLIENT TRACKING; its bytes belong to the table of prefixes
# Buffers of slots that move between the nodes of a cluster (Redis 8.4, Valkey 9).
_SLOT_BUFFERS = ("mem_cluster_slot_migration_output_buffer", "mem_cluster_slot_migration_input_buffer",
                 "mem_cluster_slot_migration_input_buffer_peak")
_VALKEY_SLOT_BUFFERS = ("mem_cluster_slot_import", "mem_cluster_slot_export")
_CLIENT = 4096  # the objects of a session and its connection, without what is in their buffers


def human(size: float) -> str:
    """Return a number of bytes with a unit, such as 1.50M (util.c: bytesToHuman)."""
    if size < 1024:
        return f"{size:.0f}B"
    power = min(int(log2(size)) // 10, 5)
    return f"{size / 1024**power:.2f}{' KMGTP'[power]}"


def session_bytes(session: Session) -> int:
    """Return the bytes of a session: its replies, subscriptions and queued commands. O(queued commands)"""
    queued = sum(sum(map(len, argv)) + 64 * len(argv) for _, argv in session.queue)
    prefixes = 0 if session.tracking is None else _PREFIX * len(session.tracking.prefixes)
    names = 0 if session.subscriptions is None else session.subscriptions.size
    return _CLIENT + len(session.out.buf) + queued + prefixes + names


class MemoryStats:
    """The memory figures of one engine; `take_peak` is called whenever `used` may have risen."""

    __slots__ = ("_engine", "clients_evicted", "peak", "peak_ms", "startup")

    def __init__(self, engine: CommandEngine) -> None:
        self._engine = engine
        self.startup = self.peak = engine.used_memory()
        self.peak_ms = engine.clock.now_ms()
        self.clients_evicted = 0

    def reset(self) -> None:
        """Reset the peak and the counter (CONFIG RESETSTAT)."""
        self.peak, self.peak_ms = self._engine.used_memory(), self._engine.clock.now_ms()
        self.clients_evicted = 0

    def take_peak(self) -> int:
        """Return the bytes in use and remember the largest number. O(databases)"""
        used: int = self._engine.used_memory()
        if used > self.peak:
            self.peak = used
            self.peak_ms = self._engine.clock.now_ms()
        return used

    def log_buffer(self) -> int:
        """Return the bytes of the log that are not in its file yet."""
        return int(getattr(self._engine.aof, "unwritten", 0) or 0)

    def measure(self) -> StatValues:
        """Return the numbers from which both replies are made."""
        engine = self._engine
        used = self.take_peak()
        resident = engine.services.memory()["used_memory"]
        log = self.log_buffer()
        stream = engine.replication.stream
        backlog, replicas = (0, 0) if stream is None else stream.buffer_bytes()
        link = engine.replication.link
        early = 0 if link is None else link.early.buffer.size
        used += log + backlog + replicas + early
        tables = {
            database.index: (dict_bytes(database.keys), dict_bytes(database.expires))
            for database in engine.databases if len(database)
        }  # fmt: skip
        clients = max(engine.eviction.buffers, sum(map(session_bytes, engine.sessions.values())))
        lookup = rehashing = moving = 0
        for database in engine.databases:
            for table in (database.keys, database.expires):
                buckets = 4 * table.buckets if len(table) else 0
                lookup += buckets
                if table.rehashing:
                    moving += 1
                    rehashing += 4 << table.exp0 if table.exp0 >= 0 else 0
        overhead = min(self.startup + clients + log + backlog + replicas + early + sum(map(sum, tables.values())), used)
        data = used - overhead
        keys = sum(len(database) for database in engine.databases)
        net = max(used - self.startup, 1)
        return {
            "used": used, "resident": resident, "peak": max(self.peak, used), "peak_ms": self.peak_ms,
            "startup": self.startup, "overhead": overhead, "dataset": data, "keys": keys, "clients": clients,
            "log": log, "tables": tables, "lookup": lookup, "rehashing": rehashing, "moving": moving,
            "dataset_percent": 100 * data / net, "peak_percent": 100 * used / max(self.peak, used, 1),
            "per_key": (used - self.startup) // keys if keys else 0, "ratio": resident / used if used else 0.0,
            "backlog": backlog, "replicas": replicas, "early": early,
            "not_counted": log + backlog + replicas + engine.lazyfree.pending_bytes,
        }  # fmt: skip

    def info(self) -> StatValues:
        """Return the fields of INFO memory, in Redis's order."""
        engine = self._engine
        settings, compat = engine.settings, engine.settings.compat
        measured = self.measure()
        used, resident, system = measured["used"], measured["resident"], system_memory()
        newer = compat.knows(80) and not compat.valkey
        newest = compat.knows(88) and not compat.valkey
        early = measured["early"] if newer else 0
        return {
            "used_memory": used, "used_memory_human": human(used), "used_memory_rss": resident,
            "used_memory_rss_human": human(resident), "used_memory_peak": measured["peak"],
            "used_memory_peak_human": human(measured["peak"]),
            **({"used_memory_peak_time": measured["peak_ms"] // 1000}
               if compat.knows(82) and not compat.valkey else {}),
            "used_memory_peak_perc": f"{measured['peak_percent']:.2f}%", "used_memory_overhead": measured["overhead"],
            "used_memory_startup": measured["startup"], "used_memory_dataset": measured["dataset"],
            "used_memory_dataset_perc": f"{measured['dataset_percent']:.2f}%", "allocator_allocated": used,
            "allocator_active": used, "allocator_resident": resident,
            **({"allocator_muzzy": 0} if compat.knows(74) or compat.valkey else {}),
            "total_system_memory": system, "total_system_memory_human": human(system),
            **script_stats(engine),
            "maxmemory": settings.maxmemory, "maxmemory_human": human(settings.maxmemory),
            "maxmemory_policy": settings.maxmemory_policy, "allocator_frag_ratio": "1.00", "allocator_frag_bytes": 0,
            "allocator_rss_ratio": f"{measured['ratio']:.2f}", "allocator_rss_bytes": resident - used,
            "rss_overhead_ratio": "1.00", "rss_overhead_bytes": 0,
            "mem_fragmentation_ratio": f"{measured['ratio']:.2f}", "mem_fragmentation_bytes": resident - used,
            "mem_not_counted_for_evict": measured["not_counted"],
            "mem_replication_backlog": measured["backlog"],
            "mem_total_replication_buffers": measured["backlog"] + measured["replicas"] + early,
            **({"mem_replica_full_sync_buffer": early} if newer else {}),
            **({"mem_replicas_repl_buffer": 0} if compat.valkey else {}),
            "mem_clients_slaves": measured["replicas"], "mem_clients_normal": measured["clients"],
            **({"mem_clients_normal_shared": 0, "mem_clients_normal_unshared": measured["clients"]} if newest else {}),
            **dict.fromkeys(_SLOT_BUFFERS if compat.knows(84) else (), 0), "mem_cluster_links": 0,
            **dict.fromkeys(_VALKEY_SLOT_BUFFERS if compat.valkey else (), 0),
            "mem_aof_buffer": measured["log"], "mem_allocator": "python",
            **({"mem_overhead_db_hashtable_rehashing": measured["rehashing"]}
               if compat.knows(74) or compat.valkey else {}),
            "active_defrag_running": engine.defrag.running, "lazyfree_pending_objects": engine.lazyfree.pending,
            "lazyfreed_objects": engine.lazyfree.freed,
        }  # fmt: skip

    def stats(self) -> StatValues:
        """Return the reply of MEMORY STATS, in Redis's order."""
        measured, compat = self.measure(), self._engine.settings.compat
        scripts = script_stats(self._engine)
        used, resident, clients = measured["used"], measured["resident"], measured["clients"]
        newer, newest = compat.knows(80) and not compat.valkey, compat.knows(88) and not compat.valkey
        lut = compat.knows(74) or compat.valkey
        tables = {**({0: (0, 0)} if compat.valkey else {}), **measured["tables"]}  # Valkey shows the first one always
        databases = {
            f"db.{index}": {
                "overhead.hashtable.main": keys, "overhead.hashtable.expires": expires,
                **({} if compat.knows(72) else {"overhead.hashtable.slot-to-keys": 0}),
            }
            for index, (keys, expires) in tables.items()
        }  # fmt: skip
        return {
            "peak.allocated": measured["peak"], "total.allocated": used, "startup.allocated": measured["startup"],
            "replication.backlog": measured["backlog"],
            **({"replica.fullsync.buffer": measured["early"]} if newer else {}),
            **({"replicas.repl.buffer": 0} if compat.valkey else {}), "clients.slaves": measured["replicas"],
            "clients.normal": clients,
            **({"clients.normal.shared": 0, "clients.normal.unshared": clients} if newest else {}),
            "cluster.links": 0,
            **({"cluster.slot_import": 0, "cluster.slot_export": 0} if compat.valkey else {}),
            "aof.buffer": measured["log"], "lua.caches": scripts["used_memory_scripts_eval"],
            "functions.caches": scripts["used_memory_functions"],
            **({"script.VMs": scripts["used_memory_vm_total"]} if newer else {}), **databases,
            **({"overhead.db.hashtable.lut": measured["lookup"],
                "overhead.db.hashtable.rehashing": measured["rehashing"]} if lut else {}),
            "overhead.total": measured["overhead"], **({"db.dict.rehashing.count": measured["moving"]} if lut else {}),
            "keys.count": measured["keys"], "keys.bytes-per-key": measured["per_key"],
            "dataset.bytes": measured["dataset"], "dataset.percentage": measured["dataset_percent"],
            "peak.percentage": measured["peak_percent"], "allocator.allocated": used, "allocator.active": used,
            "allocator.resident": resident, **({"allocator.muzzy": 0} if lut else {}),
            "allocator-fragmentation.ratio": 1.0, "allocator-fragmentation.bytes": 0,
            "allocator-rss.ratio": measured["ratio"], "allocator-rss.bytes": resident - used,
            "rss-overhead.ratio": 1.0, "rss-overhead.bytes": 0, "fragmentation": measured["ratio"],
            "fragmentation.bytes": resident - used,
        }  # fmt: skip


def system_memory() -> int:
    """Return the bytes of the machine's memory, 0 if the system does not report them."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0


def script_stats(engine: CommandEngine) -> StatValues:
    """Return the fields of INFO memory about scripts and functions: Lua's memory, and that of the sources."""
    scripts = engine.scripts
    waiting = 0 if engine.preserved is None else len(engine.preserved.functions)
    lua, sources, cached = (0, 0, 0) if scripts is None else (
        scripts.memory(), scripts.cached_bytes, len(scripts.cache))  # fmt: skip
    functions = None if scripts is None else scripts.functions
    vm, overhead, names, libraries = (0, 0, 0, 0) if functions is None else (
        functions.memory(), functions.overhead(), len(functions.current.functions), len(functions.current.libraries)
    )  # fmt: skip
    return {
        "used_memory_lua": lua, "used_memory_vm_eval": lua, "used_memory_lua_human": human(lua),
        "used_memory_scripts_eval": sources, "number_of_cached_scripts": cached, "number_of_functions": names,
        "number_of_libraries": libraries + waiting, "used_memory_vm_functions": vm, "used_memory_vm_total": lua + vm,
        "used_memory_vm_total_human": human(lua + vm), "used_memory_functions": overhead,
        "used_memory_scripts": sources + overhead, "used_memory_scripts_human": human(sources + overhead),
    }  # fmt: skip
