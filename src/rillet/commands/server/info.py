"""INFO: lines `name:value` under `# Section` heads (Redis: server.c, genRedisInfoString).

Each section is a function of the engine (info_sections.py). The server or store adds fields that only it can compute,
and its own sections (`EngineServices.info_sections`). The order of the sections is Redis's, whatever the order of the
arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rillet.commands.arguments import text
from rillet.commands.server import command
from rillet.commands.server import info_sections as sections
from rillet.commands.server.keysizes import key_sizes
from rillet.runtime.engine_stats import CommandStats
from rillet.runtime.registry import TABLE, Command
from rillet.runtime.session import Session
from rillet.types.compat import NEVER, Compat

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine

Facts = Mapping[str, Any]
Section = Callable[[Any], Facts]
_UNSAFE = str.maketrans("#:\n\r", "____")


def _errorstats(engine: CommandEngine) -> Facts:
    # A script can create a word with bytes that would end the line or the field (getSafeInfoString).
    words = sorted(engine.stats.errors.items())
    return {f"errorstat_{word.translate(_UNSAFE)}": f"count={count}" for word, count in words}


def _commandstats(engine: CommandEngine) -> Facts:
    counters = ((entry, engine.stats.of_command(entry)) for entry in all_commands(engine))
    newest = engine.settings.compat.knows(88)
    return {
        f"cmdstat_{entry.fullname}":
            f"calls={one.calls},usec={one.nanoseconds // 1000},"
            f"usec_per_call={one.nanoseconds / 1000 / one.calls if one.calls else 0:.2f},"
            f"rejected_calls={one.rejected},failed_calls={one.failed}" + (_slow_calls(one) if newest else "")
        for entry, one in counters if one.calls or one.rejected
    }  # fmt: skip


def _slow_calls(one: CommandStats) -> str:
    """Return the newest Redis's fields about a command in the slow log."""
    if not one.slow:
        return ""
    return (f",slowlog_count={one.slow},slowlog_time_ms_sum={one.slow_us / 1000:.2f},"
            f"slowlog_time_ms_max={one.slowest_us / 1000:.2f}")  # fmt: skip


def _latencystats(engine: CommandEngine) -> Facts:
    """Return the percentiles of each command's times in microseconds, unless `latency-tracking` is off."""
    settings = engine.settings
    if not settings.latency_tracking:
        return {}
    counted = ((entry, engine.stats.of_command(entry).histogram) for entry in all_commands(engine))
    return {
        f"latency_percentiles_usec_{entry.fullname}":
            ",".join(f"p{percent:.6f}".rstrip("0").rstrip(".") + f"={histogram.percentile(percent) / 1000:.3f}"
                     for percent in settings.latency_tracking_info_percentiles)
        for entry, histogram in counted if histogram is not None
    }  # fmt: skip


# Commands that COMMAND does not show.
UNLISTED = frozenset({"rillet.changes", "rillet.seal", "rillet.unseal", "rillet.xsegments"})


def known_commands(engine: CommandEngine) -> list[Command]:
    """Return the commands that the engine lists, also those of modules, sorted by name, without subcommands."""
    known = [entry for entry in TABLE.known(engine.settings.compat) if entry.fullname not in UNLISTED]
    if engine.modules is not None and engine.modules.commands:
        known = sorted([*known, *engine.modules.commands.values()], key=lambda entry: entry.name)
    return known


def find_command(engine: CommandEngine, name: bytes) -> Command | None:
    """Return the command of that name in any case ("XADD", "xgroup|create"), also one of a module, or None."""
    found = TABLE.find(name, engine.settings.compat)
    if found is None and engine.modules is not None:
        head, _, tail = name.lower().partition(b"|")
        found = engine.modules.commands.get(head)
        if tail and found is not None:
            found = (found.subcommands or {}).get(tail)
    return found


def find_subcommand(engine: CommandEngine, line: list[bytes]) -> Command | None:
    """Return the command or subcommand that a line calls, None for an unknown one (server.c: lookupCommand)."""
    entry = find_command(engine, line[0].partition(b"|")[0]) if b"|" not in line[0] else None
    if entry is None or entry.subcommands is None or len(line) == 1:
        return entry
    found = entry.subcommands.get(line[1].lower())
    return found if found is not None and found.known_to(engine.settings.compat) else None


