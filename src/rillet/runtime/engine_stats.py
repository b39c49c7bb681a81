"""The stats of one engine: INFO commandstats, errorstats and counters of INFO stats.

    EngineStats ── commands[Command.index] ──► CommandStats      calls, nanoseconds, rejected, failed, histogram
                ── errors["WRONGTYPE"]                            error replies by their first word
                ── commands_processed, error_replies, expired_keys, expired_keys_active

A declaration (`registry.Command`) is shared by all engines of a process, so it holds no counters. The position of
a command in the table finds its counters in each engine: one list access per call.

CONFIG RESETSTAT calls `reset` (Redis: server.c, resetServerStats).
"""

from __future__ import annotations

from rillet._cython import cython, public, readonly
from rillet.runtime.latency_histogram import LatencyHistogram
from rillet.runtime.registry import Command
from rillet.types.compat import Compat

_SEARCHED = 31  # characters in which the first word of an error ends
_MOST_ERRORS = 128  # words of errors that are counted (ERROR_STATS_NUMBER)
_DISABLED = "ERRORSTATS_DISABLED"


@cython.final
@cython.cclass
class CommandStats:
    """The counters of one command in one engine (server.h: the statistics in struct redisCommand)."""

    __slots__ = ("calls", "nanoseconds", "rejected", "failed", "slow", "slow_us", "slowest_us", "histogram")
    calls: public[cython.longlong]
    nanoseconds: public[cython.longlong]
    rejected: public[cython.longlong]
    failed: public[cython.longlong]
    slow: public[cython.longlong]
    slow_us: public[cython.longlong]
    slowest_us: public[cython.longlong]
    histogram: public[LatencyHistogram | None]

    def __init__(self) -> None:
        self.calls = 0
        self.nanoseconds = 0
        # Calls that were refused before the handler ran, for example by the arity check.
        self.rejected = 0
        # Calls in which the handler replied with an error.
        self.failed = 0
        # Calls in the slow log: their number, the sum of their durations, and the longest (microseconds).
        self.slow = 0
        self.slow_us = 0
        self.slowest_us = 0
        # The durations of the calls, or None before the first one.
        self.histogram = None

    @cython.ccall
    def count(self, nanoseconds: cython.longlong, times: cython.longlong, tracked: cython.bint) -> cython.bint:
        """Count calls that took so long together; tracked: also in the histogram, which counts their average."""
        self.calls += times
        self.nanoseconds += nanoseconds
        if tracked:
            if self.histogram is None:
                self.histogram = LatencyHistogram()
            self.histogram.record(nanoseconds if times == 1 else nanoseconds // times, times)
        return True

    def track(self, nanoseconds: int, tracked: bool) -> None:
        """Count the time of a call in the histogram only."""
        if tracked:
            if self.histogram is None:
                self.histogram = LatencyHistogram()
            self.histogram.record(nanoseconds, 1)


@cython.final
@cython.cclass
class EngineStats:
    """The counters of one engine."""

    __slots__ = ("commands", "errors", "commands_processed", "error_replies", "expired_keys", "expired_keys_active",
                 "expired_fields", "expired_fields_active", "retention_removed", "slow", "slow_us", "slowest_us",
                 "turns", "turn_commands", "most_commands", "busy_ns", "longest_ns", "cron_ns", "log_ns",
                 "input_limit_hits", "output_limit_hits", "buffer_shrinks")  # fmt: skip
    commands: readonly[list[CommandStats]]
    errors: readonly[dict[str, int]]
    slow: public[cython.longlong]
    slow_us: public[cython.longlong]
    slowest_us: public[cython.longlong]
    commands_processed: public[cython.longlong]
    error_replies: public[cython.longlong]
    expired_keys: public[cython.longlong]
    retention_removed: public[cython.longlong]
    expired_keys_active: public[cython.longlong]
    expired_fields: public[cython.longlong]
    expired_fields_active: public[cython.longlong]
    buffer_shrinks: public[cython.longlong]
    input_limit_hits: public[cython.longlong]
    output_limit_hits: public[cython.longlong]
    turns: public[cython.longlong]
    turn_commands: public[cython.longlong]
    most_commands: public[cython.longlong]
    busy_ns: public[cython.longlong]
    longest_ns: public[cython.longlong]
    cron_ns: public[cython.longlong]
    log_ns: public[cython.longlong]

    def __init__(self) -> None:
        self.commands = []
        self.reset()

    def reset(self) -> None:
        """Set every counter to 0. O(number of commands)"""
        self.commands = [CommandStats() for _ in self.commands]
        self.errors = {}
        self.commands_processed = 0
        self.error_replies = 0
        self.expired_keys = 0
        # Entries that the retention of streams has removed.
        self.retention_removed = 0
        # Those that the expiry cycle deleted.
        self.expired_keys_active = 0
        # Fields of hashes, in all ways and by the expiry cycle (expired_subkeys, expired_subkeys_active).
        self.expired_fields = 0
        self.expired_fields_active = 0
        # Output buffers that the periodic job made smaller (reply_buffer_shrinks).
        self.buffer_shrinks = 0
        # The turns of clients that ran commands: their number, the commands, the most commands of one turn; nanoseconds
        # of all turns, of the longest turn, of the periodic jobs, and of writing the log.
        self.turns = self.turn_commands = self.most_commands = 0
        self.busy_ns = self.longest_ns = self.cron_ns = self.log_ns = 0
        # Clients that were disconnected because their input or their unread output was too large.
        self.input_limit_hits = self.output_limit_hits = 0
        # The calls in the slow log, also after SLOWLOG RESET.
        self.slow = 0
        self.slow_us = 0
        self.slowest_us = 0

    @cython.ccall
    def of_command(self, entry: Command) -> CommandStats:
        """Return the counters of a command. O(1)"""
        while len(self.commands) <= entry.index:
            self.commands.append(CommandStats())
        return self.commands[entry.index]

    @cython.ccall
    def count_turn(self, commands: cython.longlong, nanoseconds: cython.longlong) -> cython.bint:
        """Count a turn of a client."""
        self.turns += 1
        self.turn_commands += commands
        self.busy_ns += nanoseconds
        self.most_commands = max(self.most_commands, commands)
        self.longest_ns = max(self.longest_ns, nanoseconds)
        return True

    @cython.ccall
    def count_slow(self, entry: Command, microseconds: cython.longlong) -> cython.bint:
        """Count a call that the slow log contains."""
        counters: CommandStats = self.of_command(entry)
        counters.slow += 1
        counters.slow_us += microseconds
        counters.slowest_us = max(counters.slowest_us, microseconds)
        self.slow += 1
        self.slow_us += microseconds
        self.slowest_us = max(self.slowest_us, microseconds)
        return True

    def count_failure(self, entry: Command) -> None:
        """Count an error reply of a command that was blocked before."""
        counters: CommandStats = self.of_command(entry)
        counters.failed += 1

    def count_rejection(self, entry: Command) -> None:
        """Count a command that was refused before its handler ran."""
        counters: CommandStats = self.of_command(entry)
        counters.rejected += 1

    def count_error(self, text: str, compat: Compat, script: bool = False) -> None:
        """Count an error reply under its first word; script: a script chose the text.

        A text without a blank in its first 31 characters counts as ERR (networking.c: afterErrorReply). Scripts can
        create any number of words. From 7.4 on, the 129th word ends the counting until CONFIG RESETSTAT (server.c:
        incrementErrorCount); in Valkey, new words of scripts count as one then.
        """
        self.error_replies += 1
        if _DISABLED in self.errors:
            return
        prefix, blank, _ = text.rstrip("\r\n")[:_SEARCHED].replace("\r", " ").replace("\n", " ").partition(" ")
        if not blank:
            prefix = "ERR"
        if len(self.errors) >= _MOST_ERRORS and prefix not in self.errors:
            if compat.valkey:
                prefix = "ERRORSTATS_OVERFLOW" if script else prefix
            elif compat.knows(74):
                self.errors.clear()
                prefix = _DISABLED
        self.errors[prefix] = self.errors.get(prefix, 0) + 1
