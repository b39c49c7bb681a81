"""Commands on small collections, executed on their bytes at rest: no object for the value, the key or an argument.

    HSET h f v   key of the client's buffer -> entry -> value at rest -> RestBuffer -> value at rest
    HGET h f     key of the client's buffer -> entry -> value at rest -> reply

`SmallValuePath` is the base of these fast paths (runtime/fast_path.py); the modules `fast_path.py` of the types contain
them. A handler uses the same code for calls that have become a list of arguments (`execute`). Both leave everything
unusual to the handler's general form, which works on objects, before any change: options, values that are awake or too
large to rest, other types, keys with an expiry that has passed, and databases in which clients wait for keys or watch
them.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.keyspace import rest_buffer
from rillet.keyspace.database import Database
from rillet.keyspace.rest_buffer import RestBuffer
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.dict import Dict
from rillet.structs.listpack import HEADER_SIZE, Listpack

if not cython.compiled:  # the compiled module gets these C functions from its .pxd file
    from rillet.structs.dict_table import hash_bytes
    from rillet.structs.listpack import parse_digits

# The .pxd gives these constants a C type, also for the compiled fast paths of the types.
MISSING = -1
"""Result of `SmallValuePath.find` and others: the key does not exist."""
UNUSUAL = -2
"""Result of `SmallValuePath.find` and others: the handler must do it, for example because the key has expired."""
HEADER = HEADER_SIZE
"""The position of a listpack's first entry."""
NOT_INT = -(2**63)
"""What `parse_digits` returns for a text that is not an integer, and for that of -2^63."""
MOST_WORDS = 512
"""Arguments of a command that can create a value that rests."""
_INTSET = cython.declare(cython.int, rest_buffer.INTSET)


@cython.cclass
class SmallValuePath(Implementation):
    """The fast path of a command on one small value; `name` is the command's name in lower case."""

    __slots__ = ("name",)
    name: bytes

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute the call in `words`: change, reply, count in `session.dirty`; or return False without any effect."""
        raise NotImplementedError

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Execute the call on the bytes of the value, or with the handler."""
        if not session.db.notifies and self.one(session, session.db, words):
            return True
        return self.run_list(session, words)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def execute(self, session: Session, argv: list[bytes]) -> cython.bint:
        """Execute a handler's call, without its keyspace event; or return False without any effect."""
        db: Database = session.db
        words: ArgumentSpans = db.buffer.words
        if len(argv) > MOST_WORDS:
            return False
        words.take(argv, 0, len(argv))
        return self.one(session, db, words)

    # -- for subclasses ------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-3, check=False)
    def find(self, db: Database, words: ArgumentSpans) -> cython.Py_ssize_t:
        """Return the entry of the key, which is the first argument; MISSING, or UNUSUAL if the key has expired. O(1)"""
        expires: Dict = db.expires
        at: cython.p_const_uchar = words.at[1]
        size: cython.Py_ssize_t = words.size[1]
        h: cython.uint = hash_bytes(at, size)
        db.buffer.hash = h
        if expires.used0 or expires.used1:
            due: cython.Py_ssize_t = expires.find_hashed(at, size, h)
            if due >= 0 and expires.number(due) < db.clock.now_ms():
                return UNUSUAL
        return db.keys.find_hashed(at, size, h)

    @cython.cfunc
    @cython.exceptval(-3, check=False)
    def read(self, db: Database, words: ArgumentSpans) -> cython.int:
        """Unpack the key's value into the buffer, for a command that reads it; return its tag, MISSING or UNUSUAL.

        A miss is counted here; a caller that replies calls `hit`.
        """
        n: cython.Py_ssize_t = self.find(db, words)
        if n == MISSING and db.on_missed is None:
            db.misses += 1
            return -1
        return self._unpack(db, n)

    @cython.cfunc
    @cython.exceptval(-3, check=False)
    def open(self, db: Database, words: ArgumentSpans) -> cython.int:
        """Unpack the key's value into the buffer, for a command that changes it; return its tag, MISSING or UNUSUAL."""
        n: cython.Py_ssize_t = self.find(db, words)
        return -1 if n == MISSING else self._unpack(db, n)

    @cython.cfunc
    @cython.exceptval(-3, check=False)
    def _unpack(self, db: Database, n: cython.Py_ssize_t) -> cython.int:
        if n < 0 or db.keys.object_at(n) is not None:
            return -2
        db.buffer.entry = n
        return db.buffer.load(db.keys, n)

    @cython.cfunc
    @cython.exceptval(-3, check=False)
    def read_range(self, db: Database, words: ArgumentSpans) -> cython.int:
        """Do `read` for a command with the range `start stop`; return the tag. `write_range` writes the range."""
        if words.count != 4:
            return -2
        db.buffer.first = parse_digits(words.at[2], words.size[2])
        db.buffer.last = parse_digits(words.at[3], words.size[3])
        if db.buffer.first == NOT_INT or db.buffer.last == NOT_INT:
            return -2
        return self.read(db, words)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write_range(self, out: ReplyWriter, db: Database, step: cython.Py_ssize_t) -> cython.bint:
        """Write an array of the range of `read_range` in the listpack, whose elements have `step` entries each."""
        packed: Listpack = db.buffer.packed
        first: cython.longlong = db.buffer.first
        last: cython.longlong = db.buffer.last
        length: cython.Py_ssize_t = packed.length() // step
        if first < 0:
            first = max(first + length, 0)
        last = last + length if last < 0 else min(last, length - 1)
        if first > last or first >= length:
            return out.array(0)
        out.array(last - first + 1)
        return write_entries(out, packed, packed.skip(HEADER, first * step), last - first + 1, step)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def hit(self, db: Database) -> cython.bint:
        """Count a keyspace hit, and record the access of the value that `read` has unpacked."""
        db.hits += 1
        return self.touch(db, db.buffer.entry)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def remove_elements(self, session: Session, db: Database, words: ArgumentSpans, step: cython.int) -> cython.bint:
        """Remove the elements that the arguments name from the listpack that `open` has unpacked; reply their number.

        An element has `step` entries, 1 or 2.
        """
        packed: Listpack = db.buffer.packed
        i: cython.Py_ssize_t
        pos: cython.Py_ssize_t
        removed: cython.Py_ssize_t = 0
        for i in range(2, words.count):
            pos = packed.find_span(HEADER, words.at[i], words.size[i], step - 1)
            if pos != -1:
                pos = packed.delete(pos)
                if step == 2:
                    packed.delete(pos)
                removed += 1
        if removed:
            self.put_back(db, words)
        else:
            self.touch(db, db.buffer.entry)
        session.changed(words, removed)
        return session.out.integer(removed)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def put_back(self, db: Database, words: ArgumentSpans) -> cython.bint:
        """Write the listpack back that `open` has unpacked; delete the key if it has no entry any more."""
        if db.buffer.packed.length() == 0:
            return db.delete(words.get(1))
        return self.store(db, words, db.buffer.entry, db.buffer.compose())

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def touch(self, db: Database, n: cython.Py_ssize_t) -> cython.bint:
        """Record the access of an entry."""
        if db.access.stamp >= 0:
            return db.keys.put_lru(n, db.access.stamp)
        return db.access.touch(db.keys, n)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def keep(self, db: Database, words: ArgumentSpans, n: cython.Py_ssize_t, tag: cython.int) -> cython.bint:
        """Make the buffer's listpack the value of the key, as for `store`; return False if it cannot rest.

        The handler then wakes entry n; its old bytes are freed after that.
        """
        if db.buffer.outgrown(tag):
            if n >= 0:
                db.created.append(words.get(1))
            return False
        db.buffer.rest[0] = tag
        return self.store(db, words, n, db.buffer.compose())

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def store(
        self, db: Database, words: ArgumentSpans, n: cython.Py_ssize_t, size: cython.Py_ssize_t
    ) -> cython.bint:
        """Make the first bytes of the buffer's `rest` the value of the key: of entry n, or of a new one if n < 0."""
        keys: Dict = db.keys
        buffer: RestBuffer = db.buffer
        new: cython.bint = n < 0
        if cython.compiled:
            rest: cython.p_uchar = buffer.rest
            if not new:
                keys.set_value_span(n, rest, size)
            else:
                n = keys.add_hashed(words.at[1], words.size[1], rest, size, buffer.hash)
        elif not new:
            keys.set_value_span(n, bytes(buffer.rest[:size]), size)
        else:
            n = keys.add_hashed(words.at[1], words.size[1], bytes(buffer.rest[:size]), size, buffer.hash)
        if db.access.stamp >= 0:
            keys.put_lru(n, db.access.stamp)
        elif new:
            db.access.start(keys, n)
        else:
            db.access.touch(keys, n)
        return not new or not db.blocking_keys or db.signal_ready(words.get(1))


