"""The filter of a replica of some keys: the commands of the stream that it applies, and their form.

    keys of the command        wanted           not wanted
    XADD orders ...            ●                                   applied
    XADD other ...                              ●                  dropped
    DEL orders other           ●                ●                  DEL orders
    RENAME orders other        ●                ● overwritten      applied, then `other` is deleted
    RENAME other orders        ● overwritten    ● read             cannot be applied: the replica lacks the value
    FLUSHALL                                                       applied

The key specifications of the commands say how each key is accessed (COMMAND GETKEYSANDFLAGS). A command that writes a
wanted key and reads another one needs data that the replica lacks. SORT reads keys that no specification names (BY,
GET).

The keys that a command writes beside the wanted ones are deleted with it, so nothing of them remains.
"""

from __future__ import annotations

from collections.abc import Iterable

from rillet.protocol.command_parser import pack_command
from rillet.replication.changes import Unit, entry_of
from rillet.runtime.key_specifications import key_access
from rillet.runtime.registry import Command
from rillet.structs.glob import matches
from rillet.types.compat import Compat

_EACH_KEY = frozenset(("del", "unlink", "touch"))
_PAIRS = frozenset(("mset", "msetnx"))
_ONE_KEY = (1, 1, 1)
_MOST_KNOWN = 10_000
_EXTERNAL = frozenset((b"BY", b"GET"))


class Unappliable(Exception):
    """A command of the stream reads a key that the replica does not keep; the message names the command."""


class KeyFilter:
    """The keys that match one of some globs; `compat` is that of the engine."""

    def __init__(self, patterns: Iterable[bytes], compat: Compat) -> None:
        self.patterns = tuple(patterns)
        self._compat = compat
        self._known: dict[bytes, bool] = {}  # keys of late

    def keeps(self, key: bytes) -> bool:
        """Return whether the replica keeps this key."""
        found = self._known.get(key)
        if found is None:
            found = any(matches(pattern, key) for pattern in self.patterns)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = found
        return found

    def reduced(self, words: list[bytes]) -> list[bytes] | None:
        """Return the part of a command that changes wanted keys; None if it changes none of them."""
        entry = entry_of(words)
        if entry is None:
            return words
        if entry.keys == _ONE_KEY and entry.get_keys is None:
            return words if self.keeps(words[entry.keys[0]]) else None
        positions = entry.key_positions(words)
        if not positions:
            return words
        wanted = [self.keeps(words[position]) for position in positions]
        if all(wanted):
            return words
        if not any(wanted) or not any(map(self.keeps, self._written(entry, words))):
            return None
        return self._without(entry, words, [at for at, kept in zip(positions, wanted, strict=True) if not kept])

    def _written(self, entry: Command, words: list[bytes]) -> list[bytes]:
        """Return the keys that a command may write."""
        return [words[at] for at, flags in key_access(entry, words, self._compat) if not flags.startswith("RO")]

    @staticmethod
    def _without(entry: Command, words: list[bytes], unwanted: list[int]) -> list[bytes]:
        """Remove unwanted keys from a command that treats each of its keys alone."""
        name = entry.fullname
        if name in _EACH_KEY:
            gone = set(unwanted)
        elif name in _PAIRS or name == "msetex":
            gone = {*unwanted, *(at + 1 for at in unwanted)}
        else:
            return words
        kept = [word for at, word in enumerate(words) if at not in gone]
        if name == "msetex":
            kept[1] = b"%d" % (int(words[1]) - len(unwanted))
        return kept

    def applied(self, words: list[bytes]) -> list[list[bytes]]:
        """Return the commands that have the effect of one on the wanted keys; Unappliable if there are none."""
        reduced = self.reduced(words)
        if reduced is None:
            return []
        entry = entry_of(reduced)
        if entry is None or (entry.keys == _ONE_KEY and entry.get_keys is None):
            return [reduced]
        access = key_access(entry, reduced, self._compat)
        read = next((reduced[at] for at, flags in access if "access" in flags and not self.keeps(reduced[at])), None)
        if read is None and entry.fullname == "sort":
            read = self._read_by_sort(reduced)
        if read is not None:
            name = b" ".join([reduced[0].upper(), read]).decode("utf-8", "backslashreplace")
            raise Unappliable(name)
        unwanted = [key for key in dict.fromkeys(self._written(entry, reduced)) if not self.keeps(key)]
        return [reduced, [b"DEL", *unwanted]] if unwanted else [reduced]

    @staticmethod
    def _read_by_sort(words: list[bytes]) -> bytes | None:
        """Return a pattern of keys that SORT reads (BY, GET), or None."""
        for word, following in zip(words[2:], words[3:], strict=False):
            if word.upper() in _EXTERNAL and b"*" in following:
                return following
        return None

    def part_of(self, unit: Unit) -> bytes | None:
        """Return the bytes of a unit that the replica applies: the same object, others, or None; Unappliable."""
        if not unit.commands:
            return unit.data
        applied = [[(db, one) for one in self.applied(words)] for db, words in unit.commands]
        if sum(applied, []) == unit.commands:
            return unit.data
        for at, words in reversed(unit.messages):
            applied.insert(at, [(unit.commands[at][0] if at < len(unit.commands) else unit.db_after, words)])
        result = sum(applied, [])
        if not result:
            return None
        if len(result) == 1 and not unit.transaction and unit.db == unit.db_after:
            return pack_command(result[0][1])
        parts, selected = [pack_command([b"MULTI"])], unit.db
        for db, words in result:
            if db != selected:
                parts.append(pack_command([b"SELECT", b"%d" % db]))
                selected = db
            parts.append(pack_command(words))
        if selected != unit.db_after:
            parts.append(pack_command([b"SELECT", b"%d" % unit.db_after]))
        parts.append(pack_command([b"EXEC"]))
        return b"".join(parts)
