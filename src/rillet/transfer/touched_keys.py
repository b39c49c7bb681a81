"""The keys that a batch of changes reads and writes, found before it is applied.

    SET a 1                        written: (0, a)
    SUNIONSTORE x y z              written: (0, x)        needed: x, y, z
    FLUSHDB                        database 0 no longer has rows of the table
    SWAPDB 0 1                     database 0 has the rows of database 1, and 1 those of 0
    SORT l BY w_* STORE s          needed: all keys of the database, because no argument names them

A table holds more than fits into memory, so only the needed keys are loaded into the engine. FLUSHDB, FLUSHALL and
SWAPDB are executed by the engine for the loaded keys, and by `source` for all others: it maps a database, as it is
after the batch, to the database that its other rows have in the table.

The key specifications of the commands say which arguments are keys, and whether a command only reads a key.
"""

from __future__ import annotations

from typing import NamedTuple

from rillet.replication.changes import entry_of
from rillet.runtime.key_specifications import key_access
from rillet.runtime.registry import Command
from rillet.types.compat import COMPATS

_EXTERNAL = frozenset((b"BY", b"GET"))
_NEWEST = COMPATS["newest"]


class Moves(NamedTuple):
    """The new database of the rows of each database, after a batch. flushed: rows of other databases are removed."""

    targets: dict[int, int | None]
    flushed: bool

    def target(self, db: int) -> int | None:
        """Return the database to which the rows of a database of the table belong; None if they are removed."""
        return self.targets.get(db, None if self.flushed else db)


class TouchedKeys:
    """Collects the keys of a batch; `add` takes its commands in order.

    needed: (database in the table, key). whole: databases of the table of which all keys are needed. written: (database
    after the batch, key) -> the offset of the last command that wrote it. databases: how many the batch knows.
    """

    def __init__(self) -> None:
        self.needed: set[tuple[int, bytes]] = set()
        self.whole: set[int] = set()
        self.written: dict[tuple[int, bytes], int] = {}
        self.databases = 16
        self._sources: dict[int, int | None] = {}  # of databases that are not their own source
        self._flushed = False  # whether the databases that `_sources` lacks have no source

    def source(self, db: int) -> int | None:
        """Return the database in which the table stores the keys of `db`; None if the batch flushed `db`."""
        return self._sources.get(db, None if self._flushed else db)

    def moves(self) -> Moves | None:
        """Return the new database of the rows of each database; None if the batch moves no row."""
        if not self._flushed and all(source == db for db, source in self._sources.items()):
            return None
        targets: dict[int, int | None] = dict.fromkeys(self._sources)
        targets.update({source: db for db, source in self._sources.items() if source is not None})
        return Moves(targets, self._flushed)

    def add(self, db: int, words: list[bytes], offset: int) -> None:
        """Add a command that was executed in a database, and ended at an offset of the stream."""
        name = words[0].upper()
        self._know(db)
        if name == b"FLUSHALL":
            self._sources, self._flushed = {}, True
        elif name == b"FLUSHDB":
            self._sources[db] = None
        elif name == b"SWAPDB" and len(words) == 3:
            self._swap(int(words[1]), int(words[2]))
        else:
            self._keys(db, name, words, offset)

    def _know(self, db: int) -> None:
        self.databases = max(self.databases, db + 1)

    def _swap(self, one: int, other: int) -> None:
        self._know(one)
        self._know(other)
        self._sources[one], self._sources[other] = self.source(other), self.source(one)
        labels = {one: other, other: one}
        self.written = {(labels.get(db, db), key): offset for (db, key), offset in self.written.items()}

    def _keys(self, db: int, name: bytes, words: list[bytes], offset: int) -> None:
        entry = entry_of(words)
        if entry is None:
            return
        positions = entry.key_positions(words)
        writes = set(positions)
        if len(positions) > 1:
            writes = self._written(entry, words) or writes
        for at in positions:
            self._touch(db, words[at], offset if at in writes else -1)
        if name == b"SORT" and self._has_pattern(words):
            source = self.source(db)
            if source is not None:
                self.whole.add(source)
        elif name == b"MOVE" and len(words) > 2:
            self._touch(int(words[2]), words[1], offset)
        elif name == b"COPY":
            for word, following in zip(words[3:], words[4:], strict=False):
                if word.upper() == b"DB":
                    self._touch(int(following), words[2], offset)

    @staticmethod
    def _written(entry: Command, words: list[bytes]) -> set[int]:
        """Return the positions of the keys that a command may write."""
        return {at for at, flags in key_access(entry, words, _NEWEST) if not flags.startswith("RO")}

    @staticmethod
    def _has_pattern(words: list[bytes]) -> bool:
        pairs = zip(words[2:], words[3:], strict=False)
        return any(word.upper() in _EXTERNAL and b"*" in following for word, following in pairs)

    def _touch(self, db: int, key: bytes, offset: int) -> None:
        """Note that a key is needed; offset: of the command if it writes the key, else -1."""
        self._know(db)
        if offset >= 0:
            self.written[db, key] = offset
        source = self.source(db)
        if source is not None:
            self.needed.add((source, key))
