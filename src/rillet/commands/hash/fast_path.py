"""The fast paths of HGET, HSET and others: fields of small hashes, read and written in their bytes at rest.

A hash at rest is a listpack of fields and values in both encodings, so the conversion to a hashtable changes only its
tag. The rules for the encoding are those of types/hash.py. HGET also reads hashes that are awake, and HSET changes
hashtables that are awake.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.small_values import MISSING, UNUSUAL, LengthFastPath, SmallValuePath
from rillet.keyspace import rest_buffer
from rillet.keyspace.database import Database
from rillet.keyspace.rest_buffer import RestBuffer
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.dict import Dict
from rillet.structs.listpack import Listpack
from rillet.types.at_rest import LIMIT
from rillet.types.hash import Hash

if not cython.compiled:  # the compiled module gets these C functions from its .pxd file
    from rillet.commands.small_values import write_entries, write_entry
    from rillet.structs.listpack import parse_digits

_HEADER = cython.declare(cython.Py_ssize_t, 6)
_MISSING = cython.declare(cython.Py_ssize_t, MISSING)
_UNUSUAL = cython.declare(cython.Py_ssize_t, UNUSUAL)
_HASH = cython.declare(cython.int, rest_buffer.HASH)
_HASH_TABLE = cython.declare(cython.int, rest_buffer.HASH_TABLE)
_MANY = cython.declare(cython.Py_ssize_t, 256)  # arguments of a call that sets fields of a small hash
_DIGITS = cython.declare(cython.Py_ssize_t, 20)  # characters of the longest integer
_MOST = cython.declare(cython.longlong, 2**62 - 1)  # the sum of two such numbers does not overflow
_LIMIT = cython.declare(cython.Py_ssize_t, LIMIT)


@cython.cfunc
@cython.exceptval(-1, check=False)
def _write_packed(
    out: ReplyWriter, packed: Listpack, field: cython.p_const_uchar, size: cython.Py_ssize_t
) -> cython.bint:
    """Reply with the value of a field in a listpack, null if it does not exist."""
    pos: cython.Py_ssize_t = packed.find_span(_HEADER, field, size, 1)
    if pos == -1:
        return out.null()
    return write_entry(out, packed, packed.skip(pos))


@cython.final
@cython.cclass
class HgetFastPath(SmallValuePath):
    """The fast path of HGET: supports missing keys, small hashes, and hashes that are awake."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"hget"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute an HGET, or return False without any effect."""
        out: ReplyWriter = session.out
        keys: Dict = db.keys
        if words.count != 3:
            return False
        n: cython.Py_ssize_t = self.find(db, words)
        if n == _MISSING and db.on_missed is None:
            db.misses += 1
            return out.null()
        if n < 0:
            return False
        value: object = keys.object_at(n)
        if value is not None:
            if type(value) is not Hash:
                return False
            db.hits += 1
            self.touch(db, n)
            return self._write_awake(out, value, words)
        buffer: RestBuffer = db.buffer
        tag: cython.int = buffer.load(keys, n)
        if tag != _HASH and tag != _HASH_TABLE:
            return False
        db.hits += 1
        self.touch(db, n)
        return _write_packed(out, buffer.packed, words.at[2], words.size[2])

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _write_awake(self, out: ReplyWriter, value: object, words: ArgumentSpans) -> cython.bint:
        """Reply with the value of a field of an object."""
        packed: Listpack | None = value.listpack  # type: ignore[attr-defined]
        if packed is not None:
            return _write_packed(out, packed, words.at[2], words.size[2])
        table: Dict = value.table  # type: ignore[attr-defined]
        n: cython.Py_ssize_t = table.find_span(words.at[2], words.size[2])
        if n < 0:
            return out.null()
        at: cython.p_const_uchar = table.value_span(n)
        if cython.compiled:
            return out.bulk_span(at, table.span_size)
        return out.bulk(bytes(at[: table.span_size]))


