"""The keys, channels and databases that a call uses, and how it uses the keys.

`runtime/key_specifications.py` has the flags: "RW access update" reads and writes, "OW update" only writes. A
specification with neither flag needs no permission but for the key's name, such as TYPE and EXISTS.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from rillet.runtime.acl.selector import READ, WRITE
from rillet.runtime.key_specifications import KEYWORD_SEARCH, call_flags
from rillet.types.compat import Compat
from rillet.types.string import string2ll

_WRITES = frozenset(("insert", "update", "delete"))
# Command -> whether its channels are patterns. The channels of the others are not checked: no user needs a permission
# to unsubscribe.
_SUBSCRIBE = {"subscribe": False, "ssubscribe": False, "psubscribe": True}
_PUBLISH = frozenset(("publish", "spublish"))


@cache
def _access(flags: str) -> int:
    """Return READ and WRITE for the flags of a key specification."""
    words = flags.split()
    return (READ if "access" in words else 0) | (0 if _WRITES.isdisjoint(words) else WRITE)


def has_keys(entry: Any) -> bool:
    """Return whether the command may have keys (doesCommandHaveKeys)."""
    return "not_key" not in entry.flags and (entry.keys[0] != 0 or entry.get_keys is not None)


def keys_of(entry: Any, argv: list[bytes], compat: Compat) -> list[tuple[int, int]]:
    """Return the position of each key in argv, and READ, WRITE or both (getKeysFromCommandWithSpecs)."""
    if not has_keys(entry):
        return []
    positions = _after_keyword(argv, *KEYWORD_SEARCH[entry.fullname]) if entry.fullname in KEYWORD_SEARCH else []
    positions = positions or entry.key_positions(argv)
    accesses = [_access(flags) for flags in call_flags(entry, argv, compat)]
    last = len(accesses) - 1
    return [(at, accesses[min(index, last)]) for index, at in enumerate(positions)]


def _after_keyword(argv: list[bytes], keyword: bytes, start: int) -> list[int]:
    """Return the first half of the positions after a keyword, also if their number is odd (getKeysUsingKeySpecs)."""
    for at in range(start, len(argv) - 1):
        if argv[at].upper() == keyword:
            return list(range(at + 1, at + 1 + (len(argv) - at - 1) // 2))
    return []


# -- channels -----------------------------------------------------------------------------------------


def channels_of(entry: Any, argv: list[bytes]) -> list[tuple[int, bool]]:
    """Return the position of each channel in argv, and whether it is a pattern (db.c: getChannelsFromCommand)."""
    name = entry.fullname
    if name in _SUBSCRIBE:
        return [(at, _SUBSCRIBE[name]) for at in range(1, len(argv))]
    return [(1, False)] if name in _PUBLISH and len(argv) > 1 else []


# -- databases (Valkey) -------------------------------------------------------------------------------


def databases_of(entry: Any, argv: list[bytes], count: int) -> list[int] | None:
    """Return the positions of valid database numbers below `count` in argv; None if the command cannot name one."""
    find = _DATABASES.get(entry.fullname)
    if find is None:
        return None
    positions = find(argv)
    numbers = [string2ll(argv[at]) for at in positions]
    return positions if all(number is not None and 0 <= number < count for number in numbers) else []


def _of_copy(argv: list[bytes]) -> list[int]:
    """COPY accepts several DB options; the last one counts, and all must be permitted."""
    found: list[int] = []
    at = 3
    while at < len(argv):
        word = argv[at].lower()
        if word == b"db" and at + 1 < len(argv):
            found.append(at + 1)
            at += 1
        elif word != b"replace":
            return []
        at += 1
    return found


_DATABASES = {
    "select": lambda argv: [1] if len(argv) >= 2 else [],
    "swapdb": lambda argv: [1, 2] if len(argv) >= 3 else [],
    "move": lambda argv: [2] if len(argv) >= 3 else [],
    "copy": _of_copy,
}
# Commands that concern all databases.
ALL_DATABASES = frozenset(("flushall", "cluster|cancelslotmigrations", "cluster|flushslot", "cluster|migrateslots"))


__all__ = ["ALL_DATABASES", "channels_of", "databases_of", "has_keys", "keys_of"]
