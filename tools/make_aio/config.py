"""What the generator of the asyncio API must be given: the modules, and what the sources do not show."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "src" / "rillet" / "store"
PACKAGE = "rillet.store"
WIDTH = 120

# The synchronous modules below rillet.store, and the asyncio modules that are made from them.
MODULES = {
    "message": "aio.message",
    "command_steps": "aio.command_steps",
    "group": "aio.group",
    "stream": "aio.stream",
    "multi_stream": "aio.multi_stream",
    "partitions.group": "aio.partitions.group",
    "partitions.stream": "aio.partitions.stream",
    "types.stored_key": "aio.stored_key",
    "types.sortable": "aio.sortable",
    "types.hash": "aio.hash",
    "types.set": "aio.set",
    "types.sorted_set": "aio.sorted_set",
    "types.list": "aio.list",
    "types.string": "aio.string",
    "types.array": "aio.array",
    "types.bitmap": "aio.bitmap",
    "types.hyperloglog": "aio.hyperloglog",
    "types.geo": "aio.geo",
    "keys": "aio.keys",
    "script": "aio.script",
    "store": "aio.store",
}
# Classes of which only these methods are copied, and the base classes that replace their own.
SELECTED = {
    "Store": ("execute", "execute_many", "stream", "streams", "read", "consumer", "stats", "delete", "publish",
              "script", "load_functions", "function", "info"),  # fmt: skip
}
# Docstrings of classes that describe operators; the others are copied.
DOCSTRINGS = {
    "Store": """The asyncio API of a Store. `synchronous` is that Store; closing one closes both.""",
    "CommandRunner": """Runs commands, as AsyncStore does.""",
    "Stream": """A stream of the store. Each method is one command, with the cost that it has in Redis.

    `async for` reads all entries from first to last, a thousand at a time. Where a method accepts a range or a
    position, it accepts an ID or an aware datetime, whose fraction of a millisecond is dropped.
    """,
    "Hash": """A hash of the store; see rillet.store.types.hash. `async for` reads the fields, a thousand at a time.""",
    "Set": """A set of the store; see rillet.store.types.set. `async for` reads the members, a thousand at a time.""",
    "SortedSet": """A sorted set of the store: members with a score; see rillet.store.types.sorted_set.

    `async for` yields the members in the order of the scores, a thousand at a time.
    """,
    "List": """A list of the store, with the methods of a deque. See rillet.store.types.list for cost.

    `async for` yields the values in order, a thousand at a time.
    """,
}
DOCSTRINGS |= {
    "Array": """An array of the store: a sparse list. See rillet.store.types.array.

    `async for` yields the values in the order of their indexes, a thousand at a time.
    """,
    "Bitmap": """A bitmap of the store; see rillet.store.types.bitmap.

    `async for` yields the offsets of the bits that are 1, a page at a time.
    """,
}
BASES = {"Store": ("AsyncRunner", "AsyncKeyCommands")}
HAND_WRITTEN = {"AsyncRunner": f"{PACKAGE}.aio.runner"}
# Methods that run a command although their bodies do not show it, and those that yield as they run commands.
RUNNERS = {"run", "run_many", "id_of", "add_packed", "read_entries", "_handle", "_end_loop"}
YIELDERS = {("CommandRunner", "keys"), ("Store", "keys")}
# Variables that have no annotation, and the class of their objects.
VARIABLES = {
    "consumer": "Consumer", "group": "Group", "message": "Message", "other": "Set", "store": "Store",
    "stream": "Stream",
}  # fmt: skip
THREADED = {"to_arrow", "to_pandas", "to_polars", "add_arrow", "plot"}
OMITTED = {
    "operators": {"__getitem__", "__setitem__", "__delitem__", "__contains__", "__len__", "__bool__", "__reversed__",
                  "__eq__", "__hash__", "__lt__", "__le__", "__gt__", "__ge__", "__or__", "__and__", "__sub__",
                  "__xor__", "__ror__", "__rand__", "__rsub__", "__rxor__", "__ior__", "__iand__", "__isub__",
                  "__ixor__", "__int__", "__float__", "_repr_html_"},
    "views": {"keys", "values", "items"},
}  # fmt: skip
VIEWED = {"Hash", "SortedSet"}  # classes whose views are left out
ITERATORS = {"Iterator": "AsyncIterator"}
SKIP = "  # fmt: skip"
EXTRA_IMPORTS = {"AsyncIterator": "collections.abc"}
COROUTINE, ITERATOR = "coroutine", "iterator"  # what a call returns; otherwise a plain value
