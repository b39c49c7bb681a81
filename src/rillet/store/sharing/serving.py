"""store.serve(): a socket in front of a store of this process, for code that takes a URL.

    with store.serve() as served:               # a free TCP port on 127.0.0.1
        client = redis.Redis.from_url(served.url)

| store | what serves |
|---|---|
| in memory | a thread of this process, started by the first call: an event loop with a server around the engine |
| the owner of a directory | the thread that serves attached processes, or starts with this call |
| attached | a relay: a thread that copies the bytes between the new socket and the owner's socket |
| `rillet.connect` | the server itself: the handle has its url, and nothing listens |

The thread holds the engine's lock for each chunk of commands, as the threads that call the store do. SHUTDOWN from a
client is rejected: the process that opened the store closes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote

from rillet.client.address import Address
from rillet.errors import CommandError, StoreError
from rillet.host.engine_thread import completed
from rillet.runtime.engine import Engine
from rillet.runtime.engine_services import DefaultServices
from rillet.server import listeners
from rillet.server.server import Server, event_loop_factory
from rillet.server.server_services import ServerServices
from rillet.server.unix_socket import CannotListen, UnixSocket, unix_url
from rillet.store.sharing.guarded_server import TURNS_OF_AN_ACCEPT, GuardedConnection, descriptors
from rillet.store.sharing.owner_thread import redirect_to_null
from rillet.store.transports.connected import AttachedTransport

if TYPE_CHECKING:
    from rillet.store.store import Store

_CHUNK = 1 << 16
Result = TypeVar("Result")


class ServerLoop(NamedTuple):
    """A server, and the event loop of the thread that runs it."""

    server: Server
    loop: asyncio.AbstractEventLoop


class StoreServer:
    """A socket on which other programs reach a store. Closes with the `with` block, `close()` or the store.

    url: redis://127.0.0.1:PORT/0 or unix:///PATH; port: of TCP, else None; path: of a Unix socket, else None.
    """

    def __init__(self, store: Store, listener: Listener | None, url: str, port: int | None, path: str | None) -> None:
        self._store = store
        self._listener = listener
        self._process = os.getpid()
        self.url = url
        self.port = port
        self.path = path

    def close(self) -> None:
        """Stop listening and disconnect the clients of this socket; a second call does nothing."""
        listener, self._listener = self._listener, None
        if listener is not None and self._process == os.getpid():
            listener.close()
            if self.path is not None:
                Path(self.path).unlink(missing_ok=True)

    @property
    def closed(self) -> bool:
        """True after `close`, and in a forked child."""
        return self._listener is None or self._process != os.getpid()

    def __enter__(self) -> StoreServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"StoreServer({self.url.rpartition('@')[2]!r}{', closed' if self.closed else ''})"


class Listener:
    """Listens on one address in the event loop of another thread: `place` is the port or the path."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.place: int | str = 0

    def start(self, host: str, port: int, path: str | None) -> None:
        """Listen; raise CannotListen if the address is in use or not of this machine."""
        self.place = self._in_loop(self._start(host, port, path))

    def close(self) -> None:
        """Stop listening and disconnect the clients."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and its sockets are closed
            self._in_loop(self._stop())

    def _in_loop(self, what: Coroutine[Any, Any, Result]) -> Result:
        if self._loop.is_closed():
            what.close()
            raise RuntimeError("the event loop has ended")
        return in_loop(what, self._loop)

    async def _start(self, host: str, port: int, path: str | None) -> int | str:
        raise NotImplementedError

    async def _stop(self) -> None:
        raise NotImplementedError


def in_loop(what: Coroutine[Any, Any, Result], loop: asyncio.AbstractEventLoop) -> Result:
    """Run a coroutine in the event loop of another thread and return its result; an interrupt ends only the wait."""
    return completed(lambda: asyncio.run_coroutine_threadsafe(what, loop).result())


class EngineListener(Listener):
    """One more address of a server around the engine."""

    def __init__(self, where: ServerLoop) -> None:
        super().__init__(where.loop)
        self._server = where.server
        self._listener: listeners.ListeningAddress

    async def _start(self, host: str, port: int, path: str | None) -> int | str:
        if path is not None:
            self._listener = await self._server.addresses.listen_unix(Path(path))
            return path
        self._listener = await self._server.addresses.listen(host, port)
        return self._listener.port

    async def _stop(self) -> None:
        self._server.addresses.stop(self._listener)
        for _ in range(TURNS_OF_AN_ACCEPT):  # a client that was accepted just now gets its connection object
            await asyncio.sleep(0)
        with self._server.guard:
            for connection in list(self._server.connections):
                place, _, number = connection.local.rpartition(":")
                if self.place in (place, int(number)):
                    connection.close()


class Relay(Listener):
    """Copies bytes between the clients of an address and the socket of the store's owner, in a thread."""

    def __init__(self, store: Store) -> None:
        self._store = weakref.ref(store)
        self._thread = LoopThread("rillet-relay")
        self._clients: set[asyncio.Task[Any]] = set()
        self._listener: asyncio.Server
        super().__init__(self._thread.loop)
        weakref.finalize(store, self._thread.stop)

    def close(self) -> None:
        super().close()
        self._thread.close()

    async def _start(self, host: str, port: int, path: str | None) -> int | str:
        try:
            if path is not None:
                self._listener = await asyncio.start_unix_server(self._serve, path)
                return path
            self._listener = await asyncio.start_server(self._serve, host, port)
        except OSError as error:
            raise CannotListen(f"cannot listen on {path or f'{host}:{port}'}: {error.strerror or error}") from error
        return int(self._listener.sockets[0].getsockname()[1])

    async def _stop(self) -> None:
        self._listener.close()
        for task in self._clients:
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task: Any = asyncio.current_task()
        self._clients.add(task)
        try:
            address = await self._owner()
            if address.unix is not None:
                there, back = await asyncio.open_unix_connection(address.unix)
            else:
                there, back = await asyncio.open_connection(address.host, address.port)
            copying = [asyncio.ensure_future(_copy(reader, back)), asyncio.ensure_future(_copy(there, writer))]
            try:
                await asyncio.wait(copying, return_when=asyncio.FIRST_COMPLETED)
            finally:
                back.close()
                for one in copying:
                    one.cancel()
                await asyncio.gather(*copying, return_exceptions=True)
        except (OSError, StoreError, asyncio.CancelledError):
            pass  # the client sees the end of its connection
        finally:
            writer.close()
            self._clients.discard(task)

    async def _owner(self) -> Address:
        """Return the address of the owner; if the owner has ended, let the store find or become the owner."""
        store = self._store()
        if store is None:
            raise StoreError("the store is closed")
        await asyncio.get_running_loop().run_in_executor(None, store.execute, "PING")
        transport = store.transport
        if isinstance(transport, AttachedTransport):
            return transport.options.server
        if store.socket is None:
            raise StoreError("the store has no owner")
        return Address(unix=store.socket)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()


