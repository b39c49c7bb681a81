"""The fast paths of HEXPIRE, HTTL, HPERSIST and their variants, and the base of those in get_set_path.py.

    HEXPIRE h 100 FIELDS 2 f g     key of the client's buffer -> entry -> Hash -> times of two fields -> reply
                                   log: HPEXPIREAT h 1700000100000 FIELDS 2 f g

They support hashes in each encoding, awake or at rest; a value at rest is woken, as by the handler, because its object
is what knows fields with times. `FIELDS` is the last option. The handlers execute everything else: other orders of the
options, errors, times that have passed, hashes that contain an expired field, and Valkey's forms.

Each path does what its handler in expire.py does, without keyspace events.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.small_values import SmallValuePath
from rillet.keyspace.database import Database
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.dict import Dict
from rillet.structs.integer_text import decimal
from rillet.types.at_rest import type_at_rest
from rillet.types.compat import Compat
from rillet.types.hash import FieldExpiry, Hash

if not cython.compiled:  # the compiled module gets these C names from its .pxd file
    from rillet.commands.hash.fast_path import has_expired
    from rillet.commands.small_values import MISSING, MOST_WORDS, UNUSUAL
    from rillet.structs.listpack import parse_digits

# The values of commands/hash/times.py, whose `TimeSetter` sets the times for the handlers.
_NO_FIELD = cython.declare(cython.int, -2)
_SET = cython.declare(cython.int, 1)
_LAST_TIME = cython.declare(cython.longlong, (1 << 46) - 1)
_NEVER = cython.declare(cython.longlong, (1 << 48) - 1)
_THRESHOLD = cython.declare(cython.longlong, 4000)
# A condition is 0, or its position in _CONDITIONS + 1.
_CONDITIONS = cython.declare(tuple, (b"nx", b"xx", b"gt", b"lt"))
_NX = cython.declare(cython.int, 1)
_XX = cython.declare(cython.int, 2)
_GT = cython.declare(cython.int, 3)
_LT = cython.declare(cython.int, 4)
_RECENT = cython.declare(cython.long, 1)  # seconds since the last access after which a read wakes a value


@cython.cclass
class FieldPath(SmallValuePath):
    """The base of the paths of commands on fields that expire.

    n: the entry of the hash. first: the position of the first field in the words. when: the time that fields get.
    """

    __slots__ = ("first", "least", "n", "registered", "when")

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Execute the call on the bytes of the hash, or with the handler."""
        compat: Compat = session.engine.settings.compat
        if compat.valkey or not session.command.known_to(compat):
            return self.run_list(session, words)
        return SmallValuePath.run(self, session, words)


    # -- arguments -----------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def take_fields(self, words: ArgumentSpans, at: cython.Py_ssize_t, width: cython.Py_ssize_t) -> cython.bint:
        """Return whether the words from `at` on are FIELDS, the number of fields, and the fields of `width` words."""
        if at + 2 + width > words.count or words.count > MOST_WORDS or not words.is_option(at, b"fields"):
            return False
        self.first = at + 2
        count: cython.longlong = parse_digits(words.at[at + 1], words.size[at + 1])
        return 0 < count <= MOST_WORDS and count * width == words.count - self.first

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def take_time(
        self, db: Database, words: ArgumentSpans, at: cython.Py_ssize_t, unit: cython.int, relative: cython.bint
    ) -> cython.bint:
        """Set `when` to the time in words[at], in units of `unit` ms; return False for an error or a past time."""
        now: cython.longlong = db.clock.now_ms()
        base: cython.longlong = now if relative else 0
        when: cython.longlong = parse_digits(words.at[at], words.size[at])
        if when < 0 or when > _LAST_TIME // unit or when * unit > _LAST_TIME - base:
            return False
        self.when = when * unit + base
        return self.when > now

    # -- the hash ------------------------------------------------------------------------------------

    @cython.cfunc
    def hash_to_change(self, db: Database, words: ArgumentSpans) -> Hash:
        """Return the hash of words[1]; None, with `n` MISSING or UNUSUAL. There is no effect but that it is awake."""
        self.n = UNUSUAL
        return self._hash(db, words, True)

    @cython.cfunc
    def hash_to_read(self, db: Database, words: ArgumentSpans) -> Hash:
        """Do `hash_to_change` for a command that only reads. The caller counts the hit or miss."""
        return self._hash(db, words, False)

    @cython.cfunc
    def _hash(self, db: Database, words: ArgumentSpans, change: cython.bint) -> Hash:
        keys: Dict = db.keys
        n: cython.Py_ssize_t = self.find(db, words)
        self.n = n
        if n < 0:
            return None  # type: ignore[return-value]
        value: object = keys.object_at(n)
        if value is None and type_at_rest(keys.value_byte(n)) is Hash:
            # A read wakes only what is in use (Database.lookup_read).
            if change or db.access.stamp < 0 or db.access.stamp - keys.lru(n) <= _RECENT:
                return db._wake(words.get(1), n)  # type: ignore[return-value]
            return db.value_at(n)  # type: ignore[no-any-return]
        if type(value) is not Hash:
            self.n = UNUSUAL
            return None  # type: ignore[return-value]
        return value

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def begin_change(self, db: Database, value: Hash) -> cython.bint:
        """Record the access to a hash that `hash_to_change` returned and that the caller changes now."""
        db.ledger.note(value)
        return self.touch(db, self.n)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def rest(self, db: Database) -> cython.bint:
        """Return values to rest; the caller has done with the hash (Engine._call)."""
        if db.created or len(db.awake) - db._first_awake > db.awake_limit:
            return db.rest_oldest()
        return True

    # -- times ---------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def begin_times(self, session: Session, value: Hash) -> cython.bint:
        """Let fields of the hash expire, before the first `set_time` (hashTypeSetExInit)."""
        expiry: FieldExpiry | None = value.expiry
        if expiry is None:
            expiry = value.start_expiry(session.engine.settings)
        self.registered = expiry.due if expiry.due else _NEVER
        self.least = _NEVER
        return True

    @cython.cfunc
    @cython.exceptval(-3, check=False)
    def set_time(
        self, value: Hash, place: cython.Py_ssize_t, words: ArgumentSpans, i: cython.Py_ssize_t, condition: cython.int
    ) -> cython.int:
        """Set the time of the field words[i] at a place to `when`; return 0 if the condition forbids it, else _SET."""
        when: cython.longlong = self.when
        current: cython.longlong = value.time_at(place, words.at[i], words.size[i])
        if current == 0:
            if condition == _XX or condition == _GT:
                return 0
        else:
            if (condition == _NX or (condition == _GT and current >= when)
                    or (condition == _LT and current <= when)):  # fmt: skip
                return 0
            if current == when and value.table is not None:
                return 1
            self.least = min(self.least, current)
        self.least = min(self.least, when)
        value.set_time_at(place, words.at[i], words.size[i], when)
        return 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def end_times(self, db: Database, words: ArgumentSpans, value: Hash) -> cython.bint:
        """Register the hash for its next expiry if that changed much (hashTypeSetExDone)."""
        if self.registered < self.least:
            return True
        following: cython.longlong = value.earliest()
        if abs(self.registered - (following if following else _NEVER)) < _THRESHOLD:
            return True
        return db.set_due(words.get(1), value, following)


