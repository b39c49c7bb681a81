"""The command parser: splits the bytes of a client into commands, without I/O.

    *3\\r\\n            three arguments follow: a "multibulk" command
    $4\\r\\nXADD\\r\\n    each as a bulk string: its length, its bytes, CR LF
    $1\\r\\ns\\r\\n
    $1\\r\\n*\\r\\n

    SET key "a\\x00b"\\n   or one line, split at blanks, with quotes: an "inline" command

The input may be split anywhere: one byte at a time and a thousand commands at once give the same
commands and the same error, always after the commands before it. Each argument is copied once, out
of the received bytes. rillet.protocol.read_buffer explains how split messages are joined.

Invariant: `missing > 0` exactly while a multibulk command is partially parsed. The first `argc` elements
of `argv` are its arguments so far; `bulk_len` is the length of the next one, or -1 if still unknown.
No byte is parsed twice.

The rules are those of Redis 7.0 (networking.c, processMultibulkBuffer and processInlineBuffer), including
its quirks:

- A count is a decimal number in canonical form, as in string2ll: `*01` and `*+1` are rejected.
- The two bytes after a bulk string, and the byte after a count's CR, are skipped without a check.
- `*0` and `*-1` are empty commands: `next` returns `[]`, and no reply is sent.
- The end of an inline command is searched with strchr, so a NUL byte hides it. Such a connection waits until
  64 KiB have arrived and is then rejected.
- In an inline command, vertical tab and form feed separate arguments but do not end one.

`strict` selects the rules of Valkey 9.1 (networking.c, parseMultibulk; sds.c, sdsnsplitargs): CR LF must follow each
count and each bulk string, a NUL byte hides only the end of an inline command, and quotes may be inside a word.

An error's text is what Redis sends after "-ERR ". Its non-ASCII bytes are surrogate escapes, so
`encode("utf-8", "surrogateescape")` returns Redis's bytes.

Where Redis's result depends on how the kernel splits the input (a line just above 64 KiB), this parser
behaves as if each byte arrived separately.

Costs: O(bytes). Rejected alternatives: a regular expression for each header (slower than reading three
digits), and a list that grows by append (the count allows allocation ahead, up to a bound, because the
client may announce any count).
"""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

from rillet._cython import cython, public, readonly
from rillet.errors import ProtocolError
from rillet.protocol.read_buffer import ReadBuffer
from rillet.protocol.reply_writer import pack_command
from rillet.structs.argument_spans import ArgumentSpans

__all__ = ["CommandParser", "QueryBufferExceeded", "pack_command", "split_args", "unlimited_parser"]

Command: TypeAlias = "list[bytes] | None"
"""The arguments of a command, name first; [] for an empty command, None while it is incomplete."""

INLINE_MAX_SIZE = 64 * 1024
"""Maximum length of an incomplete line in bytes (PROTO_INLINE_MAX_SIZE)."""
MAX_MULTIBULK_LEN = 2**31 - 1
PROTO_MAX_BULK_LEN = 512 * 1024 * 1024
QUERY_BUFFER_LIMIT = 1024 * 1024 * 1024
UNAUTHENTICATED_MULTIBULK_LEN = 10
UNAUTHENTICATED_BULK_LEN = 16384

_UNAUTHENTICATED_MULTIBULK_LEN = cython.declare(cython.Py_ssize_t, UNAUTHENTICATED_MULTIBULK_LEN)
_UNAUTHENTICATED_BULK_LEN = cython.declare(cython.Py_ssize_t, UNAUTHENTICATED_BULK_LEN)
_PLAIN_NOTE = cython.declare(cython.Py_ssize_t, 128)
_ARGV_AHEAD = cython.declare(cython.Py_ssize_t, 1024)  # maximum number of list slots to allocate in advance

_BLANKS = frozenset(b" \t\n\v\f\r")  # the blanks of C's isspace()
_ENDS_WORD = frozenset(b" \t\n\r\0")
_HEX = frozenset(b"0123456789abcdefABCDEF")
_ESCAPES = {ord("n"): 10, ord("r"): 13, ord("t"): 9, ord("b"): 8, ord("a"): 7}


class QueryBufferExceeded(ProtocolError):
    """Unparsed bytes exceed client-query-buffer-limit: Redis closes the connection without a reply."""


def split_args(line: bytes, mixed: bool = False) -> list[bytes] | None:
    """Split a line into arguments by Redis's quoting rules; return None for unbalanced quotes. O(n) (sdssplitargs)

    mixed: quoted text may be a part of a word, as in Valkey 9.1 (sdsnsplitargs).
    """
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
            pos = _quoted(line, pos, quote, word, size - 1 if mixed else size)
            if pos < 0:
                return None
            if not mixed:
                if pos < size and line[pos] not in _BLANKS:
                    return None  # a closing quote must end its argument
                break
        args.append(bytes(word))


