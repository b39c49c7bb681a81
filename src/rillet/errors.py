"""The error tree.

    RilletError
    ├── Corrupt                external bytes are malformed (DUMP, RDB, AOF, listpack)
    │   └── LogCorrupt         a log, manifest or RDB file is damaged: has path and offset; also a StoreError
    ├── InvalidValue           a stored value is not of the type of its codec; also a ValueError
    │   └── InvalidEntry       an entry is not a value of its stream's type: has entry, field and reason
    ├── ProtocolError          a client violated RESP; the text is what Redis sends before it closes the connection
    ├── CommandError           a command was rejected; str(error) is the RESP error line
    │   ├── WrongType  NoGroup  BusyGroup  BusyKey  NoAuth  WrongPass  NoProto  NoPerm
    │   ├── ExecAbort  Unblocked  Misconf  Loading  ReadOnly  NoScript  ClusterDown  TryAgain
    │   ├── OutOfMemory  InvalidObj  Busy  NotBusy  Unkillable  MasterDown  NoReplicas  Redirect
    │   ├── InvalidID          a text that is not the ID of an entry; also a ValueError
    │   ├── SegmentUnreadable  entries of a stream lie in a segment that is missing or damaged
    │   └── ModuleFailure      a module's code raised an exception, or ran too long
    └── StoreError             the store on disk cannot be opened or written
        ├── LogCorrupt  NotAStore  NewerFormat  StoreClosed  StoreBusy  IncompatibleOwner
        ├── MissingExtra       an optional package is not installed; also a ModuleNotFoundError
        ├── NoConnection       this process cannot open another connection; its other connections work
        ├── NotSent            the server or owner cannot be reached: nothing was executed
        ├── OutcomeUnknown     the connection broke after a command was sent: it may or may not have been executed
        │   └── UnknownTimeout no reply within `timeout`; also a StoreTimeout
        ├── StoreTimeout       no answer within `timeout`: nothing was changed; also a TimeoutError
        ├── ChangesLost        a consumer's changes are no longer held; has `after` and `position`
        ├── PendingMessages    the consumer to delete has pending messages
        ├── LeaseLost          messages no longer belong to their consumer; has `ids`
        ├── PartitionMismatch  a partitioned stream has another number of partitions, or another field
        ├── TransactionConflict  another client changed a watched key
        └── NestedCall         a signal handler called the store while the engine ran a command of the same thread

The text of a CommandError is `<prefix> <message>`, identical to Redis's text if Redis has this error.
"""

from __future__ import annotations

from typing import Any


class RilletError(Exception):
    """The base class of all exceptions that rillet raises. They can be pickled, so a worker process can raise them."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[RilletError], args: tuple[Any, ...], attributes: dict[str, Any]) -> RilletError:
    """Return a pickled error; its constructor is not called, because `args` has the complete text."""
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(attributes)
    return error


class Corrupt(RilletError):
    """Bytes of a file, DUMP payload or listpack are malformed; `check` names the failed check, as in Redis's log."""

    def __init__(self, reason: str = "", check: str = "") -> None:
        super().__init__(reason)
        self.check = check


class InvalidValue(RilletError, ValueError):
    """Stored bytes are not a value of the codec that reads them: text that is not a number, or JSON of another type."""


class InvalidEntry(InvalidValue):
    """An entry of a typed stream is not a value of its type (rillet.store.typed.forms).

    entry: the Entry or Message, with its raw fields. field: the name of the invalid field, None if the fields together
    are invalid. message: the entry, if a consumer received it and may acknowledge it, else None.
    """

    def __init__(self, stream: str, entry: Any, reason: str, field: str | None = None) -> None:
        super().__init__(f"stream {stream!r}, entry {entry.id}: {reason}")
        self.stream = stream
        self.entry = entry
        self.reason = reason
        self.field = field

    @property
    def message(self) -> Any:
        """The Message (AsyncMessage in asyncio), or None if the entry was not read by a consumer."""
        return self.entry if hasattr(self.entry, "ack") else None


