"""DirectoryBackend: a store in a directory, which this process owns, or is attached to the process that owns it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from rillet.errors import NestedCall, StoreBusy, StoreClosed
from rillet.host.directory import Directory
from rillet.host.engine_lock import engine_lock
from rillet.host.engine_thread import completed
from rillet.host.recovery import Recovery
from rillet.loggers import logger
from rillet.modules.loading import NO_MODULES, OpenModules
from rillet.persistence.announcement import Announcement
from rillet.persistence.directory_lock import LogLocked
from rillet.runtime.settings.settings import Settings
from rillet.server.unix_socket import UNIX_SOCKETS, answers, unix_url
from rillet.store.arguments.encoding import decode
from rillet.store.backends.backend import Backend, Execute
from rillet.store.sharing.directory_opening import DirectoryOpening
from rillet.store.sharing.owner import Owner
from rillet.store.sharing.saving import copy_file, save_in_background
from rillet.store.transports.in_process import InProcessTransport
from rillet.store.transports.transport import Transport, wait_for

if TYPE_CHECKING:
    from rillet.store.sharing.server_attachment import ServedTransport
    from rillet.store.sharing.serving import ServerLoop
    from rillet.store.transports.connected import AttachedTransport

LOGGER = logger("attach")
ATTACH_SECONDS = 60.0  # time that a process waits for an owner that is still replaying its log
# Time that a process waits for a server that ended, before it opens the directory itself: the server may be restarting.
RESTART_SECONDS = 3.0
ANNOUNCE_SECONDS = 1.0  # time that a process waits for the holder of the log's lock to announce itself


class DirectoryBackend(Backend):
    """A store in a directory: this process owns the directory, or is attached to the process that owns it.

    Another thread takes the directory (DirectoryOpening), so an interrupted caller stops waiting, and the directory is
    still either taken and served, or not taken. A later call gets what that thread opened.

    timeout: seconds in which the owner must answer an attached store; see AttachedTransport.
    """

    def __init__(self, directory: Directory, settings: Settings, progress: Callable[[int, int], None] | None,
                 timeout: float | None = None, modules: OpenModules = NO_MODULES) -> None:  # fmt: skip
        self.timeout = timeout
        self._modules = modules
        self.path = str(directory.path)
        self._directory = directory
        self._settings = settings
        self._progress = progress
        self._owner: Owner | None = None
        self._transport: Transport | None = None
        self._guard = threading.RLock()
        self._opening = DirectoryOpening()
        self._closed = self._released = False

    def transport(self) -> Transport:
        return self.replace(None)

    def replace(self, broken: Transport | None) -> Transport:
        with self._guard:
            if self._closed:
                raise StoreClosed("the store is closed")
            if self._opening.awaited:
                raise NestedCall(
                    "this call came from a signal handler that interrupted this thread while it opened the store: call "
                    "the store from another thread, or set a flag in the handler and call the store later"
                )
            # Several threads may find the same transport broken; only the first of them replaces it.
            found = self._transport
            if found is not None and (found is not broken or isinstance(found, InProcessTransport)):
                return found
            return self._opening.run(self._open, self._release_if_closed, broken)

    def _open(self, broken: Transport | None) -> Transport:
        """Take the directory, or attach to its owner."""
        if self._closed:
            raise StoreClosed("the store is closed")
        seconds = 0.0
        if broken is not None and self._transport is broken and not isinstance(broken, InProcessTransport):
            from rillet.store.sharing.server_attachment import ServedTransport

            LOGGER.warning("%s: the connection to the owner was lost", self.path)
            self._transport = None
            cast("AttachedTransport", broken).abandon()
            seconds = RESTART_SECONDS if isinstance(broken, ServedTransport) else 0.0
        if self._transport is None:
            self._transport = self._attach_to_server(seconds) or self._own_or_attach()
        return self._transport

    def _release_if_closed(self) -> None:
        """After an opening: release what it opened if the store was closed meanwhile."""
        if self._closed:
            self._release()

    @property
    def recovery(self) -> Recovery | None:
        return None if self._owner is None else self._owner.recovery

    def save(self, execute: Execute, path: Path | None) -> Path:
        save_in_background(execute)
        folder = self._directory.path
        if self._served_by() is not None:
            folder = Path(decode(execute("CONFIG", "GET", "dir")[1]))
        made = folder / decode(execute("CONFIG", "GET", "dbfilename")[1])
        if path is not None and path != made:
            copy_file(made, path)
        return path or made

    def _served_by(self) -> ServedTransport | None:
        """Return the transport to the server to which the store is attached, None if it is not attached to one."""
        if self._transport is None or isinstance(self._transport, InProcessTransport):
            return None
        from rillet.store.sharing.server_attachment import ServedTransport

        return self._transport if isinstance(self._transport, ServedTransport) else None

    def before_fork(self, afterwards: list[Callable[[], object]]) -> None:
        """Import what the child needs, because a lock of an import in another thread stays held in the child."""
        import rillet.store.transports.connected  # noqa: F401

    def after_fork(self) -> Transport:
        self._guard, self._opening = threading.RLock(), DirectoryOpening()
        if self._owner is not None:
            self._owner.forget_in_child()
            self._owner = None
        from rillet.store.transports.connected import AttachedTransport

        if isinstance(self._transport, AttachedTransport):
            self._transport.forget_in_child()
        # The child's first call on this transport raises NotSent; then the child attaches to the parent.
        self._transport = AttachedTransport(f"{self.path}/socket", self.timeout)
        self._transport.forget_in_child()
        return self._transport

    def _own(self) -> InProcessTransport | None:
        if not self._directory.lock():
            return None
        lock = engine_lock()
        try:
            self._owner = Owner(self._directory, self._settings, lock, self._progress, modules=self._modules)
        except BaseException:
            self._directory.unlock()
            raise
        return InProcessTransport(self._owner.engine, lock)

    def _attach_to_server(self, seconds: float) -> Transport | None:
        """Attach to the `rillet serve` that serves the directory; None if there is none within `seconds`."""
        found: list[ServedTransport] = []
        if not seconds and self._directory.server() is None:
            return None
        from rillet.store.sharing.server_attachment import server_of

        def try_once() -> bool:
            server = server_of(self._directory, self.timeout)
            found.extend([server] if server is not None else [])
            return bool(found)

        if not wait_for(try_once, seconds):
            return None
        LOGGER.info("%s: attached to the server at %s", self.path, found[0].path)
        return found[0]

    def _own_or_attach(self) -> Transport:
        try:
            own = self._own()
        except LogLocked:
            # A server that has just locked the log announces itself; an owner may just create its lock file.
            if wait_for(self._is_announced, ANNOUNCE_SECONDS):
                return self._attach()
            raise
        return own or self._attach()

    def _is_announced(self) -> bool:
        owner = self._directory.owner()
        server = self._directory.server()
        return server is not None or (owner is not None and answers(owner[1]))

    def _attach(self) -> Transport:
        from rillet.store.transports.connected import AttachedTransport

        found: list[Transport] = []

        def try_once() -> bool:
            owner = self._directory.announced()
            if owner is not None and not owner.is_server and answers(place := str(self._directory.socket_of(owner))):
                self._directory.check_version(owner)
                found.append(AttachedTransport(place, self.timeout, current=self._is_owner(owner)))
                LOGGER.info("%s: attached to the owner, process %d", self.path, owner.pid)
            elif (served := self._attach_to_server(0)) is not None:
                found.append(served)
            else:
                with contextlib.suppress(LogLocked):
                    own = self._own()  # the owner may have ended meanwhile
                    if own is not None:
                        found.append(own)
            return bool(found)

        if not wait_for(try_once, ATTACH_SECONDS if UNIX_SOCKETS else 0):
            raise self._busy()
        return found[0]

    def _is_owner(self, owner: Announcement) -> Callable[[], bool]:
        """Return a function that returns whether this is still the announced owner."""
        return lambda: self._directory.is_announced(owner)

    def _busy(self) -> StoreBusy:
        """Return the exception for an owner that cannot be attached to."""
        owner = self._directory.owner()
        number = owner[0] if owner else self._directory.holder()
        holder = f"process {number}" if number else "another process"
        if not UNIX_SOCKETS:
            return StoreBusy(f"{self.path} is open in {holder}; without Unix sockets only one process can open it")
        return StoreBusy(f"{self.path} is open in {holder}, which does not respond; try again, or end that process")

    def socket(self) -> str | None:
        owner = self._directory.owner()
        return owner[1] or None if owner else None

    @property
    def url(self) -> str | None:  # type: ignore[override]
        """The url of the owner's Unix socket, or of the server to which the store is attached."""
        served = self._served_by()
        if served is not None:
            return served.path
        path = self.socket() if UNIX_SOCKETS else None
        return None if path is None else unix_url(path)

    def where(self) -> ServerLoop | None:
        return None if self._owner is None else completed(self._owner.server).where()

    def close(self) -> None:
        if self._owner is not None and self._owner.is_this_thread():
            # If the garbage collector calls this method in the event loop's thread, the thread cannot join itself.
            threading.Thread(target=self.close, name="rillet-close").start()
            return
        with self._guard:
            self._closed = True
            if self._opening.under_way:
                return
            if isinstance(self._transport, InProcessTransport) and self._transport.runs_here():
                self._release()
            else:
                completed(self._release)

    def _release(self) -> None:
        with self._opening.lock:
            if self._released:
                return
            self._released = True
            if self._transport is not None:
                self._transport.close()
            if self._owner is not None:
                self._owner.close()

    def __repr__(self) -> str:
        return f"{self.path!r}, {'owner' if self._owner else 'attached'}"
