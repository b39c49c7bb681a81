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
        Busy,
        BusyGroup,
        BusyKey,
        ChangesLost,
        ClusterDown,
        CommandError,
        Corrupt,
        ExecAbort,
        IncompatibleOwner,
        InvalidEntry,
        InvalidID,
        InvalidObj,
        InvalidValue,
        LeaseLost,
        Loading,
        LogCorrupt,
        MasterDown,
        Misconf,
        MissingExtra,
        ModuleFailure,
        NestedCall,
        NewerFormat,
        NoAuth,
        NoConnection,
        NoGroup,
        NoPerm,
        NoProto,
        NoReplicas,
        NoScript,
        NotAStore,
        NotBusy,
        NotSent,
        OutcomeUnknown,
        OutOfMemory,
        PartitionMismatch,
        PendingMessages,
        ProtocolError,
        ReadOnly,
        Redirect,
        RilletError,
        SegmentUnreadable,
        StoreBusy,
        StoreClosed,
        StoreError,
        StoreTimeout,
        TransactionConflict,
        TryAgain,
        Unblocked,
        Unkillable,
        UnknownTimeout,
        WrongPass,
        WrongType,
    )
    from rillet.host.recovery import Recovery
    from rillet.replication.changes import Change, ChangePosition
    from rillet.store import codecs
    from rillet.store.aio import (
        AsyncArray,
        AsyncBitmap,
        AsyncConsumer,
        AsyncCounter,
        AsyncGeo,
        AsyncGroup,
        AsyncHash,
        AsyncHyperLogLog,
        AsyncList,
        AsyncMessage,
        AsyncMultiConsumer,
        AsyncSet,
        AsyncSortedSet,
        AsyncStore,
        AsyncStream,
        AsyncString,
        AsyncSubscription,
    )
    from rillet.store.aio.partitions.group import AsyncPartitionedConsumer, AsyncPartitionedGroup
    from rillet.store.aio.partitions.stream import AsyncPartitionedStream
    from rillet.store.arguments.encoding import IDLike
    from rillet.store.arguments.positions import Position
    from rillet.store.channels import ChannelMessage, Subscription
    from rillet.store.codecs import Codec
    from rillet.store.consuming.delays import DelayedEntry, Exponential, Retry
    from rillet.store.entry import Entry
    from rillet.store.follow import AsyncReplica, Replica, follow
    from rillet.store.group import Consumer, Group, MultiConsumer
    from rillet.store.handling import Handled
    from rillet.store.info_records import (
        ConsumerInfo,
        GroupInfo,
        HeldBack,
        OrderedKey,
        PendingEntry,
        PendingSummary,
        Retention,
        StreamPlaces,
    )
    from rillet.store.message import Message
    from rillet.store.opening import connect, open
    from rillet.store.partitions.group import PartitionedConsumer, PartitionedGroup, PartitionedGroupInfo
    from rillet.store.partitions.stream import PartitionedStream
    from rillet.store.sharing.serving import StoreServer
    from rillet.store.stats import GroupStats, StoreStats, StreamMemory, StreamStats, Waiting
    from rillet.store.store import Store
    from rillet.store.stream import Stream
    from rillet.store.transaction import AsyncTransaction, Queued, StoreTransaction
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
    Busy BusyGroup BusyKey ChangesLost ClusterDown CommandError Corrupt ExecAbort IncompatibleOwner InvalidEntry
    InvalidID InvalidObj InvalidValue LeaseLost Loading LogCorrupt MasterDown Misconf MissingExtra ModuleFailure
    NestedCall NewerFormat NoAuth NoGroup NoPerm NoProto NoReplicas NoScript NotAStore NotBusy NotSent OutOfMemory
    OutcomeUnknown PartitionMismatch PendingMessages ProtocolError ReadOnly Redirect RilletError StoreBusy StoreClosed
    SegmentUnreadable StoreError StoreTimeout TransactionConflict TryAgain Unblocked Unkillable UnknownTimeout WrongPass
    WrongType
"""
_AIO = """
    AsyncArray AsyncBitmap AsyncConsumer AsyncCounter AsyncGeo AsyncGroup AsyncHash AsyncHyperLogLog AsyncList
    AsyncMessage AsyncMultiConsumer AsyncSet AsyncSortedSet AsyncStore AsyncStream AsyncString AsyncSubscription
