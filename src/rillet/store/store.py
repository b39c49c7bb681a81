"""Store: open it, put events into streams, read them alone or in groups.

    with rillet.open("events.rillet") as store:      # durable; rillet.open() lives in memory
        orders = store.stream("orders")
        orders.add({"customer": "42", "total": "99.90"})
        for entry in orders:
            print(entry.id, entry.fields)

The first process to open a directory owns it; another one that opens it is attached to the owner
through a Unix socket in the directory, and behaves the same. When the owner ends, the next call of an
attached store takes its place. `rillet.connect("redis://...")` gives the same API over a server.

A store that nobody refers to any more is closed, and so is every store at the end of the process.
After a fork the child's copy of a durable store is attached to the parent's.
"""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rillet.errors import StoreBusy, StoreClosed, StoreError
from rillet.persistence.rdb.writer import write_rdb
from rillet.protocol.reply_parser import parse_all
from rillet.runtime.engine import Engine
from rillet.runtime.settings import Settings
from rillet.server.server import UNIX_SOCKETS, answers
from rillet.store.channels import Names, Subscription, one_reply
from rillet.store.directory import Directory
from rillet.store.encoding import Value, decode, encode, encode_name, id_of_reply, parse_id
from rillet.store.owner import Owner
from rillet.store.recovery import Recovery
from rillet.store.snapshots import copy_file, save_in_background
from rillet.store.stream import Stream
from rillet.store.transports.cluster import ClusterTransport
from rillet.store.transports.in_process import FairLock, InProcessTransport
from rillet.store.transports.transport import NotSent, RedisTransport, SocketTransport, Transport, raised, wait_for
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    import redis

    from rillet.store.aio import AsyncStore

# How long an opener waits for an owner that is still replaying its log (seconds).
ATTACH_SECONDS = 60.0
# Threads that may wait at once for the asyncio face of a store behind a socket.
_MOST_WORKERS = 512
_workers_guard = threading.Lock()


def open(path: str | os.PathLike[str] | None = None, *, appendfsync: Literal["always", "everysec", "no"] = "everysec",
         progress: Callable[[int, int], None] | None = None, **settings: Any) -> Store:  # fmt: skip
    """Open a store: in memory without a path, durable in a directory with one.

    appendfsync: "always" (a call returns when its change is on disk), "everysec" (a power loss costs at most a
    second; the end of this process costs nothing), "no". settings: any parameter of redis.conf, `_` for `-`.
    progress(bytes read, bytes in all) is called while the log is replayed, in place of the bar that a terminal shows.
    Each write to the log carries a checksum (aof_checksums=False leaves the bytes as redis-server writes them).
    """
    if path is None:
        return Store(_Local(Settings(**settings)))
    if appendfsync not in ("always", "everysec", "no"):
        raise ValueError(f"appendfsync is 'always', 'everysec' or 'no', not {appendfsync!r}")
    settings.setdefault("aof_checksums", True)
    return Store(_Shared(Directory(path), Settings(appendfsync=appendfsync, **settings), progress))


def connect(url: str) -> Store:
    """Return the same API over a server: redis://host:port/db, rediss://, unix://, redis+cluster://host:port,..."""
    return Store(_Remote(url))


