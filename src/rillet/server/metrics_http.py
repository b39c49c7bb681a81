"""`rillet serve --metrics-port N`: GET /metrics returns the server's figures in Prometheus's text format.

The port is on the addresses of `bind`, by default those of this machine only. It has neither a password nor TLS: names
of streams and groups are visible to everyone who reaches it. One scrape is collected at a time, and at most CLIENTS
connections wait, so scrapers cannot take more of the event loop's time than that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from rillet.extras import require
from rillet.server.metrics import Metric, StreamFinder, families, server_metrics
from rillet.server.server import Server
from rillet.server.unix_socket import CannotListen

CLIENTS = 16
_SECONDS = 5.0  # a client's time for its request, and for reading the response
_LARGEST = 16 * 1024  # bytes of a request
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class MetricsListener:
    """The HTTP listener of a server's metrics."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listeners: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._one_at_a_time = asyncio.Lock()
        self._finder = StreamFinder()

    async def start(self) -> None:
        """Listen on the addresses of `bind`; CannotListen if that fails, MissingExtra without prometheus_client."""
        require("metrics", "metrics-port")
        port = self._server.settings.metrics_port
        for address in self._server.settings.bind.split():
            optional, host = address.startswith("-"), address.lstrip("-")
            host = {"*": "0.0.0.0", "::*": "::"}.get(host, host)
            try:
                listener = await asyncio.start_server(self._answer, host, port, limit=_LARGEST)
            except OSError as error:
                if optional:
                    continue
                await self.stop()
                reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
                raise CannotListen(f"Failed listening on port {port} (metrics): {host}: {reason}") from error
            self._listeners.append(listener)

    async def stop(self) -> None:
        """Stop listening, and close all connections."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            async with asyncio.timeout(_SECONDS):
                request = await reader.readuntil(b"\r\n\r\n")
            status, kind, body = await self._response(request)
            head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"{head}Connection: close\r\n\r\n".encode())
            if not request.startswith(b"HEAD "):
                writer.write(body)
            async with asyncio.timeout(_SECONDS):
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client is gone, too slow, or does not speak HTTP
        finally:
            self._writers.discard(writer)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _response(self, request: bytes) -> tuple[int, str, bytes]:
        """Return the status, the type and the body for a request."""
        lines = request.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _plain(400, "expected an HTTP request")
        if words[0] not in ("GET", "HEAD"):
            return _plain(405, "expected GET")
        if words[1].partition("?")[0] != "/metrics":
            return _plain(404, "the metrics are at /metrics")
        if len(self._writers) > CLIENTS:
            return _plain(503, f"more than {CLIENTS} connections")
        headers = dict(_header(line) for line in lines[1:] if ":" in line)
        async with self._one_at_a_time:
            metrics = await server_metrics(self._server, self._finder)
            text, kind = await asyncio.get_running_loop().run_in_executor(
                None, _exposition, metrics, headers.get("accept", "")
            )
        return 200, kind, text


class _Collector:
    """What prometheus_client asks for metrics; also those of the process (CPU seconds, open files)."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Any]:
        """Yield the families."""
        from prometheus_client import ProcessCollector

        yield from families(self._metrics)
        yield from ProcessCollector(registry=None).collect()


def _exposition(metrics: list[Metric], accept: str) -> tuple[bytes, str]:
    """Return the text in the format that the scraper accepts, and its type; runs in a thread."""
    from prometheus_client.exposition import choose_encoder

    encode: Callable[[Any], bytes]
    encode, kind = choose_encoder(accept)
    return encode(_Collector(metrics)), kind


def _header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip().lower(), value.strip()


def _plain(status: int, text: str) -> tuple[int, str, bytes]:
    return status, "text/plain; charset=utf-8", f"{text}\n".encode()
