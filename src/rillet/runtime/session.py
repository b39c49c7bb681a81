"""A session: the engine's state of one client, and the interface that command handlers use.

A handler reads `session.db`, writes its reply to `session.out`, and raises a CommandError to reject the command. It
records the effects of the command in the session:

    session.modified(key)      the key changed: marks its watchers and counts one change (`dirty`)
    session.notify(kind, event, key)   a keyspace event
    session.propagate(argv)    log and replicate this instead of the received command; several calls append several
                               commands; `session.propagate_nothing()` logs no command at all
    session.block(...)         no reply now: `serve` is called when one of the keys is ready
    session.push(data)         a confirmation of (un)subscribing: sent even if replies are disabled

The engine processes these records after the handler has returned. If a handler records only `dirty`, the received
command is propagated unchanged.

Channel messages arrive from other sessions' commands at any time. `running` is true while a command of this session
writes its reply. Messages that arrive then wait in `pushes` until the reply is complete (networking.c:
pending_push_messages). At any other time a message is written to `out` directly, and `on_message` notifies the frontend
that there is data to send.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

from rillet.keyspace.database import Database, Watcher
from rillet.protocol.reply_writer import ReplyWriter

# Bits of `Session.state`; the engine skips its checks for a session without any.
UNAUTHENTICATED = 1
IN_MULTI = 2
MULTI_FAILED = 4
BLOCKED = 8
SUBSCRIBED = 16
REPLY_OFF = 32
REPLY_SKIP = 64
REPLY_SKIP_NEXT = 128


class Blocked:
    """A blocked client: its keys, its deadline, and the functions that end its waiting.

    serve(session, key) -> bool   tries to reply after the key changed; True ends the waiting
    expired(session)              writes the reply of a time-out
    deadline                      ms since the epoch; 0: none
    retry_at                      the time of the next attempt even if no key changes (ms since the epoch); 0: none
    postponed                     the client is paused, and its command has not run yet
    queue                         the queue of clients with the same condition (see `blocking`); None: no queue
    number                        the number of clients that were blocked before it
    """

    __slots__ = ("session", "db", "keys", "deadline", "retry_at", "serve", "expired", "argv", "postponed", "queue",
                 "number")  # fmt: skip

    def __init__(self, session: Any, db: Database, keys: list[bytes], deadline: int,
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

    @property
    def wakes_at(self) -> int:
        """The time at which the frontend must call Engine.time_has_come (ms since the epoch); 0: never."""
        if self.deadline and self.retry_at:
            return min(self.deadline, self.retry_at)
        return self.deadline or self.retry_at


@cython.final
@cython.cclass
class Session:
    """One client's state. `engine` is the Engine; `on_wake` is called after a blocked client received its reply."""

    __slots__ = (
        "engine", "db", "out", "id", "name", "user", "state", "watcher", "queue", "blocked", "in_exec", "dirty",
        "propagated", "argv", "command", "closing", "on_wake", "transport", "created_ms", "last_ms", "lib_name",
        "lib_ver", "extra", "trusted", "subscriptions", "pushes", "running", "on_message",
    )  # fmt: skip
    engine: Any
    queue: list[Any]
    blocked: Any
    propagated: list[list[bytes]] | None
    argv: list[bytes]
    command: Any
    on_wake: Any
    transport: Any
    extra: dict[str, Any]
    subscriptions: Any
    pushes: Any  # list[bytes] | None
    on_message: Any

    def __init__(self, engine: Any, db: Database, session_id: int) -> None:
        self.engine = engine
        self.db = db
        self.out = ReplyWriter()
        self.id = session_id
        self.name = b""
        self.user = b"default"
        self.lib_name = b""
        self.lib_ver = b""
        self.state = 0
        self.watcher = Watcher()
        self.queue = []
        self.blocked = None
        self.in_exec = False
        self.dirty = 0
        self.propagated = None
        self.argv = []
        self.command = None
        self.closing = False
        # Commands of the log and of a master run even if a client's command would be rejected.
        self.trusted = False
        self.on_wake = None
        self.transport = None
        self.created_ms = 0
        self.last_ms = 0
        self.extra = {}
        # The session's Subscriptions, created at the first one.
        self.subscriptions = None
        self.pushes = None
        self.running = False
        self.on_message = None

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def push(self, data: bytes) -> cython.bint:
        """Write bytes that CLIENT REPLY OFF and SKIP do not suppress (networking.c: CLIENT_PUSHING)."""
        if self.state & (REPLY_OFF | REPLY_SKIP):
            return self.postpone(data)
        return self.out.raw(data)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def postpone(self, data: bytes) -> cython.bint:
        """Keep a message until the reply of the running command is complete."""
        if self.pushes is None:
            self.pushes = []
        self.pushes.append(data)
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def flush_pushes(self) -> cython.bint:
        """Append the kept messages after the reply."""
        waiting: list[bytes] = self.pushes
        self.pushes = None
        for data in waiting:
            self.out.raw(data)
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def modified(self, key: bytes) -> cython.bint:
        """Record one change of the key and mark its watchers (signalModifiedKey, server.dirty++)."""
        self.dirty += 1
        if self.db.watched_keys:
            self.db.touch(key)
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def propagate(self, argv: list[bytes]) -> cython.bint:
        """Log and replicate this command instead of the received one, after earlier calls' commands."""
        if self.propagated is None:
            self.propagated = [argv]
        else:
            self.propagated.append(argv)
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def propagate_nothing(self) -> cython.bint:
        """Log and replicate nothing for this call unless `propagate` says so (preventCommandPropagation)."""
        if self.propagated is None:
            self.propagated = []
        return True

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def notify(self, kind: bytes, event: bytes, key: bytes) -> cython.bint:
        """Publish a keyspace event; `kind` is its letter in notify-keyspace-events (t = stream, g = generic)."""
        if self.engine.notify_events:
            self.engine.keyspace_event(self.db, kind, event, key)
        return True

    def notify_deleted_by_time(self, key: bytes) -> None:
        """Publish the event of a key deleted by an expiry in the past; Valkey calls it expired."""
        if self.engine.settings.compat.valkey:
            self.notify(b"x", b"expired", key)
        else:
            self.notify(b"g", b"del", key)

    @property
    def can_block(self) -> bool:
        """Whether this call may block: not inside EXEC, and not during a log replay."""
        return not self.in_exec and not self.trusted

    def block(self, keys: list[bytes], timeout_ms: int, serve: Callable[[Any, bytes], bool],
              expired: Callable[[Any], None], queue: bytes | None = None) -> None:
        """Block until one of the keys changes; see Blocked. timeout_ms 0: without a time limit."""
        self.engine.block(self, keys, timeout_ms, serve, expired, queue)
