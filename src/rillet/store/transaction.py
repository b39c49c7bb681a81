"""Transactions: commands that are executed together or not at all (Redis: MULTI, EXEC, WATCH).

    with store.transaction() as transaction:
        transaction.add("orders", {"total": "99.90"})
        transaction.execute("INCR", "count")
    # here both were executed, and no other command ran between them

    with store.transaction(watch=["stock"]) as transaction:
        left = int(store.execute("GET", "stock"))
        if left:
            taken = transaction.execute("DECR", "stock")
    print(taken.result)

The commands are collected and sent in one exchange at the end of the block, on a separate connection or session, from
MULTI to EXEC. So other threads, tasks and signal handlers cannot add to a transaction, an exception in the block
discards it, and an interrupt cannot tear it. If the server is away when the block ends, the transaction waits for it,
as other calls do. The object is for one block: a command outside it would never be sent, so it raises StoreError. If
another client changed a watched key since the block began, or the connection that watched it was lost, nothing is
executed and TransactionConflict is raised; `store.transact(function, watch=...)` repeats the function meanwhile.

In a cluster, all keys of a transaction must have the same slot: {user:1}:stock, {user:1}:orders.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

from rillet.errors import CommandError, NotSent, OutcomeUnknown, StoreError, TransactionConflict
from rillet.store.arguments.allowed_commands import one_reply
from rillet.store.arguments.argument_checks import items_of, words_of
from rillet.store.arguments.argument_limits import check_lengths
from rillet.store.arguments.encoding import Fields, Value, append_fields, decode, encode_name, parse_id
from rillet.store.arguments.positions import Position, encode_new_id
from rillet.store.consuming.atomic_steps import release
from rillet.store.retries import patiently
from rillet.store.transports.transport import TRANSACTION_COMMANDS, Transport, check_ready, raised
from rillet.store.typed.forms import V, append_value

if TYPE_CHECKING:
    from rillet.store.aio import AsyncMessage, AsyncStore, AsyncStream
    from rillet.store.message import Message
    from rillet.store.store import Store
    from rillet.store.stream import Stream

Result = TypeVar("Result")
Run: TypeAlias = Callable[[list[list[bytes]]], list[Any]]
AsyncRun: TypeAlias = Callable[[list[list[bytes]]], Awaitable[list[Any]]]


class Queued:
    """A command of a transaction. `result` is its reply after the block; StoreError before."""

    __slots__ = ("_convert", "_reply", "argv")

    def __init__(self, argv: list[bytes], convert: Callable[[Any], Any] | None) -> None:
        self.argv = argv
        self._convert = convert
        self._reply: Any = _PENDING

    @property
    def result(self) -> Any:
        """The reply; raise it if it is an error."""
        if self._reply is _PENDING:
            raise StoreError("the transaction was not executed: read the result after the `with` block")
        reply = raised(self._reply)
        return reply if self._convert is None or reply is None else self._convert(reply)

    def __repr__(self) -> str:
        return f"Queued({self.argv[0].decode(errors='replace')})"


_PENDING = object()
_WHEN = {None: "has not begun", True: "has begun", False: "has ended"}
_REMEDY = "use `with store.transaction() as transaction` (asyncio: `async with`), a new one for each block"


class TransactionCommands:
    """The commands of one transaction; see the module."""

    def __init__(self, watch: Iterable[str | bytes]) -> None:
        self._watch = [encode_name(key, "one of watch") for key in items_of(watch, "watch", "keys")]
        self._queue: list[Queued] = []
        self._acknowledged: list[Message | AsyncMessage] = []
        self._open: bool | None = None  # None: before the block, True: in it, False: after it

    def _begin(self) -> None:
        """Begin the block; raise StoreError unless it is the first one of this object."""
        if self._open is not None:
            raise StoreError(f"a transaction is one `with` block, and this one {_WHEN[self._open]}: {_REMEDY}")
        self._open = True

    def execute(self, *args: Value) -> Queued:
        """Add any command."""
        return self._add(words_of(args, "args"))

    @overload
    def add(self, stream: str | bytes, fields: Fields, id: Position = "*") -> Queued: ...

    @overload
    def add(self, stream: Stream[V] | AsyncStream[V], fields: V, id: Position = "*") -> Queued: ...

    def add(self, stream: Any, fields: Any, id: Position = "*") -> Queued:
        """Add an XADD to a stream, or to the stream of a name; the result is the StreamID of the entry.

        fields: as for Stream.add, that is, a value of its type for a typed Stream. TypeError or InvalidValue otherwise.
        """
        form = getattr(stream, "form", None)
        name = stream.key if isinstance(getattr(stream, "key", None), bytes) else encode_name(stream, "stream")
        argv = [b"XADD", name, encode_new_id(id)]
        if form is None:
            append_fields(argv, fields)
        else:
            append_value(argv, fields, form, decode(name))
        return self._add(argv, parse_id)

    def ack(self, *messages: Message | AsyncMessage) -> list[Queued]:
        """Add an XACK for each message; each result is 1, or 0 if the message was not pending.

        A message of an order by key also releases its key.
        """
        queued = [self._add(_acknowledgement(one)) for one in messages]
        self._acknowledged += messages
        return queued

    def _add(self, argv: list[bytes], convert: Callable[[Any], Any] | None = None) -> Queued:
        if argv and argv[0].upper() in TRANSACTION_COMMANDS:
            raise CommandError(f"{argv[0].decode().upper()} is not a command of a transaction: the block sends it")
        if not self._open:
            raise StoreError(f"the command is outside the transaction's `with` block, which {_WHEN[self._open]}, so it "
                             f"would not be executed: {_REMEDY}")  # fmt: skip
        queued = Queued(one_reply(argv), convert)
        self._queue.append(queued)
        return queued

    @property
    def _key(self) -> bytes:
        """The key that selects the node of a cluster: the first watched key, or the first command's."""
        first = self._watch or [one.argv[1] for one in self._queue if len(one.argv) > 1] or [b""]
        return first[0]

    def _opening(self) -> list[list[bytes]]:
        return [[b"WATCH", *self._watch]] if self._watch else []

    def _commands(self) -> list[list[bytes]]:
        if self._queue:
            return [[b"MULTI"], *(one.argv for one in self._queue), [b"EXEC"]]
        return [[b"UNWATCH"]] if self._watch else []

    def _repeatable(self) -> list[list[bytes]]:
        """Return the commands that decide whether a transaction of unknown outcome may be sent again."""
        return [one.argv for one in self._queue]  # none yet: WATCH, on a new connection

    def _lost(self, error: NotSent | OutcomeUnknown) -> None:
        """Raise the exception for a connection that was lost after its WATCH."""
        if isinstance(error, NotSent) and self._queue:
            raise TransactionConflict(
                f"the connection that watched the keys was lost, so nothing was executed; run it again: {error}"
            ) from error
        if self._queue:
            raise error

    def _finish(self, replies: Sequence[Any]) -> None:
        """Give each command its reply; raise the first error."""
        if not self._queue:
            return
        *_, executed = replies
        if isinstance(executed, CommandError):
            # EXECABORT follows the error of the command that could not be queued.
            for reply in replies:
                raised(reply)
        if executed is None:
            for refused in replies:  # cluster_routing.unless_redirected: the server has forgotten the watched keys
                if isinstance(refused, CommandError):
                    raise TransactionConflict(f"nothing was executed; run it again: {refused}") from refused
            raise TransactionConflict(
                "another client changed a watched key during the transaction: nothing was executed; run it again"
            )
        for queued, reply in zip(self._queue, executed, strict=True):
            queued._reply = reply
        for message in self._acknowledged:
            message.settled = True
        for reply in executed:
            raised(reply)


