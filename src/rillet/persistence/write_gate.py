"""The write gate: the reasons for which an engine rejects writes (server.c: writeCommandsDeniedByDiskError).

A failed snapshot and a log that cannot be written are separate causes, set and cleared independently. While both
apply, Redis reports the snapshot. A store that is open read-only rejects writes for ever. The engine has one text,
`Engine.refusal`. While it has no other reason, it is that of the replication (`ReplicationState.refusal`).
"""

from __future__ import annotations

from rillet.runtime.admission import READ_ONLY
from rillet.runtime.engine import Engine

SNAPSHOT, LOG = "snapshot", "log"
_ORDER = (READ_ONLY, SNAPSHOT, LOG)


class WriteGate:
    """The causes (failed snapshot, failed log) for which one engine rejects writes."""

    __slots__ = ("_engine", "_reasons")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reasons: dict[str, str] = {}

    def reason(self, cause: str) -> str | None:
        """Return the error text of a cause of rejected writes, None if the cause does not apply."""
        return self._reasons.get(cause)

    def set(self, cause: str, reason: str | None) -> None:
        """Set the error text of a cause of rejected writes; None clears the cause."""
        if reason is None:
            self._reasons.pop(cause, None)
        else:
            self._reasons[cause] = reason
        found = next((self._reasons[one] for one in _ORDER if one in self._reasons), None)
        self._engine.refusal = found or self._engine.replication.refusal
