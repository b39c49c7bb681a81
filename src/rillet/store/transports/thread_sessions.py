"""ThreadSessions: the sessions of the threads and tasks that use an engine in this process.

    thread      its session, opened with its first command; it ends some time after the thread
    task        the session of the event loop's thread, or one apart from it (`tasks_apart`)
    others      redis-py connections and subscriptions (`open_session`)

A step of the engine runs where nothing can interrupt it: in the engine's thread, or, if the step executes no command
and is compiled, in the caller's thread (rillet.host.engine_thread). So does a single steady command (`execute_raw`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from weakref import ReferenceType, ref

from rillet._cython import cython, public, readonly
from rillet.errors import StoreClosed
from rillet.host.engine_lock import COMPILED_STEPS, FairLock, is_waiting, this_thread
from rillet.host.engine_thread import EngineThread, steady_names
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.engine import Engine
from rillet.runtime.session import Session
from rillet.store.arguments.allowed_commands import changes_connection
from rillet.store.transports.thread_end import OfThread, Presence
from rillet.store.transports.wakeners import MessageDelivery, ThreadWakener

Result = TypeVar("Result")


@cython.final
@cython.cclass
class ThreadState:
    """A thread's session, whether one of its calls is under way, and whether it runs encoded commands."""

    __slots__ = ("apart", "busy", "draining", "of_tasks", "session")
    session: public[Session | None]
    apart: public[cython.bint]
    of_tasks: public[Session | None]
    busy: public[cython.bint]
    draining: public[cython.bint]

    def __init__(self) -> None:
        self.session = None
        # Tasks have another session if a synchronous call changed the state of its session.
        self.apart = False
        self.of_tasks = None
        self.busy = False
        self.draining = False


class _OfThread(OfThread):
    """Leads to the calling thread's state."""

    new_state = ThreadState
    state: ThreadState | None
    own_state: Callable[[], ThreadState]