class Store:
    """Streams and keys in this process, in a directory, or on a server. Safe to use from several threads."""

    def __init__(self, home: _Home) -> None:
        self._home: _Home | None = home
        self._link = home.link()
        self._workers: ThreadPoolExecutor | None = None
        self._subscriptions: weakref.WeakSet[Subscription] = weakref.WeakSet()
        self._finalizer = weakref.finalize(self, home.close)
        _open_stores.add(self)

    # -- commands --------------------------------------------------------------------------------------

    def execute(self, *args: Value) -> Any:
        """Run any command and return its reply (bytes, int, list, None ...); an error reply is raised."""
        return self.run(one_reply([encode(arg) for arg in args]))

    def execute_many(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Run commands in order, in one exchange and one write to the log; the first error is raised at the end.

        Over a server, many are several exchanges, unless a transaction is among them.
        """
        return self.run_many([one_reply([encode(arg) for arg in argv]) for argv in commands])

    def run(self, argv: list[bytes]) -> Any:
        """As `execute`, for words that are bytes already."""
        link = self._link
        try:
            return raised(link.execute(argv))
        except StoreError as error:
            return raised(self._instead(link, error).execute(argv))

    def run_many(self, commands: Sequence[list[bytes]]) -> list[Any]:
        """As `execute_many`, for words that are bytes already."""
        link = self._link
        try:
            replies = link.execute_many(commands)
        except StoreError as error:
            replies = self._instead(link, error).execute_many(commands)
        return [raised(reply) for reply in replies]

    def id_of(self, argv: list[bytes]) -> StreamID | None:
        """Run a command that replies with a stream ID or null; the short way for `Stream.add`."""
        link = self._link
        if type(link) is InProcessTransport:
            raw = link.execute_raw(argv)
            found: StreamID | None = id_of_reply(raw)
            if found is not None:
                return found
            reply = raised(parse_all(raw)[0])
        else:
            reply = self.run(argv)
        made: StreamID | None = None if reply is None else parse_id(reply)
        return made

    def _instead(self, link: Transport, error: StoreError) -> Transport:
        """After a link failed: get another for the calls to come; return it if the command may be sent again."""
        home = self._home
        if home is None or isinstance(error, StoreClosed):
            raise error
        try:
            self._link = home.link_after(link)
        except StoreError as other:
            raise (other if isinstance(error, NotSent) else error) from other
        if not isinstance(error, NotSent) or self._link is link:
            raise error
        return self._link

    def link_instead(self, broken: Transport) -> Transport:
        """After a link failed: return the one for the calls to come."""
        home = self._alive()
        self._link = home.link_after(broken)
        return self._link

    # -- streams and keys ------------------------------------------------------------------------------

    def stream(self, name: str | bytes) -> Stream:
        """Return the stream of that name; it comes into being with its first entry."""
        return Stream(self, name)

    def streams(self) -> list[Stream]:
        """Return every stream of the store, by name. O(keys)"""
        return [Stream(self, name) for name in sorted(set(self.keys(kind="stream")))]

    def keys(self, pattern: str = "*", kind: str | None = None) -> Iterator[str]:
        """Yield the keys that match a glob, of one type ("stream", "string") if asked for (SCAN).

        In a cluster, those of each master in turn. As with SCAN, a key may come twice while the server rearranges.
        """
        asks = self._link.shards() if isinstance(self._link, ClusterTransport) else [self.run]
        extra = [] if kind is None else [b"TYPE", encode(kind)]
        for ask in asks:
            cursor, more = b"0", True
            while more:
                cursor, names = raised(ask([b"SCAN", cursor, b"MATCH", encode(pattern), b"COUNT", b"1000", *extra]))
                yield from map(decode, names)
                more = cursor != b"0"

    def delete(self, *names: Value) -> int:
        """Delete keys and return how many there were."""
        if isinstance(self._link, ClusterTransport):  # they may lie in several slots
            return sum(self.execute_many([("DEL", name) for name in names]))
        return int(self.execute("DEL", *names))

    # -- files -----------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write all data, as they are at one moment, to an RDB file that redis-server loads, and return its path.

        Without a path it is dump.rdb in the store's directory. A store in a directory goes on meanwhile, one in memory
        does not. OSError or StoreError where the file cannot be written; what was there before stays then. O(bytes)
        """
        return self._alive().save(self, None if path is None else Path(path).absolute())

    # -- channels ------------------------------------------------------------------------------------

    def publish(self, channel: str | bytes, data: Value, *, shard: bool = False) -> int:
        """Send a message to whoever listens to the channel now; return how many heard it. Nothing is kept."""
        return int(self.execute("SPUBLISH" if shard else "PUBLISH", encode_name(channel), data))

    def subscribe(self, *channels: str | bytes, patterns: Names = (), shards: Names = ()) -> Subscription:
        """Listen to channels, to those whose names match globs, and to shard channels; see Subscription."""
        self._alive()
        made = Subscription(self, channels, patterns, shards)
        self._subscriptions.add(made)
        return made

    # -- other faces -----------------------------------------------------------------------------------

    def redis(self, **options: Any) -> redis.Redis:
        """Return a genuine redis-py client on this store; in process it needs no socket. Options: redis.Redis's."""
        from rillet.store.redis_py import client_of

        self._alive()
        return client_of(self, **options)

    def aio(self) -> AsyncStore:
        """Return the asyncio face of this store."""
        from rillet.store.aio import AsyncStore

        self._alive()
        return AsyncStore(self)

    @property
    def path(self) -> str | None:
        """The directory of a durable store, else None."""
        return self._alive().path

    @property
    def recovery(self) -> Recovery | None:
        """What the opening found in the directory, where this process owns it; see rillet.store.recovery."""
        return self._alive().recovery

    @property
    def owner(self) -> bool:
        """Whether the engine runs in this process."""
        return isinstance(self._link, InProcessTransport)

    @property
    def socket(self) -> str | None:
        """The Unix socket on which the store's owner listens (None in memory and over a server)."""
        return self._alive().socket()

    @property
    def may_wait(self) -> bool:
        """Whether a plain command may take longer than microseconds: it goes through a socket or waits for a disk."""
        link = self._link
        if not isinstance(link, InProcessTransport):
            return True
        engine = link.engine
        return engine.log is not None and engine.settings.appendfsync == "always"

    def workers(self) -> ThreadPoolExecutor:
        """Return the threads in which the asyncio face waits where it cannot otherwise."""
        with _workers_guard:
            self._alive()
            if self._workers is None:
                self._workers = ThreadPoolExecutor(_MOST_WORKERS, thread_name_prefix="rillet-aio")
            return self._workers

    @property
    def link(self) -> Transport:
        """The way to the engine."""
        return self._link

    def _alive(self) -> _Home:
        if self._home is None:
            raise StoreClosed("the store is closed")
        return self._home

    def info(self) -> dict[str, str]:
        """Return what INFO tells, by field name."""
        lines = decode(self.execute("INFO")).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))

    def close(self) -> None:
        """Write what is left, let go of the directory; calls after it raise StoreClosed. A second call does nothing."""
        home, self._home = self._home, None
        if home is None:
            return
        self._finalizer.detach()
        _open_stores.discard(self)
        for subscription in list(self._subscriptions):
            subscription.close()
        try:
            home.close()
        finally:
            if self._workers is not None:
                self._workers.shutdown(wait=False)

    def after_fork(self) -> None:
        """In a forked child: leave the parent's files and sockets to the parent."""
        if self._home is not None:
            self._link = self._home.after_fork()
            self._workers = None

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({self._home!r})" if self._home is not None else "Store(closed)"