def all_commands(engine: CommandEngine | None = None) -> Iterable[Command]:
    """Yield all commands and subcommands, with an engine also those of its modules."""
    modules = None if engine is None else engine.modules
    for entry in (*TABLE, *(() if modules is None else modules.commands.values())):
        yield entry
        yield from (entry.subcommands or {}).values()


_OWN = "rillet"  # the section that Redis does not have; it appears only if it has fields
# Section -> its head and function, in Redis's order; `since` and `valkey`: the servers that have it.
class _Section(NamedTuple):
    name: str
    head: str
    facts: Section
    redis_since: int = 0
    valkey: bool = True

    def known_to(self, compat: Compat) -> bool:
        """Return whether a server has the section."""
        return self.valkey if compat.valkey else compat.knows(self.redis_since)


_SECTIONS = tuple(_Section(*row) for row in (
    ("server", "Server", sections.server), ("tls", "TLS", sections.tls, NEVER),
    ("clients", "Clients", sections.clients), ("memory", "Memory", sections.memory),
    ("persistence", "Persistence", sections.persistence), ("threads", "Threads", sections.threads, 80, False),
    ("stats", "Stats", sections.stats), ("replication", "Replication", sections.replication),
    ("cpu", "CPU", sections.cpu), ("hotkeys", "Hotkeys", sections.hotkeys, 86, False),
    ("modules", "Modules", sections.empty), ("commandstats", "Commandstats", _commandstats),
    ("errorstats", "Errorstats", _errorstats), ("latencystats", "Latencystats", _latencystats),
    ("cluster", "Cluster", sections.cluster), ("cluster_info", "Cluster Info", sections.empty, NEVER),
    ("scriptingengines", "Scripting Engines", sections.scripting_engines, NEVER),
    ("keyspace", "Keyspace", sections.keyspace), ("keysizes", "Keysizes", key_sizes, 80, False),
    ("debug", "Debug", sections.debug, 72), (_OWN, "Rillet", sections.rillet),
))  # fmt: skip
_HEADS = {section.name: section.head for section in _SECTIONS}
# Sections that INFO without arguments omits. KEYSIZES reads all keys, so only its name and `all` select it.
_NOT_DEFAULT = frozenset(("commandstats", "latencystats", "keysizes", "cluster_info", "scriptingengines", "debug"))
_OWN_NAME_ONLY = frozenset(("debug",))


def _chosen(engine: CommandEngine, wanted: list[str], of_services: Iterable[str]) -> list[str]:
    """Return the names of the sections to show, in Redis's order, then those of the services."""
    compat = engine.settings.compat
    known = [section.name for section in _SECTIONS if section.known_to(compat)]
    asked = set(wanted or ["default"])
    own = [name for name in of_services if name not in _HEADS]
    everything = bool(asked & {"all", "everything"})
    if everything:
        asked.update(name for name in known if name not in _OWN_NAME_ONLY)
    if "default" in asked:
        asked.update(name for name in known if name not in _NOT_DEFAULT)
    if everything or "default" in asked:
        asked.update(own)
    return [name for name in (*known, *own) if name in asked]


def info_text(engine: CommandEngine, wanted: list[str]) -> bytes:
    """Return the text of INFO for the wanted sections, by default those of "default"."""
    services: Mapping[str, Callable[[], Facts]] = engine.services.info_sections()
    parts = []
    of_modules = {} if engine.modules is None else engine.modules.info(wanted)
    by_name = {section.name: section.facts for section in _SECTIONS}
    for name in _chosen(engine, wanted, services):
        facts = {**by_name[name](engine)} if name in by_name else {}
        if name in services:
            facts.update(services[name]())
        if name == _OWN and not facts:
            continue
        rows = (f"{key}:{value}" for key, value in facts.items())
        if name == "modules" and engine.modules is not None:
            rows = iter(engine.modules.rows())
        parts.append("\r\n".join((f"# {_HEADS.get(name) or name.capitalize()}", *rows)) + "\r\n")
    parts += ["\r\n".join((f"# {name}", *rows)) + "\r\n" for name, rows in of_modules.items()]
    return "\r\n".join(parts).encode("utf-8", "surrogateescape")


@command("info", arity=-1, flags="loading stale", since="1.0.0", syntax="[section [section ...]]", complexity="O(1)")
def info(session: Session, argv: list[bytes]) -> None:
    """Return statistics and settings of the server, by sections."""
    sections = [text(word).lower() for word in argv[1:]]
    session.out.verbatim(info_text(session.engine, sections))
