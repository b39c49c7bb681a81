"""Channels: the subscriptions of sessions, and the delivery of messages (Redis: pubsub.c).

    channels   b"news"   -> {session, session}      SUBSCRIBE
    shards     b"orders" -> {session}               SSUBSCRIBE, a separate namespace
    patterns   b"user.*" -> {session}               PSUBSCRIBE

    session.subscriptions -> channels {b"news"}, patterns {b"user.*"}, shards {}

A name is in a table while it has subscribers. The sets are dicts: sessions receive a message in the order of their
subscriptions, and UNSUBSCRIBE without a name confirms the names in that order too.

A message is encoded once per protocol version and appended to the output of every subscriber:

    RESP2   *3\\r\\n$7\\r\\nmessage\\r\\n$4\\r\\nnews\\r\\n$5\\r\\nhello\\r\\n
    RESP3   >3\\r\\n...  the same after another first byte

Messages are not stored. A subscriber that does not read its output is disconnected by its frontend
(client-output-buffer-limit). A subscriber that runs a command gets the message after its reply. Up to Redis 7.0, a
client's own PUBLISH put the message before the reply, even inside EXEC's array (commands/pubsub).

Costs: subscribing and unsubscribing O(1) per name; publishing O(subscribers + patterns), with a glob match per
pattern; closing a session O(its names). Compiled, because a message to ten thousand subscribers is ten thousand rounds
of a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rillet._cython import cython, public
from rillet.runtime import session_state
from rillet.runtime.session import Session
from rillet.structs.glob import matches

# The kinds of subscriptions.
CHANNEL, PATTERN, SHARD = range(3)
_CLOSING = cython.declare(cython.int, session_state.CLOSING)
_RUNNING = cython.declare(cython.int, session_state.RUNNING)
_ENTRY = 120  # bytes of a subscription beside its name: the entries of both tables


class Subscriptions:
    """The subscriptions of one session, in the order of subscribing; `size`: the bytes that they take, about."""

    __slots__ = ("channels", "patterns", "shards", "size")

    def __init__(self) -> None:
        self.channels: dict[bytes, None] = {}
        self.patterns: dict[bytes, None] = {}
        self.shards: dict[bytes, None] = {}
        self.size = 0

    def __bool__(self) -> bool:
        """Return whether the session has any subscription."""
        return bool(self.channels or self.patterns or self.shards)


@cython.final
@cython.cclass
class Channels:
    """The channels, shard channels and patterns of one engine, and their subscribers.

    on_change: called after a name got its first subscriber, or lost its last one.
    """

    __slots__ = ("channels", "shards", "patterns", "_on_change")
    channels: public[dict[bytes, dict[Session, None]]]
    shards: public[dict[bytes, dict[Session, None]]]
    patterns: public[dict[bytes, dict[Session, None]]]
    _on_change: Callable[[], None]

    def __init__(self, on_change: Callable[[], None]) -> None:
        self.channels = {}
        self.shards = {}
        self.patterns = {}
        self._on_change = on_change

    # -- subscriptions -----------------------------------------------------------------------------------

    @cython.ccall
    def subscribe(self, session: Session, name: bytes, kind: cython.int) -> cython.bint:
        """Subscribe the session to a name of a kind (CHANNEL, PATTERN, SHARD); return False if it was subscribed. O(1)

        Source: pubsub.c, pubsubSubscribeChannel and pubsubSubscribePattern.
        """
        own: dict[bytes, Any] = self._own(session, kind)
        if name in own:
            return False
        own[name] = None
        session.subscriptions.size += len(name) + _ENTRY
        table: dict[bytes, Any] = self._table(kind)
        listeners: dict[Any, Any] = table.setdefault(name, {})
        listeners[session] = None
        if len(listeners) == 1:
            self._on_change()
        return True

    @cython.ccall
    def unsubscribe(self, session: Session, name: bytes, kind: cython.int) -> cython.bint:
        """Unsubscribe the session from a name; return False if it was not subscribed. O(1)"""
        own: dict[bytes, Any] = self._own(session, kind)
        if name not in own:
            return False
        del own[name]
        session.subscriptions.size -= len(name) + _ENTRY
        table: dict[bytes, Any] = self._table(kind)
        listeners: dict[Any, Any] = table[name]
        del listeners[session]
        if not listeners:
            del table[name]
            self._on_change()
        return True

    @cython.cfunc
    def _table(self, kind: cython.int) -> Any:
        """Return the table of one kind of names (CHANNEL, PATTERN, SHARD)."""
        return self.patterns if kind == PATTERN else self.shards if kind == SHARD else self.channels

    @cython.cfunc
    def _own(self, session: Session, kind: cython.int) -> Any:
        """Return the names of one kind (CHANNEL, PATTERN, SHARD) to which the session has subscribed."""
        if session.subscriptions is None:
            session.subscriptions = Subscriptions()
        own = session.subscriptions
        return own.patterns if kind == PATTERN else own.shards if kind == SHARD else own.channels

    def settle(self, session: Session) -> None:
        """Update the session's SUBSCRIBED flag after its subscriptions changed (CLIENT_PUBSUB)."""
        if session.subscriptions:
            session.enter("subscribe")
        else:
            session.enter("unsubscribe all")
            session.subscriptions = None

    def forget(self, session: Session) -> None:
        """Remove all subscriptions of the session without a reply (networking.c: freeClient, RESET). O(names)"""
        own = session.subscriptions
        if own is not None:
            for kind, names in ((CHANNEL, own.channels), (SHARD, own.shards), (PATTERN, own.patterns)):
                for name in list(names):
                    self.unsubscribe(session, name, kind)
        session.pushes = None
        self.settle(session)

    # -- messages -------------------------------------------------------------------------------------

    @cython.ccall
    def publish(self, channel: bytes, message: bytes) -> cython.Py_ssize_t:
        """Send a message to the channel's subscribers, then to those of matching patterns; return their number.

        pubsub.c: pubsubPublishMessage. O(subscribers + patterns)
        """
        count: cython.Py_ssize_t = 0
        tail: bytes = b""
        listeners: Any = self.channels.get(channel)
        if listeners is not None:
            tail = _bulks(channel, message)
            count += self._send(listeners, b"3\r\n$7\r\nmessage\r\n" + tail)
        if self.patterns:
            for pattern, here in self.patterns.items():
                if matches(pattern, channel):
                    tail = tail or _bulks(channel, message)
                    head = b"4\r\n$8\r\npmessage\r\n$%d\r\n%b\r\n" % (len(pattern), pattern)
                    count += self._send(here, head + tail)
        return count

    @cython.ccall
    def publish_shard(self, channel: bytes, message: bytes) -> cython.Py_ssize_t:
        """Send a message to the shard channel's subscribers, without patterns; return their number. O(subscribers)"""
        listeners: Any = self.shards.get(channel)
        if listeners is None:
            return 0
        return self._send(listeners, b"3\r\n$8\r\nsmessage\r\n" + _bulks(channel, message))

    @cython.cfunc
    def _send(self, listeners: dict[Any, Any], body: bytes) -> cython.Py_ssize_t:
        """Append a message to the output of every subscriber, except closing ones; return the number of subscribers."""
        array: bytes = b"*" + body
        push: bytes = b""
        data: bytes
        session: Session
        for session in listeners:
            if session.state & _CLOSING:
                continue
            data = array
            if session.out.resp != 2:
                push = push or b">" + body
                data = push
            if session.state & _RUNNING:
                session.postpone(data)
                continue
            session.out.raw(data)
            if session.on_message is not None:
                session.on_message()
        return len(listeners)

    def check(self) -> None:
        """Assert that the channel tables and the subscriptions of the sessions agree."""
        listeners: set[Session] = set()
        for table, kind in ((self.channels, "channels"), (self.shards, "shards")):
            for name, here in table.items():
                assert here and all(name in getattr(one.subscriptions, kind) for one in here)
                listeners.update(here)
        for pattern, here in self.patterns.items():
            assert here and all(pattern in one.subscriptions.patterns for one in here)
            listeners.update(here)
        for session in listeners:
            own = session.subscriptions
            assert session.state & session_state.SUBSCRIBED and session.pushes is None
            assert all(session in self.channels[name] for name in own.channels)
            assert all(session in self.shards[name] for name in own.shards)
            assert own.size == sum(len(name) + _ENTRY for name in (*own.channels, *own.patterns, *own.shards))
            assert all(session in self.patterns[pattern] for pattern in own.patterns)


def _bulks(channel: bytes, message: bytes) -> bytes:
    return b"$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(channel), channel, len(message), message)
