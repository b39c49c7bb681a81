"""The fields of a class in typed streams, as a table: the loops over the fields of one value.

    name         code      optional    writer, reader
    customer     INTEGER   no          text_of(int)
    note         TEXT      yes         text_of(str)
    total        OTHER     no          text_of(Decimal)

`append` runs for each value that is added, and `values` for each entry that is read, so both are compiled: the fields
that occur most, text, integers and booleans, are converted here, the others by their functions. A value of another
type, an integer of many digits and any unusual text also go to the functions, which decide and raise the errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rillet._cython import cython

OTHER, TEXT, INTEGER, BOOLEAN = range(4)
_TEXT = cython.declare(cython.int, TEXT)
_INTEGER = cython.declare(cython.int, INTEGER)
_BOOLEAN = cython.declare(cython.int, BOOLEAN)

Writer = Callable[[Any], bytes]
Reader = Callable[[bytes], Any]


def code_of(kind: Any) -> int:
    """Return the code of a type."""
    return TEXT if kind is str else INTEGER if kind is int else BOOLEAN if kind is bool else OTHER


@cython.final
@cython.cclass
class FieldTable:
    """The fields of a class, in order; `optional` fields are not written if their value is None."""

    __slots__ = ("codes", "names", "optional", "readers", "size", "writers")
    size: cython.Py_ssize_t
    names: list[bytes]
    codes: bytes
    optional: bytes
    writers: list[Writer]
    readers: list[Reader]

    def __init__(self, names: Sequence[bytes], codes: Sequence[int], optional: Sequence[bool],
                 writers: Sequence[Writer], readers: Sequence[Reader]) -> None:  # fmt: skip
        self.size = len(names)
        self.names = list(names)
        self.codes = bytes(codes)
        self.optional = bytes(optional)
        self.writers = list(writers)
        self.readers = list(readers)

    @cython.ccall
    def append(self, argv: list[bytes], parts: tuple[Any, ...]) -> cython.bint:
        """Append the fields of the values to a command; return False if all are None. Errors: those of the writers."""
        place: cython.Py_ssize_t
        code: cython.int
        before: cython.Py_ssize_t = len(argv)
        text: str
        for place in range(self.size):
            part = parts[place]
            if part is None and self.optional[place]:
                continue
            argv.append(self.names[place])
            code = self.codes[place]
            if code == _TEXT and type(part) is str:
                text = part
                argv.append(text.encode("utf-8", "surrogateescape"))
            elif code == _INTEGER and type(part) is int:
                argv.append(b"%d" % part)
            elif code == _BOOLEAN and part is True:
                argv.append(b"true")
            elif code == _BOOLEAN and part is False:
                argv.append(b"false")
            else:
                argv.append(self.writers[place](part))
        return len(argv) > before

    @cython.ccall
    def values(self, flat: list[bytes]) -> object:
        """Return the values of alternating names and texts; None unless the names are those of the table, in order.

        Errors: those of the readers.
        """
        if len(flat) != 2 * self.size:
            return None
        place: cython.Py_ssize_t
        code: cython.int
        raw: bytes
        found: list[Any] = []
        for place in range(self.size):
            if flat[2 * place] != self.names[place]:
                return None
            raw = flat[2 * place + 1]
            code = self.codes[place]
            if code == _TEXT:
                found.append(raw.decode("utf-8", "surrogateescape"))
            elif code == _INTEGER:
                found.append(_integer(raw, self.readers[place]))
            elif code == _BOOLEAN and raw == b"true":
                found.append(True)
            elif code == _BOOLEAN and raw == b"false":
                found.append(False)
            else:
                found.append(self.readers[place](raw))
        return found


@cython.cfunc
def _integer(raw: bytes, reader: Any) -> object:
    """Return the integer of up to 18 digits; the reader decides about any other text."""
    if not cython.compiled:
        return int(raw) if raw.isdigit() and len(raw) < 19 else reader(raw)
    size: cython.Py_ssize_t = len(raw)
    first: cython.Py_ssize_t = 1 if size and raw[0] == 45 else 0
    at: cython.Py_ssize_t
    number: cython.longlong = 0
    if not first < size < 19:
        return reader(raw)
    for at in range(first, size):
        if not 48 <= raw[at] <= 57:
            return reader(raw)
        number = number * 10 + (raw[at] - 48)
    return -number if first else number
