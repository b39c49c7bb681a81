"""Names of keys and the globs that match them, as Redis reads globs; for those who may not look into the engine."""

from __future__ import annotations

from rillet.structs.glob import compiled


def matches(glob: str, name: str) -> bool:
    """Return whether a glob, as SCAN MATCH takes it, matches a name."""
    return compiled(glob.encode()).matches(name.encode())
