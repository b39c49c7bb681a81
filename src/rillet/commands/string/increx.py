"""INCREX: add to a number within bounds, and set or remove the key's expiry (t_string.c: increxCommand).

    INCREX k BYINT 5 LBOUND 0 UBOUND 10 SATURATE EX 60 ENX        reply: [new value, what was added]

A sum beyond a bound, or beyond the type, changes nothing and adds 0; with SATURATE it becomes the bound. The numbers
are 64-bit integers, or with BYFLOAT long doubles. The command is propagated as SET with the result, and KEEPTTL or the
absolute expiry, so that a replay depends neither on the clock nor on floating point.

A counter with a bound and an expiry is the usual call: `_count` executes it with 64-bit numbers before the
general form looks at the words.
"""

from __future__ import annotations

from fractions import Fraction
from math import inf

from rillet._cython import cython
from rillet.commands.arguments import LLONG_MAX, LLONG_MIN, float_value, integer, syntax_error
from rillet.commands.keys.expire import deletion
from rillet.commands.string import command
from rillet.commands.string.set_options import expiry_ms
from rillet.commands.string.values import string_for_write, update_string
from rillet.errors import CommandError
from rillet.keyspace import lru
from rillet.keyspace.database import Database
from rillet.runtime.session import Session
from rillet.structs import long_double
from rillet.structs.integer_text import decimal
from rillet.structs.listpack import parse_int64
from rillet.types.string import PLAIN, TEXT, String

Number = int | Fraction | float
"""An integer, a long double, or an infinity."""


def _real(raw: bytes, message: str) -> Number:
    """Parse a long double or an infinity."""
    try:
        return float_value(raw, message)
    except long_double.NotFinite:
        return -inf if raw.startswith(b"-") else inf


def _rounded(value: Fraction) -> Number:
    """Return the nearest long double, or an infinity."""
    try:
        return long_double.rounded(value)
    except long_double.NotFinite:
        return inf if value > 0 else -inf


