"""Replica: the store that `rillet.follow` returns, and its asyncio form.

A Replica is a Store whose engine is in memory and rejects writes. In addition it has a position in the stream of its
server, the state of its link, the changes, and methods that wait.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rillet.client.address import Address
from rillet.client.connection import Connection
from rillet.client.errors import ConnectorError
from rillet.client.loop_timers import sleep
from rillet.errors import CommandError, StoreTimeout
from rillet.host.memory_services import MemoryServices
from rillet.modules.loading import OpenModules
from rillet.persistence.write_gate import WriteGate
from rillet.real_time import monotonic
from rillet.replication.changes import ChangePosition
from rillet.replication.filtering import KeyFilter
from rillet.runtime.admission import READ_ONLY
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.store.aio import AsyncStore
from rillet.store.arguments.argument_checks import whole_number
from rillet.store.arguments.durations import Seconds, seconds_in
from rillet.store.backends.backend import Execute, MemoryBackend
from rillet.store.consuming.delivery_options import Stop
from rillet.store.follow.change_log import ChangeLog
from rillet.store.follow.consumer import AsyncChanges, ChangeConsumer, Changes, wait_for_news
from rillet.store.follow.directory import FollowDirectory
from rillet.store.follow.link import CONNECT_SECONDS, FollowLink, LinkState
from rillet.store.follow.stream_reader import ServerPosition, server_of, server_position
from rillet.store.store import Store
from rillet.store.transports.in_process import InProcessTransport
from rillet.store.transports.task_threads import in_thread

if TYPE_CHECKING:
    from typing import Self

_PAUSE = 0.05  # between two questions to a server that is away


class Lag(NamedTuple):
    """The lag of a replica: known bytes that it has not applied, and seconds since its server's last message.

    A server sends a byte at least every `repl-ping-replica-period` seconds (10 by default), so that an idle link has up
    to so many seconds, and all changes.
    """

    bytes: int
    seconds: float


class FollowServices(MemoryServices):
    """The services of an engine that follows a server until its store is closed."""

    def promote(self) -> None:
        """Refuse REPLICAOF NO ONE."""
        raise CommandError("this store is a replica of rillet.follow: close it, and open another store")


class FollowBackend(MemoryBackend):
    """An engine in memory that follows a server."""

    def __init__(self, settings: Settings, address: Address, keys: list[str], directory: FollowDirectory | None,
                 backlog: int, modules: OpenModules) -> None:  # fmt: skip
        super().__init__(settings, active_expiry=False, modules=modules)
        transport = self._transport
        transport.database = address.db
        engine = transport.engine
        WriteGate(engine).set(READ_ONLY, READ_ONLY)
        self.directory = directory
        self.path = None if directory is None else str(directory.path)
        globs = [key.encode("utf-8", "surrogateescape") for key in keys]
        self.keys = KeyFilter(globs, settings.compat) if globs else None
        log = ChangeLog(backlog)
        resumable = False
        if directory is not None:
            position = directory.load(engine, log.append)
            if position is not None:
                resumable = True
                log.resume(position)
        self.link = FollowLink(engine, transport.lock, address, self.keys, log, directory)
        self.link.start(resumable)

    def _new_services(self, engine: Engine, lock: Any) -> MemoryServices:
        return FollowServices(engine, lock, self.timers.thread)

    def save(self, execute: Execute, path: Path | None) -> Path:
        if path is None:
            raise ValueError("a replica writes its own files: pass the path of the RDB file")
        return super().save(execute, path)

    def after_fork(self) -> InProcessTransport:
        transport = super().after_fork()
        self.link.forget_in_child()
        if self.directory is not None:
            self.directory.forget_in_child()
        return transport

    def _must_close_here(self) -> bool:
        return self.link.is_needed_here() or super()._must_close_here()

    def _close(self) -> None:
        self.link.close()
        if self.directory is not None:
            self.directory.close()
        super()._close()

    def __repr__(self) -> str:
        place = "in memory" if self.path is None else repr(self.path)
        return f"{place}, a replica of {self.link.address}"


class Replica(Store):
    """A read-only store that replication keeps equal to a server; see docs/follow.md. Writes raise ReadOnly."""

    def __init__(self, backend: FollowBackend) -> None:
        self._link = backend.link
        self._follows = backend
        super().__init__(backend)

    # -- position and state ----------------------------------------------------------------------------

    @property
    def position(self) -> ChangePosition:
        """The position of the data in the stream of the server: a history, an offset and a database."""
        state = self._engine.replication
        return ChangePosition(state.id, state.offset, state.db)

    @property
    def offset(self) -> int:
        """The number of bytes of the server's stream that are applied (slave_repl_offset)."""
        return int(self._engine.replication.offset)

    @property
    def lag(self) -> Lag:
        """The lag of the data, without a request. `wait_synced` sends a request to the server."""
        applier = self._link.follower.applier
        waiting = 0 if applier is None else applier.waiting
        return Lag(waiting, max(self._engine.clock.now_ms() - self._link.follower.last_io_ms, 0) / 1000)

    @property
    def connected(self) -> bool:
        """Whether the replica follows the stream of its server."""
        return self._link.follower.connected

    @property
    def resyncs(self) -> int:
        """The number of full synchronisations because a command read a key that the filter excludes."""
        return self._link.resyncs

    @property
    def link(self) -> LinkState:
        """The state of the link: status, last error, counters."""
        return self._link.state()

    @property
    def _engine(self) -> Any:
        transport = self._transport
        assert isinstance(transport, InProcessTransport)
        return transport.engine

    # -- waiting -----------------------------------------------------------------------------------------

    def wait(self, offset: int | ChangePosition, timeout: Seconds | None = None) -> None:
        """Wait until the data contains the stream up to an offset; StoreTimeout. StoreClosed if the store is closed."""
        number = offset.offset if isinstance(offset, ChangePosition) else whole_number(offset, "offset")
        self._wait(lambda: self._has_reached(number), f"the offset {number}", timeout)

    def _has_reached(self, offset: int) -> bool:
        return self._link.synced.is_set() and self.offset >= offset

    def wait_synced(self, timeout: Seconds | None = None) -> ChangePosition:
        """Wait until the data contains all that the server had at the time of the call; return the position.

        The server is asked for its offset (INFO). If the user may not run INFO, wait for the link only. StoreTimeout.
        """
        end = _deadline(timeout)
        while True:
            self._wait(lambda: self.connected and self._link.synced.is_set(), "the server", _left(end))
            there = self._server_position(end)
            self._wait(functools.partial(self._may_contain, there), _named(there), _left(end))
            if self._contains(there):
                return self.position
            time.sleep(_PAUSE)

    def _may_contain(self, there: ServerPosition | None) -> bool:
        return self.connected and (there is None or self.offset >= there.offset or not self._has_history(there))

    def _contains(self, there: ServerPosition | None) -> bool:
        return there is None or (self._has_history(there) and self.offset >= there.offset)

    def _has_history(self, there: ServerPosition) -> bool:
        """Return whether offsets are comparable: the link may lead to a server that is no longer the master."""
        return there.id == self._engine.replication.id or not self._link.follower.full.id

    def _server_position(self, end: float | None) -> ServerPosition | None:
        """Return the position of the server; None if it does not say."""
        while True:
            self._alive()
            try:
                with Connection(server_of(self._link.address), CONNECT_SECONDS) as connection:
                    return server_position(connection)
            except ConnectorError as error:
                if end is not None and monotonic() >= end:
                    raise StoreTimeout(f"{self!r}: the server cannot be reached: {error}") from error
                time.sleep(_PAUSE)

    def _wait(self, reached: Any, what: str, timeout: Seconds | None) -> None:
        end, log = _deadline(timeout), self._link.log
        while True:
            news = log.news
            if reached():
                return
            self._alive()
            left = _left(end)
            if left is not None and left <= 0:
                raise self._late(what)
            news.wait(0.25 if left is None else min(left, 0.25))

    def _late(self, what: str) -> StoreTimeout:
        link = self._link.state()
        reason = f"; {link.error}" if link.error and not self.connected else ""
        return StoreTimeout(f"{self!r} waited too long for {what}: its offset is {self.offset}, its link "
                            f"{link.status!r}{reason}")  # fmt: skip

    @contextmanager
    def paused(self) -> Iterator[ChangePosition]:
        """Apply nothing during the block, so that several reads see the data of one position, which is yielded.

        The server's changes wait in the connection; a block of seconds is harmless, one of a minute breaks the link.
        """
        self._alive()
        with self._link.gate:
            yield self.position

    # -- changes -----------------------------------------------------------------------------------------

    def changes(self, after: ChangePosition | str | None = None, *, stop: Stop | None = None,
                timeout: Seconds | None = None) -> Changes:  # fmt: skip
        """Return an iterator over the changes after a position, as they are applied; None: from now on.

        after: `change.position` of the last change that was handled, or its text. The iterator raises ChangesLost if
        neither the replica nor the backlog of the server holds what follows. It ends when the store is closed.
        stop: an event or a function; when it is set or returns True, end. timeout: end after so many seconds without a
        change.
        """
        return Changes(self._consumer(after), stop, timeout)

    def _consumer(self, after: ChangePosition | str | None) -> ChangeConsumer:
        self._alive()
        position = ChangePosition.parse(after) if isinstance(after, str) else after
        with self._link.log.guard:
            position = position or self._link.log.after(ChangePosition("", 0), 0).end
        return ChangeConsumer(self._link.log, self._link.address, self._follows.keys, position)

    def __enter__(self) -> Self:
        return self

    def aio(self) -> AsyncReplica:
        """Return the asyncio API of this replica."""
        self._alive()
        made = AsyncReplica(self)
        if self.observer is not None:
            self.observer.instrument_async(made)
        return made


