"""Listening sockets: TCP and TLS, with their options; and the clients of all (Redis: anet.c, server.c: listenToPort).

    open      socket -> bind -> listen                    at once: an error is an OSError of the caller
    attach    the event loop accepts clients              a coroutine; clients that connect earlier wait in the backlog

Options that a client's socket inherits from the listening one (keepalive, the mark of its packets) are set here, once.
For Unix sockets see rillet.server.unix_socket.

uvloop accepts one client for each listening descriptor in each iteration of the loop. So a listener has several
descriptors of one socket (ACCEPTORS), and the loop accepts as many clients at once. asyncio's own loop accepts all
waiting clients, and one descriptor suffices.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from typing import Any

from rillet.runtime.settings.settings import Settings

ACCEPTORS = 8
_SO_MARK = 36  # Linux


class ListeningAddress:
    """One address that is open. `local`: only this machine can reach it. `is_tls`: its clients use TLS."""

    def __init__(self, opened: socket.socket, *, is_tls: bool = False) -> None:
        opened.setblocking(False)
        self._opened = opened
        self._servers: list[asyncio.Server] = []
        self.is_tls = is_tls
        name = opened.getsockname()
        self.is_unix = not isinstance(name, tuple)
        self.local = self.is_unix or name[0].startswith("127.") or name[0] == "::1"
        self.port = 0 if self.is_unix else int(name[1])
        self._closed = False

    @property
    def sockets(self) -> list[Any]:
        """The listening sockets of this address."""
        return [one for server in self._servers for one in server.sockets] or [self._opened]

    async def attach(self, loop: asyncio.AbstractEventLoop, factory: Callable[[], Any], backlog: int) -> None:
        """Accept clients; `factory` makes the protocol of each."""
        descriptors = [self._opened]
        if not isinstance(loop, asyncio.BaseEventLoop):
            descriptors += [self._opened.dup() for _ in range(ACCEPTORS - 1)]
        for one in descriptors:
            one.setblocking(False)
            if self._closed:
                one.close()
            elif self.is_unix:
                self._servers.append(await loop.create_unix_server(factory, sock=one, backlog=backlog))
            else:
                self._servers.append(await loop.create_server(factory, sock=one, backlog=backlog))
        if self._closed:
            self.close()

    def set_keepalive(self, seconds: int) -> None:
        """Apply tcp-keepalive to the clients that connect from now on."""
        if not self.is_unix:
            set_keepalive(self._opened, seconds)

    def close(self) -> None:
        """Accept no more clients."""
        self._closed = True
        for server in self._servers:
            server.close()
        # The event loop closes its descriptors later; the address is free at once.
        with contextlib.suppress(OSError):
            self._opened.shutdown(socket.SHUT_RDWR)
        if not self._servers:
            self._opened.close()


def open_tcp(host: str, port: int, settings: Settings) -> socket.socket:
    """Listen on one TCP address; OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, socket.IPPROTO_TCP, socket.AI_PASSIVE)
    opened = socket.socket(*found[0][:3])  # with the protocol: asyncio sets TCP_NODELAY for TCP only
    try:
        if os.name == "posix":
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        set_keepalive(opened, settings.tcp_keepalive)
        if settings.socket_mark_id:
            opened.setsockopt(socket.SOL_SOCKET, _SO_MARK, settings.socket_mark_id)
        opened.bind(found[0][4])
        opened.listen(settings.tcp_backlog)
    except OSError:
        opened.close()
        raise
    return opened


def set_keepalive(one: Any, seconds: int) -> None:
    """Let the system probe idle clients of a listening socket; 0: never (anet.c: anetKeepAlive)."""
    one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(seconds > 0))
    idle = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", None))
    if seconds <= 0 or idle is None or not hasattr(socket, "TCP_KEEPINTVL"):
        return
    # The first probe after `seconds`, then one each third of that time, and three failures end the connection.
    one.setsockopt(socket.IPPROTO_TCP, idle, min(seconds, 32767))
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, min(max(seconds // 3, 1), 32767))
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
