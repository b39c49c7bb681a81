"""INFO: lines `name:value` under `# Section` heads (Redis: server.c, genRedisInfoString).

Each section is a function of the engine. The host adds fields that only it can compute, and its own sections
(`Host.info_sections`). Fields of Redis that have no meaning in rillet are left out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rillet.commands.arguments import text
from rillet.commands.server import command
from rillet.commands.server.keysizes import key_sizes
from rillet.runtime.admission import READ_ONLY
from rillet.runtime.registry import TABLE, Command
from rillet.runtime.session import Session
from rillet.runtime.session_state import SUBSCRIBED

Facts = Mapping[str, Any]


def _server(engine: Any) -> Facts:
    from rillet import __version__, compiled

    now_us = engine.clock.now_us()
    up = max(now_us // 1_000_000 - engine.started_ms // 1000, 0)
    compat = engine.settings.compat
    valkey = {"server_name": "valkey", "valkey_version": compat.valkey_version} if compat.valkey else {}
    return {
        "redis_version": compat.redis_version, **valkey,
        "rillet_version": __version__, "rillet_compiled": "yes" if compiled() else "no",
        "redis_mode": "standalone", "os": sys.platform, "arch_bits": sys.maxsize.bit_length() + 1,
        "python_version": sys.version.split()[0], "process_id": os.getpid(), "run_id": engine.run_id,
        "tcp_port": engine.settings.port, "server_time_usec": now_us, "uptime_in_seconds": up,
        "uptime_in_days": up // 86400, "hz": engine.settings.hz, "configured_hz": engine.settings.hz,
    }  # fmt: skip


def _clients(engine: Any) -> Facts:
    sessions = [session for session in engine.sessions.values() if not session.trusted]
    compat = engine.settings.compat
    listening = {}
    if compat.knows(74) or compat.valkey:
        listening["pubsub_clients"] = sum(1 for session in sessions if session.state & SUBSCRIBED)
    if compat.knows(72):
        listening.update(_waited_for(sessions))
    return {
        "connected_clients": len(sessions), "maxclients": engine.settings.maxclients,
        "blocked_clients": sum(1 for session in sessions if session.blocked is not None), "tracking_clients": 0,
        **listening,
    }  # fmt: skip


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


def _memory(engine: Any) -> Facts:
    facts: Facts = engine.memory.info()
    return facts


def _persistence(engine: Any) -> Facts:
    # All fields of Redis in Redis's order. A host with files and child processes overrides their values.
    compat = engine.settings.compat
    saves = {"rdb_saves": 0, **({"rdb_saves_consecutive_failures": 0} if compat.knows(82) else {})}
    forks = {"module_fork_in_progress": 0, "module_fork_last_cow_size": 0}
    if compat.valkey:
        forks["slot_migration_fork_in_progress"] = 0
    return {
        "loading": int(engine.loading), "async_loading": 0, "current_cow_peak": 0, "current_cow_size": 0,
        "current_cow_size_age": 0, "current_fork_perc": "0.00", "current_save_keys_processed": 0,
        "current_save_keys_total": 0, "rdb_changes_since_last_save": engine.dirty, "rdb_bgsave_in_progress": 0,
        "rdb_last_save_time": engine.started_ms // 1000, "rdb_last_bgsave_status": "ok", "rdb_last_bgsave_time_sec": -1,
        "rdb_current_bgsave_time_sec": -1, **saves, "rdb_last_cow_size": 0, "rdb_last_load_keys_expired": 0,
        "rdb_last_load_keys_loaded": 0, "aof_enabled": int(engine.log is not None), "aof_rewrite_in_progress": 0,
        "aof_rewrite_scheduled": 0, "aof_last_rewrite_time_sec": -1, "aof_current_rewrite_time_sec": -1,
        "aof_last_bgrewrite_status": "ok", "aof_rewrites": 0, "aof_rewrites_consecutive_failures": 0,
        "aof_last_write_status": "ok" if engine.refusal in (None, READ_ONLY) else "err", "aof_last_cow_size": 0,
        **forks,
    }  # fmt: skip


def _stats(engine: Any) -> Facts:
    compat = engine.settings.compat
    current, total = engine.eviction.exceeded_times()
    counted = engine.statistics
    active = {"expired_keys_active": counted.expired_keys_active} if compat.knows(86) else {}
    fields = {"expired_fields": counted.expired_fields} if compat.valkey else {}
    if compat.knows(74):
        fields = {"expired_subkeys": counted.expired_fields}
    if compat.knows(86):
        fields["expired_subkeys_active"] = counted.expired_fields_active
    return {
        "total_connections_received": engine.next_session_id - 1,
        "total_commands_processed": engine.statistics.commands_processed,
        **(fields if compat.knows(74) else {}), "expired_keys": counted.expired_keys, **active,
        **(fields if compat.valkey else {}),
        "expired_stale_perc": f"{engine.expiry.stale_percent:.2f}",
        "expired_time_cap_reached_count": engine.expiry.capped,
        "expire_cycle_cpu_milliseconds": engine.expiry.used // 1_000_000,
        "evicted_keys": engine.eviction.evicted_keys, "evicted_clients": engine.memory.clients_evicted,
        **({"evicted_scripts": 0} if compat.knows(74) or compat.valkey else {}),
        "evicted_stream_entries": engine.eviction.trimmed_entries,
        "total_eviction_exceeded_time": total, "current_eviction_exceeded_time": current,
        "keyspace_hits": sum(database.hits for database in engine.databases),
        "keyspace_misses": sum(database.misses for database in engine.databases),
        "pubsub_channels": len(engine.channels.channels), "pubsub_patterns": len(engine.channels.patterns),
        "pubsubshard_channels": len(engine.channels.shards), "latest_fork_usec": 0, "total_forks": 0,
        **engine.defrag.statistics(),
        "total_error_replies": engine.statistics.error_replies,
    }  # fmt: skip


def _replication(engine: Any) -> Facts:
    return {"role": "master", "connected_slaves": 0, "master_replid": engine.replication_id, "master_repl_offset": 0}


def _cpu(_engine: Any) -> Facts:
    times = os.times()
    return {"used_cpu_sys": f"{times.system:.6f}", "used_cpu_user": f"{times.user:.6f}"}


def _errorstats(engine: Any) -> Facts:
    return {f"errorstat_{prefix}": f"count={count}" for prefix, count in engine.statistics.errors.items()}


def _commandstats(engine: Any) -> Facts:
    counters = ((entry, engine.statistics.of(entry)) for entry in all_commands(engine))
    return {
        f"cmdstat_{entry.fullname}":
            f"calls={one.calls},usec={one.nanoseconds // 1000},"
            f"usec_per_call={one.nanoseconds / 1000 / one.calls if one.calls else 0:.2f},"
            f"rejected_calls={one.rejected},failed_calls={one.failed}"
        for entry, one in counters if one.calls or one.rejected
    }  # fmt: skip


def known_commands(engine: Any) -> list[Command]:
    """Return the commands that the engine has, also those of modules, sorted by name, without subcommands."""
    known = TABLE.known(engine.settings.compat)
    if engine.modules is not None and engine.modules.commands:
        known = sorted([*known, *engine.modules.commands.values()], key=lambda entry: entry.name)
    return known


def find_command(engine: Any, name: bytes) -> Command | None:
    """Return the command of that name in any case ("XADD", "xgroup|create"), also one of a module, or None."""
    found = TABLE.find(name, engine.settings.compat)
    if found is None and engine.modules is not None:
        head, _, tail = name.lower().partition(b"|")
        found = engine.modules.commands.get(head)
        if tail and found is not None:
            found = (found.subcommands or {}).get(tail)
    return found


def all_commands(engine: Any = None) -> Iterable[Command]:
    """Yield all commands and subcommands, with an engine also those of its modules."""
    modules = None if engine is None else engine.modules
    for entry in (*TABLE, *(() if modules is None else modules.commands.values())):
        yield entry
        yield from (entry.subcommands or {}).values()


def _cluster(_engine: Any) -> Facts:
    return {"cluster_enabled": 0}


def _keyspace(engine: Any) -> Facts:
    compat = engine.settings.compat
    name = ",keys_with_volatile_items=" if compat.valkey else ",subexpiry=" if compat.knows(74) else ""
    return {
        f"db{database.index}":
            f"keys={len(database)},expires={len(database.expires)},avg_ttl={database.average_ttl}"
            + (f"{name}{len(database.subexpires)}" if name else "")
        for database in engine.databases if len(database)
    }  # fmt: skip


_DEFAULT: dict[str, Callable[[Any], Facts]] = {
    "server": _server, "clients": _clients, "memory": _memory, "persistence": _persistence, "stats": _stats,
    "replication": _replication, "cpu": _cpu, "modules": lambda _engine: {}, "errorstats": _errorstats,
    "cluster": _cluster, "keyspace": _keyspace,
}  # fmt: skip
_ALL: dict[str, Callable[[Any], Facts]] = {
    **{name: facts for name, facts in _DEFAULT.items() if name != "keyspace"},
    "commandstats": _commandstats, "keyspace": _keyspace,
}  # fmt: skip
# Sections that only their own name selects.
_NAMED: dict[str, Callable[[Any], Facts]] = {"keysizes": key_sizes}


def info_text(engine: Any, wanted: list[str]) -> bytes:
    """Return the text of INFO for the wanted sections, by default those of "default"."""
    host: Mapping[str, Callable[[], Facts]] = engine.host.info_sections()
    names: list[str] = []
    for name in wanted or ["default"]:
        group = {"default": _DEFAULT, "all": _ALL, "everything": _ALL}.get(name)
        names += [name] if group is None else [*group, *(one for one in host if one not in group)]
    sections = []
    of_modules = {} if engine.modules is None else engine.modules.info(wanted)
    for name in dict.fromkeys(names):
        section = _ALL.get(name) or (_NAMED.get(name) if engine.settings.compat.knows(80) else None)
        if section is None and name not in host:
            continue
        facts = {} if section is None else {**section(engine)}
        if name in host:
            facts.update(host[name]())
        rows = (f"{key}:{value}" for key, value in facts.items())
        if name == "modules" and engine.modules is not None:
            rows = iter(engine.modules.rows())
        sections.append("\r\n".join((f"# {name.capitalize()}", *rows)) + "\r\n")
    sections += ["\r\n".join((f"# {name}", *rows)) + "\r\n" for name, rows in of_modules.items()]
    return "\r\n".join(sections).encode("utf-8", "surrogateescape")


@command("info", arity=-1, flags="loading stale", since="1.0.0", syntax="[section [section ...]]", complexity="O(1)")
def info(session: Session, argv: list[bytes]) -> None:
    """Return statistics and settings of the server, by sections."""
    sections = [text(word).lower() for word in argv[1:]]
    session.out.verbatim(info_text(session.engine, sections))
