"""The remedy for damaged files, in the error of each program that opens them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from rillet.errors import LogCorrupt


@contextmanager
def salvageable(path: Path) -> Iterator[None]:
    """Add to a LogCorrupt the command that writes everything sound of a damaged directory or file to another place."""
    try:
        yield
    except LogCorrupt as error:
        out = "the new file OUT.rdb" if path.is_file() else "the new directory OUT"
        name = "OUT.rdb" if path.is_file() else "OUT"
        remedy = f"`rillet check {quote(str(path))} --salvage {name}` writes everything sound to {out}"
        raise LogCorrupt(error.path, error.offset, f"{error.reason}; {remedy}", error.check) from error.__cause__
