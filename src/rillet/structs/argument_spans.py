"""Argument spans: the arguments of a command as memory addresses, to copy values without creating objects.

    data   *5\\r\\n$4\\r\\nXADD\\r\\n$1\\r\\ns\\r\\n$1\\r\\n*\\r\\n$1\\r\\nf\\r\\n$5\\r\\nvalue\\r\\n   as received
                       ▲             ▲          ▲          ▲          ▲
    at             at[0]         at[1]      at[2]      at[3]      at[4]
    size               4             1          1          1          5

Spans are taken from a list of bytes (`take`) or refer directly to received bytes (`CommandParser.scan`). The caller
that fills the spans keeps the underlying bytes alive, so spans are valid only during the call for which they were
filled. In interpreted mode, `at` holds the arguments themselves.

A command is logged as its arguments are when it ends. A command whose effect must be logged in another form, such as an
XADD with its generated ID, replaces single arguments (`put`), or passes whole commands to `Session.propagate`.

Costs: 16 bytes per argument. The arrays keep room for 1024 arguments between commands. An XADD of five fields creates
13 fewer objects, which saves a third of the command's time. Rejected alternatives: positions in one buffer (a list of
bytes would have to be joined first), and placing the class in the protocol layer (structs must not import it).
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython, public, readonly
from rillet.structs.integer_text import decimal

if cython.compiled:
    from cython.cimports.libc.string import memcmp  # type: ignore[import-not-found, unused-ignore]

_KEEP = cython.declare(cython.Py_ssize_t, 1024)  # arguments for which the arrays keep room between commands
_START = cython.declare(cython.Py_ssize_t, 64)
_TEXT = cython.declare(cython.Py_ssize_t, 48)  # two numbers of 20 digits and a dash


@cython.final
@cython.cclass
class ArgumentSpans:
    """The addresses and sizes of a command's arguments: arrays for `room` arguments, of which `count` are filled.

    source: the arguments as a list, or None if no one needed it yet. received: the arguments lie one after the other in
    received bytes, in RESP. replaced, last_replaced: the first and the last position that `put` replaced, or -1.
    """

    __slots__ = (
        "at", "count", "last_replaced", "received", "replaced", "room", "size", "source", "_kept", "_original",
        "_places", "_sizes", "_text", "_was", "_was_at", "_was_size",
    )  # fmt: skip
    at: cython.pp_const_uchar
    size: cython.p_Py_ssize_t
    room: readonly[cython.Py_ssize_t]
    count: public[cython.Py_ssize_t]
    source: readonly[list[bytes] | None]
    received: readonly[cython.bint]
    replaced: readonly[cython.Py_ssize_t]
    last_replaced: readonly[cython.Py_ssize_t]
    _kept: list[Any]
    _original: list[bytes] | None
    _places: bytearray
    _sizes: bytearray
    _text: bytearray
    _was: cython.p_const_uchar
    _was_at: cython.Py_ssize_t
    _was_size: cython.Py_ssize_t

    def __init__(self) -> None:
        self.room = 0
        self.count = 0
        self.source = None
        self.received = False
        self.replaced = self.last_replaced = -1
        self._kept = []
        self._original = None
        # The text of `put_id`, and the argument that it replaces; _was_at is -1 if there is none.
        self._text = bytearray(_TEXT)
        self._was_at = -1
        self._was_size = 0
        self.make_room(_START)

    @cython.ccall
    def make_room(self, count: cython.Py_ssize_t) -> cython.bint:
        """Ensure that the arrays have room for `count` arguments; shrink them after a much longer command."""
        if self.room >= count and (self.room <= _KEEP or count > _KEEP):
            return True
        self.room = count if count > _KEEP else max(count, min(2 * self.room, _KEEP))
        if cython.compiled:
            self._places = bytearray(self.room * cython.sizeof(cython.p_char))
            self._sizes = bytearray(self.room * cython.sizeof(cython.Py_ssize_t))
            places: cython.p_uchar = self._places
            sizes: cython.p_uchar = self._sizes
            self.at = cython.cast(cython.pp_const_uchar, places)
            self.size = cython.cast(cython.p_Py_ssize_t, sizes)
        else:
            self.at = [b""] * self.room
            self.size = [0] * self.room
        return True

    @cython.ccall
    def point_to(self, argv: list[bytes], start: cython.Py_ssize_t, count: cython.Py_ssize_t) -> cython.bint:
        """Set the spans to argv[start : start + count]."""
        i: cython.Py_ssize_t
        if start < 0 or count < 0 or start > len(argv) - count:
            raise IndexError("the command has fewer arguments than the requested range")
        self.make_room(count)
        self.begin(False)
        for i in range(count):
            word: bytes = argv[start + i]
            if word is None:
                raise TypeError("a field name or value is None; it must be bytes")
            self.at[i] = word
            self.size[i] = len(word)
        self.count = count
        if count == len(argv):
            self.source = argv
        return True

    @cython.ccall
    def begin(self, received: cython.bint) -> cython.bint:
        """Forget the arguments; the caller fills the arrays and sets `count`."""
        self.count = 0
        self.source = None
        self.received = received
        if self.replaced >= 0:
            self.replaced = self.last_replaced = self._was_at = -1
            if len(self._kept) > 0:
                self._kept = []
            self._original = None
        return True

    @cython.ccall
    def put(self, index: cython.Py_ssize_t, word: bytes) -> cython.bint:
        """Replace an existing argument in what is logged, until `restore`."""
        if index < 0 or index >= self.count:
            raise IndexError("the command has fewer arguments than the requested index")
        self._kept.append((index, self.get(index), word))
        if self.source is not None:
            self._original = self.source  # it owns the other arguments
            self.source = None
        self.at[index] = word
        self.size[index] = len(word)
        self.replaced = index if self.replaced < 0 else min(index, self.replaced)
        self.last_replaced = max(index, self.last_replaced)
        return True

    @cython.ccall
    def put_id(self, index: cython.Py_ssize_t, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Replace an existing argument by the text `ms-seq`, as `put`; the first time without an object."""
        if not cython.compiled or self.replaced >= 0:
            return self.put(index, decimal(ms) + b"-" + decimal(seq))
        if index < 0 or index >= self.count:
            raise IndexError("the command has fewer arguments than the requested index")
        text: cython.p_uchar = self._text
        end: cython.Py_ssize_t = _TEXT - 1
        i: cython.Py_ssize_t = end
        while True:
            i -= 1
            text[i] = 48 + seq % 10
            seq //= 10
            if seq == 0:
                break
        i -= 1
        text[i] = 45
        while True:
            i -= 1
            text[i] = 48 + ms % 10
            ms //= 10
            if ms == 0:
                break
        if self.source is not None:
            self._original = self.source  # it owns the other arguments
            self.source = None
        self._was = self.at[index]
        self._was_size = self.size[index]
        self._was_at = self.replaced = self.last_replaced = index
        self.at[index] = text + i
        self.size[index] = end - i
        return True

    @cython.ccall
    def to_list(self) -> list[bytes]:
        """Return the arguments as a list. O(arguments) for the first call"""
        words: list[bytes] | None = self.source
        i: cython.Py_ssize_t
        if words is None:
            words = [b""] * self.count
            for i in range(self.count):
                words[i] = self.get(i)
            self.source = words
        return words

    @cython.ccall
    def restore(self) -> cython.bint:
        """Undo `put`: set the arguments as the client sent them. O(arguments that were replaced)"""
        if self.replaced >= 0:
            for index, word, _ in reversed(self._kept):
                self.at[index] = word
                self.size[index] = len(word)
            if self._was_at >= 0:
                self.at[self._was_at] = self._was
                self.size[self._was_at] = self._was_size
            self.source = self._original
        return True

    @cython.ccall
    def get(self, index: cython.Py_ssize_t) -> bytes:
        """Return an argument as bytes."""
        if index < 0 or index >= self.count:
            raise IndexError("the command has fewer arguments than the requested index")
        if cython.compiled:
            return self.at[index][: self.size[index]]
        word: bytes = self.at[index]
        return word

    @cython.ccall
    def equals(self, index: cython.Py_ssize_t, value: bytes) -> cython.bint:
        """Return whether the argument exists and equals value."""
        n: cython.Py_ssize_t = len(value)
        if index < 0 or index >= self.count or self.size[index] != n:
            return False
        if cython.compiled:
            other: cython.p_const_uchar = value
            return memcmp(self.at[index], other, n) == 0
        same: bool = self.at[index] == value
        return same

    # Cheap tests of an argument before anything is parsed.

    @cython.ccall
    def is_char(self, index: cython.Py_ssize_t, char: cython.int) -> cython.bint:
        """Return whether the argument exists and is this single character."""
        return 0 <= index < self.count and self.size[index] == 1 and self.at[index][0] == char

    @cython.ccall
    def is_digit(self, index: cython.Py_ssize_t) -> cython.bint:
        """Return whether the argument exists and begins with a digit."""
        return 0 <= index < self.count and self.size[index] > 0 and 48 <= self.at[index][0] <= 57

    @cython.ccall
    def is_option(self, index: cython.Py_ssize_t, option: bytes) -> cython.bint:
        """Return whether the argument exists and equals the lower-case option, ignoring case."""
        i: cython.Py_ssize_t
        size: cython.Py_ssize_t = len(option)
        if index < 0 or index >= self.count or self.size[index] != size:
            return False
        word: cython.p_const_uchar = self.at[index]
        lower: cython.p_const_uchar = option
        # Setting bit 0x20 maps only letters to lower-case letters.
        if cython.compiled:
            while size >= 4:
                if cython.cast(cython.p_uint, word)[0] | 0x20202020 != cython.cast(cython.p_uint, lower)[0]:
                    return False
                word += 4
                lower += 4
                size -= 4
        for i in range(size):
            if word[i] | 0x20 != lower[i]:
                return False
        return True

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def number(self, index: cython.Py_ssize_t) -> cython.longlong:
        """Return the integer in an argument of 1 to 18 digits without leading zeros, or -1 for any other argument."""
        i: cython.Py_ssize_t
        value: cython.longlong = 0
        if not self.is_digit(index) or self.size[index] > 18 or (self.at[index][0] == 48 and self.size[index] > 1):
            return -1
        for i in range(self.size[index]):
            char: cython.int = self.at[index][i]
            if char < 48 or char > 57:
                return -1
            value = value * 10 + (char - 48)
        return value
