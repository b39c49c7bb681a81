"""Eviction: deletes keys while the data is larger than `maxmemory` (Redis: evict.c).

    command -> Engine.make_room -> Eviction.run -> OK        at most `maxmemory` bytes are in use
                                                   RUNNING   the time ended first; the engine's timer continues
                                                   FAIL      nothing may be evicted: commands that need memory fail

**Which key.** The random policies take any key. The others keep a pool of at most 16 candidates, sorted by rank:

    pool    rank  3   17   17   42   ...  901        rank: seconds since the access (lru) or the change (lrm),
            key   a   x    b    k         q <- next        255 - frequency (lfu), or the nearness of the expiry (ttl)

Each eviction samples `maxmemory-samples` keys of each database from adjacent buckets, and inserts those with a higher
rank than the lowest of the pool. Good candidates therefore stay from one sample to the next, and five samples come
close to an exact LRU. A candidate that was deleted meanwhile is skipped. `volatile` policies sample only keys that have
an expiry.

**How much.** `counted` is the memory in use without the buffer of the log and the values that already wait to be freed
(keyspace/lazyfree.py): an evicted large value is freed in steps, but counts as freed at once. Gaps in the tables count.
They are filled, by moving the entries beside them, before a key is evicted (`_reclaim`), if they are more than one part
in eight.

**Tables.** A table of the keyspace does not double if it would exceed the limit (`allows`), until it has 1.6 keys a
bucket: a larger table would evict as many keys as it makes room for.

**How long.** `maxmemory-eviction-tenacity` limits the time of one run: 0 to 10 give 0 to 500 microseconds, each step
above 15 % more, 100 no limit (evictionTimeLimitUs).

**Streams.** With `maxmemory-streams trim` a stream is not deleted: it loses its oldest nodes, as by XTRIM with `~`,
until enough memory is free. The stream and its consumer groups stay, and an empty stream is not a candidate.

Costs: `counted` O(databases), a choice O(samples * databases in use).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rillet._cython import cython, public, readonly
from rillet.keyspace.clock import Clock
from rillet.keyspace.database import Database
from rillet.keyspace.lru import AccessClock
from rillet.keyspace.memory_usage import dict_bytes
from rillet.structs.dict import Dict
from rillet.structs.dict_table import GrowthGate
from rillet.structs.listpack import Listpack
from rillet.types.stream.node import int_at
from rillet.types.stream.stream import Stream

OK, RUNNING, FAIL = 0, 1, 2
"""The results of `Eviction.run` (EVICT_OK, EVICT_RUNNING, EVICT_FAIL)."""
_OK = cython.declare(cython.int, 0)
_RUNNING = cython.declare(cython.int, 1)
_FAIL = cython.declare(cython.int, 2)
# The order in which a policy evicts candidates.
_NONE = cython.declare(cython.int, 0)
_ACCESS = cython.declare(cython.int, 1)  # lru and lrm: the bits are a time
_FREQUENCY = cython.declare(cython.int, 2)
_EXPIRY = cython.declare(cython.int, 3)
_RANDOM = cython.declare(cython.int, 4)
_KINDS = {"lru": 1, "lrm": 1, "lfu": 2, "ttl": 3, "random": 4, "noeviction": 0}

_POOL = cython.declare(cython.Py_ssize_t, 16)  # EVPOOL_SIZE
_MOST = cython.declare(cython.ulonglong, 0xFFFF_FFFF_FFFF_FFFF)
_ROUNDS = cython.declare(cython.Py_ssize_t, 64)  # samples in vain before no key counts as evictable
_CLOCK = cython.declare(cython.Py_ssize_t, 16)  # keys between two looks at the clock
_MOVED = cython.declare(cython.Py_ssize_t, 64)  # items and records in one step of `_reclaim`
_COUNT = cython.declare(cython.Py_ssize_t, 6)  # the position of a node's entry count
_UNUSED = cython.declare(cython.Py_ssize_t, dict_bytes(Dict()))  # the bytes of a dict that never had a key


@cython.final
@cython.cclass
class Pool:
    """The candidates of a policy, by rising rank (evictionPoolEntry)."""

    __slots__ = ("idles", "indexes", "keys")
    idles: readonly[list[Any]]
    keys: readonly[list[Any]]
    indexes: readonly[list[Any]]

    def __init__(self) -> None:
        self.idles = []
        self.keys = []
        self.indexes = []

    @cython.cfunc
    def offers(self, idle: cython.ulonglong) -> cython.bint:
        """Return whether a candidate of that rank would be inserted."""
        return len(self.idles) < _POOL or self.idles[0] < idle

    @cython.cfunc
    def insert(self, idle: cython.ulonglong, key: bytes, index: cython.Py_ssize_t) -> cython.bint:
        """Insert a candidate of database `index`; a full pool loses the one with the lowest rank."""
        at: cython.Py_ssize_t = 0
        if len(self.idles) >= _POOL:
            del self.idles[0], self.keys[0], self.indexes[0]
        while at < len(self.idles) and self.idles[at] < idle:
            at += 1
        self.idles.insert(at, idle)
        self.keys.insert(at, key)
        self.indexes.insert(at, index)
        return True

    def clear(self) -> None:
        """Remove all candidates: they were ranked by another policy."""
        self.idles.clear()
        self.keys.clear()
        self.indexes.clear()

    def check(self) -> None:
        """Raise AssertionError unless the pool is small and sorted."""
        assert len(self.idles) == len(self.keys) == len(self.indexes) <= _POOL
        assert self.idles == sorted(self.idles)


def time_limit(tenacity: int) -> int:
    """Return the nanoseconds of one run (evictionTimeLimitUs)."""
    if tenacity <= 10:
        return 50_000 * tenacity
    return int(500_000 * 1.15 ** (tenacity - 10)) if tenacity < 100 else 2**62


@cython.final
@cython.cclass
class Eviction(GrowthGate):
    """The eviction of one engine.

    limit: maxmemory in bytes, 0 = none. buffers: the bytes of the clients' buffers, which their owner updates. running:
    a run reached its limit of time, and its owner should call `run` again after other work; an owner that fails sets it
    to False. on_unfinished: called when `running` becomes true; it must not run Python code, because the call is inside
    a command. timed: measure deletions; deletion_ns: the duration of the last one.
    """

    __slots__ = (
        "access", "buffers", "clock", "databases", "deletion_ns", "evicted_keys", "kind", "lazy", "limit",
        "on_unfinished", "pool", "running", "samples", "time_limit", "timed", "trimmed_entries", "trims", "volatile",
        "_exceeded_since", "_exceeded_total", "_next", "_on_evicted", "_on_trimmed", "_picked_index", "_picked_key",
    )  # fmt: skip
    databases: readonly[list[Any]]
    clock: readonly[Clock]
    access: readonly[AccessClock]
    _on_evicted: Callable[[Database, bytes], None]
    _on_trimmed: Callable[[Database, bytes, Stream], None]
    limit: readonly[cython.Py_ssize_t]
    kind: readonly[cython.int]
    volatile: readonly[cython.bint]
    samples: readonly[cython.Py_ssize_t]
    time_limit: readonly[cython.longlong]
    trims: readonly[cython.bint]
    lazy: readonly[cython.bint]
    buffers: public[cython.Py_ssize_t]
    pool: readonly[Pool]
    running: public[cython.bint]
    timed: public[cython.bint]
    deletion_ns: readonly[cython.longlong]
    on_unfinished: public[Callable[[], object] | None]
    evicted_keys: readonly[cython.longlong]
    trimmed_entries: readonly[cython.longlong]
    _exceeded_since: cython.longlong
    _exceeded_total: cython.longlong
    _next: cython.Py_ssize_t
    _picked_index: cython.Py_ssize_t
    _picked_key: bytes

    def __init__(
        self, databases: list[Any], clock: Clock, access: AccessClock,
        on_evicted: Callable[[Database, bytes], None], on_trimmed: Callable[[Database, bytes, Stream], None],
    ) -> None:  # fmt: skip
        self.databases = databases
        self.clock = clock
        self.access = access
        self._on_evicted = on_evicted
        self._on_trimmed = on_trimmed
        self.limit = 0
        self.kind = _NONE
        self.volatile = False
        self.samples = 5
        self.time_limit = time_limit(10)
        self.trims = False
        self.lazy = False
        self.buffers = 0
        self.pool = Pool()
        self.running = False
        self.on_unfinished = None
        self.evicted_keys = 0
        self.trimmed_entries = 0
        self.timed = False
        self.deletion_ns = 0
        self._exceeded_since = 0
        self._exceeded_total = 0
        self._next = 0
        self._picked_index = 0
        self._picked_key = b""

    def take_settings(self, settings: Any) -> None:
        """Copy the limit and the policy from the settings."""
        policy: str = settings.maxmemory_policy
        self.limit = min(settings.maxmemory, 2**63 - 1)
        self.samples = settings.maxmemory_samples
        self.time_limit = time_limit(settings.maxmemory_eviction_tenacity)
        self.trims = settings.maxmemory_streams == "trim"
        self.lazy = settings.lazyfree_lazy_eviction
        kind, volatile = _KINDS[policy.rpartition("-")[2]], policy.startswith("volatile")
        if settings.import_mode:
            kind = _NONE
        if kind != self.kind or volatile != self.volatile:
            self.pool.clear()
        self.kind = kind
        self.volatile = volatile
        if not self.limit:
            self.running = False
            self._stop_watch()

    # -- the limit -----------------------------------------------------------------------------------

    @cython.ccall
    def counted(self) -> cython.Py_ssize_t:
        """Return the bytes to compare with the limit: all data, and the clients' buffers. O(databases)"""
        return self._counted(True)

    @cython.ccall
    def allows(self, more: cython.Py_ssize_t) -> cython.bint:
        """Return whether so many bytes can be added without an eviction (server.c: overMaxmemoryAfterAlloc).

        A table of the keyspace asks during a command, whose values are not measured yet.
        """
        return self.limit == 0 or self._counted(False) + more <= self.limit

    @cython.cfunc
    def _counted(self, settle: cython.bint) -> cython.Py_ssize_t:
        total: cython.Py_ssize_t = self.buffers
        database: Database
        for database in self.databases:
            if settle:
                database.ledger.settle()
            total += database.ledger.total
            for second in range(2):
                table: Dict = database.expires if second else database.keys
                total += dict_bytes(table) if table.exp0 >= 0 else _UNUSED
        return total

    @cython.ccall
    def run(self) -> cython.int:
        """Evict keys until the data fits, the time ends, or no key may be evicted (performEvictions)."""
        if self.limit == 0 or self.counted() <= self.limit:
            self.running = False
            if self._exceeded_since:
                self._stop_watch()
            return _OK
        began: cython.longlong = self.clock.ticks()
        if not self._exceeded_since:
            self._exceeded_since = max(began, 1)
        result: cython.int = _FAIL if self.kind == _NONE else self._free(began)
        unfinished: cython.bint = result == _RUNNING
        if unfinished and not self.running and self.on_unfinished is not None:
            try:
                self.on_unfinished()
            except RuntimeError:  # no thread can be started: the next command continues, and tries again
                unfinished = False
        self.running = unfinished
        if result == _OK:
            self._stop_watch()
        return result

    @cython.cfunc
    def _free(self, began: cython.longlong) -> cython.int:
        """Reclaim dead bytes and evict keys."""
        rounds: cython.Py_ssize_t = 0
        self.access.update()
        while True:
            if not self._reclaim():
                if not (self._pick_random() if self.kind == _RANDOM else self._pick()):
                    return _FAIL
                database: Database = self.databases[self._picked_index]
                key: bytes = self._picked_key
                self._picked_key = b""
                value: object = database.keys.object_at(database.keys.find(key)) if self.trims else None
                if isinstance(value, Stream):
                    self._trim(database, key, value)
                else:
                    self._evict(database, key)
            if self.counted() <= self.limit:
                return _OK
            rounds += 1
            if rounds % _CLOCK == 0 and self.clock.ticks() - began > self.time_limit:
                return _RUNNING

    @cython.cfunc
    def _reclaim(self) -> cython.bint:
        """Fill some gaps of the tables; return False if the gaps are few."""
        database: Database
        table: Dict
        for database in self.databases:
            for second in range(2):
                table = database.expires if second else database.keys
                if table.reclaim(_MOVED):
                    return True
        return False

    @cython.cfunc
    def _evict(self, database: Database, key: bytes) -> cython.bint:
        """Delete a key; a large value is freed in steps."""
        began: cython.longlong = self.clock.ticks() if self.timed else 0
        database.delete(key, True)
        if self.timed:
            self.deletion_ns = self.clock.ticks() - began
        self.evicted_keys += 1
        self._on_evicted(database, key)
        return True

    @cython.cfunc
    def _trim(self, database: Database, key: bytes, stream: Stream) -> cython.bint:
        """Remove the oldest nodes of a stream until the data fits or the stream is empty."""
        before: cython.ulonglong = stream.length
        nodes: cython.Py_ssize_t = 0
        while stream.rax.numele and nodes < _ROUNDS:
            first: Listpack = stream.find_head()
            entries: cython.ulonglong = int_at(first, _COUNT)
            if entries == 0:  # tombstones only: the trim of one entry removes the node and stops at the next one
                entries = 1
            stream.trim_maxlen(stream.length - entries if stream.length > entries else 0, True, 0)
            nodes += 1
            database.ledger.note(stream)
            if self.counted() <= self.limit:
                break
        self.trimmed_entries += before - stream.length
        self._on_trimmed(database, key, stream)
        return True

    # -- the choice ----------------------------------------------------------------------------------

    @cython.cfunc
    def _pick(self) -> cython.bint:
        """Choose the key with the highest rank of the pool; return False if no key may be evicted."""
        pool: Pool = self.pool
        database: Database
        index: cython.Py_ssize_t
        for _ in range(_ROUNDS):
            total: cython.Py_ssize_t = 0
            for index in range(len(self.databases)):
                database = self.databases[index]
                count: cython.Py_ssize_t = len(database.expires if self.volatile else database.keys)
                if count:
                    self._populate(database, index)
                    total += count
            if total == 0:
                return False
            while pool.keys:
                pool.idles.pop()
                key: bytes = pool.keys.pop()
                index = pool.indexes.pop()
                database = self.databases[index]
                n: cython.Py_ssize_t = database.keys.find(key)
                if n < 0 or (self.volatile and database.expires.find(key) < 0) or not self._can_free(database.keys, n):
                    continue  # deleted, or made persistent, since it was sampled
                self._picked_key = key
                self._picked_index = index
                return True
        return False

    @cython.cfunc
    def _populate(self, database: Database, index: cython.Py_ssize_t) -> cython.bint:
        """Sample some keys of a database for the pool (evictionPoolPopulate)."""
        pool: Pool = self.pool
        keys: Dict = database.keys
        source: Dict = database.expires if self.volatile else keys
        n: cython.Py_ssize_t
        own: cython.Py_ssize_t
        idle: cython.ulonglong
        when: cython.ulonglong
        for n in source.sample(self.samples):
            own = n
            if self.kind == _EXPIRY:
                when = source.number(n)
                idle = _MOST - when
            else:
                if self.volatile:
                    own = keys.find(source.entry_key(n))
                    if own < 0:
                        continue
                idle = self._idle(keys.lru(own))
            if pool.offers(idle) and (self.kind == _EXPIRY or self._can_free(keys, own)):
                pool.insert(idle, source.entry_key(n), index)
        return True

    @cython.cfunc
    @cython.inline
    @cython.exceptval(0, check=True)
    def _idle(self, bits: cython.long) -> cython.ulonglong:
        """Return the rank of a key from its LRU or LFU data."""
        if self.kind == _FREQUENCY:
            return 255 - self.access.frequency(bits)
        return self.access.idle_time(bits)

    @cython.cfunc
    def _can_free(self, keys: Dict, n: cython.Py_ssize_t) -> cython.bint:
        """Return whether evicting an entry frees memory: an empty stream is kept if streams are trimmed."""
        if not self.trims:
            return True
        value: object = keys.object_at(n)
        if isinstance(value, Stream):
            stream: Stream = value
            return stream.rax.numele != 0
        return True

    @cython.cfunc
    def _pick_random(self) -> cython.bint:
        """Choose a random key, of each database in turn; return False if no key may be evicted."""
        count: cython.Py_ssize_t = len(self.databases)
        for _ in range(count * (_ROUNDS if self.trims else 1)):
            self._next = (self._next + 1) % count
            database: Database = self.databases[self._next]
            source: Dict = database.expires if self.volatile else database.keys
            n: cython.Py_ssize_t = source.random_entry() if len(source) else -1
            if n < 0:
                continue
            key: bytes = source.entry_key(n)
            if self.trims and not self._can_free(database.keys, database.keys.find(key)):
                continue
            self._picked_key = key
            self._picked_index = self._next
            return True
        return False

    # -- figures -------------------------------------------------------------------------------------

    def _stop_watch(self) -> None:
        if self._exceeded_since:
            self._exceeded_total += self.clock.ticks() - self._exceeded_since
            self._exceeded_since = 0

    def exceeded_times(self) -> tuple[int, int]:
        """Return for how long the data has been larger than the limit now, and in total, in milliseconds."""
        now = self.clock.ticks() - self._exceeded_since if self._exceeded_since else 0
        return now // 1_000_000, (self._exceeded_total + now) // 1_000_000

    def reset_stats(self) -> None:
        """Reset the counters of INFO (CONFIG RESETSTAT)."""
        self.evicted_keys = self.trimmed_entries = 0
        self._exceeded_total = 0

    def check(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        self.pool.check()
