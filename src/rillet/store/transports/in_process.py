"""LocalLink: the engine in this process, for any number of threads and tasks.

    thread A ── session A ─┐
    thread B ── session B ─┼── lock ── engine ── log
    a task that waits ─────┘

Every thread has a session of its own, so SELECT, MULTI and WATCH are a thread's own affair. The lock makes a
command atomic, and the log is written while it is held. Who then has to wait for the disk (`appendfsync always`) waits
without it, until the log has come to his position: one thread syncs for all that wrote before. A command that blocks
gives the lock back and sleeps until the engine wakes its session.

A task of an event loop uses the session of the loop's thread; where its command blocks, that session
stays with the task until it is served, and the thread gets a new one in the same state: other tasks go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

from rillet.errors import CommandError, Misconf, StoreClosed
from rillet.protocol.command_parser import CommandParser
from rillet.protocol.reply_parser import parse_all
from rillet.runtime.engine import Engine
from rillet.runtime.session import Session


class Wakener:
    """What a waiting thread sleeps on; called by the engine when the session has its reply.

    since: a position of the log before that at which the reply stands. Who served the session may be the one who finds
    out that the log cannot be written, before this one looks.
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
        """Remember where the log stands; the lock is held."""
        log = self._engine.log
        if log is not None and log.failure is None:
            self.since = log.position - 1


class TaskWakener(Wakener):
    """What a waiting task sleeps on."""

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
    """A reentrant lock that goes to whoever waits for it, in turn.

    A plain lock is free for a moment between two commands of a busy thread, too short for one that has to be woken
    first: the clients of an owner's socket would wait for tens of milliseconds while its process adds in a
    loop. Here one who waits holds the door, and the busy thread has to queue behind it.

    A KeyboardInterrupt comes between any two steps of Python, and must not leave it held: nobody would get in again,
    and the process would hang at its end. So its exit is that of Python's own lock, which is one step.
    """

    __slots__ = ("_door",)

    def __init__(self) -> None:
        self._door = threading.Lock()

    def __enter__(self) -> bool:
        if self._is_owned():
            return bool(self.acquire())
        try:
            with self._door:
                return bool(self.acquire())
        except BaseException:
            if self._is_owned():
                self.release()
            raise


class _Hearing:
    """What a guest's session does with a message: wake who reads, or close where nobody does."""

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


