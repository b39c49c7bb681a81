"""CommandParser: a client's bytes become commands; it touches no socket.

    *3\\r\\n            three arguments follow: a "multibulk" command
    $4\\r\\nXADD\\r\\n    each as a bulk string: its length, its bytes, CR LF
    $1\\r\\ns\\r\\n
    $1\\r\\n*\\r\\n

    SET key "a\\x00b"\\n   or one line, split at blanks, with quotes: an "inline" command

What is fed may be cut anywhere: a byte at a time or a thousand commands at once give the same
commands and the same error, always after the commands before it. Each argument is copied once, out
of the bytes that were fed; how cut messages meet is told in rillet.protocol.read_buffer.

Invariant: `missing > 0` exactly while a multibulk command is half-parsed; the first `argc` of `argv`
are its arguments so far, and `bulk_len` is the length of the next one, or -1 while that is unknown.
So what is parsed is never parsed again.

The rules are those of Redis 7.0 (networking.c, processMultibulkBuffer and processInlineBuffer), odd
ones included:

- a count is a decimal number in canonical form, as string2ll has it: `*01` and `*+1` are refused;
- the bytes after a count's CR and after a bulk string are skipped unseen: they need not be CR LF;
- `*0` and `*-1` are empty commands: `next` gives `[]`, and nothing is replied;
- a line is searched with strchr: a NUL byte hides the end of line behind it, so such a connection
  waits until 64 KiB have gathered and is refused then;
- in an inline command vertical tab and form feed separate arguments but do not end one.

The text of an error is Redis's after "-ERR "; a byte in it that is no ASCII is kept as a surrogate
escape, so `encode("utf-8", "surrogateescape")` gives Redis's bytes.

Where Redis's result depends on how the kernel cut the bytes (a line just above 64 KiB), the result
here is the one of reading byte by byte.

Costs: O(bytes). Rejected: a regular expression for each header (slower than reading three digits),
and a list that grows by append (its places are known from the count, up to a bound: the count is
only a client's word).
"""

from __future__ import annotations

from typing import Any, TypeAlias

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

from rillet.errors import ProtocolError
from rillet.protocol.read_buffer import ReadBuffer
from rillet.protocol.reply_writer import pack_command

__all__ = ["CommandParser", "QueryBufferExceeded", "pack_command", "split_args"]

Command: TypeAlias = "list[bytes] | None"
"""The arguments of a command, name first; [] for an empty one, None while it is incomplete."""

INLINE_MAX_SIZE = 64 * 1024
"""PROTO_INLINE_MAX_SIZE: bytes of a line before its end must have come."""
MAX_MULTIBULK_LEN = 2**31 - 1
PROTO_MAX_BULK_LEN = 512 * 1024 * 1024
QUERY_BUFFER_LIMIT = 1024 * 1024 * 1024
UNAUTHENTICATED_MULTIBULK_LEN = 10
UNAUTHENTICATED_BULK_LEN = 16384

_UNAUTHENTICATED_MULTIBULK_LEN = cython.declare(cython.Py_ssize_t, UNAUTHENTICATED_MULTIBULK_LEN)
_UNAUTHENTICATED_BULK_LEN = cython.declare(cython.Py_ssize_t, UNAUTHENTICATED_BULK_LEN)
_PLAIN_NOTE = cython.declare(cython.Py_ssize_t, 128)
_ARGV_AHEAD = cython.declare(cython.Py_ssize_t, 1024)  # places made for arguments that a client has only announced

_BLANKS = frozenset(b" \t\n\v\f\r")  # isspace() in the C locale
_ENDS_WORD = frozenset(b" \t\n\r\0")
_HEX = frozenset(b"0123456789abcdefABCDEF")
_ESCAPES = {ord("n"): 10, ord("r"): 13, ord("t"): 9, ord("b"): 8, ord("a"): 7}


class QueryBufferExceeded(ProtocolError):
    """More unparsed bytes than client-query-buffer-limit: Redis closes such a connection without a reply."""


def split_args(line: bytes) -> list[bytes] | None:
    """Split a line into arguments by Redis's quoting rules, None for unbalanced quotes (sds.c, sdssplitargs); O(n)."""
    args: list[bytes] = []
    size = len(line)
    pos = 0
    while True:
        while pos < size and line[pos] in _BLANKS:
            pos += 1
        if pos >= size or line[pos] == 0:
            return args
        word = bytearray()
        while pos < size and line[pos] not in _ENDS_WORD:
            quote = line[pos]
            pos += 1
            if quote not in b"\"'":
                word.append(quote)
                continue
            pos = _quoted(line, pos, quote, word)
            if pos < 0 or (pos < size and line[pos] not in _BLANKS):
                return None  # a closing quote ends its argument
            break
        args.append(bytes(word))


