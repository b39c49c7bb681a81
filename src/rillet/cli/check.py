"""`rillet check PATH [--repair]`: whether what lies on the disk is whole, and where it is not.

PATH is a store's directory, a server's, a log's folder or manifest, an RDB file, or a log of one file. Nothing is
changed unless --repair is given, and then only a torn end is cut off; the file as it was is kept beside it.

Exit status: 0 all is sound (or was repaired), 1 something is damaged, 2 there is nothing that could be checked.
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
    """Declare what the subcommand takes."""
    parser.add_argument("path", type=Path, help="a directory of a store or server, a log, or an RDB file")
    parser.add_argument("--repair", action="store_true", help="cut off a torn end; a copy of the file is kept")
    parser.add_argument("--quiet", action="store_true", help="tell damages only")


def run(options: argparse.Namespace) -> int:
    """Check, tell, repair what is asked; return the exit status."""
    path: Path = options.path
    try:
        report = _checked(path)
        _tell(report, options.quiet)
        if options.repair and any(damage.torn for damage in report.damages):
            for damage in report.damages:
                if damage.torn:
                    print(f"repaired: {damage.path} ends at {damage.offset} now; as it was: {repair(path, damage)}")
            report = _checked(path)
            _tell(report, quiet=True)
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


def _tell(report: CheckReport, quiet: bool) -> None:
    for line in [] if quiet else [*report.read, *report.remarks]:
        print(line)
    for damage in report.damages:
        hint = "; --repair cuts it off" if damage.torn else ""
        print(f"DAMAGED {damage}{hint}")
