"""The error tree.

    RilletError
    ├── Corrupt                bytes from outside are malformed (DUMP, RDB, AOF, listpack)
    │   └── LogCorrupt         ... in a log file: carries path and offset
    ├── ProtocolError          a client broke RESP; the text is what Redis sends before it closes
    ├── CommandError           a command was refused; str(error) is the RESP error line
    │   ├── WrongType  NoGroup  BusyGroup  BusyKey  NoAuth  WrongPass  NoProto  NoPerm
    │   ├── ExecAbort  Unblocked  Misconf  Loading  ReadOnly  NoScript
    └── StoreError             the store on disk cannot be opened or written
        ├── NotAStore  NewerFormat  StoreClosed  StoreBusy

A CommandError carries its RESP prefix as `prefix`; its text is `<prefix> <message>`, the same text
as Redis's wherever Redis has one.
"""

from __future__ import annotations


class RilletError(Exception):
    """Anything that rillet itself raises."""


class Corrupt(RilletError):
    """Bytes from outside do not form what they claim to be; `check` names what found it, as Redis's log does."""

    def __init__(self, reason: str = "", check: str = "") -> None:
        super().__init__(reason)
        self.check = check


class LogCorrupt(Corrupt):
    """A log file is damaged: `path` and `offset` (bytes from the start) tell where."""

    def __init__(self, path: str, offset: int, reason: str, check: str = "") -> None:
        super().__init__(f"{path}: offset {offset}: {reason}", check)
        self.path = path
        self.offset = offset
        self.reason = reason


class ProtocolError(RilletError):
    """A client's bytes are not RESP; the connection ends after this text."""


class CommandError(RilletError):
    """A command was refused and changed nothing."""

    prefix = "ERR"

    def __init__(self, message: str) -> None:
        super().__init__(f"{self.prefix} {message}")


class WrongType(CommandError):
    """The key holds another type (Redis: shared.wrongtypeerr)."""

    prefix = "WRONGTYPE"

    def __init__(self, message: str = "Operation against a key holding the wrong kind of value") -> None:
        super().__init__(message)


class NoGroup(CommandError):
    """The key or the consumer group does not exist."""

    prefix = "NOGROUP"


class BusyGroup(CommandError):
    """A group of that name exists already."""

    prefix = "BUSYGROUP"

    def __init__(self, message: str = "Consumer Group name already exists") -> None:
        super().__init__(message)


class BusyKey(CommandError):
    """RESTORE onto a key that exists."""

    prefix = "BUSYKEY"

    def __init__(self, message: str = "Target key name already exists.") -> None:
        super().__init__(message)


class NoAuth(CommandError):
    """The connection has not authenticated."""

    prefix = "NOAUTH"

    def __init__(self, message: str = "Authentication required.") -> None:
        super().__init__(message)


class WrongPass(CommandError):
    """Wrong user name or password."""

    prefix = "WRONGPASS"

    def __init__(self, message: str = "invalid username-password pair or user is disabled.") -> None:
        super().__init__(message)


class NoProto(CommandError):
    """HELLO asked for a protocol version other than 2 and 3."""

    prefix = "NOPROTO"

    def __init__(self, message: str = "unsupported protocol version") -> None:
        super().__init__(message)


class NoPerm(CommandError):
    """The user may not run this."""

    prefix = "NOPERM"


class ExecAbort(CommandError):
    """EXEC after a queueing error."""

    prefix = "EXECABORT"

    def __init__(self, message: str = "Transaction discarded because of previous errors.") -> None:
        super().__init__(message)


class Unblocked(CommandError):
    """A blocked client was woken because what it waited for is gone."""

    prefix = "UNBLOCKED"


class Misconf(CommandError):
    """Writes are refused because the log cannot be written."""

    prefix = "MISCONF"


class Loading(CommandError):
    """The data set is being read from disk."""

    prefix = "LOADING"

    def __init__(self, message: str = "Redis is loading the dataset in memory") -> None:
        super().__init__(message)


class ReadOnly(CommandError):
    """A write was sent where only reads are served."""

    prefix = "READONLY"


class NoScript(CommandError):
    """EVALSHA of an unknown script."""

    prefix = "NOSCRIPT"


class StoreError(RilletError):
    """The store on disk cannot be opened, or is closed."""


class NotAStore(StoreError):
    """The directory holds something else."""


class NewerFormat(StoreError):
    """The files were written by a newer rillet or Redis."""


class StoreClosed(StoreError):
    """The store was closed before this call."""


class StoreBusy(StoreError):
    """Another process holds the store and cannot be attached to."""
