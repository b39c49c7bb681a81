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

import json
import logging
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rillet.loggers import logger

if TYPE_CHECKING:
    from rillet.runtime.settings.settings import Settings
    from rillet.types.compat import Compat

try:
    import syslog
except ImportError:  # Windows
    syslog = None  # type: ignore[assignment]

DEBUG, VERBOSE, NOTICE, WARNING = range(4)
LEVELS = ("debug", "verbose", "notice", "warning")
"""The values of `loglevel`; `nothing` (newer servers) is above all of them."""
_MARKS = ".-*#"
_WORDS = ("debug", "info", "notice", "warning")
_SYSLOG = (7, 6, 5, 4)  # the levels of syslog(3): LOG_DEBUG to LOG_WARNING
_LOGFMT = str.maketrans({'"': "'", "\n": " ", "\r": " "})
_LOGGING = (logging.DEBUG, logging.DEBUG, logging.INFO, logging.WARNING)
_STDOUT = 1
LOGGER = logger("server")


_MASTER = re.compile(r"(?<![\w.-])(MASTER|[Mm]aster)(?![\w-]|\.\w|:\d)")  # as a word, not as the name of a host
_PRIMARY = {"MASTER": "PRIMARY", "Master": "Primary", "master": "primary"}


def in_words_of(compat: Compat, text: str) -> str:
    """Return a line about replication as a server writes it: Valkey calls the master the primary."""
    return _MASTER.sub(lambda found: _PRIMARY[found[0]], text) if compat.valkey else text


class ServerLogger:
    """The server's log: its destination, and the lowest level of lines that it contains."""

    def __init__(self) -> None:
        self.level = NOTICE
        self.path: Path | None = None
        self.role = "M"
        self.format = self.times = "legacy"
        self.to_syslog = False

    def configure(self, level: str, path: str) -> None:
        """Apply `loglevel` and `logfile` ("" is the standard output); OSError if the file cannot be written."""
        self.level = LEVELS.index(level) if level in LEVELS else len(LEVELS)
        self.path = Path(path).absolute() if path else None
        if self.path is not None:
            with open(self.path, "ab"):
                pass

    @property
    def is_separate(self) -> bool:
        """Whether the log is elsewhere than the standard output."""
        return self.path is not None or self.to_syslog

    def _line(self, text: str, level: int, now: float) -> str:
        """Return one line of the log, as `log-format` and `log-timestamp-format` require."""
        local = time.localtime(now)
        milliseconds = int(now * 1000)
        if self.times == "milliseconds":
            stamp = str(milliseconds)
        elif self.times == "iso8601":
            zone = time.strftime("%z", local)
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S", local) + f".{milliseconds % 1000:03d}{zone[:3]}:{zone[3:]}"
        else:
            stamp = time.strftime("%d %b %Y %H:%M:%S", local) + f".{milliseconds % 1000:03d}"
        if self.format == "legacy":
            return f"{os.getpid()}:{self.role} {stamp} {_MARKS[level]} {text}\n"
        role = "primary" if self.role == "M" else "RDB/AOF"
        if self.format == "json":
            fields = {"pid": os.getpid(), "role": role, "timestamp": stamp, "level": _WORDS[level], "message": text}
            return json.dumps(fields, separators=(",", ":")) + "\n"
        text = text.translate(_LOGFMT)
        return f'pid={os.getpid()} role={role} timestamp="{stamp}" level={_WORDS[level]} message="{text}"\n'

    def say(self, text: str, level: int = NOTICE) -> None:
        """Write a line, unless its level is too low; the logger rillet.server receives every line."""
        LOGGER.log(_LOGGING[level], "%s", text)
        if level < self.level:
            return
        line = self._line(text, level, time.time())
        if self.to_syslog and syslog is not None:
            syslog.syslog(_SYSLOG[level], text)
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


def configure_log(settings: Settings) -> None:
    """Apply every setting of the log; OSError if `logfile` cannot be written."""
    JOURNAL.configure(settings.loglevel, settings.logfile)
    JOURNAL.format, JOURNAL.times = settings.log_format, settings.log_timestamp_format
    if settings.syslog_enabled and syslog is not None and not JOURNAL.to_syslog:
        facility = getattr(syslog, f"LOG_{settings.syslog_facility.upper()}")
        syslog.openlog(settings.syslog_ident, syslog.LOG_PID | syslog.LOG_NDELAY | syslog.LOG_NOWAIT, facility)
        JOURNAL.to_syslog = True


def say(text: str, level: int = NOTICE) -> None:
    """Write a line to this process's log."""
    JOURNAL.say(text, level)


def say_line(text: str, *, warning: bool = False) -> None:
    """Write a line to this process's log, for the services of rillet.persistence."""
    say(text, WARNING if warning else NOTICE)
