"""Channels: messages to the current subscribers; nothing is stored.

    with store.subscribe("news", patterns=["user.*"]) as subscription:
        store.publish("news", "hello")
        for message in subscription:
            print(message.channel, message.data)

A stream keeps its entries, a channel does not: a later subscriber misses earlier messages. `subscribe` returns after
the store has confirmed the subscription, so the subscriber receives every message that is published later.

Each subscription has a separate connection to the engine, because messages are not replies:

    InProcessChannels   a session of the engine in this process; a message is in its output when `publish` returns
    ServerChannels      a connection to a server, or to the process that owns the store
    ClusterChannels     a connection to one node; for shard channels, to each node that owns one of them

If the connection breaks (the owner ended, the server closed the connection), the subscription connects and subscribes
again, and waits for a server that is away as long as other calls do (rillet.store.retries); messages published
meanwhile are lost. After a failure, the next call tries again. A subscriber that does not read is disconnected when
its unread messages exceed client-output-buffer-limit, as on a server, and gets a StoreError.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from rillet.client.connection import Connection, ready
from rillet.client.errors import ConnectorError
from rillet.client.protocol import pack_all
from rillet.errors import CommandError, OutcomeUnknown, StoreClosed, StoreError, StoreTimeout
from rillet.protocol.reply_parser import INCOMPLETE, ReplyError, ReplyParser
from rillet.real_time import monotonic
from rillet.store import PublicNames
from rillet.store.arguments.argument_checks import items_of
from rillet.store.arguments.durations import Seconds, seconds_in
from rillet.store.arguments.encoding import decode, encode_name
from rillet.store.retries import Retries
from rillet.store.transports.cluster import ClusterTransport
from rillet.store.transports.connected import AttachedTransport, ServerTransport
from rillet.store.transports.in_process import InProcessTransport
from rillet.store.transports.steady_event import SteadyEvent
from rillet.store.transports.transport import NOT_READY, Transport, raised

if TYPE_CHECKING:
    from rillet.store.store import Store

_MESSAGES = (b"message", b"pmessage", b"smessage")
# Each SUBSCRIBE command, and the matching UNSUBSCRIBE command.
_KINDS = {b"SUBSCRIBE": b"UNSUBSCRIBE", b"PSUBSCRIBE": b"PUNSUBSCRIBE", b"SSUBSCRIBE": b"SUNSUBSCRIBE"}
_SHARDED = (b"SSUBSCRIBE", b"SUNSUBSCRIBE")
Names = Iterable["str | bytes"]


class ChannelMessage:
    """One message: `channel` and `data` as text, `raw` as bytes, and the `pattern` that matched, if any."""

    __slots__ = ("channel", "pattern", "raw", "shard")

    def __init__(self, channel: bytes, raw: bytes, pattern: bytes | None = None, shard: bool = False) -> None:
        self.channel = decode(channel)
        self.raw = raw
        self.pattern = None if pattern is None else decode(pattern)
        self.shard = shard

    @property
    def data(self) -> str:
        """The message as text."""
        return decode(self.raw)

    def __repr__(self) -> str:
        return f"ChannelMessage({self.channel!r}, {self.data!r})"


class ChannelConnection(Protocol):
    """The connection of one subscription to the engine."""

    def send(self, argv: list[bytes]) -> None:
        """Send a command of the SUBSCRIBE family; `receive` returns its confirmations among the messages."""

    def receive(self, timeout: float | None) -> Any:
        """Return the next reply or message, None after `timeout` seconds; StoreError if the connection ended."""

    def confirmation(self) -> Any:
        """Return the next reply or message; StoreTimeout if none arrives within the store's timeout."""

    def interrupt(self) -> None:
        """Wake the receiving thread, which raises StoreError. May be called from any thread."""

    def files(self) -> list[int]:
        """Return the file descriptors that become readable when a message arrives; none in process."""

    def after_fork(self) -> bool:
        """In a forked child: return whether the child has a copy of this connection; else close the parent's files."""

    def close(self) -> None:
        """Close the connection."""


class _Arrival:
    """The engine's callback for messages. It has no reference to the connection, which can thus be freed."""

    __slots__ = ("also", "event")

    def __init__(self) -> None:
        self.event = SteadyEvent()
        self.also: Callable[[], None] | None = None

    def __call__(self) -> None:
        self.event.set()
        if self.also is not None:
            self.also()