@cython.cclass
class FieldTimePath(FieldPath):
    """The base of the paths on the expiry of fields: in units of `unit` ms, from now on if `relative`."""

    __slots__ = ("_relative", "_unit")

    def __init__(self, name: bytes, unit: int, relative: bool) -> None:
        self.name = name
        self._unit = unit
        self._relative = relative


@cython.final
@cython.cclass
class HexpireFastPath(FieldTimePath):
    """The fast path of HEXPIRE, HPEXPIRE, HEXPIREAT and HPEXPIREAT."""

    __slots__ = ("_done",)
    _done: bytearray  # for each word: whether it is a field that got the time

    def __init__(self, name: bytes, unit: int, relative: bool) -> None:
        super().__init__(name, unit, relative)
        self._done = bytearray(MOST_WORDS)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute a call, or return False without any effect (hexpireGenericCommand)."""
        out: ReplyWriter = session.out
        condition: cython.int = 0
        result: cython.int
        i: cython.Py_ssize_t
        place: cython.Py_ssize_t
        if words.count < 6:
            return False
        if words.size[3] == 2:
            condition = self._condition(words)
        if not self.take_fields(words, 4 if condition else 3, 1):
            return False
        if not self.take_time(db, words, 2, self._unit, self._relative):
            return False
        value: Hash | None = self.hash_to_change(db, words)
        if value is None:
            if self.n != MISSING:
                return False
            out.array(words.count - self.first)
            for _ in range(self.first, words.count):
                out.integer(_NO_FIELD)
            return True
        for i in range(self.first, words.count):
            self._done[i] = 0
        self.begin_change(db, value)
        self.begin_times(session, value)
        out.array(words.count - self.first)
        for i in range(self.first, words.count):
            place = value.locate(words.at[i], words.size[i])
            result = _NO_FIELD if place < 0 else self.set_time(value, place, words, i, condition)
            if result == _SET:
                self._done[i] = 1
                session.changed(words, 1)
            out.integer(result)
        self.end_times(db, words, value)
        if session.logged and session.dirty:
            self._log(session, words)
        return self.rest(db)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _condition(self, words: ArgumentSpans) -> cython.int:
        """Return the condition in words[3], 0 if it is another word."""
        i: cython.Py_ssize_t
        for i in range(4):
            if words.is_option(3, _CONDITIONS[i]):
                return i + 1
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _log(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Log an HPEXPIREAT of the fields that got the time."""
        i: cython.Py_ssize_t
        first: cython.Py_ssize_t = self.first
        exact: cython.bint = self._unit == 1 and not self._relative  # the name and the time stay as they are
        argv: list[bytes] = [words.get(0) if exact else b"HPEXPIREAT", words.get(1)]
        argv.append(words.get(2) if exact else decimal(self.when))
        for i in range(3, first - 1):
            argv.append(words.get(i))
        argv.append(b"")
        for i in range(first, words.count):
            if self._done[i]:
                argv.append(words.get(i))
        count: cython.Py_ssize_t = len(argv) - first
        argv[first - 1] = words.get(first - 1) if count == words.count - first else decimal(count)
        return session.propagate(argv)


