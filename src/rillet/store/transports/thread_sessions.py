"""ThreadSessions: the sessions of the threads and tasks that use an engine in this process.

    thread      its session, opened with its first command; it ends some time after the thread
    task        the session of the event loop's thread, or one apart from it (`tasks_apart`)
    others      redis-py connections and subscriptions (`open_session`)

A step of the engine runs where nothing can interrupt it: in the engine's thread, or, if the step executes no command
and is compiled, in the caller's thread (rillet.host.engine_thread).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from weakref import ReferenceType, ref

from rillet.errors import StoreClosed
from rillet.host.engine_lock import COMPILED_STEPS, has_turn
from rillet.host.engine_thread import EngineThread
from rillet.runtime.engine import Engine
from rillet.runtime.session import Session
from rillet.store.transports.thread_end import OfThread, Presence
from rillet.store.transports.wakeners import MessageDelivery, ThreadWakener

Result = TypeVar("Result")


class _State:
    """A thread's session, whether one of its calls is under way, and whether it runs encoded commands."""

    __slots__ = ("apart", "busy", "draining", "of_tasks", "session")

    def __init__(self) -> None:
        self.session: Session | None = None
        # Tasks have another session if a synchronous call changed the state of its session.
        self.apart = False
        self.of_tasks: Session | None = None
        self.busy = False
        self.draining = False


class _OfThread(OfThread):
    """Leads to the calling thread's state."""

    new_state = _State
    state: _State | None
    own_state: Callable[[], _State]


class ThreadSessions:
    """The sessions of an engine; each thread has one."""

    clustered = False

    def __init__(self, engine: Engine, lock: Any) -> None:
        self.engine = engine
        self.lock = lock
        self.closed = False
        self.database = 0  # in which new sessions begin
        self._thread = _OfThread()
        self._sessions: dict[Session, ReferenceType[Presence]] = {}  # with the presence of its thread
        self._extra_sessions: dict[Session, None] = {}
        self._owners: dict[Session, ReferenceType[Any]] = {}  # of sessions that end with their owner
        self._shield = EngineThread()

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
        return bool(self.lock._is_owned()) or has_turn(self.lock)

    def shielded(self, step: Callable[..., Result], *arguments: Any) -> Result:
        """Run a step of the engine so that no signal handler and no exception from outside can interrupt it."""
        if self.runs_here():
            return step(*arguments)
        return self._shield.run(step, *arguments)

    def _briefly(self, step: Callable[..., Result], *arguments: Any) -> Result:
        """Run a step that executes no command and no interpreted code, in the compiled build without a hand-over."""
        return step(*arguments) if COMPILED_STEPS else self.shielded(step, *arguments)


class SeparateSession:
    """A session for one block of a thread. It ends also if an interrupted call has lost it."""

    session: Any = None

    def __init__(self, sessions: ThreadSessions) -> None:
        self._sessions = sessions
        opened: list[Session] = []
        lost = sessions._shield.when_freed(self, sessions.end_lost, opened)  # interpreted, so before there is a session
        sessions._briefly(self._open, ref(sessions._thread.presence), opened, lost)

    def _open(self, thread: ReferenceType[Presence], opened: list[Session], lost: ReferenceType[Any]) -> None:
        session = self._sessions._open_session(thread)
        opened.append(session)
        self._sessions._owners[session] = lost
        self.session = session

    def end(self) -> None:
        """End the session, after the commands that the engine's thread still runs in it."""
        session, self.session = self.session, None
        if session is not None:
            self._sessions._end(session)


__all__ = ["SeparateSession", "ThreadSessions"]
