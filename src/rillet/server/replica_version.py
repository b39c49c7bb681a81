"""Asks a replica for its version: one connection to the address that it announced, and INFO.

Redis replicas do not send their version to the master. FAILOVER connects to a replica in the same way, so the
address, the user and the password of replication (masteruser, masterauth) apply. The answer counts if the other server
says that it is a replica.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from rillet.errors import StoreError
from rillet.protocol.command_parser import pack_command
from rillet.runtime.replica_versions import compat_in_info
from rillet.runtime.settings.settings import Settings
from rillet.server.tls import client_context
from rillet.types.compat import Compat

SECONDS = 2.0
"""The time for an answer."""
_LONGEST = 1 << 20


class VersionQuestions:
    """The questions of one server to its replicas."""

    def __init__(self, loop: asyncio.AbstractEventLoop, settings: Settings) -> None:
        self._loop = loop
        self._settings = settings
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, host: str, port: int, answered: Callable[[Compat | None], None]) -> None:
        """Call `answered` later with the server at an address, or with None if it does not answer."""
        task = self._loop.create_task(self._ask(host, port, answered))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Drop the questions, because the server stops."""
        for task in list(self._tasks):
            task.cancel()

    async def _ask(self, host: str, port: int, answered: Callable[[Compat | None], None]) -> None:
        found: Compat | None = None
        try:
            found = await asyncio.wait_for(self._info(host, port), SECONDS)
        except (TimeoutError, OSError, EOFError, ValueError, ssl.SSLError, StoreError):
            pass
        answered(found)

    async def _info(self, host: str, port: int) -> Compat | None:
        settings = self._settings
        context = client_context(settings) if settings.tls_replication else None
        source = (settings.bind_source_addr, 0) if settings.bind_source_addr else None
        reader, writer = await asyncio.open_connection(
            host, port, ssl=context, local_addr=source, limit=_LONGEST, server_hostname="" if context else None
        )
        try:
            words = [
                one.encode("utf-8", "surrogateescape") for one in (settings.masteruser, settings.masterauth) if one
            ]
            if settings.masterauth:
                writer.write(pack_command([b"AUTH", *words]))
                await reader.readline()
            writer.write(pack_command([b"INFO"]))
            head = await reader.readline()
            if not head.startswith(b"$"):
                return None
            info = (await reader.readexactly(int(head[1:]))).decode("utf-8", "replace")
            return compat_in_info(info) if "role:slave" in info else None
        finally:
            writer.close()
