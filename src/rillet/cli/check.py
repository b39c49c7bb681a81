"""`rillet check PATH [--repair]`: check the files of a store or server for damage.

PATH is the directory of a store or a server, the folder or the manifest of a log, a log of one file, or an RDB file.
The command changes nothing without --repair. With --repair, it cuts a file before its torn last record, and keeps a
copy of the original file beside it.

Exit status: 0 no damage (or repaired), 1 damage, 2 nothing could be checked.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rillet.errors import NewerFormat, NotAStore, RilletError
from rillet.persistence.checking import CheckReport, Damage, check, repair
from rillet.store.directory import MARKER, check_marker
from rillet.store.progress import ProgressBar

SOUND, DAMAGED, NOTHING = 0, 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, help="a directory of a store or server, a log, or an RDB file")
    parser.add_argument("--repair", action="store_true", help="remove a torn last record; a copy of the file is kept")
    parser.add_argument("--quiet", action="store_true", help="print damage only")


def run(options: argparse.Namespace) -> int:
    """Check the files, print the report, repair torn files on request; return the exit status."""
    path: Path = options.path
    try:
        report = _checked(path)
        _print(report, options.quiet)
        if options.repair and any(damage.torn for damage in report.damages):
            for damage in report.damages:
                if damage.torn:
                    copy = repair(path, damage)
                    print(f"repaired: {damage.path} was cut to {damage.offset} bytes; copy of the original: {copy}")
            report = _checked(path)
            _print(report, quiet=True)
    except RilletError as error:
        print(f"rillet: {error}", file=sys.stderr)
        return NOTHING
    except OSError as error:
        print(f"rillet: {error.filename or path}: {error.strerror}", file=sys.stderr)
        return NOTHING
    if report.sound:
        if not options.quiet:
            print("sound")
        return SOUND
    return DAMAGED


def _checked(path: Path) -> CheckReport:
    with ProgressBar(f"{path.name}: checking") as bar:
        report = check(path, bar)
    if (path / MARKER).is_file():
        try:
            check_marker(path)
        except (NotAStore, NewerFormat) as error:
            report.damages.append(Damage(path / MARKER, -1, str(error).removeprefix(f"{path / MARKER}: ")))
    return report


def _print(report: CheckReport, quiet: bool) -> None:
    for line in [] if quiet else [*report.read, *report.remarks]:
        print(line)
    for damage in report.damages:
        hint = "; --repair removes this torn record" if damage.torn else ""
        print(f"DAMAGED {damage}{hint}")
