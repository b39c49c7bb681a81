"""A value of a DUMP payload as commands that make it: SET, RPUSH, SADD, ZADD, HSET, XADD, XGROUP ..., or RESTORE.

`Values` loads one value after another into a store in memory, so a task holds one value. Its clock stands still at the
beginning of 1970, so nothing expires there: the server says what has expired, and a batch that runs again later has the
same rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rillet.errors import CommandError, Corrupt, RilletError
from rillet.keyspace.clock import ManualClock
from rillet.store.arguments.store_settings import MEMORY, settings_of
from rillet.store.backends.backend import MemoryBackend
from rillet.store.store import Store
from rillet.transfer.rdb_parts import SnapshotKey
from rillet.types.compat import COMPATS
from rillet.types.rdb import value as rdb

if TYPE_CHECKING:
    from rillet.runtime.engine import Engine

_MOST = 100  # elements in a command
_PAGE = 1000
_LAST = b"%d-%d" % (2**64 - 1, 2**64 - 1)


def compat_of(version: int) -> str:
    """Return the newest compat whose values have an RDB version."""
    return "valkey" if version == COMPATS["valkey"].rdb_version else "newest"


def store_without_expiry(compat: str, databases: int = 16, clock: ManualClock | None = None) -> Store:
    """Return a store in memory whose clock stands still unless the caller moves it."""
    settings = settings_of(MEMORY, {"compat": compat, "databases": databases})
    return Store(MemoryBackend(settings, clock or ManualClock(1), active_expiry=False))


class Values:
    """Reads values by commands; a context manager."""

    def __init__(self, version: int) -> None:
        self.store = store_without_expiry(compat_of(version))
        self._engine: Engine = self.store.transport.engine  # type: ignore[attr-defined]

    def __enter__(self) -> Values:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        self.store.close()

    @contextmanager
    def holding(self, key: bytes, payload: bytes) -> Iterator[Store]:
        """Hold a value under its key for the block; RilletError if it is malformed."""
        try:
            value = rdb.restore(payload, self._engine.settings)
        except (Corrupt, IndexError, OverflowError, MemoryError) as error:
            name = key.decode("utf-8", "backslashreplace")
            raise RilletError(f"rillet: the value of the key {name!r} cannot be read: {error}") from None
        database = self._engine.databases[0]
        database.put(key, value)
        try:
            yield self.store
        finally:
            database.delete(key)

    def commands(self, key: SnapshotKey) -> Iterator[list[bytes]]:
        """Yield the commands that make a key."""
        with self.holding(key.key, key.payload) as store:
            yield from commands_of(store, key.key)
        if key.expires >= 0:
            yield [b"PEXPIREAT", key.key, b"%d" % key.expires]


def commands_of(store: Store, key: bytes) -> Iterator[list[bytes]]:
    """Yield the commands that make the value of a key of database 0, without its expiry."""
    kind = store.execute("TYPE", key)
    if kind == b"string":
        yield [b"SET", key, store.execute("GET", key)]
    elif kind == b"list":
        for start in range(0, store.execute("LLEN", key), _MOST):
            yield [b"RPUSH", key, *store.execute("LRANGE", key, start, start + _MOST - 1)]
    elif kind == b"set":
        yield from _chunks([b"SADD", key], sorted(store.execute("SMEMBERS", key)), 1)
    elif kind == b"zset":
        pairs = store.execute("ZRANGE", key, 0, -1, "WITHSCORES")
        yield from _chunks([b"ZADD", key], [word for at in range(0, len(pairs), 2) for word in
                                            (pairs[at + 1], pairs[at])], 2)  # fmt: skip
    elif kind == b"hash":
        yield from _hash_commands(store, key)
    elif kind == b"stream":
        yield from _stream_commands(store, key)
    else:
        yield [b"RESTORE", key, b"0", store.execute("DUMP", key)]


def _chunks(begin: list[bytes], words: list[bytes], step: int) -> Iterator[list[bytes]]:
    for at in range(0, len(words), _MOST * step):
        yield [*begin, *words[at : at + _MOST * step]]


def _hash_commands(store: Store, key: bytes) -> Iterator[list[bytes]]:
    pairs = store.execute("HGETALL", key)
    yield from _chunks([b"HSET", key], pairs, 2)
    names = pairs[::2]
    try:
        times = store.execute("HPEXPIRETIME", key, "FIELDS", len(names), *names)
    except CommandError:
        return  # a compat without expiry of fields
    for name, when in zip(names, times, strict=True):
        if when >= 0:
            yield [b"HPEXPIREAT", key, b"%d" % when, b"FIELDS", b"1", name]


def _stream_commands(store: Store, key: bytes) -> Iterator[list[bytes]]:
    """Yield the commands that make a stream with its groups and pending entries (aof.c: rewriteStreamObject)."""
    facts = _pairs(store.execute("XINFO", "STREAM", key, "FULL", "COUNT", "0"))
    for one, words in entries_of(store, key):
        yield [b"XADD", key, one, *words]
    if not facts[b"length"]:  # only XADD creates a stream
        yield [b"XADD", key, b"MAXLEN", b"=", b"0", b"0-1", b"x", b"y"]
    yield [b"XSETID", key, facts[b"last-generated-id"], b"ENTRIESADDED", b"%d" % facts[b"entries-added"],
           b"MAXDELETEDID", facts[b"max-deleted-entry-id"]]  # fmt: skip
    for group in map(_pairs, facts[b"groups"]):
        read = group.get(b"entries-read")
        yield [b"XGROUP", b"CREATE", key, group[b"name"], group[b"last-delivered-id"], b"ENTRIESREAD",
               b"-1" if read is None else b"%d" % read]  # fmt: skip
        for consumer in map(_pairs, group[b"consumers"]):
            yield [b"XGROUP", b"CREATECONSUMER", key, group[b"name"], consumer[b"name"]]
        for one, consumer, when, deliveries in group[b"pending"]:
            yield [b"XCLAIM", key, group[b"name"], consumer, b"0", one, b"TIME", b"%d" % when, b"RETRYCOUNT",
                   b"%d" % deliveries, b"JUSTID", b"FORCE"]  # fmt: skip


def entries_of(store: Store, key: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
    """Yield the ID and the fields of each entry of a stream."""
    start = b"-"
    while True:
        page = store.execute("XRANGE", key, start, "+", "COUNT", _PAGE)
        yield from page
        if len(page) < _PAGE or page[-1][0] == _LAST:  # nothing can follow the last ID, so it is no valid start
            return
        start = b"(" + page[-1][0]


def _pairs(reply: list[Any]) -> dict[bytes, Any]:
    return dict(zip(reply[::2], reply[1::2], strict=True))