@cython.final
@cython.cclass
class HsetFastPath(SmallValuePath):
    """The fast path of HSET: supports small hashes, and keys that do not exist."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"hset"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute an HSET, or return False without any effect."""
        created: cython.Py_ssize_t = self.set_fields(session, db, words)
        return created >= 0 and session.out.integer(created)

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def set_fields(self, session: Session, db: Database, words: ArgumentSpans) -> cython.Py_ssize_t:
        """Set the fields; return how many are new, or -1 if the handler must do it (hsetCommand)."""
        buffer: RestBuffer = db.buffer
        packed: Listpack = buffer.packed
        i: cython.Py_ssize_t
        total: cython.Py_ssize_t = 0
        widest: cython.Py_ssize_t = 0
        created: cython.Py_ssize_t = 0
        if words.count < 4 or words.count & 1 or not self.may_write(db):
            return -1
        for i in range(2, words.count):
            total += words.size[i]
            widest = max(widest, words.size[i])
        n: cython.Py_ssize_t = self.find(db, words)
        tag: cython.int = _HASH
        if n < 0:
            if n == _UNUSUAL:
                return -1
            buffer.start(tag)
        else:
            value: object = db.keys.object_at(n)
            if value is not None:
                return self._set_awake(session, db, words, n, value) if type(value) is Hash else -1
            tag = buffer.load(db.keys, n)
            if tag != _HASH and tag != _HASH_TABLE:
                return -1
        if total > _LIMIT or words.count > _MANY:
            return -1
        for i in range(2, words.count, 2):
            pos: cython.Py_ssize_t = packed.find_span(_HEADER, words.at[i], words.size[i], 1)
            if pos == -1:
                packed.append_span(words.at[i], words.size[i])
                packed.append_span(words.at[i + 1], words.size[i + 1])
                created += 1
            else:
                packed.replace_span(packed.skip(pos), words.at[i + 1], words.size[i + 1])
        if tag == _HASH:
            many: cython.bint = buffer.compact and (words.count - 2) >> 1 > buffer.hash_entries
            if many or widest > buffer.hash_value or packed.length() >> 1 > buffer.hash_entries:
                tag = _HASH_TABLE
        if not (buffer.fits() if tag == _HASH else buffer.table_fits(2)):
            self.outgrow(db, words, n)
            return -1
        buffer.rest[0] = tag
        self.store(db, words, n, buffer.compose())
        session.dirty += (words.count - 2) >> 1
        return created

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def _set_awake(
        self, session: Session, db: Database, words: ArgumentSpans, n: cython.Py_ssize_t, value: object
    ) -> cython.Py_ssize_t:
        """Set the fields of a hashtable; return how many are new, or -1 without any effect."""
        table: Dict | None = value.table  # type: ignore[attr-defined]
        i: cython.Py_ssize_t
        created: cython.Py_ssize_t = 0
        if table is None:
            return -1
        self.touch(db, n)
        db.ledger.note(value)
        for i in range(2, words.count, 2):
            n = table.add_span(words.at[i], words.size[i], words.at[i + 1], words.size[i + 1])
            if table.added:
                created += 1
            else:
                table.set_value_span(n, words.at[i + 1], words.size[i + 1])
            session.dirty += 1
        return created

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def fields(self, session: Session, argv: list[bytes]) -> cython.Py_ssize_t:
        """Set the fields for a handler; return how many are new, or -1 if it must do it in the general form."""
        words: ArgumentSpans = session.db.buffer.words
        if len(argv) > 512:
            return -1
        words.take(argv, 0, len(argv))
        return self.set_fields(session, session.db, words)


@cython.final
@cython.cclass
class HmgetFastPath(SmallValuePath):
    """The fast path of HMGET: supports missing keys and small hashes."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"hmget"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute an HMGET, or return False without any effect."""
        out: ReplyWriter = session.out
        i: cython.Py_ssize_t
        if words.count < 3:
            return False
        tag: cython.int = self.read(db, words)
        if tag == _HASH or tag == _HASH_TABLE:
            self.hit(db)
        elif tag != _MISSING:
            return False
        out.array(words.count - 2)
        for i in range(2, words.count):
            if tag == _MISSING:
                out.null()
            else:
                _write_packed(out, db.buffer.packed, words.at[i], words.size[i])
        return True


