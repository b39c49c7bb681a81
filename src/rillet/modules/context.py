"""The context of a call of a module's code: the only object through which a module uses the engine.

    context.key(b"k")                  a key of the current database: get, set, delete, expiry
    context.call("INCR", b"n")         run another command, and return its reply as a Python value
    context.replicate("INCR", b"n")    log and replicate a command; replicate_verbatim: the received one
    context.notify("d", "event", key)  publish a keyspace event
    context.block_on_keys(...)         reply later, when a key changes
    context.block(), in_thread(...)    reply later, from another thread
    context.timer(ms, function)        run a function later
    context.state, context.setting()   what belongs to the module in this engine

A context is valid during the call that receives it; `BlockedCall` and timers get new ones.

As in Redis, a command of a module is not logged by itself: a command that changes data must call `replicate`,
`replicate_verbatim`, or other commands through `call`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rillet.commands.arguments import arity_error, text
from rillet.errors import CommandError, WrongType
from rillet.keyspace.database import Database
from rillet.modules.blocking import BlockedCall, block_call, block_on_keys
from rillet.modules.engine_calls import EVENT_CLASSES
from rillet.modules.module_state import ModuleState
from rillet.protocol.reply_parser import parse_all
from rillet.runtime.session import Session
from rillet.types.module import ModuleType, ModuleValue, argument

if TYPE_CHECKING:
    from rillet.protocol.reply_writer import ReplyWriter

# Commands that need a client of their own: their effect would last longer than the call.
_NOT_CALLED = frozenset(
    "multi exec discard watch unwatch subscribe psubscribe ssubscribe unsubscribe punsubscribe sunsubscribe monitor "
    "hello auth client reset quit select sync psync shutdown".split()
)

TypeClass = type[ModuleType]


class OpenKey:
    """A key of a database. Its methods see the value at the time of the call."""

    __slots__ = ("_context", "_database", "_write", "name")

    def __init__(self, context: Context, name: bytes, write: bool) -> None:
        self._context = context
        self._database = context.database
        self._write = write
        self.name = name

    def _lookup(self) -> Any:
        with self._context.module.uninterrupted:
            return self._database.lookup(self.name) if self._write else self._database.lookup_read(self.name)

    @property
    def exists(self) -> bool:
        """Whether the key exists."""
        with self._context.module.uninterrupted:
            return self._database.find(self.name) >= 0

    @property
    def type(self) -> str:
        """The type of the value, as the command TYPE shows it: "none", "string" ..., or that of a module's type."""
        with self._context.module.uninterrupted:
            n = self._database.find(self.name)
            return "none" if n < 0 else self._context.module.services.calls.name_of_type(self._database, n)

    def get(self, kind: TypeClass) -> Any:
        """Return the value of a module's type, None if the key does not exist; WrongType if it has another type."""
        value = self._lookup()
        if value is None:
            return None
        if not isinstance(value, ModuleValue) or type(value.type.type) is not kind:
            raise WrongType()
        return value.value

    def set(self, kind: TypeClass, value: Any) -> None:
        """Store a value of a module's type; the former value and the expiry are deleted (RM_ModuleTypeSetValue)."""
        handle = self._context.module.services.calls.handle_of(kind)
        with self._context.module.uninterrupted:
            self._database.delete_replaced(self.name)
            self._database.put(self.name, ModuleValue(handle, value))
            self._changed()

    def replace(self, kind: TypeClass, value: Any) -> Any:
        """Exchange the value of an existing key and return the former one (RM_ModuleTypeReplaceValue)."""
        old = self._lookup()
        if not isinstance(old, ModuleValue) or type(old.type.type) is not kind:
            raise WrongType()
        with self._context.module.uninterrupted:
            found, old.value = old.value, value
            self._database.ledger.note(old)
            self._changed()
        return found

    def delete(self, *, unlink: bool = False) -> bool:
        """Delete the key; return whether it existed. unlink: free a large value in the background."""
        with self._context.module.uninterrupted:
            if self._database.find(self.name) < 0:
                return False
            self._database.delete(self.name, unlink)
            self._changed()
            return True

    def changed(self) -> None:
        """Report that the module changed the value: clients that watch the key notice it, and its size is measured."""
        with self._context.module.uninterrupted:
            self._database.lookup(self.name)
            self._changed()

    def _changed(self) -> None:
        self._database.touch(self.name)
        self._database.touch_modified(self.name)

    @property
    def expires_at(self) -> int | None:
        """The expiry in ms since the epoch, None if the key has none; assign to change it."""
        with self._context.module.uninterrupted:
            when = self._database.get_expire(self.name)
        return when if when >= 0 else None

    @expires_at.setter
    def expires_at(self, when: int | None) -> None:
        with self._context.module.uninterrupted:
            if self._database.find(self.name) < 0:
                return
            if when is None:
                self._database.persist(self.name)
            else:
                self._database.set_expire(self.name, when)
            self._changed()


