"""MONITOR: every command that runs, as a line to the clients that watch (replication.c, replicationFeedMonitors).

    +1700000000.123456 [0 127.0.0.1:50000] "SET" "key" "a \\"value\\""\\r\\n
      time, seconds     database and client, "lua" for a command of a script, "unix:" and a path for a Unix socket

A command is shown after it ran, so those of a transaction precede EXEC. Commands with the flags `admin` or
`skip_monitor` are hidden, refused commands too. Passwords are
hidden (runtime/redaction.py).

Costs: nothing while no client watches (Engine.observed). Otherwise O(bytes of the command + clients that watch): one
line is written, from the arguments' bytes, and copied to each client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rillet._cython import cython, readonly
from rillet.keyspace.clock import Clock
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime import session_state
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.integer_text import put_decimal
from rillet.structs.memory import copy_part

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine

_IN_SCRIPT = cython.declare(cython.int, session_state.IN_SCRIPT)
_CLOSED = cython.declare(cython.int, session_state.CLOSING | session_state.MUTED)
_NAMED = {0x5C: b"\\\\", 0x22: b'\\"', 10: b"\\n", 13: b"\\r", 9: b"\\t", 7: b"\\a", 8: b"\\b"}
# The escape of each byte that is not printable (sds.c: sdscatrepr).
_ESCAPES = cython.declare(list, [_NAMED.get(byte, b"\\x%02x" % byte) for byte in range(256)])
_AROUND = cython.declare(cython.Py_ssize_t, 96)  # the bytes of the time and the database, with room for a number


@cython.final
@cython.cclass
class Monitors:
    """The sessions of one engine that watch its commands, in the order of their MONITOR."""

    __slots__ = ("sessions", "_address", "_client", "_clock", "_engine", "_line")
    _engine: CommandEngine
    _clock: Clock
    _line: ReplyWriter
    _client: cython.longlong
    _address: bytes
    sessions: readonly[list[Session]]

    def __init__(self, engine: CommandEngine) -> None:
        self._engine = engine
        self._clock = engine.clock
        self._line = ReplyWriter()
        # The client of the last line, by its ID.
        self._client = -1
        self._address = b""
        self.sessions = []

    def add(self, session: Session) -> None:
        """Let a session watch."""
        self.sessions.append(session)
        session.enter("monitor")
        self._engine.observe()

    def forget(self, session: Session) -> None:
        """Remove a session, if it watches."""
        if session in self.sessions:
            self.sessions.remove(session)
            session.enter("stop monitoring")
            self._engine.observe()

    @cython.cfunc
    def feed(self, session: Session, words: ArgumentSpans, current: Session) -> cython.bint:
        """Send a line about a command; `current` is the client whose outermost command runs."""
        i: cython.Py_ssize_t
        now: cython.longlong = self._clock.now_us()
        if session.id != self._client:
            self._client = session.id
            self._address = address(session)
        origin: bytes = b"lua" if session.state & _IN_SCRIPT else self._address
        line: ReplyWriter = self._line
        line.truncate(0)
        line.reserve(_AROUND + len(origin))
        buf: bytearray = line.buf
        buf[0] = 43
        at: cython.Py_ssize_t = put_decimal(buf, 1, now // 1_000_000)
        after: cython.Py_ssize_t = put_decimal(buf, at, 1_000_000 + now % 1_000_000)
        buf[at] = 46  # in place of the million, whose zeros fill up the fraction
        buf[after] = 32
        buf[after + 1] = 91
        at = put_decimal(buf, after + 2, session.db.index)
        buf[at] = 32
        copy_part(buf, at + 1, origin, 0, len(origin))
        at += 1 + len(origin)
        buf[at] = 93
        line.used = at + 1
        for i in range(words.count):
            self._put_word(words, i)
        line.raw(b"\r\n")
        text: bytes = line.take_bytes()
        watcher: Session
        for watcher in list(self.sessions):
            if not watcher.state & _CLOSED:
                watcher.out.raw(text)
                if watcher is not current and watcher.on_message is not None:
                    watcher.on_message()
        return True

    @cython.cfunc
    def _put_word(self, words: ArgumentSpans, index: cython.Py_ssize_t) -> cython.bint:
        """Append a blank and an argument in double quotes, with escapes for the bytes that are not printable. O(n)"""
        i: cython.Py_ssize_t
        line: ReplyWriter = self._line
        size: cython.Py_ssize_t = words.size[index]
        line.reserve(4 * size + 3)
        word: cython.p_const_uchar = words.at[index]
        buf: bytearray = line.buf
        at: cython.Py_ssize_t = line.used
        buf[at] = 32
        buf[at + 1] = 34
        at += 2
        for i in range(size):
            byte: cython.int = word[i]
            if 32 <= byte < 127 and byte != 34 and byte != 92:
                buf[at] = byte
                at += 1
            else:
                escape: bytes = _ESCAPES[byte]
                copy_part(buf, at, escape, 0, len(escape))
                at += len(escape)
        buf[at] = 34
        line.used = at + 1
        return True


def address(session: Session) -> bytes:
    """Return the client's address: ip:port, unix:path, or ?:0 for a session without a socket."""
    peer = session.address("peer")
    return b"unix:" + peer.removesuffix(b":0") if getattr(session.transport, "unix", False) else peer
