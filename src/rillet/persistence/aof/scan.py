"""Finds the commands, the transactions and the times in a file of a log without executing anything.

    #TS:1700000000   *2 SELECT 0   *3 SET k v   *1 MULTI   *2 INCR a   #TS:1700000001   *1 EXEC   *3 SET k w ...
                                             ▲ good (limit 1700000000)                          ▲ good (no limit)

`good` is the end of the last complete command or note outside a transaction: a log may be cut there. With a `limit`,
the scan stops at the first time after the limit, so `good` is then the end of what was logged up to that second, as
with `redis-check-aof --truncate-to-timestamp`. A transaction that ends after the limit is left out as a whole; that
program would cut it in two.

Values are skipped by their lengths, so memory is constant and the cost is O(commands), not O(bytes). This module is
compiled, because a log may contain millions of commands.
"""

from __future__ import annotations

from rillet._cython import cython, readonly
from rillet.errors import LogCorrupt

_LONGEST_LINE = cython.declare(cython.Py_ssize_t, 4096)
_MOST_DIGITS = cython.declare(cython.Py_ssize_t, 18)


@cython.final
@cython.cclass
class CommandScan:
    """The scan of one file, from the offset `start`; errors name the file's `path`.

    limit: the last second to include, -1 for all. last: the last time read (at or before the limit), -1 for none;
    first: the first one. beyond: the time after the limit at which the scan stopped, or -1. frame: the offset of the
    last frame's header line, or -1. commands: the number of commands before `good`.
    """

    __slots__ = ("path", "limit", "good", "commands", "first", "last", "beyond", "frame", "_here", "_rest", "_left",
                 "_skip", "_named", "_ending", "_open", "_inside")  # fmt: skip
    path: readonly[str]
    limit: readonly[cython.longlong]
    good: readonly[cython.longlong]
    commands: readonly[cython.longlong]
    first: readonly[cython.longlong]
    last: readonly[cython.longlong]
    beyond: readonly[cython.longlong]
    frame: readonly[cython.longlong]
    _here: cython.longlong
    _rest: bytes
    _left: cython.longlong
    _skip: cython.longlong
    _named: cython.bint
    _ending: cython.bint
    _open: cython.bint
    _inside: cython.longlong

    def __init__(self, path: str, start: cython.longlong = 0, limit: cython.longlong = -1) -> None:
        self.path = path
        self.limit = limit
        self.good = self._here = start
        self.commands = 0
        self.first = self.last = self.beyond = self.frame = -1
        self._rest = b""  # an incomplete line, or the beginning of a command's name
        self._left = 0  # arguments that the current command still lacks
        self._skip = 0  # bytes that the current argument still lacks
        self._named = True  # whether the name of the current command was read
        self._ending = False  # whether the line end of an argument follows
        self._open = False  # whether a transaction is open
        self._inside = 0  # the commands of the open transaction

    @cython.ccall
    def feed(self, chunk: bytes) -> cython.bint:
        """Scan the next bytes of the file; return False at the limit. LogCorrupt if they are not commands."""
        data: bytes = self._rest + chunk
        buf: cython.p_const_uchar = data
        size: cython.Py_ssize_t = len(data)
        at: cython.Py_ssize_t = 0
        step: cython.Py_ssize_t
        while self.beyond < 0:
            if self._skip > 0:
                step = size - at
                if self._skip < step:
                    step = self._skip
                at += step
                self._skip -= step
                if self._skip > 0:
                    break
            step = self._step(data, buf, at, size)
            if step == 0:
                break
            at += step
        self._here += at
        self._rest = data[at:]
        return self.beyond < 0

    @cython.cfunc
    def _step(
        self, data: bytes, buf: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Take the line at this offset; return its length, 0 if it is incomplete."""
        end: cython.Py_ssize_t
        number: cython.longlong
        if self._ending:
            if (at < size and buf[at] != 13) or (at + 1 < size and buf[at + 1] != 10):
                raise self._malformed(at, "expected the end of an argument", data)
            if size - at < 2:
                return 0
            self._ending = False
            if self._left == 0:
                self._whole(self._here + at + 2)
            return 2
        if at >= size:
            return 0
        end = data.find(b"\n", at, at + _LONGEST_LINE)
        if end < 0:
            if size - at >= _LONGEST_LINE or not self._begins(buf, at, size):
                raise self._malformed(at, "expected an argument" if self._left else "expected a command", data)
            return 0
        end += 1
        if self._left == 0:
            if buf[at] == 35:
                if data.find(b"\0", at, end) >= 0:  # the loader would read it as an inline command
                    raise self._malformed(at, "expected a command", data)
                self._note(data[at:end], self._here + at)
                return end - at
            number = self._number(data, buf, at, end, 42)
            if number < 1:
                raise self._malformed(at, "expected a command", data)
            self._left = number
            self._named = False
            return end - at
        number = self._number(data, buf, at, end, 36)
        if number < 0:
            raise self._malformed(at, "expected an argument", data)
        if not self._named and 4 <= number <= 5:
            if size - end < number:
                return 0
            self._name(data[end : end + number].upper())
        self._named = True
        self._left -= 1
        self._skip = number
        self._ending = True
        return end - at

    @cython.cfunc
    def _begins(self, buf: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
        """Return whether these bytes, which have no line end, begin a line that may come here."""
        i: cython.Py_ssize_t
        if self._left == 0 and buf[at] == 35:
            return True
        if buf[at] != (42 if self._left == 0 else 36) or size - at > _MOST_DIGITS + 2:
            return False
        for i in range(at + 1, size):
            if not (48 <= buf[i] <= 57 or (buf[i] == 13 and i == size - 1 and i > at + 1)):
                return False
        return True

    @cython.cfunc
    def _name(self, name: bytes) -> cython.bint:
        if name == b"MULTI":
            self._open = True
            self._inside = -1  # MULTI and EXEC are not counted
        elif name == b"EXEC":
            self._open = False
            self._inside -= 1
        return True

    @cython.cfunc
    def _whole(self, end: cython.longlong) -> cython.bint:
        """Count a complete command that ends at this file offset."""
        self._inside += 1
        if not self._open:
            self.commands += self._inside
            self._inside = 0
            self.good = end
        return True

    @cython.cfunc
    def _note(self, line: bytes, offset: cython.longlong) -> cython.bint:
        """Take a line that begins with #, at this file offset."""
        second: cython.longlong
        if line.startswith(b"#RILLET:"):
            self.frame = offset
        elif line.startswith(b"#TS:") and line[4:].strip().isdigit() and len(line) < 24:
            second = int(line[4:])
            if 0 <= self.limit < second:
                self.beyond = second
                return True
            if self.first < 0:
                self.first = second
            self.last = second
        if not self._open:
            self.good = offset + len(line)
        return True

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def _number(
        self, data: bytes, buf: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t, mark: cython.int
    ) -> cython.longlong:
        """Return the number of a line `<mark><digits> CR LF`, -1 if it is another line."""
        number: cython.longlong = 0
        i: cython.Py_ssize_t
        if buf[at] != mark or end - at < 4 or end - at > _MOST_DIGITS + 3 or buf[end - 2] != 13:
            return -1
        for i in range(at + 1, end - 2):
            if buf[i] < 48 or buf[i] > 57:
                return -1
            number = number * 10 + (buf[i] - 48)
        return number

    def _malformed(self, at: int, what: str, data: bytes) -> LogCorrupt:
        return LogCorrupt(self.path, self._here + at, f"{what}, found {data[at : at + 16]!r}")
