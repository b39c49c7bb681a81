"""Channels: messages to whoever listens now, kept for nobody.

    with store.subscribe("news", patterns=["user.*"]) as subscription:
        store.publish("news", "hello")
        for message in subscription:
            print(message.channel, message.data)

A stream keeps what was added, a channel does not: who subscribes later, or is away for a moment, has missed
it. `subscribe` returns once the store has confirmed, so what is published after that is heard.

A subscription has a line of its own to the engine, because what comes through it are not replies:

    LocalLine    a session of the engine in this process; a message is in its output when `publish` returns
    SocketLine   a connection to the Unix socket of the process that owns the store
    RedisLine    a PubSub of redis-py: a server, or a cluster

When the line breaks (the owner ended, the server went away) the subscription makes a new one the way the
store does, and subscribes again; what was published meanwhile is lost. A subscriber that does not read is
cut off once too much waits for it (client-output-buffer-limit, as at a server): StoreError tells it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from rillet.errors import CommandError, ProtocolError, StoreClosed, StoreError
from rillet.protocol.command_parser import pack_command
from rillet.protocol.reply_parser import INCOMPLETE, ReplyParser
from rillet.store.encoding import decode, encode_name
from rillet.store.transports.in_process import InProcessTransport
from rillet.store.transports.transport import NotSent, RedisTransport, SocketTransport, Transport, interrupt, raised

if TYPE_CHECKING:
    from rillet.store.store import Store

_RECEIVE = 1 << 18
_WAIT, _TURN = 1.0, 0.05  # seconds that a cluster is listened to at a time, all of it or one node among several
_MESSAGES = (b"message", b"pmessage", b"smessage")
# What a name is listened to by, and the command that ends it.
_KINDS = {b"SUBSCRIBE": b"UNSUBSCRIBE", b"PSUBSCRIBE": b"PUNSUBSCRIBE", b"SSUBSCRIBE": b"SUNSUBSCRIBE"}
_NOT_CALLED = frozenset((*_KINDS, *_KINDS.values()))
Names = Iterable["str | bytes"]


class ChannelMessage:
    """One message: `channel` and `data` as text, `pattern` where it was heard by one, `raw` as it was published."""

    __slots__ = ("channel", "pattern", "raw", "shard")

    def __init__(self, channel: bytes, raw: bytes, pattern: bytes | None = None, shard: bool = False) -> None:
        self.channel = decode(channel)
        self.raw = raw
        self.pattern = None if pattern is None else decode(pattern)
        self.shard = shard

    @property
    def data(self) -> str:
        """What was published, as text."""
        return decode(self.raw)

    def __repr__(self) -> str:
        return f"ChannelMessage({self.channel!r}, {self.data!r})"


class ChannelTransport(Protocol):
    """A way to the engine for one subscription."""

    def send(self, argv: list[bytes]) -> None:
        """Send a command of the SUBSCRIBE family; what it answers is received."""

    def receive(self, timeout: float | None) -> Any:
        """Return the next reply or message as a list, None after `timeout` seconds; StoreError at the end."""

    def interrupt(self) -> None:
        """Let the thread that receives get StoreError; from any thread."""

    def close(self) -> None:
        """Hang up; nobody receives any more."""


class LocalChannelTransport:
    """A session of the engine in this process. `on_arrival` is called, from any thread, when something came."""

    def __init__(self, link: InProcessTransport) -> None:
        self._link = link
        self._parser = ReplyParser()
        self._arrived = threading.Event()
        self.on_arrival: Callable[[], None] | None = None
        with link.lock:
            self._session: Any = link.join(self._wake)

    def _wake(self) -> None:
        self._arrived.set()
        if self.on_arrival is not None:
            self.on_arrival()

    def send(self, argv: list[bytes]) -> None:
        """Run the command; its confirmations wait among the messages."""
        with self._link.lock:
            self._check()
            self._link.engine.execute(self._session, argv)
        self._wake()

    def _check(self) -> None:
        if self._link.closed:
            raise StoreClosed("the store is closed")
        if self._session is None:
            raise StoreClosed("the subscription is closed")
        if self._session.closing:
            raise StoreError("the subscription was cut off: more waited for it than client-output-buffer-limit allows")

    def receive(self, timeout: float | None) -> Any:
        """Return the next reply or message, waiting for it without holding the lock."""
        until = None if timeout is None else time.monotonic() + timeout
        while (reply := self._parser.next()) is INCOMPLETE:
            with self._link.lock:
                self._check()
                self._arrived.clear()
                raw = self._session.out.take()
            if raw:
                self._parser.feed(raw)
                continue
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._arrived.wait(left)
        return reply

    def interrupt(self) -> None:
        """End the session: a thread that waits finds out."""
        self.close()

    def close(self) -> None:
        """End the session."""
        with self._link.lock:
            session, self._session = self._session, None
            if session is not None:
                self._link.leave(session)
        self._wake()


class SocketChannelTransport:
    """A connection of its own to the process that owns the store."""

    def __init__(self, link: SocketTransport) -> None:
        self._path = link.path
        self._parser = ReplyParser()
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(link.path)
        except OSError as error:
            self._socket.close()
            raise NotSent(f"the store's owner cannot be reached ({link.path}): {error.strerror}") from error

    def send(self, argv: list[bytes]) -> None:
        """Send the command."""
        try:
            self._socket.settimeout(None)
            self._socket.sendall(pack_command(argv))
        except OSError as error:
            raise self._gone() from error

    def receive(self, timeout: float | None) -> Any:
        """Return the next reply or message."""
        until = None if timeout is None else time.monotonic() + timeout
        try:
            while (reply := self._parser.next()) is INCOMPLETE:
                left = None if until is None else max(until - time.monotonic(), 0.0)
                self._socket.settimeout(left)
                try:
                    received = self._socket.recv(_RECEIVE)
                except (BlockingIOError, TimeoutError):
                    return None
                if not received:
                    raise self._gone()
                self._parser.feed(received)
        except (OSError, ProtocolError) as error:
            raise self._gone() from error
        return reply

    def _gone(self) -> StoreError:
        return StoreError(f"the process that owns the store hung up ({self._path})")

    def interrupt(self) -> None:
        """Shut the connection down, which close() alone would not do while a thread waits in recv()."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


