"""BITFIELD and BITFIELD_RO: integers of 1 to 64 bits at any offset of a string (Redis: bitops.c).

    BITFIELD k  SET u8 #2 200   INCRBY i5 100 1   GET u4 0        three operations, three replies

All arguments are checked before the first operation. OVERFLOW applies to the SET and INCRBY that follow it:

    WRAP   modulo 2^bits, two's complement if signed (the default)
    SAT    the nearest value that fits
    FAIL   nothing is stored, and the reply is null
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.arguments import integer, syntax_error
from rillet.commands.bitmap import command
from rillet.commands.bitmap.bits import bit_offset, string_with_bits
from rillet.commands.string.values import string_for_write, string_to_read
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.types.string import String, new_string, string2ll

if not cython.compiled:  # the compiled module gets these C functions from its .pxd file
    from rillet.structs.bits import read_field, write_field

_BAD_TYPE = "Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is."
_GET, _SET, _INCRBY = 0, 1, 2
_WORDS = {b"get": (_GET, 2), b"set": (_SET, 3), b"incrby": (_INCRBY, 3)}
_OVERFLOWS = (b"wrap", b"sat", b"fail")

Operation = tuple[int, bool, int, int, int, bytes]
"""GET, SET or INCRBY; signed; width in bits; offset; value or increment; overflow."""


def _field_type(raw: bytes) -> tuple[bool, int]:
    """Parse a type such as i16 or u8; return whether it is signed, and its width (getBitfieldTypeFromArgument)."""
    signed = raw[:1] == b"i"
    width = string2ll(raw[1:].split(b"\0", 1)[0]) if raw[:1] in (b"i", b"u") else None
    if width is None or not 1 <= width <= (64 if signed else 63):
        raise CommandError(_BAD_TYPE)
    return signed, width


def _parse(session: Session, argv: list[bytes]) -> list[Operation]:
    operations: list[Operation] = []
    overflow = b"wrap"
    at = 2
    while at < len(argv):
        word = argv[at].lower()
        left = len(argv) - at - 1
        if word == b"overflow" and left >= 1:
            overflow = argv[at + 1].lower()
            if overflow not in _OVERFLOWS:
                raise CommandError("Invalid OVERFLOW type specified")
            at += 2
            continue
        kind, needed = _WORDS.get(word, (_GET, left + 1))
        if left < needed:
            raise syntax_error()
        signed, width = _field_type(argv[at + 1])
        offset = bit_offset(session, argv[at + 2], width)
        value = integer(argv[at + 3]) if kind != _GET else 0
        operations.append((kind, signed, width, offset, value, overflow))
        at += 1 + needed
    return operations


def _fitting(value: int, signed: bool, width: int, overflow: bytes) -> int | None:
    """Return the value as the field stores it, None if it does not fit and nothing is stored."""
    least, most = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    if least <= value <= most:
        return value
    if overflow == b"fail":
        return None
    if overflow == b"sat":
        return most if value > most else least
    return _as_type(value & (1 << width) - 1, signed, width)


def _as_type(bits: int, signed: bool, width: int) -> int:
    """Return the value of a field's bits: two's complement if it is signed."""
    return bits - (1 << width) if signed and bits >> width - 1 else bits


@cython.cfunc
def _field(string: String, signed: bool, width: int, offset: int) -> Any:
    """Return the value of a field; bits behind the end of the string count as 0."""
    return _as_type(read_field(string.span(), string.length(), offset, width), signed, width)


@cython.cfunc
@cython.exceptval(-1, check=False)
def _run(session: Session, key: bytes, operations: list[Any]) -> cython.bint:
    """Run the operations, at least one of which writes, on the string of a key."""
    found: String = string_for_write(session.db, key)
    before: cython.Py_ssize_t = -1 if found is None else found.length()
    string: String = string_with_bits(
        session, key, found, max([offset + width for kind, _, width, offset, _, _ in operations if kind != _GET])
    )
    buf: bytearray = string.reserve(0)
    grown: cython.bint = len(buf) != before
    changes: cython.Py_ssize_t = 0
    session.out.array(len(operations))
    for kind, signed, width, offset, value, overflow in operations:
        old: Any = _field(string, signed, width, offset)
        if kind == _GET:
            session.out.integer(old)
            continue
        if kind == _SET and not signed and value < 0:
            value = value + (1 << 64)  # a negative value is a large one
        new: Any = _fitting(old + value if kind == _INCRBY else value, signed, width, overflow)
        if new is None:
            session.out.null()
            continue
        session.out.integer(new if kind == _INCRBY else old)
        write_field(buf, offset, width, new & (1 << width) - 1)
        changes += grown or new != old
    if changes:
        session.modified(key)
        session.dirty += changes - 1
        session.notify(b"$", b"setbit", key)
    return True


@cython.cfunc
@cython.exceptval(-1, check=False)
def _read(session: Session, key: bytes, operations: list[Any]) -> cython.bint:
    string: String = string_to_read(session, key)
    if string is None:
        string = new_string(b"")
    session.out.array(len(operations))
    for _, signed, width, offset, _, _ in operations:
        session.out.integer(_field(string, signed, width, offset))
    return True


@command(
    "bitfield",
    arity=-2,
    flags="write denyoom",
    since="3.2.0",
    complexity="O(1) for each operation",
    syntax="key [GET encoding offset | [OVERFLOW WRAP | SAT | FAIL] SET encoding offset value | "
    "INCRBY encoding offset increment ...]",
)
def bitfield(session: Session, argv: list[bytes]) -> None:
    """Read, store and increment integers of any width in a string; one reply for each operation."""
    operations = _parse(session, argv)
    if any(operation[0] != _GET for operation in operations):
        _run(session, argv[1], operations)
    else:
        _read(session, argv[1], operations)


@command(
    "bitfield_ro",
    arity=-2,
    flags="readonly fast",
    since="6.0.0",
    complexity="O(1) for each operation",
    syntax="key [GET encoding offset [GET encoding offset ...]]",
)
def bitfield_ro(session: Session, argv: list[bytes]) -> None:
    """Read integers of any width in a string; one reply for each."""
    operations = _parse(session, argv)
    if any(operation[0] != _GET for operation in operations):
        raise CommandError("BITFIELD_RO only supports the GET subcommand")
    _read(session, argv[1], operations)
