"""InProcessTransport: the engine in this process, for any number of threads and tasks.

    thread A ── session A ─┐
    thread B ── session B ─┼── lock ── engine ── log
    blocked task ──────────┘

Each thread has its own session, so SELECT, MULTI and WATCH belong to the thread. The lock makes a command atomic, and
the log is written while it is held. A thread that must wait for the disk (`appendfsync always`) releases the lock first
and waits until the log is synced past its offset: one sync serves all threads that wrote before it. A command that
blocks releases the lock and sleeps until the engine wakes its session.

A task of an event loop uses the session of the loop's thread. If its command blocks, that session stays with the task
until it is served, and the thread gets a new session in the same state, so other tasks continue.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rillet.client.address import Address
from rillet.client.servers import ClientOptions
from rillet.columns.receive_buffer import ReceiveBuffer
from rillet.errors import CommandError, Misconf, StoreClosed
from rillet.protocol.command_parser import CommandParser
from rillet.protocol.reply_parser import parse_all
from rillet.runtime.engine import Engine
from rillet.runtime.session import Session
from rillet.store.transports.transport import errors_among


class Wakener:
    """The event that a waiting thread waits for; the engine sets it when the session has its reply.

    since: the offset of the log before the reply. The session needs it to detect that the log failed after this offset,
    because another client, whose command served the session, may have received the error.
    """

    __slots__ = ("_engine", "event", "since")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.event = threading.Event()
        self.since: int | None = None

    def __call__(self) -> None:
        self.note()
        self.event.set()

    def note(self) -> None:
        """Record the current offset of the log. The caller must hold the lock."""
        log = self._engine.log
        if log is not None and log.failure is None:
            self.since = log.position - 1


class TaskWakener(Wakener):
    """The event that a waiting asyncio task waits for."""

    __slots__ = ("_loop", "awaited")

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(engine)
        self._loop = loop
        self.awaited = asyncio.Event()

    def __call__(self) -> None:
        self.note()
        waker(self._loop, self.awaited)()


_ReentrantLock: Any = type(threading.RLock())


class FairLock(_ReentrantLock):  # type: ignore[misc]
    """A reentrant lock that is granted in the order of the requests.

    A plain lock is free only for a moment between two commands of a busy thread, too short for a thread that must be
    woken first: attached clients would wait for tens of milliseconds while the owner's process adds in a loop. Here,
    waiting threads hold a turnstile lock, and the busy thread queues behind them.

    A KeyboardInterrupt can occur between any two steps of Python and must not leave the lock held, or the process would
    hang at its end. So `__exit__` is that of Python's own lock, which cannot be interrupted.
    """

    __slots__ = ("_turnstile",)

    def __init__(self) -> None:
        self._turnstile = threading.Lock()

    def __enter__(self) -> bool:
        if self._is_owned():
            return bool(self.acquire())
        try:
            with self._turnstile:
                return bool(self.acquire())
        except BaseException:
            if self._is_owned():
                self.release()
            raise


class _MessageDelivery:
    """Delivers messages to a subscription or redis-py connection: wakes it, or closes it if it does not read."""

    __slots__ = ("_above_since", "_engine", "_on_wake", "_session")

    def __init__(self, engine: Engine, session: Session, on_wake: Callable[[], None]) -> None:
        self._engine = engine
        self._session = session
        self._on_wake = on_wake
        self._above_since = 0

    def __call__(self) -> None:
        session = self._session
        limit = self._engine.settings.client_output_buffer_limit.pubsub
        reached, self._above_since = limit.reached(session.out.used, self._above_since, self._engine.clock.now_ms())
        if reached:
            session.closing = True
            session.out.take()
        self._on_wake()


class InProcessPages:
    """Lets client.pages.RangeReader read from the engine as from a server: send commands, receive reply bytes."""

    replica = lost = False
    waits = False
    options = ClientOptions(Address())
    address = "this process"

    def __init__(self, transport: InProcessTransport) -> None:
        self._transport = transport
        self._requests: list[bytes] = []

    def connection(self, key: bytes) -> InProcessPages:
        """Return this object as the connection for a key: the engine serves every key."""
        return self

    readers = connection

    def send(self, data: bytes) -> None:
        """Keep commands in RESP encoding for `receive`."""
        self._requests.append(data)

    def receive(self, decoder: ReceiveBuffer) -> None:
        """Run the commands of the oldest `send`; the replies become the decoder's buffer, without a copy."""
        self._transport.execute_packed(self._requests.pop(0), decoder)

    def redirected(self, key: bytes, error: str) -> bool:
        """Return False: the engine redirects nothing."""
        return False

    def forget(self, connection: object) -> None:
        """Drop the commands that did not run yet."""
        self._requests.clear()


