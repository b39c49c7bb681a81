"""The backend of `rillet.open(path, owner="process")`: this process never owns the directory.

    an announced owner           attach: an owner process, `rillet serve`, or a process that opened the directory itself
    no process holds the lock    start an owner process, and attach
    the lock is held, no owner   wait: the holder replays the log, or is about to end

The store holds a connection to an owner process, its lease, for as long as it is open. The owner counts it, so the
store may be idle. The first reply on the lease shows that the owner has accepted the store; until then the owner may
end, and nothing that matters has been sent.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from rillet.client.address import Address
from rillet.client.connection import Connection
from rillet.client.errors import ConnectionLost, ConnectorError, TimedOut
from rillet.errors import StoreTimeout
from rillet.host.directory import Directory
from rillet.host.recovery import Recovery
from rillet.loggers import logger
from rillet.modules.loading import NO_MODULES, OpenModules
from rillet.persistence.announcement import Announcement
from rillet.persistence.directory_lock import LogLocked
from rillet.real_time import monotonic
from rillet.runtime.settings.settings import Settings
from rillet.store.sharing.directory_backend import ANNOUNCE_SECONDS, ATTACH_SECONDS, DirectoryBackend
from rillet.store.sharing.owner_start import OwnerKilled, check_possible, start_owner
from rillet.store.transports.connected import AttachedTransport
from rillet.store.transports.transport import Transport, wait_for

LOGGER = logger("attach")
_TRIES = 5  # how often a process that is killed while it starts is started again
_PAUSE = 0.005  # seconds between two looks at the directory, growing to _LONGEST
_LONGEST = 0.1
_LEASE = b"rillet-lease"  # the name in CLIENT LIST


class SeparateBackend(DirectoryBackend):
    """A store in a directory whose owner is a separate process. settings: as rillet.open received them."""

    def __init__(self, directory: Directory, settings: Settings, given: dict[str, Any],
                 progress: Callable[[int, int], None] | None, timeout: float | None, grace: float,
                 modules: OpenModules = NO_MODULES) -> None:  # fmt: skip
        check_possible()
        super().__init__(directory, settings, progress, timeout, modules)
        self._given = given
        self._grace = grace
        self._recovery: Recovery | None = None

    @property
    def recovery(self) -> Recovery | None:
        return self._recovery

    def _own_or_attach(self) -> Transport:
        limit, pause = monotonic() + ATTACH_SECONDS, _PAUSE
        killed = 0  # processes that were killed before they owned the directory
        while True:
            found = self._attach_to_owner()
            if found is not None:
                return found
            try:
                started = self._directory.holder() is None and self._start()
            except OwnerKilled:
                started = False
                killed += 1
                if killed == _TRIES:
                    raise
            if not started:
                if monotonic() > limit:
                    raise self._busy()
                time.sleep(pause)
                pause = min(pause * 1.5, _LONGEST)

    def _start(self) -> bool:
        """Start an owner process; return False if another process became the owner."""
        try:
            recovery = start_owner(self._directory.path, self._given, self._grace, self._progress, self._modules)
        except LogLocked:
            # A server that has just locked the log announces itself; an owner may just create its lock file.
            if wait_for(self._is_announced, ANNOUNCE_SECONDS):
                return False
            raise
        if recovery is not None:
            self._recovery = recovery
            LOGGER.info("%s: started a process that owns it", self.path)
        return recovery is not None

    def _attach_to_owner(self) -> Transport | None:
        """Attach to the announced owner; None if there is none, or if it ends."""
        owner = self._directory.announced()
        if owner is None:
            return None
        if owner.is_server:
            return self._attach_to_server(0)
        place = str(self._directory.socket_of(owner))
        lease = self._lease(owner, place)
        if lease is None:
            return None
        try:
            # Another owner may have taken the place of this one before the socket was opened.
            if self._directory.announced() != owner:
                lease.close()
                return None
            self._directory.check_version(owner)
        except BaseException:
            lease.close()
            raise
        if not owner.separate:
            lease.close()
        LOGGER.info("%s: attached to the owner, process %d", self.path, owner.pid)
        return AttachedTransport(place, self.timeout, lease if owner.separate else None, self._is_owner(owner))

    def _lease(self, owner: Announcement, place: str) -> Connection | None:
        """Return a connection that the owner has accepted; None if there is no owner at that place."""
        limit = ATTACH_SECONDS if self.timeout is None else self.timeout
        lease = None
        try:
            lease = Connection(Address(unix=place), None, limit)
            lease.replies([[b"CLIENT", b"SETNAME", _LEASE]])
        except TimedOut as error:
            if lease is not None:
                lease.close()
            raise StoreTimeout(f"{self.path} is open in process {owner.pid}, which did not answer within {limit:g} s: "
                               "try again, or end that process") from error  # fmt: skip
        except ConnectorError as error:
            if lease is not None:
                lease.close()
            if isinstance(error, ConnectionLost):
                return None
            raise
        except BaseException:
            with contextlib.suppress(Exception):
                if lease is not None:
                    lease.close()
            raise
        return lease

    def __repr__(self) -> str:
        owner = self._directory.owner()
        return f"{self.path!r}, attached to process {owner[0]}" if owner else f"{self.path!r}, attached"
