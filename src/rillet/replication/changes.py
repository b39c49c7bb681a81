r"""The changes in a stream of replication, as objects: database, key, command and position.

    bytes ── UnitParser ──► Unit: one command, or MULTI ... EXEC as a whole ── changes_of ──► Change, Change ...

    $6 SELECT 2     offset 100 ┐                    a Unit lies between two positions outside MULTI
    *1 MULTI                   │ one Unit           `start` 100, `end` 240, `db` 0, `db_after` 2
    *3 SET a 1                 │                    two changes: SET a, and INCR b
    *2 INCR b                  │
    *1 EXEC                    ┘ offset 240

**A position** is the name of a history, the number of its bytes before it, the database that the stream had selected
there, and the number of changes after it that were already taken: a transaction has several changes, and the stream can
be continued only before its MULTI.

PING, REPLCONF, SELECT and messages of channels change no data, so they are no changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from rillet.replication.errors import LinkError
from rillet.runtime.registry import TABLE, Command

_POSITION = re.compile(r"([0-9a-f]{40}):(\d+):(\d+)(?:\+(\d+))?")
_MARKS = frozenset((b"MULTI", b"EXEC"))
_MESSAGES = frozenset((b"PUBLISH", b"SPUBLISH"))
_SILENT = frozenset((b"PING", b"REPLCONF", b"SELECT"))
_TYPES = {
    "stream": "stream", "string": "string", "bitmap": "string", "hyperloglog": "string", "hash": "hash", "list": "list",
    "set": "set", "sorted-set": "zset", "geo": "zset", "array": "array",
}  # fmt: skip
_STAR, _DOLLAR = b"*$"


class ChangePosition(NamedTuple):
    """A place between two changes; `str` and `parse` convert it to text and back.

    id: the name of the history (the replication ID). offset: the bytes before it. db: the database that is selected
    there. skip: how many changes after it were already taken, inside a transaction.
    """

    id: str
    offset: int
    db: int = 0
    skip: int = 0

    @classmethod
    def parse(cls, text: str) -> ChangePosition:
        """Return the position of a text; ValueError if it is malformed."""
        found = _POSITION.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not the position of a change: expected <replication ID>:<offset>:<database>")
        return cls(found[1], int(found[2]), int(found[3]), int(found[4] or 0))

    def __str__(self) -> str:
        return f"{self.id}:{self.offset}:{self.db}" + (f"+{self.skip}" if self.skip else "")


class Change(NamedTuple):
    """One change of a server.

    key: the first key of the command; None if it has none (FLUSHALL). words: the command with its arguments, as a
    server sends it to replicas (it refuses some forms from clients: XADD with LIMIT and without ~). offset: the
    position of the stream after the command, or after its transaction. position: where to continue after this change.
    transaction: whether it belongs to a transaction; last: whether the data is consistent after it.
    """

    database: int
    key: str | None
    command: str
    words: list[bytes]
    offset: int
    position: ChangePosition
    transaction: bool = False
    last: bool = True

    @property
    def type(self) -> str | None:
        """The type of value that the command changes ("stream", "hash" ...); None for commands of all types (DEL)."""
        return type_of(self.words)


class Unit(NamedTuple):
    """The bytes between two positions outside MULTI.

    commands: those that change data, with their databases; ends: the offset after each of them. messages: PUBLISH and
    SPUBLISH of a transaction, each with the number of commands before it.
    """

    start: int
    end: int
    db: int
    db_after: int
    commands: list[tuple[int, list[bytes]]]
    data: bytes
    transaction: bool
    ends: list[int]
    messages: list[tuple[int, list[bytes]]]


class UnitParser:
    """Splits a stream into units; `offset` and `db` are the position after the last complete unit."""

    def __init__(self, offset: int, db: int) -> None:
        self.offset = offset
        self.db = db
        self._parts: list[bytes] = []  # received bytes of which no unit was made
        self._size = 0
        self._wanted = 1  # the size at which it makes sense to look again
        self._at = 0  # how far the parts are parsed
        self._words: list[bytes] = []
        self._missing = 0  # words of the current command
        self._commands: list[tuple[int, list[bytes]]] = []
        self._ends: list[int] = []
        self._messages: list[tuple[int, list[bytes]]] = []
        self._db = db
        self._in_transaction = self._has_transaction = False
        self._base = offset

    @property
    def waiting(self) -> int:
        """The number of bytes of which no unit was made yet."""
        return self._size

    def feed(self, data: bytes) -> list[Unit]:
        """Return the units that these bytes complete; LinkError if they are not commands."""
        self._parts.append(data)
        self._size += len(data)
        if self._size < self._wanted:
            return []
        whole = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._base = self.offset  # of the first byte of `whole`
        units: list[Unit] = []
        began, end = 0, self._command(whole)
        while end:
            if not self._in_transaction:
                units.append(Unit(self.offset, self.offset + end - began, self.db, self._db, self._commands,
                                  whole[began:end], self._has_transaction, self._ends, self._messages))  # fmt: skip
                self.offset += end - began
                self.db = self._db
                self._commands, self._ends, self._messages, self._has_transaction = [], [], [], False
                began = end
            end = self._command(whole)
        self._parts = [whole[began:]] if began < len(whole) else []
        self._size -= began
        self._at -= began
        self._wanted = max(self._wanted - began, 1)
        return units

    def _command(self, whole: bytes) -> int:
        """Parse on; return the end of the command if it is complete, else 0."""
        at, size = self._at, len(whole)
        if not self._missing:
            line = whole.find(b"\r\n", at)
            if line < 0:
                self._wanted = size + 1
                return 0
            if whole[at] != _STAR:
                raise LinkError(f"the stream of the master contains {whole[at : at + 20]!r} instead of a command")
            self._missing = self._number(whole, at, line)
            self._words = []
            self._at = at = line + 2
        while self._missing:
            line = whole.find(b"\r\n", at)
            if line < 0:
                self._wanted = size + 1
                return 0
            if whole[at] != _DOLLAR:
                raise LinkError(f"the stream of the master contains {whole[at : at + 20]!r} instead of a word")
            begin = line + 2
            end = begin + self._number(whole, at, line)
            if end + 2 > size:
                self._wanted = end + 2
                return 0
            self._words.append(whole[begin:end])
            self._at = at = end + 2
            self._missing -= 1
        self._take(self._words, at)
        return at

    @staticmethod
    def _number(whole: bytes, at: int, line: int) -> int:
        digits = whole[at + 1 : line]
        if not digits.isdigit():
            raise LinkError(f"the stream of the master contains {whole[at : at + 20]!r} instead of a length")
        return int(digits)

    def _take(self, words: list[bytes], at: int) -> None:
        name = words[0].upper() if words else b"PING"
        if name in _MARKS:
            self._in_transaction = name == b"MULTI"
            self._has_transaction = True
        elif name == b"SELECT" and len(words) > 1:
            self._db = int(words[1])
        elif name in _MESSAGES:
            self._messages.append((len(self._commands), words))
        elif name not in _SILENT:
            self._commands.append((self._db, words))
            self._ends.append(self._base + at)


@lru_cache(maxsize=1024)
def _entry(name: bytes, sub: bytes) -> Command | None:
    entry = TABLE.find(name)
    if entry is not None and entry.subcommands is not None:
        return entry.subcommands.get(sub.lower())
    return entry


def entry_of(words: Sequence[bytes]) -> Command | None:
    """Return the declaration of a command of any version, or None if rillet lacks the command."""
    if not words:
        return None
    entry = _entry(words[0], b"")
    return entry if entry is not None or len(words) < 2 else _entry(words[0], words[1])


def keys_of(words: list[bytes]) -> list[bytes]:
    """Return the keys of a command."""
    entry = entry_of(words)
    return [] if entry is None else [words[position] for position in entry.key_positions(words)]


def type_of(words: Sequence[bytes]) -> str | None:
    """Return the type of value that a command changes; None if it applies to all types."""
    entry = entry_of(words)
    return None if entry is None else _TYPES.get(entry.group)


def changes_of(unit: Unit, history: str, reduce: Callable[[list[bytes]], list[bytes] | None] | None = None, *,
               skip: int = 0, end: int | None = None) -> list[Change]:  # fmt: skip
    """Return the changes of a unit.

    reduce: returns what a command changes in the keys that count, or None. skip: the number of changes that were taken
    before. end: the position after the unit, if its bytes are not those of the stream.
    """
    found = []
    for db, words in unit.commands:
        kept = words if reduce is None else reduce(words)
        if kept is not None:
            found.append((db, kept))
    after = unit.end if end is None else end
    changes = []
    for number, (db, words) in enumerate(found, 1):
        last = number == len(found)
        position = (ChangePosition(history, after, unit.db_after) if last
                    else ChangePosition(history, unit.start, unit.db, number))  # fmt: skip
        if number > skip:
            keys = keys_of(words)
            key = keys[0].decode("utf-8", "surrogateescape") if keys else None
            command = words[0].decode("utf-8", "surrogateescape").upper()
            changes.append(Change(db, key, command, words, after, position, unit.transaction, last))
    return changes
