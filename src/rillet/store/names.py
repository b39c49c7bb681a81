"""Matching of key names with globs, as in Redis, for packages that must not import the engine."""

from __future__ import annotations

from rillet.structs import glob as globs


def matches(glob: str, name: str) -> bool:
    """Return whether a name matches a glob, with the syntax of SCAN MATCH."""
    return globs.matches(glob.encode(), name.encode())
