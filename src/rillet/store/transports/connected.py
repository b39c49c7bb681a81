"""ServerTransport and AttachedTransport: a store behind a socket, reached by rillet.client.

Each thread has separate connections, so SELECT, MULTI and WATCH belong to the thread, as in process. A bulk read
(`page_source`) also has separate connections, because the caller may send commands between two batches. Only the thread
or the call refers to its connections, so they are closed when it ends, even if an exception from outside interrupts it.

With a `timeout`, a call raises StoreTimeout if the server does not answer within so many seconds, in addition to the
time that the command itself waits. It is UnknownTimeout if a command was sent that does more than read. The connection
is closed then, because its reply may still arrive; the next call opens another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from weakref import ReferenceType, WeakKeyDictionary, ref

from rillet.client.address import Address
from rillet.client.async_connection import TOO_MANY
from rillet.client.block_time import BLOCKING, block_seconds, block_seconds_of_all
from rillet.client.connection import ONE_CALL, RECEIVE, Connection
from rillet.client.errors import AddressError, ConnectionLost, ConnectorError, TimedOut
from rillet.client.protocol import pack_all
from rillet.client.servers import ClientOptions, Servers
from rillet.errors import CommandError, NotSent, OutcomeUnknown, StoreClosed, StoreError, StoreTimeout, UnknownTimeout
from rillet.protocol.command_parser import pack_command
from rillet.protocol.reply_parser import ReplyError
from rillet.store.transports.async_connected import AsyncServerTransport
from rillet.store.transports.cluster_routing import unless_redirected
from rillet.store.transports.thread_end import OfThread
from rillet.store.transports.transport import (
    ERROR_CLASSES,
    AsyncTransport,
    error_of,
    errors_among,
    ids_among,
    only_reads,
)
from rillet.store.transports.undelivered import Undelivered, delivers
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:  # new in Python 3.11
    from typing import TypeVarTuple, Unpack

    Arguments = TypeVarTuple("Arguments")

SYNC_SECONDS = 5.0  # the most time for which closing a store waits until its changes are on the disk
PATIENCE = 1.0  # seconds that a call follows redirections and waits for nodes that are not ready
Result = TypeVar("Result")
# Commands after which a connection has state that a new connection would lack.
_STATEFUL = frozenset((b"SELECT", b"MULTI", b"WATCH", b"AUTH", b"HELLO", b"CLIENT", b"READONLY"))


def options_of(url: str) -> ClientOptions:
    """Return the client's options for a url; raise StoreError if the url is malformed."""
    if not isinstance(url, str):
        raise TypeError(f"url must be a str, such as 'redis://localhost:6379', not {url!r:.200}")
    try:
        return ClientOptions.from_url(url, PATIENCE, strict=False)
    except AddressError as error:
        reason = str(error).removeprefix("rillet: ")
        raise StoreError(f"{url.rpartition('@')[2]!r} is not the address of a server: {reason}") from None
_MOST_NAMES = 1000  # in the cache of simple commands


class _State:
    """The state of one thread: its connections, and whether one of its calls is under way.

    torn: a call has begun and not ended; if none is under way, it was interrupted, and its replies are still unread.
    database: the one that the thread has selected; None for that of the url.
    """

    __slots__ = ("busy", "client", "database", "spares", "torn")

    def __init__(self) -> None:
        self.client: Servers | None = None
        self.database: int | None = None
        self.busy = self.torn = False
        self.spares: list[Servers] = []  # connections for calls inside calls


class _ThreadConnections(OfThread):
    """Leads to the calling thread's state."""

    new_state = _State
    state: _State | None
    own_state: Callable[[], _State]


