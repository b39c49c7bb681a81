"""The keys, channels and databases that a call uses, and how it uses the keys.

`runtime/key_specifications.py` has the flags: "RW access update" reads and writes, "OW update" only writes. A
specification with neither flag needs no permission but for the key's name, such as TYPE and EXISTS.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from rillet._cython import cython
from rillet.runtime.acl.selector import READ, WRITE
from rillet.runtime.key_specifications import KEYWORD_SEARCH, call_flags
from rillet.runtime.registry import Command
from rillet.structs.argument_spans import ArgumentSpans
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


def has_keys(entry: Command) -> bool:
    """Return whether the command may have keys (doesCommandHaveKeys)."""
    return "not_key" not in entry.flags and (entry.keys[0] != 0 or entry.get_keys is not None)


def keys_of(entry: Command, words: ArgumentSpans, compat: Compat) -> list[tuple[int, int]]:
    """Return the position of each key of a call, and READ, WRITE or both (getKeysFromCommandWithSpecs)."""
    if not has_keys(entry):
        return []
    argv = words.to_list()
    positions: list[int] = []
    if entry.fullname in KEYWORD_SEARCH:
        keyword, start = KEYWORD_SEARCH[entry.fullname]
        first = first_after(words, keyword.lower(), start)
        if first:  # the first half of the words, also if their number is odd (getKeysUsingKeySpecs)
            positions = list(range(first, first + (len(argv) - first) // 2))
    positions = positions or entry.key_positions(argv)
    granted = accesses(entry, argv, compat)
    last = len(granted) - 1
    return [(at, granted[min(index, last)]) for index, at in enumerate(positions)]


def accesses(entry: Command, argv: list[bytes], compat: Compat) -> list[int]:
    """Return READ, WRITE or both for the first key of a call and each of the others."""
    return [_access(flags) for flags in call_flags(entry, argv, compat)]


@cython.ccall
def first_after(words: ArgumentSpans, keyword: bytes, start: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the position after a lower-case keyword, if two words follow it, else 0; the search begins at `start`."""
    at: cython.Py_ssize_t
    for at in range(start, words.count - 2):
        if words.is_option(at, keyword):
            return at + 1
    return 0


# -- channels -----------------------------------------------------------------------------------------


def has_channels(entry: Command) -> bool:
    """Return whether the command has channels that need a permission."""
    return entry.fullname in _SUBSCRIBE or entry.fullname in _PUBLISH


def channels_of(entry: Command, count: int) -> list[tuple[int, bool]]:
    """Return the position of each channel in `count` words, and whether it is a pattern (getChannelsFromCommand)."""
    name = entry.fullname
    if name in _SUBSCRIBE:
        return [(at, _SUBSCRIBE[name]) for at in range(1, count)]
    return [(1, False)] if name in _PUBLISH and count > 1 else []


# -- databases (Valkey) -------------------------------------------------------------------------------


def databases_of(entry: Command, words: ArgumentSpans, count: int) -> list[int] | None:
    """Return the positions of valid database numbers below `count`; None if the command cannot name one."""
    find: Any = _DATABASES.get(entry.fullname)
    if find is None:
        return None
    argv = words.to_list()
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
