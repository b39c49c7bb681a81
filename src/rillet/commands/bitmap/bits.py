"""SETBIT, GETBIT, BITCOUNT, BITPOS and BITOP (Redis: bitops.c)."""

from __future__ import annotations

from typing import Any

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.arguments import integer, syntax_error, text
from rillet.commands.bitmap import command
from rillet.commands.bitmap.fast_path import (
    BitcountFastPath,
    BitopFastPath,
    BitposFastPath,
    GetbitFastPath,
    SetbitFastPath,
)
from rillet.commands.bitmap.field_operations import BAD_OFFSET
from rillet.commands.string.values import store_string, string_for_write, string_to_read
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.structs.bits import AND, ANDOR, DIFF, DIFF1, NOT, ONE, OR, XOR, combine
from rillet.types.string import RAW, String, new_string, string2ll

if not cython.compiled:  # the compiled module gets these C functions from its .pxd file
    from rillet.commands.bitmap.fast_path import largest_offset
    from rillet.structs.bits import count_bits, find_bit, read_field, write_field

_RAW = cython.declare(cython.int, RAW)
_BAD_BIT = "bit is not an integer or out of range"
_OPERATIONS = {b"and": AND, b"or": OR, b"xor": XOR, b"not": NOT}
_OPERATIONS_82 = {**_OPERATIONS, b"diff": DIFF, b"diff1": DIFF1, b"andor": ANDOR, b"one": ONE}


@cython.cfunc
@cython.exceptval(-1, check=False)
def _bit_offset(session: Session, raw: bytes) -> cython.Py_ssize_t:
    """Parse the offset of a bit; raise CommandError if it is invalid or too large (getBitOffsetFromArgument)."""
    offset: object = string2ll(raw)
    if offset is None or offset < 0 or offset > largest_offset(session):  # type: ignore[operator]
        raise CommandError(BAD_OFFSET)
    return offset  # type: ignore[return-value]


@cython.ccall
def string_with_bits(session: Session, key: bytes, string: String, bits: cython.Py_ssize_t) -> String:
    """Return the string that was found at a key, made or padded with zero bytes so that it has that many bits.

    The encoding becomes raw even if nothing changes (lookupStringForBitCommand).
    """
    size: cython.Py_ssize_t = (bits + 7) >> 3
    if string is None:
        string = new_string(b"")
        string.reserve(size)
        session.db.set(key, string)
    else:
        string.reserve(size)
    return string


@command("setbit", arity=4, flags="write denyoom", since="2.2.0", syntax="key offset value", complexity="O(1)",
         shortcut=SetbitFastPath)
def setbit(session: Session, argv: list[bytes]) -> None:
    """Set or clear the bit at an offset of a string; reply with the old bit. The string is created or padded."""
    key: bytes = argv[1]
    offset: cython.Py_ssize_t = _bit_offset(session, argv[2])
    bit = integer(argv[3], _BAD_BIT)
    if bit not in (0, 1):
        raise CommandError(_BAD_BIT)
    found: String = string_for_write(session.db, key)
    before: cython.Py_ssize_t = -1 if found is None else found.length()
    string: String = string_with_bits(session, key, found, offset + 1)
    old: cython.ulonglong = read_field(string.span(), string.length(), offset, 1)
    if string.length() != before or old != bit:
        write_field(string.reserve(0), offset, 1, bit)
        session.modified(key)
        session.notify(b"$", b"setbit", key)
    session.out.integer(old)


@command("getbit", arity=3, flags="readonly fast", since="2.2.0", syntax="key offset", complexity="O(1)",
         shortcut=GetbitFastPath)
def getbit(session: Session, argv: list[bytes]) -> None:
    """Reply with the bit at an offset of a string; 0 behind its end."""
    offset: cython.Py_ssize_t = _bit_offset(session, argv[2])
    string: String = string_to_read(session, argv[1])
    session.out.integer(0 if string is None else read_field(string.span(), string.length(), offset, 1))


def _by_bit(raw: bytes) -> bool:
    unit = raw.lower()
    if unit not in (b"bit", b"byte"):
        raise syntax_error()
    return unit == b"bit"


def _range(start: int, end: int, total: int) -> tuple[int, int]:
    """Return the first and last position, both included, of positions that may count from the end."""
    start = max(start + total, 0) if start < 0 else start
    end = max(end + total, 0) if end < 0 else end
    return start, min(end, total - 1)


