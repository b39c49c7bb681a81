"""BITFIELD and BITFIELD_RO: integers of 1 to 64 bits at any offset of a string (Redis: bitops.c).

    BITFIELD k  SET u8 #2 200   INCRBY i5 100 1   GET u4 0        three operations, three replies

All arguments are checked before the first operation. OVERFLOW applies to the SET and INCRBY that follow it:

    WRAP   modulo 2^bits, two's complement if signed (the default)
    SAT    the nearest value that fits
    FAIL   nothing is stored, and the reply is null
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.bitmap import command
from rillet.commands.bitmap.bits import string_with_bits
from rillet.commands.bitmap.fast_path import BitfieldFastPath
from rillet.commands.bitmap.field_operations import ERRORS, FieldOperations
from rillet.commands.string.values import string_for_write, string_to_read
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.types.string import String, new_string

if not cython.compiled:  # the compiled module gets this C function from its .pxd file
    from rillet.commands.bitmap.fast_path import largest_offset


@cython.cfunc
def _operations(session: Session, argv: list[bytes]) -> FieldOperations:
    """Check the arguments of a call."""
    words: ArgumentSpans = ArgumentSpans()
    words.take(argv, 0, len(argv))
    operations: FieldOperations = FieldOperations()
    error: cython.int = operations.check(words, largest_offset(session))
    if error:
        raise CommandError(ERRORS[error])
    return operations


@cython.cfunc
@cython.exceptval(-1, check=False)
def _read(session: Session, key: bytes, operations: FieldOperations) -> cython.bint:
    string: String = string_to_read(session, key)
    if string is None:
        string = new_string(b"")
    return operations.read(string.span(), string.length(), session.out)


@command(
    "bitfield",
    arity=-2,
    flags="write denyoom",
    since="3.2.0",
    complexity="O(1) for each operation",
    syntax="key [GET encoding offset | [OVERFLOW WRAP | SAT | FAIL] SET encoding offset value | "
    "INCRBY encoding offset increment ...]",
    shortcut=BitfieldFastPath,
)
def bitfield(session: Session, argv: list[bytes]) -> None:
    """Read, store and increment integers of any width in a string; one reply for each operation."""
    key: bytes = argv[1]
    operations: FieldOperations = _operations(session, argv)
    if operations.end == 0:
        _read(session, key, operations)
        return
    found: String = string_for_write(session.db, key)
    before: cython.Py_ssize_t = -1 if found is None else found.length()
    string: String = string_with_bits(session, key, found, operations.end)
    changes: cython.Py_ssize_t = operations.write(string.reserve(0), string.length() != before, session.out)
    if changes:
        session.modified(key)
        session.dirty += changes - 1
        session.notify(b"$", b"setbit", key)


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
    operations: FieldOperations = _operations(session, argv)
    if operations.end:
        raise CommandError("BITFIELD_RO only supports the GET subcommand")
    _read(session, argv[1], operations)
