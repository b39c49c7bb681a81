"""Store: open it, put events into streams, read them alone or in groups.

    with rillet.open("events.rillet") as store:      # durable; rillet.open() lives in memory
        orders = store.stream("orders")
        orders.add({"customer": "42", "total": "99.90"})
        for entry in orders:
            print(entry.id, entry.fields)

The first process to open a directory owns it; another one that opens it is attached to the owner
through a Unix socket in the directory, and behaves the same. When the owner ends, the next call of an
attached store takes its place. `rillet.connect("redis://...")` gives the same API over a server.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from rillet.commands.settings import Settings
from rillet.engine import Engine
from rillet.errors import CommandError, StoreBusy, StoreClosed, StoreError
from rillet.store.directory import Directory
from rillet.store.encoding import Value, decode, encode
from rillet.store.links import Link, LocalLink, RedisLink, SocketLink, wait_for
from rillet.store.owner import Owner
from rillet.store.stream import Stream
from rillet.types.stream_id import StreamID

if TYPE_CHECKING:
    import redis

    from rillet.store.aio import AsyncStore

# How long an opener waits for an owner that is still replaying its log (seconds).
ATTACH_SECONDS = 60.0


def open(path: str | os.PathLike[str] | None = None, *, appendfsync: Literal["always", "everysec", "no"] = "everysec",
         progress: Callable[[int, int], None] | None = None, **settings: Any) -> Store:  # fmt: skip
    """Open a store: in memory without a path, durable in a directory with one.

    appendfsync: "always" (a call returns when its change is on disk), "everysec" (a power loss costs at most a
    second; the end of this process costs nothing), "no". settings: any parameter of redis.conf, `_` for `-`.
    progress(bytes read, bytes in all) is called while the log is replayed.
    """
    if path is None:
        return Store(_Local(Settings(**settings)))
    return Store(_Shared(Directory(path), Settings(appendfsync=appendfsync, **settings), progress))


def connect(url: str) -> Store:
    """Return the same API over a server: redis://host:port/db, rediss://, unix://path, redis+cluster://host:port."""
    return Store(_Remote(url))


class Store:
    """Streams and keys in this process, in a directory, or on a server. Safe to use from several threads."""

    def __init__(self, home: _Home) -> None:
        self._home: _Home | None = home
        self._link = home.link()

    # -- commands --------------------------------------------------------------------------------------

    def execute(self, *args: Value) -> Any:
        """Run any command and return its reply (bytes, int, list, None ...); an error reply is raised."""
        return _raised(self._run([encode(arg) for arg in args]))

    def execute_many(self, commands: Sequence[Sequence[Value]]) -> list[Any]:
        """Run commands in order, in one exchange and one write to the log; the first error reply is raised at the end."""
        packed = [[encode(arg) for arg in argv] for argv in commands]
        try:
            replies = self._link.execute_many(packed)
        except StoreError:
            self._renew()
            raise
        return [_raised(reply) for reply in replies]

    def _run(self, argv: list[bytes]) -> Any:
        try:
            return self._link.execute(argv)
        except StoreError:
            self._renew()
            raise

    def id_of(self, argv: list[bytes]) -> StreamID | None:
        """Run a command that replies with a stream ID or null; the short way for `Stream.add`."""
        link = self._link
        if type(link) is LocalLink:
            raw = link.execute_raw(argv)
            if raw[0] == 36:  # "$": a bulk string, "$<length>\r\n<ms>-<seq>\r\n" or null
                start = raw.index(b"\n") + 1
                if start == len(raw):
                    return None
                ms, _, seq = raw[start:-2].partition(b"-")
                return StreamID(int(ms), int(seq))
        reply = self.execute(*argv)
        return None if reply is None else StreamID.parse(reply)

    def _renew(self) -> None:
        """After the owner went away: attach to the new one or become it, for the calls to come."""
        if self._home is not None:
            self._link = self._home.link()

    # -- streams and keys ------------------------------------------------------------------------------

    def stream(self, name: str | bytes) -> Stream:
        """Return the stream of that name; it comes into being with its first entry."""
        return Stream(self, name)

    def streams(self) -> list[Stream]:
        """Return every stream of the store, by name. O(keys)"""
        return [Stream(self, name) for name in sorted(self.keys(kind="stream"))]

    def keys(self, pattern: str = "*", kind: str | None = None) -> Iterator[str]:
        """Yield the keys that match a glob, of one type ("stream", "string") if asked for (SCAN)."""
        cursor = b"0"
        extra: list[Value] = [] if kind is None else ["TYPE", kind]
        while True:
            cursor, names = self.execute("SCAN", cursor, "MATCH", pattern, "COUNT", 1000, *extra)
            yield from map(decode, names)
            if cursor == b"0":
                return

    def delete(self, *names: Value) -> int:
        """Delete keys and return how many there were."""
        return int(self.execute("DEL", *names))

    # -- other faces -----------------------------------------------------------------------------------

    def redis(self, **options: Any) -> redis.Redis:
        """Return a genuine redis-py client on this store; in process it needs no socket. Options: redis.Redis's."""
        from rillet.store.redispy import client_of

        self._alive()
        return client_of(self._link, **options)

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
    def owner(self) -> bool:
        """Whether the engine runs in this process."""
        return isinstance(self._link, LocalLink)

    @property
    def socket(self) -> str | None:
        """The Unix socket on which the store's owner listens (None in memory and over a server)."""
        return self._alive().socket()

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
        if home is not None:
            home.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({self._home!r})" if self._home is not None else "Store(closed)"


