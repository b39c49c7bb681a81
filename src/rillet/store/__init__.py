"""The store: the Python API, over an engine in this process, a directory's owner, or a server.

Read in this order: `opening` (open, connect), `store`, `stream`, `group`, `delivery`, `keys` and `types` (all other
types of keys), `codecs`, `transports` (how a command reaches an engine), `backend`, `directory` and `owner` (durable
stores), `channels` (messages that are not stored), `redis_py`, `aio`.

**Public names.** A name without an underscore may be for rillet alone, because another module of rillet uses it. It may
change in any version, so a user who looks at `dir(stream)`, or presses TAB, does not see it, and the reference leaves
it out (docs/stability.md).
"""

from __future__ import annotations

from collections.abc import Iterable

INTERNAL = {
    "CommandRunner": "run run_many",
    "KeyCommands": "add_packed after_fork before_fork id_of is_foreign may_wait observer "
                   "read_entries replace_transport replacement transport",
    "Runner": "add_packed exclusive id_of in_thread read_entries run run_many transport",
    "StreamEntries": "entries_of form on_invalid read_command",
    "Stream": "delayed_count",
    "Entry": "flat raw_id",
    "Message": "fenced held leased released settled turn",
    "Group": "create_missing has_retries in_order pending_command token",
    "MessageReader": "claim_command messages_of parts read_command",
    "PartitionedStream": "delayed_count expected form on_invalid",
    "PartitionedGroup": "created creates part",
    "Subscription": "after_fork connection poll take_message wait",
}  # fmt: skip
"""The names that are for rillet alone, by class; subclasses and the asyncio form (`AsyncStream`) have the same ones."""


def internal_names(cls: type) -> set[str]:
    """Return the names of a class that are for rillet alone."""
    return {name for base in cls.__mro__ for name in INTERNAL.get(base.__name__.removeprefix("Async"), "").split()}


class PublicNames:
    """A class whose `dir()` has public names only."""

    __slots__ = ()

    def __dir__(self) -> Iterable[str]:
        hidden = internal_names(type(self))
        return [name for name in super().__dir__() if name not in hidden]