"""
_TRANSACTION = "AsyncTransaction Queued StoreTransaction"
_HOMES = {
    **dict.fromkeys(_ERRORS.split(), "rillet.errors"),
    **dict.fromkeys(_AIO.split(), "rillet.store.aio"),
    **dict.fromkeys(_TRANSACTION.split(), "rillet.store.transaction"),
    "Change": "rillet.replication.changes",
    "ChangePosition": "rillet.replication.changes",
    "codecs": "rillet.store.codecs",
    "ChannelMessage": "rillet.store.channels",
    "Subscription": "rillet.store.channels",
    "Codec": "rillet.store.codecs",
    "IDLike": "rillet.store.arguments.encoding",
    "DelayedEntry": "rillet.store.consuming.delays",
    "Exponential": "rillet.store.consuming.delays",
    "Retry": "rillet.store.consuming.delays",
    "Entry": "rillet.store.entry",
    "AsyncReplica": "rillet.store.follow",
    "Replica": "rillet.store.follow",
    "follow": "rillet.store.follow",
    "Consumer": "rillet.store.group",
    "Group": "rillet.store.group",
    "MultiConsumer": "rillet.store.group",
    "Handled": "rillet.store.handling",
    "Message": "rillet.store.message",
    "connect": "rillet.store.opening",
    "open": "rillet.store.opening",
    "Position": "rillet.store.arguments.positions",
    "ConsumerInfo": "rillet.store.info_records",
    "GroupInfo": "rillet.store.info_records",
    "HeldBack": "rillet.store.info_records",
    "OrderedKey": "rillet.store.info_records",
    "PendingEntry": "rillet.store.info_records",
    "PendingSummary": "rillet.store.info_records",
    "Retention": "rillet.store.info_records",
    "StreamPlaces": "rillet.store.info_records",
    "AsyncPartitionedConsumer": "rillet.store.aio.partitions.group",
    "AsyncPartitionedGroup": "rillet.store.aio.partitions.group",
    "AsyncPartitionedStream": "rillet.store.aio.partitions.stream",
    "PartitionedConsumer": "rillet.store.partitions.group",
    "PartitionedGroup": "rillet.store.partitions.group",
    "PartitionedGroupInfo": "rillet.store.partitions.group",
    "PartitionedStream": "rillet.store.partitions.stream",
    "Recovery": "rillet.host.recovery",
    "StoreServer": "rillet.store.sharing.serving",
    "GroupStats": "rillet.store.stats",
    "StoreStats": "rillet.store.stats",
    "StreamMemory": "rillet.store.stats",
    "StreamStats": "rillet.store.stats",
    "Waiting": "rillet.store.stats",
    "Store": "rillet.store.store",
    "Stream": "rillet.store.stream",
    "NoConnection": "rillet.errors",
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
    "AsyncArray",
    "AsyncBitmap",
    "AsyncConsumer",
    "AsyncCounter",
    "AsyncGeo",
    "AsyncGroup",
    "AsyncHash",
    "AsyncHyperLogLog",
    "AsyncList",
    "AsyncMessage",
    "AsyncMultiConsumer",
    "AsyncPartitionedConsumer",
    "AsyncPartitionedGroup",
    "AsyncPartitionedStream",
    "AsyncReplica",
    "AsyncSet",
    "AsyncSortedSet",
    "AsyncStore",
    "AsyncStream",
    "AsyncString",
    "AsyncSubscription",
    "AsyncTransaction",
    "Bitmap",
    "Busy",
    "BusyGroup",
    "BusyKey",
    "Change",
    "ChangePosition",
    "ChangesLost",
    "ChannelMessage",
    "ClusterDown",
    "Codec",
    "CommandError",
    "Consumer",
    "ConsumerInfo",
    "Corrupt",
    "Counter",
    "DelayedEntry",
    "Entry",
    "ExecAbort",
    "Exponential",
    "Geo",
    "Group",
    "GroupInfo",
    "GroupStats",
    "Handled",
    "Hash",
    "HeldBack",
    "HyperLogLog",
    "IDLike",
    "IncompatibleOwner",
    "InvalidEntry",
    "InvalidID",
    "InvalidObj",
    "InvalidValue",
    "LeaseLost",
    "List",
    "Loading",
    "LogCorrupt",
    "MasterDown",
    "Message",
    "Misconf",
    "MissingExtra",
    "ModuleFailure",
    "MultiConsumer",
    "NestedCall",
    "NewerFormat",
    "NoAuth",
    "NoConnection",
    "NoGroup",
    "NoPerm",
    "NoProto",
    "NoReplicas",
    "NoScript",
    "NotAStore",
    "NotBusy",
    "NotSent",
    "OrderedKey",
    "OutOfMemory",
    "OutcomeUnknown",
    "PartitionMismatch",
    "PartitionedConsumer",
    "PartitionedGroup",
    "PartitionedGroupInfo",
    "PartitionedStream",
    "PendingEntry",
    "PendingMessages",
    "PendingSummary",
    "Position",
    "ProtocolError",
    "Queued",
    "ReadOnly",
    "Recovery",
    "Redirect",
    "Replica",
    "Retention",
    "Retry",
    "RilletError",
    "SegmentUnreadable",
    "Set",
    "SortedSet",
    "Store",
    "StoreBusy",
    "StoreClosed",
    "StoreError",
    "StoreServer",
    "StoreStats",
    "StoreTimeout",
    "StoreTransaction",
    "Stream",
    "StreamID",
    "StreamMemory",
    "StreamPlaces",
    "StreamStats",
    "String",
    "Subscription",
    "TransactionConflict",
    "TryAgain",
    "Unblocked",
    "Unkillable",
    "UnknownTimeout",
    "Waiting",
    "WrongPass",
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
        raise AttributeError(f"module 'rillet' has no attribute {name!r}")
    if _HOMES.keys().isdisjoint(globals()):
        _warn_if_compilation_failed()  # once, at the first use of a public name
        if sys.version_info < (3, 11) and home != "rillet.errors":
            raise RuntimeError(f"rillet.{name} needs Python 3.11 or newer; on 3.10, rillet.spark works")
    value = import_module(home) if name == "codecs" else getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
