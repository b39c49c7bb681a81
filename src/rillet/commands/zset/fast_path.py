"""The fast paths of ZADD, ZINCRBY, ZREM, ZSCORE and ZRANGE: members of small sorted sets, in their bytes at rest.

ZADD also adds to skiplists. Options, scores with an exponent or more than 30 digits, and infinite scores are left to
the handler. The rules for the encoding are those of types/zset.py.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.small_values import LengthFastPath, SmallValuePath
from rillet.commands.table_replies import write_score
from rillet.keyspace import rest_buffer
from rillet.keyspace.database import Database
from rillet.keyspace.rest_buffer import RestBuffer
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.dict import Dict
from rillet.structs.listpack import Listpack
from rillet.structs.skiplist import Skiplist
from rillet.types.packed_zset import score_at
from rillet.types.zset import Zset

if not cython.compiled:  # the compiled module gets these C names from its .pxd file
    from rillet.commands.small_values import HEADER, MISSING, MOST_WORDS, UNUSUAL
    from rillet.structs.float_text import parse_plain

_ZSET = cython.declare(cython.int, rest_buffer.ZSET)


@cython.cclass
class ZaddFastPath(SmallValuePath):
    """The fast path of ZADD without options: supports small sorted sets, and keys that do not exist."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"zadd"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute a ZADD, or return False without any effect (zaddGenericCommand)."""
        buffer: RestBuffer = db.buffer
        packed: Listpack = buffer.packed
        i: cython.Py_ssize_t
        widest: cython.Py_ssize_t = 0
        score: cython.double
        if words.count < 4 or words.count & 1:
            return False
        for i in range(2, words.count, 2):
            score = parse_plain(words.at[i], words.size[i])
            if score != score:
                return False
            widest = max(widest, words.size[i + 1])
        n: cython.Py_ssize_t = self.find(db, words)
        if n < 0:
            if n == UNUSUAL:
                return False
            buffer.start(_ZSET)
        else:
            value: object = db.keys.object_at(n)
            if value is not None:
                return type(value) is Zset and self._add_awake(session, db, words, n, value)
            if buffer.load(db.keys, n) != _ZSET:
                return False
        if (words.count - 2) >> 1 > buffer.zset_entries or widest > buffer.zset_value or words.count > MOST_WORDS:
            return False
        added: cython.Py_ssize_t = 0
        updated: cython.Py_ssize_t = 0
        for i in range(2, words.count, 2):
            score = parse_plain(words.at[i], words.size[i])
            pos: cython.Py_ssize_t = packed.find_span(HEADER, words.at[i + 1], words.size[i + 1], 1)
            if pos == -1:
                if packed.length() >> 1 >= buffer.zset_entries:
                    return False
                added += 1
            elif score_at(packed, packed.skip(pos)) == score:
                continue
            else:
                packed.delete(packed.delete(pos))
                updated += 1
            if not buffer.put_member(words.at[i + 1], words.size[i + 1], score):
                break
        if added + updated == 0:
            self.touch(db, n)
        elif not self.keep(db, words, n, _ZSET):
            return False
        session.changed(words, added + updated)
        return session.out.integer(added)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _add_awake(
        self, session: Session, db: Database, words: ArgumentSpans, n: cython.Py_ssize_t, value: object
    ) -> cython.bint:
        """Execute a ZADD for a skiplist, or return False without any effect."""
        skiplist: Skiplist | None = value.skiplist  # type: ignore[attr-defined]
        if skiplist is None:
            return False
        table: Dict = value.table  # type: ignore[attr-defined]
        i: cython.Py_ssize_t
        result: cython.int
        added: cython.Py_ssize_t = 0
        self.touch(db, n)
        db.ledger.note(value)
        for i in range(2, words.count, 2):
            result = skiplist.put_span(
                table, words.at[i + 1], words.size[i + 1], parse_plain(words.at[i], words.size[i])
            )
            if result:
                session.changed(words, 1)
                added += result & 1
        return session.out.integer(added)


@cython.final
@cython.cclass
class ZincrbyFastPath(SmallValuePath):
    """The fast path of ZINCRBY: supports small sorted sets, and keys that do not exist."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"zincrby"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute a ZINCRBY, or return False without any effect (zaddGenericCommand)."""
        buffer: RestBuffer = db.buffer
        packed: Listpack = buffer.packed
        old: cython.double
        if words.count != 4:
            return False
        score: cython.double = parse_plain(words.at[2], words.size[2])
        if score != score:
            return False
        tag: cython.int = self.open(db, words)
        if tag == MISSING:
            tag = _ZSET
            buffer.entry = -1
            buffer.start(tag)
        if tag != _ZSET or buffer.zset_entries < 1 or words.size[3] > buffer.zset_value:
            return False
        pos: cython.Py_ssize_t = packed.find_span(HEADER, words.at[3], words.size[3], 1)
        if pos != -1:
            old = score_at(packed, packed.skip(pos))
            score += old
            if score == old:
                self.touch(db, buffer.entry)
                return write_score(session.out, score, buffer.zset_classic)
            packed.delete(packed.delete(pos))
        elif packed.length() >> 1 >= buffer.zset_entries:
            return False
        buffer.put_member(words.at[3], words.size[3], score)
        if not self.keep(db, words, buffer.entry, tag):
            return False
        session.changed(words, 1)
        return write_score(session.out, score, buffer.zset_classic)


@cython.final
@cython.cclass
class ZremFastPath(SmallValuePath):
    """The fast path of ZREM: supports missing keys and small sorted sets."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"zrem"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute a ZREM, or return False without any effect (zremCommand)."""
        if words.count < 3:
            return False
        tag: cython.int = self.open(db, words)
        if tag == MISSING:
            return session.out.integer(0)
        return tag == _ZSET and self.remove_elements(session, db, words, 2)


@cython.final
@cython.cclass
class ZscoreFastPath(SmallValuePath):
    """The fast path of ZSCORE: supports missing keys and small sorted sets."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"zscore"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute a ZSCORE, or return False without any effect."""
        packed: Listpack = db.buffer.packed
        if words.count != 3:
            return False
        tag: cython.int = self.read(db, words)
        if tag == MISSING:
            return session.out.null()
        if tag != _ZSET:
            return False
        self.hit(db)
        pos: cython.Py_ssize_t = packed.find_span(HEADER, words.at[2], words.size[2], 1)
        if pos == -1:
            return session.out.null()
        return write_score(session.out, score_at(packed, packed.skip(pos)), db.buffer.zset_classic)


@cython.final
@cython.cclass
class ZrangeFastPath(SmallValuePath):
    """The fast path of ZRANGE by rank, without options: supports missing keys and small sorted sets."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"zrange"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute a ZRANGE, or return False without any effect."""
        tag: cython.int = self.read_range(db, words)
        if tag == MISSING:
            return session.out.array(0)
        return tag == _ZSET and self.hit(db) and self.write_range(session.out, db, 2)


def zcard() -> LengthFastPath:
    """Return the fast path of ZCARD."""
    return LengthFastPath(b"zcard", (rest_buffer.ZSET,), 2)


__all__ = ["ZaddFastPath", "ZincrbyFastPath", "ZrangeFastPath", "ZremFastPath", "ZscoreFastPath", "zcard"]
