"""PFDEBUG and PFSELFTEST (Redis: hyperloglog.c).

    PFDEBUG GETREG key      the 16,384 registers; a sparse string becomes dense
    PFDEBUG DECODE key      the opcodes of a sparse string
    PFDEBUG ENCODING key    sparse or dense
    PFDEBUG TODENSE key     convert; reply 1 if the string was sparse
    PFDEBUG SIMD ON | OFF   merge 8 registers at a time, or one (since Redis 8.0, and in Valkey)

After a wrong word for SIMD, Redis sends two replies, an error and the choice. rillet sends the error: with one reply
too many, a client would read each later reply for the wrong command.
"""

from __future__ import annotations

import random
from math import ceil, sqrt

from rillet._cython import cython
from rillet.commands.arguments import text
from rillet.commands.hyperloglog import command
from rillet.commands.hyperloglog.elements import check_value
from rillet.errors import CommandError, InvalidObj
from rillet.runtime.session import Session
from rillet.structs.hyperloglog import (
    DENSE_SIZE,
    EMPTY,
    REGISTERS,
    Cursor,
    add,
    count,
    decode,
    merge,
    set_dense,
    to_dense,
    use_words,
    uses_words,
)
from rillet.types.string import String

CYCLES = 1000 if cython.compiled else 1
"""How often PFSELFTEST fills the registers."""
ELEMENTS = 10_000_000 if cython.compiled else 10_000
"""How many elements PFSELFTEST adds."""
_LITTLE = bytes(value & 63 for value in range(256))


@cython.cfunc
def _to_dense(session: Session, string: String) -> cython.bint:
    """Make a string dense; return whether it was sparse. The change is logged, but no watcher is marked."""
    buf: bytearray = string.reserve(0)
    if buf[4] == 0:
        return False
    if not to_dense(buf):
        raise InvalidObj()
    session.dirty += 1
    return True


@cython.cfunc
def _reply_registers(session: Session, string: String) -> cython.bint:
    _to_dense(session, string)
    registers: bytearray = bytearray(REGISTERS)
    merge(registers, string.span(), string.length())
    session.out.array(REGISTERS)
    for value in registers:
        session.out.integer(value)
    return True


@command("pfdebug", arity=3, flags="write denyoom admin", keys=(2, 2, 1), since="2.8.9", syntax="subcommand key",
         complexity="N/A")
def pfdebug(session: Session, argv: list[bytes]) -> None:
    """Show or convert the representation of a HyperLogLog, for debugging."""
    word = argv[1].lower()
    compat = session.engine.settings.compat
    if word == b"simd" and (compat.knows(80) or compat.valkey):
        choice = argv[2].lower()
        if choice not in (b"on", b"off"):
            raise CommandError("Argument must be ON or OFF")
        use_words(choice == b"on")
        session.out.simple(b"enabled" if uses_words() else b"disabled")
        return
    value: object = session.db.lookup(argv[2])
    if value is None:
        raise CommandError("The specified key does not exist")
    check_value(value)
    string: String = value  # type: ignore[assignment]
    buf: bytearray = string.reserve(0)
    if word == b"getreg":
        _reply_registers(session, string)
    elif word == b"decode":
        if buf[4] == 0:
            raise CommandError("HLL encoding is not sparse")
        session.out.bulk(decode(buf))
    elif word == b"encoding":
        session.out.simple(b"sparse" if buf[4] else b"dense")
    elif word == b"todense":
        session.out.integer(1 if _to_dense(session, string) else 0)
    else:
        raise CommandError(f"Unknown PFDEBUG subcommand '{text(argv[1])}'")


# -- PFSELFTEST -------------------------------------------------------------------------------------


@cython.cfunc
def _test_registers() -> str:
    """Write random registers and read them; return what failed."""
    dense: bytearray = bytearray(DENSE_SIZE)
    values: bytearray
    found: bytearray
    index: cython.int
    for _ in range(CYCLES):
        values = bytearray(random.randbytes(REGISTERS).translate(_LITTLE))
        dense = bytearray(DENSE_SIZE)
        index = 0
        while index < len(values):
            set_dense(dense, index, values[index])
            index += 1
        found = bytearray(REGISTERS)
        merge(found, dense, len(dense))
        for at in range(REGISTERS if found != values else 0):
            if found[at] != values[at]:
                return f"Register {at} should be {values[at]} but is {found[at]}"
    return ""


@cython.cfunc
def _test_estimates(limit: cython.Py_ssize_t) -> str:
    """Add numbers to a dense and to a sparse string, and check the estimates at 1, 10, 100 ...; return what failed."""
    dense: bytearray = bytearray(DENSE_SIZE)
    sparse: bytearray = bytearray(EMPTY)
    cursor: Cursor = Cursor()
    seed: cython.ulonglong = random.getrandbits(62)
    total: cython.longlong = ELEMENTS
    number: cython.longlong = 0
    checkpoint: cython.longlong = 1
    element: cython.ulonglong = 0
    p: cython.p_const_uchar
    while number < total:
        number += 1
        element = number ^ seed
        if cython.compiled:
            p = cython.cast(cython.p_const_uchar, cython.address(element))
        else:
            p = element.to_bytes(8, "little")
        add(dense, p, 8, limit, cursor)
        add(sparse, p, 8, limit, cursor)
        if number == checkpoint:
            if number < limit // 2 and sparse[4] != 1:
                return "sparse encoding not used"
            estimate: int = count(dense, len(dense))
            if estimate != count(sparse, len(sparse)):
                return "dense/sparse disagree"
            error: int = abs(number - estimate)
            if error > (1 if number == 10 else ceil(6 * 1.04 / sqrt(REGISTERS) * number)):
                return f"Too big error. card:{number} abserr:{error}"
            checkpoint *= 10
    return ""


@command("pfselftest", arity=1, flags="admin", keys=(0, 0, 0), since="2.8.9", complexity="N/A")
def pfselftest(session: Session, argv: list[bytes]) -> None:
    """Test the registers and the estimates of this build. Interpreted, the test has fewer rounds."""
    failed = _test_registers() or _test_estimates(session.engine.settings.hll_sparse_max_bytes)
    if failed:
        raise CommandError(f"TESTFAILED {failed}")
    session.out.ok()
