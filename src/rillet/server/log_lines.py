"""The server's log, in the format of Redis's log, so that the same tools can read both.

    12345:M 21 Nov 2026 12:00:00.123 * Ready to accept connections
    pid   |                          | text
          role: M the server,        importance: . debug, - verbose, * notice, # warning
                C a child

Lines go to the standard output or are appended to `logfile`; `loglevel` is the lowest level that is written (server.c:
serverLogRaw). A line is one write, so the lines of a child and of its parent do not mix. A line that cannot be written
is dropped, because a failing log must not stop the server.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path

from rillet.loggers import logger

DEBUG, VERBOSE, NOTICE, WARNING = range(4)
LEVELS = ("debug", "verbose", "notice", "warning")
"""The values of `loglevel`; `nothing` (newer servers) is above all of them."""
_MARKS = ".-*#"
_LOGGING = (logging.DEBUG, logging.DEBUG, logging.INFO, logging.WARNING)
_STDOUT = 1
LOGGER = logger("server")


class ServerLogger:
    """The server's log: its destination, and the lowest level of lines that it contains."""

    def __init__(self) -> None:
        self.level = NOTICE
        self.path: Path | None = None
        self.role = "M"

    def configure(self, level: str, path: str) -> None:
        """Apply `loglevel` and `logfile` ("" is the standard output); OSError if the file cannot be written."""
        self.level = LEVELS.index(level) if level in LEVELS else len(LEVELS)
        self.path = Path(path).absolute() if path else None
        if self.path is not None:
            with open(self.path, "ab"):
                pass

    def say(self, text: str, level: int = NOTICE) -> None:
        """Write a line, unless its level is too low; the logger rillet.server receives every line."""
        LOGGER.log(_LOGGING[level], "%s", text)
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
