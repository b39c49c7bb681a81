"""The flags of a command in each version: what the declarations of `registry.py` do not contain.

A declaration has the flags of most servers. The tables here name those that a command gains (+) or loses (-) elsewhere.
"""

from __future__ import annotations

from functools import lru_cache

from rillet.runtime.registry import Command
from rillet.types.compat import Compat

# Flags in Redis since a level, and Valkey from its level 7.2 on.
_LATER_FLAGS = (
    (72, "-noscript", "blmove blpop brpop brpoplpush bzpopmax bzpopmin wait"), (74, "+blocking", "wait"),
    (72, "+loading", "cluster|shards cluster|slots"),
    (88, "+script_runner", "eval eval_ro evalsha evalsha_ro fcall fcall_ro"),
    (88, "+loading", "cluster|count-failure-reports cluster|info cluster|keyslot cluster|links cluster|myid "
                     "cluster|myshardid cluster|nodes cluster|replicas cluster|slaves"),
)  # fmt: skip
# The same for flags that Redis has, or lacks, until before a level.
_EARLIER_FLAGS = (
    (74, "-blocking", "waitaof"), (74, "+noscript", "waitaof"),
    (80, "+denyoom", "hexpire hexpireat hpexpire hpexpireat"),
)  # fmt: skip
_VALKEY_FLAGS = (
    ("+blocking", "wait"),
    ("+allow_busy", "client|caching client|capa client|getname client|getredir client|id client|no-evict "
                    "client|no-touch client|reply client|setinfo client|setname select"),
    ("+no_multi", "client|reply multi watch"),
    ("+loading", "memory|malloc-stats memory|purge cluster|info cluster|myid cluster|myshardid cluster|nodes"),
    ("+stale", "script|exists script|flush script|load script|show"),
)  # fmt: skip


@lru_cache(maxsize=8)
def _flag_changes(compat: Compat) -> dict[str, list[str]]:
    """Return the flags that commands gain and lose in a server, each with its sign."""
    changes: dict[str, list[str]] = {}
    rows = [(change, names) for level, change, names in _LATER_FLAGS if compat.knows(level)]
    if not compat.valkey:
        rows += [(change, names) for level, change, names in _EARLIER_FLAGS if not compat.knows(level)]
    for change, names in (*rows, *(_VALKEY_FLAGS if compat.valkey else ())):
        for name in names.split():
            changes.setdefault(name, []).append(change)
    return changes


def flags_in(entry: Command, compat: Compat) -> set[str]:
    """Return the flags of a command in a server (the JSON tables of its version)."""
    flags = set(entry.flags)
    for change in _flag_changes(compat).get(entry.fullname, ()):
        (flags.add if change[0] == "+" else flags.discard)(change[1:])
    return flags
