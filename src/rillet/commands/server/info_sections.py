"""The sections of INFO that the engine computes: a function of the engine for each (Redis: server.c).

A field exists in the servers that have it: `compat` decides. The fields of features that rillet lacks (a cluster,
replicas, threads for input and output) have the values of a Redis that does not use them. The server or store adds or
overrides the fields that only it knows (`EngineServices.info_sections`).
"""

from __future__ import annotations

import os
import platform
import select
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rillet.commands.server.replica import replica_info
from rillet.keyspace.helper_keys import RETENTION
from rillet.runtime.admission import FEW_REPLICAS, READ_ONLY
from rillet.runtime.memory import script_stats
from rillet.runtime.pause import PAUSE_WRITES
from rillet.runtime.session_state import MASTER, REPLICA, SUBSCRIBED, TRUSTED
from rillet.structs.crc64 import crc64
from rillet.types.compat import Compat

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine
    from rillet.runtime.settings.settings import Settings

try:
    import resource
except ModuleNotFoundError:  # Windows lacks the module `resource`
    resource = None  # type: ignore[assignment]

Facts = Mapping[str, Any]
_ACTIVE_MS = 512  # a client is active if it sent something in this time
_LRU_CLOCK = (1 << 24) - 1


def _redis_since(compat: Compat, level: int) -> bool:
    """Return whether the server is Redis from a level on, and not Valkey."""
    return compat.knows(level) and not compat.valkey


def _both_since(compat: Compat, level: int) -> bool:
    """Return whether the server is Redis from a level on, or Valkey."""
    return compat.knows(level) or compat.valkey


@lru_cache(maxsize=1)
def _build() -> dict[str, Any]:
    """Return the facts about the build, which do not change."""
    from rillet import __version__, compiled

    system = platform.uname()
    compiler = platform.python_compiler().split()
    identity = f"{__version__} {compiled()} {sys.version}".encode()
    return {
        "rillet_version": __version__, "rillet_compiled": "yes" if compiled() else "no",
        "os": f"{system.system} {system.release} {system.machine}", "python_version": sys.version.split()[0],
        "build_id": f"{crc64(identity):x}", "gcc": compiler[1] if compiler[:1] == ["GCC"] else "0.0.0",
        "poll": "epoll" if hasattr(select, "epoll") else "kqueue" if hasattr(select, "kqueue") else "select",
        "executable": os.path.abspath(sys.argv[0]) if sys.argv and sys.argv[0] else sys.executable,
    }  # fmt: skip


def _supervisor(settings: Settings) -> str:
    """Return the service manager to which the server reports."""
    chosen: str = settings.supervised
    return ("systemd" if "NOTIFY_SOCKET" in os.environ else "no") if chosen == "auto" else chosen