@cython.final
@cython.cclass
class HgetallFastPath(SmallValuePath):
    """The fast path of HGETALL: supports missing keys and small hashes."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"hgetall"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute an HGETALL, or return False without any effect."""
        if words.count != 2:
            return False
        tag: cython.int = self.read(db, words)
        if tag == _MISSING:
            return session.out.map(0)
        if tag != _HASH and tag != _HASH_TABLE:
            return False
        self.hit(db)
        count: cython.Py_ssize_t = db.buffer.packed.length()
        session.out.map(count >> 1)
        return write_entries(session.out, db.buffer.packed, _HEADER, count, 1)


@cython.final
@cython.cclass
class HincrbyFastPath(SmallValuePath):
    """The fast path of HINCRBY: supports small hashes, and keys that do not exist."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"hincrby"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute an HINCRBY, or return False without any effect (hincrbyCommand)."""
        buffer: RestBuffer = db.buffer
        packed: Listpack = buffer.packed
        if words.count != 4:
            return False
        by: cython.longlong = parse_digits(words.at[3], words.size[3])
        if not -_MOST <= by <= _MOST:
            return False
        tag: cython.int = self.open(db, words)
        if tag == _MISSING:
            tag = _HASH
            buffer.entry = -1
            buffer.start(tag)
        if words.size[2] > _LIMIT or (
            tag == _HASH and (buffer.hash_value < _DIGITS or words.size[2] > buffer.hash_value)
        ):
            return False
        if tag != _HASH and tag != _HASH_TABLE:
            return False
        pos: cython.Py_ssize_t = packed.find_span(_HEADER, words.at[2], words.size[2], 1)
        if pos == -1:
            packed.append_span(words.at[2], words.size[2])
            packed.append_int(by)
        else:
            pos = packed.skip(pos)
            if packed.decode(pos) or not -_MOST <= packed.at_int <= _MOST:
                return False
            by += packed.at_int
            packed.replace_int(pos, by)
        if tag == _HASH and packed.length() >> 1 > buffer.hash_entries:
            return False
        if not (buffer.fits() if tag == _HASH else buffer.table_fits(2)):
            return self.outgrow(db, words, buffer.entry)
        self.put_back(db, words)
        session.dirty += 1
        return session.out.integer(by)


@cython.final
@cython.cclass
class HdelFastPath(SmallValuePath):
    """The fast path of HDEL: supports small hashes."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"hdel"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute an HDEL, or return False without any effect (hdelCommand)."""
        packed: Listpack = db.buffer.packed
        i: cython.Py_ssize_t
        removed: cython.Py_ssize_t = 0
        if words.count < 3:
            return False
        tag: cython.int = self.open(db, words)
        if tag == _MISSING:
            return session.out.integer(0)
        if tag != _HASH and tag != _HASH_TABLE:
            return False
        for i in range(2, words.count):
            pos: cython.Py_ssize_t = packed.find_span(_HEADER, words.at[i], words.size[i], 1)
            if pos != -1:
                packed.delete(packed.delete(pos))
                removed += 1
        if removed:
            self.put_back(db, words)
            session.dirty += removed
        else:
            self.touch(db, db.buffer.entry)
        return session.out.integer(removed)


def hlen() -> LengthFastPath:
    """Return the fast path of HLEN."""
    return LengthFastPath(b"hlen", (rest_buffer.HASH, rest_buffer.HASH_TABLE), 2)


__all__ = [
    "HdelFastPath", "HgetFastPath", "HgetallFastPath", "HincrbyFastPath", "HmgetFastPath", "HsetFastPath", "hlen",
]  # fmt: skip