EXPIRY_OPTIONS = {b"EX": (1000, True), b"PX": (1, True), b"EXAT": (1000, False), b"PXAT": (1, False)}
_BYINT, _LBOUND, _UBOUND, _EXPIRY = 1, 2, 4, 8
_PLAIN_WORDS = {
    b"BYINT": (_BYINT, 0, False), b"LBOUND": (_LBOUND, 0, False), b"UBOUND": (_UBOUND, 0, False),
    **{word: (_EXPIRY, unit, relative) for word, (unit, relative) in EXPIRY_OPTIONS.items()},
}  # fmt: skip
"""More options of `_count`: a bit, and of an expiry its unit in ms and whether it is relative."""
_C_BYINT = cython.declare(cython.int, _BYINT)
_C_LBOUND = cython.declare(cython.int, _LBOUND)
_C_UBOUND = cython.declare(cython.int, _UBOUND)
_C_EXPIRY = cython.declare(cython.int, _EXPIRY)
_SMALLEST = cython.declare(cython.longlong, LLONG_MIN)
_LARGEST = cython.declare(cython.longlong, LLONG_MAX)
_LATEST = cython.declare(cython.longlong, LLONG_MAX // 2000)
_LRU = cython.declare(cython.int, lru.LRU)


@cython.cfunc
def _count(session: Session, argv: list[bytes]) -> cython.bint:
    """Execute a call with BYINT, bounds or an expiry; return False without any effect if it is another call.

    Invalid words, and an expiry that has passed, are left to the general form, too.
    """
    at: cython.Py_ssize_t = 2
    seen: cython.int = 0
    bit: cython.int
    number: cython.longlong
    unit: cython.longlong = 0
    relative: cython.bint = False
    now: cython.longlong
    word: bytes
    option: tuple[int, int, bool] | None
    by: cython.longlong = 1
    low: cython.longlong = _SMALLEST
    high: cython.longlong = _LARGEST
    when: cython.longlong = 0
    db: Database = session.db
    key: bytes = argv[1]
    if len(argv) & 1:
        return False
    while at < len(argv):
        number = parse_int64(argv[at + 1])
        word = argv[at]
        if word == b"UBOUND":
            bit = _C_UBOUND
        elif word == b"EX":
            bit = _C_EXPIRY
            unit = 1000
            relative = True
        elif word == b"LBOUND":
            bit = _C_LBOUND
        elif word == b"BYINT":
            bit = _C_BYINT
        else:
            option = _PLAIN_WORDS.get(word) or _PLAIN_WORDS.get(word.upper())
            if option is None:
                return False
            bit = option[0]
            unit = option[1]
            relative = option[2]
        if number == _SMALLEST:
            return False
        if seen & bit:
            return False
        seen |= bit
        if bit == _C_BYINT:
            by = number
        elif bit == _C_LBOUND:
            low = number
        elif bit == _C_UBOUND:
            high = number
        else:
            if number <= 0 or number > _LATEST:
                return False
            now = db.clock.now_ms()
            when = number * unit + (now if relative else 0)
            if when <= now:
                return False
        at += 2
    if low > high:
        return False
    string: String = string_for_write(db, key)
    old: cython.longlong = 0
    if string is not None:
        text: bytes = string.value()
        old = parse_int64(text)
        if old == _SMALLEST:
            old = integer(text)
    session.out.array(2)
    # The comparisons with the largest and the smallest number exclude an overflow.
    if (by > 0 and old > _LARGEST - by) or (by < 0 and old < _SMALLEST - by) or not low <= old + by <= high:
        session.out.integer(old)
        return session.out.integer(0)
    new: cython.longlong = old + by
    session.out.integer(new)
    session.out.integer(by)
    digits: bytes = decimal(new)
    if string is not None and string.form == 0 and db.access.mode == _LRU:
        string.data = digits  # changed in place, as by INCR
        session.modified(key)
        session.notify(b"$", b"incrby", key)
    else:
        update_string(session, key, digits, PLAIN, b"incrby")
    if when:
        db.set_expire(key, when)
        session.notify(b"g", b"expire", key)
    if session.engine.log is not None:
        session.propagate([b"SET", key, digits, b"PXAT", decimal(when)] if when else [b"SET", key, digits, b"KEEPTTL"])
    return True


class _Options:
    """The options of INCREX; when: the expiry in ms since the epoch, 0 if not given (parseIncrExArgumentsOrReply)."""

    __slots__ = ("by", "floating", "high", "low", "only_new", "persist", "saturate", "when")

    def __init__(self, session: Session, argv: list[bytes]) -> None:
        self.by: Number = 1
        words: dict[bytes, bytes] = {}
        expiry = b""
        at = 2
        while at < len(argv):
            word = argv[at].upper()
            clash = word in words or (
                (word in EXPIRY_OPTIONS or word == b"PERSIST") and (expiry or b"PERSIST" in words)
            ) or (word == b"PERSIST" and b"ENX" in words) or (word == b"ENX" and b"PERSIST" in words)
            if clash:
                raise syntax_error()
            if word in (b"SATURATE", b"ENX", b"PERSIST"):
                words[word] = b""
                at += 1
                continue
            if at + 1 == len(argv):
                raise syntax_error()
            value = argv[at + 1]
            if word in (b"BYINT", b"BYFLOAT") and not {b"BYINT", b"BYFLOAT"} & words.keys():
                self.by = self._increment(word, value)
            elif word in EXPIRY_OPTIONS:
                expiry = word
            elif word not in (b"LBOUND", b"UBOUND"):
                raise syntax_error()
            words[word] = value
            at += 2
        self.floating = b"BYFLOAT" in words
        self.saturate, self.only_new, self.persist = b"SATURATE" in words, b"ENX" in words, b"PERSIST" in words
        most = long_double.LARGEST if self.floating else LLONG_MAX
        self.low = self._bound(words, b"LBOUND", -most if self.floating else LLONG_MIN)
        self.high = self._bound(words, b"UBOUND", most)
        if self.low > self.high:
            raise CommandError("LBOUND can't be greater than UBOUND")
        if self.only_new and not expiry:
            raise CommandError("ENX flag requires an expiration")
        self.when = 0
        if expiry:
            unit, relative = EXPIRY_OPTIONS[expiry]
            self.when = expiry_ms(session, integer(words[expiry]), unit, relative)

    @staticmethod
    def _increment(word: bytes, raw: bytes) -> Number:
        if word == b"BYINT":
            return integer(raw, "Increment is not an integer or out of range")
        by = _real(raw, "Increment is not a valid float")
        if isinstance(by, float):
            raise CommandError("BYFLOAT increment cannot be Infinity")
        return by

    def _bound(self, words: dict[bytes, bytes], name: bytes, default: Number) -> Number:
        if name not in words:
            return default
        if self.floating:
            return _real(words[name], f"{name.decode()} is not a valid float")
        return integer(words[name], f"{name.decode()} is not an integer or out of range")

    def result(self, old: Number) -> Number | None:
        """Return the new value, or None if the sum is out of bounds and nothing changes."""
        total: Number = old + self.by
        overflow = False
        if self.floating:
            total = _rounded(Fraction(total))
            overflow = isinstance(total, float)
        elif not LLONG_MIN <= total <= LLONG_MAX:
            overflow = True
        if not overflow and self.low <= total <= self.high:
            return total
        if not self.saturate:
            return None
        if overflow:
            return self.high if self.by >= 0 else self.low
        return self.high if total > self.high else self.low

    def difference(self, new: Number, old: Number) -> Number:
        """Return what was added; raise CommandError if it does not fit the type."""
        if self.floating:
            added = _rounded(Fraction(new) - Fraction(old)) if not isinstance(new, float) else new
            if isinstance(added, float):
                raise CommandError("applied increment would be Infinity")
            return added
        if not LLONG_MIN <= new - old <= LLONG_MAX:
            raise CommandError("applied increment would overflow")
        return new - old


def _write(session: Session, value: Number, floating: bool) -> None:
    """Reply with a number: an integer, or a long double (addReplyHumanLongDouble)."""
    out = session.out
    if not floating:
        out.integer(int(value))
    elif out.resp == 2:
        out.bulk(long_double.format_decimal(Fraction(value)))
    else:
        out.raw(b"," + long_double.format_decimal(Fraction(value)) + b"\r\n")


@command(
    "increx",
    arity=-2,
    flags="write denyoom fast",
    since="8.8.0",
    complexity="O(1)",
    syntax="key [BYFLOAT increment | BYINT increment] [LBOUND lowerbound] [UBOUND upperbound] [SATURATE] [EX seconds | "
    "PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST] [ENX]",
)
def increx(session: Session, argv: list[bytes]) -> None:
    """Add to the number at a key within bounds, and set or remove the key's expiry."""
    if _count(session, argv):
        return
    options = _Options(session, argv)
    key = argv[1]
    string = string_for_write(session.db, key)
    raw = b"0" if string is None else string.value()
    old: Number = _real(raw, "value is not a valid float") if options.floating else integer(raw)
    if isinstance(old, float):
        raise CommandError("value cannot be Infinity")
    new = options.result(old)
    added: Number = 0 if new is None else options.difference(new, old)
    session.out.array(2)
    _write(session, old if new is None else new, options.floating)
    _write(session, added, options.floating)
    if new is not None:
        text = long_double.format_decimal(Fraction(new)) if options.floating else decimal(int(new))
        _store(session, key, text, options, string is not None)


def _store(session: Session, key: bytes, text: bytes, options: _Options, found: bool) -> None:
    """Store the result and its expiry, notify, and propagate a SET; an expiry that has passed deletes the key."""
    db = session.db
    expires = options.when > 0 and not (options.only_new and found and db.get_expire(key) >= 0)
    if expires and options.when <= session.engine.clock.now_ms() and not session.trusted:
        if found:
            db.delete(key)
            session.modified(key)
            session.notify(b"g", b"del", key)
            session.propagate(deletion(key, session.engine.settings.lazyfree_lazy_expire))
        session.engine.stats.expired_keys += 1
        return
    form, event = (TEXT, b"incrbyfloat") if options.floating else (PLAIN, b"incrby")
    update_string(session, key, text, form, event)
    if options.persist:
        session.propagate([b"SET", key, text])
        if db.persist(key):
            session.notify(b"g", b"persist", key)
    elif expires:
        session.propagate([b"SET", key, text, b"PXAT", decimal(options.when)])
        db.set_expire(key, options.when)
        session.notify(b"g", b"expire", key)
    else:
        session.propagate([b"SET", key, text, b"KEEPTTL"])
