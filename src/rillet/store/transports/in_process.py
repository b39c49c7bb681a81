"""InProcessTransport: the engine in this process, for any number of threads and tasks.

    thread A ── session A ─┐
    thread B ── session B ─┼── lock ── engine ── log
    blocked task ──────────┘

Each thread has its own session, so SELECT belongs to the thread. The lock makes a command atomic, and the log is
written while it is held. A thread that must wait for the disk (`appendfsync always`) releases the lock first and waits
until the log is synced past its offset: one sync serves all threads that wrote before it. A command that blocks
releases the lock and sleeps until the engine wakes its session.

**A call inside a call** (a signal handler that uses the store while the same thread is in a call) gets a separate
session for the duration of the call. If the interrupted call holds the engine, only reads inside reads are possible,
and others raise NestedCall. No handler and no exception from outside can come between two steps of a command: see
rillet.host.engine_thread.

**An interrupted call** (KeyboardInterrupt, or any other exception in the middle) ends its session, so that no later
call receives its reply or its transaction. The thread continues with a new session in the same database.

A task of an event loop uses the session of the loop's thread. If the synchronous API changes the state of that session
(SELECT), it gets another session in that thread, so that the tasks' database stays the same. If its command
blocks, that session stays with the task until it is served, and other tasks continue with a new one. **A cancelled
task** leaves no trace: its command is unblocked, and if it was just served, the reply goes back
(rillet.store.transports.undelivered).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import ref

from rillet.columns.receive_buffer import ReceiveBuffer
from rillet.errors import CommandError, Misconf, NestedCall, StoreClosed
from rillet.host.engine_lock import is_waiting
from rillet.host.engine_thread import EngineThread
from rillet.protocol.command_parser import CommandParser
from rillet.protocol.reply_parser import parse_all
from rillet.runtime import session_state
from rillet.runtime.engine import Engine
from rillet.runtime.session import Session
from rillet.store.arguments.allowed_commands import changes_connection
from rillet.store.transports.thread_sessions import SeparateSession, ThreadSessions
from rillet.store.transports.transport import errors_among, ids_among, only_reads
from rillet.store.transports.undelivered import Undelivered, continues, executed, put_back_all
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    import asyncio

    from rillet.store.transports.in_process_pages import InProcessPages

Result = TypeVar("Result")
NESTED = (
    "this call came from a signal handler or callback that interrupted another call of the same thread inside the "
    "engine, and one of the two writes: call the store from another thread, or set a flag in the handler and call the "
    "store later"
)


class InProcessTransport(ThreadSessions):
    """Runs commands on the engine in this process. Each thread has a session; a lock makes each command atomic."""

    clustered = False

    def __init__(self, engine: Engine, lock: Any) -> None:
        super().__init__(engine, lock)
        self.undelivered = Undelivered()
        self.disk = EngineThread()  # syncs the log for tasks

    # -- interrupted calls -----------------------------------------------------------------------------

    def _abandon(self, session: Session, argv: list[bytes] | None = None) -> None:
        """End the session of an interrupted call. What a blocked command had just taken is put back."""
        local = self._thread.state or self._thread.own_state()
        if session is local.session or session is local.of_tasks:
            of_tasks = session is local.of_tasks
            self._replace(of_tasks, None)
            if not self.closed:
                with self.lock:
                    self._replace(of_tasks, self._successor(session))
        if self.lock._is_owned() or (argv is not None and self.is_steady(argv)):
            self._end_interrupted(session, argv)
        else:  # after the interrupted command, which the engine's thread may still run
            self._shield.later(self._end_interrupted, session, argv)

    def _end_interrupted(self, session: Session, argv: list[bytes] | None) -> None:
        with self.lock:
            reply = session.out.take_bytes() if argv is not None and session.blocked is None else b""
            self._end(session)
            if reply and argv is not None:
                self._put_back(argv, parse_all(reply)[0])

    def _put_back(self, argv: list[bytes], reply: Any) -> None:
        """Restore what a command took away, because its reply will not be received. The caller must hold the lock."""
        self._put_back_all([(argv, reply)])

    def _undo_all(self, pairs: Sequence[tuple[list[bytes], Any]]) -> None:
        with self.lock:
            self._put_back_all(pairs)

    def _put_back_all(self, pairs: Sequence[tuple[list[bytes], Any]]) -> None:
        for argv, reply in pairs:
            self.undelivered.keep(argv, reply)
        self.put_back(pairs)

    def put_back(self, pairs: Sequence[tuple[list[bytes], Any]]) -> None:
        """Put elements back that commands took; see rillet.store.transports.undelivered. The caller holds the lock."""
        restoring = put_back_all(pairs)
        if restoring and not self.closed:
            session = self.engine.session()
            for steps in restoring:
                for argv in steps:
                    self.engine.execute(session, argv)
                    if not continues(parse_all(session.out.take_bytes())[0]):
                        break
            self.engine.close_session(session)
            if self.engine.log is not None:
                self.engine.log.write()

    # -- calls inside calls ----------------------------------------------------------------------------

    def _inside(self) -> bool:
        """Return whether this thread is inside a command of another call, or inside its write to the log."""
        return bool(self.lock._is_owned() and self._under_way())

    def _under_way(self) -> bool:
        """Return whether a command or its write to the log is under way. The caller must hold the lock."""
        log = self.engine.log
        return bool(self.engine.propagation.depth or (log is not None and log.writing))

    def _nested(self, commands: Sequence[list[bytes]]) -> list[bytes]:
        """Run commands of a call that interrupted another call of this thread; return their replies."""
        local = self._thread.state or self._thread.own_state()
        outer, of_tasks, apart, busy, draining = local.session, local.of_tasks, local.apart, local.busy, local.draining
        inside = self.lock._is_owned()
        if inside:
            self._check_nested(commands, draining)
        self._check_transaction(commands)
        # If this thread already waits for the lock, other threads will wait for it, so no command may block.
        together = len(commands) > 1 or is_waiting(self.lock)
        with self.lock:
            session = self._new_session(ref(self._thread.presence))
        session.patient = not inside
        local.session, local.apart, local.busy, local.draining = session, True, inside or together, False
        try:
            if inside:
                return [self._run_now(session, argv) for argv in commands]
            if together:
                raw, log, position = self.run_step(self.is_steady(*commands), self._step_many, session, commands)
                return [(self._once_safe(log, position, session, raw) or raw) if position else raw]
            return [self.execute_raw(commands[0])]
        finally:
            local.session, local.of_tasks, local.apart = outer, of_tasks, apart
            local.busy, local.draining = busy, draining
            self._end(session)

    def _check_nested(self, commands: Sequence[list[bytes]], draining: bool) -> None:
        """Raise NestedCall unless the commands can run while this thread's outer call holds the engine."""
        running = [one for one in self._sessions if one.state & session_state.RUNNING]
        reads = all(only_reads(argv) for argv in commands)
        if draining or self.engine.propagation.depth or self.engine.log is not None:
            outer_reads = not draining and not any(
                one.state & session_state.IN_EXEC or one.command is None or one.command.write for one in running
            )
            if not reads or not outer_reads:
                raise NestedCall(NESTED)

    def _run_now(self, session: Session, argv: list[bytes]) -> bytes:
        """Run one command; a command that blocks replies as if its timeout had expired."""
        raw = self._run(session, argv)
        if raw is None:
            self.engine.blocking.expire(session)
            raw = session.out.take_bytes()
        return raw

    # -- commands --------------------------------------------------------------------------------------

    def _execute_nested(self, argv: list[bytes]) -> bytes:
        return self._nested([argv])[0]

    def _step(self, session: Session, argv: list[bytes]) -> tuple[bytes | None, Any, int]:
        """Run one command; return its reply (None if it blocks), the log, and the offset to wait for."""
        with self.lock:
            raw = self._run(session, argv)
            log = self.engine.log
            return raw, log, 0 if log is None else log.write()

    def _run(self, session: Session, argv: list[bytes]) -> bytes | None:
        """Run one command; return None if it blocks. The caller must hold the lock."""
        if self.closed:
            raise StoreClosed("the store is closed")
        return session.out.take_bytes() if self.engine.execute(session, argv) else None

    def _once_safe(self, log: Any, position: int, session: Session, raw: bytes | None) -> bytes | None:
        """Return the reply once the log is synced past the offset; an error reply if the log failed.

        The caller must not hold the lock, so other threads continue, and one sync serves all earlier writes.
        """
        try:
            log.wait(position)
        except Misconf as error:
            return self._not_logged(log, session, raw, error)
        return raw

    def _not_logged(self, log: Any, session: Session, raw: bytes | None, error: Misconf) -> bytes:
        """Return the error reply for a command whose change is not in the log; unblock its session."""
        with self.lock:
            log.write()  # closes the write gate: the engine rejects later writes
            if raw is None:
                self.engine.blocking.fail(session, error)
                session.out.take_bytes()
        return b"-%b\r\n" % str(error).encode()

    def execute(self, argv: list[bytes]) -> Any:
        """Run one command and return its parsed reply."""
        kept = self.undelivered.take_reply(argv)
        return parse_all(self.execute_raw(argv))[0] if kept is None else kept

    def execute_many(self, commands: Sequence[list[bytes]]) -> list[Any]:
        """Run commands under one lock and one write of the log; a blocking command replies as if it had timed out."""
        if not commands:
            return []
        local = self._thread.state or self._thread.own_state()
        if local.busy or self._inside():
            return parse_all(b"".join(self._nested(commands)))
        session = self._leave_tasks() if any(map(changes_connection, commands)) else self.session()
        local.busy = True
        try:
            return self._run_batch(session, commands)
        except BaseException:
            self._abandon(session)
            raise
        finally:
            local.busy = False

    def execute_packed(self, data: bytes, receiver: ReceiveBuffer | None = None, steady: bool = False) -> bytes:
        """Run commands in RESP encoding under one lock and one write of the log; return the bytes of their replies.

        The commands must not block. steady: nothing can interrupt any of them (`is_steady`).
        If there is a receiver, the replies become its buffer, and the result is empty.
        """
        local = self._thread.state or self._thread.own_state()
        if local.busy or self._inside():
            raw = b"".join(self._nested(parse_all(data)))
            if receiver is None:
                return raw
            receiver.feed(raw)
            return b""
        session = self.session()
        local.busy = local.draining = True
        try:
            return self._execute_packed(session, data, receiver, steady)
        except BaseException:
            self._abandon(session)
            raise
        finally:
            local.busy = local.draining = False

    def _step_packed(
        self, session: Session, data: bytes, receiver: ReceiveBuffer | None
    ) -> tuple[bytes | None, Any, int]:
        with self.lock:
            if self.closed:
                raise StoreClosed("the store is closed")
            log = self.engine.log
            began = 0 if log is None else log.position
            parser = CommandParser()
            parser.proto_max_bulk_len = self.engine.settings.proto_max_bulk_len
            parser.feed(data)
            session.patient = False
            try:
                while self.engine.drain(session, parser, 1 << 62):
                    pass
            finally:
                session.patient = True
            raw: bytes | None = b""
            if receiver is None:
                raw = session.out.take_bytes()
            else:
                receiver.exchange(session.out)
            return raw, log, 0 if log is None else log.write(began)

    def _execute_packed(self, session: Session, data: bytes, receiver: ReceiveBuffer | None, steady: bool) -> bytes:
        raw, log, position = self.run_step(steady, self._step_packed, session, data, receiver)
        if position:
            raw = self._once_safe(log, position, session, raw)
            if receiver is not None and raw:  # the log failed, so `raw` is an error reply
                receiver.pos = receiver.end
                receiver.feed(raw)
        assert raw is not None
        return raw

    def append_packed(self, key: bytes, data: bytes, count: int) -> list[tuple[int, CommandError]]:
        """Run commands in RESP encoding that do not block; return each error reply with the position of its command."""
        raw = self.execute_packed(data)
        if not raw.startswith(b"-") and b"\r\n-" not in raw:
            return []
        return errors_among(parse_all(raw))

    def add_packed(self, key: bytes, data: bytes, count: int) -> list[StreamID | None]:
        """Run XADDs in RESP encoding; return the IDs; raise the first error reply."""
        return _ids(self.execute_packed(data, steady=self.is_steady([b"XADD"])), count)

    async def add_packed_async(self, data: bytes, count: int) -> list[StreamID | None]:
        """Run XADDs in RESP encoding from a task; only the task waits for the disk."""
        session = self.task_session()
        local = self._thread.state or self._thread.own_state()
        local.busy = True
        try:
            raw, log, position = self.run_step(self.is_steady([b"XADD"]), self._step_packed, session, data, None)
        except BaseException:
            self._abandon(session)
            raise
        finally:
            local.busy = False
        if position:
            raw = await self._synced(log, position, session, raw) or raw
        return _ids(raw or b"", count)

    @contextlib.contextmanager
    def page_source(self) -> Iterator[InProcessPages]:
        """Yield the source from which client.pages.RangeReader reads: the engine in this process."""
        from rillet.store.transports.in_process_pages import InProcessPages

        yield InProcessPages(self.execute_packed)

    def _run_batch(self, session: Session, commands: Sequence[list[bytes]]) -> list[Any]:
        """Run commands in a session and return their replies."""
        self._check_transaction(commands)
        raw, log, position = self.run_step(self.is_steady(*commands), self._step_many, session, commands)
        if position:
            raw = self._once_safe(log, position, session, raw) or raw
        return _for_each(parse_all(raw), len(commands))

    def _step_many(self, session: Session, commands: Sequence[list[bytes]]) -> tuple[bytes, Any, int]:
        """Run commands; return their replies, the log, and the offset to wait for."""
        with self.lock:
            if self.closed:
                raise StoreClosed("the store is closed")
            log = self.engine.log
            began = 0 if log is None else log.position
            session.patient = False
            try:
                for argv in commands:
                    if not self.engine.execute(session, argv):
                        # No other thread can unblock the session while this thread holds the lock.
                        self.engine.blocking.expire(session)
            finally:
                session.patient = True
            return session.out.take_bytes(), log, 0 if log is None else log.write(began)

    def is_steady(self, *commands: list[bytes]) -> bool:
        """Return whether nothing can interrupt any of these commands; see rillet.host.engine_thread."""
        names = [argv[0] for argv in commands]
        if names[-1] == b"EXEC" and names[0] == b"MULTI":  # a whole transaction: EXEC runs these commands alone
            names.pop()
        # Callbacks of modules are interpreted code, in the middle of a command, and so is the opening of a segment. A
        # single command opens those that it needs before it changes anything (commands.stream.cold).
        alone = not self.engine.notify_events and self.engine.modules is None
        opened = len(commands) == 1 or self.engine.segments is None
        return alone and opened and self._steady.issuperset(names)

    def _check_transaction(self, commands: Sequence[list[bytes]]) -> None:
        """Raise NestedCall for a transaction that an exception from outside could tear.

        Such an exception may come in the middle of a handler, before or after the handler counts its change.
        """
        if any(argv[0] == b"EXEC" for argv in commands) and self.runs_here() and not self.is_steady(*commands):
            if not all(only_reads(argv) for argv in commands if argv[0] not in (b"MULTI", b"EXEC")):
                raise NestedCall(NESTED)

    def run_step(self, steady: bool, step: Callable[..., Result], *arguments: Any) -> Result:
        """Run a step of the engine, in this thread if nothing can interrupt its commands."""
        if self._inside():
            raise NestedCall(NESTED)
        return self._briefly(step, *arguments) if steady else self.shielded(step, *arguments)

    @contextlib.contextmanager
    def exclusive(self, key: bytes) -> Iterator[Callable[[Sequence[list[bytes]]], list[Any]]]:
        """Yield a function that runs commands in a separate session, in the thread's database; see Transport."""
        separate = SeparateSession(self, self.session())
        try:
            yield lambda commands: self._run_batch(separate.session, commands)
            self._briefly(separate.end)
        except BaseException:
            self.shielded(separate.end)  # after the batch, which the engine may still run: it needs its WATCH
            raise

    @contextlib.asynccontextmanager
    async def exclusive_async(
        self, key: bytes
    ) -> AsyncIterator[Callable[[Sequence[list[bytes]]], Awaitable[list[Any]]]]:
        """Yield a coroutine function that runs commands in a separate session."""
        separate = SeparateSession(self)
        try:
            yield lambda commands: self._run_batch_async(separate.session, commands)
            self._briefly(separate.end)
        except BaseException:
            self.shielded(separate.end)  # after the batch, which the engine may still run: it needs its WATCH
            raise

    # -- waiting ---------------------------------------------------------------------------------------

    def _wait(self, session: Session) -> bytes:
        """Wait until a blocked session has its reply, its timeout expires, or the caller is interrupted.

        In a signal handler that interrupted this thread while it has the lock, or waits for it, the command replies as
        if its timeout had expired: other threads wait for this one.
        """
        if self.lock._is_owned() or is_waiting(self.lock):
            with self.lock:
                if self.engine.cold_reads is not None:
                    self.engine.cold_reads.run_now(session)
                self.engine.blocking.expire(session)
        while (remaining := self._briefly(self._remaining, session)) is None or remaining > 0:
            session.on_wake.sleep(remaining)
        raw, log, position = self._briefly(self._served, session)
        if position:
            raw = self._once_safe(log, position, session, raw) or b""
        return raw

    def _remaining(self, session: Session) -> float | None:
        """Return the seconds until a blocked session's timeout (None: no timeout), or 0 if it has its reply."""
        with self.lock:
            blocked = session.blocked
            if blocked is None or self.closed:
                return 0.0
            if blocked.wakes_at and blocked.wakes_at <= self.engine.clock.uptime_ms():
                self.engine.blocking.time_has_come(session)
                if session.blocked is None:
                    return 0.0
            if not blocked.wakes_at:
                return None
            left = (blocked.wakes_at - self.engine.clock.uptime_ms()) / 1000
            return max(0.001, float(left))

    def _served(self, session: Session) -> tuple[bytes, Any, int]:
        """Return the reply of a session that was blocked, the log, and the offset for which the reply must wait.

        The client whose command unblocked the session may write the log only at the end of its event loop's iteration.
        """
        with self.lock:
            raw = session.out.take_bytes()
            log = self.engine.log
            since, session.on_wake.since = session.on_wake.since, None
            position = 0 if log is None else log.write(since)
        if not raw:
            raise StoreClosed("the store was closed while this call waited")
        return raw, log, position

    # -- asyncio -----------------------------------------------------------------------------------------

    async def execute_async(self, argv: list[bytes]) -> Any:
        """Run one command from a task; if it blocks, or waits for the disk, only the task waits."""
        kept = self.undelivered.take_reply(argv)
        if kept is not None:
            return kept
        session = self.task_session()
        local = self._thread.state or self._thread.own_state()
        local.busy = True
        try:
            import asyncio

            steady, caller = self.is_steady(argv), (asyncio.get_running_loop(), threading.get_ident())
            raw, log, position, successor = self.run_step(steady, self._step_async, session, argv, caller)
            if successor is not None:
                self._replace(local.apart, successor)
        except BaseException:
            self._abandon(session)
            raise
        finally:
            local.busy = False
        if raw is not None and not position:
            return parse_all(raw)[0]
        return await self._finish(session, argv, raw, log, position)

    def _step_async(
        self, session: Session, argv: list[bytes], caller: tuple[asyncio.AbstractEventLoop, int]
    ) -> tuple[bytes | None, Any, int, Session | None]:
        """Run a task's command as `_step` does; if it blocks, return also a new session for the other tasks."""
        with self.lock:
            raw = self._run(session, argv)
            log = self.engine.log
            position = 0 if log is None else log.write()
            if raw is not None:
                return raw, log, position, None
            from rillet.store.transports.task_wakeners import TaskWakener

            session.on_wake = TaskWakener(self.engine, *caller)
            return None, log, position, self._successor(session)

    async def _finish(self, session: Session, argv: list[bytes], raw: bytes | None, log: Any, position: int) -> Any:
        """Wait until a task's command has its reply and until the log is safe; undo the command if it is cancelled."""
        blocks = raw is None
        try:
            if position:
                raw = await self._synced(log, position, session, raw)
            if raw is None:
                while (remaining := self._briefly(self._remaining, session)) is None or remaining > 0:
                    await session.on_wake.sleep(remaining)
                raw, log, position = self._briefly(self._served, session)
                if position:
                    raw = await self._synced(log, position, session, raw)
            assert raw is not None
            return parse_all(raw)[0]
        except BaseException:
            self._briefly(self._undo, session, argv, raw)
            raise
        finally:
            if blocks:
                self._briefly(self._end, session)

    def _undo(self, session: Session, argv: list[bytes], raw: bytes | None) -> None:
        """Put back what a task's command took, because the task was cancelled."""
        with self.lock:
            if raw is None and session.blocked is None:
                raw = session.out.take_bytes()  # it was served, and the task was cancelled before it ran again
            elif raw is None:
                self._end(session)  # before another thread can serve it
            if raw and not self.closed:
                self._put_back(argv, parse_all(raw)[0])

    async def execute_many_async(self, commands: Sequence[list[bytes]]) -> list[Any]:
        """Run commands from a task under one lock and one write of the log; see execute_many."""
        if not commands:
            return []
        return await self._run_batch_async(self.task_session(), commands)

    async def _run_batch_async(self, session: Session, commands: Sequence[list[bytes]]) -> list[Any]:
        """Run commands in a session and return their replies; only the task waits for the disk."""
        local = self._thread.state or self._thread.own_state()
        local.busy = True
        try:
            self._check_transaction(commands)
            raw, log, position = self.run_step(self.is_steady(*commands), self._step_many, session, commands)
        except BaseException:
            self._abandon(session)
            raise
        finally:
            local.busy = False
        if position:
            from asyncio import CancelledError

            try:
                raw = await self._synced(log, position, session, raw) or raw
            except CancelledError:
                self._briefly(self._undo_all, executed(commands, parse_all(raw)))
                raise
        return _for_each(parse_all(raw), len(commands))

    async def _synced(self, log: Any, position: int, session: Session, raw: bytes | None) -> bytes | None:
        """Return the reply once the log is synced past the offset; an error reply if the log failed."""
        try:
            await self._settled(log, position)
        except Misconf as error:
            return self._not_logged(log, session, raw, error)
        return raw

    async def _settled(self, log: Any, position: int) -> None:
        """Wait until the log is synced past the offset. One thread waits for all tasks."""
        from rillet.store.transports.task_threads import in_thread_of

        while not log.settled(position):
            with contextlib.suppress(Misconf):
                await in_thread_of(self.disk, log.wait, position)

    # -- closing ---------------------------------------------------------------------------------------

    def after_fork(self, lock: Any) -> None:
        """In a forked child with a copy of the engine: use a new lock, and forget the parent's other threads."""
        self.use_lock(lock)
        self.undelivered.after_fork()
        self.forget_dead_threads()  # the session of a thread that ended would still receive entries

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
        self._shield.stop()
        self.disk.stop()


def _for_each(replies: list[Any], count: int) -> list[Any]:
    """Return a reply for each command; if the log failed, there is one error for all of them."""
    return replies if len(replies) == count else replies * count


def _ids(raw: bytes, count: int) -> list[StreamID | None]:
    """Return the IDs in the replies to XADDs; raise the first error reply."""
    from rillet.store.arguments.entry_packing import ids_in

    ids: list[StreamID | None] | None = ids_in(raw, count)
    return ids_among(_for_each(parse_all(raw), count)) if ids is None else ids