class RedisChannelTransport:
    """redis-py's PubSub. Over a cluster, shard channels are heard on the nodes that hold them, by themselves."""

    def __init__(self, link: RedisTransport) -> None:
        import redis

        self._errors = redis.exceptions
        self._link = link
        self._pubsub: Any = link.client.pubsub()
        self._sharded = False

    def send(self, argv: list[bytes]) -> None:
        """Send the command."""
        name = argv[0].lower().decode()
        sharded = self._link.cluster and name in ("ssubscribe", "sunsubscribe")
        if self._pubsub.subscribed and sharded != self._sharded:
            raise ValueError("over a cluster, shard channels need a subscription of their own")
        self._sharded = sharded
        try:
            getattr(self._pubsub, name)(*argv[1:])
        except (self._errors.RedisError, OSError) as error:
            raise self._failed(error) from error

    def receive(self, timeout: float | None) -> Any:
        """Return the next reply or message."""
        until = None if timeout is None else time.monotonic() + timeout
        take = self._pubsub.get_sharded_message if self._sharded else self._pubsub.get_message
        while True:
            left = None if until is None else max(until - time.monotonic(), 0.0)
            try:
                # Over a cluster there is no waiting for ever: several nodes are asked in turn, and what one has
                # to say waits for as long as the others are waited for.
                most = _TURN if self._sharded else _WAIT
                found = take(timeout=most if left is None else min(left, most))
            except (self._errors.RedisError, OSError, AttributeError, ValueError) as error:
                raise self._failed(error) from error
            if found is not None:
                words = [found["type"].encode(), found["pattern"], found["channel"], found["data"]]
                return words if found["type"] == "pmessage" else [words[0], *words[2:]]
            if self._link.closed:
                raise StoreClosed("the store is closed")
            if left is not None and left <= 0:
                return None

    def _failed(self, error: Exception) -> StoreError:
        if self._link.closed:
            return StoreClosed("the store is closed")
        return StoreError(f"the server at {self._link.where} hung up: {error}")

    def interrupt(self) -> None:
        """Shut the connections down; redis-py's objects belong to the thread that receives."""
        for pubsub in (self._pubsub, *getattr(self._pubsub, "node_pubsub_mapping", {}).values()):
            if pubsub.connection is not None:
                interrupt(pubsub.connection)

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(self._errors.RedisError, OSError):
            self._pubsub.close()


def one_reply(argv: list[bytes]) -> list[bytes]:
    """Return the command; CommandError if it is one that is answered by messages, now and later, ValueError if none."""
    if not argv:
        raise ValueError("a command has a name at least")
    if argv[0].upper() in _NOT_CALLED:
        name = decode(argv[0]).upper()
        raise CommandError(f"{name} is answered by more than one reply: use subscribe() of the store")
    return argv


def line_of(link: Transport) -> ChannelTransport:
    """Return a line beside the link."""
    if isinstance(link, InProcessTransport):
        return LocalChannelTransport(link)
    if isinstance(link, SocketTransport):
        return SocketChannelTransport(link)
    assert isinstance(link, RedisTransport)
    return RedisChannelTransport(link)