@cython.final
@cython.cclass
class HttlFastPath(FieldTimePath):
    """The fast path of HTTL, HPTTL, HEXPIRETIME and HPEXPIRETIME."""

    __slots__ = ()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Reply with the times of fields, or return False without any effect (httlGenericCommand)."""
        out: ReplyWriter = session.out
        i: cython.Py_ssize_t
        place: cython.Py_ssize_t
        when: cython.longlong
        if not self.take_fields(words, 2, 1):
            return False
        value: Hash | None = self.hash_to_read(db, words)
        if value is None:
            if self.n != MISSING or db.on_missed is not None:
                return False
            db.misses += 1
        else:
            if has_expired(db, value):
                return False
            db.hits += 1
            self.touch(db, self.n)
        base: cython.longlong = db.clock.now_ms() if self._relative else 0
        out.array(words.count - self.first)
        for i in range(self.first, words.count):
            place = -1 if value is None else value.locate(words.at[i], words.size[i])
            if value is None or place < 0:
                out.integer(_NO_FIELD)
                continue
            when = value.time_at(place, words.at[i], words.size[i])
            if when == 0:
                out.integer(-1)
            elif self._unit == 1:
                out.integer(when - base)
            else:
                out.integer((when - base + 999) // 1000)
        return self.rest(db)


@cython.final
@cython.cclass
class HpersistFastPath(FieldPath):
    """The fast path of HPERSIST."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"hpersist"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Remove the times of fields, or return False without any effect (hpersistCommand)."""
        out: ReplyWriter = session.out
        i: cython.Py_ssize_t
        place: cython.Py_ssize_t
        before: cython.longlong = session.dirty
        if not self.take_fields(words, 2, 1):
            return False
        value: Hash | None = self.hash_to_change(db, words)
        if value is None:
            if self.n != MISSING:
                return False
        elif has_expired(db, value):
            return False
        else:
            self.begin_change(db, value)
        out.array(words.count - self.first)
        for i in range(self.first, words.count):
            place = -1 if value is None else value.locate(words.at[i], words.size[i])
            if value is None or place < 0:
                out.integer(_NO_FIELD)
            elif value.time_at(place, words.at[i], words.size[i]) == 0:
                out.integer(-1)
            else:
                session.dirty = before + 1  # the command counts as one change
                value.set_time_at(place, words.at[i], words.size[i], 0)
                out.integer(1)
        return self.rest(db)


__all__ = ["FieldPath", "FieldTimePath", "HexpireFastPath", "HpersistFastPath", "HttlFastPath"]