class ProtocolError(RilletError):
    """A client sent bytes that are not valid RESP; the server sends this text and closes the connection."""


class CommandError(RilletError):
    """A command was rejected and changed nothing. Each subclass has the prefix of its RESP error line."""

    prefix = "ERR"
    default = ""  # Redis's message, if all errors with this prefix have the same one

    def __init__(self, message: str = "") -> None:
        super().__init__(f"{self.prefix} {message or self.default}")


class WrongType(CommandError):
    """The key holds a value of another type (Redis: shared.wrongtypeerr)."""

    prefix = "WRONGTYPE"
    default = "Operation against a key holding the wrong kind of value"


class InvalidID(CommandError, ValueError):
    """A text is not the ID of an entry: every method that takes an ID raises this, before it sends a command.

    An ID that the server rejects for another reason, such as one below the last ID of XADD, is a CommandError.
    """


class InvalidObj(CommandError):
    """A string begins like a HyperLogLog, but its registers are malformed (Redis: invalid_hll_err)."""

    prefix = "INVALIDOBJ"
    default = "Corrupted HLL object detected"


class NoGroup(CommandError, KeyError):
    """The key or the consumer group does not exist; also a KeyError."""

    prefix = "NOGROUP"
    __str__ = Exception.__str__  # a KeyError's is the repr of the text


class BusyGroup(CommandError):
    """A consumer group of that name already exists."""

    prefix = "BUSYGROUP"
    default = "Consumer Group name already exists"


class BusyKey(CommandError):
    """The target key of RESTORE already exists."""

    prefix = "BUSYKEY"
    default = "Target key name already exists."


class NoAuth(CommandError):
    """The connection is not authenticated."""

    prefix = "NOAUTH"
    default = "Authentication required."


class WrongPass(CommandError):
    """The user name or password is wrong."""

    prefix = "WRONGPASS"
    default = "invalid username-password pair or user is disabled."


class NoProto(CommandError):
    """HELLO requested a protocol version other than 2 and 3."""

    prefix = "NOPROTO"
    default = "unsupported protocol version"


class NoPerm(CommandError):
    """The user lacks permission for this command."""

    prefix = "NOPERM"


class ExecAbort(CommandError):
    """EXEC was rejected because a queued command was invalid."""

    prefix = "EXECABORT"
    default = "Transaction discarded because of previous errors."


class Unblocked(CommandError):
    """A blocked client was unblocked because its key no longer exists."""

    prefix = "UNBLOCKED"


class Misconf(CommandError):
    """Write commands are rejected because the append-only file cannot be written."""

    prefix = "MISCONF"


class Loading(CommandError):
    """The server is still loading its data from disk."""

    prefix = "LOADING"
    default = "Redis is loading the dataset in memory"


class ReadOnly(CommandError):
    """A write was sent to a read-only server, or to a store that is open read-only (Redis: shared.roslaveerr)."""

    prefix = "READONLY"
    default = "You can't write against a read only replica."


class OutOfMemory(CommandError):
    """The data is larger than `maxmemory`, and the policy allows no eviction that would make room."""

    prefix = "OOM"
    default = "command not allowed when used memory > 'maxmemory'."


class SegmentUnreadable(CommandError):
    """A segment with older entries of a stream is missing or damaged; the text names the file and the entries."""

    prefix = "SEGMENT"


class ModuleFailure(CommandError):
    """The code of a module raised an exception, ran longer than its limit, or returned what cannot be used."""


class NoScript(CommandError):
    """EVALSHA names an unknown script."""

    prefix = "NOSCRIPT"


class NoReplicas(CommandError):
    """Fewer than min-replicas-to-write replicas are in time (Redis: shared.noreplicaserr)."""

    prefix = "NOREPLICAS"
    default = "Not enough good replicas to write."


