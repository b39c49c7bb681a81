"""The Unix socket of a server or a store, without an event loop: opened, looked for, removed (Redis: anet.c)."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path
from urllib.parse import quote

from rillet.errors import StoreError
from rillet.loggers import logger
from rillet.runtime.settings.settings import Settings

log = logger("server")
UNIX_SOCKETS = hasattr(socket, "AF_UNIX")


class CannotListen(StoreError):
    """The server cannot listen; the message names the address."""


class UnixSocket:
    """A Unix socket that listens at a path, in place of one that a killed process left; CannotListen.

    It gets its permissions between bind and listen, so no client can connect before.
    """

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path = path
        if not UNIX_SOCKETS:
            raise CannotListen(f"cannot listen on {path}: this operating system has no Unix sockets")
        if answers(path):  # do not replace the socket of a running server that listens on this path
            raise CannotListen(f"cannot listen on {path}: another server listens there")
        try:
            self.opened = _open(path, settings)
            self._status = path.stat()
        except OSError as error:
            raise CannotListen(f"cannot listen on {path}: {error.strerror or error}") from error
        log.info("listening on %s", path)

    def remove(self) -> None:
        """Remove the path, unless another process has a socket there: the folder of this one may have been renamed."""
        with contextlib.suppress(OSError):
            if os.path.samestat(self.path.stat(), self._status):
                self.path.unlink()


def _open(path: Path, settings: Settings) -> socket.socket:
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(path.stat().st_mode):
            path.unlink()
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        opened.bind(str(path))
        if settings.unixsocketperm:
            path.chmod(settings.unixsocketperm)
        if settings.unixsocketgroup:
            os.chown(path, -1, _group(settings.unixsocketgroup))
        opened.listen(settings.tcp_backlog)
        opened.setblocking(False)
    except OSError:
        opened.close()
        raise
    return opened


def _group(name: str) -> int:
    """Return the number of a group; OSError if there is none of this name."""
    if name.isdigit():
        return int(name)
    try:
        import grp

        return grp.getgrnam(name).gr_gid
    except (ImportError, KeyError):
        raise OSError(f"there is no group {name} (unixsocketgroup)") from None


def answers(path: str | Path) -> bool:
    """Return whether a process accepts connections on the Unix socket."""
    if not UNIX_SOCKETS:
        return False
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def unix_url(path: str, secret: str = "") -> str:
    """Return the url of a Unix socket."""
    return f"unix://{secret}{quote(path)}"
