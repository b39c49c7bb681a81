"""A proxy between a replica and its master that cuts the link after a number of bytes, in either direction.

    replica ──► proxy ──► master        cut(after): the next connection ends after so many bytes of the master

Bytes pass unchanged. A cut closes both sides at once, with what was received before it. A proxy that is `shut` accepts
no link: it closes each connection at once.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading

_PIECE = 65536


class Proxy:
    """Listens on `port`; `links` counts the connections; `limits`: bytes of the master for each, then no limit."""

    def __init__(self, target: int, limits: list[int] | None = None) -> None:
        self.target = target
        self.limits = limits or []
        self.links = 0
        self.stalled: dict[int, int] = {}  # number of a link ► bytes of the master after which it passes nothing more
        self.cuts = 0  # links that have reached their limit
        self.stalls = 0  # bytes of the master after which a new link passes nothing more, until it is cut; 0: never
        self.shut = False
        self.sent = b""  # what the replicas sent, of all connections
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._stopped = False
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(10)

    def cut(self) -> None:
        """Cut all links now."""
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._stopped:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.shut:
                client.close()
                continue
            limit = self.limits[self.links] if self.links < len(self.limits) else -1
            stall = self.stalled.get(self.links, self.stalls)
            self.links += 1
            thread = threading.Thread(target=self._link, args=(client, limit, stall), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _link(self, client: socket.socket, limit: int, stall: int) -> None:
        try:
            master = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            client.close()
            return
        with client, master:
            with self._lock:
                self._open |= {client, master}
            with contextlib.suppress(OSError):
                self._pump(client, master, stall or limit)
                if stall:
                    while client.recv(_PIECE):  # it ends when the link is cut
                        pass
            with self._lock:
                self._open -= {client, master}

    def _pump(self, client: socket.socket, master: socket.socket, limit: int) -> None:
        left = limit
        while left:
            ready, _, _ = select.select([client, master], [], [])
            if client in ready:
                data = client.recv(_PIECE)
                if not data:
                    return
                self.sent += data
                master.sendall(data)
            if master in ready:
                data = master.recv(_PIECE if left < 0 else min(left, _PIECE))
                if not data:
                    return
                client.sendall(data)
                left -= len(data) if left > 0 else 0
        self.cuts += 1


__all__ = ["Proxy"]
