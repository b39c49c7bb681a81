"""Store: a durable or in-memory engine, or a server, as a Python object.

    with rillet.open("events.rillet") as store:      # durable; rillet.open() is in memory (rillet.store.opening)
        orders = store.stream("orders")
        orders.add({"customer": "42", "total": "99.90"})
        for entry in orders:
            print(entry.id, entry.fields)

The first process that opens a directory becomes its owner. Another process that opens it becomes an attached client,
through a Unix socket in the directory, and behaves the same. When the owner ends, the next call of an attached client
makes that process the owner. `rillet.connect("redis://...")` provides the same API over a server.

The garbage collector and the end of the process also close a store. After a fork the child's copy of a durable store
becomes an attached client of the parent.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, overload

from rillet.errors import (
    CommandError,
    NestedCall,
    NoConnection,
    NotSent,
    OutcomeUnknown,
    StoreClosed,
    StoreError,
    StoreTimeout,
    TransactionConflict,
)
from rillet.extras import require
from rillet.protocol.reply_parser import parse_all
from rillet.store import multi_stream as several
from rillet.store.arguments.allowed_commands import one_reply
from rillet.store.arguments.argument_checks import encoded, flag, items_of, text_bytes, whole_number, words_of
from rillet.store.arguments.argument_limits import UNLIMITED, check_length, check_lengths
from rillet.store.arguments.durations import Seconds
from rillet.store.arguments.encoding import (
    Value,
    decode,
    encode_name,
    entries_in,
    id_of_reply,
    longest,
    parse_id,
)
from rillet.store.arguments.positions import Position
from rillet.store.arguments.slots import shards_of
from rillet.store.backends.backend import Backend
from rillet.store.codecs import Codec
from rillet.store.command_steps import drive
from rillet.store.consuming.leases import end_loop
from rillet.store.consuming.prefetch import Prefetched
from rillet.store.entry import Entry, entries_of, texts
from rillet.store.group import MultiConsumer
from rillet.store.keys import KeyCommands
from rillet.store.multi_stream import Positions, StreamLike
from rillet.store.retries import FAILURES_OF_ONE, PATIENCE, Retries, again, patiently
from rillet.store.script import Script, StoredFunction
from rillet.store.stats import PENDING, StoreStats, survey
from rillet.store.stream import Stream
from rillet.store.transaction import StoreTransaction
from rillet.store.transports.in_process import InProcessTransport
from rillet.store.transports.transport import (
    NotReady,
    Transport,
    acknowledges,
    all_raised,
    all_ready,
    raised,
    repeatable,
)
from rillet.store.typed.form_choice import form_of
from rillet.store.typed.forms import CodecName, OnInvalid, V, checked_action
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    import redis
    from redis.asyncio import Redis as AsyncRedis

    from rillet.host.recovery import Recovery
    from rillet.opentelemetry import Instrumentation
    from rillet.store.aio import AsyncStore
    from rillet.store.arguments.entry_packing import EntryPacker
    from rillet.store.channels import Names, Subscription
    from rillet.store.consuming.delivery_options import Stop
    from rillet.store.consuming.leases import Leases
    from rillet.store.group import MessageReader
    from rillet.store.handling import Handled
    from rillet.store.partitions.stream import PartitionedStream
    from rillet.store.sharing.serving import StoreServer

Result = TypeVar("Result")

# A function that opens a pickled store, its path or url, and its options.
Opening: TypeAlias = "tuple[Callable[[str, dict[str, Any]], Store], str, dict[str, Any]]"


class Store(KeyCommands):
    """Streams and keys in this process, in a directory, or on a server. Safe to use from several threads.

    A store can be pickled, and with it its streams, groups, consumers, keys and messages: another process that loads
    it opens the same directory, or connects to the same server. A store in memory cannot (TypeError).
    """

    def __init__(self, backend: Backend, opening: Opening | None = None) -> None:
        self._backend: Backend | None = backend
        self._opening = opening
        self.observer: Instrumentation | None = None  # rillet.opentelemetry.instrument sets it
        try:
            self._transport = backend.transport()
        except BaseException:
            backend.close()
            raise
        self._loops: set[Prefetched] = set()  # the loops over messages()
        self._subscriptions: weakref.WeakSet[Subscription] = weakref.WeakSet()
        self._servers: list[StoreServer] = []
        self._finalizer = weakref.finalize(self, backend.close)
        _open_stores.add(self)

    # -- commands --------------------------------------------------------------------------------------

    _accepted = staticmethod(one_reply)

    def execute(self, *args: Value, text: bool = False) -> Any:
        """Run any command and return its reply (bytes, int, list, None ...); raise an error reply.

        text: with str in place of bytes, also in lists. The default is bytes, because a value may be any bytes.
        """
        reply = self.run(self._accepted(words_of(args, "args")))
        return texts(reply) if flag(text, "text") else reply

    def execute_many(self, commands: Sequence[Sequence[Any]], *, text: bool = False) -> list[Any]:
        """Run commands in order, in one exchange and one write to the log; raise the first error at the end.

        They may be one transaction, from MULTI to EXEC. text: as for `execute`.
        """
        argvs = [words_of(argv, "a command") for argv in items_of(commands, "commands", "commands")]
        whole = len(argvs) > 1 and (argvs[0], argvs[-1]) == ([b"MULTI"], [b"EXEC"])
        for argv in argvs[1:-1] if whole else argvs:
            self._accepted(argv)
        replies = self.run_many(argvs)
        return list(map(texts, replies)) if flag(text, "text") else replies

    def run(self, argv: list[bytes], patience: float = PATIENCE) -> Any:
        """Run one command whose arguments are bytes, and return its reply; see `execute`.

        patience: seconds for which the call waits for a server that is away; see rillet.store.retries.
        """
        transport = self._transport
        if longest(argv) > UNLIMITED:
            check_lengths(transport, [argv])
        try:
            return raised(transport.execute(argv))
        except FAILURES_OF_ONE as error:
            retries = Retries(patience)
            transport = self.replacement(transport, error, retries, [argv])
        return again(self, lambda other: raised(other.execute(argv)), [argv], transport, retries, FAILURES_OF_ONE)

    def run_many(self, commands: Sequence[list[bytes]], patience: float = PATIENCE, raises: bool = True) -> list[Any]:
        """Run several commands whose arguments are bytes; see `execute_many` and `run`.

        raises: else the replies contain the errors; one is raised only if the server was not ready.
        """
        check_lengths(self._transport, commands)
        checked = all_raised if raises else all_ready
        return patiently(self, lambda transport: checked(transport.execute_many(commands)), commands, patience)

    def add_packed(self, key: bytes, packer: EntryPacker) -> list[StreamID | None]:
        """Run the XADDs of a packer, which is empty then, and return the IDs; see `Stream.add_many`."""
        check_length(self._transport, packer.longest)
        count, data = packer.count, packer.take_bytes()
        return patiently(self, lambda transport: transport.add_packed(key, data, count), [[b"XADD"]])

    def _end_loop(self, leases: Leases, prefetched: Prefetched) -> None:
        """Run the last commands of a loop over messages()."""
        end_loop(self, leases, prefetched)

    def _handle(self, reader: MessageReader[Any], handler: Callable[[Any], object], concurrency: int,
                signals: Sequence[int] | None, stop: Stop | None, options: dict[str, Any]) -> Handled:  # fmt: skip
        """Handle the messages of a reader; see Consumer.run."""
        from rillet.store.handling import Handling, run_in_threads

        return run_in_threads(reader, Handling(handler, concurrency, signals, stop, options))

    def id_of(self, argv: list[bytes]) -> StreamID | None:
        """Run a command that replies with a stream ID or null; the fast path of `Stream.add`."""
        transport = self._transport
        if type(transport) is InProcessTransport:
            if longest(argv) > UNLIMITED:
                check_lengths(transport, [argv])
            raw = transport.execute_raw(argv)
            found: StreamID | None = id_of_reply(raw)
            if found is not None:
                return found
            reply = raised(parse_all(raw)[0])
        else:
            reply = self.run(argv)
        made: StreamID | None = None if reply is None else parse_id(reply)
        return made

    def read_entries(self, argv: list[bytes]) -> list[Entry[Any]]:
        """Run an XRANGE or XREVRANGE and return the entries."""
        transport = self._transport
        if type(transport) is InProcessTransport and self.observer is None:
            raw = transport.execute_raw(argv)
            found: list[Entry[Any]] | None = entries_in(raw, Entry)
            return entries_of(raised(parse_all(raw)[0])) if found is None else found
        return entries_of(self.run(argv))

    def replacement(self, transport: Transport, error: StoreError | CommandError, retries: Retries,
                    commands: Sequence[list[bytes]] | None = None) -> Transport:  # fmt: skip
        """Return the transport on which to send failed commands again, after `retries.pause`; else raise the error.

        commands: if all of them are repeatable, they are sent again although their outcome is unknown.
        """
        if isinstance(error, CommandError):  # the server is not ready
            if not retries.again():
                raise retries.failed(error.reason if isinstance(error, NotReady) else error)
            return transport
        backend = self._backend
        if backend is None or isinstance(error, (StoreClosed, NestedCall, NoConnection, StoreTimeout)):
            raise retries.failed(error)
        try:
            self._transport = backend.replace(transport)
        except StoreError as other:
            raise retries.failed(other if isinstance(error, NotSent) else error) from other
        unknown = isinstance(error, OutcomeUnknown) and commands is not None and all(map(repeatable, commands))
        if not unknown and not isinstance(error, NotSent):
            raise error
        if unknown and any(map(acknowledges, commands or ())):
            retries.unknown = error
        if self._transport is transport and not unknown and not getattr(transport, "reached", False):
            raise retries.failed(error)
        if not retries.again() and retries.failures > 1:
            raise retries.failed(error)
        if self._transport is not transport:
            retries.pause = 0.0
        return self._transport

    def replace_transport(self, broken: Transport) -> Transport:
        """Replace a transport that failed, and return the new one."""
        self._transport = self._alive().replace(broken)
        return self._transport

    # -- transactions ----------------------------------------------------------------------------------

    def transaction(self, watch: Iterable[str | bytes] = ()) -> StoreTransaction:
        """Return a context manager whose commands are executed together, or not at all; see rillet.store.transaction.

        watch: keys; if another client changes one of them during the block, TransactionConflict is raised.
        """
        self._alive()
        return StoreTransaction(self, watch)

    def transact(self, function: Callable[[StoreTransaction], Result], watch: Iterable[str | bytes], *,
                 tries: int = 1000) -> Result:  # fmt: skip
        """Call function(transaction) in a transaction, again while other clients change the watched keys; return its
        result. TransactionConflict after `tries` calls.
        """
        keys, tries = list(items_of(watch, "watch", "keys")), whole_number(tries, "tries", 1)
        if not callable(function):
            raise TypeError(f"function must be a function of the transaction, not {function!r:.200}")
        while True:
            tries -= 1
            try:
                with self.transaction(keys) as transaction:
                    result = function(transaction)
                return result
            except TransactionConflict:
                if tries <= 0:
                    raise

    # -- streams and keys ------------------------------------------------------------------------------

    @overload
    def stream(self, name: str | bytes) -> Stream: ...

    @overload
    def stream(self, name: str | bytes, *, type: UnionType, codec: CodecName | Codec[Any] = "fields",
               on_invalid: OnInvalid = "raise") -> Stream[Any]: ...  # fmt: skip

    @overload
    def stream(self, name: str | bytes, *, type: type[V], codec: CodecName | Codec[Any] = "fields",
               on_invalid: OnInvalid = "raise") -> Stream[V]: ...  # fmt: skip

    @overload
    def stream(self, name: str | bytes, *, codec: Codec[V], on_invalid: OnInvalid = "raise") -> Stream[V]: ...

    @overload
    def stream(self, name: str | bytes, *, codec: Literal["raw"],
               on_invalid: OnInvalid = "raise") -> Stream[bytes]: ...  # fmt: skip

    @overload
    def stream(self, name: str | bytes, *, codec: Literal["json", "msgpack"],
               on_invalid: OnInvalid = "raise") -> Stream[Any]: ...  # fmt: skip

    def stream(self, name: str | bytes, *, type: Any = None, codec: CodecName | Codec[Any] = "fields",
               on_invalid: OnInvalid = "raise") -> Any:  # fmt: skip
        """Return the stream of that name; its first entry creates the key.

        type: the class of its values: a dataclass, a msgspec Struct, a pydantic model, a TypedDict, or a union of
        tagged Structs; without it, entries are fields. Each attribute is a field, unless the codec stores the whole
        value in the field `value`: "json", "msgpack", "raw" or any codec. on_invalid: what happens to an entry that is
        not a value of the type when it is read: "raise" (InvalidEntry), "skip", "dead_letter" (the dead letters of
        messages()), or the stream for such entries. See rillet.store.typed.forms.
        """
        return Stream(self, name, form_of(type, codec), checked_action(on_invalid))

    def partitioned(self, name: str | bytes, partitions: int | None = None, by: str | bytes | None = None, *,
                    type: Any = None, codec: CodecName | Codec[Any] = "fields",
                    on_invalid: OnInvalid = "raise") -> PartitionedStream[Any]:  # fmt: skip
        """Return the partitioned stream of that name: one stream over several keys (rillet.store.partitions).

        This call writes nothing; the first use creates a missing stream, with so many partitions (1 to 1024), and `by`,
        the field whose value selects the partition of an entry. Without both, it must exist. The first use raises
        PartitionMismatch if the stream has another number of partitions, or another field. type, codec, on_invalid: as
        for `stream`.
        """
        from rillet.store.partitions.stream import PartitionedStream

        return PartitionedStream(self, name, partitions, by, form_of(type, codec), checked_action(on_invalid))

    def streams(self) -> list[Stream]:
        """Return all streams of the store, sorted by name. O(keys)"""
        names = set()
        for name in self.keys(kind="stream"):
            names.add(name)
        return [Stream(self, name) for name in sorted(names)]

    def read(self, after: Positions, count: int | None = None,
             block: Seconds | None = None) -> dict[str, list[Entry[Any]]]:  # fmt: skip
        """Return the entries of several streams after a position in each: read({"orders": "0", "jobs": "$"}) (XREAD).

        The result has the name of each stream, as in `after`, and its entries.
        count: the most entries of each stream. block: seconds to wait for a new entry in any stream, 0 without limit.
        Streams without such entries are absent. A cluster can wait only for streams in the same slot (ValueError).
        """
        return several.read(self, after, count, block)

    @overload
    def consumer(self, group: str | bytes, name: str | bytes, streams: Iterable[str | bytes], *,
                 start: Position = "0", create: bool = True) -> MultiConsumer: ...  # fmt: skip

    @overload
    def consumer(self, group: str | bytes, name: str | bytes, streams: Iterable[Stream[V]], *,
                 start: Position = "0", create: bool = True) -> MultiConsumer[V]: ...  # fmt: skip

    @overload
    def consumer(self, group: str | bytes, name: str | bytes, streams: Iterable[StreamLike], *,
                 start: Position = "0", create: bool = True) -> MultiConsumer[Any]: ...  # fmt: skip

    def consumer(self, group: str | bytes, name: str | bytes, streams: Iterable[StreamLike], *,
                 start: Position = "0", create: bool = True) -> MultiConsumer[Any]:  # fmt: skip
        """Return a consumer that reads several streams with one command, each through its group of that name.

        The first read or claim creates missing groups (and streams) to deliver the entries after `start`, unless create
        is False; see Stream.group. A typed Stream keeps its type: its messages have a `value`.
        """
        return several.consumer(self, group, name, streams, start, create)

    def keys(self, pattern: str = "*", kind: str | None = None) -> Iterator[str]:
        """Yield the keys that match a glob; `kind` selects a type, such as "stream" or "string" (SCAN).

        A cluster yields the keys of each master in turn. As with SCAN, a key may occur twice while a server resizes.
        """
        extra = [] if kind is None else [b"TYPE", encode_name(kind, "kind")]
        glob = [b"MATCH", encode_name(pattern, "pattern"), b"COUNT", b"1000"]
        for run in shards_of(self):
            cursor, more = b"0", True
            while more:
                cursor, names = raised(run([b"SCAN", cursor, *glob, *extra]))
                yield from map(decode, names)
                more = cursor != b"0"

    def stats(self, *streams: str | bytes, previous: StoreStats | None = None, pending: int = PENDING,
              memory: bool = True) -> StoreStats:  # fmt: skip
        """Return the stats of streams, by default of all, with their groups and consumers; see rillet.store.stats.

        previous: an earlier result, from which the rate of each stream is computed. pending: the most pending messages
        of a group that are read to sort them by age. memory: also measure the memory of each stream.
        CommandError for a name that is not a stream. O(keys + groups + pending messages)
        """
        whole_number(pending, "pending", 0)
        flag(memory, "memory")
        if previous is not None and not isinstance(previous, StoreStats):
            raise TypeError(f"previous must be an earlier result of stats(), not {previous!r:.200}")
        keys = {encode_name(name, "one of streams") for name in streams}
        if not streams:
            for name in self.keys(kind="stream"):
                keys.add(encode_name(name))
        found = drive(self, survey(sorted(keys), pending, memory, bool(streams)), raises=False)
        return found if previous is None else found.since(previous)

    def delete(self, *names: Value) -> int:
        """Delete keys; return how many existed."""
        keys = [encoded(name, "one of names") for name in names]
        if self.transport.clustered:  # a cluster rejects DEL with keys of several slots
            return sum(self.run_many([[b"DEL", key] for key in keys]))
        return int(self.run([b"DEL", *keys])) if keys else 0

    # -- files -----------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write a snapshot of all data to an RDB file that redis-server loads; return its path. O(bytes)

        The default path is dump.rdb in the store's directory. A store in a directory serves other calls meanwhile; a
        store in memory does not. After OSError or StoreError, an earlier file at the path is unchanged.
        """
        if path is not None and not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"path must be a str or a path, not {path!r:.200}")
        return self._alive().save(self.execute, None if path is None else Path(path).absolute())

    # -- channels ------------------------------------------------------------------------------------

    def publish(self, channel: str | bytes, data: Value, *, shard: bool = False) -> int:
        """Send a message to the current subscribers of a channel; return their number. The message is not stored."""
        command = b"SPUBLISH" if flag(shard, "shard") else b"PUBLISH"
        return int(self.run([command, encode_name(channel, "channel"), encoded(data, "data")]))

    def script(self, source: str | bytes) -> Script:
        """Return a Lua script as a function: `f(keys=[...], args=[...])`. It runs as one step (docs/scripts.md)."""
        return Script(self, source)

    def load_functions(self, source: str | bytes, *, replace: bool = False) -> str:
        """Load a library of Lua functions, and return its name (docs/functions.md). replace: also over an older one."""
        words = [b"REPLACE"] if flag(replace, "replace") else []
        words.append(text_bytes(source, "source"))
        name: bytes = self.run([b"FUNCTION", b"LOAD", *words])
        return name.decode()

    def function(self, name: str | bytes) -> StoredFunction:
        """Return a function of a library that is loaded: `f(keys=[...], args=[...])`. It runs as one step."""
        return StoredFunction(self, name)

    def subscribe(self, *channels: str | bytes, patterns: Names = (), shards: Names = ()) -> Subscription:
        """Subscribe to channels, to globs of channel names, and to shard channels; see Subscription."""
        self._alive()
        from rillet.store.channels import Subscription

        subscription = Subscription(self, channels, patterns, shards)
        self._subscriptions.add(subscription)
        return subscription

    # -- other APIs ------------------------------------------------------------------------------------

    def redis(self, **options: Any) -> redis.Redis:
        """Return a redis-py client for this store; in process it uses no socket. Options: those of redis.Redis.

        Only socket_timeout has another default: None, so that a blocking command waits as long as its own timeout.
        """
        self._alive()
        require("redis", "store.redis()")
        from rillet.store.redispy.redis_py import client_of

        return client_of(self, **options)

    def redis_async(self, **options: Any) -> AsyncRedis:
        """Return a redis.asyncio client for this store; in process it runs on the event loop, without a socket.

        Options: those of redis.asyncio.Redis, with socket_timeout=None by default. A waiting call takes no thread.
        The client works in any number of event loops; each has its own connections.
        """
        self._alive()
        require("redis", "store.redis_async()")
        from rillet.store.redispy.redis_asyncio import async_client_of

        return async_client_of(self, **options)

    def serve(
        self, port: int = 0, *, host: str = "127.0.0.1", unix: str | os.PathLike[str] | None = None
    ) -> StoreServer:
        """Serve this store on a socket, for code that takes a URL: `with store.serve() as served: served.url`.

        port: 0 takes a free TCP port. unix: the path of a Unix socket, in place of TCP. CannotListen if the address is
        in use. A store of `rillet.connect` is a server already: the result has its url, and nothing listens.
        """
        backend = self._alive()
        whole_number(port, "port", 0, 65535)
        if not isinstance(host, str):
            raise TypeError(f"host must be the text of an address, not {host!r:.200}")
        if unix is not None and not isinstance(unix, (str, os.PathLike)):
            raise TypeError(f"unix must be the path of a socket, not {unix!r:.200}")
        from rillet.store.backends.server_backend import ServerBackend
        from rillet.store.sharing.serving import StoreServer, serve

        if isinstance(backend, ServerBackend):
            if port or unix is not None:
                raise StoreError(f"{self!r} is a server already: use store.url, or start a server on that address")
            return StoreServer(self, None, str(backend.url), None, None)
        password = decode(self.execute("CONFIG", "GET", "requirepass")[1])
        path = None if unix is None else str(Path(unix).absolute())
        served = serve(self, backend.where(), port, host, path, password)
        self._servers = [*(one for one in self._servers if not one.closed), served]
        return served

    def aio(self) -> AsyncStore:
        """Return the asyncio API of this store."""
        from rillet.store.aio import AsyncStore

        self._alive()
        made = AsyncStore(self)
        if self.observer is not None:
            self.observer.instrument_async(made)
        return made

    @property
    def path(self) -> str | None:
        """The directory of a durable store, else None."""
        return self._alive().path

    @property
    def recovery(self) -> Recovery | None:
        """The result of the recovery when this process opened the directory as owner; see rillet.host.recovery."""
        return self._alive().recovery

    @property
    def owner(self) -> bool:
        """True if the engine runs in this process."""
        return isinstance(self._transport, InProcessTransport)

    @property
    def socket(self) -> str | None:
        """The Unix socket on which the store's owner listens; None in memory and over a server."""
        return self._alive().socket()

    @property
    def may_wait(self) -> bool:
        """True if a command may take longer than microseconds, because it uses a socket or waits for the disk."""
        transport = self._transport
        if not isinstance(transport, InProcessTransport):
            return True
        engine = transport.engine
        return engine.aof is not None and engine.settings.appendfsync == "always"

    @property
    def transport(self) -> Transport:
        """The transport to the engine."""
        return self._transport

    @property
    def url(self) -> str | None:
        """A url under which other processes of this machine reach the data; None for a store in memory without `serve`.

        The url of `rillet.connect`, the Unix socket of a directory's owner, or the oldest socket of `serve`.
        """
        served = [one.url for one in self._servers if not one.closed]
        return self._alive().url or (served[0] if served else None)

    def _alive(self) -> Backend:
        if self._backend is None:
            raise StoreClosed("the store is closed")
        return self._backend

    def info(self) -> dict[str, str]:
        """Return the fields of INFO."""
        lines = decode(self.execute("INFO")).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))

    def close(self) -> None:
        """Write the unwritten part of the log and release the directory; later calls raise StoreClosed.

        After an interrupt, a second call closes the rest.
        """
        backend = self._backend
        if backend is None:
            return
        for prefetched in list(self._loops):
            with contextlib.suppress(StoreError, CommandError):
                drive(self, prefetched.give_back(), 0.0)
        _open_stores.discard(self)
        for subscription in list(self._subscriptions):
            subscription.close()
        for served in self._servers:
            served.close()
        backend.close()
        self._finalizer.detach()
        self._backend = None

    def before_fork(self, afterwards: list[Callable[[], object]]) -> None:
        """Prepare a fork of this process; add what the parent must call after the fork."""
        if self._backend is not None:
            self._backend.before_fork(afterwards)

    def after_fork(self) -> None:
        """In a forked child: stop using the parent's files and sockets."""
        if self._backend is not None:
            self._transport = self._backend.after_fork()
            for prefetched in self._loops:
                prefetched.clear()
            for subscription in list(self._subscriptions):
                subscription.after_fork()

    def __reduce__(self) -> tuple[Any, ...]:
        self._alive()
        if self._opening is None:
            raise TypeError(
                "a store in memory cannot be pickled, because its data is in this process only: open it with a path, "
                "or send rillet.connect(url) of store.serve(), and call rillet.connect in the other process"
            )
        function, place, options = self._opening
        return function, (place, options)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        """Return what a notebook shows; see rillet.store.display.html."""
        from rillet.store.display.html import store_html

        return store_html(self)

    def __repr__(self) -> str:
        return f"Store({self._backend!r})" if self._backend is not None else "Store(closed)"


_open_stores: weakref.WeakSet[Store] = weakref.WeakSet()


# The functions to call after a fork, in the parent, for each thread that forks.
_forks: dict[int, list[Callable[[], object]]] = {}


def _before_fork() -> None:
    afterwards = _forks[threading.get_ident()] = []
    for store in sorted(_open_stores, key=id):  # two threads that fork take the locks of stores in the same order
        store.before_fork(afterwards)


def _after_fork_in_parent() -> None:
    for function in _forks.pop(threading.get_ident(), ()):
        with contextlib.suppress(RuntimeError):  # an interrupt came before the lock was acquired
            function()


def _after_fork() -> None:
    _forks.clear()
    for store in list(_open_stores):
        store.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork)