class InProcessChannels:
    """A session of the engine in this process.

    The engine's thread opens, uses and closes the session, so that no exception from outside comes between two steps. A
    connection that an interrupted call has lost closes its session when it is freed.
    """

    _session: Any = None

    def __init__(self, transport: InProcessTransport) -> None:
        self._transport = transport
        self._parser = ReplyParser()
        self._replies: deque[Any] = deque()
        self._arrival = _Arrival()
        transport.shielded(self._open)

    def _open(self) -> None:
        with self._transport.lock:
            self._session = self._transport.open_session(self._arrival)
            self._transport.end_with(self, self._session, self._transport.end_lost, [self._session])

    @property
    def on_arrival(self) -> Callable[[], None] | None:
        """A function that is called, from any thread, when a message arrives."""
        return self._arrival.also

    @on_arrival.setter
    def on_arrival(self, function: Callable[[], None] | None) -> None:
        self._arrival.also = function

    def send(self, argv: list[bytes]) -> None:
        self._transport.shielded(self._execute, argv)

    def _execute(self, argv: list[bytes]) -> None:
        with self._transport.lock:
            self._check()
            self._transport.engine.execute(self._session, argv)
            self._arrival()

    def _check(self) -> None:
        if self._transport.closed:
            raise StoreClosed("the store is closed")
        if self._session is None:
            raise StoreClosed("the subscription is closed")
        if self._session.closing:
            raise StoreError("the subscription was closed: its unread messages exceeded client-output-buffer-limit")

    def receive(self, timeout: float | None) -> Any:
        until = None if timeout is None else monotonic() + timeout
        while not self._replies:
            self._arrival.event.clear()
            session = self._session
            if session is None or session.closing or session.out.used or self._transport.closed:
                self._transport.shielded(self._collect)
                continue
            left = None if until is None else until - monotonic()
            if left is not None and left <= 0:
                return None
            self._arrival.event.wait(left)
        return self._replies.popleft()

    def _collect(self) -> None:
        with self._transport.lock:
            self._check()
            self._parser.feed(self._session.out.take_bytes())
            while (reply := self._parser.next()) is not INCOMPLETE:
                self._replies.append(reply)

    def confirmation(self) -> Any:
        return self.receive(None)

    def interrupt(self) -> None:
        self.close()

    def files(self) -> list[int]:
        return []

    def after_fork(self) -> bool:
        self._arrival.event.set()
        return True

    def close(self) -> None:
        self._transport.shielded(self._end)

    def _end(self) -> None:
        with self._transport.lock:
            session, self._session = self._session, None
            if session is not None:
                self._transport.close_session(session)
        self._arrival()


class ServerChannels:
    """A connection to a server, or to the process that owns the store."""

    def __init__(self, transport: ServerTransport) -> None:
        self._transport = transport
        self._servers = transport.new_servers()
        self._connections: list[Connection] = []
        self._connect()

    def _connect(self) -> None:
        """Connect; raise NotSent if the server cannot be reached."""
        self._transport.check_current()
        try:
            self._connections.append(next(self._servers.masters()))
        except ConnectorError as error:
            raise self._transport.failed(error) from error
        self._transport.note_reached()

    def send(self, argv: list[bytes]) -> None:
        try:
            for connection, names in self._nodes(argv):
                if connection not in self._connections:
                    self._connections.append(connection)
                connection.send(pack_all([[argv[0], *names]]))
        except ConnectorError as error:
            raise self._closed() from error

    def _nodes(self, argv: list[bytes]) -> list[tuple[Connection, list[bytes]]]:
        """Return the connections for a command, each with the channel names to send on it."""
        return [(self._connections[0], argv[1:])]

    def receive(self, timeout: float | None) -> Any:
        until = None if timeout is None else monotonic() + timeout
        while (reply := self._arrived()) is INCOMPLETE:
            left = None if until is None else until - monotonic()
            if left is not None and left <= 0:
                return None
            ready(self._connections, left)  # an interrupt of this wait loses nothing
        return self._checked(reply)

    def _arrived(self) -> Any:
        """Return a reply or message that has arrived, or INCOMPLETE."""
        try:
            for connection in self._connections:
                reply = connection.reply_within(0)
                if reply is not INCOMPLETE:
                    return reply
            return INCOMPLETE
        except ConnectorError as error:
            raise self._closed() from error
        except BaseException:
            self._servers.close()  # a part of a message may be lost: the next call connects again
            raise

    def confirmation(self) -> Any:
        reply = self.receive(self._transport.timeout)
        if reply is None:
            raise StoreTimeout(f"{self._transport.server_name()} did not confirm the subscription within "
                               f"{self._transport.timeout:g} s; it may be repeated")  # fmt: skip
        return reply

    def _checked(self, reply: Any) -> Any:
        return reply

    def _closed(self) -> StoreError:
        if self._transport.closed:
            return StoreClosed("the store is closed")
        if isinstance(self._transport, AttachedTransport):
            return OutcomeUnknown(f"the process that owns the store closed the connection ({self._transport.path})")
        return OutcomeUnknown(f"the server at {self._servers} closed the connection")

    def interrupt(self) -> None:
        self._servers.interrupt()

    def files(self) -> list[int]:
        return [connection.fileno() for connection in self._connections]

    def after_fork(self) -> bool:
        self._servers.close()
        return False

    def close(self) -> None:
        self._servers.close()


