"""A session: one client as the engine sees it, and the only object that a handler receives.

A handler reads `session.db`, writes its reply to `session.out`, and raises CommandError for an error reply. It reports
its effects with these methods:

    session.modified(key)             the key changed: mark its watchers and count one change (`dirty`)
    session.changed(words, count)     the key in the first argument changed
    session.notify(kind, event, key)  publish a keyspace event
    session.propagate(argv)           log and replicate this command instead of the received one; repeatable
    session.propagate_nothing()       log and replicate no command
    session.block(...)                reply later: the engine calls `serve` when one of the keys is ready
    session.push(data)                send bytes that CLIENT REPLY OFF does not drop

The engine acts on them after the handler. A call that only increased `dirty` is propagated as received.

Messages of channels come from the commands of other sessions, at any time. While a handler of this session writes its
reply, they collect in `pushes` and follow the reply (networking.c: pending_push_messages). Otherwise they go
into `out` at once, and `on_message` notifies the frontend that there is output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine

from rillet._cython import cython, public
from rillet.keyspace import lru
from rillet.keyspace.database import Database, Watcher
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime import session_state
from rillet.runtime.session_state import after
from rillet.structs.argument_spans import ArgumentSpans

_MUTED = cython.declare(cython.int, session_state.MUTED)
_REPLY_SKIP = cython.declare(cython.int, session_state.REPLY_SKIP)
_CLOSING = cython.declare(cython.int, session_state.CLOSING)
_TRUSTED = cython.declare(cython.int, session_state.TRUSTED)
_LRM = cython.declare(cython.int, lru.LRM)
_IN_EXEC = cython.declare(cython.int, session_state.IN_EXEC)


# The empty attributes of all new sessions. They stay empty; most clients never need others.
_NO_WATCHER = cython.declare(Watcher, Watcher())
_NO_EXTRA: dict[str, Any] = {}
_NO_QUEUE: tuple[Any, ...] = ()
_NO_ARGV: list[bytes] = []


@cython.final
@cython.cclass
class Session:
    """One client. `engine` is the Engine; `on_wake` is called after a blocked client got its reply."""

    __slots__ = (
        "engine", "db", "out", "id", "name", "account", "state", "watcher", "queue", "blocked", "dirty",
        "propagated", "argv", "command", "on_wake", "transport", "created_ms", "last_ms", "lib_name",
        "lib_ver", "extra", "subscriptions", "pushes", "on_message", "tracking",
        "commands", "logged", "batch_ms", "batch_value", "patient",
    )  # fmt: skip
    engine: public[CommandEngine]
    db: public[Database]
    out: public[ReplyWriter]
    id: public[cython.longlong]
    name: public[bytes]
    account: public[Any]  # the User (runtime/acl) or None: no user, every call is permitted
    lib_name: public[bytes]
    lib_ver: public[bytes]
    state: public[cython.int]
    watcher: public[Watcher]
    queue: public[Any]  # CommandQueue, or empty
    blocked: public[Any]
    dirty: public[cython.longlong]
    propagated: public[list[list[bytes]] | None]
    argv: public[list[bytes]]
    command: public[Any]
    on_wake: public[Any]
    transport: public[Any]
    created_ms: public[cython.longlong]
    last_ms: public[cython.longlong]
    extra: public[dict[str, Any]]
    subscriptions: public[Any]
    pushes: public[Any]  # list[bytes] | None
    on_message: public[Any]
    tracking: public[Any]  # ClientTracking | None
    commands: public[cython.longlong]
    logged: public[cython.bint]
    batch_value: public[Any]
    batch_ms: public[cython.longlong]
    patient: public[cython.bint]

    def __init__(self, engine: CommandEngine, db: Database, session_id: int) -> None:
        self.engine = engine
        self.db = db
        self.out = ReplyWriter()
        self.id = session_id
        self.name = b""
        self.account = None
        self.lib_name = b""
        self.lib_ver = b""
        # The state: the flags that runtime/session_state.py defines.
        self.state = 0
        self.watcher = _NO_WATCHER
        # The commands between MULTI and EXEC (runtime/command_queue.py).
        self.queue = _NO_QUEUE
        # A BlockedClient (runtime/blocking.py) while the session is blocked, else None.
        self.blocked = None
        self.dirty = 0
        self.propagated = None
        self.argv = _NO_ARGV
        self.command = None
        self.on_wake = None
        self.transport = None
        self.created_ms = 0
        self.last_ms = 0
        # Rare attributes; `remember` adds one.
        self.extra = _NO_EXTRA
        # Subscriptions (runtime/channels.py), or None if the session has none.
        self.subscriptions = None
        self.pushes = None
        self.on_message = None
        # ClientTracking (runtime/tracking.py), or None if the session never turned tracking on.
        self.tracking = None
        # The number of commands that have begun.
        self.commands = 0
        # Shared by consecutive calls of a command: the time (0: not read), and a value that they use.
        self.batch_ms = 0
        self.batch_value = None
        # Whether a command may wait for the disk, and reply later (host/cold_reads.py).
        self.patient = False
        # Whether the changes of the running command are logged or replicated.
        self.logged = False

    # -- state ---------------------------------------------------------------------------------------

    @cython.ccall
    def enter(self, event: str) -> cython.bint:
        """Change the session's flags for an event, as the table of runtime/session_state.py defines."""
        self.state = after(self.state, event)
        return True

    @property
    def user(self) -> bytes:
        """The name of the session's user."""
        return self.account.name if self.account is not None else b"(superuser)"

    def address(self, side: str) -> bytes:
        """Return ip:port of the "peer" or the "local" side; ?:0 for a session without a socket."""
        found: str = getattr(self.transport, side, "") or "?:0"
        return found.encode("utf-8", "surrogateescape")

    @property
    def closing(self) -> bool:
        """True if the connection will be closed after its output is sent."""
        return self.state & _CLOSING != 0

    @closing.setter
    def closing(self, value: bool) -> None:
        assert value
        self.state |= _CLOSING

    @property
    def trusted(self) -> bool:
        """True if the session's commands come from a log or a master; limits do not apply to these commands."""
        return self.state & _TRUSTED != 0

    @trusted.setter
    def trusted(self, value: bool) -> None:
        self.enter("trust" if value else "distrust")

    @property
    def in_exec(self) -> bool:
        """True while EXEC runs the queued commands of this session."""
        return self.state & _IN_EXEC != 0

    @property
    def can_block(self) -> bool:
        """True if a command may block: not inside EXEC, and not while a log is replayed."""
        return self.state & (_IN_EXEC | _TRUSTED) == 0

    def check(self) -> None:
        """Assert the invariants of the flags and of the output, between two commands."""
        session_state.check(self.state)
        assert (self.blocked is not None) == (self.state & session_state.BLOCKED != 0)
        assert bool(self.subscriptions) == (self.state & session_state.SUBSCRIBED != 0)
        assert not self.queue or self.state & session_state.IN_MULTI
        assert self.pushes is None
        self.out.check()

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def now_ms(self) -> cython.longlong:
        """Return the time in ms since the epoch: one time for consecutive calls of a pipeline."""
        if self.batch_ms == 0:
            self.batch_ms = self.db.clock.now_ms()
        return self.batch_ms

    # -- replies and messages ------------------------------------------------------------------------

    @cython.ccall
    def mute(self, mark: cython.Py_ssize_t) -> cython.bint:
        """Drop the output since position `mark` if CLIENT REPLY is OFF or SKIP; end SKIP."""
        if self.state & _MUTED:
            self.out.truncate(mark)
            self.state &= ~_REPLY_SKIP
        return True

    @cython.ccall
    def reply_error(self, mark: cython.Py_ssize_t, error: object) -> cython.bint:
        """Replace the output since `mark` by an error reply, and count the error."""
        self.out.truncate(mark)
        text = str(error)
        self.engine.stats.count_error(text, self.engine.settings.compat)
        self.out.error(text.encode("utf-8", "surrogateescape"))
        return True

    @cython.ccall
    def push(self, data: bytes) -> cython.bint:
        """Reply with bytes that CLIENT REPLY OFF and SKIP do not drop (networking.c: CLIENT_PUSHING)."""
        if self.state & _MUTED:
            return self.postpone(data)
        return self.out.raw(data)

    @cython.ccall
    def postpone(self, data: bytes) -> cython.bint:
        """Hold back a message until the running command has written its whole reply."""
        if self.pushes is None:
            self.pushes = []
        self.pushes.append(data)
        return True

    @cython.ccall
    def flush_pushes(self) -> cython.bint:
        """Append the messages that were held back to the output."""
        waiting: list[bytes] = self.pushes
        self.pushes = None
        for data in waiting:
            self.out.raw(data)
        return True

    # -- effects of a handler ------------------------------------------------------------------------

    @cython.ccall
    def modified(self, key: bytes) -> cython.bint:
        """Record one change of the key and mark its watchers (signalModifiedKey, server.dirty++)."""
        self.dirty += 1
        if self.db.watched_keys or self.db.tracking is not None:
            self.db.touch(key)
        if self.db.access.mode == _LRM:
            self.db.touch_modified(key)
        return True

    @cython.ccall
    def changed(self, words: ArgumentSpans, count: cython.longlong) -> cython.bint:
        """Record changes of the key that is the first argument, as `modified` records one."""
        db: Database = self.db
        if count == 0:
            return True
        self.dirty += count
        if db.tracking is not None:
            db.tracking.invalidate_span(words.at[1], words.size[1])
        if db.watched_keys or db.access.mode == _LRM:
            key: bytes = words.get(1)
            db.touch_watchers(key)
            if db.access.mode == _LRM:
                db.touch_modified(key)
        return True

    @cython.ccall
    def propagate(self, argv: list[bytes]) -> cython.bint:
        """Log and replicate `argv` instead of the received command; repeated calls log several commands."""
        if self.propagated is None:
            self.propagated = [argv]
        else:
            self.propagated.append(argv)
        return True

    @cython.ccall
    def propagate_nothing(self) -> cython.bint:
        """Do not log and replicate the received command (preventCommandPropagation)."""
        if self.propagated is None:
            self.propagated = []
        return True

    @cython.ccall
    def notify(
        self, kind: bytes, event: bytes, key: bytes, subkeys: list[bytes] | None = None
    ) -> cython.bint:
        """Publish a keyspace event; `kind` is its letter in notify-keyspace-events (t = stream, g = generic).

        subkeys: the fields of a hash that the event concerns.
        """
        if self.db.notifies:
            self.engine.keyspace_event(self.db, kind, event, key, subkeys)
        return True

    def remember(self, name: str, value: object) -> None:
        """Set a rare attribute of the session in `extra`."""
        if self.extra is _NO_EXTRA:
            self.extra = {}
        self.extra[name] = value

    def notify_deleted_by_time(self, key: bytes) -> None:
        """Publish the deletion of a key that was given an expiry in the past; Valkey treats it as an expiry."""
        if self.engine.settings.compat.valkey:
            self.engine.stats.expired_keys += 1
            self.notify(b"x", b"expired", key)
        else:
            self.notify(b"g", b"del", key)

    def block(self, keys: list[bytes], timeout_ms: int, serve: Callable[[Any, bytes], bool],
              expired: Callable[[Any], None], queue: bytes | None = None) -> None:
        """Block the session until one of the keys is ready (see BlockedClient); a timeout of 0 never expires."""
        self.engine.blocking.block(self, keys, timeout_ms, serve, expired, queue)

    # -- transactions --------------------------------------------------------------------------------

    @cython.ccall
    def clear_queue(self) -> cython.bint:
        """Forget the queued commands."""
        self.queue = _NO_QUEUE
        return True

    def watch(self, key: bytes) -> None:
        """Watch a key of the session's database (multi.c: watchForKey)."""
        if self.watcher is _NO_WATCHER:
            self.watcher = Watcher()
        self.db.watch(key, self.watcher)

    @cython.ccall
    def unwatch(self) -> cython.bint:
        """Remove the session's watcher from every key (multi.c: unwatchAllKeys). O(watched keys)"""
        watcher: Watcher = self.watcher
        for database, key in watcher.keys:
            watchers = database.watched_keys.get(key)
            if watchers is not None:
                watchers.discard(watcher)
                if not watchers:
                    del database.watched_keys[key]
        self.watcher = _NO_WATCHER
        return True

    @cython.ccall
    def discard(self) -> cython.bint:
        """End the transaction without running its commands, and unwatch all keys (multi.c: discardTransaction)."""
        self.clear_queue()
        self.enter("end transaction")
        return self.unwatch()
