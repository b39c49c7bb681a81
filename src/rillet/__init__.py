"""rillet: Redis Streams, and the Redis data structures beneath them, as a Python package.

    import rillet

    with rillet.open() as store:              # in memory; rillet.open("folder") is durable
        events = store.stream("events")
        events.add({"kind": "arrival", "gate": "B7"})

One engine, three interfaces: `open()` in this process, `rillet serve` on a socket, and the Spark source `rillet`.
`connect("redis://...")` provides the same API over a Redis, Valkey or rillet server, and `follow("redis://...")`
a copy of its data in this process.

`import rillet` imports only this file; public names are imported on first use.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rillet.errors import (
        BusyGroup,
        CommandError,
        InvalidEntry,
        InvalidID,
        LeaseLost,
        MissingExtra,
        NoConnection,
        NoGroup,
        NotSent,
        OutcomeUnknown,
        PartitionMismatch,
        PendingMessages,
        RilletError,
        StoreBusy,
        StoreClosed,
        StoreError,
        StoreTimeout,
        TransactionConflict,
        WrongType,
    )
    from rillet.store import codecs
    from rillet.store.arguments.encoding import IDLike
    from rillet.store.arguments.positions import Position
    from rillet.store.channels import Subscription
    from rillet.store.codecs import Codec
    from rillet.store.consuming.delays import Exponential
    from rillet.store.entry import Entry
    from rillet.store.follow import Replica, follow
    from rillet.store.group import Consumer, Group, MultiConsumer
    from rillet.store.message import Message
    from rillet.store.opening import connect, open
    from rillet.store.partitions.group import PartitionedConsumer, PartitionedGroup
    from rillet.store.partitions.stream import PartitionedStream
    from rillet.store.sharing.serving import StoreServer
    from rillet.store.store import Store
    from rillet.store.stream import Stream
    from rillet.store.transaction import StoreTransaction
    from rillet.store.types.array import Array
    from rillet.store.types.bitmap import Bitmap
    from rillet.store.types.geo import Geo
    from rillet.store.types.hash import Hash
    from rillet.store.types.hyperloglog import HyperLogLog
    from rillet.store.types.list import List
    from rillet.store.types.set import Set
    from rillet.store.types.sorted_set import SortedSet
    from rillet.store.types.string import Counter, String
    from rillet.types.stream.id import StreamID

__version__ = "0.1.0"

_ERRORS = """
    BusyGroup CommandError InvalidEntry InvalidID LeaseLost MissingExtra NoConnection NoGroup NotSent OutcomeUnknown
    PartitionMismatch PendingMessages RilletError StoreBusy StoreClosed StoreError StoreTimeout TransactionConflict
    WrongType
"""
_HOMES = {
    **dict.fromkeys(_ERRORS.split(), "rillet.errors"),
    "StoreTransaction": "rillet.store.transaction",
    "codecs": "rillet.store.codecs",
    "Subscription": "rillet.store.channels",
    "Codec": "rillet.store.codecs",
    "IDLike": "rillet.store.arguments.encoding",
    "Exponential": "rillet.store.consuming.delays",
    "Entry": "rillet.store.entry",
    "Replica": "rillet.store.follow",
    "follow": "rillet.store.follow",
    "Consumer": "rillet.store.group",
    "Group": "rillet.store.group",
    "MultiConsumer": "rillet.store.group",
    "Message": "rillet.store.message",
    "connect": "rillet.store.opening",
    "open": "rillet.store.opening",
    "Position": "rillet.store.arguments.positions",
    "PartitionedConsumer": "rillet.store.partitions.group",
    "PartitionedGroup": "rillet.store.partitions.group",
    "PartitionedStream": "rillet.store.partitions.stream",
    "StoreServer": "rillet.store.sharing.serving",
    "Store": "rillet.store.store",
    "Stream": "rillet.store.stream",
    "Array": "rillet.store.types.array",
    "Bitmap": "rillet.store.types.bitmap",
    "Geo": "rillet.store.types.geo",
    "Hash": "rillet.store.types.hash",
    "HyperLogLog": "rillet.store.types.hyperloglog",
    "List": "rillet.store.types.list",
    "Set": "rillet.store.types.set",
    "SortedSet": "rillet.store.types.sorted_set",
    "Counter": "rillet.store.types.string",
    "String": "rillet.store.types.string",
    "StreamID": "rillet.types.stream.id",
}
"""The module that defines each public name."""

__all__ = [
    "Array",
    "Bitmap",
    "BusyGroup",
    "Codec",
    "CommandError",
    "Consumer",
    "Counter",
    "Entry",
    "Exponential",
    "Geo",
    "Group",
    "Hash",
    "HyperLogLog",
    "IDLike",
    "InvalidEntry",
    "InvalidID",
    "LeaseLost",
    "List",
    "Message",
    "MissingExtra",
    "MultiConsumer",
    "NoConnection",
    "NoGroup",
    "NotSent",
    "OutcomeUnknown",
    "PartitionMismatch",
    "PartitionedConsumer",
    "PartitionedGroup",
    "PartitionedStream",
    "PendingMessages",
    "Position",
    "Replica",
    "RilletError",
    "Set",
    "SortedSet",
    "Store",
    "StoreBusy",
    "StoreClosed",
    "StoreError",
    "StoreServer",
    "StoreTimeout",
    "StoreTransaction",
    "Stream",
    "StreamID",
    "String",
    "Subscription",
    "TransactionConflict",
    "WrongType",
    "__version__",
    "codecs",
    "compiled",
    "connect",
    "follow",
    "open",
]


def compiled() -> bool:
    """Return whether this process runs the compiled build, that is, every module listed in `_compiled`."""
    from rillet._compiled import by_speed

    fast, slow = by_speed()
    return bool(fast) and not slow


def _warn_if_compilation_failed() -> None:
    """Warn if pip could not compile rillet; the build wrote the reason to `_not_compiled.txt` in the package."""
    from pathlib import Path

    note = Path(__file__).with_name("_not_compiled.txt")
    if note.exists():
        import warnings

        warnings.warn(
            f"rillet runs interpreted: the same results, slower. pip could not compile it: {note.read_text().strip()}. "
            "Install a C compiler and the Python headers (Debian: gcc python3-dev), then run: "
            "pip install --force-reinstall --no-deps --no-cache-dir git+https://github.com/rillet/rillet",
            RuntimeWarning,
            stacklevel=3,
        )


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        return _moved(name)
    if _HOMES.keys().isdisjoint(globals()):
        _warn_if_compilation_failed()  # once, at the first use of a public name
        if sys.version_info < (3, 11) and home != "rillet.errors":
            raise RuntimeError(f"rillet.{name} needs Python 3.11 or newer; on 3.10, rillet.spark works")
    value = import_module(home) if name == "codecs" else getattr(import_module(home), name)
    globals()[name] = value
    return value


def _moved(name: str) -> Any:
    """Return a name that was here before a module of its own had it."""
    for home in ("rillet.aio", "rillet.records", "rillet.errors") if name[:1].isupper() else ():
        module = import_module(home)
        value = getattr(module, name, None)
        if value is not None and getattr(value, "__module__", "").startswith("rillet."):
            import warnings

            warnings.warn(f"rillet.{name} ends with 0.2: use {home}.{name}", DeprecationWarning, stacklevel=3)
            return value
    raise AttributeError(f"module 'rillet' has no attribute {name!r}: more names are in rillet.aio (asyncio), "
                         "rillet.records (results) and rillet.errors")  # fmt: skip


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
