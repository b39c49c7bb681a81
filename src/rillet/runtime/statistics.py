"""The counters of one engine: INFO commandstats, errorstats and the counters of INFO stats.

    Statistics ── commands[Command.index] ──► CommandCounters    calls, nanoseconds, rejected, failed
               ── errors["WRONGTYPE"]                            error replies by their first word
               ── commands_processed, error_replies, expired_keys, expired_keys_active

A declaration (`registry.Command`) is shared by all engines of a process, so it holds no counters. The position of
a command in the table finds its counters in each engine: one list access per call.

CONFIG RESETSTAT calls `reset` (Redis: server.c, resetServerStats).
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: run interpreted
    from rillet import _cython as cython

from rillet.runtime.registry import Command


@cython.final
@cython.cclass
class CommandCounters:
    """The counters of one command in one engine (server.h: the statistics in struct redisCommand)."""

    __slots__ = ("calls", "nanoseconds", "rejected", "failed")

    def __init__(self) -> None:
        self.calls = 0
        self.nanoseconds = 0
        # Calls that were refused before the handler ran, for example by the arity check.
        self.rejected = 0
        # Calls in which the handler replied with an error.
        self.failed = 0


@cython.final
@cython.cclass
class Statistics:
    """The counters of one engine."""

    __slots__ = ("commands", "errors", "commands_processed", "error_replies", "expired_keys", "expired_keys_active",
                 "expired_fields", "expired_fields_active")  # fmt: skip
    commands: list[CommandCounters]
    errors: dict[str, int]

    def __init__(self) -> None:
        self.commands = []
        self.reset()

    def reset(self) -> None:
        """Set every counter to 0. O(number of commands)"""
        self.commands = [CommandCounters() for _ in self.commands]
        self.errors = {}
        self.commands_processed = 0
        self.error_replies = 0
        self.expired_keys = 0
        # Those that the expiry cycle deleted.
        self.expired_keys_active = 0
        # Fields of hashes, in all ways and by the expiry cycle (expired_subkeys, expired_subkeys_active).
        self.expired_fields = 0
        self.expired_fields_active = 0

    @cython.ccall
    def of(self, entry: Command) -> CommandCounters:
        """Return the counters of a command. O(1)"""
        while len(self.commands) <= entry.index:
            self.commands.append(CommandCounters())
        return self.commands[entry.index]

    def count_failure(self, entry: Command) -> None:
        """Count an error reply of a command that was blocked before."""
        counters: CommandCounters = self.of(entry)
        counters.failed += 1

    def count_rejection(self, entry: Command) -> None:
        """Count a command that was refused before its handler ran."""
        counters: CommandCounters = self.of(entry)
        counters.rejected += 1

    def count_error(self, prefix: str) -> None:
        """Count an error reply under its first word (server.c: incrementErrorCount)."""
        self.error_replies += 1
        self.errors[prefix] = self.errors.get(prefix, 0) + 1


__all__ = ["CommandCounters", "Statistics"]
