"""Restrictions of a master's stream while older replicas are attached.

    a replica attaches ──► its server is known, or is asked ──► `attached`: the stream sends only what it knows
    a command that cannot be sent ──► `refused`: the replica is disconnected before it gets the next byte
    a replica continues at an offset ──► `finds_newer`: are there commands that it does not know?

A master rewrites its own effects (older_replicas.py). A server in the middle of a chain cannot: it forwards the bytes
of its master. It reads them instead while such a replica is attached, and disconnects the replica.

The limit of a replica stays for repl-timeout after it has left: a replica whose link was cut can then continue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rillet.errors import ProtocolError
from rillet.protocol.command_parser import pack_command, unlimited_parser
from rillet.replication.attached import AttachedReplica
from rillet.replication.older_replicas import Narrowing
from rillet.runtime.replica_versions import RILLET, UNKNOWN, compat_of, shown
from rillet.types.compat import COMPATS, Compat

if TYPE_CHECKING:
    from rillet.runtime.engine import Engine


class Limits:
    """The servers of the replicas of one stream, and their rewriting."""

    def __init__(self, engine: Engine, on_refused: Any) -> None:
        self._engine = engine
        self._on_refused = on_refused
        # The servers of replicas, and when one was last attached (ms of Clock.uptime_ms).
        self._seen: dict[Compat, int] = {}
        self._narrowing: Narrowing | None = None

    # -- the server of a replica -----------------------------------------------------------------------

    def learn(self, replica: AttachedReplica) -> bool:
        """Set the server of a replica from its handshake or the settings; return False if it must be asked."""
        properties, wanted = replica.properties, self._engine.settings.repl_compat
        properties.server = None
        if any(one.startswith(RILLET) for one in properties.capabilities):
            return True
        if wanted != "auto":
            properties.server = COMPATS[wanted]
        elif properties.version:
            properties.server = compat_of(properties.version, True)
        elif properties.port:
            properties.server = UNKNOWN
            return False
        return True

    # -- limits ----------------------------------------------------------------------------------------

    def update(self, replicas: list[AttachedReplica]) -> None:
        """Apply the limits of these replicas, and of those that have just left."""
        now = self._engine.clock.uptime_ms()
        for replica in replicas:
            if replica.properties.server is not None and replica.needs_stream and not replica.asked:
                self._seen[replica.properties.server] = now
        oldest = now - 1000 * self._engine.settings.repl_timeout
        for server in [one for one, seen in self._seen.items() if seen <= oldest]:
            del self._seen[server]
        compat, is_master = self._engine.settings.compat, self._engine.replication.master is None
        servers = [one for one in self._seen if not covers(one, compat)] if is_master else []
        if servers == ([] if self._narrowing is None else self._narrowing.servers):
            return
        self._narrowing = Narrowing(self._engine, servers, self._on_refused) if servers else None
        self._engine.narrow(self._narrowing)

    def close(self) -> None:
        """Remove all limits."""
        self._seen = {}
        if self._narrowing is not None:
            self._narrowing = None
            self._engine.narrow(None)

    @property
    def refused(self) -> bool:
        """Whether replicas must be disconnected before more is sent."""
        return self._narrowing is not None and bool(self._narrowing.refused)

    def take_refused(self, replicas: list[AttachedReplica]) -> list[tuple[AttachedReplica, str]]:
        """Return the replicas that cannot follow, each with the reason, and forget their limits."""
        assert self._narrowing is not None
        refused, self._narrowing.refused = self._narrowing.refused, []
        reasons = dict(reversed(refused))
        for server in reasons:
            self._seen.pop(server, None)
        return [(one, reasons[one.properties.server]) for one in replicas if one.properties.server in reasons]

    # -- bytes of the stream ---------------------------------------------------------------------------

    def newer(self, servers: list[Compat], data: bytes, skipped: int = 0) -> str:
        """Return the first command of the stream that one of the servers does not know, or "". O(bytes)

        The data begins with a command; the commands in the first `skipped` bytes do not matter.
        """
        if not servers:
            return ""
        narrowing, parser = Narrowing(self._engine, servers, self._on_refused), unlimited_parser()
        parser.feed(data)
        try:
            while argv := parser.next():
                if skipped > 0:
                    skipped -= len(pack_command(argv))
                    matters = skipped < 0
                else:
                    matters = True
                if matters and narrowing.is_new(argv):
                    return b" ".join(argv[:2])[:100].decode("utf-8", "backslashreplace")
        except ProtocolError:
            return "bytes that are not commands"
        return ""


def covers(server: Compat, compat: Compat) -> bool:
    """Return whether a server knows everything that a master of `compat` has."""
    if compat.valkey:
        return server.valkey and server.rdb_version == compat.rdb_version
    return server.level >= compat.level and (not server.valkey or compat.level <= COMPATS["7.2"].level)


def name_of(server: Compat) -> str:
    """Return the name of a server."""
    return shown(server)