def _quoted(line: bytes, pos: int, quote: int, word: bytearray) -> int:
    """Append what is quoted from pos on to the word; return the position after the closing quote, or -1."""
    size = len(line)
    while pos < size:
        byte = line[pos]
        following = line[pos + 1] if pos + 1 < size else 0
        pos += 1
        if byte == quote:
            return pos
        if byte != 92 or following == 0 or (quote == 39 and following != 39):
            word.append(byte)
        elif quote == 34 and following == 120 and _is_hex_pair(line[pos + 1 : pos + 3]):
            word.append(int(line[pos + 1 : pos + 3], 16))
            pos += 3
        else:
            word.append(_ESCAPES.get(following, following) if quote == 34 else following)
            pos += 1
    return -1


def _is_hex_pair(text: bytes) -> bool:
    return len(text) == 2 and _HEX.issuperset(text)


def _string2ll(text: bytes) -> int | None:
    """Return the number if the text is its canonical decimal form in 64 bits, else None (util.c, string2ll)."""
    digits = text[1:] if text[:1] == b"-" else text
    if text == b"0":
        return 0
    if len(text) > 20 or not digits.isdigit() or digits[0] == 48:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


@cython.cfunc
@cython.exceptval(check=False)
def plain_line(buf: cython.p_const_uchar, pos: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return number * 16 + line length for a count line of up to nine canonical digits that is all there, else 0."""
    at: cython.Py_ssize_t = pos + 1
    stop: cython.Py_ssize_t = min(size, pos + 10)
    number: cython.Py_ssize_t = 0
    while at < stop and 48 <= buf[at] <= 57:
        number = number * 10 + (buf[at] - 48)
        at += 1
    if at > size - 2 or buf[at] != 13 or buf[at + 1] != 10 or at == pos + 1 or (buf[pos + 1] == 48 and at > pos + 2):
        return 0
    return number * 16 + (at + 2 - pos)


@cython.final
@cython.cclass
class CommandParser(ReadBuffer):
    """Bytes in, commands out: `feed`, then `next` until it gives None (networking.c, processInputBuffer)."""

    __slots__ = ("argv", "argc", "missing", "bulk_len", "authenticated", "proto_max_bulk_len", "max_multibulk_len",
                 "query_buffer_limit", "exact", "after", "first")  # fmt: skip
    argv: Any
    argc: cython.Py_ssize_t
    missing: cython.Py_ssize_t
    bulk_len: cython.Py_ssize_t
    authenticated: cython.bint
    proto_max_bulk_len: cython.Py_ssize_t
    max_multibulk_len: cython.Py_ssize_t
    query_buffer_limit: cython.Py_ssize_t
    exact: cython.bint
    after: cython.Py_ssize_t
    first: cython.Py_ssize_t

    def __init__(self) -> None:
        ReadBuffer.__init__(self)
        self.max_line = INLINE_MAX_SIZE
        self.argv = None
        self.argc = 0
        self.missing = 0
        self.bulk_len = -1
        self.authenticated = True
        self.proto_max_bulk_len = PROTO_MAX_BULK_LEN
        self.max_multibulk_len = MAX_MULTIBULK_LEN
        self.query_buffer_limit = QUERY_BUFFER_LIMIT
        # Whether both bytes of each CR LF are looked at, as in a log; of a client Redis takes any two.
        self.exact = False
        self.after = 0
        self.first = 0

    @property
    def max_inline_len(self) -> int:
        """Bytes of a line before its end must have come."""
        return self.max_line

    @max_inline_len.setter
    def max_inline_len(self, value: int) -> None:
        self.max_line = value

    @cython.ccall
    def next(self) -> Command:
        """Return the next command, [] for an empty one, None when more bytes are needed; raise ProtocolError."""
        command: object
        if self.pos < self.size:
            command = self._parse()
            if command is not None:
                return command
        while self.refill():
            command = self._parse()
            if command is not None:
                return command
        if self.size - self.pos + len(self.tail) > self.query_buffer_limit:
            self.forget("Protocol error: query buffer limit exceeded")
            raise QueryBufferExceeded(self.broken)  # networking.c, readQueryFromClient
        return None

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def first_size(self) -> cython.int:
        """Return the length of the first word of the multibulk command at pos, where one digit tells it, else -1.

        A few comparisons, and `first_is` a few more, tell a command that is worth a `scan` from all others.
        """
        data: bytes = self.data
        buf: cython.p_const_uchar = data
        end: cython.Py_ssize_t = self.size - 6  # CR LF $ digit CR LF
        at: cython.Py_ssize_t = self.pos + 1
        if at >= end or buf[at - 1] != 42 or self.missing > 0:
            return -1
        while at < end and 48 <= buf[at] <= 57:
            at += 1
        if buf[at] != 13 or buf[at + 2] != 36 or buf[at + 4] != 13:
            return -1
        size: cython.int = buf[at + 3] - 48
        self.first = at + 6
        return size if 0 <= size <= 9 and end + 6 - self.first >= size else -1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def first_is(self, name: bytes) -> cython.bint:
        """Say whether the word that `first_size` found begins with the name, of small letters, in any case."""
        buf: cython.p_const_uchar = self.data
        i: cython.Py_ssize_t
        if self.first > self.size - len(name):
            return False
        for i in range(len(name)):
            # Setting the bit of the small letters makes a letter of nothing but a letter.
            if buf[self.first + i] | 0x20 != name[i]:
                return False
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def scan(
        self, at: cython.pp_const_uchar, size: cython.p_Py_ssize_t, room: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Find the words of the multibulk command at pos and return how many there are, up to room; `step` takes them.

        0 where the command is not all there or not plain: that is for `next`, which also finds what is wrong with
        it. Nothing is changed. The words (interpreted: copies of them) are good until more is fed.
        """
        data: bytes = self.data
        buf: cython.p_const_uchar = data
        end: cython.Py_ssize_t = self.size
        pos: cython.Py_ssize_t = self.pos
        line: cython.Py_ssize_t
        count: cython.Py_ssize_t
        length: cython.Py_ssize_t
        index: cython.Py_ssize_t
        if pos >= end or buf[pos] != 42 or self.missing > 0 or not self.authenticated:
            return 0
        line = plain_line(buf, pos, end)
        count = line >> 4
        if count > room or count > self.max_multibulk_len:
            return 0
        pos += line & 15
        for index in range(count):
            if end - pos < 6 or buf[pos] != 36:  # $0 CR LF CR LF
                return 0
            length = buf[pos + 1] - 48
            # Nearly every length has one digit or two.
            if 0 <= length <= 9 and buf[pos + 2] == 13 and buf[pos + 3] == 10:
                pos += 4
            elif 1 <= length <= 9 and 48 <= buf[pos + 2] <= 57 and buf[pos + 3] == 13 and buf[pos + 4] == 10:
                length = length * 10 + (buf[pos + 2] - 48)
                pos += 5
            else:
                line = plain_line(buf, pos, end)
                length = line >> 4
                if line == 0 or length > _UNAUTHENTICATED_BULK_LEN or length > self.proto_max_bulk_len:
                    return 0
                pos += line & 15
            if end - pos < length + 2 or buf[pos + length] != 13 or buf[pos + length + 1] != 10:
                return 0
            if cython.compiled:
                at[index] = buf + pos
            else:
                at[index] = data[pos : pos + length]
            size[index] = length
            pos += length + 2
        self.after = pos
        return count

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def step(self) -> cython.bint:
        """Go behind the command that `scan` found, and behind the notes of a log that follow it."""
        self.pos = self.after
        if self.exact:
            self.pass_notes()
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def pass_notes(self) -> cython.bint:
        """Go behind the notes at pos, whole lines that begin with #; say whether there was one.

        A long one, or one with a NUL byte in it, is left to `next`, as is one whose end has not come.
        """
        data: bytes = self.data
        buf: cython.p_const_uchar = data
        start: cython.Py_ssize_t = self.pos
        at: cython.Py_ssize_t = start
        stop: cython.Py_ssize_t
        if self.missing > 0:
            return False
        while at < self.size and buf[at] == 35:
            stop = min(self.size, at + _PLAIN_NOTE)
            while at < stop and buf[at] != 10 and buf[at] != 0:
                at += 1
            if at == stop or buf[at] == 0:
                break
            at += 1
            self.pos = at
        return self.pos > start

    @cython.cfunc
    def _parse(self) -> Command:
        """Return the command at pos < size, or None with the state saved."""
        data: bytes = self.data
        buf: cython.p_const_uchar = data
        size: cython.Py_ssize_t = self.size
        pos: cython.Py_ssize_t = self.pos
        missing: cython.Py_ssize_t = self.missing
        length: cython.Py_ssize_t = self.bulk_len
        argc: cython.Py_ssize_t = self.argc
        line: cython.Py_ssize_t
        argv: list[Any]
        if missing > 0:
            argv = self.argv
        else:
            if buf[pos] != 42:
                return self._parse_inline()
            line = plain_line(buf, pos, size)
            missing = line >> 4
            if 0 < missing <= (self.max_multibulk_len if self.authenticated else _UNAUTHENTICATED_MULTIBULK_LEN):
                pos += line & 15
            else:
                missing = self._read_count()
                if missing < 0:
                    return None
                if missing == 0:
                    return []
                pos = self.pos
            argc = 0
            argv = [None] * min(missing, _ARGV_AHEAD)
        while missing > 0:
            if length < 0:
                line = plain_line(buf, pos, size) if pos < size and buf[pos] == 36 else 0
                length = line >> 4
                if line > 0 and length <= _UNAUTHENTICATED_BULK_LEN and length <= self.proto_max_bulk_len:
                    pos += line & 15
                else:
                    self.pos = pos
                    length = self._read_length()
                    pos = self.pos
            if length < 0 or size - pos < length + 2:
                self.pos = pos
                self.argv = argv
                self.argc = argc
                self.missing = missing
                self.bulk_len = length
                if length >= 0:
                    self.wanted = length + 2
                return None
            if self.exact and (buf[pos + length] != 13 or buf[pos + length + 1] != 10):
                self.pos = pos + length
                self._refuse("CR LF expected behind a value")
            if argc < len(argv):
                argv[argc] = buf[pos : pos + length]
            else:
                argv.append(buf[pos : pos + length])
            argc += 1
            missing -= 1
            pos += length + 2
            length = -1
        self.pos = pos
        if self.missing > 0:
            self.argv = None
            self.missing = 0
            self.bulk_len = -1
        return argv

    @cython.cfunc
    def _line_end(self, terminator: cython.int) -> cython.Py_ssize_t:
        """Return where the line at pos ends, -1 if it goes on: a NUL byte hides what is behind it."""
        end: cython.Py_ssize_t = self.line_end(terminator)
        if self.data.find(0, self.pos, min(self.size, self.pos + self.max_line + 1) if end < 0 else end) >= 0:
            self.wanted = self.max_line + 1
            return -1
        return end

    @cython.cfunc
    def _read_count(self) -> cython.Py_ssize_t:
        """Read "*<count>" at pos and step over it; 0 for an empty command, -1 when the end has not come."""
        end: cython.Py_ssize_t = self._line_end(13)
        if end < 0:
            if self.size - self.pos > self.max_line:
                self._refuse("too big mbulk count string")
            return -1
        count = _string2ll(self.data[self.pos + 1 : end])
        if count is None or count > self.max_multibulk_len:
            self._refuse("invalid multibulk length")
            return -1
        if count > UNAUTHENTICATED_MULTIBULK_LEN and not self.authenticated:
            self._refuse("unauthenticated multibulk length")
        self._see_line_feed(end)
        self.pos = end + 2
        return max(count, 0)

    @cython.cfunc
    def _read_length(self) -> cython.Py_ssize_t:
        """Read "$<length>" at pos and step over it; -1 when its end has not come."""
        end: cython.Py_ssize_t = self._line_end(13)
        if end < 0:
            if self.size - self.pos > self.max_line:
                self._refuse("too big bulk count string")
            return -1
        first: cython.int = self.data[self.pos]
        if first != 36:
            got = self.data[self.pos : self.pos + 1].decode("utf-8", "surrogateescape")
            self._refuse(f"expected '$', got '{got}'")
        length = _string2ll(self.data[self.pos + 1 : end])
        if length is None or length < 0 or length > self.proto_max_bulk_len:
            self._refuse("invalid bulk length")
            return -1
        if length > UNAUTHENTICATED_BULK_LEN and not self.authenticated:
            self._refuse("unauthenticated bulk length")
        self._see_line_feed(end)
        self.pos = end + 2
        return length

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _see_line_feed(self, end: cython.Py_ssize_t) -> cython.bint:
        """Refuse a line whose CR, at `end`, has something else than LF behind it, where that counts."""
        data: bytes = self.data
        if self.exact and data[end + 1] != 10:
            self._refuse("LF expected behind CR")
        return True

    @cython.cfunc
    def _parse_inline(self) -> Command:
        """Return the command on the line at pos, None when its end has not come."""
        end: cython.Py_ssize_t = self._line_end(10)
        if end < 0:
            if self.size - self.pos > self.max_line:
                self._refuse("too big inline request")
            return None
        line: bytes = self.data[self.pos : end]
        # An annotation of a log is passed over, whatever is in it.
        args = [line] if self.exact and line.startswith(b"#") else split_args(line.removesuffix(b"\r"))
        if args is None:
            self._refuse("unbalanced quotes in request")
        self.pos = end + 1
        return args

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _refuse(self, reason: str) -> cython.bint:
        """End this connection's commands with an error (networking.c, setProtocolError)."""
        return self.refuse("Protocol error: " + reason)
