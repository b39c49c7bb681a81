"""The fast paths of HGET, HSET and others: fields of small hashes, read and written in their bytes at rest.

A hash at rest is a listpack of fields and values in both encodings, so the conversion to a hashtable changes only its
tag. A hash whose fields may expire has other tags; expiry_path.py contains the fast paths of the commands on times. The
rules for the encoding are those of types/hash.py. HGET also reads hashes that are awake, and HSET changes hashtables
that are awake.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.small_values import LengthFastPath, SmallValuePath
from rillet.keyspace import rest_buffer
from rillet.keyspace.database import Database
from rillet.keyspace.rest_buffer import RestBuffer
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.dict import Dict
from rillet.structs.listpack import Listpack
from rillet.types.hash import FieldExpiry, Hash

if not cython.compiled:  # the compiled module gets these C names from its .pxd file
    from rillet.commands.small_values import HEADER, MISSING, MOST_WORDS, UNUSUAL, write_entries, write_entry
    from rillet.structs.listpack import parse_digits

_HASH = cython.declare(cython.int, rest_buffer.HASH)
_HASH_TABLE = cython.declare(cython.int, rest_buffer.HASH_TABLE)
_MANY = cython.declare(cython.Py_ssize_t, 256)  # arguments of a call that sets fields of a small hash
_DIGITS = cython.declare(cython.Py_ssize_t, 20)  # characters of the longest integer
_MOST = cython.declare(cython.longlong, 2**62 - 1)  # the sum of two such numbers does not overflow


@cython.cfunc
@cython.exceptval(-1, check=False)
def _write_packed(
    out: ReplyWriter, packed: Listpack, field: cython.p_const_uchar, size: cython.Py_ssize_t
) -> cython.bint:
    """Reply with the value of a field in a listpack, null if it does not exist."""
    pos: cython.Py_ssize_t = packed.find_span(HEADER, field, size, 1)
    if pos == -1:
        return out.null()
    return write_entry(out, packed, packed.skip(pos))


@cython.cfunc
@cython.exceptval(-1, check=False)
def has_expired(db: Database, value: Hash) -> cython.bint:
    """Return whether a field of the hash may have expired. O(1)"""
    earliest: cython.longlong = value.earliest()
    return earliest != 0 and earliest <= db.clock.now_ms()


@cython.cfunc
@cython.exceptval(-1, check=False)
def write_value(out: ReplyWriter, value: Hash, place: cython.Py_ssize_t) -> cython.bint:
    """Reply with the value of the field at a place of a hash that is awake."""
    table: Dict | None = value.table
    packed: Listpack | None = value.listpack
    if table is not None:
        at: cython.p_const_uchar = table.value_span(place)
        if cython.compiled:
            return out.bulk_span(at, table.span_size)
        return out.bulk(bytes(at[: table.span_size]))
    if packed is None:
        expiry: FieldExpiry | None = value.expiry
        assert expiry is not None
        packed = expiry.triples
        assert packed is not None
    return write_entry(out, packed, packed.skip(place))


@cython.cfunc
@cython.exceptval(-1, check=False)
def _converted(buffer: RestBuffer, tag: cython.int, widest: cython.Py_ssize_t) -> cython.int:
    """Return the tag of the hash in the buffer after a change by words of up to `widest` bytes."""
    if widest > buffer.hash_value or buffer.packed.length() >> 1 > buffer.hash_entries:
        return _HASH_TABLE
    return tag


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
        if n == MISSING and db.on_missed is None:
            db.misses += 1
            return out.null()
        if n < 0:
            return False
        value: object = keys.object_at(n)
        if value is not None:
            if type(value) is not Hash:
                return False
            awake: Hash = value
            if awake.expiry is not None and has_expired(db, awake):
                return False
            db.hits += 1
            self.touch(db, n)
            n = awake.locate(words.at[2], words.size[2])
            return out.null() if n < 0 else write_value(out, awake, n)
        buffer: RestBuffer = db.buffer
        tag: cython.int = buffer.load(keys, n)
        if tag != _HASH and tag != _HASH_TABLE:
            return False
        db.hits += 1
        self.touch(db, n)
        return _write_packed(out, buffer.packed, words.at[2], words.size[2])


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
        widest: cython.Py_ssize_t = 0
        created: cython.Py_ssize_t = 0
        if words.count < 4 or words.count & 1:
            return -1
        n: cython.Py_ssize_t = self.find(db, words)
        tag: cython.int = _HASH
        if n < 0:
            if n == UNUSUAL:
                return -1
            buffer.start(tag)
        else:
            value: object = db.keys.object_at(n)
            if value is not None:
                return self._set_awake(session, db, words, n, value) if type(value) is Hash else -1
            tag = buffer.load(db.keys, n)
            if tag != _HASH and tag != _HASH_TABLE:
                return -1
        if words.count > _MANY:
            return -1
        for i in range(2, words.count, 2):
            widest = max(widest, words.size[i], words.size[i + 1])
            pos: cython.Py_ssize_t = packed.find_span(HEADER, words.at[i], words.size[i], 1)
            if pos == -1:
                created += 1
                buffer.append(words.at[i], words.size[i])
                if not buffer.append(words.at[i + 1], words.size[i + 1]):
                    break
            elif not buffer.replace(packed.skip(pos), words.at[i + 1], words.size[i + 1]):
                break
        if buffer.compact and (words.count - 2) >> 1 > buffer.hash_entries:
            tag = _HASH_TABLE
        tag = _converted(buffer, tag, widest)
        if not self.keep(db, words, n, tag):
            return -1
        session.changed(words, (words.count - 2) >> 1)
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
        if table is None or value.expiry is not None:  # type: ignore[attr-defined]
            return -1
        self.touch(db, n)
        db.ledger.note(value)
        for i in range(2, words.count, 2):
            n = table.add_span(words.at[i], words.size[i], words.at[i + 1], words.size[i + 1])
            if table.added:
                created += 1
            else:
                table.set_value_span(n, words.at[i + 1], words.size[i + 1])
            session.changed(words, 1)
        return created

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def fields(self, session: Session, argv: list[bytes]) -> cython.Py_ssize_t:
        """Set the fields for a handler; return how many are new, or -1 if it must do it in the general form."""
        words: ArgumentSpans = session.db.buffer.words
        if len(argv) > MOST_WORDS:
            return -1
        words.take(argv, 0, len(argv))
        return self.set_fields(session, session.db, words)


@cython.final
@cython.cclass
class HsetnxFastPath(SmallValuePath):
    """The fast path of HSETNX: supports small hashes, and keys that do not exist."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"hsetnx"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute an HSETNX, or return False without any effect (hsetnxCommand)."""
        buffer: RestBuffer = db.buffer
        if words.count != 4:
            return False
        tag: cython.int = self.open(db, words)
        if tag == MISSING:
            tag = _HASH
            buffer.entry = -1
            buffer.start(tag)
        elif tag != _HASH and tag != _HASH_TABLE:
            return False
        if buffer.packed.find_span(HEADER, words.at[2], words.size[2], 1) != -1:
            self.touch(db, buffer.entry)
            return session.out.integer(0)
        if buffer.append(words.at[2], words.size[2]):
            buffer.append(words.at[3], words.size[3])
        tag = _converted(buffer, tag, max(words.size[2], words.size[3]))
        if not self.keep(db, words, buffer.entry, tag):
            return False
        session.changed(words, 1)
        return session.out.integer(1)


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
        elif tag != MISSING:
            return False
        out.array(words.count - 2)
        for i in range(2, words.count):
            if tag == MISSING:
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
        if tag == MISSING:
            return session.out.map(0)
        if tag != _HASH and tag != _HASH_TABLE:
            return False
        self.hit(db)
        count: cython.Py_ssize_t = db.buffer.packed.length()
        session.out.map(count >> 1)
        return write_entries(session.out, db.buffer.packed, HEADER, count, 1)


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
        if tag == MISSING:
            tag = _HASH
            buffer.entry = -1
            buffer.start(tag)
        if tag == _HASH and (buffer.hash_value < _DIGITS or words.size[2] > buffer.hash_value):
            return False
        if tag != _HASH and tag != _HASH_TABLE:
            return False
        pos: cython.Py_ssize_t = packed.find_span(HEADER, words.at[2], words.size[2], 1)
        if pos == -1:
            if buffer.append(words.at[2], words.size[2]):
                packed.append_int(by)
        else:
            pos = packed.skip(pos)
            if packed.decode(pos) or not -_MOST <= packed.at_int <= _MOST:
                return False
            by += packed.at_int
            packed.replace_int(pos, by)
        if tag == _HASH and packed.length() >> 1 > buffer.hash_entries:
            return False
        if not self.keep(db, words, buffer.entry, tag):
            return False
        session.changed(words, 1)
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
        if words.count < 3:
            return False
        tag: cython.int = self.open(db, words)
        if tag == MISSING:
            return session.out.integer(0)
        return (tag == _HASH or tag == _HASH_TABLE) and self.remove_elements(session, db, words, 2)


def hlen() -> LengthFastPath:
    """Return the fast path of HLEN."""
    return LengthFastPath(b"hlen", (rest_buffer.HASH, rest_buffer.HASH_TABLE), 2)


__all__ = [
    "HdelFastPath", "HgetFastPath", "HgetallFastPath", "HincrbyFastPath", "HmgetFastPath", "HsetFastPath",
    "HsetnxFastPath", "hlen",
]  # fmt: skip
