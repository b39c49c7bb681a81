"""Blocked clients: sessions that wait for a key, and the order in which they are served (Redis: blocked.c).

    database.blocking_keys[b"events"] -> KeyWaiters
        None -> client, client ...      each waits for a different event (XREAD after its own ID)
        b"g" -> client, client ...      all wait for the same event: new entries of group g
        b"h" -> ...

A command that changes a key marks it as ready; after the command, the engine serves the clients of the ready keys.
Redis tries each client of a key, first come first served (handleClientsBlockedOnKey). With ten thousand clients in
one group and one new entry, Redis makes ten thousand tries for one success. So clients that wait for the same event
form a queue: if its first client cannot be served, the round skips the others. Between queues the order is that of
arrival, as in Redis.

Costs: O(1) to block and to unblock; a round O(queues), and O(log queues) for each client that it tries.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from rillet._cython import cython, readonly
from rillet.errors import CommandError, NoPerm
from rillet.keyspace.clock import Clock
from rillet.keyspace.database import Database
from rillet.runtime import session_state
from rillet.runtime.engine_stats import EngineStats
from rillet.runtime.propagation import Propagation
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans

_BLOCKED = cython.declare(cython.int, session_state.BLOCKED)
_RUNNING = cython.declare(cython.int, session_state.RUNNING)
_RESTRICTED = cython.declare(cython.int, session_state.RESTRICTED)
# Milliseconds until a retry that CLIENT PAUSE prevented is tried again.
_PAUSED_RETRY = 100


class BlockedClient:
    """The reason why a session is blocked: its keys, its deadline, and the callbacks to serve it or time out.

    serve(session, key) -> bool   tries to reply because key changed; True unblocks the session
    expired(session)              writes the reply of a timeout
    deadline                      ms of Clock.uptime_ms; 0 = none
    retry_at                      time of a retry without a change of a key, ms of Clock.uptime_ms; 0 = none
    postponed                     CLIENT PAUSE holds the session back, and its command has not run yet
    queue                         the name of its queue in KeyWaiters; None = it waits alone
    number                        its position in the order of arrival
    unblockable                   CLIENT UNBLOCK may end the blocking
    spent                         nanoseconds of the call that blocked the session
    on_end, on_disconnect         called when the blocking ends, and when the client disconnects meanwhile (modules)
    """

    __slots__ = ("session", "db", "keys", "deadline", "retry_at", "serve", "expired", "argv", "postponed", "queue",
                 "number", "unblockable", "on_end", "on_disconnect", "spent")  # fmt: skip

    def __init__(self, session: Session, db: Database, keys: list[bytes], deadline: int,
                 serve: Callable[[Any, bytes], bool], expired: Callable[[Any], None], argv: list[bytes],
                 queue: bytes | None, number: int) -> None:
        self.session = session
        self.db = db
        self.keys = keys
        self.deadline = deadline
        self.retry_at = 0
        self.serve = serve
        self.expired = expired
        self.argv = argv
        self.postponed = False
        self.queue = queue
        self.number = number
        self.unblockable = True
        self.spent = 0
        self.on_end: Callable[[], object] | None = None
        self.on_disconnect: Callable[[], object] | None = None

    @property
    def wakes_at(self) -> int:
        """The time at which Blocking.time_has_come must be called (ms of Clock.uptime_ms); 0 = never."""
        if self.deadline and self.retry_at:
            return min(self.deadline, self.retry_at)
        return self.deadline or self.retry_at


class KeyWaiters:
    """The blocked clients of one key; iteration yields them in the order of arrival."""

    __slots__ = ("queues",)

    def __init__(self) -> None:
        self.queues: dict[bytes | None, OrderedDict[Any, None]] = {}

    def add(self, blocked: Any) -> None:
        """Add a client at the end of its queue."""
        queue = self.queues.get(blocked.queue)
        if queue is None:
            queue = self.queues[blocked.queue] = OrderedDict()
        queue[blocked] = None

    def remove(self, blocked: Any) -> None:
        """Remove a client from its queue, if it is in the queue."""
        queue = self.queues.get(blocked.queue)
        if queue is not None:
            queue.pop(blocked, None)
            if not queue:
                del self.queues[blocked.queue]

    def includes(self, name: str) -> bool:
        """Return whether a client is blocked in a command of that name. O(clients)"""
        return any(blocked.session.command.fullname == name for queue in self.queues.values() for blocked in queue)

    def turns(self) -> ServingRound:
        """Return a new round over the key's clients; clients may be added and removed during the round."""
        return ServingRound(self)

    def __bool__(self) -> bool:
        return bool(self.queues)

    def __len__(self) -> int:
        return sum(len(queue) for queue in self.queues.values())

    def __iter__(self) -> Iterator[Any]:
        clients = [blocked for queue in self.queues.values() for blocked in queue]
        return iter(sorted(clients, key=lambda blocked: blocked.number))