class Subscription:
    """Channels, patterns and shard channels that are listened to; an iterator of their messages.

    One thread reads; any may close it, which ends the reading.
    """

    def __init__(self, store: Store, channels: Names, patterns: Names, shards: Names) -> None:
        self._store = store
        self._link: Transport = store.link
        self._names: dict[bytes, dict[bytes, None]] = {kind: {} for kind in _KINDS}
        self._waiting: deque[ChannelMessage] = deque()
        self._reading = threading.Lock()
        self._closed = False
        self._line: ChannelTransport | None = None
        try:
            self.add(*channels, patterns=patterns, shards=shards)
        except BaseException:
            self.close()
            raise

    # -- names ---------------------------------------------------------------------------------------

    def add(self, *channels: str | bytes, patterns: Names = (), shards: Names = ()) -> None:
        """Listen to these as well; returns once the store has confirmed."""
        for kind, names in zip(_KINDS, (channels, patterns, shards), strict=True):
            new = [encode_name(name) for name in names]
            if new:
                self._names[kind].update(dict.fromkeys(new))
                self._tell([kind, *dict.fromkeys(new)])

    def remove(self, *channels: str | bytes, patterns: Names = (), shards: Names = ()) -> None:
        """Listen to these no more; what came before is still to be read."""
        for kind, names in zip(_KINDS, (channels, patterns, shards), strict=True):
            gone = [name for name in map(encode_name, names) if name in self._names[kind]]
            for name in gone:
                self._names[kind].pop(name, None)
            if gone:
                self._tell([_KINDS[kind], *dict.fromkeys(gone)])

    @property
    def channels(self) -> list[str]:
        """The channels that are listened to by name."""
        return [decode(name) for name in self._names[b"SUBSCRIBE"]]

    @property
    def patterns(self) -> list[str]:
        """The patterns that are listened to."""
        return [decode(name) for name in self._names[b"PSUBSCRIBE"]]

    @property
    def shards(self) -> list[str]:
        """The shard channels that are listened to."""
        return [decode(name) for name in self._names[b"SSUBSCRIBE"]]

    def _tell(self, argv: list[bytes]) -> None:
        """Send a command and wait for its confirmations; messages that come before them are kept."""
        with self._reading:
            if self._line is None:
                self._connect()  # which says all names
                return
            try:
                self._exchange(argv)
            except StoreError as error:
                self._reconnect(error)

    def _exchange(self, argv: list[bytes]) -> None:
        assert self._line is not None
        self._line.send(argv)
        left = len(argv) - 1
        while left:
            reply = raised(self._line.receive(None))
            if reply[0] in _MESSAGES:
                self._keep(reply)
            elif reply[0] == argv[0].lower():
                left -= 1

    def _connect(self) -> None:
        if self._closed:
            raise StoreClosed("the subscription is closed")
        self._line = line_of(self._link)
        for kind, names in self._names.items():
            if names:
                self._exchange([kind, *names])

    def _reconnect(self, error: StoreError) -> None:
        """Make another line after one broke, where there is hope, and subscribe again."""
        line, self._line = self._line, None
        if line is not None:
            line.close()
        if self._closed:
            raise StoreClosed("the subscription is closed") from error
        if isinstance(error, StoreClosed) or isinstance(self._link, InProcessTransport):
            self._closed = True
            raise error
        try:
            self._connect()
        except StoreError:
            self._link = self._store.link_instead(self._link)
            self._connect()

    # -- messages ------------------------------------------------------------------------------------

    def _keep(self, reply: list[Any]) -> None:
        if reply[0] == b"pmessage":
            self._waiting.append(ChannelMessage(reply[2], reply[3], reply[1]))
        else:
            self._waiting.append(ChannelMessage(reply[1], reply[2], shard=reply[0] == b"smessage"))

    def wait(self, timeout: float | None = None) -> bool:
        """Whether a message is there, or comes within `timeout` seconds (None: wait for ever)."""
        if self._waiting:
            return True
        until = None if timeout is None else time.monotonic() + timeout
        with self._reading:
            while not self._waiting:
                if self._closed or self._line is None:
                    raise StoreClosed("the subscription is closed")
                left = None if until is None else max(until - time.monotonic(), 0.0)
                try:
                    reply = self._line.receive(left)
                except StoreError as error:
                    self._reconnect(error)
                    continue
                if reply is None:
                    return False
                if isinstance(reply, CommandError):
                    raise raised(reply)
                if reply[0] in _MESSAGES:
                    self._keep(reply)
        return True

    def get(self, timeout: float | None = None) -> ChannelMessage | None:
        """Return the next message, None where none comes within `timeout` seconds (None: wait for ever)."""
        return self._waiting.popleft() if self.wait(timeout) else None

    def __iter__(self) -> Iterator[ChannelMessage]:
        """Yield messages until the subscription or its store is closed."""
        with contextlib.suppress(StoreClosed):
            while True:
                message = self.get()
                assert message is not None
                yield message

    @property
    def line(self) -> ChannelTransport | None:
        """The way to the engine."""
        return self._line

    def close(self) -> None:
        """Listen to nothing any more; whoever waits for a message stops. A second call does nothing."""
        self._closed = True
        line = self._line
        if line is not None:
            line.interrupt()
        with self._reading:
            line, self._line = self._line, None
            if line is not None:
                line.close()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        names = [*self.channels, *self.patterns, *self.shards]
        return f"Subscription({'closed' if self._closed else ', '.join(map(repr, names))})"


__all__ = ["ChannelMessage", "LocalChannelTransport", "Names", "Subscription", "one_reply"]
