"""`rillet top PATH|URL`: streams, groups and lag in the terminal, live.

The numbers are those of `rillet inspect`, from the same code: rillet.inspector.sampling collects them in small steps,
at most 1 % of a core at rest. Enter opens a stream, Escape closes it, s changes the order, q ends.

Exit status: 0, or 2 if the place cannot be read.
"""

from __future__ import annotations

import argparse

from rillet.cli.output import guarded, until_interrupted
from rillet.cli.places import place_arguments
from rillet.extras import require


def add_arguments(parser: argparse.ArgumentParser) -> None:
    place_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Show the figures until q or ^C; return the exit status."""
    return guarded(lambda: until_interrupted(lambda: _show(options.place, options.db)))


def _show(where: str, db: int | None) -> None:
    require("inspect", "this command")
    from rillet.inspector.place import InspectedPlace
    from rillet.inspector.top import Top

    place = InspectedPlace(where, db=db)
    try:
        Top(place).run()
    finally:
        place.close()
