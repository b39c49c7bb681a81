"""The failure state of a log: the reason, the log position of the failure, and the callbacks of the log's owner.

    write fails           the bytes stay in the buffer; `AppendOnlyLog.tick` retries once a second
    sync fails, or        the content of the files is unknown and is never reported safe again; the log needs a new
    the file is removed   base, written from memory into new files (rillet.persistence.aof.rewrite)
    LogTakenOver          another process writes the log, or the path leads elsewhere: nothing is written until
                          `AppendOnlyLog.tick` finds the file as this process left it

While there is a reason, writes must be rejected (docs/design/0006). A reply that was waiting when the failure occurred
must be rejected too: its position is below `position`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable


class LogTakenOver(OSError):
    """Another process wrote to the log, or the log's path leads to another file or to none; `text` says which."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.EBUSY, text)


class AofFailures:
    """The reason why a log cannot be written, or None; only the holder of the engine's lock changes it.

    on_failure receives the text of the MISCONF error; on_recovery is called when writes are accepted again.
    """

    __slots__ = ("on_failure", "on_recovery", "position", "reason")

    def __init__(self, on_failure: Callable[[str], None] | None, on_recovery: Callable[[], None] | None) -> None:
        self.on_failure = on_failure
        self.on_recovery = on_recovery
        self.reason: str | None = None
        # The end of the log at the failure: bytes before this position may be lost.
        self.position = 0

    def fail(self, error: OSError, position: int) -> None:
        """Enter the failure state and call on_failure."""
        self.note(error, position)
        if self.on_failure is not None and self.reason is not None:
            self.on_failure(self.reason)

    def note(self, error: OSError, position: int) -> None:
        """Record the failure of a retry, without calling on_failure a second time."""
        self.position = position
        self.reason = describe(error)

    def recover(self) -> None:
        """Leave the failure state and call on_recovery."""
        self.reason = None
        if self.on_recovery is not None:
            self.on_recovery()

    def position_after(self, since: int | None) -> int:
        """Return a position that is not settled during the failure if it came after `since`, else 0.

        The position is beyond the end of the log: bytes that follow those of another process may be synced.
        """
        return self.position + 1 if since is not None and since < self.position else 0


def describe(error: OSError) -> str:
    """Return the text of the MISCONF error (server.c: writeCommandsDeniedByDiskError)."""
    return f"Errors writing to the AOF file: {error.strerror or error}"