class ServerTransport:
    """A server: redis://, rediss://, unix://."""

    clustered = False

    def __init__(self, options: ClientOptions, timeout: float | None = None) -> None:
        self.options = options
        self.timeout = timeout
        self.closed = False
        self._reached = False
        self.undelivered = Undelivered()
        self._simple: set[bytes] = set()  # names of commands for _exchange_one
        self._of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncTransport] = WeakKeyDictionary()
        self._thread = _ThreadConnections()
        self._clients: dict[ReferenceType[Servers], None] = {}  # of threads and of calls, which alone keep them open
        self._guard = threading.RLock()  # a signal handler may need it inside a call that holds it

    # ---- connections ----

    @property
    def reached(self) -> bool:
        """True if the server has accepted a connection; if it is away now, it may come back."""
        return self._reached or any(loop.reached for loop in list(self._of_loops.values()))

    def servers(self) -> Servers:
        """Return the client of the calling thread, with its connections."""
        if self.closed:
            raise StoreClosed("the store is closed")
        client = (self._thread.state or self._thread.own_state()).client
        if client is None:
            client = self._in_database(self.new_servers(bool(self.options.seeds())))  # one server: `connection` checks
            self._register(client)
            self._thread.own_state().client = client
        return client

    def _register(self, client: Servers) -> None:
        """Let `close` find a client; forget those that are no longer used."""
        for other in list(self._clients):
            if other() is None:
                self._clients.pop(other, None)
        self._clients[ref(client)] = None

    def _registered(self) -> list[Servers]:
        """Return the clients that are in use, and forget them."""
        clients, self._clients = self._clients, {}
        return [client for client in (one() for one in clients) if client is not None]

    def new_servers(self, checks_idle: bool = False) -> Servers:
        """Return a new client for this server or cluster, without connections yet; see Servers."""
        return Servers(self.options, unlimited=True, reply_timeout=self.timeout, checks_idle=checks_idle)

    def check_current(self) -> None:
        """Raise NotSent if a new connection would reach another process than this transport is for."""

    def note_reached(self) -> None:
        """Note that the server has accepted a connection."""
        self._reached = True

    def connection(self, size: int) -> Connection:
        """Return this thread's connection to the server; open a new one if the server closed the old one.

        A connection with a selected database or an open transaction is not replaced: the next call fails instead.
        size: of the data that the caller will send. If it is small, a Unix socket needs no check before the send.
        """
        servers = self.servers()
        connection = servers.connection(b"")
        checked = size > ONE_CALL or connection.address.unix is None
        if checked and not connection.has_state and connection.stale():
            servers.forget(connection)
            connection = servers.connection(b"")
        return connection

    @contextmanager
    def page_source(self) -> Iterator[Servers]:
        """Yield separate connections for a bulk read, because other commands may be sent between two batches."""
        with self._separate() as client:
            try:
                yield client
            except TimedOut as error:
                raise self._late_read(error) from error

    @contextmanager
    def _separate(self) -> Iterator[Servers]:
        """Yield separate connections in the thread's database."""
        if self.closed:
            raise StoreClosed("the store is closed")
        self.check_current()
        client = self._in_database(self.new_servers())
        self._register(client)
        try:
            yield client
        except ConnectorError as error:
            raise self.failed(error) from error
        finally:
            client.close_surely()

    @contextmanager
    def exclusive(self, key: bytes) -> Iterator[Callable[[Sequence[list[bytes]]], list[Any]]]:
        """Yield a function that runs commands on a separate connection; see Transport. NotSent without a server.

        Redirections and LOADING are followed until the server has executed the first commands. Later commands rely on
        their WATCH, so a transaction that is redirected then is reported as if a watched key had changed.
        """
        with self._separate() as servers:
            opened = False

            def run(commands: Sequence[list[bytes]]) -> list[Any]:
                nonlocal opened
                if opened:
                    return unless_redirected(servers.replies_of_node(key, commands))
                replies = servers.replies(key, commands)
                self.note_reached()
                opened = True
                return replies

            yield run

    def _call(self, function: Callable[[Unpack[Arguments]], Result], *arguments: Unpack[Arguments]) -> Result:
        """Run a function that calls the server; if it fails, raise StoreError or the server's CommandError.

        A call inside a call (a signal handler that uses the store) gets separate connections: the replies on those of
        the interrupted call belong to that call.
        """
        local = self._thread.state or self._thread.own_state()
        if not local.busy:
            if local.torn:
                self._drop(local)
            local.busy = local.torn = True
            try:
                result = function(*arguments)
                local.torn = False
                return result
            except BaseException as error:
                self._raise_failed(error)
            finally:
                local.busy = False
        outer, local.client = local.client, local.spares.pop() if local.spares else None
        try:
            return function(*arguments)
        except BaseException as error:
            self._raise_failed(error)
        finally:
            nested, local.client = local.client, outer
            if nested is not None:
                local.spares.append(nested)

    def _raise_failed(self, error: BaseException) -> NoReturn:
        """Raise the exception for a call that failed with `error`."""
        local = self._thread.own_state()
        try:
            if isinstance(error, ConnectorError):
                local.torn = False
                raise self.failed(error) from error
            self._drop(local)
            raise error
        finally:
            del error  # the traceback refers to this frame

    def _drop(self, local: _State) -> None:
        """Close the connections of an interrupted call: the next call must not receive replies that belong to it."""
        client, local.client = local.client, None
        local.torn = False
        if client is not None:
            client.close_surely()

    def server_name(self) -> str:
        """Return the server's name and place for messages."""
        return f"the server at {self.options.place()}"

    def late(self, sent: bool) -> StoreTimeout:
        """Return the exception for a server that did not answer in time; sent: it may have received the command."""
        begin = f"{self.server_name()} did not answer within {self.timeout:g} s"
        if not sent:
            return StoreTimeout(f"{begin}; the command was not sent")
        return UnknownTimeout(f"{begin}; the command may or may not have been executed, or be executed later")

    def _late_read(self, error: Exception) -> StoreError:
        if self.closed:
            return StoreClosed("the store was closed while this call waited")
        begin = f"{self.server_name()} did not answer within {self.timeout:g} s"
        return StoreTimeout(f"{begin}; the command only reads and may be repeated")

    def as_read(self, error: UnknownTimeout, commands: Sequence[list[bytes]]) -> StoreError:
        """Return the exception to raise for commands that got no reply: it says so if they only read."""
        return self._late_read(error) if all(map(only_reads, commands)) else error

    def not_sent(self, error: ConnectorError) -> StoreError:
        """Return the exception for a connection that could not be made."""
        if self.closed:
            return StoreClosed("the store was closed while this call waited")
        if isinstance(error, TimedOut):
            return self.late(False)
        reason = str(error).removeprefix("rillet: ")
        return NotSent(f"the server at {self.options.place()} did not answer: {reason}; the command was not sent")

    def failed(self, error: ConnectorError) -> StoreError | CommandError:
        """Return the exception to raise after a failed call of the server."""
        if self.closed:
            return StoreClosed("the store was closed while this call waited")
        if isinstance(error, TimedOut):
            return self.late(error.sent)
        if error.line and (error.line.partition(" ")[0] in ERROR_CLASSES or not isinstance(error, ConnectionLost)):
            return error_of(f"{error.line}: {self._room()}" if error.line.startswith(TOO_MANY) else error.line)
        reason = str(error).removeprefix("rillet: ")
        if isinstance(error, ConnectionLost) and not error.sent:
            return self.not_sent(error)
        if isinstance(error, ConnectionLost):
            return OutcomeUnknown(
                f"the server at {self.options.place()} did not answer: {reason}; the command may or may not have been "
                "executed"
            )
        return StoreError(f"the server at {self.options.place()} did not answer: {reason}")

    def _room(self) -> str:
        """Return the remedy if the server accepts no more connections."""
        return (f"raise maxclients of {self.server_name()} (CONFIG SET maxclients), or let fewer threads and blocking "
                "calls use it at a time")  # fmt: skip

    # ---- asyncio ----

    def for_loop(self) -> AsyncTransport:
        """Return the connections of the running event loop."""
        loop = asyncio.get_running_loop()
        found = self._of_loops.get(loop)
        if found is None or found.closed:
            if self.closed:
                raise StoreClosed("the store is closed")
            with self._guard:
                for closed in [other for other in self._of_loops if other.is_closed()]:
                    self._of_loops.pop(closed).close()
                found = self._of_loops[loop] = self._async_transport()
        return found

    def _async_transport(self) -> AsyncTransport:
        return AsyncServerTransport(self.options.address, self.undelivered, self.failed, self.not_sent,
                                    self.timeout, self.as_read, asks=self.options.moves)  # fmt: skip

    def _close_loops(self, lost: ConnectionLost | None = None) -> None:
        with self._guard:
            loops, self._of_loops = list(self._of_loops.items()), WeakKeyDictionary()
        for loop, connections in loops:
            try:
                if lost is not None and isinstance(connections, AsyncServerTransport):
                    loop.call_soon_threadsafe(connections.abandon, lost)
                else:
                    loop.call_soon_threadsafe(connections.close)
            except RuntimeError:  # the loop was closed
                connections.close()

    # ---- commands ----

    def execute(self, argv: list[bytes]) -> Any:
        """Send one command and return its reply."""
        try:
            if argv[0] in self._simple:
                return self._call(self._exchange_one, pack_command(argv))
            kept = self.undelivered.take_reply(argv)
            if kept is not None:
                return kept
            name = argv[0].upper()
            if name in BLOCKING or name in _STATEFUL:
                data, stateful = pack_command(argv), name in _STATEFUL
                replies = self._call(self._exchange, data, 1, stateful, block_seconds(argv))
                if stateful:
                    self._note_database([argv], replies)
                return replies[0]
            if not delivers(argv) and len(self._simple) < _MOST_NAMES:
                self._simple.add(argv[0])
            return self._call(self._exchange_one, pack_command(argv))
        except UnknownTimeout as error:
            raise self.as_read(error, [argv]) from error.__cause__

    def _exchange_one(self, data: bytes) -> Any:
        """Send one command that neither waits nor leaves state, on this thread's connection; return the reply.

        A small command on an open Unix socket needs no check before: it is sent whole or not at all.
        """
        client = (self._thread.state or self._thread.own_state()).client
        connection = None if client is None else client.open_connection()
        if connection is None or connection.address.unix is None or connection.lost or len(data) > ONE_CALL:
            return self._exchange(data, 1, False, 0.0)[0]
        try:
            reply = connection.exchange(data)
        except ConnectionLost as error:
            self.servers().forget(connection)
            if error.sent or connection.has_state or isinstance(error, TimedOut):
                error.sent = error.sent or not isinstance(error, TimedOut)  # a new connection would lack the state
                raise
            return self._exchange(data, 1, False, 0.0)[0]
        if type(reply) is ReplyError and self._accepted(reply).prefix == "MISCONF":
            self.servers().forget(connection)  # the server closes it
        return reply

    def execute_many(self, commands: Sequence[list[bytes]]) -> list[Any]:
        """Send all commands at once and return their replies."""
        if not commands:
            return []
        # A whole transaction leaves no state behind.
        whole = (commands[0], commands[-1]) == ([b"MULTI"], [b"EXEC"])
        stateful = any(argv[0].upper() in _STATEFUL for argv in (commands[1:-1] if whole else commands))
        try:
            replies = self._call(self._exchange, pack_all(commands), len(commands), stateful,
                                 block_seconds_of_all(commands))  # fmt: skip
        except UnknownTimeout as error:
            raise self.as_read(error, commands) from error.__cause__
        if stateful:
            self._note_database(commands, replies)
        return replies

    def _note_database(self, commands: Sequence[list[bytes]], replies: Sequence[Any]) -> None:
        """Note the database that the thread has selected: its next connections and separate ones are in it, too."""
        for argv, reply in zip(commands, replies, strict=True):
            if argv[0].upper() == b"SELECT" and reply == b"OK":
                self._thread.own_state().database = int(argv[1])
                self._in_database(self.servers())

    def _in_database(self, client: Servers) -> Servers:
        """Let the next connections of a client be in the database that this thread has selected."""
        database = self._thread.own_state().database
        if database is not None:
            client.options = replace(self.options, server=replace(self.options.server, db=database))
        return client

    def append_packed(self, key: bytes, data: bytes, count: int) -> list[tuple[int, CommandError]]:
        """Send commands in RESP encoding; return each error reply with the position of its command."""
        return errors_among(self._packed(key, data, count))

    def add_packed(self, key: bytes, data: bytes, count: int) -> list[StreamID | None]:
        """Send XADDs in RESP encoding; return the IDs; raise the first error reply."""
        return ids_among(self._packed(key, data, count))

    def _packed(self, key: bytes, data: bytes, count: int) -> list[Any]:
        """Send commands of one key in RESP encoding, and return their replies."""
        return self._call(self._exchange, data, count, False, 0.0)

    def _exchange(self, data: bytes, count: int, stateful: bool, waits: float) -> list[Any]:
        """Send commands in RESP encoding on this thread's connection and return their replies.

        waits: seconds that the commands themselves may wait in the server.
        """
        connection = self._sent(data)
        if waits:
            connection.wait_longer(waits)
        connection.has_state = connection.has_state or stateful
        replies: list[Any] = []
        failed_to_log = is_replica = False
        try:
            while len(replies) < count:
                reply = connection.reply()
                replies.append(reply)
                failed_to_log = type(reply) is ReplyError and self._accepted(reply).prefix == "MISCONF"
                is_replica = is_replica or (type(reply) is ReplyError and reply.prefix == "READONLY")
        except ConnectionLost:
            self.servers().forget(connection)
            if not failed_to_log:
                raise
            # The server could not write the batch to its log. It replied with one error and closed the connection.
            replies += replies[-1:] * (count - len(replies))
        connection.until = 0.0
        if failed_to_log or (is_replica and self.options.moves):  # the next call looks for the new master
            self.servers().forget(connection)
        return replies

    def _accepted(self, reply: ReplyError) -> ReplyError:
        """Return an error reply; raise it with the remedy if the server accepted no more connections."""
        if str(reply).startswith(TOO_MANY):
            raise error_of(f"{reply}: {self._room()}")
        return reply

    def _sent(self, data: bytes) -> Connection:
        """Send commands on this thread's connection, and return it; raise NotSent if no server is there."""
        while True:
            try:
                connection = self.connection(len(data))
            except ConnectionLost as error:
                raise self.not_sent(error) from error
            try:
                if len(data) > RECEIVE:
                    connection.send_large(data)
                else:
                    connection.send(data)
            except ConnectionLost as error:
                self.servers().forget(connection)
                if isinstance(error, TimedOut):
                    error.sent = connection.address.unix is None or len(data) > ONE_CALL
                    raise
                if connection.has_state or error.sent:
                    error.sent = True  # a new connection would lack the state
                    raise
            else:
                self._reached = True
                return connection

    # ---- closing ----

    def close(self) -> None:
        """Close the connections of every thread; a waiting call raises StoreClosed."""
        self.closed = True
        self._close_connections()

    def _close_connections(self, lost: ConnectionLost | None = None) -> None:
        self._close_loops(lost)
        for client in self._registered():
            client.interrupt()
            client.close()

    def forget_in_child(self) -> None:
        """Close a forked child's copies of the connections, which the parent keeps using."""
        self._of_loops = WeakKeyDictionary()  # the parent's event loops do not run here
        clients = self._registered()
        self._guard = threading.RLock()  # another thread of the parent may have held it
        self.undelivered = Undelivered()  # also its guard; the parent hands out what it kept
        self._thread = _ThreadConnections()
        for client in clients:
            client.close()


