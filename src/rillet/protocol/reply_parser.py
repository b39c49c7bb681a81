"""The reply parser: converts the bytes of a server's replies to Python values, without I/O.

    first byte   RESP type          value
    +            simple string      bytes
    -  !         error, blob error  ReplyError, returned as a value, not raised
    :            integer            int
    $            bulk string        bytes; None for $-1
    *            array              list; None for *-1
    _            null               None
    #            boolean            bool
    ,            double             float
    (            big number         int
    =            verbatim string    bytes, without the format ("txt:") before them
    %            map                dict
    ~            set                set
    >            push               Push, a list
    |            attribute          skipped; the value is the reply that follows

Python cannot hash every element of a map or set (COMMAND sends sets of maps). Such a set becomes a list, and
such a map a list of pairs.

An incomplete aggregate is a Frame on a stack: its values so far, their number and the announced number. No byte
is parsed twice, however the input is split: an array of a million replies that arrives in small pieces costs
O(bytes). List slots for announced values are allocated ahead only up to a bound, because the peer may announce any
count. Nesting deeper than MAX_DEPTH is rejected, and no function recurses.

Malformed bytes raise ProtocolError at once and on every later call. The parser does not support RESP3's
"streamed" types, whose length is not announced, because no Redis sends them.
"""

from __future__ import annotations

from typing import Any, Final

from rillet._cython import cython
from rillet.errors import CommandError, ProtocolError
from rillet.protocol.command_parser import plain_line
from rillet.protocol.read_buffer import ReadBuffer

MAX_DEPTH = 128
"""Maximum nesting of aggregates; replies of Redis nest less than ten deep, those of scripts slightly more."""

_MAX_DEPTH = cython.declare(cython.Py_ssize_t, MAX_DEPTH)
_AHEAD = cython.declare(cython.Py_ssize_t, 1024)

_DOUBLES = frozenset(b"0123456789+-.eE")


class Incomplete:
    """The type of `INCOMPLETE`."""

    def __repr__(self) -> str:
        return "INCOMPLETE"


INCOMPLETE: Final = Incomplete()
"""The result of `ReplyParser.next` while the next reply is incomplete."""

_INCOMPLETE = cython.declare(object, INCOMPLETE)
_OPENED = cython.declare(object, object())  # returned for the header of an aggregate, which has no value yet


class ReplyError(CommandError):
    """An error reply: str() is the whole line, `prefix` its first word."""

    def __init__(self, line: str) -> None:
        Exception.__init__(self, line)
        self.prefix = line.partition(" ")[0]


class Push(list[Any]):
    """A push message of RESP3: its kind as bytes, followed by its contents."""

    __slots__ = ()


@cython.final
@cython.cclass
class Frame:
    """An incomplete aggregate: `kind` is its first byte, `filled` of its `total` values have arrived."""

    __slots__ = ("kind", "filled", "total", "values", "parent")
    kind: cython.int
    filled: cython.Py_ssize_t
    total: cython.Py_ssize_t
    values: list[Any]
    parent: Frame | None

    @cython.cfunc
    def finish(self) -> object:
        """Return the aggregate as a Python value; O(1) for an array, otherwise O(n)."""
        if self.kind == 42:
            return self.values
        if self.kind == 37:
            return _to_dict(self.values)
        if self.kind == 126:
            return _to_set(self.values)
        return Push(self.values)


@cython.cfunc
def _to_dict(values: list[Any]) -> object:
    """Return alternating keys and values as a dict, or as a list of pairs if a key is not hashable."""
    pairs: list[Any] = list(zip(values[::2], values[1::2], strict=True))
    try:
        return dict(pairs)
    except TypeError:
        return pairs


@cython.cfunc
def _to_set(values: list[Any]) -> object:
    """Return the values as a set, or as a list if one is not hashable."""
    try:
        return set(values)
    except TypeError:
        return values


