"""Attaching to a directory that `rillet serve --appendonly yes` uses: the server owns the log, the store is a client.

The server writes its addresses and its `run_id` to owner.json (persistence.announcement). `server_of` connects to the
Unix socket, or else to the TCP port, and compares INFO's `run_id`: after a kill, another server may use the address.

A store never asks for a password. If the server requires one, the error recommends `rillet.connect`.
"""

from __future__ import annotations

from typing import Any

from rillet.errors import CommandError, IncompatibleOwner, StoreBusy, StoreError
from rillet.host.directory import Directory
from rillet.persistence.announcement import Announcement
from rillet.store.arguments.encoding import decode
from rillet.store.transports.connected import AttachedTransport, options_of


class ServedTransport(AttachedTransport):
    """The transport to the server that serves a store's directory."""

    def __init__(self, url: str, timeout: float | None = None) -> None:
        super().__init__(url, timeout)
        self.options = options_of(url)


def server_of(directory: Directory, timeout: float | None = None) -> ServedTransport | None:
    """Return a transport to the server that serves the directory; None if there is none, or if it is still loading.

    IncompatibleOwner if its version of rillet does not work with this one; StoreBusy if it requires a password or
    cannot be used for another reason.
    """
    server = directory.server()
    if server is None:
        return None
    urls = [url for url in (f"unix://{server.socket}" if server.socket else "", server.url) if url]
    if not urls and directory.log_is_locked():
        raise StoreBusy(f"{directory.path} is served by process {server.pid}, which listens neither on a Unix socket "
                        "nor on a port: start the server with one of them, or stop it")  # fmt: skip
    for url in urls:
        transport = ServedTransport(url, timeout)
        reply = _info(transport)
        if isinstance(reply, dict) and reply.get("run_id") == server.run_id:
            try:
                directory.check_version(server)
            except IncompatibleOwner:
                transport.close()
                raise
            if reply.get("loading") == "0":
                return transport
        elif isinstance(reply, CommandError) and directory.log_is_locked():
            transport.close()
            raise StoreBusy(_refused(directory, server, url, reply))
        transport.close()
    return None


def _info(transport: ServedTransport) -> Any:
    """Return the fields of INFO, the error of the server, or None if it cannot be reached."""
    try:
        reply = transport.execute([b"INFO"])
    except StoreError:
        return None
    if isinstance(reply, CommandError):
        return reply
    return dict(line.split(":", 1) for line in decode(reply).splitlines() if ":" in line)


def _refused(directory: Directory, server: Announcement, url: str, error: CommandError) -> str:
    served = f"{directory.path} is served by process {server.pid} at {url}"
    if str(error).startswith("NOAUTH"):
        scheme, _, place = url.partition("://")
        return f"{served}, which requires a password: use rillet.connect('{scheme}://:PASSWORD@{place}')"
    return f"{served}, which refused to be attached to: {error}"