class AttachedTransport(ServerTransport):
    """The Unix socket of the process that owns the store.

    current: returns whether that process still owns the directory. It is called before a connection is opened, because
    the next owner listens at the same path: the store must attach to it first.
    lease: a connection that an owner process counts as long as the store is open; None for other owners.
    """

    def __init__(self, path: str, timeout: float | None = None, lease: Connection | None = None,
                 current: Callable[[], bool] | None = None) -> None:  # fmt: skip
        super().__init__(ClientOptions(Address(unix=path), PATIENCE), timeout)
        self.path = path
        self.lease = lease
        self._current = current
        self._abandoned = False

    def server_name(self) -> str:
        """Return the owner's name and place for messages."""
        return f"the process that owns the store ({self.path})"

    def connection(self, size: int) -> Connection:
        """Return this thread's connection to the owner; raise NotSent if the owner cannot be reached."""
        client = (self._thread.state or self._thread.own_state()).client
        if client is None or not client.connected:
            self.check_current()
        try:
            return super().connection(size)
        except ConnectionLost as error:
            raise self.not_sent(error) from error

    def _room(self) -> str:
        """Return the remedy if the owner accepts no more connections."""
        return (f"raise the limit of open files (ulimit -n) of {self.server_name()}, or its maxclients, or let fewer "
                "threads and blocking calls use it at a time")  # fmt: skip

    def _async_transport(self) -> AsyncServerTransport:
        return AsyncServerTransport(self._reachable_address, self.undelivered, self.failed, self.not_sent,
                                    self.timeout, self.as_read)  # fmt: skip

    def _reachable_address(self) -> Address:
        self.check_current()
        return self.options.address()

    def check_current(self) -> None:
        """Raise NotSent if the process is not the owner any more."""
        if self._abandoned or (self._current is not None and not self.closed and not self._current()):
            raise NotSent(f"the process that owned the store ended ({self.path})")

    def not_sent(self, error: ConnectorError) -> StoreError:
        """Return the exception for a connection to the owner that could not be made."""
        if isinstance(error, TimedOut):
            return self.late(False)
        reason = getattr(error.__cause__, "strerror", None) or error
        return NotSent(f"the store's owner cannot be reached ({self.path}): {reason}")

    def failed(self, error: ConnectorError) -> StoreError | CommandError:
        """Return the exception to raise after a failed call of the owner."""
        if isinstance(error, ConnectionLost) and error.sent and not isinstance(error, TimedOut) and not self.closed:
            return OutcomeUnknown(
                f"the process that owns the store ended before it replied ({self.path}); the command may or may not "
                "have been executed"
            )
        return super().failed(error)

    def abandon(self) -> None:
        """Close the connections because the owner ended; later calls raise NotSent."""
        self._abandoned = True
        self._close_connections(ConnectionLost(f"rillet: the process that owned the store ended ({self.path})"))
        self._end_lease()

    def close(self) -> None:
        """Close the connections of every thread; wait until an owner process has synced the changes to the disk."""
        super().close()
        if self.lease is not None and not self._abandoned:
            limit = SYNC_SECONDS if self.timeout is None else min(self.timeout, SYNC_SECONDS)
            with contextlib.suppress(ConnectorError, OSError):  # the owner ended, or does not answer
                self.lease.send_all([[b"WAITAOF", b"1", b"0", b"%d" % (1000 * limit)]])
                self.lease.reply_within(limit)
        self._end_lease()

    def _end_lease(self) -> None:
        lease, self.lease = self.lease, None
        if lease is not None:
            lease.close()

    def forget_in_child(self) -> None:
        """Close a forked child's copies of the connections; later calls raise NotSent."""
        self._abandoned = True
        super().forget_in_child()
        self._end_lease()