class Busy(CommandError):
    """A script runs for longer than busy-reply-threshold."""

    prefix = "BUSY"


class NotBusy(CommandError):
    """SCRIPT KILL was called while no script runs."""

    prefix = "NOTBUSY"


class Unkillable(CommandError):
    """SCRIPT KILL cannot end a script that has written."""

    prefix = "UNKILLABLE"


class ClusterDown(CommandError):
    """No node of the cluster serves the slot of the key for now, or the cluster lacks too many nodes."""

    prefix = "CLUSTERDOWN"


class MasterDown(CommandError):
    """A replica has no link to its master, and must not answer from data that may be stale."""

    prefix = "MASTERDOWN"
    default = "Link with MASTER is down and replica-serve-stale-data is set to 'no'."


class Redirect(CommandError):
    """A replica sends a client that can follow to its master, `host:port` (Valkey: CLIENT CAPA REDIRECT)."""

    prefix = "REDIRECT"


class TryAgain(CommandError):
    """A slot is being moved, and the keys of the command are on two nodes for now."""

    prefix = "TRYAGAIN"


class StoreError(RilletError):
    """The store on disk cannot be opened, or is closed."""


class LogCorrupt(Corrupt, StoreError):
    """A file of a store or server (log, manifest or RDB) is damaged `offset` bytes after its start."""

    def __init__(self, path: str, offset: int, reason: str, check: str = "") -> None:
        super().__init__(f"{path}: offset {offset}: {reason}", check)
        self.path = path
        self.offset = offset
        self.reason = reason


class NotAStore(StoreError):
    """The directory to open contains files, but no store."""


class NewerFormat(StoreError):
    """The files of a store have a format that only a newer version of rillet or Redis can read."""


class StoreClosed(StoreError):
    """A method of a store was called after the store was closed."""


class StoreBusy(StoreError):
    """Another process has the store open, and attaching to it failed."""


class IncompatibleOwner(StoreError):
    """The process that owns the directory runs a version of rillet that does not work with this one."""


class NestedCall(StoreError):
    """A signal handler called the store while the same thread was executing a command; nothing was executed."""


class ChangesLost(StoreError):
    """The changes after a consumer's position are in neither the replica nor the server's backlog.

    after: the position of the consumer. position: where the replica is now. Read the data again, and continue there.
    """

    def __init__(self, reason: str, after: str, position: str) -> None:
        super().__init__(reason)
        self.after = after
        self.position = position


class TransactionConflict(StoreError):
    """Another client changed a watched key during a transaction; nothing was executed: run the transaction again."""


class PendingMessages(StoreError):
    """A consumer was not deleted, because it has pending messages."""


class LeaseLost(StoreError):
    """Messages no longer belong to the consumer that wants to acknowledge, renew or retry them; `ids` has their IDs.

    Another consumer claimed them, or they were acknowledged or released, or their group's consumer was deleted. Nothing
    happened to them; what was passed beside them was executed.
    """

    def __init__(self, text: str, ids: list[Any]) -> None:
        super().__init__(text)
        self.ids = ids


class PartitionMismatch(StoreError):
    """A partitioned stream is missing, has another number of partitions or another field, or lacks one of its keys."""


class MissingExtra(StoreError, ModuleNotFoundError):
    """A package that the call needs is not installed; the text has the command that installs it (rillet.extras)."""


class NoConnection(StoreError):
    """This process cannot open another connection; its other connections work."""


class NotSent(StoreError):
    """The engine's process or server could not be reached, so no command was sent: the call may be repeated."""


class OutcomeUnknown(StoreError):
    """The connection broke after the command was sent and before its reply; it may or may not have been executed."""


class StoreTimeout(StoreError, TimeoutError):
    """The engine's process or server did not answer within `timeout`. The call changed nothing: it may be repeated."""


class UnknownTimeout(StoreTimeout, OutcomeUnknown):
    """A command was sent, and no reply came within `timeout`: it may or may not have been executed, or be later."""
