"""The keys, channels and databases that a call uses, and how it uses the keys.

The access flags come from the declaration's key specifications (`PROVIDERS.accesses`): "RW access update" reads and
writes, "OW update" only writes. A specification with neither flag needs no permission but for the key's name, such as
TYPE and EXISTS. The flags of a few commands depend on their arguments (Redis: variable_flags).
"""

from __future__ import annotations

from typing import Any

from rillet.runtime.acl.providers import PROVIDERS
from rillet.runtime.acl.selector import READ, WRITE
from rillet.types.string import string2ll

_WRITES = frozenset(("insert", "update", "delete"))
# Command -> whether its channels are patterns. The channels of the others are not checked: no user needs a permission
# to unsubscribe.
_SUBSCRIBE = {"subscribe": False, "ssubscribe": False, "psubscribe": True}
_PUBLISH = frozenset(("publish", "spublish"))


def _flags(access: str) -> int:
    """Return READ and WRITE for the text of a key specification."""
    words = access.split()
    return (READ if "access" in words else 0) | (0 if _WRITES.isdisjoint(words) else WRITE)


def has_keys(entry: Any) -> bool:
    """Return whether the command may have keys (doesCommandHaveKeys)."""
    return "not_key" not in entry.flags and (entry.keys[0] != 0 or entry.get_keys is not None)


def keys_of(entry: Any, argv: list[bytes]) -> list[tuple[int, int]]:
    """Return the position of each key in argv, and READ, WRITE or both (getKeysFromCommandWithSpecs)."""
    if not has_keys(entry):
        return []
    positions = _after_streams(argv, _STREAMS[entry.fullname]) if entry.fullname in _STREAMS else []
    positions = positions or entry.key_positions(argv)
    varying = _VARYING.get(entry.fullname)
    if varying is not None:
        return [(at, varying(argv, index)) for index, at in enumerate(positions)]
    accesses = [_flags(access) for access in PROVIDERS.accesses(entry)]
    if not accesses:
        return []
    last = len(accesses) - 1
    return [(at, accesses[min(index, last)]) for index, at in enumerate(positions)]


# Commands whose keys follow the word STREAMS, and where the search for it starts.
_STREAMS = {"xread": 1, "xreadgroup": 4}


def _after_streams(argv: list[bytes], start: int) -> list[int]:
    """Return the first half of the positions after STREAMS, also if their number is odd (getKeysUsingKeySpecs)."""
    for at in range(start, len(argv) - 1):
        if argv[at].lower() == b"streams":
            return list(range(at + 1, at + 1 + (len(argv) - at - 1) // 2))
    return []


def _set(argv: list[bytes], _index: int) -> int:
    """SET reads only with GET (db.c: setGetKeys)."""
    return READ | WRITE if any(word.lower() == b"get" for word in argv[3:]) else WRITE


def _bitfield(argv: list[bytes], _index: int) -> int:
    """BITFIELD writes, unless all its operations are GET (db.c: bitfieldGetKeys)."""
    at = 2
    while at < len(argv):
        word, left = argv[at].lower(), len(argv) - at - 1
        if word == b"get" and left >= 2:
            at += 3
        elif word == b"overflow" and left >= 1:
            at += 2
        else:
            return READ | WRITE
    return READ


def _sort(_argv: list[bytes], index: int) -> int:
    """SORT reads its first key and overwrites the key of STORE (db.c: sortGetKeys)."""
    return WRITE if index else READ


_VARYING = {"set": _set, "bitfield": _bitfield, "sort": _sort}


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