def server(engine: CommandEngine) -> Facts:
    """Return INFO server."""
    build, settings, compat = _build(), engine.settings, engine.settings.compat
    now_us = engine.clock.now_us()
    up = max(now_us // 1_000_000 - engine.started_ms // 1000, 0)
    valkey: dict[str, Any] = {}
    mode = "redis_mode"
    if compat.valkey:
        valkey = {"server_name": "valkey", "valkey_version": compat.valkey_version, "valkey_release_stage": "ga"}
        mode = "redis_mode" if settings.extended_redis_compatibility else "server_mode"
    return {
        "redis_version": compat.redis_version, **valkey, "redis_git_sha1": "00000000", "redis_git_dirty": 0,
        "redis_build_id": build["build_id"], mode: "standalone", "rillet_version": build["rillet_version"],
        "rillet_compiled": build["rillet_compiled"], "os": build["os"], "arch_bits": sys.maxsize.bit_length() + 1,
        "monotonic_clock": "POSIX clock_gettime", "multiplexing_api": build["poll"],
        **({} if compat.valkey else {"atomicvar_api": "python-gil"}), "gcc_version": build["gcc"],
        "python_version": build["python_version"], "process_id": os.getpid(),
        "process_supervised": _supervisor(settings), "run_id": engine.run_id, "tcp_port": settings.port,
        "server_time_usec": now_us, "uptime_in_seconds": up, "uptime_in_days": up // 86400, "hz": settings.hz,
        "configured_hz": settings.hz, **({"clients_hz": settings.hz} if compat.valkey else {}),
        "lru_clock": now_us // 1_000_000 & _LRU_CLOCK, "executable": build["executable"], "config_file": "",
        "io_threads_active": 0,
        **({"availability_zone": settings.availability_zone} if compat.valkey else {}),
    }  # fmt: skip


# -- clients ----------------------------------------------------------------------------------------


def clients(engine: CommandEngine) -> Facts:
    """Return INFO clients."""
    sessions = [session for session in engine.sessions.values()
                if not session.state & (TRUSTED | REPLICA) or session.state & MASTER]
    compat = engine.settings.compat
    fields: dict[str, Any] = {
        "connected_clients": len(sessions), "cluster_connections": 0, "maxclients": engine.settings.maxclients,
        "client_recent_max_input_buffer": 0, "client_recent_max_output_buffer": 0,
        "blocked_clients": sum(1 for session in sessions if session.blocked is not None),
        "tracking_clients": engine.tracking.clients,
    }  # fmt: skip
    if _both_since(compat, 74):
        fields["pubsub_clients"] = sum(1 for session in sessions if session.state & SUBSCRIBED)
        fields["watching_clients"] = sum(1 for session in sessions if session.watcher.keys)
    timed = [session for session in sessions if session.blocked is not None and session.blocked.deadline]
    fields["clients_in_timeout_table"] = len(timed)
    if _redis_since(compat, 88):
        oldest = engine.clock.now_ms() - _ACTIVE_MS
        fields["active_clients"] = sum(1 for session in sessions if session.last_ms >= oldest)
    if _both_since(compat, 74):
        fields["total_watched_keys"] = sum(len(database.watched_keys) for database in engine.databases)
    if compat.knows(72):
        fields.update(_waited_for(sessions))
    if compat.valkey:
        fields.update(_pause(engine))
    return fields


def _waited_for(sessions: list[Any]) -> dict[str, int]:
    """Count the keys with blocked clients, and those whose deletion ends a blocking XREADGROUP (blocked.c)."""
    keys: set[tuple[int, bytes]] = set()
    on_nokey: set[tuple[int, bytes]] = set()
    for session in sessions:
        if session.blocked is not None:
            waited = {(session.blocked.db.index, key) for key in session.blocked.keys}
            keys |= waited
            if session.command.fullname == "xreadgroup":
                on_nokey |= waited
    return {"total_blocking_keys": len(keys), "total_blocking_keys_on_nokey": len(on_nokey)}


def _pause(engine: CommandEngine) -> dict[str, Any]:
    """Return Valkey's fields about CLIENT PAUSE."""
    if not engine.paused:
        return {"paused_reason": "none", "paused_actions": "none", "paused_timeout_milliseconds": 0}
    reason, left = engine.services.pause_state()
    return {"paused_reason": reason, "paused_actions": "write" if engine.paused == PAUSE_WRITES else "all",
            "paused_timeout_milliseconds": left}  # fmt: skip


def memory(engine: CommandEngine) -> Facts:
    """Return INFO memory."""
    facts: Facts = engine.memory.info()
    return facts


def persistence(engine: CommandEngine) -> Facts:
    """Return INFO persistence; a server or store with files overrides the values."""
    compat = engine.settings.compat
    saves = {"rdb_saves": 0, **({"rdb_saves_consecutive_failures": 0} if compat.knows(84) else {})}
    forks = {"module_fork_in_progress": 0, "module_fork_last_cow_size": 0}
    if compat.valkey:
        forks["slot_migration_fork_in_progress"] = 0
    link = engine.replication.link
    return {
        "loading": int(engine.loading), "async_loading": int(link is not None and link.asynchronous),
        "current_cow_peak": 0, "current_cow_size": 0, "current_cow_size_age": 0, "current_fork_perc": "0.00",
        "current_save_keys_processed": 0, "current_save_keys_total": 0,
        "rdb_changes_since_last_save": engine.dirty, "rdb_bgsave_in_progress": 0,
        "rdb_last_save_time": engine.started_ms // 1000, "rdb_last_bgsave_status": "ok", "rdb_last_bgsave_time_sec": -1,
        "rdb_current_bgsave_time_sec": -1, **saves, "rdb_last_cow_size": 0, "rdb_last_load_keys_expired": 0,
        "rdb_last_load_keys_loaded": 0, "aof_enabled": int(engine.aof is not None), "aof_rewrite_in_progress": 0,
        "aof_rewrite_scheduled": 0, "aof_last_rewrite_time_sec": -1, "aof_current_rewrite_time_sec": -1,
        "aof_last_bgrewrite_status": "ok", "aof_rewrites": 0, "aof_rewrites_consecutive_failures": 0,
        "aof_last_write_status": "ok" if engine.refusal in (None, READ_ONLY, FEW_REPLICAS) else "err",
        "aof_last_cow_size": 0,
        **forks,
    }  # fmt: skip


def threads(engine: CommandEngine) -> Facts:
    """Return INFO threads (Redis 8.0): one thread reads, writes and runs the commands."""
    facts = {**engine.services.info_sections().get("stats", dict)()}
    reads, writes = facts.get("total_reads_processed", 0), facts.get("total_writes_processed", 0)
    return {"io_thread_0": f"clients={len(engine.sessions)},reads={reads},writes={writes}"}


# -- stats ------------------------------------------------------------------------------------------


def stats(engine: CommandEngine) -> Facts:
    """Return INFO stats."""
    compat, counted = engine.settings.compat, engine.stats
    return {
        "total_connections_received": engine.next_session_id - 1,
        "total_commands_processed": counted.commands_processed, "instantaneous_ops_per_sec": 0,
        "total_net_input_bytes": 0, "total_net_output_bytes": 0, "total_net_repl_input_bytes": 0,
        "total_net_repl_output_bytes": engine.replication.sent_bytes,
        **({"total_net_cluster_slot_import_bytes": 0, "total_net_cluster_slot_export_bytes": 0}
           if compat.valkey else {}),
        "instantaneous_input_kbps": "0.00", "instantaneous_output_kbps": "0.00",
        "instantaneous_input_repl_kbps": "0.00", "instantaneous_output_repl_kbps": "0.00",
        "rejected_connections": 0, "sync_full": engine.replication.full_syncs,
        "sync_partial_ok": engine.replication.partial_syncs,
        "sync_partial_err": engine.replication.failed_partial_syncs,
        **_expired(engine), **_evicted(engine),
        "keyspace_hits": sum(database.hits for database in engine.databases),
        "keyspace_misses": sum(database.misses for database in engine.databases),
        "pubsub_channels": len(engine.channels.channels), "pubsub_patterns": len(engine.channels.patterns),
        "pubsubshard_channels": len(engine.channels.shards), "latest_fork_usec": 0, "total_forks": 0,
        "migrate_cached_sockets": len(getattr(engine.services, "peers", None) or ()), "slave_expires_tracked_keys": 0,
        **engine.defrag.stats(), "tracking_total_keys": len(engine.tracking.table),
        "tracking_total_items": engine.tracking.items, "tracking_total_prefixes": len(engine.tracking.prefixes),
        "unexpected_error_replies": 0, "total_error_replies": counted.error_replies,
        "dump_payload_sanitizations": 0, "total_reads_processed": 0, "total_writes_processed": 0,
        **_thread_fields(compat),
        **({"client_query_buffer_limit_disconnections": counted.input_limit_hits,
            "client_output_buffer_limit_disconnections": counted.output_limit_hits}
           if _both_since(compat, 74) else {}),
        "reply_buffer_shrinks": counted.buffer_shrinks, "reply_buffer_expands": 0, **_turns(engine), **_denials(engine),
    }  # fmt: skip


def _expired(engine: CommandEngine) -> Facts:
    compat, counted = engine.settings.compat, engine.stats
    fields: dict[str, Any] = {"expired_fields": counted.expired_fields} if compat.valkey else {}
    if compat.knows(74):
        fields = {"expired_subkeys": counted.expired_fields}
    if compat.knows(86):
        fields["expired_subkeys_active"] = counted.expired_fields_active
    stale = f"{engine.expiry.stale_percent:.2f}"
    return {
        **(fields if compat.knows(74) else {}), "expired_keys": counted.expired_keys,
        **({"expired_keys_active": counted.expired_keys_active} if compat.knows(86) else {}),
        **(fields if compat.valkey else {}), "expired_stale_perc": stale,
        **({"expired_keys_with_volatile_items_stale_perc": "0.00"} if compat.valkey else {}),
        "expired_time_cap_reached_count": engine.expiry.capped,
        "expire_cycle_cpu_milliseconds": engine.expiry.used // 1_000_000,
    }  # fmt: skip


def _evicted(engine: CommandEngine) -> Facts:
    current, total = engine.eviction.exceeded_times()
    evicted_scripts = 0 if engine.scripts is None else engine.scripts.evicted
    return {
        "evicted_keys": engine.eviction.evicted_keys, "evicted_clients": engine.memory.clients_evicted,
        **({"evicted_scripts": evicted_scripts} if _both_since(engine.settings.compat, 74) else {}),
        "evicted_stream_entries": engine.eviction.trimmed_entries, "total_eviction_exceeded_time": total,
        "current_eviction_exceeded_time": current,
    }  # fmt: skip


def _thread_fields(compat: Compat) -> dict[str, int]:
    """Return the fields about threads for input and output, which rillet does not use."""
    names = ["reads_processed", "writes_processed"]
    if compat.valkey:
        names += ["freed_objects", "accept_processed", "poll_processed"]
    if _both_since(compat, 82):
        names += ["total_prefetch_batches", "total_prefetch_entries"]
    return {f"io_threaded_{name}": 0 for name in names}


def _turns(engine: CommandEngine) -> Facts:
    """Return the fields about the event loop: a turn runs what one client has sent."""
    compat, counted = engine.settings.compat, engine.stats
    if not _both_since(compat, 72):
        return {}
    fields: dict[str, Any] = {
        "eventloop_cycles": counted.turns, "eventloop_duration_sum": counted.busy_ns // 1000,
        "eventloop_duration_cmd_sum": sum(one.nanoseconds for one in counted.commands) // 1000,
        "instantaneous_eventloop_cycles_per_sec": 0, "instantaneous_eventloop_duration_usec": 0,
    }  # fmt: skip
    if _redis_since(compat, 88):
        average = counted.turn_commands / counted.turns if counted.turns else 0.0
        fields |= {
            "eventloop_cycles_with_clients_processing": counted.turns, "total_client_processing_events": counted.turns,
            "avg_pipeline_length_sum": counted.turn_commands, "avg_pipeline_length_cnt": counted.turns,
            "avg_pipeline_length": f"{average:.2f}", "slowlog_commands_count": counted.slow,
            "slowlog_commands_time_ms_max": f"{counted.slowest_us / 1000:.2f}",
            "slowlog_commands_time_ms_sum": f"{counted.slow_us / 1000:.2f}",
        }  # fmt: skip
    return fields


def _denials(engine: CommandEngine) -> dict[str, int]:
    """Return the counters of what ACL has denied."""
    compat, denials = engine.settings.compat, engine.acl.log.denials
    names = {b"auth": "auth", b"command": "cmd", b"key": "key", b"channel": "channel"}
    if not _both_since(compat, 72):
        return {}
    if _both_since(compat, 86):
        names[b"tls-cert"] = "tls_cert"
    if compat.valkey:
        names[b"database"] = "db"
    return {f"acl_access_denied_{name}": denials[reason] for reason, name in names.items()}


# -- the others -------------------------------------------------------------------------------------


def replication(engine: CommandEngine) -> Facts:
    """Return INFO replication: the role, the replicas, and the stream."""
    follows = engine.replication.master is not None
    return {"role": "slave" if follows else "master", **(replica_info(engine) if follows else {}),
            **_replicas(engine), **_history(engine)}  # fmt: skip


def _replicas(engine: CommandEngine) -> Facts:
    """Return the fields about attached replicas."""
    settings, stream = engine.settings, engine.replication.stream
    compat = settings.compat
    replicas = [] if stream is None else stream.info()
    facts: dict[str, Any] = {"connected_slaves": len(replicas)}
    if settings.min_replicas_to_write and settings.min_replicas_max_lag:
        facts["min_slaves_good_slaves"] = 0 if stream is None else stream.good
    last = ",type=replica" if compat.valkey else ",io-thread=0" if compat.knows(80) else ""
    for number, replica in enumerate(replicas):
        facts[f"slave{number}"] = ",".join(f"{name}={value}" for name, value in replica.items()) + last
    return facts


def _history(engine: CommandEngine) -> Facts:
    """Return the fields about the history, the offset and the backlog."""
    state, settings = engine.replication, engine.settings
    offset, backlog = state.position(), None if state.stream is None else state.stream.backlog
    return {
        **({"replicas_waiting_psync": 0} if settings.compat.valkey else {}),
        "master_failover_state": state.failover_state, "master_replid": state.id, "master_replid2": state.id2,
        "master_repl_offset": offset, "second_repl_offset": state.second_offset,
        "repl_backlog_active": int(backlog is not None), "repl_backlog_size": settings.repl_backlog_size,
        "repl_backlog_first_byte_offset": 0 if backlog is None else backlog.first + 1,
        "repl_backlog_histlen": 0 if backlog is None else len(backlog),
    }  # fmt: skip


def cpu(engine: CommandEngine) -> Facts:
    """Return INFO CPU: the process, its children, and this thread."""
    times = os.times()
    fields = {
        "used_cpu_sys": times.system, "used_cpu_user": times.user, "used_cpu_sys_children": times.children_system,
        "used_cpu_user_children": times.children_user,
    }  # fmt: skip
    if resource is not None and hasattr(resource, "RUSAGE_THREAD"):
        own = resource.getrusage(resource.RUSAGE_THREAD)
        fields |= {"used_cpu_sys_main_thread": own.ru_stime, "used_cpu_user_main_thread": own.ru_utime}
    if engine.settings.compat.valkey:
        fields["used_active_time_main_thread"] = engine.stats.busy_ns / 1e9
    return {name: f"{seconds:.6f}" for name, seconds in fields.items()}


def hotkeys(engine: CommandEngine) -> Facts:
    """Return INFO hotkeys (Redis 8.6): empty without a session of HOTKEYS."""
    hotkeys = engine.command_log.hotkeys
    if hotkeys is None:
        return {}
    return {"hotkeys-tracking-active": int(hotkeys.active), "hotkeys-cmd-cpu-time": 0,
            "hotkeys-used-memory": hotkeys.used_memory()}  # fmt: skip


def cluster(_engine: CommandEngine) -> Facts:
    """Return INFO cluster."""
    return {"cluster_enabled": 0}


def keyspace(engine: CommandEngine) -> Facts:
    """Return INFO keyspace: the databases that contain keys."""
    compat = engine.settings.compat
    name = ",keys_with_volatile_items=" if compat.valkey else ",subexpiry=" if compat.knows(74) else ""
    return {
        f"db{database.index}":
            f"keys={len(database)},expires={len(database.expires)},avg_ttl={database.average_ttl}"
            + (f"{name}{len(database.subexpires)}" if name else "")
        for database in engine.databases if len(database)
    }  # fmt: skip


def debug(engine: CommandEngine) -> Facts:
    """Return INFO debug (Redis 7.2), which only its own name selects."""
    counted = engine.stats
    fields = {
        "eventloop_duration_aof_sum": counted.log_ns // 1000, "eventloop_duration_cron_sum": counted.cron_ns // 1000,
        "eventloop_duration_max": counted.longest_ns // 1000, "eventloop_cmd_per_cycle_max": counted.most_commands,
    }  # fmt: skip
    if _redis_since(engine.settings.compat, 80):
        names = ("allocated", "active", "resident", "frag_bytes")
        fields.update((f"allocator_{name}_lua", 0) for name in names)
    return fields


def scripting_engines(engine: CommandEngine) -> Facts:
    """Return INFO scripting engines: Valkey loads interpreters as modules; rillet's Lua is built in."""
    of_scripts = script_stats(engine)
    used, overhead = of_scripts["used_memory_vm_total"], of_scripts["used_memory_functions"]
    return {
        "engines_count": 1, "engines_total_used_memory": used, "engines_total_memory_overhead": overhead,
        "engine_0": f"name=LUA,module=built-in,abi_version=4,used_memory={used},memory_overhead={overhead}",
    }  # fmt: skip


def rillet(engine: CommandEngine) -> Facts:
    """Return INFO rillet: the retention of streams; a server with segments adds where the entries of streams are."""
    if all(database.keys.find(RETENTION) < 0 for database in engine.databases):
        return {}
    from rillet.commands.stream.retention import figures  # few engines need it

    return figures(engine)


def empty(_engine: CommandEngine) -> Facts:
    """Return a section without fields."""
    return {}


def tls(_engine: CommandEngine) -> Facts:
    """Return Valkey's INFO TLS without certificates; a server with TLS overrides the fields."""
    kinds = ("server", "client", "ca")
    return {name: value for kind in kinds for name, value in (
        (f"tls_{kind}_cert_serial", "none"), (f"tls_{kind}_cert_expires_in_seconds", 0))}  # fmt: skip
