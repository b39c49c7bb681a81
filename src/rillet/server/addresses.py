"""The addresses of one server: those of `bind`, `port`, `tls-port` and `unixsocket`, and those that a program adds.

CONFIG SET of bind, port and tls-port closes the old TCP addresses and opens the new ones. If one of them cannot be
used, the server listens on the old ones again, and CONFIG SET fails (server.c: changeListenPort, changeBindAddr).
Connected clients stay.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rillet.runtime.settings.setting_types import SettingError
from rillet.runtime.settings.settings import Settings
from rillet.server.engine_loop import EngineLoop
from rillet.server.listeners import ListeningAddress, open_tcp
from rillet.server.log_lines import LOGGER, WARNING, say
from rillet.server.unix_socket import CannotListen, UnixSocket

_ANY = {"*": "0.0.0.0", "::*": "::"}


class Protocols(NamedTuple):
    """What makes the protocol of a new client: one of this machine, one that may be on another host, one with TLS."""

    local: Callable[[], Any]
    exposed: Callable[[], Any]
    tls: Callable[[], Any]


class Addresses:
    """The listening sockets of a server. `port`: the TCP port, 0 if there is none."""

    def __init__(self, settings: Settings, loop: EngineLoop, protocols: Protocols) -> None:
        self._settings = settings
        self._loop = loop
        self._protocols = protocols
        self.listeners: list[ListeningAddress] = []
        self.port = 0
        self._main: UnixSocket | None = None
        # The values of bind, port and tls-port that the listeners have.
        self._bound = ("", 0, 0)
        self._attaching: set[asyncio.Task[None]] = set()

    # -- TCP -----------------------------------------------------------------------------------------

    async def listen_tcp(self) -> None:
        """Listen on the addresses of the settings; CannotListen if one of them fails."""
        for listener in self._open(self._wanted()):
            await self._attach(listener)

    def _wanted(self) -> tuple[str, int, int]:
        return self._settings.bind, self._settings.port, self._settings.tls_port

    def _open(self, wanted: tuple[str, int, int]) -> list[ListeningAddress]:
        """Open every address for `port` and `tls-port`; CannotListen if one of them fails."""
        opened: list[ListeningAddress] = []
        addresses, port, tls_port = wanted
        try:
            for number, is_tls in ((port, False), (tls_port, True)):
                for address in addresses.split() if number else ():
                    listener = self._open_one(address, number, is_tls)
                    if listener is not None:
                        opened.append(listener)
        except CannotListen:
            for one in opened:
                one.close()
            raise
        self.port, self._bound = port, wanted
        return opened

    def _open_one(self, address: str, port: int, is_tls: bool) -> ListeningAddress | None:
        """Open one address; None if it is unavailable and may be: "-::1" in redis.conf."""
        host = address.removeprefix("-")
        host = _ANY.get(host, host)
        try:
            listener = ListeningAddress(open_tcp(host, port, self._settings), is_tls=is_tls)
        except OSError as error:
            if address.startswith("-"):
                return None
            # server.c: initServer, the words that tools look for
            raise CannotListen(f"Failed listening on port {port} (tcp): {host}: {_reason(error)}") from error
        LOGGER.info("listening on %s:%d%s", host, port, " with TLS" if is_tls else "")
        return listener

    async def _attach(self, listener: ListeningAddress) -> None:
        """Accept the clients of a listener from now on."""
        self.listeners.append(listener)
        await listener.attach(self._loop.loop, self.factory(listener), self._settings.tcp_backlog)

    def factory(self, listener: ListeningAddress) -> Callable[[], Any]:
        """Return what makes the protocol of each client of a listener."""
        if listener.is_tls:
            return self._protocols.tls
        if not listener.local or not self._settings.compat.knows(72):  # 7.0 trusts 127.0.0.1, but not 127.0.0.2
            return self._protocols.exposed
        return self._protocols.local

    def rebind(self) -> None:
        """Listen on the addresses of the settings, after CONFIG SET; SettingError, and the old addresses stay."""
        wanted, before = self._wanted(), self._bound
        if wanted == before:
            return
        for listener in [one for one in self.listeners if not one.is_unix]:
            self.stop(listener)
        try:
            opened = self._open(wanted)
        except CannotListen as error:
            say(str(error), WARNING)
            self._attach_soon(self._open(before))
            if wanted[0] != before[0]:
                raise SettingError("Failed to bind to specified addresses.") from error
            raise SettingError("Unable to listen on this port. Check server logs.") from error
        self._attach_soon(opened)

    def _attach_soon(self, opened: list[ListeningAddress]) -> None:
        """Accept clients in the next loop iterations; they wait in the backlog until then."""
        for listener in opened:
            task = self._loop.create_task(self._attach(listener))
            self._attaching.add(task)
            task.add_done_callback(self._attaching.discard)

    async def listen(self, host: str, port: int) -> ListeningAddress:
        """Listen on one more TCP address; port 0 takes a free port. CannotListen if that fails."""
        try:
            listener = ListeningAddress(open_tcp(host, port, self._settings))
        except OSError as error:
            raise CannotListen(f"cannot listen on {host}:{port}: {_reason(error)}") from error
        await self._attach(listener)
        LOGGER.info("listening on %s:%d", host, listener.port)
        return listener

    def set_keepalive(self, seconds: int) -> None:
        """Apply tcp-keepalive to the clients that connect from now on."""
        for listener in self.listeners:
            listener.set_keepalive(seconds)

    # -- Unix ----------------------------------------------------------------------------------------

    async def listen_main_unix(self, main: UnixSocket) -> None:
        """Listen on the Unix socket of the settings, which `remove_unix` removes."""
        await self._attach(ListeningAddress(main.opened))
        self._main = main

    @property
    def unix_path(self) -> Path | None:
        """The Unix socket of the settings, None if there is none."""
        return None if self._main is None else self._main.path

    async def listen_unix(self, path: Path) -> ListeningAddress:
        """Listen on one more Unix socket; CannotListen if that fails."""
        listener = ListeningAddress(UnixSocket(path, self._settings).opened)
        await self._attach(listener)
        return listener

    def remove_unix(self) -> None:
        """Remove the Unix socket of the settings from its folder."""
        if self._main is not None:
            self._main.remove()
            self._main = None

    # -- closing -------------------------------------------------------------------------------------

    def stop(self, listener: ListeningAddress) -> None:
        """Accept no more clients on this address; its connected clients stay."""
        if listener in self.listeners:
            self.listeners.remove(listener)
            listener.close()

    def close(self) -> None:
        """Accept no more clients."""
        for listener in list(self.listeners):
            self.stop(listener)


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else str(error)