def _quoted(line: bytes, pos: int, quote: int, word: bytearray, stop: int) -> int:
    """Append the quoted text that starts at pos to word; return the position after the closing quote, or -1.

    A backslash escapes a byte before `stop`. In Valkey's inline commands the last byte of the line is not escaped.
    """
    size = len(line)
    while pos < size:
        byte = line[pos]
        following = line[pos + 1] if pos + 1 < stop else 0
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
    """Return the 64-bit integer of a canonical decimal text, or None for other text (util.c, string2ll)."""
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
    """Return number * 16 + line length for a complete count line of up to nine canonical digits, otherwise 0."""
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
    """Parse commands: `feed` bytes, then call `next` until it returns None (networking.c, processInputBuffer)."""

    __slots__ = ("argv", "argc", "held", "missing", "bulk_len", "authenticated", "proto_max_bulk_len",
                 "max_multibulk_len",
                 "query_buffer_limit", "exact", "scan_stop", "after", "began", "commands", "ordinal")  # fmt: skip
    argv: Any
    held: readonly[cython.Py_ssize_t]
    argc: cython.Py_ssize_t
    missing: cython.Py_ssize_t
    bulk_len: cython.Py_ssize_t
    proto_max_bulk_len: public[cython.Py_ssize_t]
    max_multibulk_len: public[cython.Py_ssize_t]
    query_buffer_limit: public[cython.Py_ssize_t]
    exact: public[cython.bint]
    authenticated: public[cython.bint]
    scan_stop: cython.Py_ssize_t
    after: readonly[cython.Py_ssize_t]
    began: cython.Py_ssize_t
    commands: list[Any] | None
    ordinal: cython.Py_ssize_t

    def __init__(self) -> None:
        ReadBuffer.__init__(self)
        self.max_line = INLINE_MAX_SIZE
        self.argv = None
        self.held = 0  # bytes of the arguments so far, of an incomplete command
        self.argc = 0
        self.missing = 0
        self.bulk_len = -1
        self.authenticated = True
        self.proto_max_bulk_len = PROTO_MAX_BULK_LEN
        self.max_multibulk_len = MAX_MULTIBULK_LEN
        self.query_buffer_limit = QUERY_BUFFER_LIMIT
        # Whether both bytes of each CR LF are verified, as in a log. From clients, Redis accepts any two bytes.
        self.exact = False
        # `scan` finds no command that begins at this position or after it: its caller first has other work.
        self.scan_stop = 2**62
        self.after = 0
        # Where the command began that `step` has passed last.
        self.began = 0
        # The commands that a transaction has queued, if these are its bytes; how many commands `step` has passed.
        self.commands = None
        self.ordinal = 0

    @property
    def max_inline_len(self) -> int:
        """Maximum length of an incomplete line in bytes."""
        return self.max_line

    @max_inline_len.setter
    def max_inline_len(self, value: int) -> None:
        self.max_line = value

    @cython.ccall
    def next(self) -> Command:
        """Return the next command, [] if empty, None if more bytes are needed; raise ProtocolError if malformed."""
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
    def scan(self, words: ArgumentSpans) -> cython.Py_ssize_t:
        """Locate the arguments of the multibulk command at pos in `words`, and return their number.

        Return 0 if the command is incomplete, not in Redis's own form, or larger than the room in `words`; `next`
        handles these and finds errors. Return 0 also at `scan_stop`. The parser's position is unchanged until `step`.
        The addresses (interpreted: copies) are valid until the next `feed`.
        """
        data: bytes = self.data
        buf: cython.p_const_uchar = data
        end: cython.Py_ssize_t = self.size
        pos: cython.Py_ssize_t = self.pos
        line: cython.Py_ssize_t
        count: cython.Py_ssize_t
        length: cython.Py_ssize_t
        index: cython.Py_ssize_t
        words.count = 0
        words.source = None
        words.received = True
        if words.replaced >= 0:
            words.begin(True)
        if pos >= end or pos >= self.scan_stop or buf[pos] != 42 or self.missing > 0 or not self.authenticated:
            return 0
        count = buf[pos + 1] - 48 if end - pos > 3 else 0
        if 1 <= count <= 9 and buf[pos + 2] == 13 and buf[pos + 3] == 10:
            pos += 4
        else:
            line = plain_line(buf, pos, end)
            count = line >> 4
            pos += line & 15
        if count > words.room or count > self.max_multibulk_len:
            return 0
        at: cython.pp_const_uchar = words.at
        size: cython.p_Py_ssize_t = words.size
        for index in range(count):
            if end - pos < 6 or buf[pos] != 36:  # $0 CR LF CR LF
                return 0
            length = buf[pos + 1] - 48
            # Nearly all lengths have one or two digits.
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
        words.count = count
        return count

    @cython.cfunc
    def step(self) -> cython.bint:
        """Advance past the command that `scan` located and past the log annotations that follow it."""
        self.began = self.pos
        self.pos = self.after
        self.ordinal += 1
        if self.exact:
            self.pass_notes()
        return True

    @cython.cfunc
    def pass_notes(self) -> cython.bint:
        """Skip the log annotations at pos (complete lines that begin with #); return whether there was any.

        `next` handles annotations that are long, incomplete or contain a NUL byte.
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
        """Return the command at pos < size; return None after saving the progress if it is incomplete."""
        data: bytes = self.data
        buf: cython.p_const_uchar = data
        size: cython.Py_ssize_t = self.size
        pos: cython.Py_ssize_t = self.pos
        missing: cython.Py_ssize_t = self.missing
        length: cython.Py_ssize_t = self.bulk_len
        argc: cython.Py_ssize_t = self.argc
        began: cython.Py_ssize_t = pos
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
                self.held = pos - began + (self.held if self.missing > 0 else 0)
                self.argv = argv
                self.argc = argc
                self.missing = missing
                self.bulk_len = length
                if length >= 0:
                    self.wanted = length + 2
                return None
            if (self.exact or self.strict) and (buf[pos + length] != 13 or buf[pos + length + 1] != 10):
                self.pos = pos + length
                self._refuse("invalid CRLF in request" if self.strict else "expected CR LF after a bulk string")
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
            self.held = 0
            self.missing = 0
            self.bulk_len = -1
        return argv

    @cython.cfunc
    def _line_end(self, terminator: cython.int) -> cython.Py_ssize_t:
        """Return the end of the line at pos, or -1 if it is incomplete; a line end after a NUL byte is not found."""
        end: cython.Py_ssize_t = self.line_end(terminator)
        if self.strict and terminator == 13:
            return end
        if self.data.find(0, self.pos, min(self.size, self.pos + self.max_line + 1) if end < 0 else end) >= 0:
            self.wanted = self.max_line + 1
            return -1
        return end

    @cython.cfunc
    def _read_count(self) -> cython.Py_ssize_t:
        """Read "*<count>" at pos and advance; return 0 for an empty command, -1 if the line is incomplete."""
        end: cython.Py_ssize_t = self._line_end(13)
        if end < 0:
            if self.size - self.pos > self.max_line:
                self._refuse("too big mbulk count string")
            return -1
        self._see_line_feed(end)
        count = _string2ll(self.data[self.pos + 1 : end])
        if count is None or count > self.max_multibulk_len:
            self._refuse("invalid multibulk length")
            return -1
        if count > UNAUTHENTICATED_MULTIBULK_LEN and not self.authenticated:
            self._refuse("unauthenticated multibulk length")
        self.pos = end + 2
        return max(count, 0)

    @cython.cfunc
    def _read_length(self) -> cython.Py_ssize_t:
        """Read "$<length>" at pos and advance; return -1 if the line is incomplete."""
        end: cython.Py_ssize_t = self._line_end(13)
        if end < 0:
            if self.size - self.pos > self.max_line:
                self._refuse("too big bulk count string")
            return -1
        first: cython.int = self.data[self.pos]
        if first != 36:
            got = self.data[self.pos : self.pos + 1].decode("utf-8", "surrogateescape")
            self._refuse(f"expected '$', got '{got}'")
        self._see_line_feed(end)
        length = _string2ll(self.data[self.pos + 1 : end])
        if length is None or length < 0 or length > self.proto_max_bulk_len:
            self._refuse("invalid bulk length")
            return -1
        if length > UNAUTHENTICATED_BULK_LEN and not self.authenticated:
            self._refuse("unauthenticated bulk length")
        self.pos = end + 2
        return length

    @cython.cfunc
    def _see_line_feed(self, end: cython.Py_ssize_t) -> cython.bint:
        """In exact and strict mode, reject a line whose CR at `end` is not followed by LF."""
        data: bytes = self.data
        if (self.exact or self.strict) and data[end + 1] != 10:
            self._refuse("invalid CRLF in request" if self.strict else "expected LF after CR")
        return True

    @cython.cfunc
    def _parse_inline(self) -> Command:
        """Return the command on the line at pos, or None if the line is incomplete."""
        end: cython.Py_ssize_t = self._line_end(10)
        if end < 0:
            if self.size - self.pos > self.max_line:
                self._refuse("too big inline request")
            return None
        line: bytes = self.data[self.pos : end]
        # Annotations in a log are skipped, whatever they contain.
        args = [line] if self.exact and line.startswith(b"#") else split_args(line.removesuffix(b"\r"), self.strict)
        if args is None:
            self._refuse("unbalanced quotes in request")
        self.pos = end + 1
        return args

    @cython.cfunc
    def _refuse(self, reason: str) -> cython.bint:
        """Raise a ProtocolError; the connection accepts no further commands (networking.c, setProtocolError)."""
        return self.refuse("Protocol error: " + reason)


def unlimited_parser() -> CommandParser:
    """Return a parser for commands that an engine has accepted before, in a log or a replication stream.

    It has no limits of clients, and accepts only the form in which Redis writes commands.
    """
    parser = CommandParser()
    parser.exact = True
    parser.proto_max_bulk_len = parser.query_buffer_limit = parser.max_multibulk_len = sys.maxsize
    return parser