@cython.cfunc
@cython.exceptval(-1, check=False)
def write_entry(out: ReplyWriter, packed: Listpack, pos: cython.Py_ssize_t) -> cython.bint:
    """Write an entry of a listpack as a bulk string; `at_next` is the position after it."""
    if packed.decode(pos):
        return out.bulk_slice(packed.buf, packed.at_start, packed.at_len)
    return out.bulk_int(packed.at_int)


@cython.cfunc
@cython.exceptval(-1, check=False)
def write_entries(
    out: ReplyWriter, packed: Listpack, pos: cython.Py_ssize_t, count: cython.Py_ssize_t, step: cython.Py_ssize_t
) -> cython.bint:
    """Write `count` existing entries from a position on, every `step`-th one, as bulk strings. O(count * step)"""
    while count > 0:
        write_entry(out, packed, pos)
        count -= 1
        if count:
            pos = packed.skip(packed.at_next, step - 1)
    return True


@cython.cclass
class LengthFastPath(SmallValuePath):
    """The fast path of a command that returns the number of elements; `tags` has a bit for each tag of its type."""

    __slots__ = ("_tags", "_words")
    _tags: cython.int
    _words: cython.Py_ssize_t

    def __init__(self, name: bytes, tags: tuple[int, ...], words: int) -> None:
        self.name = name
        self._tags = sum(1 << tag for tag in tags)
        self._words = words

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Reply with the number of elements, or return False without any effect."""
        if words.count != 2:
            return False
        tag: cython.int = self.read(db, words)
        if tag == MISSING:
            return session.out.integer(0)
        if tag < 0 or not self._tags >> tag & 1:
            return False
        self.hit(db)
        if tag == _INTSET:
            return session.out.integer(db.buffer.numbers)
        return session.out.integer(db.buffer.packed.length() // self._words)


__all__ = ["LengthFastPath", "SmallValuePath"]
