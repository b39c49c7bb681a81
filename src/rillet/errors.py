"""The error tree.

    RilletError
    ├── Corrupt                external bytes are malformed (DUMP, RDB, AOF, listpack)
    │   └── LogCorrupt         ... in a log file: has path and offset
    ├── ProtocolError          a client violated RESP; the text is what Redis sends before it closes the connection
    ├── CommandError           a command was rejected; str(error) is the RESP error line
    │   ├── WrongType  NoGroup  BusyGroup  BusyKey  NoAuth  WrongPass  NoProto  NoPerm
    │   ├── ExecAbort  Unblocked  Misconf  Loading  ReadOnly  NoScript
    └── StoreError             the store on disk cannot be opened or written
        ├── NotAStore  NewerFormat  StoreClosed  StoreBusy

A CommandError has its RESP prefix as `prefix`. Its text is `<prefix> <message>`, identical to Redis's text
if Redis has this error.
"""

from __future__ import annotations


class RilletError(Exception):
    """The base class of all exceptions that rillet raises."""


class Corrupt(RilletError):
    """External bytes are malformed; `check` names the failed check, as in Redis's log."""

    def __init__(self, reason: str = "", check: str = "") -> None:
        super().__init__(reason)
        self.check = check


class LogCorrupt(Corrupt):
    """A log file is damaged at `offset` bytes from the start of `path`."""

    def __init__(self, path: str, offset: int, reason: str, check: str = "") -> None:
        super().__init__(f"{path}: offset {offset}: {reason}", check)
        self.path = path
        self.offset = offset
        self.reason = reason


class ProtocolError(RilletError):
    """A client's bytes are not valid RESP; the connection is closed after this text is sent."""


class CommandError(RilletError):
    """A command was rejected and changed nothing."""

    prefix = "ERR"

    def __init__(self, message: str) -> None:
        super().__init__(f"{self.prefix} {message}")


class WrongType(CommandError):
    """The key holds a value of another type (Redis: shared.wrongtypeerr)."""

    prefix = "WRONGTYPE"

    def __init__(self, message: str = "Operation against a key holding the wrong kind of value") -> None:
        super().__init__(message)


class NoGroup(CommandError):
    """The key or the consumer group does not exist."""

    prefix = "NOGROUP"


class BusyGroup(CommandError):
    """A consumer group of that name already exists."""

    prefix = "BUSYGROUP"

    def __init__(self, message: str = "Consumer Group name already exists") -> None:
        super().__init__(message)


class BusyKey(CommandError):
    """The target key of RESTORE already exists."""

    prefix = "BUSYKEY"

    def __init__(self, message: str = "Target key name already exists.") -> None:
        super().__init__(message)


class NoAuth(CommandError):
    """The connection is not authenticated."""

    prefix = "NOAUTH"

    def __init__(self, message: str = "Authentication required.") -> None:
        super().__init__(message)


class WrongPass(CommandError):
    """The user name or password is wrong."""

    prefix = "WRONGPASS"

    def __init__(self, message: str = "invalid username-password pair or user is disabled.") -> None:
        super().__init__(message)


class NoProto(CommandError):
    """HELLO requested a protocol version other than 2 and 3."""

    prefix = "NOPROTO"

    def __init__(self, message: str = "unsupported protocol version") -> None:
        super().__init__(message)


class NoPerm(CommandError):
    """The user lacks permission for this command."""

    prefix = "NOPERM"


class ExecAbort(CommandError):
    """EXEC was rejected because a queued command was invalid."""

    prefix = "EXECABORT"

    def __init__(self, message: str = "Transaction discarded because of previous errors.") -> None:
        super().__init__(message)


class Unblocked(CommandError):
    """A blocked client was unblocked because its key no longer exists."""

    prefix = "UNBLOCKED"


class Misconf(CommandError):
    """Writes are rejected because the log cannot be written."""

    prefix = "MISCONF"


class Loading(CommandError):
    """The data set is being loaded from disk."""

    prefix = "LOADING"

    def __init__(self, message: str = "Redis is loading the dataset in memory") -> None:
        super().__init__(message)


class ReadOnly(CommandError):
    """A write command was sent to a read-only server."""

    prefix = "READONLY"


class NoScript(CommandError):
    """EVALSHA names an unknown script."""

    prefix = "NOSCRIPT"


class StoreError(RilletError):
    """The store on disk cannot be opened, or is closed."""


class NotAStore(StoreError):
    """The directory contains files that are not a store."""


class NewerFormat(StoreError):
    """A newer version of rillet or Redis wrote the files."""


class StoreClosed(StoreError):
    """The store is already closed."""


class StoreBusy(StoreError):
    """Another process has the store open, and attaching to it failed."""