class ClusterChannels(ServerChannels):
    """Connections to the nodes of a cluster: one for channels and patterns, one per node for shard channels."""

    _sharded: bool | None = None

    def _connect(self) -> None:
        """Do nothing: the first command determines the nodes to connect to."""

    def _nodes(self, argv: list[bytes]) -> list[tuple[Connection, list[bytes]]]:
        sharded = argv[0].upper() in _SHARDED
        if self._sharded is not None and sharded != self._sharded:
            raise ValueError("in a cluster, shard channels cannot share a subscription with other names")
        self._sharded = sharded
        return self._servers.by_node(argv[1:]) if sharded else [(next(self._servers.masters()), argv[1:])]

    def _checked(self, reply: Any) -> Any:
        if isinstance(reply, ReplyError) and reply.prefix in ("MOVED", "CLUSTERDOWN"):
            raise OutcomeUnknown(f"a slot moved while its channel was subscribed: {reply}")
        return reply


def channels_of(transport: Transport) -> ChannelConnection:
    """Return a new connection for one subscription, separate from the store's transport."""
    if isinstance(transport, InProcessTransport):
        return InProcessChannels(transport)
    if isinstance(transport, ClusterTransport):
        return ClusterChannels(transport)
    assert isinstance(transport, ServerTransport)
    return ServerChannels(transport)


_PARAMETERS = {b"SUBSCRIBE": "channels", b"PSUBSCRIBE": "patterns", b"SSUBSCRIBE": "shards"}


def _encoded(kind: bytes, names: Names) -> list[bytes]:
    """Return the names of channels or patterns as bytes."""
    name = _PARAMETERS[kind]
    return [encode_name(one, f"one of {name}") for one in items_of(names, name, "names")]