@cython.final
@cython.cclass
class ReplyParser(ReadBuffer):
    """Parse replies: `feed` bytes, then call `next` until it returns INCOMPLETE (hiredis: redisReaderGetReply)."""

    __slots__ = ("top", "depth")
    top: Frame | None
    depth: cython.Py_ssize_t

    def __init__(self) -> None:
        ReadBuffer.__init__(self)
        self.top = None
        self.depth = 0

    @property
    def half_parsed(self) -> bool:
        """Return whether an aggregate has begun but is incomplete."""
        return self.top is not None

    @cython.ccall
    def next(self) -> object:
        """Return the next reply, or INCOMPLETE if more bytes are needed; raise ProtocolError if malformed."""
        value: object
        if self.pos < self.size:
            value = self._parse()
            if value is not _INCOMPLETE:
                return value
        while self.refill():
            value = self._parse()
            if value is not _INCOMPLETE:
                return value
        return _INCOMPLETE

    @cython.cfunc
    def _parse(self) -> object:
        """Return the reply that begins or continues at pos; return INCOMPLETE, after saving progress, if it is cut."""
        data: bytes = self.data
        buf: cython.p_const_uchar = data
        size: cython.Py_ssize_t = self.size
        pos: cython.Py_ssize_t = self.pos
        start: cython.Py_ssize_t
        after: cython.Py_ssize_t
        line: cython.Py_ssize_t
        kind: cython.int
        value: object
        frame: Frame | None = self.top
        while pos < size:
            # Fast path for the most frequent elements, if complete: short strings, arrays and integers.
            kind = buf[pos]
            line = plain_line(buf, pos, size) if kind == 36 or kind == 42 or kind == 58 else 0
            start = pos + (line & 15)
            after = start + (line >> 4)
            if line == 0 or buf[start - 1] != 10:
                kind = 0
            if kind == 36 and after + 2 <= size and buf[after] == 13 and buf[after + 1] == 10:
                value = buf[start:after]
                pos = after + 2
            elif kind == 42 and after > start:
                frame = self._push(42, after - start)
                pos = start
                continue
            elif kind == 58:
                value = after - start
                pos = start
            else:
                self.pos = pos
                value = self._element(buf[pos])
                if value is _INCOMPLETE:
                    return value
                pos = self.pos
                if value is _OPENED:
                    frame = self.top
                    continue
            while frame is not None:
                if frame.filled < len(frame.values):
                    frame.values[frame.filled] = value
                else:
                    frame.values.append(value)
                frame.filled += 1
                if frame.filled < frame.total:
                    break
                self.top = frame.parent
                self.depth -= 1
                if frame.kind == 124:  # an attribute does not count as an element of its aggregate
                    frame = self.top
                    break
                value = frame.values if frame.kind == 42 else frame.finish()
                frame = self.top
            else:
                self.pos = pos
                return value
        self.pos = pos
        self.wanted = 1
        return _INCOMPLETE

    @cython.cfunc
    def _push(self, kind: cython.int, total: cython.Py_ssize_t) -> Frame:
        """Push an aggregate (array, map ...) onto the stack of incomplete aggregates."""
        frame: Frame = Frame.__new__(Frame)
        if self.depth >= _MAX_DEPTH:
            self._refuse("nested too deeply")
        frame.kind = kind
        frame.filled = 0
        frame.total = total
        frame.values = [None] * min(total, _AHEAD)
        frame.parent = self.top
        self.top = frame
        self.depth += 1
        return frame

    @cython.cfunc
    def _element(self, kind: cython.int) -> object:
        """Read the element at pos: a value, _OPENED after an aggregate's header, or INCOMPLETE with pos unchanged."""
        end: cython.Py_ssize_t = self.line_end(13)
        if end < 0:
            return _INCOMPLETE
        if self.data[end + 1] != 10:
            self._refuse("CR without LF")
        if kind in b"$=!":
            return self._bulk(kind, end)
        if kind in b"*%~>|":
            return self._open(kind, end)
        text: bytes = self.data[self.pos + 1 : end]
        self.pos = end + 2
        if kind == 43:
            return text
        if kind == 45:
            return _error(text)
        if kind == 58 or kind == 40:
            return self._number(text)
        if kind == 44:
            return self._double(text)
        if kind == 95 and text == b"":
            return None
        if kind == 35 and (text == b"t" or text == b"f"):
            return text == b"t"
        self._refuse(f"unexpected {chr(kind)!r} {text[:32]!r}")
        return None

    @cython.cfunc
    def _bulk(self, kind: cython.int, end: cython.Py_ssize_t) -> object:
        """Read the bulk, verbatim or error string whose count line ends at `end`."""
        length: cython.Py_ssize_t = self._count(end)
        start: cython.Py_ssize_t = end + 2
        after: cython.Py_ssize_t = start + length
        if length < 0:
            self.pos = start
            if kind != 36:
                self._refuse("negative length")
            return None
        if self.size < after + 2:
            self.wanted = after + 2 - self.pos
            return _INCOMPLETE
        if self.data[after] != 13 or self.data[after + 1] != 10:
            self._refuse("string without CR LF after it")
        self.pos = after + 2
        if kind == 36:
            return self.data[start:after]
        if kind == 33:
            return _error(self.data[start:after])
        if length < 4 or self.data[start + 3] != 58:
            self._refuse("verbatim string without a format")
        return self.data[start + 4 : after]

    @cython.cfunc
    def _open(self, kind: cython.int, end: cython.Py_ssize_t) -> object:
        """Push the aggregate whose count line ends at `end`; return an empty one as a value."""
        total: cython.Py_ssize_t = self._count(end)
        self.pos = end + 2
        if total < 0:
            if kind != 42:
                self._refuse("negative length")
            return None
        if total > 0:
            self._push(kind, 2 * total if kind == 37 or kind == 124 else total)
            return _OPENED
        if kind == 42:
            return []
        if kind == 37:
            return {}
        if kind == 126:
            return set()
        return _OPENED if kind == 124 else Push()

    @cython.cfunc
    def _count(self, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the count on the line from pos to `end`, or -1 for a null."""
        text: bytes = self.data[self.pos + 1 : end]
        if text == b"-1":
            return -1
        if not text.isdigit() or len(text) > 17:
            self._refuse(f"invalid length {text[:32]!r}")
        return int(text)

    @cython.cfunc
    def _number(self, text: bytes) -> object:
        """Convert the decimal text of an integer or a big number."""
        digits: bytes = text[1:] if text.startswith((b"-", b"+")) else text
        if digits.isdigit():
            try:
                return int(text)
            except ValueError:  # the number has more digits than sys.set_int_max_str_digits allows
                pass
        self._refuse(f"invalid number {text[:32]!r}")
        return None

    @cython.cfunc
    def _double(self, text: bytes) -> object:
        """Convert the text of a double: a decimal number, inf, -inf or nan."""
        if text == b"inf" or text == b"-inf" or text == b"nan" or text == b"-nan" or _DOUBLES.issuperset(text):
            try:
                return float(text)
            except ValueError:
                pass
        self._refuse(f"invalid double {text[:32]!r}")
        return None

    @cython.cfunc
    def _refuse(self, reason: str) -> cython.bint:
        """Raise a ProtocolError and drop the partially parsed reply."""
        self.top = None
        self.depth = 0
        return self.refuse("Protocol error: " + reason)


@cython.cfunc
def _error(line: bytes) -> object:
    """Return an error reply; bytes that are not UTF-8 become escapes."""
    return ReplyError(line.decode("utf-8", "backslashreplace"))


def parse_all(data: bytes) -> list[Any]:
    """Return all replies in the bytes; raise ProtocolError if the last one is incomplete. O(bytes)"""
    parser = ReplyParser()
    parser.feed(data)
    replies: list[Any] = []
    while (reply := parser.next()) is not INCOMPLETE:
        replies.append(reply)
    if parser.buffered or parser.half_parsed:
        raise ProtocolError("Protocol error: the last reply is truncated")
    return replies
