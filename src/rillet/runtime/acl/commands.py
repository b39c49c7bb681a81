"""The commands that rules can name: positions in the bits of a selector, and the commands of each category.

    position of a command    Command.index, also for commands of modules
    position of a name of    4096 and above: the vector sets of Redis 8. Rules name these commands, so an ACL file of
    _ABSENT                  Redis can be loaded, and its text stays the same

A set of commands is a number with one bit for each position. `+@all` is -1: all bits, also those of commands that
a module adds later. A category contains the commands with its name; a rule with a category also changes all
subcommands of a container in it (acl.c: ACLSetSelectorCommandBitsForCategory calls ACLChangeSelectorPerm).

The number of commands in each category decides how Redis 7.0 describes a user. rillet's own commands (`rillet.*`) are
not counted, so that the description is Redis's.

The set of a version takes milliseconds to compute, and imports all commands. So it is computed when a rule names some
commands, and all engines share it (`command_set`). Modules extend a copy.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from rillet.runtime.acl.categories import categories, category_names
from rillet.runtime.registry import TABLE, Command
from rillet.types.compat import Compat

_FIRST_ABSENT = 4096
# The commands that rillet lacks, by the level of Redis that has them; they are in no category.
_ABSENT = {
    80: b"vadd vcard vdim vemb vgetattr vinfo vismember vlinks vrandmember vrem vsetattr vsim",
    86: b"vrange",
}


_TABLES = ("_applied", "_by_name", "_members", "_names", "_parts", "counted")


class CommandSet:
    """The commands of one version."""

    __slots__ = (*_TABLES, "categories", "compat", "databases")

    def __init__(self, compat: Compat, databases: int) -> None:
        self.compat = compat
        self.databases = databases
        self.categories: tuple[str, ...] = category_names(compat)

    def __getattr__(self, name: str) -> Any:
        """Compute the tables when one of them is first read: an engine without rules never needs them."""
        if name not in _TABLES:
            raise AttributeError(name)
        filled = CommandSet(self.compat, self.databases)
        filled._fill()
        for table in _TABLES:
            setattr(self, table, getattr(filled, table))
        return getattr(self, name)

    def _fill(self) -> None:
        # Position -> name; name -> position; position of a container -> the bits of its subcommands.
        self._names: dict[int, bytes] = {}
        self._by_name: dict[bytes, int] = {}
        self._parts: dict[int, int] = {}
        # The bits of each category: of its commands, of those that are counted, and with all subcommands.
        self._members = dict.fromkeys(self.categories, 0)
        self.counted = dict.fromkeys(self.categories, 0)
        self._applied = dict.fromkeys(self.categories, 0)
        for entry in TABLE.known(self.compat):
            self._add_command(entry)
        self._add_absent()

    def with_modules(self, modules: dict[bytes, Command]) -> CommandSet:
        """Return a copy with the commands of modules."""
        other: CommandSet = object.__new__(CommandSet)
        other.compat, other.databases, other.categories = self.compat, self.databases, self.categories
        other._names, other._by_name, other._parts = dict(self._names), dict(self._by_name), dict(self._parts)
        other._members, other.counted, other._applied = dict(self._members), dict(self.counted), dict(self._applied)
        for entry in modules.values():
            other._add_command(entry)
        return other

    @property
    def data(self) -> int:
        """The commands that use the data of a database."""
        return self._members["keyspace"] | self._members["read"] | self._members["write"]

    def _add_command(self, entry: Command) -> None:
        parts = [one for one in (entry.subcommands or {}).values() if one.known_to(self.compat)]
        for one in (entry, *parts):
            # In Redis 7.0, categories do not include the commands of modules.
            skipped = one.module and not self.compat.knows(72)
            found = [] if skipped else categories(one, self.compat)
            self._add(one.fullname.lower().encode(), one.index, tuple(found), not one.fullname.startswith("rillet."))

    def _add(self, name: bytes, position: int, categories: tuple[str, ...], counted: bool = True) -> None:
        bit = 1 << position
        self._names[position] = name
        self._by_name[name] = position
        container = self._by_name.get(name.partition(b"|")[0], -1)
        if b"|" in name:
            self._parts[container] = self._parts.get(container, 0) | bit
        for category in categories:
            if category not in self._members:
                continue
            self._members[category] |= bit
            self._applied[category] |= bit
            if counted:
                self.counted[category] |= bit
        if b"|" in name and container >= 0:  # a rule with the container's category changes this subcommand, too
            for category in self.categories:
                if self._members[category] >> container & 1:
                    self._applied[category] |= bit

    def _add_absent(self) -> None:
        at = _FIRST_ABSENT
        for level, names in _ABSENT.items():
            for name in names.split():
                at += 1
                if self.compat.knows(level) and not self.compat.valkey:
                    self._add(name, at, ())

    # -- names ---------------------------------------------------------------------------------------

    def find(self, name: bytes) -> int:
        """Return the position of a command (`get`, `CONFIG|Get`), or -1 (acl.c: ACLLookupCommand)."""
        return self._by_name.get(name.lower(), -1)

    def name(self, position: int) -> bytes:
        """Return the full name of a command."""
        return self._names[position]

    def parts(self, position: int) -> int:
        """Return the bits of a container's subcommands; 0 for another command."""
        return self._parts.get(position, 0)

    def is_part(self, position: int) -> bool:
        """Return whether the command is a subcommand."""
        return b"|" in self._names[position]

    def in_order(self) -> list[int]:
        """Return all positions, sorted by name; a container comes just before its subcommands."""
        return sorted(self._names, key=lambda position: self._names[position].split(b"|"))

    def names_of(self, category: str) -> list[bytes]:
        """Return the names of the commands in a category, without those that rillet lacks (ACL CAT)."""
        bits = self._members[category]
        return [self._names[at] for at in self.in_order() if bits >> at & 1 and at < _FIRST_ABSENT]

    def applied(self, category: str) -> int | None:
        """Return the bits that a rule with this category changes, None for an unknown category."""
        return self._applied.get(category.lower())


@lru_cache(maxsize=16)
def command_set(compat: Compat, databases: int) -> CommandSet:
    """Return the commands of a version, without modules; nothing may change them."""
    return CommandSet(compat, databases)
