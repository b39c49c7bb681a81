"""Serving the inspector: uvicorn on a socket that is bound here, so that a free port is known before it answers."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from rillet.errors import StoreError
from rillet.inspector.app import Api, make_app
from rillet.inspector.place import DUMP_LIMIT, InspectedPlace
from rillet.inspector.security import new_token

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_STOP_SECONDS = 3


class Inspector:
    """A page over a place, which listens on one address until it is closed."""

    def __init__(self, place: InspectedPlace, *, host: str = "127.0.0.1", port: int = 0, token: str | None = None,
                 names: Sequence[str] = ()) -> None:  # fmt: skip
        import uvicorn

        self.place = place
        self.token = token or new_token()
        self.socket = _listener(host, port)
        self.port: int = self.socket.getsockname()[1]
        self.host = host
        known = {host, *names, *(LOOPBACK if host in (*LOOPBACK, "0.0.0.0", "::") else ())}
        self.api = Api(place)
        app = make_app(self.api, self.token, sorted(known), self.port)
        config = uvicorn.Config(app, log_level="warning", lifespan="on", timeout_graceful_shutdown=_STOP_SECONDS,
                                server_header=False, access_log=False, ws="none")  # fmt: skip
        feeds = self.api.feeds

        class FeedServer(uvicorn.Server):
            """Ends the event streams of open pages first: they would never end by themselves."""

            async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
                feeds.closing.set()
                await super().shutdown(sockets)

        self._server = FeedServer(config)

    @property
    def base(self) -> str:
        """The address without the token."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host and not host.startswith('[') else host}:{self.port}"

    @property
    def url(self) -> str:
        """The address to open, with the token."""
        return f"{self.base}/?token={self.token}"

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM."""
        self._server.run(sockets=[self.socket])

    def run_in_thread(self) -> threading.Thread:
        """Serve in another thread until `close`; return when requests are answered."""
        thread = threading.Thread(target=self.run, name="rillet-inspector", daemon=True)
        thread.start()
        while not self._server.started and thread.is_alive():
            time.sleep(0.01)
        return thread

    def stop(self) -> None:
        """Stop serving."""
        self._server.should_exit = True


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host.strip("[]"), port))
        listener.listen(128)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise StoreError(f"{host}:{port} cannot be used for the inspector: {error.strerror or error}") from error
    return listener


@contextlib.contextmanager
def running(where: str, *, write: bool = False, dump_limit: int = DUMP_LIMIT, **options: Any) -> Iterator[Inspector]:
    """Serve an inspector over a place in another thread, for notebooks and tests."""
    place = InspectedPlace(where, write=write, dump_limit=dump_limit)
    try:
        inspector = Inspector(place, **options)
        thread = inspector.run_in_thread()
        try:
            yield inspector
        finally:
            inspector.stop()
            thread.join(timeout=30)
            inspector.socket.close()
    finally:
        place.close()


__all__ = ["LOOPBACK", "Inspector", "running"]