class LoopThread:
    """A thread that runs an event loop until `close`."""

    def __init__(self, name: str) -> None:
        self.loop = event_loop_factory()()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        completed(self._thread.start)
        self.number: int = self._thread.ident or 0

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self._end_tasks())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    async def _end_tasks(self) -> None:
        """Let every task close its sockets: a store that the garbage collector closes only stops the loop."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports close in the loop's next turn

    def is_this_thread(self) -> bool:
        """Return whether the caller runs in the thread."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """Stop the loop; its thread ends soon."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.loop.stop)

    def close(self) -> None:
        """Stop the loop and wait for the thread; a second call does nothing."""
        self.stop()
        if not self.is_this_thread():
            completed(self._thread.join)


class EmbeddedServices(ServerServices):
    """The services of an engine in memory that is served. SHUTDOWN is refused, as without a server.

    So is REPLICAOF if the engine follows a server already (rillet.follow).
    """

    def follow(self, host: str, port: int) -> None:
        self._check_free()
        super().follow(host, port)

    def promote(self) -> None:
        self._check_free()
        super().promote()

    def _check_free(self) -> None:
        link = self._engine.replication.link
        followed = self._server.followed
        if link is not None and (followed is None or link is not followed.follower):
            raise CommandError("this store is a replica of rillet.follow: close it, and open another store")

    def shutdown(self, *, save: bool, nosave: bool, force: bool, now: bool) -> bool:
        return DefaultServices.shutdown(self, save=save, nosave=nosave, force=force, now=now)


