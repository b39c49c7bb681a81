"""`rillet backup PATH|URL TARGET [--quick]`: copy the data of a running store or server, without stopping it.

PATH|URL is the directory of a store or of a server, a log, an RDB file, or a url (redis://, rediss://, unix://).

    a directory      its log is copied up to its present end; the process that writes it takes no part and does not wait
    a url            the server sends the data of this moment as to a replica (SYNC); if it refuses, it saves an RDB
                     file (BGSAVE), which is copied if it runs on this machine

TARGET is a new directory, which rillet.open, rillet serve --appendonly yes and redis-server --appendonly yes open, or
an RDB file, if its name ends with .rdb. It is complete, or has no data: a failed or interrupted backup leaves none. It
contains every change that was acknowledged before the command began, and whole transactions only.

The copy is loaded, and every structure is checked; that needs memory for the data. With --quick, only the checksums and
the form of each command are verified. On Linux, the kernel ends this process first if memory runs out.

A backup of a directory contains the log since its last rewrite. With `aof-timestamp-enabled yes`, `rillet restore --to
TIME` restores it to any second since then.

Exit status: 0 the backup is complete; 1 the source is damaged; 2 there is no backup for another reason.
"""

from __future__ import annotations

import argparse
import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rillet.cli.output import guarded, json_argument
from rillet.cli.places import PLACE
from rillet.client.address import Address
from rillet.persistence.aof.end import moment
from rillet.store.display.json_line import print_json
from rillet.transfer.backup import Backup, back_up, back_up_server
from rillet.transfer.server_backup import ServerData
from rillet.units import size

DAMAGED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar=PLACE,
                        help="a directory of a store or server, a log, an RDB file, or a server's url")  # fmt: skip
    parser.add_argument("target", type=Path, metavar="TARGET", help="a new directory, or a new RDB file (*.rdb)")
    parser.add_argument("--quick", action="store_true", help="verify checksums only, without loading the copy")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS",
                        help="how long to wait for a server (default: 60)")  # fmt: skip
    json_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Copy the data and print a report; return the exit status."""
    yield_memory()
    return guarded(lambda: _run(options), damaged=DAMAGED, place="the copy")


def _run(options: argparse.Namespace) -> None:
    if "://" in options.source:
        server = ServerData(Address.parse(options.source, strict=False), options.timeout)
        made = back_up_server(server.receive, options.target, quick=options.quick)
        source = f"{server.address} ({server.how})"
    else:
        made = back_up(Path(options.source), options.target, quick=options.quick)
        source = options.source
    if options.json:
        print_json(facts(made, source))
    else:
        print_report(made, source)
        print(f"{made.target}: {_restorable(made)}")


def facts(made: Backup, source: str) -> dict[str, Any]:
    """Return the report for programs: bytes, seconds, the times of the log in seconds since 1970 or null."""
    end = {name: None if value == -1 else value for name, value in asdict(made.end).items()}
    return {"source": source, "target": made.target, "files": made.files, "bytes": made.bytes, "seconds": made.seconds,
            "log": {name: end[name] for name in ("commands", "base", "first", "last", "beyond", "torn")},
            "verified": made.verified}  # fmt: skip


def _restorable(made: Backup) -> str:
    end = made.end
    if end.first < 0 or made.target.suffix == ".rdb":
        return "can be restored as a whole"
    return f"can be restored to any second from {moment(end.oldest)} on; the last one is {moment(end.last)}"


def print_report(made: Backup, source: str) -> None:
    """Print what was copied, and how it was verified."""
    commands = f", {made.end.commands:,} command{'s' if made.end.commands != 1 else ''}" if made.end.commands else ""
    print(f"{made.target}: {size(made.bytes)} of {source}{commands}, in {made.seconds:.1f} s")
    if made.end.torn:
        print(f"{made.target}: left out: {made.end.torn} bytes of an unfinished write at the end")
    if made.verified is None:
        print(f"{made.target}: verified: checksums and the form of the commands")
    for line in made.verified.read if made.verified is not None else ():
        _, _, checked = line.partition(": every structure checked: ")
        if checked:
            print(f"{made.target}: verified: loaded, every structure checked: {checked}")


def yield_memory() -> None:
    """Let the kernel end this process, not the server, if memory runs out (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000\n")
