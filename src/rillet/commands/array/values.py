"""Shared parts of the array commands: lookup, indexes in arguments, replies of values (Redis: t_array.c)."""

from __future__ import annotations

import re

from rillet._cython import cython
from rillet.errors import CommandError, WrongType
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.array.array_slice import integer_of
from rillet.structs.array.sparse_array import NO_INDEX, SparseArray
from rillet.structs.integer_text import decimal
from rillet.structs.listpack import parse_digits
from rillet.types.array import Array
from rillet.types.string import string2ll

_NO_INDEX = cython.declare(cython.ulonglong, NO_INDEX)
_LARGEST_INTEGER = cython.declare(cython.ulonglong, NO_INDEX >> 1)
_BAD_INDEX = "invalid array index"
_C_NUMBER = re.compile(rb"[ \t\n\v\f\r]*([+-]?)0*([0-9]+)")


@cython.ccall
@cython.exceptval(7777777777777777777, check=True)
def parse_index(raw: bytes, terminal: cython.bint = False) -> cython.ulonglong:
    """Parse an index, 0 to 2^64 - 2; with `terminal` also 2^64 - 1 (getArrayIndexFromObject)."""
    number: cython.longlong = parse_digits(raw, len(raw))
    if number >= 0:
        return number
    at: cython.Py_ssize_t = 0
    if len(raw) < 19 and raw.startswith(b"0"):  # leading zeros, as of redis-benchmark
        while at < len(raw) - 1 and raw[at] == 48:
            at += 1
        rest: bytes = raw[at:]
        number = parse_digits(rest, len(rest))
        if number >= 0:
            return number
    index: object = _unusual_index(raw)
    if index is None or (index == _NO_INDEX and not terminal):
        raise CommandError(_BAD_INDEX)
    return index  # type: ignore[return-value]


@cython.ccall
@cython.exceptval(7777777777777777777, check=True)
def index_at(words: ArgumentSpans, at: cython.Py_ssize_t) -> cython.ulonglong:
    """Do `parse_index` for an argument."""
    number: cython.longlong = parse_digits(words.at[at], words.size[at])
    return number if number >= 0 else parse_index(words.get(at))


def _unusual_index(raw: bytes) -> int | None:
    """Return the index of a text that is not canonical: as C's strtoull reads it, modulo 2^64 (util.c: string2ull)."""
    raw = raw.split(b"\0", 1)[0]
    canonical = string2ll(raw)
    if canonical is not None:
        return canonical if canonical >= 0 else None
    match = _C_NUMBER.fullmatch(raw)
    if match is None or len(match[2]) > 20:
        return None
    index = int(match[2])
    if index > NO_INDEX:
        return None
    return -index % (NO_INDEX + 1) if match[1] == b"-" else index


@cython.ccall
def array_to_read(session: Session, key: bytes) -> Array:
    """Return the array at a key, which the caller does not change, or None; raise WrongType for another type."""
    value: object = session.db.view_read(key)
    if value is not None and not isinstance(value, Array):
        raise WrongType()
    return value  # type: ignore[return-value]


@cython.ccall
def array_at(session: Session, words: ArgumentSpans, create: cython.bint) -> Array:
    """Do `array_for_write` for the key in words[1]."""
    n: cython.Py_ssize_t = session.db.locate(words)
    if n < 0:
        return array_for_write(session, words.get(1), create)
    value: object = session.db.unpack(words, n)
    if not isinstance(value, Array):
        raise WrongType()
    return value


@cython.ccall
def array_for_write(session: Session, key: bytes, create: cython.bint) -> Array:
    """Return the array at a key; if there is none, None or a new one. Raise WrongType for another type."""
    value: object = session.db.lookup(key)
    if value is None:
        if create:
            value = Array(session.engine.settings)
            session.db.set(key, value)
    elif not isinstance(value, Array):
        raise WrongType()
    return value  # type: ignore[return-value]


@cython.ccall
def write_word(out: ReplyWriter, cells: SparseArray, word: cython.ulonglong) -> cython.bint:
    """Reply with the value of a word, null if it is 0 (addReplyArrayValue)."""
    tag: cython.int = word & 3
    if word == 0:
        return out.null()
    if tag == 1:
        return out.bulk_int(integer_of(word))
    if cython.compiled:
        if tag == 3:
            size: cython.Py_ssize_t = word >> 2 & 7
            word >>= 8
            return out.bulk_span(cython.cast(cython.p_const_uchar, cython.address(word)), size)
    return out.bulk(cells.data(word))


@cython.ccall
def write_index(out: ReplyWriter, index: cython.ulonglong) -> cython.bint:
    """Reply with an index or a count; from 2^63 on, it is a big number (addReplyUnsignedLongLong)."""
    if index > _LARGEST_INTEGER:
        return out.bignum(decimal(index))
    return out.integer(index)


@cython.ccall
def changed(session: Session, key: bytes, event: bytes, changes: cython.longlong) -> cython.bint:
    """Record the changes of an array, and publish their event."""
    session.modified(key)
    session.dirty += changes - 1
    return session.notify(b"a", event, key)