def _raised(reply: Any) -> Any:
    if isinstance(reply, CommandError):
        raise reply
    return reply


class _Home:
    """Where a store lives: it makes links, and makes new ones when the old one broke."""

    path: str | None = None

    def link(self) -> Link:
        raise NotImplementedError

    def socket(self) -> str | None:
        return None

    def close(self) -> None:
        raise NotImplementedError


class _Local(_Home):
    """In memory: an engine and its lock."""

    def __init__(self, settings: Settings) -> None:
        self._link = LocalLink(Engine(settings), threading.RLock())

    def link(self) -> LocalLink:
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
        self._link: Link | None = None
        self._lost = False
        self._guard = threading.Lock()

    def link(self) -> Link:
        with self._guard:
            if self._link is None or self._lost:
                self._lost = False
                self._link = self._own() or self._attach()
            return self._link

    def _own(self) -> LocalLink | None:
        if not self._directory.lock():
            return None
        lock = threading.RLock()
        try:
            self._owner = Owner(self._directory, self._settings, lock, self._progress)
        except BaseException:
            self._directory.unlock()
            raise
        return LocalLink(self._owner.engine, lock)

    def _attach(self) -> Link:
        found: list[Link] = []

        def try_once() -> bool:
            owner = self._directory.owner()
            if owner is not None and _listens(owner[1]):
                found.append(SocketLink(owner[1], on_lost=self._mark_lost))
            else:
                own = self._own()  # the owner ended meanwhile
                if own is not None:
                    found.append(own)
            return bool(found)

        if not wait_for(try_once, ATTACH_SECONDS):
            owner = self._directory.owner()
            holder = f"process {owner[0]}" if owner else "another process"
            raise StoreBusy(f"{self.path} is held by {holder}, which does not answer")
        return found[0]

    def _mark_lost(self) -> None:
        self._lost = True

    def socket(self) -> str | None:
        owner = self._directory.owner()
        return owner[1] if owner else None

    def close(self) -> None:
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
        self._link = RedisLink(url)

    def link(self) -> RedisLink:
        return self._link

    def close(self) -> None:
        self._link.close()

    def __repr__(self) -> str:
        return repr(self._url.rpartition("@")[2])


def _listens(path: str) -> bool:
    import socket

    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
        return True