# -- where stores live -------------------------------------------------------------------------------------


class _Home(ABC):
    """Where a store lives: it makes links, and makes new ones when the old one broke."""

    path: str | None = None

    @property
    def recovery(self) -> Recovery | None:
        """What the opening of the engine found on the disk."""
        return None

    @abstractmethod
    def link(self) -> Transport:
        """Return a link for the calls to come."""

    def link_after(self, broken: Transport) -> Transport:
        return broken

    def after_fork(self) -> Transport:
        return self.link()

    @abstractmethod
    def save(self, store: Store, path: Path | None) -> Path:
        """Write an RDB file."""

    def socket(self) -> str | None:
        return None

    @abstractmethod
    def close(self) -> None:
        """Let go of everything."""


class _Local(_Home):
    """In memory: an engine and its lock. A forked child has a copy of its own."""

    def __init__(self, settings: Settings) -> None:
        self._link = InProcessTransport(Engine(settings), threading.RLock())

    def link(self) -> InProcessTransport:
        return self._link

    def save(self, store: Store, path: Path | None) -> Path:
        if path is None:
            raise ValueError("a store in memory has no directory: say where the file is to be")
        with self._link.lock:
            write_rdb(path, self._link.engine, draft=path.with_name(f".{path.name}.{os.getpid()}"))
        return path

    def after_fork(self) -> InProcessTransport:
        self._link.lock = threading.RLock()  # another thread of the parent may hold the old one
        self._link.forget_dead_threads()  # who waited there would be served here, and take a group's entries
        return self._link

    def close(self) -> None:
        self._link.close()

    def __repr__(self) -> str:
        return "in memory"


