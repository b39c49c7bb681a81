"""The commands of one engine by name, and their implementations.

    b"xadd" -> Command (runtime/registry.py, shared by all engines) -> Implementation (one for each engine)

A name may be renamed or removed (rename-command), unknown to `compat`, or belong to a module.
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython
from rillet.errors import CommandError
from rillet.keyspace.clock import Clock
from rillet.runtime.expiry import Expiry
from rillet.runtime.implementation import Implementation
from rillet.runtime.registry import TABLE, Command
from rillet.runtime.settings.settings import Settings
from rillet.structs.argument_spans import ArgumentSpans

_MAX_CACHED_NAMES = 4096


@cython.cclass
class CommandFinder(Expiry):
    """Finding commands; a part of the engine."""

    __slots__ = ("_by_name", "_implementations", "_last_entry", "_renamed", "_spans")
    _renamed: dict[bytes, Command | None]
    _by_name: dict[bytes, Command]
    _last_entry: Command | None
    _implementations: list[Any]
    _spans: list[ArgumentSpans]

    def __init__(self, settings: Settings, clock: Clock) -> None:
        Expiry.__init__(self, settings, clock)
        self._by_name = {}
        # The last command: clients repeat a command, and comparing a name costs less than hashing it.
        self._last_entry = None
        # By Command.index, None before the first call.
        self._implementations = []
        # The commands under other names; None: the name is removed.
        self._renamed = {}
        self._spans = []  # that no call uses

    @cython.ccall
    def take_spans(self) -> ArgumentSpans:
        """Return argument spans for the words of one call, which `give_spans` gives back."""
        spare: list[ArgumentSpans] = self._spans
        return spare.pop() if spare else ArgumentSpans()

    @cython.ccall
    def give_spans(self, words: ArgumentSpans) -> cython.bint:
        """Keep argument spans for another call."""
        words.begin(False)
        self._spans.append(words)
        return True

    # -- looking up commands -------------------------------------------------------------------------

    @cython.ccall
    def command_of(self, words: ArgumentSpans) -> Command | None:
        """Return the command or subcommand that the words call, the container if the subcommand is unknown, or None."""
        entry: Command | None = self._last_entry
        if entry is None or not words.is_option(0, entry.word):  # clients repeat a command
            name: bytes = words.get(0)
            entry = self._by_name.get(name)
            self._last_entry = entry if entry is not None and words.is_option(0, entry.word) else None
            if entry is None:
                entry = self._find(name)
        if entry is not None and entry.subcommands is not None and words.count > 1:
            return self._find_subcommand(entry, words.get(1))
        return entry

    @cython.cfunc
    def _implementation(self, entry: Command) -> Implementation:
        """Return the implementation of a command for this engine."""
        known: list[Any] = self._implementations
        if 0 <= entry.index < len(known) and known[entry.index] is not None:
            cached: Implementation = known[entry.index]
            if cached.command is entry:
                return cached
        found: Implementation = entry.implementation()
        found.command = entry
        if entry.index >= 0 and not entry.module:
            known += [None] * (entry.index + 1 - len(known))
            known[entry.index] = found
        return found

    @cython.ccall
    def lookup(self, argv: list[bytes]) -> Command | None:
        """Return the command or subcommand that the words call, the container if the subcommand is unknown, or None."""
        entry: Command | None = self._by_name.get(argv[0])
        if entry is None:
            entry = self._find(argv[0])
        if entry is not None and entry.subcommands is not None and len(argv) > 1:
            return self._find_subcommand(entry, argv[1])
        return entry

    @cython.cfunc
    def _find(self, name: bytes) -> Command | None:
        entry = TABLE.get(name.lower())
        if self._renamed and not (self.loading and entry is not None):
            # A log contains commands that were rewritten with their own names.
            entry = self._renamed.get(name.lower(), entry)
        if entry is None and self.modules is not None:
            entry = self.modules.commands.get(name.lower())
        if entry is None:
            return None
        if not entry.known_to(self.settings.compat):
            return entry if self.loading else None  # a log may contain commands that the current `compat` lacks
        if len(self._by_name) < _MAX_CACHED_NAMES and not (self._renamed and self.loading):
            self._by_name[name] = entry
        return entry

    def rename_command(self, old: bytes, new: bytes) -> None:
        """Give a command another name, or remove it if that is empty (redis.conf: rename-command); CommandError."""
        old, new = old.lower(), new.lower()
        entry = self._find(old)
        if entry is None:
            raise CommandError("No such command in rename-command")
        if new and self._find(new) is not None:
            raise CommandError("Target command name already exists")
        self._renamed[old] = None
        if new:
            self._renamed[new] = entry
        self._by_name.clear()
        self._last_entry = None

    def narrow(self, narrowing: Any) -> None:
        """Rewrite effects for older replicas from now on (rillet.replication.older_replicas); None: for none."""
        self.propagation.narrow = narrowing
        self.propagation.forms = {}

    @cython.cfunc
    def _find_subcommand(self, entry: Command, name: bytes) -> Command:
        assert entry.subcommands is not None
        subcommand = entry.subcommands.get(name)
        if subcommand is None:
            subcommand = entry.subcommands.get(name.lower())
        if subcommand is None or not (self.loading or subcommand.known_to(self.settings.compat)):
            return entry
        return subcommand
