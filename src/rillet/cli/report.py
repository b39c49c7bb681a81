"""`rillet report PATH|URL -o report.html`: the streams of a place as one self-contained page.

The page has the streams with their throughput over time, groups with lag and ages, and the oldest pending entries. It
needs no script, no network and no other file. Nothing is written to the place.

Exit status: 0, or 2 if the place cannot be read or the file cannot be written.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rillet.cli.output import guarded
from rillet.cli.places import place_arguments
from rillet.errors import StoreError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    place_arguments(parser)
    parser.add_argument("-o", "--output", type=Path, default=Path("report.html"), metavar="FILE",
                        help="the page (default report.html)")  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Write the page; return the exit status."""
    return guarded(lambda: _write(options.place, options.db, options.output))


def _write(where: str, db: int | None, target: Path) -> None:
    from rillet.inspector.place import InspectedPlace
    from rillet.inspector.report import report

    place = InspectedPlace(where, db=db)
    try:
        text = report(place)
    finally:
        place.close()
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise StoreError(f"{target} cannot be written: {error.strerror}") from error
    print(f"rillet: the report is in {target}")
