"""Why changes are refused, where they are: one text for each cause, and the one that clients see (server.c:
writeCommandsDeniedByDiskError).

A snapshot that fails and a log that cannot be written are causes of their own: each comes and goes by itself, and while
both are there Redis names the snapshot. The engine knows one text, `Engine.refusal`; it is set here only.
"""

from __future__ import annotations

from rillet.runtime.engine import Engine

SNAPSHOT, LOG = "snapshot", "log"
_ORDER = (SNAPSHOT, LOG)


class WriteGate:
    """The causes of one engine."""

    __slots__ = ("_engine", "_reasons")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reasons: dict[str, str] = {}

    def reason(self, cause: str) -> str | None:
        """Return why changes are refused on account of the cause, None where they are not."""
        return self._reasons.get(cause)

    def set(self, cause: str, reason: str | None) -> None:
        """Say why changes are refused on account of the cause; None: they are not, on its account."""
        if reason is None:
            self._reasons.pop(cause, None)
        else:
            self._reasons[cause] = reason
        self._engine.refusal = next((self._reasons[one] for one in _ORDER if one in self._reasons), None)


__all__ = ["LOG", "SNAPSHOT", "WriteGate"]