def _acknowledgement(message: Message | AsyncMessage) -> list[bytes]:
    group = message.group
    if message.turn is None:
        return [b"XACK", group.stream.key, group.key, message.raw_id]
    return release(group, [message.raw_id])


class StoreTransaction(TransactionCommands):
    """A transaction of a Store: a context manager. Use it in one thread, for one block."""

    def __init__(self, store: Store, watch: Iterable[str | bytes]) -> None:
        super().__init__(watch)
        self._store = store
        self._connection: AbstractContextManager[Run] | None = None
        self._run: Run | None = None

    def _send(self, commands: list[list[bytes]]) -> list[Any]:
        """Run commands on the transaction's connection; the first commands open it, and wait for a server that is away.

        See rillet.store.retries.
        """
        if not commands:
            return []
        check_lengths(self._store.transport, commands)
        if self._run is not None:
            return self._run(commands)

        def attempt(transport: Transport) -> list[Any]:
            self._connection = transport.exclusive(self._key)
            try:
                self._run = self._connection.__enter__()
                replies: list[Any] = self._run(commands)
                check_ready(replies, whole=True)
                return replies
            except BaseException:
                self._close(*sys.exc_info())
                raise

        return patiently(self._store, attempt, self._repeatable())

    def _close(self, kind: Any = None, error: BaseException | None = None, trace: Any = None) -> None:
        """Close the connection, if it is open. A call that was interrupted may be repeated."""
        if self._connection is not None:
            self._connection.__exit__(kind, error, trace)
            self._connection = self._run = None

    def __enter__(self) -> StoreTransaction:
        self._begin()
        try:
            for reply in self._send(self._opening()):
                raised(reply)
        except BaseException:
            self._close(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._open = False
        watched = self._run is not None
        replies: list[Any] = []
        try:
            if error is None:
                replies = self._send(self._commands())
            self._close(kind, error, trace)
        except BaseException as failed:
            try:
                self._close(*sys.exc_info())
            except (NotSent, OutcomeUnknown) as lost:  # what the connection makes of a failed exchange
                if not watched:
                    raise
                self._lost(lost)
            else:
                if not watched or not isinstance(failed, (NotSent, OutcomeUnknown)):
                    raise
                self._lost(failed)
        if error is None:
            self._finish(replies)


class AsyncTransaction(TransactionCommands):
    """A transaction of an AsyncStore: an asynchronous context manager, used by one task for one block."""

    def __init__(self, store: AsyncStore, watch: Iterable[str | bytes]) -> None:
        super().__init__(watch)
        self._store = store
        self._connection = AsyncExitStack()
        self._run: AsyncRun | None = None

    async def _send(self, commands: list[list[bytes]]) -> list[Any]:
        """Run commands on the transaction's connection; see StoreTransaction."""
        if not commands:
            return []
        check_lengths(self._store.synchronous.transport, commands)
        if self._run is not None:
            return await self._run(commands)
        from rillet.store.async_retries import patiently_async

        async def attempt(transport: Transport) -> list[Any]:
            async with AsyncExitStack() as stack:
                exclusive: AbstractAsyncContextManager[AsyncRun] = self._store.exclusive(self._key, transport)
                self._run = await stack.enter_async_context(exclusive)
                replies = await self._run(commands)
                check_ready(replies, whole=True)
                await self._connection.enter_async_context(stack.pop_all())
                return replies

        return await patiently_async(self._store.synchronous, attempt, self._repeatable())

    async def __aenter__(self) -> AsyncTransaction:
        self._begin()
        async with self._connection as until_watched:
            for reply in await self._send(self._opening()):
                raised(reply)
            self._connection = until_watched.pop_all()
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._open = False
        if error is not None:
            await self._connection.__aexit__(kind, error, trace)
            return
        watched = self._run is not None
        replies: list[Any] = []
        try:
            async with self._connection:
                replies = await self._send(self._commands())
        except (NotSent, OutcomeUnknown) as lost:
            if not watched:
                raise
            self._lost(lost)
        self._finish(replies)
