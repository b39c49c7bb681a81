"""`rillet restore PATH TARGET [--to TIME]`: make a new directory or RDB file from a backup, as it was at a time.

PATH is a backup, or any directory of a store or server, also one that a process has open; a log, or an RDB file. It
is not changed. TARGET is a new directory, or an RDB file if its name ends with .rdb. To restore into a running server,
or into one that has data, use `rillet import`.

--to is a time in ISO 8601 (2026-11-26T12:00:03, UTC without a zone), in seconds since 1970, or an age (30s, 10m, 2h,
1d). Every change that was logged in that second or before is restored, and no later one; transactions are whole. It
requires a log with `aof-timestamp-enabled yes`, whose last rewrite was before that time. TIME is the time at which a
change was executed, by the clock of the server.

The result is verified as by `rillet backup`.

Exit status: 0 restored; 1 the backup is damaged; 2 nothing was restored for another reason.
"""

from __future__ import annotations

import argparse
import re
import time
from datetime import datetime, timezone
from pathlib import Path

from rillet.cli.backup import DAMAGED, facts, print_report, yield_memory
from rillet.cli.output import guarded, json_argument
from rillet.persistence.aof.end import moment
from rillet.store.display.json_line import print_json
from rillet.transfer.backup import back_up

_AGE = re.compile(r"(\d+)(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="PATH", help="a backup, a directory, a log or an RDB file")
    parser.add_argument("target", type=Path, metavar="TARGET", help="a new directory, or a new RDB file (*.rdb)")
    parser.add_argument("--to", type=second_of, default=-1, metavar="TIME",
                        help="the last second to restore: 2026-11-26T12:00:03 (UTC), or an age: 10m")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="verify checksums only, without loading the result")
    json_argument(parser)


def second_of(text: str) -> int:
    """Return a time as seconds since 1970; argparse.ArgumentTypeError."""
    if match := _AGE.fullmatch(text):
        return int(time.time()) - int(match[1]) * _SECONDS[match[2]]
    if text.isdecimal():
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        when = None
    if when is None or when.microsecond:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a time in ISO 8601, in whole seconds, nor an age such "
                                         "as 30s, 10m, 2h or 1d")  # fmt: skip
    return int((when if when.tzinfo is not None else when.replace(tzinfo=timezone.utc)).timestamp())


def run(options: argparse.Namespace) -> int:
    """Restore, and print a report; return the exit status."""
    yield_memory()
    return guarded(lambda: _run(options), damaged=DAMAGED, place="the copy")


def _run(options: argparse.Namespace) -> None:
    made = back_up(options.source, options.target, to=options.to, quick=options.quick)
    if options.json:
        print_json(facts(made, str(options.source)))
        return
    print_report(made, str(options.source))
    end = made.end
    if options.to >= 0 and end.last >= 0:
        print(f"{options.target}: the last change is of {moment(end.last)}")
    if end.beyond >= 0:
        print(f"{options.target}: left out: what was logged from {moment(end.beyond)} on")