class InProcessTransport:
    """Runs commands on the engine in this process. Each thread has a session; a lock makes each command atomic."""

    def __init__(self, engine: Engine, lock: contextlib.AbstractContextManager[Any]) -> None:
        self.engine = engine
        self.lock = lock
        self.closed = False
        self._thread = threading.local()
        self._sessions: dict[Session, threading.Thread] = {}
        self._extra_sessions: dict[Session, None] = {}

    # -- sessions --------------------------------------------------------------------------------------

    def session(self) -> Session:
        """Return this thread's session."""
        session: Session | None = getattr(self._thread, "session", None)
        if session is None:
            if self.closed:
                raise StoreClosed("the store is closed")
            with self.lock:
                self.forget_dead_threads()
                session = self._new_session()
            self._thread.session = session
        return session

    def _new_session(self) -> Session:
        session = self.engine.session()
        session.on_wake = Wakener(self.engine)
        self._sessions[session] = threading.current_thread()
        return session

    def forget_dead_threads(self) -> None:
        for session, thread in list(self._sessions.items()):
            if not thread.is_alive():
                self._end(session)

    def open_session(self, on_wake: Callable[[], None]) -> Session:
        """Return a new session for a redis-py connection or a subscription. The caller must hold the lock.

        `on_wake` is called when the session has a reply or a message, or is closed.
        """
        if self.closed:
            raise StoreClosed("the store is closed")
        session = self.engine.session()
        session.on_wake = on_wake
        session.on_message = _MessageDelivery(self.engine, session, on_wake)
        self._extra_sessions[session] = None
        return session

    def close_session(self, session: Session) -> None:
        """Close a session that `open_session` returned. The caller must hold the lock."""
        if self._extra_sessions.pop(session, self) is None:
            self.engine.close_session(session)

    def _end(self, session: Session) -> None:
        """Close a session. The caller must hold the lock."""
        if self._sessions.pop(session, None) is not None:
            self.engine.close_session(session)

    # -- commands --------------------------------------------------------------------------------------

    def execute_raw(self, argv: list[bytes]) -> bytes:
        """Run one command and return the bytes of its reply; wait if the command blocks."""
        session: Session | None = getattr(self._thread, "session", None)
        if session is None:
            session = self.session()
        try:
            with self.lock:
                raw = self._run(session, argv)
                log = self.engine.log
                position = 0 if log is None else log.write()
            if position:
                raw = self._once_safe(log, position, session, raw)
            return self._wait(session) if raw is None else raw
        except BaseException:
            self._give_up(session)
            raise

    def _run(self, session: Session, argv: list[bytes]) -> bytes | None:
        """Run one command; return None if it blocks. The caller must hold the lock."""
        if self.closed:
            raise StoreClosed("the store is closed")
        return session.out.take() if self.engine.execute(session, argv) else None

    def _once_safe(self, log: Any, position: int, session: Session, raw: bytes | None) -> bytes | None:
        """Return the reply once the log is synced past the offset; an error reply if the log failed.

        The caller must not hold the lock, so other threads continue, and one sync serves all earlier writes.
        """
        try:
            log.wait(position)
        except Misconf as error:
            with self.lock:
                log.write()  # closes the write gate: the engine rejects later writes
                if raw is None:
                    self.engine.blocking.fail(session, error)
                    session.out.take()
            return b"-%b\r\n" % str(error).encode()
        return raw

    def execute(self, argv: list[bytes]) -> Any:
        """Run one command and return its parsed reply."""
        return parse_all(self.execute_raw(argv))[0]

    def execute_many(self, commands: Sequence[list[bytes]]) -> list[Any]:
        """Run commands under one lock and one write of the log; a blocking command replies as if it had timed out."""
        if not commands:
            return []
        session = self.session()
        try:
            return self._execute_many(session, commands)
        except BaseException:
            self._give_up(session)
            raise

    def execute_packed(self, data: bytes, receiver: ReceiveBuffer | None = None) -> bytes:
        """Run commands in RESP encoding under one lock and one write of the log; return the bytes of their replies.

        The commands must not block. Most take the engine's fast path, which creates no objects.
        If there is a receiver, the replies become its buffer, and the result is empty.
        """
        session = self.session()
        try:
            with self.lock:
                if self.closed:
                    raise StoreClosed("the store is closed")
                log = self.engine.log
                began = 0 if log is None else log.position
                parser = CommandParser()
                parser.feed(data)
                while self.engine.drain(session, parser, 1 << 62):
                    pass
                raw: bytes | None = b""
                if receiver is None:
                    raw = session.out.take()
                else:
                    receiver.exchange(session.out)
                position = 0 if log is None else log.write(began)
            if position:
                raw = self._once_safe(log, position, session, raw)
                if receiver is not None and raw:  # the log failed, so `raw` is an error reply
                    receiver.pos = receiver.end
                    receiver.feed(raw)
        except BaseException:
            self._give_up(session)
            raise
        assert raw is not None
        return raw

    def append_packed(self, key: bytes, data: bytes, count: int) -> list[tuple[int, CommandError]]:
        """Run commands in RESP encoding that do not block; return each error reply with the position of its command."""
        raw = self.execute_packed(data)
        if not raw.startswith(b"-") and b"\r\n-" not in raw:
            return []
        return errors_among(parse_all(raw))

    @contextlib.contextmanager
    def page_source(self) -> Iterator[InProcessPages]:
        """Yield the source from which client.pages.RangeReader reads: the engine in this process."""
        yield InProcessPages(self)

    def _execute_many(self, session: Session, commands: Sequence[list[bytes]]) -> list[Any]:
        with self.lock:
            if self.closed:
                raise StoreClosed("the store is closed")
            log = self.engine.log
            began = 0 if log is None else log.position
            for argv in commands:
                if not self.engine.execute(session, argv):
                    # No other thread can unblock the session while this thread holds the lock.
                    self.engine.blocking.expire(session)
            raw = session.out.take()
            position = 0 if log is None else log.write(began)
        if position:
            try:
                log.wait(position)
            except Misconf as error:
                with self.lock:
                    log.write()
                return [error] * len(commands)
        return parse_all(raw)

    # -- waiting ---------------------------------------------------------------------------------------

    def _wait(self, session: Session) -> bytes:
        """Wait until a blocked session has its reply, its timeout expires, or the caller is interrupted."""
        event: threading.Event = session.on_wake.event
        while (remaining := self._remaining(session)) is None or remaining > 0:
            event.wait(None if remaining is None else min(remaining, threading.TIMEOUT_MAX))
            event.clear()
        return self._served(session)

    def _remaining(self, session: Session) -> float | None:
        """Return the seconds until a blocked session's timeout (None: no timeout), or 0 if it has its reply."""
        with self.lock:
            blocked = session.blocked
            if blocked is None or self.closed:
                return 0.0
            if blocked.wakes_at and blocked.wakes_at <= self.engine.clock.now_ms():
                self.engine.blocking.time_has_come(session)
                if session.blocked is None:
                    return 0.0
            if not blocked.wakes_at:
                return None
            left = (blocked.wakes_at - self.engine.clock.now_ms()) / 1000
            return max(0.001, float(left))

    def _served(self, session: Session) -> bytes:
        """Return the reply of a blocked session after the write that produced the reply is in the log.

        The client whose command unblocked the session may write the log only at the end of its event loop's iteration.
        """
        with self.lock:
            raw: bytes | None = session.out.take()
            log = self.engine.log
            since, session.on_wake.since = session.on_wake.since, None
            position = 0 if log is None else log.write(since)
        if not raw:
            raise StoreClosed("the store was closed while this call waited")
        if position:
            raw = self._once_safe(log, position, session, raw)
        assert raw is not None
        return raw

    def _give_up(self, session: Session) -> None:
        """Reset the session after an interrupted call, so that the next call does not receive its reply."""
        with self.lock:
            self.engine.blocking.fail(session, CommandError("interrupted"))
            session.out.take()

    async def execute_async(self, argv: list[bytes]) -> Any:
        """Run one command from a task; if it blocks, only the task waits."""
        session = self.session()
        try:
            with self.lock:
                raw = self._run(session, argv)
                log = self.engine.log
                position = 0 if log is None else log.write()
                blocks = raw is None
                if blocks:
                    session.on_wake = TaskWakener(self.engine, asyncio.get_running_loop())
                    event = session.on_wake.awaited
                    self._thread.session = self._successor(session)
            if position:
                raw = self._once_safe(log, position, session, raw)
        except BaseException:
            self._give_up(session)
            raise
        if raw is None:
            raw = await self._wait_async(session, event)
        elif blocks:
            with self.lock:
                self._end(session)
        return parse_all(raw)[0]

    async def _wait_async(self, session: Session, event: asyncio.Event) -> bytes:
        try:
            while (remaining := self._remaining(session)) is None or remaining > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(remaining):
                        await event.wait()
                event.clear()
            return self._served(session)
        except BaseException:
            self._give_up(session)
            raise
        finally:
            with self.lock:
                self._end(session)

    def _successor(self, session: Session) -> Session:
        """Return a new session with the same state (database, user, ...) as a blocked session."""
        successor = self._new_session()
        successor.db, successor.name, successor.user = session.db, session.name, session.user
        successor.out.resp = session.out.resp
        return successor

    # -- closing ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close every session; calls that are waiting raise StoreClosed."""
        with self.lock:
            self.closed = True
            for session in list(self._sessions):
                self._end(session)
                session.on_wake()
            for session in list(self._extra_sessions):
                self.close_session(session)
                session.on_wake()


def waker(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> Callable[[], None]:
    """Return a function that sets an asyncio event of the loop and can be called from any thread."""

    def wake() -> None:
        # An event loop that was closed needs no wake-up; call_soon_threadsafe raises RuntimeError.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(event.set)

    return wake