class ServingRound:
    """One round over the queues of clients that a key blocks: `next` returns a client, `refused` skips its queue."""

    __slots__ = ("_alone", "_at", "_queue", "_queues", "last")

    def __init__(self, waiters: KeyWaiters) -> None:
        self._alone = list(waiters.queues.get(None, ()))
        self._at = 0
        # A heap of the queues still to be tried, by the number of their first client.
        self._queues = [(next(iter(queue)).number, queue) for name, queue in waiters.queues.items() if name is not None]
        heapify(self._queues)
        # The queue of the client that is being tried; it is not in the heap.
        self._queue: OrderedDict[Any, None] | None = None
        # Clients that block during this round are not part of it.
        self.last = max((next(reversed(queue)).number for queue in waiters.queues.values()), default=0)

    def next(self) -> Any:
        """Return the client that has waited longest among those still to be tried, or None."""
        alone = self._alone[self._at] if self._at < len(self._alone) else None
        if self._queue is not None:
            self._push(self._queue)
            self._queue = None
        while self._queues and (alone is None or self._queues[0][0] < alone.number):
            number, queue = heappop(self._queues)
            head = next(iter(queue), None)
            if head is not None and head.number == number:
                self._queue = queue
                return head
            self._push(queue)  # the queue's first client was unblocked: the queue has a new first client
        if alone is not None:
            self._at += 1
        return alone

    def _push(self, queue: OrderedDict[Any, None]) -> None:
        """Put a queue back into the heap, unless its first client blocked after the round began."""
        head = next(iter(queue), None)
        if head is not None and head.number <= self.last:
            heappush(self._queues, (head.number, queue))

    def refused(self, blocked: BlockedClient) -> None:
        """Skip the other clients in this client's queue in this round, because the client could not be served."""
        if blocked.queue is not None:
            self._queue = None


def _count_wait(session: Session, blocked: BlockedClient, nanoseconds: int, served: bool) -> None:
    """Count and log a call whose client was blocked and has its reply now (blocked.c: updateStatsOnUnblock)."""
    entry, engine = session.command, session.engine
    newer = engine.settings.compat.knows(72)
    if blocked.postponed or entry is None or not (newer or served):  # older servers do not count a timeout
        return
    total = blocked.spent + nanoseconds
    counters = engine.stats.of_command(entry)
    counters.nanoseconds += total if newer else nanoseconds
    counters.calls += newer
    counters.track(total, engine.settings.latency_tracking)
    if total >= engine.command_log.slow_ns and not session.trusted:
        engine.latency.add(b"command-unblocking", nanoseconds)
        engine.command_log.record_list(session, entry, blocked.argv, total)


