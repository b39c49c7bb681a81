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
        ProtocolError,
        ReadOnly,
        Redirect,
        RilletError,
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
    from rillet.replication.changes import Change, ChangePosition
    from rillet.store import (
        Array,
        Bitmap,
        ChannelMessage,
        Consumer,
        ConsumerInfo,
        Counter,
        Entry,
        Geo,
        Group,
        GroupInfo,
        GroupStats,
        Hash,
        HyperLogLog,
        List,
        Message,
        MultiConsumer,
        PendingEntry,
        PendingSummary,
        Set,
        SortedSet,
        Store,
        StoreStats,
        Stream,
        StreamMemory,
        StreamStats,
        String,
        Subscription,
        codecs,
        connect,
        open,
    )
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
    from rillet.store.arguments.encoding import IDLike
    from rillet.store.arguments.positions import Position
    from rillet.store.codecs import Codec
    from rillet.store.follow import AsyncReplica, Replica, follow
    from rillet.store.recovery import Recovery
    from rillet.store.serving import StoreServer
    from rillet.store.transaction import AsyncTransaction, Queued, StoreTransaction
    from rillet.types.stream.id import StreamID

__version__ = "0.1.0"

_ERRORS = """
    Busy BusyGroup BusyKey ChangesLost ClusterDown CommandError Corrupt ExecAbort IncompatibleOwner InvalidEntry
    InvalidID InvalidObj InvalidValue Loading LogCorrupt MasterDown Misconf MissingExtra ModuleFailure NestedCall
    NewerFormat NoAuth NoGroup NoPerm NoProto NoReplicas NoScript NotAStore NotBusy NotSent OutOfMemory
    OutcomeUnknown ProtocolError ReadOnly Redirect RilletError StoreBusy StoreClosed StoreError StoreTimeout
    TransactionConflict TryAgain Unblocked Unkillable UnknownTimeout WrongPass WrongType
"""
_STORE = """
    Array Bitmap ChannelMessage Consumer ConsumerInfo Counter Entry Geo Group GroupInfo GroupStats Hash HyperLogLog
    List Message MultiConsumer PendingEntry PendingSummary Set SortedSet Store StoreStats Stream StreamMemory
    StreamStats String Subscription codecs connect open
"""
_AIO = """
    AsyncArray AsyncBitmap AsyncConsumer AsyncCounter AsyncGeo AsyncGroup AsyncHash AsyncHyperLogLog AsyncList
    AsyncMessage AsyncMultiConsumer AsyncSet AsyncSortedSet AsyncStore AsyncStream AsyncString AsyncSubscription
"""
_TRANSACTION = "AsyncTransaction Queued StoreTransaction"
_HOMES = {
    **dict.fromkeys(_ERRORS.split(), "rillet.errors"),
    **dict.fromkeys(_STORE.split(), "rillet.store"),
    **dict.fromkeys(_AIO.split(), "rillet.store.aio"),
    **dict.fromkeys(_TRANSACTION.split(), "rillet.store.transaction"),
    "NoConnection": "rillet.errors",
    "AsyncReplica": "rillet.store.follow",
    "Change": "rillet.replication.changes",
    "ChangePosition": "rillet.replication.changes",
    "Replica": "rillet.store.follow",
    "follow": "rillet.store.follow",
    "Codec": "rillet.store.codecs",
    "IDLike": "rillet.store.arguments.encoding",
    "Position": "rillet.store.arguments.positions",
    "Recovery": "rillet.store.recovery",
    "StoreServer": "rillet.store.serving",
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
    "Entry",
    "ExecAbort",
    "Geo",
    "Group",
    "GroupInfo",
    "GroupStats",
    "Hash",
    "HyperLogLog",
    "IDLike",
    "IncompatibleOwner",
    "InvalidEntry",
    "InvalidID",
    "InvalidObj",
    "InvalidValue",
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
    "OutOfMemory",
    "OutcomeUnknown",
    "PendingEntry",
    "PendingSummary",
    "Position",
    "ProtocolError",
    "Queued",
    "ReadOnly",
    "Recovery",
    "Redirect",
    "Replica",
    "RilletError",
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
    "StreamStats",
    "String",
    "Subscription",
    "TransactionConflict",
    "TryAgain",
    "Unblocked",
    "Unkillable",
    "UnknownTimeout",
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
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