class EngineServer:
    """The server around an engine of this process, in a thread. Its services replace the engine's, until it closes.

    server, services: make them. unix: the Unix socket of the settings, which listens already. The caller of the
    constructor may hold the lock: it does not wait for the thread, which needs the lock for the first client.
    """

    def __init__(self, engine: Engine, lock: contextlib.AbstractContextManager[Any],
                 server: type[Server] = Server,
                 services: Callable[[Server], ServerServices] = EmbeddedServices,
                 unix: UnixSocket | None = None) -> None:  # fmt: skip
        self._engine = engine
        self._services = engine.services
        self._thread = LoopThread("rillet-serve")
        loop = self._thread.loop
        with lock:
            self.server = server(engine, connection=GuardedConnection, guard=lock)
            self.server.engine_loop.use(loop, self._thread.number)
            engine.services = services(self.server)
        self._started = asyncio.run_coroutine_threadsafe(self.server.start(tcp=False, unix=unix), loop)

    def where(self) -> ServerLoop:
        """Return the server and its loop for EngineListener, once they run. The caller must not hold the lock."""
        completed(self._started.result)
        return ServerLoop(self.server, self._thread.loop)

    def is_this_thread(self) -> bool:
        """Return whether the caller is the thread that serves."""
        return self._thread.is_this_thread()

    def close(self) -> None:
        """Disconnect the clients and end the thread."""
        if self.is_this_thread():  # the garbage collector may run in any thread
            threading.Thread(target=self.close, name="rillet-close").start()
            return
        in_loop(self._stop(), self._thread.loop)
        self._thread.close()
        self._engine.services = self._services

    async def _stop(self) -> None:
        await asyncio.wrap_future(self._started)
        # asyncio accepts a connection a few iterations before it creates the connection's object. Wait for the object,
        # so that `stop` closes the connection; otherwise only the garbage collector would close it.
        for _ in range(TURNS_OF_AN_ACCEPT):
            await asyncio.sleep(0)
        await self.server.stop()

    def wait(self) -> None:
        """Return when the server is asked to stop."""
        asyncio.run_coroutine_threadsafe(self.server.wait(), self._thread.loop).result()

    def forget_in_child(self) -> None:
        """Release the parent's sockets in a forked child."""
        redirect_to_null(descriptors(self.server))
        self._engine.services = self._services
        _from_parents.append(self)


# Objects of the parent process: their destructors would change the parent's sockets and event loop.
_from_parents: list[EngineServer] = []


def serve(store: Store, where: ServerLoop | None, port: int, host: str, path: str | None, password: str) -> StoreServer:
    """Listen on an address; where: the server of an engine in this process, None for an attached store."""
    listener = Relay(store) if where is None else EngineListener(where)
    try:
        listener.start(host, port, path)
    except BaseException:
        if isinstance(listener, Relay):
            listener._thread.close()
        raise
    secret = f":{quote(password, safe='')}@" if password else ""
    if path is not None:
        return StoreServer(store, listener, unix_url(path, secret), None, path)
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    shown = f"[{shown}]" if ":" in shown else shown
    return StoreServer(store, listener, f"redis://{secret}{shown}:{listener.place}/0", int(listener.place), None)
