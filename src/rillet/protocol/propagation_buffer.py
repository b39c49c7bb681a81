"""The propagation buffer: the commands to be logged, as RESP, in one growing buffer (Redis: server.aof_buf).

    #TS:1700000000\\r\\n                             the current second, if enabled and later than the last one
    *2\\r\\n$6\\r\\nSELECT\\r\\n$1\\r\\n0\\r\\n             the database of the following commands, if it changes
    *5\\r\\n$4\\r\\nXADD\\r\\n$1\\r\\ns\\r\\n$15\\r\\n170...      a command

The engine appends the effects of each command. The owner of the log (rillet.persistence.aof.log) takes the bytes before
replies are sent. The buffer does not depend on files, so it can serve a file or a replica.

`command` appends a command from a list of arguments, `spans` one from `ArgumentSpans`: it copies adjacent arguments,
including their length headers, from the bytes that the client sent. Both produce the same bytes, because the parser's
`scan` accepts only commands in Redis's own form (other clients may terminate a line or an argument with other bytes
than CR LF).

A command is whole in the buffer or not there: `command` and `deletions` reserve memory first, and the engine calls
`reserve_spans` before a command changes anything. A MemoryError then leaves no part of a command.

A second reader, the replication stream, receives the same commands without the times. It calls `pull`, at its own pace;
`take` keeps what was not pulled. `for_replicas` appends a command that this reader alone receives:

    taken │ #TS │ SELECT │ SET │ #TS │ XADD │        `take` returns all of it
          │     │ SELECT │ SET │     │ XADD │        `pull` returns this
                           pulled ▲

Invariants: `db` is the database that a reader has selected after all bytes since `forget_db`, or -1 if unknown;
`second` is the last time written since `forget_db`, 0 for none, and does not decrease
(aof.c: genAofTimestampAnnotationIfNeeded). redis-server begins a new file without the time if it is that of the last
command in the previous file; a rewrite may drop that file, and then no time of these commands is known.

Costs: each append is O(bytes), amortized; `take` copies once and keeps the buffer unless it exceeds 1 MiB. Rejected
alternative: a list of packed commands, joined when they are written (three objects and two copies per command).
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython, public, readonly
from rillet.protocol.reply_writer import ReplyWriter, count_digits
from rillet.structs.argument_spans import ArgumentSpans

_ARGUMENT = cython.declare(cython.Py_ssize_t, 24)  # the bytes of an argument's length header and line ends, at most
_BEFORE = cython.declare(cython.Py_ssize_t, 256)  # of the time, SELECT, the header and two arguments in another form


@cython.cfunc
def _size(argv: list[bytes]) -> cython.Py_ssize_t:
    """Return the most bytes that a command can take."""
    word: bytes
    need: cython.Py_ssize_t = _ARGUMENT * (len(argv) + 1)
    for word in argv:
        need += len(word)
    return need


@cython.final
@cython.cclass
class PropagationBuffer:
    """Commands to be logged; `timestamps` enables the #TS lines."""

    __slots__ = ("out", "count", "db", "second", "timestamps", "pulled", "_held", "_times")
    out: ReplyWriter
    count: public[cython.Py_ssize_t]
    db: readonly[cython.int]
    second: readonly[cython.longlong]
    timestamps: public[cython.bint]
    pulled: readonly[cython.Py_ssize_t]
    _held: list[bytes]
    _times: list[tuple[int, int]]

    def __init__(self, timestamps: cython.bint = False) -> None:
        self.out = ReplyWriter()
        self.count = 0  # the commands of `add`
        self.db = -1
        self.second = 0
        self.timestamps = timestamps
        # The bytes of the buffer that the second reader has; -1 without such a reader. `_held`: older bytes for it.
        self.pulled = -1
        self._held = []
        # The places of the lines with # that were appended since the second reader began.
        self._times = []

    def __len__(self) -> int:
        return self.out.used

    @property
    def used(self) -> int:
        """Return the number of bytes in the buffer."""
        return self.out.used

    # -- annotations between commands ----------------------------------------------------------------

    @cython.ccall
    def begin(self, db: cython.int, ms: cython.longlong) -> cython.bint:
        """Prepare for a command that changed database db at ms since the epoch (feedAppendOnlyFile)."""
        if self.timestamps:
            self.note_time(ms // 1000)
        if db != self.db:
            self.select(db)
        return True

    @cython.ccall
    def select(self, db: cython.int) -> cython.bint:
        """Append a SELECT if the following commands change another database."""
        if db != self.db:
            self.header(2)
            self.out.bulk(b"SELECT")
            self.number(db)
            self.db = db
        return True

    @cython.ccall
    def forget_db(self) -> cython.bint:
        """Make the next command start with SELECT, and with the time if enabled, as a new file requires."""
        self.db = -1
        self.second = 0
        return True

    @cython.ccall
    def note_time(self, second: cython.longlong) -> cython.bint:
        """Append a #TS line with a time in seconds since the epoch, if it is later than the last one."""
        if second > self.second:
            self.second = second
            start: cython.Py_ssize_t = self.out.used
            self.raw(b"#TS")
            self.out.integer(second)  # a colon, the number, CR LF
            if self.pulled >= 0:
                self._times.append((start, self.out.used))
        return True

    def annotate(self, line: bytes) -> None:
        """Append a line that begins with #, for the log alone."""
        start: cython.Py_ssize_t = self.out.used
        self.raw(line)
        if self.pulled >= 0:
            self._times.append((start, self.out.used))

    # -- memory --------------------------------------------------------------------------------------

    @cython.ccall
    def reserve(self, argv: list[bytes]) -> cython.bint:
        """Reserve memory for a command, with what `begin` puts before it."""
        return self.out.reserve(_BEFORE + _size(argv))

    @cython.ccall
    def reserve_transaction(self, commands: list[Any]) -> cython.bint:
        """Reserve memory for commands between MULTI and EXEC, as (database, argv), or a buffer of commands."""
        need: cython.Py_ssize_t = 2 * (_BEFORE + _ARGUMENT)
        for _, part in commands:
            need += _BEFORE + (len(part) if isinstance(part, PropagationBuffer) else _size(part))
        return self.out.reserve(need)

    @cython.ccall
    def reserve_spans(self, words: ArgumentSpans) -> cython.bint:
        """Reserve memory for a command, with what `begin` puts before it. Numbers may replace three arguments."""
        i: cython.Py_ssize_t
        need: cython.Py_ssize_t = _BEFORE
        if cython.compiled:
            if words.received and words.replaced < 0 and words.count:
                need += words.at[words.count - 1] - words.at[0] + words.size[words.count - 1]
                return self.out.reserve(need)
        for i in range(words.count):
            need += _ARGUMENT + words.size[i]
        return self.out.reserve(need)

    # -- commands ------------------------------------------------------------------------------------

    @cython.ccall
    def command(self, argv: list[bytes]) -> cython.bint:
        """Append a command as a RESP array of bulk strings."""
        word: bytes
        self.out.reserve(_size(argv))
        self.out.array(len(argv))
        for word in argv:
            self.out.bulk(word)
        return True

    @cython.ccall
    def commands(self, part: Any) -> cython.bint:
        """Append a command, or the commands of another buffer."""
        if not isinstance(part, PropagationBuffer):
            return self.command(part)
        other: PropagationBuffer = part
        return self.out.raw(other.copy())

    @cython.ccall
    def deletions(self, name: bytes, keys: list[bytes]) -> cython.bint:
        """Append a command of two arguments for each key."""
        key: bytes
        need: cython.Py_ssize_t = (len(name) + 3 * _ARGUMENT) * len(keys)
        for key in keys:
            need += len(key)
        self.out.reserve(need)
        for key in keys:
            self.out.array(2)
            self.out.bulk(name)
            self.out.bulk(key)
        return True

    @cython.ccall
    def raw(self, data: bytes) -> cython.bint:
        """Append bytes that are already RESP."""
        return self.out.raw(data)

    @cython.ccall
    def header(self, count: cython.Py_ssize_t) -> cython.bint:
        """Start a command of `count` arguments. Append the arguments next."""
        return self.out.array(count)

    @cython.ccall
    def spans(self, words: ArgumentSpans) -> cython.bint:
        """Append the command in `words`."""
        self.out.array(words.count)
        if not words.received:
            return self._single(words, 0, words.count)
        if words.replaced < 0:
            return self._adjacent(words, 0, words.count)
        self._adjacent(words, 0, words.replaced)
        self._single(words, words.replaced, words.last_replaced + 1)
        return self._adjacent(words, words.last_replaced + 1, words.count)

    @cython.ccall
    def add(self, words: ArgumentSpans) -> cython.bint:
        """Append the command in `words` and count it: all of it or, with MemoryError, nothing."""
        self.reserve_spans(words)
        self.count += 1
        return self.spans(words)

    @cython.cfunc
    def _single(self, words: ArgumentSpans, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.bint:
        """Append arguments one by one."""
        i: cython.Py_ssize_t
        for i in range(start, stop):
            if cython.compiled:
                self.out.bulk_span(words.at[i], words.size[i])
            else:
                self.out.bulk(bytes(words.at[i]))
        return True

    @cython.cfunc
    def _adjacent(self, words: ArgumentSpans, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.bint:
        """Append adjacent arguments of received bytes, with their headers."""
        if not cython.compiled:
            return self._single(words, start, stop)
        if start >= stop:
            return True
        last: cython.Py_ssize_t = stop - 1
        before: cython.Py_ssize_t = count_digits(words.size[start]) + 3  # the length header: $ digits CR LF
        at: cython.p_const_uchar = words.at[start] - before
        return self.out.append_span(at, before + (words.at[last] - words.at[start]) + words.size[last] + 2)

    @cython.ccall
    def number(self, value: cython.longlong) -> cython.bint:
        """Append an integer as an argument."""
        return self.out.bulk_int(value)

    @cython.ccall
    def stream_id(self, ms: cython.ulonglong, seq: cython.ulonglong) -> cython.bint:
        """Append a stream ID as an argument."""
        return self.out.stream_id(ms, seq)

    # -- output --------------------------------------------------------------------------------------

    @cython.ccall
    def take_bytes(self) -> bytes:
        """Return and remove all bytes. O(bytes)"""
        if self.pulled >= 0:
            self._hold()
            self.pulled = 0
        return self.out.take_bytes()

    @cython.ccall
    def copy(self) -> bytes:
        """Return all bytes, which stay. O(bytes)"""
        return self.out.copy()

    # -- the second reader ---------------------------------------------------------------------------

    @cython.ccall
    def share(self, shared: cython.bint) -> cython.bint:
        """Begin to keep later commands for a second reader, or stop; the next command begins with SELECT."""
        self._held = []
        self._times = []
        self.pulled = self.out.used if shared else -1
        return self.forget_db()

    @cython.ccall
    def pull(self) -> bytes:
        """Return the commands that the second reader does not have yet, without times. O(bytes)"""
        if self.pulled < 0:
            return b""
        self._hold()
        held: list[bytes] = self._held
        if not held:
            return b""
        self._held = []
        return held[0] if len(held) == 1 else b"".join(held)

    @cython.ccall
    def for_replicas(self, db: cython.int, part: object) -> cython.bint:
        """Append a command, or the commands of a buffer, for the second reader alone."""
        if self.pulled < 0:
            return True
        self.select(db)
        self._hold()
        start: cython.Py_ssize_t = self.out.used
        self.commands(part)
        self._hold()
        self.out.truncate(start)
        self.pulled = start
        return True

    @cython.ccall
    def for_log(self, db: cython.int, part: object, ms: cython.longlong) -> cython.bint:
        """Append a command, or the commands of a buffer, that the second reader does not receive."""
        self.begin(db, ms)
        if self.pulled >= 0:
            self._hold()
        self.commands(part)
        if self.pulled >= 0:
            self.pulled = self.out.used
        return True

    @cython.cfunc
    def _hold(self) -> cython.bint:
        """Copy the commands since `pulled` for the second reader."""
        start: cython.Py_ssize_t = self.pulled
        with memoryview(self.out.buf) as view:
            for begin, end in self._times:
                if begin > start:
                    self._held.append(bytes(view[start:begin]))
                start = end
            if start < self.out.used:
                self._held.append(bytes(view[start : self.out.used]))
        self._times = []
        self.pulled = self.out.used
        return True


__all__ = ["PropagationBuffer"]