class AsyncReplica(AsyncStore):
    """The asyncio API of a Replica. `synchronous` is that Replica; closing one closes both."""

    synchronous: Replica

    @property
    def position(self) -> ChangePosition:
        """The position of the data in the stream of the server."""
        return self.synchronous.position

    @property
    def offset(self) -> int:
        """The number of bytes of the server's stream that are applied."""
        return self.synchronous.offset

    @property
    def lag(self) -> Lag:
        """The lag of the data; see Replica.lag."""
        return self.synchronous.lag

    @property
    def connected(self) -> bool:
        """Whether the replica follows the stream of its server."""
        return self.synchronous.connected

    @property
    def resyncs(self) -> int:
        """The number of full synchronisations because of the filter."""
        return self.synchronous.resyncs

    @property
    def link(self) -> LinkState:
        """The state of the link."""
        return self.synchronous.link

    async def wait(self, offset: int | ChangePosition, timeout: Seconds | None = None) -> None:
        """Wait until the data contains the stream up to an offset; see Replica.wait."""
        number = offset.offset if isinstance(offset, ChangePosition) else whole_number(offset, "offset")
        await self._wait(lambda: self.synchronous._has_reached(number), f"the offset {number}", timeout)

    async def wait_synced(self, timeout: Seconds | None = None) -> ChangePosition:
        """Wait until the data contains all that the server had at the time of the call; see Replica.wait_synced."""
        replica, end = self.synchronous, _deadline(timeout)
        while True:
            await self._wait(lambda: replica.connected and replica._link.synced.is_set(), "the server", _left(end))
            there = await in_thread(replica._server_position, end)
            await self._wait(functools.partial(replica._may_contain, there), _named(there), _left(end))
            if replica._contains(there):
                return replica.position
            await sleep(_PAUSE)

    async def _wait(self, reached: Any, what: str, timeout: Seconds | None) -> None:
        end, replica = _deadline(timeout), self.synchronous
        while not reached():
            replica._alive()
            left = _left(end)
            if left is not None and left <= 0:
                raise replica._late(what)
            await wait_for_news(replica._link.log, reached, 0.25 if left is None else min(left, 0.25))

    @contextmanager
    def paused(self) -> Iterator[ChangePosition]:
        """Apply nothing during the block; see Replica.paused. The block belongs to the thread of the loop."""
        with self.synchronous.paused() as position:
            yield position

    def changes(self, after: ChangePosition | str | None = None, *, stop: Stop | None = None,
                timeout: Seconds | None = None) -> AsyncChanges:  # fmt: skip
        """Return an asynchronous iterator over the changes after a position; see Replica.changes."""
        return AsyncChanges(self.synchronous._consumer(after), stop, timeout)


def _named(there: ServerPosition | None) -> str:
    return "the server" if there is None else f"the offset {there.offset}"


def _deadline(timeout: Seconds | None) -> float | None:
    return None if timeout is None else monotonic() + seconds_in(timeout, "timeout")


def _left(end: float | None) -> float | None:
    return None if end is None else end - monotonic()
