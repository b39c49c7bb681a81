"""BITFIELD and BITFIELD_RO: integers of 1 to 64 bits at any offset of a string (Redis: bitops.c).

    BITFIELD k  SET u8 #2 200   INCRBY i5 100 1   GET u4 0        three operations, three replies

All arguments are checked before the first operation. OVERFLOW applies to the SET and INCRBY that follow it:

    WRAP   modulo 2^bits, two's complement if signed (the default)
    SAT    the nearest value that fits
    FAIL   nothing is stored, and the reply is null
"""

from __future__ import annotations

from functools import partial

from rillet._cython import cython
from rillet.commands.bitmap import command
from rillet.commands.bitmap.bits import largest_offset, string_with_bits
from rillet.commands.bitmap.field_operations import ERRORS, FieldOperations
from rillet.commands.string.values import StringCommand, string_at
from rillet.errors import CommandError
from rillet.keyspace.database import Database
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.types.string import String


@cython.final
@cython.cclass
class Bitfield(StringCommand):
    """BITFIELD, and BITFIELD_RO, which only reads (bitfieldGeneric). _operations: those of a call, None meanwhile."""

    __slots__ = ("_only_reads", "_operations")
    _only_reads: cython.bint
    _operations: FieldOperations | None

    def __init__(self, only_reads: bool) -> None:
        self._only_reads = only_reads
        self._operations = None

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Execute the operations; one reply for each."""
        db: Database = session.db
        operations: FieldOperations | None = self._operations
        self._operations = None
        if operations is None:  # the first call, or one inside another
            operations = FieldOperations()
        error: cython.int = operations.check(words, largest_offset(session))
        if error:
            raise CommandError(ERRORS[error])
        if operations.end and self._only_reads:
            raise CommandError("BITFIELD_RO only supports the GET subcommand")
        if operations.end == 0:
            n: cython.Py_ssize_t = db.locate_read(words)
            self.at = words.at[1]
            self.size = 0
            if n >= 0:
                self.view(db.keys, n)
            operations.read(self.at, self.size, session.out)
        else:
            string: String = string_at(db, words, db.locate(words))
            before: cython.Py_ssize_t = -1 if string is None else string.length()
            string = string_with_bits(db, words, string, operations.end)
            changes: cython.Py_ssize_t = operations.write(string.grown, string.length() != before, session.out)
            session.changed(words, changes)
            if changes and db.notifies:
                session.notify(b"$", b"setbit", words.get(1))
        self._operations = operations
        return True


command("bitfield", arity=-2, flags="write denyoom", since="3.2.0", complexity="O(1) for each operation",
        syntax="key [GET encoding offset | [OVERFLOW WRAP | SAT | FAIL] SET encoding offset value | "
        "INCRBY encoding offset increment ...]",
        summary="Read, store and increment integers of any width in a string; one reply for each operation.",
        )(partial(Bitfield, False))  # fmt: skip
command("bitfield_ro", arity=-2, flags="readonly fast", since="6.0.0", complexity="O(1) for each operation",
        syntax="key [GET encoding offset [GET encoding offset ...]]",
        summary="Read integers of any width in a string; one reply for each.")(partial(Bitfield, True))  # fmt: skip
