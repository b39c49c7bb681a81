"""The ACL categories of a command, which follow from its group and flags (Redis: setImplicitACLCategories)."""

from __future__ import annotations

from rillet.runtime.command_flags import flags_in
from rillet.runtime.key_specifications import UNKNOWN_KEYS
from rillet.runtime.registry import Command
from rillet.types.compat import Compat

_CATEGORIES = (
    "keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "bitmap", "hyperloglog", "geo", "stream",
    "array", "pubsub", "admin", "fast", "slow", "blocking", "dangerous", "connection", "transaction", "scripting",
)  # fmt: skip
_CATEGORY_OF_GROUP = {
    "string": "string", "stream": "stream", "generic": "keyspace", "connection": "connection", "list": "list",
    "transactions": "transaction", "scripting": "scripting", "set": "set", "hash": "hash", "sorted-set": "sortedset",
    "bitmap": "bitmap", "hyperloglog": "hyperloglog", "geo": "geo", "array": "array",
}  # fmt: skip
_MORE_CATEGORIES = {
    "keys": "dangerous", "restore": "dangerous", "info": "dangerous", "role": "admin dangerous",
    "lastsave": "admin dangerous", "sort": "set sortedset list dangerous", "sort_ro": "set sortedset list dangerous",
    "dbsize": "keyspace", "flushdb": "keyspace dangerous", "flushall": "keyspace dangerous",
    "swapdb": "keyspace dangerous", "migrate": "dangerous", "restore-asking": "keyspace dangerous",
    "trimslots": "keyspace dangerous", "clusterscan": "keyspace", "cluster|flushslot": "keyspace",
}  # fmt: skip


def category_names(compat: Compat) -> tuple[str, ...]:
    """Return the names of all categories that a server has, in Redis's order."""
    return tuple(name for name in _CATEGORIES if name != "array" or compat.knows(88))


def categories(entry: Command, compat: Compat) -> list[str]:
    """Return the ACL categories of a command, in Redis's order."""
    if entry.module:
        return [name for name in _CATEGORIES if name in entry.categories.split()]
    found = set(_MORE_CATEGORIES.get(entry.fullname, "").split())
    if entry.subcommands is None and entry.group in _CATEGORY_OF_GROUP:
        found.add(_CATEGORY_OF_GROUP[entry.group])
    if entry.fullname.partition("|")[0] in ("command", "wait", "waitaof", "asking", "readonly", "readwrite"):
        found.add("connection")
        found.discard("keyspace")
    if entry.fullname in UNKNOWN_KEYS:
        found.discard("keyspace")  # SORT has the categories of the types that it sorts
    flags = flags_in(entry, compat)
    found |= flags & {"write", "fast", "blocking", "pubsub"}
    if "readonly" in flags and entry.group != "scripting":
        found.add("read")
    if "admin" in flags:
        found |= {"admin", "dangerous"}
    if "fast" not in flags:
        found.add("slow")
    return [name for name in _CATEGORIES if name in found]
