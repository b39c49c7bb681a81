"""The logs of unusual commands: slow ones and, in Valkey, those with a large request or reply (Redis: slowlog.c).

    settings.slowlog_log_slower_than   microseconds; 0 logs every command, -1 none
    settings.slowlog_max_len           the newest entries stay

    CommandLog ── slow, large_request, large_reply ──► CommandLogList ──► LoggedCommand ...    newest first

The engine measures each command anyway, for INFO commandstats. A command that is not slow costs one comparison.

Consecutive calls of one command are measured in chunks of four kilobytes of input, about 0.02 milliseconds of work. The
time of a slow chunk is that of its longest call, because one call of the chunk took nearly all of it. With a threshold
below a millisecond the engine measures each call.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any

from rillet.runtime.redaction import redacted
from rillet.runtime.registry import Command
from rillet.runtime.session_state import IN_SCRIPT

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine

SLOW, LARGE_REQUEST, LARGE_REPLY = "slow", "large-request", "large-reply"


class LoggedCommand:
    """A command in a log: its number, time (s), value (microseconds or bytes), arguments, client's address and name."""

    __slots__ = ("address", "argv", "name", "number", "time", "value")

    def __init__(self, number: int, time: int, value: int, argv: list[bytes], address: bytes, name: bytes) -> None:
        self.number = number
        self.time = time
        self.value = value
        self.argv = argv
        self.address = address
        self.name = name


class CommandLogList:
    """One log; `next_number` continues after a reset."""

    __slots__ = ("entries", "next_number")

    def __init__(self) -> None:
        self.entries: deque[LoggedCommand] = deque()
        self.next_number = 0

    def add(self, entry: LoggedCommand, most: int) -> None:
        """Add an entry and drop the oldest ones beyond `most`."""
        self.next_number += 1
        self.entries.appendleft(entry)
        self.trim(most)

    def trim(self, most: int) -> None:
        """Drop the oldest entries beyond `most`."""
        while len(self.entries) > most:
            self.entries.pop()

    def newest(self, count: int) -> list[LoggedCommand]:
        """Return the newest entries, all of them if the count is negative."""
        return list(self.entries if count < 0 else islice(self.entries, count))


class CommandLog:
    """The logs of one engine."""

    __slots__ = ("_engine", "logs")

    def __init__(self, engine: CommandEngine) -> None:
        self._engine = engine
        self.logs = {SLOW: CommandLogList(), LARGE_REQUEST: CommandLogList(), LARGE_REPLY: CommandLogList()}

    def record(self, session: Any, entry: Command, argv: list[bytes], microseconds: int, request: int,
               reply: int) -> None:  # fmt: skip
        """Log a call that is slow or large; request and reply are sizes in bytes."""
        settings = self._engine.settings
        if "skip_slowlog" in entry.flags:
            return
        slower_than: int = settings.slowlog_log_slower_than
        if 0 <= slower_than <= microseconds and settings.slowlog_max_len:
            self._add(SLOW, settings.slowlog_max_len, session, entry, argv, microseconds)
            self._engine.statistics.count_slow(entry, microseconds)
        if settings.compat.valkey:
            if 0 <= settings.commandlog_request_larger_than <= request and settings.commandlog_large_request_max_len:
                self._add(LARGE_REQUEST, settings.commandlog_large_request_max_len, session, entry, argv, request)
            if 0 <= settings.commandlog_reply_larger_than <= reply and settings.commandlog_large_reply_max_len:
                self._add(LARGE_REPLY, settings.commandlog_large_reply_max_len, session, entry, argv, reply)

    def _add(self, kind: str, most: int, session: Any, entry: Command, argv: list[bytes], value: int) -> None:
        engine, log = self._engine, self.logs[kind]
        words = self._shortened(redacted(entry.fullname, argv, engine.settings.compat))
        now = engine.clock.now_us() // 1_000_000
        if session.state & IN_SCRIPT and engine.settings.compat.valkey:
            session = engine.scripts.calls.caller or session  # the client that called the script
        log.add(LoggedCommand(log.next_number, now, value, words, session.address("peer"), session.name), most)

    def _shortened(self, argv: list[bytes]) -> list[bytes]:
        """Return the first arguments, cut at a length, with the numbers of omitted arguments and bytes."""
        settings = self._engine.settings
        most: int = settings.slowlog_entry_max_argc
        longest: int = settings.slowlog_entry_max_string_len
        if len(argv) <= most and max(map(len, argv)) <= longest:
            return list(argv)
        kept = argv if len(argv) <= most else argv[: most - 1]
        words = [
            word if len(word) <= longest else word[:longest] + f"... ({len(word) - longest} more bytes)".encode()
            for word in kept
        ]  # fmt: skip
        if len(kept) < len(argv):
            words.append(f"... ({len(argv) - len(kept)} more arguments)".encode())
        return words

    def limits(self) -> tuple[int, int]:
        """Return the duration in nanoseconds and the size in bytes from which on a command is logged."""
        settings = self._engine.settings
        never = 2**62
        slower_than: int = settings.slowlog_log_slower_than
        slow = slower_than * 1000 if slower_than >= 0 and settings.slowlog_max_len else never
        sizes = [never]
        if settings.compat.valkey:
            for larger_than, most in (
                (settings.commandlog_request_larger_than, settings.commandlog_large_request_max_len),
                (settings.commandlog_reply_larger_than, settings.commandlog_large_reply_max_len),
            ):
                if larger_than >= 0 and most:
                    sizes.append(larger_than)
        return min(slow, never), min(sizes)


def request_size(argv: list[bytes]) -> int:
    """Return the bytes of a command in RESP. O(arguments)"""
    return 3 + len(str(len(argv))) + sum(len(word) + 5 + len(str(len(word))) for word in argv)


__all__ = ["LARGE_REPLY", "LARGE_REQUEST", "SLOW", "CommandLog", "CommandLogList", "LoggedCommand", "request_size"]
