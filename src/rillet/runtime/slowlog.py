"""The logs of unusual commands: slow ones and, in Valkey, those with a large request or reply (Redis: slowlog.c).

    settings.slowlog_log_slower_than   microseconds; 0 logs every command, -1 none
    settings.slowlog_max_len           the newest entries stay

    CommandLog ── slow, large_request, large_reply ──► CommandLogList ──► LoggedCommand ...

The engine measures each command anyway, for INFO commandstats. A command that is not slow costs one comparison. An
entry holds its arguments as SLOWLOG GET sends them, so a logged command costs a copy of its bytes, and no object for an
argument. A full log uses the object of its oldest entry again.

Consecutive calls of one command are measured in chunks of four kilobytes of input, about 0.02 milliseconds of work. The
time of a slow chunk is that of its longest call, because one call of the chunk took nearly all of it. With a threshold
below a millisecond the engine measures each call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rillet._cython import cython, public, readonly
from rillet.keyspace.clock import Clock
from rillet.protocol.command_parser import CommandParser
from rillet.protocol.reply_writer import ReplyWriter, count_digits
from rillet.runtime import registry, session_state
from rillet.runtime.engine_stats import EngineStats
from rillet.runtime.hotkeys import record as record_hot_keys
from rillet.runtime.registry import Command
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine

SLOW, LARGE_REQUEST, LARGE_REPLY = "slow", "large-request", "large-reply"
_IN_SCRIPT = cython.declare(cython.int, session_state.IN_SCRIPT)
_UNLOGGED = cython.declare(cython.int, registry.UNLOGGED)
_NEVER = cython.declare(cython.longlong, 2**62)
# The limit below which each call is measured (ns).
_FINEST_TIME = cython.declare(cython.longlong, 1_000_000)


@cython.final
@cython.cclass
class LoggedCommand:
    """A command in a log: its number, time (s), value (microseconds or bytes), words (RESP), client's address, name."""

    __slots__ = ("address", "name", "number", "time", "value", "words")
    number: readonly[cython.longlong]
    time: readonly[cython.longlong]
    value: readonly[cython.longlong]
    words: readonly[bytes]
    address: readonly[bytes]
    name: readonly[bytes]


@cython.final
@cython.cclass
class CommandLogList:
    """One log: `entries`, at most `most`, whose value is at least `least`; a ring, the oldest after the newest.

    The numbers of the entries continue after a reset.
    """

    __slots__ = ("entries", "least", "most", "_newest", "_next_number")
    entries: readonly[list[LoggedCommand]]
    least: readonly[cython.longlong]
    most: readonly[cython.Py_ssize_t]
    _next_number: cython.longlong
    _newest: cython.Py_ssize_t

    def __init__(self) -> None:
        self.entries = []
        self._newest = -1
        self.least = _NEVER
        self.most = 0
        self._next_number = 0

    def limit(self, least: int, most: int) -> int:
        """Set the limits, -1 and 0 for none; return the value from which on a command is logged."""
        self.least = least if least >= 0 and most else _NEVER
        self.most = most
        self.entries = self.newest(-1)[::-1]
        self._newest = len(self.entries) - 1
        return self.least

    @cython.cfunc
    def _next(self) -> LoggedCommand:
        """Add an entry, which the caller fills, and drop the oldest ones beyond `most`."""
        entry: LoggedCommand
        if len(self.entries) > self.most:  # the limit has changed: the oldest is the first one
            del self.entries[: len(self.entries) - self.most]
            self._newest = self.most - 1
        if len(self.entries) < self.most:
            entry = LoggedCommand()
            self.entries.append(entry)
            self._newest = len(self.entries) - 1
        else:
            self._newest = self._newest + 1 if self._newest + 1 < self.most else 0
            entry = self.entries[self._newest]
        entry.number = self._next_number
        self._next_number += 1
        return entry

    def newest(self, count: int) -> list[LoggedCommand]:
        """Return the newest entries, all of them if the count is negative."""
        most = len(self.entries)
        return [self.entries[(self._newest - i) % most] for i in range(most if count < 0 else min(count, most))]


