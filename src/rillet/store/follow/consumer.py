"""The consumer of a replica's changes: continues at a position, from the change log or from the server's backlog.

    position ── in the change log ─────────────► records
             ── before it ──── StreamReader ───► the server's backlog, until the change log holds the position
             ── in neither ────────────────────► ChangesLost
             ── after it ──────────────────────► waits: a restarted replica is still behind its consumer
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from rillet.client.address import Address
from rillet.client.errors import ConnectorError
from rillet.client.loop_timers import time_limit
from rillet.errors import ChangesLost
from rillet.replication.changes import Change, ChangePosition, Unit, UnitParser, changes_of
from rillet.replication.filtering import KeyFilter
from rillet.store.consuming.delivery_options import DeliveryOptions, End
from rillet.store.follow.change_log import ChangeLog, LogRecord
from rillet.store.follow.stream_reader import StreamLost, StreamReader
from rillet.store.transports.task_threads import in_thread

_RECORDS = 64  # that a consumer takes at once
_TURN = 0.25  # seconds until a waiting consumer looks at its `stop` again


class ChangeConsumer:
    """Takes changes after a position into `ready`; used by one thread or task at a time."""

    def __init__(self, log: ChangeLog, address: Address, keys: KeyFilter | None, position: ChangePosition) -> None:
        self.position = position  # of what was parsed; that of a change is in the change
        self.ready: deque[Change] = deque()
        self.log = log
        self._address = address
        self._reduce: Callable[[list[bytes]], list[bytes] | None] | None = None if keys is None else keys.reduced
        self._reader: StreamReader | None = None
        self._parser = UnitParser(0, 0)
        self._away = False  # whether the server could not be reached

    @property
    def has_news(self) -> bool:
        """Whether `poll` may find changes."""
        return not self._away and (self._reader is not None or self.log.has_news(self.position))

    @property
    def may_wait(self) -> bool:
        """Whether `poll` may use the connection to the server."""
        return self._reader is not None or not self.log.after(self.position, 0).held

    def poll(self) -> None:
        """Take what there is; ChangesLost. Waits at most a moment for the server."""
        self._away = False
        if self._reader is not None:
            self._poll_server(self._reader)
            return
        found = self.log.after(self.position, _RECORDS)
        if not found.held:
            self._ask_server(found.end)
            return
        for record in found.records:
            self._take_record(record, found.end.id)
        if not found.records and found.end.offset > self.position.offset:
            self.position = found.end  # no wanted key has changed: do not fall out of the log

    def _take_record(self, record: LogRecord, history: str) -> None:
        parser = UnitParser(record.start, record.db)
        for unit in parser.feed(record.data):
            if not record.exact:  # a unit of which the filter left a part
                self._take_unit(unit._replace(start=record.start, end=record.end), history)
            elif unit.end > self.position.offset:
                self._take_unit(unit, history)

    def _take_unit(self, unit: Unit, history: str) -> None:
        position = self.position
        skip = position.skip if unit.start == position.offset else 0
        self.ready += changes_of(unit, history, self._reduce, skip=skip)
        self.position = ChangePosition(history, unit.end, unit.db_after)

    def _ask_server(self, here: ChangePosition) -> None:
        """Continue with the server's backlog."""
        try:
            self._reader = StreamReader(self._address, self.position)
        except StreamLost:
            raise ChangesLost(
                f"the changes after {self.position} are lost: neither the replica nor the backlog of the server holds "
                f"them. Read the data again, and continue at {here}", str(self.position), str(here)
            ) from None
        except ConnectorError:
            self._away = True
            return
        self._parser = UnitParser(self.position.offset, self.position.db)

    def _poll_server(self, reader: StreamReader) -> None:
        try:
            for unit in self._parser.feed(reader.receive()):
                self._take_unit(unit, reader.id)
        except ConnectorError:
            self.close()
            return
        if self.log.after(self.position, 0).held:
            self.close()

    def close(self) -> None:
        """Close the connection to the server, if there is one."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def retry(self) -> None:
        """Let the next `poll` try to reach the server again."""
        self._away = False


class _Changes:
    """The shared part of the iterators for threads and for tasks."""

    def __init__(self, consumer: ChangeConsumer, stop: Any, timeout: Any) -> None:
        self._consumer = consumer
        self._end = End(DeliveryOptions(stop=stop, timeout=timeout))
        self.position = consumer.position
        """The position after the last change that was returned."""

    def _next(self) -> Change | None:
        if not self._consumer.ready:
            return None
        change = self._consumer.ready.popleft()
        self.position = change.position
        return change

    def _is_over(self) -> bool:
        return self._consumer.log.closed or bool(self._end.requested())


class Changes(_Changes, Iterator[Change]):
    """The changes of a replica, as they are applied; ends with the replica. One thread at a time may use it."""

    def __next__(self) -> Change:
        consumer, log = self._consumer, self._consumer.log
        while not self._is_over():
            change = self._next()
            if change is not None:
                self._end.handed_out()
                return change
            if consumer.has_news:
                consumer.poll()
                continue
            if self._end.expired():
                break
            news = log.news
            if not consumer.has_news and not log.closed:
                news.wait(_TURN)
            consumer.retry()
        consumer.close()
        raise StopIteration

    def close(self) -> None:
        """Close the connection to the server, if the consumer was behind."""
        self._consumer.close()


class AsyncChanges(_Changes, AsyncIterator[Change]):
    """The changes of a replica for one task."""

    async def __anext__(self) -> Change:
        consumer = self._consumer
        while not self._is_over():
            change = self._next()
            if change is not None:
                self._end.handed_out()
                return change
            if consumer.has_news:
                if consumer.may_wait:
                    await in_thread(consumer.poll)
                else:
                    consumer.poll()
                continue
            if self._end.expired():
                break
            await self._news()
            consumer.retry()
        consumer.close()
        raise StopAsyncIteration

    async def _news(self) -> None:
        """Wait until the log changes, or for a moment."""
        await wait_for_news(self._consumer.log, lambda: self._consumer.has_news, _TURN)

    def close(self) -> None:
        """Close the connection to the server, if the consumer was behind."""
        self._consumer.close()


async def wait_for_news(log: ChangeLog, has_news: Callable[[], bool], seconds: float) -> None:
    """Suspend the task until the log changes, or for a time; return at once if there are news."""
    loop, news = asyncio.get_running_loop(), asyncio.Event()
    here = threading.get_ident()

    def listener() -> None:
        if threading.get_ident() != here and not loop.is_closed():
            loop.call_soon_threadsafe(news.set)
        else:
            news.set()

    log.listeners.add(listener)
    try:
        if not has_news() and not log.closed:
            async with time_limit(seconds):
                await news.wait()
    except TimeoutError:
        pass
    finally:
        log.listeners.discard(listener)
