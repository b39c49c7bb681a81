"""ServerBackend: the store of rillet.connect, over a server or a cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rillet.errors import StoreError
from rillet.store.backends.backend import Backend, Execute
from rillet.store.retries import PATIENCE
from rillet.store.transports.cluster import ClusterTransport
from rillet.store.transports.connected import ServerTransport, options_of

CLUSTER_PATIENCE = PATIENCE  # seconds that a call of a cluster follows redirections and waits for nodes


class ServerBackend(Backend):
    """A server or a cluster."""

    def __init__(self, url: str, timeout: float | None = None) -> None:
        self.url = url
        options = options_of(url)
        if options.seeds():
            # Commands of one batch may reach some nodes while another one is away: each is sent again by itself.
            options = replace(options, timeout=CLUSTER_PATIENCE)
        kind = ClusterTransport if options.seeds() else ServerTransport
        self._transport = kind(options, timeout)

    def transport(self) -> ServerTransport:
        return self._transport

    def after_fork(self) -> ServerTransport:
        self._transport.forget_in_child()
        return self._transport

    def save(self, execute: Execute, path: Path | None) -> Path:
        raise StoreError("a server writes its RDB file on its own disk: use store.execute('BGSAVE')")

    def close(self) -> None:
        self._transport.close()

    def __repr__(self) -> str:
        return repr(str(self.url).rpartition("@")[2])
