"""Serving the inspector: uvicorn on a socket that is bound here, so that a free port is known before it answers."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rillet.errors import StoreError
from rillet.inspector.app import Api, make_app
from rillet.inspector.place import DUMP_LIMIT, InspectedPlace
from rillet.inspector.security import new_token

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_STOP_SECONDS = 3


class Certificate(NamedTuple):
    """The files with which the page is served over TLS: PEM, as `tls-cert-file` and `tls-key-file` of a server."""

    file: str
    key: str | None = None  # None: the key is in `file`
    password: str | None = None


class Inspector:
    """A page over places, which listens on one address until it is closed; with a certificate, over TLS."""

    def __init__(self, places: InspectedPlace | Sequence[InspectedPlace], *, host: str = "127.0.0.1", port: int = 0,
                 token: str | None = None, names: Sequence[str] = (),
                 certificate: Certificate | None = None) -> None:  # fmt: skip
        import uvicorn

        self.places = [places] if isinstance(places, InspectedPlace) else list(places)
        self.token = token or new_token()
        self.socket = _listener(host, port)
        self.port: int = self.socket.getsockname()[1]
        self.host = host
        self.secure = certificate is not None
        known = {host, *names, *(LOOPBACK if host in (*LOOPBACK, "0.0.0.0", "::") else ())}
        shown = [place.name for place in self.places]
        self.apis = [Api(place, shown) for place in self.places]
        app = make_app(self.apis, self.token, sorted(known), self.port)
        config = uvicorn.Config(app, log_level="warning", lifespan="on", timeout_graceful_shutdown=_STOP_SECONDS,
                                server_header=False, access_log=False, ws="none",
                                **_tls_options(certificate))  # fmt: skip
        try:
            config.load()  # reads the certificate
        except (OSError, ssl.SSLError) as error:
            self.socket.close()
            assert certificate is not None
            problem = getattr(error, "strerror", None) or error
            raise StoreError(f"{certificate.file} cannot be used as the certificate of the page: {problem}") from error
        feeds = [api.feeds for api in self.apis]

        class FeedServer(uvicorn.Server):
            """Ends the event streams of open pages first: they would never end by themselves."""

            async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
                for feed in feeds:
                    feed.closing.set()
                await super().shutdown(sockets)

        self._server = FeedServer(config)

    @property
    def place(self) -> InspectedPlace:
        """The first place."""
        return self.places[0]

    @property
    def api(self) -> Api:
        """The API over the first place."""
        return self.apis[0]

    @property
    def base(self) -> str:
        """The address without the token."""
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        return f"http{'s' if self.secure else ''}://{host}:{self.port}"

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


def _tls_options(certificate: Certificate | None) -> dict[str, Any]:
    if certificate is None:
        return {}
    return {"ssl_certfile": certificate.file, "ssl_keyfile": certificate.key,
            "ssl_keyfile_password": certificate.password}  # fmt: skip


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
def running(*where: str, write: bool = False, dump_limit: int = DUMP_LIMIT, **options: Any) -> Iterator[Inspector]:
    """Serve an inspector over places in another thread, for notebooks and tests."""
    with inspected(where, write=write, dump_limit=dump_limit) as places:
        inspector = Inspector(places, **options)
        thread = inspector.run_in_thread()
        try:
            yield inspector
        finally:
            inspector.stop()
            thread.join(timeout=30)
            inspector.socket.close()


@contextlib.contextmanager
def inspected(where: Sequence[str], **options: Any) -> Iterator[list[InspectedPlace]]:
    """Open places, and close them at the end; options: those of InspectedPlace."""
    with contextlib.ExitStack() as stack:
        places = []
        for one in where:
            places.append(InspectedPlace(one, **options))
            stack.callback(places[-1].close)
        yield places