class Subscription(PublicNames):
    """A subscription to channels, patterns and shard channels; an iterator of their messages.

    One thread reads; any thread may close the subscription, which ends the iteration.
    """

    def __init__(self, store: Store, channels: Names, patterns: Names, shards: Names) -> None:
        self._store = store
        self._transport: Transport = store.transport
        self._names: dict[bytes, dict[bytes, None]] = {kind: {} for kind in _KINDS}
        self._waiting: deque[ChannelMessage] = deque()
        self._reading = threading.RLock()  # a signal handler may close the subscription inside a call that waits
        self._closed = False
        self._connection: ChannelConnection | None = None
        try:
            self.add(*channels, patterns=patterns, shards=shards)
        except BaseException:
            self.close()
            raise

    # -- subscribing ---------------------------------------------------------------------------------

    def add(self, *channels: str | bytes, patterns: Names = (), shards: Names = ()) -> None:
        """Subscribe to more channels or patterns; return when the store has confirmed the subscriptions."""
        for kind, names in zip(_KINDS, (channels, patterns, shards), strict=True):
            new = _encoded(kind, names)
            if new:
                self._names[kind].update(dict.fromkeys(new))
                self._command([kind, *dict.fromkeys(new)])

    def remove(self, *channels: str | bytes, patterns: Names = (), shards: Names = ()) -> None:
        """Unsubscribe from channels or patterns; messages that have arrived can still be read."""
        for kind, names in zip(_KINDS, (channels, patterns, shards), strict=True):
            gone = [name for name in _encoded(kind, names) if name in self._names[kind]]
            for name in gone:
                self._names[kind].pop(name, None)
            if gone:
                self._command([_KINDS[kind], *dict.fromkeys(gone)])

    @property
    def channels(self) -> list[str]:
        """The subscribed channels."""
        return [decode(name) for name in self._names[b"SUBSCRIBE"]]

    @property
    def patterns(self) -> list[str]:
        """The subscribed patterns."""
        return [decode(name) for name in self._names[b"PSUBSCRIBE"]]

    @property
    def shards(self) -> list[str]:
        """The subscribed shard channels."""
        return [decode(name) for name in self._names[b"SSUBSCRIBE"]]

    def _command(self, argv: list[bytes]) -> None:
        """Send a command and wait for its confirmations; keep messages that arrive before the confirmations."""
        with self._reading:
            if self._connection is None:
                self._connect()  # `_connect` subscribes to all names of this object, including the new ones
                return
            try:
                self._exchange(argv)
            except StoreError as error:
                self._reconnect(error)
            except BaseException:
                self._drop()  # a confirmation may still arrive: the next call connects again
                raise

    def _exchange(self, argv: list[bytes]) -> None:
        assert self._connection is not None
        self._connection.send(argv)
        left = len(argv) - 1
        while left:
            reply = raised(self._connection.confirmation())
            if reply[0] in _MESSAGES:
                self._keep(reply)
            elif reply[0] == argv[0].lower():
                left -= 1

    def _connect(self) -> None:
        """Connect, and subscribe to all names, which may be repeated; wait for a server that is away."""
        retries: Retries | None = None
        while True:
            if self._closed:
                raise StoreClosed("the subscription is closed")
            try:
                self._connection = channels_of(self._transport)
                for kind, names in self._names.items():
                    if names:
                        self._exchange([kind, *names])
                return
            except (StoreError, *NOT_READY) as error:
                self._drop()
                retries = retries or Retries()
                self._transport = self._store.replacement(self._transport, error, retries, [])
            except BaseException:
                self._drop()
                raise
            time.sleep(retries.pause)

    def _reconnect(self, error: StoreError) -> None:
        """Connect and subscribe again after the connection broke; raise the error if the store is closed."""
        self._drop()
        if self._closed:
            raise StoreClosed("the subscription is closed") from error
        if isinstance(error, StoreTimeout):
            raise error
        if isinstance(error, StoreClosed) or isinstance(self._transport, InProcessTransport):
            self._closed = True
            raise error
        self._connect()

    def _drop(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # -- receiving -----------------------------------------------------------------------------------

    def _keep(self, reply: list[Any]) -> None:
        if reply[0] == b"pmessage":
            self._waiting.append(ChannelMessage(reply[2], reply[3], reply[1]))
        else:
            self._waiting.append(ChannelMessage(reply[1], reply[2], shard=reply[0] == b"smessage"))

    def wait(self, timeout: Seconds | None = None) -> bool:
        """Return whether a message arrives within `timeout` seconds (None: wait without limit)."""
        if self._waiting:
            return True
        until = None if timeout is None else monotonic() + seconds_in(timeout, "timeout")
        with self._reading:
            while not self._waiting:
                if not self._receive(None if until is None else max(until - monotonic(), 0.0)):
                    return False
        return True

    def poll(self) -> None:
        """Keep every message that has arrived, without waiting for others."""
        with self._reading:
            while self._receive(0):
                pass

    def _receive(self, timeout: float | None) -> bool:
        """Receive one reply and keep it if it is a message; return whether one arrived within `timeout` seconds."""
        if self._closed:
            raise StoreClosed("the subscription is closed")
        if self._connection is None:  # the last call could not connect
            self._connect()
            return True
        try:
            reply = self._connection.receive(timeout)
        except StoreError as error:
            self._reconnect(error)
            return True
        if reply is None:
            return False
        if isinstance(reply, CommandError):
            raise raised(reply)
        if reply[0] in _MESSAGES:
            self._keep(reply)
        return True

    def take_message(self) -> ChannelMessage | None:
        """Return the oldest message that was kept, or None."""
        return self._waiting.popleft() if self._waiting else None

    def get(self, timeout: Seconds | None = None) -> ChannelMessage | None:
        """Return the next message; None after `timeout` seconds without one (None: wait without limit)."""
        return self._waiting.popleft() if self.wait(timeout) else None

    def __iter__(self) -> Iterator[ChannelMessage]:
        """Yield messages until the subscription or its store is closed."""
        with contextlib.suppress(StoreClosed):
            while True:
                message = self.get()
                assert message is not None
                yield message

    def after_fork(self) -> None:
        """In a forked child: the parent reads what arrived; the child subscribes again with its next call.

        A child of a store in memory has a copy of its subscription and of the messages that it has not read.
        """
        self._reading = threading.RLock()  # another thread of the parent may have held it
        connection, same = self._connection, self._transport is self._store.transport
        if connection is not None and not (connection.after_fork() and same):
            self._connection = None
        if not isinstance(self._store.transport, InProcessTransport):
            self._waiting.clear()
        self._transport = self._store.transport

    @property
    def connection(self) -> ChannelConnection | None:
        """The connection to the engine."""
        return self._connection

    def close(self) -> None:
        """End the subscription and wake the thread that waits for a message. A second call does nothing."""
        self._closed = True
        connection = self._connection
        if connection is not None:
            connection.interrupt()
        with self._reading:
            self._drop()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        names = [*self.channels, *self.patterns, *self.shards]
        return f"Subscription({'closed' if self._closed else ', '.join(map(repr, names))})"