class Context:
    """The engine, as one call of a module's code sees it. `argv` is the command, empty in other calls."""

    __slots__ = ("argv", "blocked_on", "database", "module", "session")

    def __init__(self, module: ModuleState, database: Database, session: Session | None = None,
                 argv: list[bytes] | None = None) -> None:  # fmt: skip
        self.module = module
        self.database = database
        self.session = session
        self.argv = argv or []
        # The BlockedCall of this call, if it blocked its client.
        self.blocked_on: BlockedCall | None = None

    # -- facts -----------------------------------------------------------------------------------------

    @property
    def state(self) -> Any:
        """An object for the attributes that the module keeps in this engine."""
        return self.module.state

    def setting(self, name: str) -> Any:
        """Return the value of one of the module's settings."""
        return self.module.setting(name)

    @property
    def db(self) -> int:
        """The number of the current database."""
        return self.database.index

    def in_database(self, index: int) -> Context:
        """Return a context whose current database is another one; ValueError if there is none of that number."""
        databases = self.module.engine.databases
        if not 0 <= index < len(databases):
            raise ValueError(f"there is no database {index}")
        return Context(self.module, databases[index], self.session, self.argv)

    @property
    def now_ms(self) -> int:
        """The time in ms since the epoch."""
        return int(self.module.engine.clock.now_ms())

    @property
    def command(self) -> str:
        """The full name of the running command: "get", or "container|subcommand"."""
        return "" if self.session is None else str(self.session.command.fullname)

    @property
    def client_id(self) -> int:
        """The ID of the client, 0 outside of a command."""
        return 0 if self.session is None else self.session.id

    @property
    def in_transaction(self) -> bool:
        """Whether the command, or the one that caused this call, runs inside EXEC."""
        if self.session is not None:
            return self.session.in_exec
        return any(session.in_exec for session in self.module.engine.sessions.values())

    @property
    def replaying(self) -> bool:
        """Whether the command comes from the log, which is being loaded."""
        return self.session is not None and self.session.trusted

    @property
    def out(self) -> ReplyWriter:
        """The writer of the reply, for a command that returns NO_REPLY."""
        assert self.session is not None, "there is no client to reply to"
        return self.session.out

    def log(self, text: str, level: str = "notice") -> None:
        """Write a line to the server's log."""
        self.module.engine.services.log_line(f"<{self.module.name}> {text}", level)

    # -- keys and commands -----------------------------------------------------------------------------

    def key(self, name: bytes) -> OpenKey:
        """Return a key. A command with the flag `write` looks it up to change it, any other command to read it."""
        return OpenKey(self, name, self.session is None or self.session.command is None or self.session.command.write)

    def all_keys(self) -> list[bytes]:
        """Return all keys of the database that have not expired. O(keys)"""
        with self.module.uninterrupted:
            return [key for batch in self.database.live_keys() for key in batch]

    def call(self, *words: Any, replicate: bool = True, resp: int = 2) -> Any:
        """Run a command in the current database, and return its reply; CommandError for an error (RM_Call).

        replicate: log and replicate its effects ("!" of RM_Call). A command that would block replies as in MULTI.
        """
        argv = [argument(word) for word in words]
        calls = self.module.services.calls
        entry = calls.find_command(argv)
        if entry is None:
            raise CommandError(f"unknown command '{text(argv[0])}'")
        if entry.subcommands is not None and len(argv) > 1:
            raise CommandError(f"unknown subcommand '{text(argv[1])}'. Try {entry.name.upper()} HELP.")
        if not entry.accepts(len(argv)):
            raise arity_error(entry.fullname)
        if entry.fullname.partition("|")[0] in _NOT_CALLED:
            raise CommandError(f"'{entry.fullname}' needs a client: a module cannot call it")
        with self.module.uninterrupted:
            inner = calls.inner_session(self.database, replicate and not self.replaying)
            inner.out.resp = resp
            try:
                self.module.engine.call(inner, entry, argv)
                if inner.pushes is not None:
                    inner.flush_pushes()
                raw = inner.out.take_bytes()
            finally:
                calls.release(inner)
        reply = parse_all(raw)[0]
        if isinstance(reply, CommandError):
            raise reply
        return reply

    # -- effects ---------------------------------------------------------------------------------------

    def replicate(self, *words: Any) -> None:
        """Log and replicate a command (RM_Replicate). Several commands of one call become a transaction."""
        self._replicate([argument(word) for word in words])

    def replicate_verbatim(self) -> None:
        """Log and replicate the received command (RM_ReplicateVerbatim)."""
        if not self.argv:
            raise RuntimeError("this call has no command: use replicate")
        self._replicate(self.argv)

    def _replicate(self, argv: list[bytes]) -> None:
        engine = self.module.engine
        with self.module.uninterrupted:
            engine.propagation.dirty += 1
            if not self.replaying and engine.propagation.log is not None:
                engine.propagation.add(self.database.index, argv)

    def notify(self, kind: str, event: str | bytes, key: bytes) -> None:
        """Publish a keyspace event of a class ("d": an event of a module)."""
        letter = kind.encode()
        if letter not in EVENT_CLASSES:
            raise ValueError(f"{kind!r} is no class of keyspace events")
        engine = self.module.engine
        if engine.notify_events:
            with self.module.uninterrupted:
                engine.keyspace_event(self.database, letter, argument(event), key)

    def signal_ready(self, key: bytes) -> None:
        """Serve the clients that are blocked on a key after this call (RM_SignalKeyAsReady)."""
        with self.module.uninterrupted:
            self.database.signal_ready(key)

    def publish(self, channel: bytes, message: bytes) -> int:
        """Send a message to a channel; return the number of receivers."""
        with self.module.uninterrupted:
            return int(self.module.engine.channels.publish(channel, message))

    # -- replies that come later -----------------------------------------------------------------------

    def block_on_keys(self, keys: list[bytes], serve: Callable[[Context, bytes], Any], *, timeout_ms: int = 0,
                      on_timeout: Callable[[Context], Any] | None = None) -> Any:  # fmt: skip
        """Reply later: return this method's result from the command (RM_BlockClientOnKeys).

        serve(context, key) runs when one of the keys exists and has changed: its result is the reply, or KEEP_WAITING.
        on_timeout(context) returns the reply after `timeout_ms` (0: never) and after CLIENT UNBLOCK.
        """
        with self.module.uninterrupted:
            self.blocked_on = block_on_keys(self.module, self.session, self.argv, keys, serve, timeout_ms, on_timeout)
        return self.blocked_on

    def block(self, *, timeout_ms: int = 0, on_timeout: Callable[[Context], Any] | None = None,
              on_disconnect: Callable[[Context], None] | None = None) -> BlockedCall:  # fmt: skip
        """Reply later, from any thread, with `BlockedCall.unblock`; return the result from the command."""
        with self.module.uninterrupted:
            self.blocked_on = block_call(self.module, self.session, self.argv, timeout_ms, on_timeout, on_disconnect)
        return self.blocked_on

    def in_thread(self, function: Callable[..., Any], *arguments: Any, timeout_ms: int = 0,
                  on_timeout: Callable[[Context], Any] | None = None) -> BlockedCall:  # fmt: skip
        """Run a function in a thread; its result is the reply, and its exception an error reply.

        The function must not use this context; `BlockedCall.post` runs a function in the engine.
        """
        with self.module.uninterrupted:
            blocked = self.block(timeout_ms=timeout_ms, on_timeout=on_timeout)
            blocked.start(function, arguments)
        return blocked

    # -- timers ----------------------------------------------------------------------------------------

    def timer(self, milliseconds: int, function: Callable[[Context, Any], None], data: Any = None) -> int:
        """Run function(context, data) once after a time, in the current database; return the timer's ID."""
        with self.module.uninterrupted:
            return self.module.services.timers.add(self.module, self.database, milliseconds, function, data)

    def stop_timer(self, number: int) -> Any:
        """Remove a timer and return its data; KeyError if it has run or is another module's."""
        with self.module.uninterrupted:
            return self.module.services.timers.stop(self.module, number)

    def timer_info(self, number: int) -> tuple[int, Any]:
        """Return the milliseconds that remain of a timer, and its data; KeyError as for stop_timer."""
        return self.module.services.timers.info(self.module, number)

    def post(self, function: Callable[[Context], None]) -> None:
        """Run function(context) soon in the engine, after the running command; any thread may call this."""
        with self.module.uninterrupted:
            self.module.post(function, self.database)