@cython.cclass
class ThreadSessions:
    """The sessions of an engine; each thread has one."""

    engine: readonly[Engine]
    lock: readonly[Any]
    closed: public[cython.bint]
    database: public[cython.int]
    _thread: readonly[_OfThread]
    _sessions: readonly[dict[Session, ReferenceType[Presence]]]
    _extra_sessions: readonly[dict[Session, None]]
    _owners: readonly[dict[Session, ReferenceType[Any]]]
    _shield: public[EngineThread]
    _steady: readonly[set[bytes]]
    _fair: FairLock | None
    _last_thread: cython.ulong
    _last_state: ThreadState | None
    _last_presence: Any

    def __init__(self, engine: Engine, lock: Any) -> None:
        self.engine = engine
        self.closed = False
        self.database = 0  # in which new sessions begin
        self._sessions = {}  # with the presence of its thread
        self._extra_sessions = {}
        self._owners = {}  # of sessions that end with their owner
        self._steady = steady_names()
        self._thread = _OfThread()
        self._shield = EngineThread()
        self.use_lock(lock)
        # The thread of the last call of `execute_raw`: a use of a threading.local takes as long as a small command.
        self._last_thread = 0
        self._last_state = None
        self._last_presence = None

    def use_lock(self, lock: Any) -> None:
        """Use this lock, as a forked child must."""
        self.lock = lock
        self._fair = lock if COMPILED_STEPS else None

    # -- a command ---------------------------------------------------------------------------------------

    def execute_raw(self, argv: list[bytes]) -> bytes:
        """Run one command and return the bytes of its reply; wait if the command blocks."""
        fair: FairLock | None = self._fair
        if argv[0] not in self._steady or self.engine.notify_events or self.engine.modules is not None:
            fair = None
        local: ThreadState = self._state_here()
        session: Session | None = local.session
        if local.busy or (fair is None and self._inside()):
            return self._execute_nested(argv)
        if session is None:
            session = self.session()
        out: ReplyWriter = session.out
        local.busy = True
        try:
            raw: bytes | None
            if fair is None:
                if changes_connection(argv):
                    session = self._leave_tasks()
                raw, log, position = self.shielded(self._step, session, argv)
            else:
                if fair.enter() > 1 and self._under_way():
                    fair.leave()
                    return self._execute_nested(argv)
                try:
                    if self.closed:
                        raise StoreClosed("the store is closed")
                    raw = out.take_bytes() if self.engine.execute(session, argv) else None
                    log = self.engine.log
                    position = 0 if log is None else log.write()
                finally:
                    fair.leave()
            if position:
                raw = self._once_safe(log, position, session, raw)
            return self._wait(session) if raw is None else raw
        except BaseException:
            self._abandon(session, argv)
            raise
        finally:
            local.busy = False

    @cython.cfunc
    def _state_here(self) -> ThreadState:
        """Return the state of the calling thread."""
        if not cython.compiled:  # another thread may run between two steps
            return self._thread.own_state()
        if self._last_thread == this_thread() and self._last_presence() is not None:
            assert self._last_state is not None
            return self._last_state
        local: ThreadState = self._thread.own_state()
        presence: Any = ref(self._thread.presence)
        before: Any = (self._last_state, self._last_presence)  # freed after all changes: other threads may run then
        self._last_thread, self._last_state, self._last_presence = this_thread(), local, presence
        del before
        return local

    def _step(self, session: Session, argv: list[bytes]) -> tuple[bytes | None, Any, int]:
        """Run one command; return its reply (None if it blocks), the log, and the offset to wait for."""
        raise NotImplementedError

    def _inside(self) -> bool:
        """Return whether this thread is inside a command of another call, or inside its write to the log."""
        raise NotImplementedError

    def _execute_nested(self, argv: list[bytes]) -> bytes:
        """Do `execute_raw` inside another call of this thread."""
        raise NotImplementedError

    def _under_way(self) -> bool:
        """Return whether a command or its write to the log is under way. The caller must hold the lock."""
        raise NotImplementedError

    def _once_safe(self, log: Any, position: int, session: Session, raw: bytes | None) -> bytes | None:
        """Return the reply once the log is synced past the offset."""
        raise NotImplementedError

    def _wait(self, session: Session) -> bytes:
        """Wait for the reply of a blocked session."""
        raise NotImplementedError

    def _abandon(self, session: Session, argv: list[bytes] | None = None) -> None:
        """End the session of an interrupted call."""
        raise NotImplementedError

    # -- sessions ----------------------------------------------------------------------------------------

    def session(self) -> Session:
        """Return this thread's session."""
        session = self._thread.own_state().session
        if session is None:
            if self.closed:
                raise StoreClosed("the store is closed")
            session = self._thread.own_state().session = self._briefly(self._open_session, ref(self._thread.presence))
        return session

    def _open_session(self, thread: ReferenceType[Presence]) -> Session:
        with self.lock:
            self.forget_dead_threads()
            return self._new_session(thread)

    def _new_session(self, thread: ReferenceType[Presence]) -> Session:
        """Open a session of a thread. The caller must hold the lock."""
        wakener = ThreadWakener(self.engine)  # interpreted: an interrupt comes before there is a session
        session = self.engine.session()
        session.db = self.engine.databases[self.database]
        session.on_wake = wakener
        session.patient = True
        self._sessions[session] = thread
        return session

    def task_session(self) -> Session:
        """Return the session of this thread's tasks."""
        local = self._thread.state or self._thread.own_state()
        if not local.apart:
            return self.session()
        if local.of_tasks is None:
            local.of_tasks = self._briefly(self._open_session, ref(self._thread.presence))
        return local.of_tasks

    @property
    def tasks_apart(self) -> bool:
        """True if tasks of this thread have another session than its synchronous calls."""
        return self._thread.own_state().apart

    def _leave_tasks(self) -> Session:
        """Leave this thread's session to its tasks; return a new one, whose state synchronous calls may change."""
        local = self._thread.state or self._thread.own_state()
        if not local.apart:
            local.of_tasks, local.session, local.apart = local.session, None, True
        return self.session()

    def forget_dead_threads(self) -> None:
        """Close the sessions of threads that have ended. The caller must hold the lock. O(threads)"""
        for session, thread in list(self._sessions.items()):
            if thread() is None:
                self._end(session)

    def open_session(self, on_wake: Callable[[], None]) -> Session:
        """Return a new session for a redis-py connection or a subscription. The caller must hold the lock.

        `on_wake` is called when the session has a reply or a message, or is closed.
        """
        if self.closed:
            raise StoreClosed("the store is closed")
        session = self.engine.session()
        session.db = self.engine.databases[self.database]
        session.on_wake = on_wake
        session.on_message = MessageDelivery(self.engine, session, on_wake)
        self._extra_sessions[session] = None
        return session

    def close_session(self, session: Session) -> None:
        """Close a session that `open_session` returned. The caller must hold the lock."""
        self._owners.pop(session, None)
        if self._extra_sessions.pop(session, self) is None:
            self.engine.close_session(session)

    def end_with(self, owner: Any, session: Session, end: Callable[..., object], *arguments: Any) -> None:
        """Let the engine's thread call `end` when the owner of a session is freed: an interrupted call has lost it.

        The arguments must not refer to the owner.
        """
        self._owners[session] = self._shield.when_freed(owner, end, *arguments)

    def end_lost(self, opened: list[Session]) -> None:
        """Close the session that an owner opened and has lost, if it had opened one."""
        with self.lock:
            for session in opened:
                self._end(session)
                self.close_session(session)

    def _end(self, session: Session) -> None:
        """Close a session."""
        with self.lock:
            self._owners.pop(session, None)
            if self._sessions.pop(session, None) is not None:
                self.engine.close_session(session)

    def _successor(self, session: Session) -> Session:
        """Return a new session with the same state (database, user, ...) as another one."""
        successor = self._new_session(self._sessions.get(session) or ref(self._thread.presence))
        successor.db, successor.name = session.db, session.name
        self.engine.acl.take_over(session, successor)
        successor.out.resp = session.out.resp
        return successor

    def _replace(self, of_tasks: bool, successor: Session | None) -> None:
        """Replace this thread's session, or that of its tasks."""
        if of_tasks:
            self._thread.own_state().of_tasks = successor
        else:
            self._thread.own_state().session = successor

    # -- steps of the engine ---------------------------------------------------------------------------

    def runs_here(self) -> bool:
        """Return whether this thread must run all commands itself, because the engine's thread cannot have the lock.

        It has the lock, or it waits for it and a signal handler runs.
        """
        return bool(self.lock._is_owned()) or is_waiting(self.lock)

    def shielded(self, step: Callable[..., Result], *arguments: Any) -> Result:
        """Run a step of the engine so that no signal handler and no exception from outside can interrupt it."""
        if self.runs_here():
            return step(*arguments)
        return self._shield.run(step, *arguments)

    def _briefly(self, step: Callable[..., Result], *arguments: Any) -> Result:
        """Run a step that executes no command and no interpreted code, in the compiled build without a hand-over."""
        return step(*arguments) if COMPILED_STEPS else self.shielded(step, *arguments)


class SeparateSession:
    """A session for one block of a thread. It ends also if an interrupted call has lost it.

    like: a session in whose database it begins; None for that of the store.
    """

    session: Any = None

    def __init__(self, sessions: ThreadSessions, like: Session | None = None) -> None:
        self._sessions = sessions
        opened: list[Session] = []
        lost = sessions._shield.when_freed(self, sessions.end_lost, opened)  # interpreted, so before there is a session
        sessions._briefly(self._open, ref(sessions._thread.presence), opened, lost, like)

    def _open(self, thread: ReferenceType[Presence], opened: list[Session], lost: ReferenceType[Any],
              like: Session | None) -> None:  # fmt: skip
        session = self._sessions._open_session(thread)
        if like is not None:
            session.db = like.db
        opened.append(session)
        self._sessions._owners[session] = lost
        self.session = session

    def end(self) -> None:
        """End the session, after the commands that the engine's thread still runs in it."""
        session, self.session = self.session, None
        if session is not None:
            self._sessions._end(session)
