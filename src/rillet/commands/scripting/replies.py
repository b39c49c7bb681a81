"""Shared parts of the commands of scripts and functions."""

from __future__ import annotations

from rillet.errors import CommandError


def check_flush(argv: list[bytes], message: str) -> None:
    """Raise CommandError unless the only option of a FLUSH is ASYNC or SYNC."""
    if len(argv) > 3 or (len(argv) == 3 and argv[2].lower() not in (b"sync", b"async")):
        raise CommandError(message)