@cython.final
@cython.cclass
class CommandLog:
    """The logs of one engine, and what else measures single commands: the latency monitor and HOTKEYS.

    slow_ns, large: a command that takes so many nanoseconds, or whose request or reply has so many bytes, is unusual.
    each: measure each call. hotkeys: the session of HOTKEYS, or None.
    """

    __slots__ = ("each", "hotkeys", "large", "logs", "slow_ns", "_address", "_client", "_clock", "_engine", "_longest",
                 "_monitored_ns", "_most_words", "_replies", "_requests", "_slow", "_statistics", "_text")  # fmt: skip
    _engine: CommandEngine
    _clock: Clock
    _statistics: EngineStats
    _text: ReplyWriter
    _client: cython.longlong
    _address: bytes
    _most_words: cython.Py_ssize_t
    _longest: cython.Py_ssize_t
    logs: readonly[dict[str, CommandLogList]]
    each: readonly[cython.bint]
    slow_ns: readonly[cython.longlong]
    large: readonly[cython.longlong]
    _monitored_ns: cython.longlong
    hotkeys: public[Any]
    _slow: CommandLogList
    _requests: CommandLogList
    _replies: CommandLogList

    def __init__(self, engine: CommandEngine) -> None:
        self._engine = engine
        self._clock = engine.clock
        self._statistics = engine.stats
        self._text = ReplyWriter()
        self.hotkeys = None
        # The client of the last entry, by its ID.
        self._client = -1
        self._address = b""
        self._slow, self._requests, self._replies = CommandLogList(), CommandLogList(), CommandLogList()
        self.logs = {SLOW: self._slow, LARGE_REQUEST: self._requests, LARGE_REPLY: self._replies}

    def take_settings(self, monitored_ns: int) -> None:
        """Take the limits, with the time from which on the latency monitor records a command."""
        settings = self._engine.settings
        valkey = settings.compat.valkey
        self._most_words = settings.slowlog_entry_max_argc
        self._longest = settings.slowlog_entry_max_string_len
        slow = self._slow.limit(settings.slowlog_log_slower_than, settings.slowlog_max_len)
        self.large = min(
            self._requests.limit(
                settings.commandlog_request_larger_than if valkey else -1, settings.commandlog_large_request_max_len
            ),
            self._replies.limit(
                settings.commandlog_reply_larger_than if valkey else -1, settings.commandlog_large_reply_max_len
            ),
        )
        self._monitored_ns = monitored_ns
        self.slow_ns = min(slow * 1000, monitored_ns)
        if self.hotkeys is not None and self.hotkeys.active:
            self.slow_ns = 0
        self.each = self.slow_ns < _FINEST_TIME or self.large < _NEVER

    @cython.cfunc
    def record(
        self, session: Session, entry: Command, words: ArgumentSpans, nanoseconds: cython.longlong,
        reply: cython.longlong,
    ) -> cython.bint:  # fmt: skip
        """Record a call that is slow or large, with the bytes of its reply. One that blocks is logged when it ends."""
        request: cython.longlong = 0
        if self.large < _NEVER or self.hotkeys is not None:
            request = request_size(words)
        if nanoseconds < self.slow_ns and max(request, reply) < self.large:
            return True
        if self.hotkeys is not None and self.hotkeys.active:
            now = self._clock.now_ms()
            record_hot_keys(self.hotkeys, now, entry, words.to_list(), nanoseconds // 1000, request + reply)
        if nanoseconds >= self._monitored_ns:
            self._engine.latency.add(b"fast-command" if "fast" in entry.flags else b"command", nanoseconds)
        return session.blocked is not None or self._record(session, entry, words, nanoseconds, request, reply)

    @cython.ccall
    def record_list(
        self, session: Session, entry: Command, argv: list[bytes], nanoseconds: cython.longlong
    ) -> cython.bint:
        """Log a call that is slow, and whose client was blocked."""
        words = ArgumentSpans()
        words.point_to(argv, 0, len(argv))
        return self._record(session, entry, words, nanoseconds, 0, 0)

    @cython.cfunc
    def record_longest(
        self, session: Session, entry: Command, received: bytes, nanoseconds: cython.longlong
    ) -> cython.bint:
        """Record the longest of the calls in a chunk that is slow: one of them took nearly all of the time."""
        parser = CommandParser()
        parser.feed(received)
        longest: list[bytes] = []
        while argv := parser.next():
            if sum(map(len, argv)) > sum(map(len, longest)):
                longest = argv
        words = ArgumentSpans()
        words.point_to(longest, 0, len(longest))
        return self.record(session, entry, words, nanoseconds, 0)

    @cython.cfunc
    def _record(
        self, session: Session, entry: Command, words: ArgumentSpans, nanoseconds: cython.longlong,
        request: cython.longlong, reply: cython.longlong,
    ) -> cython.bint:  # fmt: skip
        microseconds: cython.longlong = nanoseconds // 1000
        if entry.traits & _UNLOGGED:
            return True
        if microseconds >= self._slow.least:
            self._add(self._slow, session, words, microseconds)
            self._statistics.count_slow(entry, microseconds)
        if request >= self._requests.least:
            self._add(self._requests, session, words, request)
        if reply >= self._replies.least:
            self._add(self._replies, session, words, reply)
        return True

    @cython.cfunc
    def _add(
        self, log: CommandLogList, session: Session, words: ArgumentSpans, value: cython.longlong
    ) -> cython.bint:
        if session.state & _IN_SCRIPT and self._engine.settings.compat.valkey:
            session = self._engine.scripts.calls.caller or session  # the client that called the script
        if session.id != self._client:
            self._client = session.id
            self._address = session.address("peer")
        text: bytes = self._shortened(words)
        entry: LoggedCommand = log._next()
        entry.time = self._clock.now_us() // 1_000_000
        entry.value = value
        entry.words = text
        entry.address = self._address
        entry.name = session.name
        return True

    @cython.cfunc
    def _shortened(self, words: ArgumentSpans) -> bytes:
        """Return the first arguments, cut at a length, with the numbers of omitted arguments and bytes; as RESP."""
        i: cython.Py_ssize_t
        text: ReplyWriter = self._text
        kept: cython.Py_ssize_t = words.count if words.count <= self._most_words else self._most_words - 1
        text.truncate(0)
        text.array(min(words.count, self._most_words))
        for i in range(kept):
            left: cython.Py_ssize_t = words.size[i] - self._longest
            if left > 0:
                text.bulk(words.at[i][: self._longest] + f"... ({left} more bytes)".encode())
            elif cython.compiled:
                text.bulk_span(words.at[i], words.size[i])
            else:
                text.bulk(words.at[i])
        if kept < words.count:
            text.bulk(f"... ({words.count - kept} more arguments)".encode())
        return text.take_bytes()


@cython.cfunc
@cython.exceptval(check=False)
def request_size(words: ArgumentSpans) -> cython.Py_ssize_t:
    """Return the bytes of a command in RESP. O(arguments)"""
    i: cython.Py_ssize_t
    size: cython.Py_ssize_t = 3 + count_digits(words.count)
    for i in range(words.count):
        size += words.size[i] + 5 + count_digits(words.size[i])
    return size
