"""ACL LOG: the denied calls and failed logins, newest first (acl.c: addACLLogEntry).

A further event of the same kind within a minute raises the counter of its entry instead of adding one, if the entry is
among the ten newest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rillet.runtime.acl.user import DENIED_CHANNEL, DENIED_COMMAND, DENIED_DATABASE, DENIED_KEY
from rillet.runtime.client_line import client_line

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine
    from rillet.runtime.session import Session

_SAME_MS = 60_000
_SEARCHED = 10
REASONS = {DENIED_DATABASE: b"database", DENIED_COMMAND: b"command", DENIED_KEY: b"key", DENIED_CHANNEL: b"channel"}
AUTH = b"auth"
TLS_CERTIFICATE = b"tls-cert"


class LogEntry:
    """One or more events with the same reason, context, object and user."""

    __slots__ = ("client", "context", "count", "created_ms", "entry_id", "item", "reason", "updated_ms", "user")

    def __init__(
        self, entry_id: int, now: int, reason: bytes, context: bytes, item: bytes, user: bytes, client: bytes
    ) -> None:
        self.entry_id = entry_id
        self.count = 1
        self.created_ms = self.updated_ms = now
        self.reason = reason
        self.context = context
        # The command, key or channel.
        self.item = item
        self.user = user
        # The line of CLIENT LIST about the last client.
        self.client = client


class AclLog:
    """The log of one engine; `denials` counts all events by reason, for INFO."""

    __slots__ = ("_engine", "_next_id", "denials", "entries")

    def __init__(self, engine: CommandEngine) -> None:
        self._engine = engine
        self._next_id = 0
        self.entries: list[LogEntry] = []
        self.denials = dict.fromkeys((AUTH, *REASONS.values(), TLS_CERTIFICATE), 0)

    def add(self, session: Session, reason: bytes, context: bytes, item: bytes, user: bytes) -> None:
        """Record an event."""
        self.denials[reason] += 1
        longest = self._engine.settings.acllog_max_len
        compat = self._engine.settings.compat
        keeps_none = longest == 0 and (compat.valkey or compat.knows(74))
        if not keeps_none:
            self._record(session, reason, context, item, user)
        del self.entries[longest:]

    def _record(self, session: Session, reason: bytes, context: bytes, item: bytes, user: bytes) -> None:
        now = self._engine.clock.now_ms()
        client = client_line(session, session)
        for at, entry in enumerate(self.entries[:_SEARCHED]):
            if (entry.reason, entry.context, entry.item, entry.user) == (reason, context, item, user) and (
                abs(entry.updated_ms - now) <= _SAME_MS
            ):
                entry.count += 1
                entry.updated_ms, entry.client = now, client
                self.entries.insert(0, self.entries.pop(at))
                return
        self.entries.insert(0, LogEntry(self._next_id, now, reason, context, item, user, client))
        self._next_id += 1