@cython.final
@cython.cclass
class Blocking:
    """The blocked sessions of one engine. `ready` lists the databases with ready keys."""

    __slots__ = ("ready", "_clock", "_statistics", "_propagation", "_arrivals", "_interrupt", "_words")
    ready: readonly[list[Database]]
    _clock: Clock
    _statistics: EngineStats
    _propagation: Propagation
    _arrivals: cython.longlong
    _interrupt: BaseException | None
    _words: ArgumentSpans

    def __init__(self, clock: Clock, stats: EngineStats, propagation: Propagation) -> None:
        self.ready = []
        self._words = ArgumentSpans()
        self._clock = clock
        self._statistics = stats
        self._propagation = propagation
        self._arrivals = 0
        self._interrupt = None

    def block(self, session: Session, keys: list[bytes], timeout_ms: int,
              serve: Callable[[Any, bytes], bool], expired: Callable[[Any], None], queue: bytes | None = None) -> None:
        """Block the session until one of its keys is ready (blocked.c: blockForKeys). O(keys)"""
        deadline = self._clock.uptime_ms() + timeout_ms if timeout_ms else 0
        self._arrivals += 1
        blocked = BlockedClient(session, session.db, list(dict.fromkeys(keys)), deadline, serve, expired, session.argv,
                                queue, self._arrivals)  # fmt: skip
        for key in blocked.keys:
            waiting = session.db.blocking_keys.get(key)
            if waiting is None:
                waiting = session.db.blocking_keys[key] = KeyWaiters()
            waiting.add(blocked)
        session.blocked = blocked
        session.state |= _BLOCKED

    @cython.ccall
    def unblock(self, session: Session) -> cython.bint:
        """Unblock the session without a reply. O(keys)"""
        blocked = session.blocked
        session.blocked = None
        session.state &= ~_BLOCKED
        for key in blocked.keys:
            waiting = blocked.db.blocking_keys.get(key)
            if waiting is not None:
                waiting.remove(blocked)
                if not waiting:
                    del blocked.db.blocking_keys[key]
        if blocked.on_end is not None:
            blocked.on_end()
        return True

    @cython.ccall
    def wake(self, session: Session) -> cython.bint:
        """Notify the session's frontend that the session has a reply or a new deadline: on_wake or transport.woken.

        The frontend may be interpreted code in a thread that a signal interrupts. Then it is notified again, because
        the session would wait forever.
        """
        # A socket's session has no `on_wake`: a bound method for each of thousands of clients takes memory.
        wake = session.on_wake
        if wake is None:
            if session.transport is None:
                return True
            wake = session.transport.woken
        try:
            wake()
        except BaseException:
            wake()
            raise
        return True

    # -- timeouts ------------------------------------------------------------------------------------

    def uptime_at(self, when: int) -> int:
        """Convert a time in ms since the epoch to ms of Clock.uptime_ms; 0 stays 0."""
        return when and when + self._clock.uptime_ms() - self._clock.now_ms()

    def retry_at(self, session: Session, when: int) -> None:
        """Try to serve a blocked session at a time (ms since the epoch), even if its keys do not change."""
        blocked = session.blocked
        when = self.uptime_at(when)
        before = blocked.wakes_at
        blocked.retry_at = when
        if blocked.wakes_at < before or before == 0:
            self.wake(session)  # the frontend must set an earlier timer

    def time_has_come(self, session: Session) -> None:
        """Act on a deadline or a retry; the owner of the timer calls this at `BlockedClient.wakes_at`."""
        blocked = session.blocked
        if blocked is None or blocked.postponed:
            return
        now = self._clock.uptime_ms()
        if blocked.deadline and blocked.deadline <= now:
            self.expire(session)
        elif blocked.retry_at and blocked.retry_at <= now:
            if not blocked.keys:
                # The session waits for no key, so no other client competes with it.
                blocked.retry_at = 0
                self._serve(blocked, b"")
                self._raise_interrupt()
            elif session.engine.paused:
                blocked.retry_at = now + _PAUSED_RETRY  # CLIENT PAUSE WRITE also prevents a claim, which is a write
            else:
                # Try all clients of these keys in their order (t_stream.c: handleClaimableStreamEntries).
                blocked.retry_at = 0
                for key in blocked.keys:
                    blocked.db.signal_ready(key)
                self.serve_ready()

    def expire(self, session: Session) -> None:
        """Reply that the timeout has expired, and unblock the session."""
        blocked = session.blocked
        if blocked is not None and not blocked.postponed:
            self.unblock(session)
            mark: cython.Py_ssize_t = session.out.mark()
            blocked.expired(session)
            _count_wait(session, blocked, 0, False)
            session.mute(mark)
            self.wake(session)

    def fail(self, session: Session, error: CommandError) -> None:
        """Write an error reply and unblock the session (CLIENT UNBLOCK ... ERROR).

        The call counts as failed, in Valkey as rejected (blocked.c: unblockClientOnError).
        """
        if session.blocked is not None and not session.blocked.postponed:
            blocked = session.blocked
            self.unblock(session)
            _count_wait(session, blocked, 0, False)
            if session.engine.settings.compat.valkey:
                self._statistics.count_rejection(session.command)
            else:
                self._statistics.count_failure(session.command)
            mark: cython.Py_ssize_t = session.out.mark()
            session.reply_error(mark, error)
            session.mute(mark)
            self.wake(session)

    def retry(self, session: Session) -> None:
        """Try to serve a blocked session that waits for no key, because what it waits for may have happened."""
        blocked = session.blocked
        if blocked is not None and not blocked.postponed:
            self._serve(blocked, b"")
            self._raise_interrupt()

    # -- ready keys ----------------------------------------------------------------------------------

    def database_ready(self, database: Database) -> None:
        """Record that the database has ready keys, for `serve_ready`."""
        self.ready.append(database)

    @cython.ccall
    def serve_ready(self) -> cython.bint:
        """Serve the clients of ready keys, first come first served (blocked.c: handleClientsBlockedOnKeys)."""
        while self.ready:
            databases = self.ready
            self.ready = []
            for database in databases:
                keys = list(database.ready_keys)
                database.ready_keys.clear()
                for key in keys:
                    waiting = database.blocking_keys.get(key)
                    if waiting is not None:
                        self._serve_key(waiting.turns(), key)
        self._raise_interrupt()
        return True

    def _raise_interrupt(self) -> None:
        """Raise the exception that interrupted a frontend while clients were served."""
        if self._interrupt is not None:
            error = self._interrupt
            self._interrupt = None
            raise error

    def _serve_key(self, turns: ServingRound, key: bytes) -> None:
        blocked = turns.next()
        while blocked is not None:
            if blocked.session.blocked is not blocked or not self._serve(blocked, key):
                turns.refused(blocked)
            blocked = turns.next()

    def _serve(self, blocked: BlockedClient, key: bytes) -> bool:
        """Try to serve one blocked client; return whether it got a reply."""
        session: Session = blocked.session
        mark: cython.Py_ssize_t = session.out.mark()
        propagation: Propagation = self._propagation
        session.dirty = 0
        session.propagated = None
        session.state |= _RUNNING
        session.logged = propagation.log is not None
        propagation.depth += 1
        began: cython.longlong = self._clock.ticks()
        refused = False
        try:
            if session.state & _RESTRICTED and session.engine.settings.compat.knows(72):
                session.engine.acl.check(session, session.command, blocked.argv)
            done = blocked.serve(session, key)
        except NoPerm as error:  # Redis starts the command again, and rejects it
            self._statistics.count_rejection(session.command)
            session.reply_error(mark, error)
            done = refused = True
        except CommandError as error:
            self._statistics.count_failure(session.command)
            session.reply_error(mark, error)
            done = True
        finally:
            propagation.depth -= 1
            session.state &= ~_RUNNING
            if session.dirty or session.propagated is not None:
                self._words.point_to(blocked.argv, 0, len(blocked.argv))
                propagation.take_effects(session, self._words)
            if propagation.pending and propagation.depth == 0:
                propagation.flush_pending()
        if done and not refused:
            _count_wait(session, blocked, self._clock.ticks() - began, True)
        if done:
            session.mute(mark)
            self.unblock(session)
        if session.pushes is not None:
            session.flush_pushes()
        if done:
            try:
                self.wake(session)
            except BaseException as error:
                self._interrupt = error  # raised when the other clients are served too
        return done