@command(
    "bitcount", arity=-2, flags="readonly", since="2.6.0", syntax="key [start end [BYTE | BIT]]", complexity="O(N)",
    shortcut=BitcountFastPath,
)
def bitcount(session: Session, argv: list[bytes]) -> None:
    """Count the set bits of a string, or of a range of its bytes or bits; negative positions count from the end."""
    compat = session.engine.settings.compat
    late: bool = compat.knows(74) or compat.valkey
    string: String
    if not late:  # a missing key hides errors of the arguments
        string = string_to_read(session, argv[1])
        if string is None:
            session.out.integer(0)
            return
    least = 3 if compat.valkey else 4
    if len(argv) != 2 and not least <= len(argv) <= 5:
        raise syntax_error()
    start = integer(argv[2]) if len(argv) > 2 else 0
    if compat.valkey and len(argv) == 5:
        _by_bit(argv[4])  # the error of the unit precedes that of the end
    end = integer(argv[3]) if len(argv) > 3 else -1
    if not late and start < 0 and end < 0 and start > end:
        session.out.integer(0)  # before the unit is looked at
        return
    by_bit = len(argv) == 5 and _by_bit(argv[4])
    if late:
        string = string_to_read(session, argv[1])
    if string is None or (start < 0 and end < 0 and start > end):
        session.out.integer(0)
        return
    unit = 1 if by_bit else 8
    start, end = _range(start, end, string.length() * 8 // unit)
    session.out.integer(count_bits(string.span(), start * unit, (end + 1) * unit) if start <= end else 0)


@command(
    "bitpos", arity=-3, flags="readonly", since="2.8.7", syntax="key bit [start [end [BYTE | BIT]]]", complexity="O(N)",
    shortcut=BitposFastPath,
)
def bitpos(session: Session, argv: list[bytes]) -> None:
    """Reply with the offset of the first bit that is 0 or 1, -1 if there is none.

    Without an end, a string counts as continued with zero bits.
    """
    bit = integer(argv[2])
    if bit not in (0, 1):
        raise CommandError("The bit argument must be 1 or 0.")
    string: String
    compat = session.engine.settings.compat
    late: bool = compat.knows(74) or compat.valkey
    if not late:
        string = string_to_read(session, argv[1])
        if string is None:
            session.out.integer(-1 if bit else 0)
            return
    if len(argv) > 6:
        raise syntax_error()
    start = integer(argv[3]) if len(argv) > 3 else 0
    by_bit = len(argv) == 6 and _by_bit(argv[5])
    end = integer(argv[4]) if len(argv) > 4 else -1
    if late:
        string = string_to_read(session, argv[1])
    if string is None:
        session.out.integer(-1 if bit else 0)
        return
    unit = 1 if by_bit else 8
    start, end = _range(start, end, string.length() * 8 // unit)
    if start > end:
        session.out.integer(-1)
        return
    found: cython.Py_ssize_t = find_bit(string.span(), start * unit, (end + 1) * unit, bit == 1)
    if found < 0 and bit == 0 and len(argv) < 5:
        found = string.length() * 8
    session.out.integer(found)


@command(
    "bitop",
    arity=-4,
    flags="write denyoom",
    keys=(2, -1, 1),
    since="2.6.0",
    complexity="O(N)",
    syntax="AND | OR | XOR | NOT | DIFF | DIFF1 | ANDOR | ONE destkey key [key ...]",
    shortcut=BitopFastPath,
)
def bitop(session: Session, argv: list[bytes]) -> None:
    """Store the result of a bitwise operation on strings; shorter and missing ones count as padded with zero bytes."""
    compat = session.engine.settings.compat
    operation = (_OPERATIONS_82 if compat.knows(82) else _OPERATIONS).get(argv[1].lower())
    if operation is None:
        raise syntax_error()
    if operation == NOT and len(argv) != 4:
        raise CommandError("BITOP NOT must be called with a single source key.")
    if operation in (DIFF, DIFF1, ANDOR) and len(argv) < 5:
        raise CommandError(f"BITOP {text(argv[1].upper())} must be called with at least two source keys.")
    target: bytes = argv[2]
    sources: list[Any] = []
    string: String
    for key in argv[3:]:
        string = string_to_read(session, key)
        sources.append(b"" if string is None else string.bytes_like())
    size = max(map(len, sources))
    if size:
        store_string(session, target, combine(operation, sources, size), b"set", _RAW)
    elif session.db.delete_replaced(target):
        session.modified(target)
        session.notify(b"g", b"del", target)
    session.out.integer(size)
