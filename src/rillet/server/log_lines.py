"""What the server tells whoever runs it, in the form of Redis's own log, so that what reads the one reads the other.

    12345:M 21 Nov 2026 12:00:00.123 * Ready to accept connections
    pid   |                          | text
          role: M the server,        importance: . debug, - verbose, * notice, # warning
                C a child

The lines go to the standard output, or to the end of the file that `logfile` names; `loglevel` says from which
importance on (server.c: serverLogRaw). A line is one write, so the lines of a child and of its parent do not mix. A log
that cannot be written is not worth the server's life: the line is dropped.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

DEBUG, VERBOSE, NOTICE, WARNING = range(4)
LEVELS = ("debug", "verbose", "notice", "warning")
"""The names of the levels in `loglevel`; `nothing` (newer servers) is beyond them all."""
_MARKS = ".-*#"
_STDOUT = 1


class ServerLogger:
    """Where the lines go, and which."""

    def __init__(self) -> None:
        self.level = NOTICE
        self.path: Path | None = None
        self.role = "M"

    def configure(self, level: str, path: str) -> None:
        """Take `loglevel` and `logfile` ("" is the standard output); OSError where the file cannot be written."""
        self.level = LEVELS.index(level) if level in LEVELS else len(LEVELS)
        self.path = Path(path).absolute() if path else None
        if self.path is not None:
            with open(self.path, "ab"):
                pass

    def say(self, text: str, level: int = NOTICE) -> None:
        """Write a line, if it is important enough."""
        if level < self.level:
            return
        now = time.time()
        stamp = time.strftime("%d %b %Y %H:%M:%S", time.localtime(now))
        line = f"{os.getpid()}:{self.role} {stamp}.{int(now * 1000) % 1000:03d} {_MARKS[level]} {text}\n"
        data = line.encode("utf-8", "surrogateescape")
        try:
            if self.path is None:
                sys.stdout.flush()
                os.write(_STDOUT, data)
            else:
                with open(self.path, "ab", buffering=0) as file:
                    file.write(data)
        except (OSError, ValueError):
            pass


JOURNAL = ServerLogger()


def say(text: str, level: int = NOTICE) -> None:
    """Write a line to this process's log."""
    JOURNAL.say(text, level)


def say_line(text: str, *, warning: bool = False) -> None:
    """Write a line to this process's log, for the services of rillet.persistence."""
    say(text, WARNING if warning else NOTICE)


__all__ = ["DEBUG", "JOURNAL", "LEVELS", "NOTICE", "VERBOSE", "WARNING", "ServerLogger", "say", "say_line"]