class InProcessTransport:
    """The engine in this process. Every thread has a session of its own; the lock makes one command atomic."""

    def __init__(self, engine: Engine, lock: contextlib.AbstractContextManager[Any]) -> None:
        self.engine = engine
        self.lock = lock
        self.closed = False
        self._thread = threading.local()
        self._sessions: dict[Session, threading.Thread] = {}
        self._guests: dict[Session, None] = {}

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

    def join(self, on_wake: Callable[[], None]) -> Session:
        """Return a session for a door of its own (a redis-py connection, a subscription); the lock is held.

        `on_wake` is called when it is served, hears a message, or is closed. `leave` ends it.
        """
        if self.closed:
            raise StoreClosed("the store is closed")
        session = self.engine.session()
        session.on_wake = on_wake
        session.on_message = _Hearing(self.engine, session, on_wake)
        self._guests[session] = None
        return session

    def leave(self, session: Session) -> None:
        """End a session that joined; the lock is held."""
        if self._guests.pop(session, self) is None:
            self.engine.close_session(session)

    def _end(self, session: Session) -> None:
        """Close a session; the lock is held."""
        if self._sessions.pop(session, None) is not None:
            self.engine.close_session(session)

    # -- commands --------------------------------------------------------------------------------------

    def execute_raw(self, argv: list[bytes]) -> bytes:
        """Run one command and return the bytes of its reply, waiting where the command blocks."""
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
        """Run one command; None where the session now waits. The lock is held."""
        if self.closed:
            raise StoreClosed("the store is closed")
        return session.out.take() if self.engine.execute(session, argv) else None

    def _once_safe(self, log: Any, position: int, session: Session, raw: bytes | None) -> bytes | None:
        """Return the reply once the log has come to the position, the refusal where it never will.

        The lock is not held: others go on, and one sync serves all who wait for what was written before it.
        """
        try:
            log.wait(position)
        except Misconf as error:
            with self.lock:
                log.write()  # it sees to it that writes are refused from now on
                if raw is None:
                    self.engine.unblock(session, error)
                    session.out.take()
            return b"-%b\r\n" % str(error).encode()
        return raw

    def execute(self, argv: list[bytes]) -> Any:
        """Run one command and return its parsed reply."""
        return parse_all(self.execute_raw(argv))[0]

    def execute_many(self, commands: Sequence[list[bytes]]) -> list[Any]:
        """Run commands under one lock and one write of the log; one that would wait answers as at its time-out."""
        if not commands:
            return []
        session = self.session()
        try:
            return self._execute_many(session, commands)
        except BaseException:
            self._give_up(session)
            raise

    def execute_packed(self, data: bytes) -> bytes:
        """Run packed commands under one lock and one write of the log; return the bytes of their replies.

        The parser's way is the engine's shortest: most commands become no objects. For commands that do not block.
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
                raw: bytes | None = session.out.take()
                position = 0 if log is None else log.write(began)
            if position:
                raw = self._once_safe(log, position, session, raw)
        except BaseException:
            self._give_up(session)
            raise
        assert raw is not None
        return raw

    def _execute_many(self, session: Session, commands: Sequence[list[bytes]]) -> list[Any]:
        with self.lock:
            if self.closed:
                raise StoreClosed("the store is closed")
            log = self.engine.log
            began = 0 if log is None else log.position
            for argv in commands:
                if not self.engine.execute(session, argv):
                    # Others cannot get the lock that would serve it.
                    self.engine.expire_block(session)
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
        """Sleep until the session is served, its time is over, or the caller is interrupted."""
        event: threading.Event = session.on_wake.event
        while (remaining := self._remaining(session)) is None or remaining > 0:
            event.wait(None if remaining is None else min(remaining, threading.TIMEOUT_MAX))
            event.clear()
        return self._served(session)

    def _remaining(self, session: Session) -> float | None:
        """Return the seconds that the session has left to wait (None: for ever), 0 once there is a reply."""
        with self.lock:
            blocked = session.blocked
            if blocked is None or self.closed:
                return 0.0
            if blocked.wakes_at and blocked.wakes_at <= self.engine.clock.now_ms():
                self.engine.time_has_come(session)
                if session.blocked is None:
                    return 0.0
            if not blocked.wakes_at:
                return None
            left = (blocked.wakes_at - self.engine.clock.now_ms()) / 1000
            return max(0.001, float(left))

    def _served(self, session: Session) -> bytes:
        """Return the reply of a session that waited, once what it was served from is in the log.

        Who served it writes the log for himself, maybe later: a connection, at the end of its loop's turn.
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
        """Leave nothing of a call that ended early: neither its waiting, nor a reply that the next one would get."""
        with self.lock:
            self.engine.unblock(session, CommandError("interrupted"))
            session.out.take()

    async def execute_async(self, argv: list[bytes]) -> Any:
        """Run one command from a task; where it blocks, only the task waits."""
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
        """Return a new session in the state of one that has to wait."""
        successor = self._new_session()
        successor.db, successor.name, successor.user = session.db, session.name, session.user
        successor.out.resp = session.out.resp
        return successor

    # -- the end ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """End every session; threads and tasks that wait get StoreClosed."""
        with self.lock:
            self.closed = True
            for session in list(self._sessions):
                self._end(session)
                session.on_wake()
            for session in list(self._guests):
                self.leave(session)
                session.on_wake()


def waker(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> Callable[[], None]:
    """Return what sets the event from any thread."""

    def wake() -> None:
        # The loop of a task that was left waiting may be closed by now.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(event.set)

    return wake