class _Shared(_Home):
    """A directory: owned by this process, or attached to the one that owns it."""

    def __init__(self, directory: Directory, settings: Settings, progress: Callable[[int, int], None] | None) -> None:
        self.path = str(directory.path)
        self._directory = directory
        self._settings = settings
        self._progress = progress
        self._owner: Owner | None = None
        self._link: Transport | None = None
        self._guard = threading.Lock()
        self._closed = False

    def link(self) -> Transport:
        with self._guard:
            if self._link is None:
                self._link = self._own() or self._attach()
            return self._link

    def link_after(self, broken: Transport) -> Transport:
        with self._guard:
            if self._closed:
                raise StoreClosed("the store is closed")
            # Several threads find the same link broken; the first one replaces it.
            if self._link is broken and isinstance(broken, SocketTransport):
                self._link = None
                broken.abandon()
            if self._link is None:
                self._link = self._own() or self._attach()
            return self._link

    @property
    def recovery(self) -> Recovery | None:
        return None if self._owner is None else self._owner.recovery

    def save(self, store: Store, path: Path | None) -> Path:
        save_in_background(store.execute)
        made = self._directory.path / decode(store.execute("CONFIG", "GET", "dbfilename")[1])
        if path is not None and path != made:
            copy_file(made, path)
        return path or made

    def after_fork(self) -> Transport:
        self._guard = threading.Lock()
        if self._owner is not None:
            self._owner.forget_in_child()
            self._owner = None
        if isinstance(self._link, SocketTransport):
            self._link.forget_in_child()
        # A way to nowhere: the child's first call finds out that it has to attach.
        self._link = SocketTransport(f"{self.path}/socket")
        self._link.forget_in_child()
        return self._link

    def _own(self) -> InProcessTransport | None:
        if not self._directory.lock():
            return None
        lock = FairLock()
        try:
            self._owner = Owner(self._directory, self._settings, lock, self._progress)
        except BaseException:
            self._directory.unlock()
            raise
        return InProcessTransport(self._owner.engine, lock)

    def _attach(self) -> Transport:
        found: list[Transport] = []

        def try_once() -> bool:
            owner = self._directory.owner()
            if owner is not None and answers(owner[1]):
                found.append(SocketTransport(owner[1]))
            else:
                own = self._own()  # the owner ended meanwhile
                if own is not None:
                    found.append(own)
            return bool(found)

        if not wait_for(try_once, ATTACH_SECONDS):
            owner = self._directory.owner()
            number = owner[0] if owner else self._directory.holder()
            holder = f"process {number}" if number else "another process"
            if not UNIX_SOCKETS:
                raise StoreBusy(f"{self.path} is open in {holder}; without Unix sockets only one process can open it")
            raise StoreBusy(f"{self.path} is held by {holder}, which does not answer")
        return found[0]

    def socket(self) -> str | None:
        owner = self._directory.owner()
        return owner[1] if owner else None

    def close(self) -> None:
        if self._owner is not None and self._owner.is_this_thread():
            # The garbage collector met the store in the thread that serves it, amid whatever that was doing.
            threading.Thread(target=self.close, name="rillet-close").start()
            return
        with self._guard:
            self._closed = True
            if self._link is not None:
                self._link.close()
            if self._owner is not None:
                self._owner.close()

    def __repr__(self) -> str:
        return f"{self.path!r}, {'owner' if self._owner else 'attached'}"


class _Remote(_Home):
    """A server behind redis-py."""

    def __init__(self, url: str) -> None:
        self._url = url
        clustered = url.startswith(("redis+cluster://", "rediss+cluster://"))
        self._link = ClusterTransport(url) if clustered else RedisTransport(url)

    def link(self) -> RedisTransport:
        return self._link

    def save(self, store: Store, path: Path | None) -> Path:
        raise StoreError("a server, and each node of a cluster, writes its file where it is: store.execute('BGSAVE')")

    def close(self) -> None:
        self._link.close()

    def __repr__(self) -> str:
        return repr(self._url.rpartition("@")[2])


_open_stores: weakref.WeakSet[Store] = weakref.WeakSet()


def _after_fork() -> None:
    for store in list(_open_stores):
        store.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
