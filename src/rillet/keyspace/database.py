"""A numbered database: keys, values, and the state attached to keys (Redis: struct redisDb, db.c).

    keys           keys[key] -> String | Stream | ...        a value at rest or an object, never None (redisDb.dict)
    expires        expires[key] -> ms since the epoch        only keys of `keys`
    blocking_keys  blocking_keys[key] -> KeyWaiters           queues of clients blocked on the key
    ready_keys     {key: None}                               changed keys with blocked clients, in order of change
    watched_keys   watched_keys[key] -> {Watcher}            WATCH: marked when the key changes
    idmp_keys      {key: None}                               streams with idempotent producers whose messages may expire
    subexpires     key -> ms since the epoch                 hashes with fields that expire, by their next expiry
                                                             (redisDb.subexpires)

Every access goes through `lookup`, which deletes an expired key and reports it to `on_expired`, so that
the engine can log a DEL. The clock is injected.

The engine decides whether keys expire (`may_expire`). During log replay they do not, because the log contains the
deletions. While clients are paused, an expired key is missing for commands, but it is not deleted (`may_delete`).

**Values at rest.** A small value is bytes in `keys` (types/at_rest.py) until a command looks it up; then it is an
object, which is awake. A value returns to rest between two commands, when no code holds an object that it may change:

    created    keys of values that a command created as objects       they rest when the command has ended, unless
                                                                      the key was woken a moment ago
    awake      keys of values that were woken, oldest first           the oldest rest when they exceed `awake_limit`
    the walk   all objects, a few entries at a time (`rest_some`)     values that were large and became small

The engine calls `rest_oldest` after each command that left something to do: at most 64 values of each kind. Code that
only reads a value uses `view`, `peek` or `items`, which wake nothing: their object may be a copy.

**Fields that expire.** `subexpires` (structs/due_times.py) holds each hash that has fields with an expiry. Its time is
`FieldExpiry.due` of the hash. As in Redis, the time may be too early, and up to four seconds too late, so that few
commands change it. The expiry cycle corrects it (runtime/field_expiry.py). A command that gives a hash another time
calls `set_due`; `put` registers the hash that it stores.

`keys` and `expires` are dicts of structs/dict.py: they grow, shrink and free themselves in small steps, so no command
waits for a table of a million keys. SCAN's cursor is a position in the table (dictScan). Iteration follows the table,
not the order of insertion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rillet._cython import cython, public, readonly
from rillet.keyspace.clock import Clock
from rillet.keyspace.lru import AccessClock
from rillet.keyspace.memory_usage import Ledger
from rillet.keyspace.rest_buffer import RestBuffer
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.dict import Dict
from rillet.structs.dict_table import GrowthGate, hash_bytes
from rillet.structs.due_times import DueTimes
from rillet.types.at_rest import LAST_STRING, LIMIT, awaken, to_rest, type_at_rest
from rillet.types.compat import EMBEDS_UP_TO_128
from rillet.types.hash import Hash
from rillet.types.module import ModuleValue
from rillet.types.stream.stream import Stream
from rillet.types.string import RAW, String, fits, new_string

if cython.compiled:
    from cython.cimports.libc.string import memcpy


# A value of Database.notify_before: no key is given an expiry before this time.
NEVER_DUE = -(2**63)
_RAW = cython.declare(cython.int, RAW)
_LIMIT = cython.declare(cython.Py_ssize_t, LIMIT)
_LAST_STRING = cython.declare(cython.int, LAST_STRING)
_MOST_EMBEDDED = cython.declare(cython.Py_ssize_t, 113)  # bytes of a string that may be embstr
_BATCH = 1024
_DRAWS = 100  # of random keys, while expired keys are not deleted

AWAKE_LIMIT = 1024
"""Values of a database that stay awake although they are small: those that commands looked up last."""
_RESTED = cython.declare(cython.Py_ssize_t, 64)  # values that one call of `rest_oldest` returns to rest
_RECENT = cython.declare(cython.long, 1)  # seconds since the last access after which a read wakes a value
_SWEPT = cython.declare(cython.Py_ssize_t, 256)  # after that many, it examines the next 256 entries, too


@cython.cfunc
def _is_among_last(awake: list[Any], key: bytes) -> cython.bint:
    """Return whether a key was woken a moment ago: a queue that is emptied and created again stays awake. O(1)"""
    at: cython.Py_ssize_t = len(awake)
    end: cython.Py_ssize_t = max(at - 4, 0)
    while at > end:
        at -= 1
        if awake[at] == key:
            return True
    return False


@cython.cfunc
def _form_with_expiry(key_size: cython.Py_ssize_t, data: bytes, form: cython.int) -> cython.int:
    """Return RAW for a string that does not fit beside a key that has an expiry (Valkey's dbSetValue)."""
    if fits(EMBEDS_UP_TO_128, key_size, len(data), True) or new_string(data, form).is_integer():
        return form
    return _RAW


@cython.final
@cython.cclass
class Watcher:
    """The WATCH state of a client: `dirty` becomes True when one of its watched keys changes.

    `stale` contains watched keys that had expired before WATCH but still existed: their deletion is not a change
    (multi.c: watchedKey.expired).
    """

    __slots__ = ("dirty", "keys", "stale")
    dirty: public[cython.bint]
    keys: public[list[tuple[Any, bytes]]]
    stale: public[set[tuple[Any, bytes]] | None]

    def __init__(self) -> None:
        self.dirty = False
        self.keys = []
        self.stale = None

    def add_stale(self, database: Any, key: bytes) -> None:
        """Record that a watched key has expired already."""
        if self.stale is None:
            self.stale = set()
        self.stale.add((database, key))


@cython.cclass
class KeyObserver:
    """Receives the changes of keys (runtime/tracking.py). writer: the session that changes keys now."""

    __slots__ = ("writer",)
    writer: public[Any]

    @cython.cfunc
    def invalidate(self, key: bytes, writer: object) -> cython.bint:
        """Report the change of a key; `writer` is the session that changed it, None for the server itself."""
        raise NotImplementedError

    @cython.cfunc
    def invalidate_span(self, at: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Report that `self.writer` has changed a key: `size` bytes at an address."""
        raise NotImplementedError


@cython.final
@cython.cclass
class Database:
    """A database: lookup, changes, expiry, and the clients that watch or are blocked on keys."""

    __slots__ = (
        "index", "clock", "keys", "expires", "blocking_keys", "ready_keys", "watched_keys", "idmp_keys", "subexpires",
        "on_expired", "on_expiry", "notify_before", "on_ready", "on_missed", "on_new", "on_overwritten", "may_expire",
        "on_unlinked",
        "may_delete", "hits", "misses", "expires_cursor", "average_ttl", "access", "lazy", "lazy_server_del", "awake",
        "awake_limit", "_first_awake", "_rested", "buffer", "created", "ledger", "embeds_expiry",
        "tracking", "notifies",
    )  # fmt: skip
    index: readonly[cython.long]
    clock: public[Clock]
    access: public[AccessClock]
    ledger: public[Ledger]
    buffer: public[RestBuffer]
    keys: public[Dict]
    expires: public[Dict]
    blocking_keys: public[dict[bytes, Any]]
    ready_keys: public[dict[bytes, None]]
    watched_keys: public[dict[bytes, Any]]
    idmp_keys: public[dict[bytes, None]]
    subexpires: public[DueTimes]
    on_expired: public[Callable[[Any, bytes], None] | None]
    on_expiry: public[Callable[[], object] | None]
    notify_before: public[cython.longlong]
    on_ready: public[Callable[[Any], None] | None]
    on_missed: public[Callable[[Any, bytes], None] | None]
    on_new: public[Callable[[Any, bytes], None] | None]
    on_overwritten: public[Callable[[Any, bytes, object, object], None] | None]
    on_unlinked: public[Callable[[Any, bytes, Any], None] | None]
    tracking: public[KeyObserver | None]
    notifies: public[cython.bint]
    may_expire: public[Callable[[], bool] | None]
    may_delete: public[Callable[[], bool] | None]
    lazy: public[Any]
    lazy_server_del: public[cython.bint]
    embeds_expiry: public[cython.bint]
    hits: public[cython.longlong]
    misses: public[cython.longlong]
    expires_cursor: public[cython.ulonglong]
    average_ttl: public[cython.longlong]
    awake: public[list[bytes | None]]
    created: public[list[bytes]]
    awake_limit: public[cython.Py_ssize_t]
    _first_awake: public[cython.Py_ssize_t]
    _rested: public[cython.Py_ssize_t]

    def __init__(
        self, index: int, clock: Clock, access: AccessClock | None = None, buffer: RestBuffer | None = None
    ) -> None:
        self.index = index
        self.clock = clock
        # The clock of the LRU and LFU data in the records of `keys`; an engine's databases share one.
        self.access = access or AccessClock(clock)
        # Commands change small values in this buffer, without an object; an engine's databases share one.
        self.buffer = buffer or RestBuffer()
        # The size of the values that are objects (keyspace/memory_usage.py).
        self.ledger = Ledger()
        self.keys = Dict(values=True, objects=True)
        self.expires = Dict(numbers=True)
        self.blocking_keys = {}
        self.ready_keys = {}
        self.watched_keys = {}
        self.idmp_keys = {}
        self.subexpires = DueTimes()
        self.on_expired = None
        # Called once, without an argument, when a key gets an expiry before `notify_before` (ms since the epoch). The
        # call is inside a command, so it must be a function in C, during which no signal handler runs.
        self.on_expiry = None
        self.notify_before = NEVER_DUE
        self.on_ready = None
        # Callbacks for notify-keyspace-events, None if disabled; the last one receives the old and the new value.
        self.on_missed = None
        self.on_new = None
        self.on_overwritten = None
        # Whether keyspace events are published (Engine.notify_events).
        self.notifies = False
        # The tracking of the engine (runtime/tracking.py) while a client may have cached a key, else None.
        self.tracking = None
        # Called with a key and its value of a module's type when the key is deleted or gets another value.
        self.on_unlinked = None
        self.may_expire = None
        self.may_delete = None
        # A keyspace.lazyfree.LazyFree, which frees large values in steps; None: all values are freed at once.
        self.lazy = None
        self.lazy_server_del = False
        # Valkey: whether a string is embstr depends on the expiry of the value that it replaces (types/string.py).
        self.embeds_expiry = False
        self.hits = 0
        self.misses = 0
        # The position of the expiry cycle in `expires`, and the mean time to live that it found, in ms.
        self.expires_cursor = 0
        self.average_ttl = 0
        # Keys whose value a command created as an object; it rests when the command has ended.
        self.created = []
        # Keys whose value was woken, in the order in which that happened; those before `_first_awake` are None.
        self.awake = []
        self._first_awake = 0
        self.awake_limit = AWAKE_LIMIT
        self._rested = 0

    def __len__(self) -> int:
        """Return the number of keys, including expired keys that are not deleted yet. O(1)"""
        return len(self.keys)

    # -- lookup ------------------------------------------------------------------------------------

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def find(self, key: bytes) -> cython.Py_ssize_t:
        """Return the number of the key's entry in `keys`, or -1; record the access (lookupKey). O(1)

        An expired key is deleted first.
        """
        keys: Dict = self.keys
        n: cython.Py_ssize_t = keys.find(key)
        if n < 0 or (self._any_expires() and self.expire_if_needed(key)):
            return -1
        if self.access.stamp >= 0:
            keys.put_lru(n, self.access.stamp)
        else:
            self.access.touch(keys, n)
        return n

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def find_read(self, key: bytes) -> cython.Py_ssize_t:
        """Do `find` and count a keyspace hit or miss for INFO. O(1)"""
        n: cython.Py_ssize_t = self.find(key)
        if n < 0:
            self.count_read(key, False)
        else:
            self.hits += 1
        return n

    # -- the key of a command whose arguments are spans; a value at rest is unpacked into `buffer` ----

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def locate(self, words: ArgumentSpans, index: cython.Py_ssize_t = 1) -> cython.Py_ssize_t:
        """Do `find` for the key in an argument (lookupKeyWrite). O(1)"""
        n: cython.Py_ssize_t = self._locate(words, index)
        if n >= 0:
            if self.access.stamp >= 0:
                self.keys.put_lru(n, self.access.stamp)
            else:
                self.access.touch(self.keys, n)
        return n

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def locate_read(self, words: ArgumentSpans, index: cython.Py_ssize_t = 1) -> cython.Py_ssize_t:
        """Do `locate` and count a keyspace hit or miss for INFO (lookupKeyRead). O(1)"""
        n: cython.Py_ssize_t = self.locate_untouched(words, index)
        if n >= 0:
            if self.access.stamp >= 0:
                self.keys.put_lru(n, self.access.stamp)
            else:
                self.access.touch(self.keys, n)
        return n

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def locate_untouched(self, words: ArgumentSpans, index: cython.Py_ssize_t = 1) -> cython.Py_ssize_t:
        """Do `locate_read` without recording the access (db.c: LOOKUP_NOTOUCH). O(1)"""
        n: cython.Py_ssize_t = self._locate(words, index)
        if n >= 0:
            self.hits += 1
        elif self.on_missed is None:
            self.misses += 1
        else:
            self.count_read(words.get(index), False)
        return n

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def located_expiry(self, words: ArgumentSpans) -> cython.longlong:
        """Return the expiry time of the key in words[1] that was just located (ms since the epoch), or -1. O(1)"""
        n: cython.Py_ssize_t = self.expires.find_hashed(words.at[1], words.size[1], self.buffer.hash)
        return -1 if n < 0 else self.expires.number(n)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-2, check=False)
    def _locate(self, words: ArgumentSpans, index: cython.Py_ssize_t) -> cython.Py_ssize_t:
        expires: Dict = self.expires
        at: cython.p_const_uchar = words.at[index]
        size: cython.Py_ssize_t = words.size[index]
        h: cython.uint = hash_bytes(at, size)
        self.buffer.hash = h
        n: cython.Py_ssize_t = self.keys.find_hashed(at, size, h)
        if n >= 0 and (expires.used0 != 0 or expires.used1 != 0):
            due: cython.Py_ssize_t = expires.find_hashed(at, size, h)
            if due >= 0 and expires.number(due) < self.clock.now_ms() and self.expire_if_needed(words.get(index)):
                return -1
        return n

    @cython.ccall
    def keep_bytes(
        self, words: ArgumentSpans, n: cython.Py_ssize_t, size: cython.Py_ssize_t
    ) -> cython.bint:
        """Make the first bytes of `buffer.rest` the value of the key in words[1]. O(size)

        n: the entry that `locate` has found; a new one if it is below 0. The value of an existing entry rests.
        """
        keys: Dict = self.keys
        rest: cython.p_uchar = self.buffer.rest
        if not cython.compiled:
            rest = bytes(self.buffer.rest[:size])
        if n >= 0:
            return keys.set_value_span(n, rest, size)
        n = keys.add_hashed(words.at[1], words.size[1], rest, size, self.buffer.hash)
        return self._added(words, n)

    @cython.ccall
    def keep_object(self, words: ArgumentSpans, n: cython.Py_ssize_t, value: object) -> cython.bint:
        """Make an object the value of the key in words[1], as `keep_bytes` does; it rests later if it is small."""
        key: bytes = words.get(1)
        if n >= 0:
            self.keys.set_entry_value(n, value)
        else:
            n = self.keys.add_or_find(key)
            self.keys.set_entry_value(n, value)
            self._added(words, n)
        self.created.append(key)
        return self.ledger.note(value)

    @cython.cfunc
    def _added(self, words: ArgumentSpans, n: cython.Py_ssize_t) -> cython.bint:
        """Update what is attached to a new key."""
        if self.access.stamp >= 0:
            self.keys.put_lru(n, self.access.stamp)
        else:
            self.access.start(self.keys, n)
        if self.on_new is not None:
            self.on_new(self, words.get(1))
        return not self.blocking_keys or self.signal_ready(words.get(1))

    @cython.ccall
    @cython.exceptval(-2, check=False)
    def find_untouched(self, key: bytes, notify: cython.bint = True) -> cython.Py_ssize_t:
        """Do `find_read` without recording the access (db.c: LOOKUP_NOTOUCH, LOOKUP_NONOTIFY). O(1)"""
        n: cython.Py_ssize_t = self.keys.find(key)
        if n >= 0 and self._any_expires() and self.expire_if_needed(key):
            n = -1
        if n < 0 and not notify:
            self.misses += 1
        else:
            self.count_read(key, n >= 0)
        return n

    @cython.ccall
    def lookup(self, key: bytes) -> object:
        """Return the key's value, which the caller may change, or None; see `find` (lookupKeyWrite). O(1)"""
        n: cython.Py_ssize_t = self.find(key)
        return None if n < 0 else self._wake(key, n)

    @cython.ccall
    def view(self, key: bytes) -> Any:
        """Do `lookup` for a caller that does not change the value. O(1)"""
        n: cython.Py_ssize_t = self.find(key)
        return None if n < 0 else self.value_at(n)

    @cython.ccall
    def view_read(self, key: bytes) -> Any:
        """Do `lookup_read` for a caller that does not change the value. O(1)"""
        n: cython.Py_ssize_t = self.find_read(key)
        return None if n < 0 else self.value_at(n)

    @cython.ccall
    def view_untouched(self, key: bytes, notify: cython.bint = True) -> Any:
        """Do `find_untouched` and return the value, which the caller does not change, or None. O(1)"""
        n: cython.Py_ssize_t = self.find_untouched(key, notify)
        return None if n < 0 else self.value_at(n)

    @cython.ccall
    def peek(self, key: bytes) -> Any:
        """Return the key's value even if it has expired, or None; the caller does not change it. O(1)"""
        n: cython.Py_ssize_t = self.keys.find(key)
        return None if n < 0 else self.value_at(n)

    def awake_value(self, key: bytes) -> Any:
        """Return the object of a key, or None if the key does not exist or its value rests. O(1)"""
        n: cython.Py_ssize_t = self.keys.find(key)
        return None if n < 0 else self.keys.object_at(n)

    @cython.ccall
    def value_at(self, n: cython.Py_ssize_t) -> Any:
        """Return the value of an entry of `keys`, a copy if it rests. O(1)"""
        value: object = self.keys.object_at(n)
        return awaken(self.keys.entry_value(n)) if value is None else value

    def type_at(self, n: cython.Py_ssize_t) -> type:
        """Return the class of the value of an entry of `keys`. O(1)"""
        value: object = self.keys.object_at(n)
        return type_at_rest(self.keys.value_byte(n)) if value is None else type(value)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _any_expires(self) -> cython.bint:
        return self.expires.used0 != 0 or self.expires.used1 != 0

    @cython.ccall
    def lookup_read(self, key: bytes) -> object:
        """Look up a key and count a keyspace hit or miss for INFO (db.c: lookupKeyRead). O(1)

        The caller does not change the value: it is a copy if no command has accessed the key for a while.
        """
        keys: Dict = self.keys
        n: cython.Py_ssize_t = keys.find(key)
        if n < 0 or (self._any_expires() and self.expire_if_needed(key)):
            self.count_read(key, False)
            return None
        self.hits += 1
        recent: cython.bint = True
        if self.access.stamp >= 0:
            recent = self.access.stamp - keys.lru(n) <= _RECENT
            keys.put_lru(n, self.access.stamp)
        else:
            self.access.touch(keys, n)
        value: object = self._wake(key, n) if recent else self.value_at(n)
        if type(value) is Stream:  # commands of consumer groups change a stream that they look up for reading
            self.ledger.note(value)
        return value

    @cython.ccall
    def count_read(self, key: bytes, found: cython.bint) -> cython.bint:
        """Count the keyspace hit or miss of a second lookup that Redis makes but rillet's command does not. O(1)"""
        if found:
            self.hits += 1
        else:
            self.misses += 1
            if self.on_missed is not None:
                self.on_missed(self, key)
        return True

    @cython.ccall
    def touch_access(self, key: bytes) -> cython.bint:
        """Record an access of a key, as a lookup does. O(1)"""
        n: cython.Py_ssize_t = self.keys.find(key)
        if n >= 0:
            self.access.touch(self.keys, n)
        return True

    @cython.ccall
    def touch_modified(self, key: bytes) -> cython.bint:
        """Record a change of a key's value for the LRM policies (db.c: updateLRM). O(1)"""
        n: cython.Py_ssize_t = self.keys.find(key)
        if n >= 0:
            self.access.touch_modified(self.keys, n)
        return True

    def set_access_bits(self, key: bytes, bits: int) -> None:
        """Set the LRU or LFU data of an existing key. O(1)"""
        self.keys.set_lru(self.keys.find(key), bits)

    def restore_access(self, key: bytes, idle: int, frequency: int) -> None:
        """Set the idle time (s) or the access frequency of an existing key from a file; -1: not given. O(1)"""
        self.access.restore(self.keys, self.keys.find(key), idle, frequency)

    @cython.ccall
    def is_expired(self, key: bytes) -> cython.bint:
        """Return whether the key has expired: it does not exist for commands (db.c: keyIsExpired)."""
        if not self._any_expires():
            return False
        n: cython.Py_ssize_t = self.expires.find(key)
        if n < 0 or self.expires.number(n) >= self.clock.now_ms():
            return False
        return self.may_expire is None or self.may_expire()

    @cython.ccall
    def expire_if_needed(self, key: bytes) -> cython.bint:
        """Delete the key and notify `on_expired` if it has expired; return whether it did (db.c: expireIfNeeded).

        The key stays if expired keys may not be deleted now.
        """
        if not self.is_expired(key):
            return False
        if self.may_delete is not None and not self.may_delete():
            return True
        self.delete(key, True)
        if self.on_expired is not None:
            self.on_expired(self, key)
        return True

    @cython.ccall
    def expire_entries(self, due: list[Any], names: cython.bint) -> list[bytes]:
        """Delete the keys of entries of `expires`, without `on_expired`; return the keys if `names`. O(due)

        The expiry cycle calls this: it has the entries, so no key is hashed again, and rarely one becomes an object.
        """
        expires: Dict = self.expires
        attached: cython.bint = bool(self.watched_keys) or bool(self.blocking_keys) or bool(self.idmp_keys)
        attached = attached or self.subexpires.count() > 0 or self.tracking is not None
        found: list[bytes] = []
        unlinked: list[Any] = []
        n: cython.Py_ssize_t
        keys: Dict = self.keys
        expires.pauses += 1  # the entries keep their numbers
        keys.pauses += 1  # the gaps are filled later, by `tidy`: most neighbours may expire, too
        try:
            keys.prefetch_same(expires, due)
            for n in due:
                if names or attached:
                    found.append(expires.entry_key(n))
                value: object = keys.take_same(expires, n)
                if value is not None:
                    self.ledger.leave(value)
                    if self.on_unlinked is not None and type(value) is ModuleValue:
                        unlinked.append((expires.entry_key(n), value))
                expires.delete_entry(n)
                if value is not None:
                    if self.lazy is not None and type(value) is not String:
                        self.lazy.add(value)
        finally:
            expires.pauses -= 1
            keys.pauses -= 1
        keys.tidy(1)
        expires.tidy(1)
        if attached:
            for key in found:
                self._deleted(key)
                self.touch(key, True)
        for key, value in unlinked:
            self.on_unlinked(self, key, value)  # type: ignore[misc]
        return found

    @cython.ccall
    def tidy(self, times: cython.Py_ssize_t) -> cython.bint:
        """Fill some of the gaps that `expire_entries` left; return whether gaps remain. O(times)"""
        return self.keys.tidy(times) | self.expires.tidy(times)

    # -- values at rest ----------------------------------------------------------------------------

    @cython.ccall
    def wake(self, key: bytes) -> Any:
        """Return the object of an existing key, which the caller may change, without an access. O(1)"""
        return self._wake(key, self.keys.find(key))

    @cython.ccall
    def unpack(self, words: ArgumentSpans, n: cython.Py_ssize_t) -> object:
        """Return the object of entry n, whose key is words[1], for a caller that may change it. O(1)"""
        value: object = self.keys.object_at(n)
        if value is None:
            return self._wake(words.get(1), n)
        self.ledger.note(value)
        return value

    @cython.cfunc
    def _wake(self, key: bytes, n: cython.Py_ssize_t) -> object:
        """Return the object of an entry; a value at rest gets one."""
        value: object = self.keys.object_at(n)
        if value is None:
            value = awaken(self.keys.entry_value(n))
            self.keys.wake_entry(n, value)
            self.awake.append(key)
        self.ledger.note(value)
        return value

    @cython.ccall
    def rest_oldest(self) -> cython.bint:
        """Return created values to rest, and those woken first while more than `awake_limit` are awake. O(1)

        Call this between two commands: an object that is changed after it went to rest would lose the change.
        """
        key: bytes
        n: cython.Py_ssize_t
        count: cython.Py_ssize_t = min(len(self.created), _RESTED)
        while count > 0:
            count -= 1
            self._rested += 1
            key = self.created.pop()
            n = self.keys.find(key)
            if n >= 0:
                self._rest(n)
        count = min(len(self.awake) - self._first_awake - self.awake_limit, _RESTED)
        while count > 0:
            count -= 1
            key = self.awake[self._first_awake]  # type: ignore[assignment]
            self.awake[self._first_awake] = None
            self._first_awake += 1
            self._rested += 1
            n = self.keys.find(key)
            if n >= 0:
                self._rest(n)
        if 2 * self._first_awake > len(self.awake):
            del self.awake[: self._first_awake]
            self._first_awake = 0
        if self._rested >= _SWEPT:
            self._rested = 0
            self.rest_some(_SWEPT)
        return True

    @cython.ccall
    def rest_some(self, slots: cython.Py_ssize_t) -> cython.bint:
        """Return values to rest among the next `slots` entries of a walk; free lists of objects that are empty.

        The walk finds values that were too large to rest and became small. Call this between two commands.
        """
        n: cython.Py_ssize_t
        for n in self.keys.next_objects(slots):
            self._rest(n)
        return True

    @cython.cfunc
    def _rest(self, n: cython.Py_ssize_t) -> cython.bint:
        """Return the value of an entry to rest, if it is awake and small."""
        value: object = self.keys.object_at(n)
        if value is not None:
            rest: bytes | None = to_rest(value)
            if rest is not None:
                self.ledger.leave(value)
                return self.keys.rest_entry(n, rest)
            self.keys.set_entry_value(n, value)  # bytes from which it was woken are out of date
        return False

    # -- changes -----------------------------------------------------------------------------------

    @cython.ccall
    def set(self, key: bytes, value: object, keep_ttl: cython.bint = False) -> cython.bint:
        """Set the value of a key to an object, which the caller may change; return whether the key existed. O(1)"""
        if not isinstance(value, Stream) and not _is_among_last(self.awake, key):
            self.created.append(key)
        return self._set_object(key, value, keep_ttl)

    @cython.cfunc
    def _set_object(self, key: bytes, value: object, keep_ttl: cython.bint) -> cython.bint:
        if self._any_expires():
            self.expire_if_needed(key)
        n: cython.Py_ssize_t = self.keys.add_or_find(key)
        new: cython.bint = self.keys.added
        # The old value is freed at the end of this method, when the dict is complete again.
        old: object = None if new else self.keys.object_at(n)
        self.keys.set_entry_value(n, value)
        self.ledger.note(value)
        return self._after_set(key, len(key), n, new, old if old is not value else None, keep_ttl)

    @cython.ccall
    def set_string(
        self, key: bytes, data: bytes, form: cython.int = 0, keep_ttl: cython.bint = False
    ) -> cython.bint:
        """Set the value of a key to a string, which is packed if it is small; return whether the key existed. O(1)"""
        if len(data) > _LIMIT or form > _LAST_STRING:
            return self._set_object(key, new_string(data, form), keep_ttl)
        return self.set_string_span(key, len(key), data, len(data), form, keep_ttl)

    @cython.cfunc
    def set_string_span(
        self, at: cython.p_const_uchar, size: cython.Py_ssize_t, data: cython.p_const_uchar, length: cython.Py_ssize_t,
        form: cython.int, keep_ttl: cython.bint,
    ) -> cython.bint:  # fmt: skip
        """Do `set_string` for the `size` bytes of a key and the `length` bytes of a value at addresses. O(length)"""
        if length > _LIMIT or form > _LAST_STRING:
            return self.set_string(at[:size], data[:length], form, keep_ttl)
        keys: Dict = self.keys
        expires: Dict = self.expires
        h: cython.uint = hash_bytes(at, size)
        due: cython.Py_ssize_t = -1
        if expires.used0 or expires.used1:
            due = expires.find_hashed(at, size, h)
            if due >= 0 and expires.number(due) < self.clock.now_ms() and self.expire_if_needed(at[:size]):
                due = expires.find_hashed(at, size, h)
            elif due >= 0 and self.embeds_expiry and form != _RAW and length <= _MOST_EMBEDDED:
                form = _form_with_expiry(size, data[:length], form)
        packed: cython.p_uchar = self.buffer.rest
        if cython.compiled:
            packed[0] = form
            memcpy(packed + 1, data, length)
        else:
            packed = bytes([form]) + data[:length]
        n: cython.Py_ssize_t = keys.add_hashed(at, size, packed, length + 1, h)
        new: cython.bint = keys.added
        # The old value is freed at the end of this method, when the dict is complete again.
        old: object = None
        if not new:
            old = keys.object_at(n)
            keys.set_value_span(n, packed, length + 1)
            if old is not None:
                keys._set_object(n, None)
        if due >= 0 and not keep_ttl:
            expires.delete_entry(due)
        return self._after_set(at, size, n, new, old, True)

    @cython.cfunc
    def _set_bytes(self, key: bytes, rest: bytes, keep_ttl: cython.bint) -> cython.bint:
        """Set the value of a key to bytes of `to_rest`; return whether the key existed."""
        if self._any_expires():
            self.expire_if_needed(key)
        n: cython.Py_ssize_t = self.keys.add_value(key, rest)
        new: cython.bint = self.keys.added
        old: object = None
        if not new:
            old = self.keys.object_at(n)
            self.keys.set_entry_value(n, rest)
        return self._after_set(key, len(key), n, new, old, keep_ttl)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def _after_set(
        self, at: cython.p_const_uchar, size: cython.Py_ssize_t, n: cython.Py_ssize_t, new: cython.bint, old: object,
        keep_ttl: cython.bint,
    ) -> cython.bint:  # fmt: skip
        """Update what is attached to a key that was set; return whether the key existed. old: its former object."""
        if old is not None:
            self.ledger.leave(old)
        if self.access.stamp >= 0:
            self.keys.put_lru(n, self.access.stamp)
        elif new:
            self.access.start(self.keys, n)
        else:
            self.access.overwrite(self.keys, n)
        if new:
            if self.on_new is not None:
                self.on_new(self, at[:size])
        else:
            if not keep_ttl and self._any_expires():
                self.expires.delete_span(at, size)
            if self.subexpires.count():
                self.subexpires.remove(at[:size])
            if old is not None and self.lazy_server_del and self.lazy is not None:
                self.lazy.add(old)
        # Clients may be blocked on a key that is created. If a value is replaced, those of XREADGROUP are notified that
        # the stream is gone; others stay blocked, whatever the new value is (db.c: dbAddInternal, dbSetValue).
        if self.blocking_keys and (new or (type(old) is Stream and self._awaits_group(at[:size]))):
            self.signal_ready(at[:size])
        if self.on_unlinked is not None and type(old) is ModuleValue:
            self.on_unlinked(self, at[:size], old)
        return not new

    def _awaits_group(self, key: bytes) -> bool:
        """Return whether a client waits for a consumer group of the key."""
        waiting = self.blocking_keys.get(key)
        return waiting is not None and waiting.includes("xreadgroup")

    @cython.ccall
    def put(self, key: bytes, value: object) -> cython.bint:
        """Set the value of a key to an object that the caller does not change any more; return whether it existed."""
        rest: bytes | None = to_rest(value)
        existed: cython.bint = (
            self._set_object(key, value, False) if rest is None else self._set_bytes(key, rest, False)
        )
        if type(value) is Hash and value.expiry is not None and value.expiry.due:
            self._register(key, value.expiry.due)
        return existed

    def exchange(self, key: bytes, value: object) -> None:
        """Replace the value of an existing key by an equal one, with no effect on anything else. O(1)"""
        n: cython.Py_ssize_t = self.keys.find(key)
        old: object = self.keys.object_at(n)
        self.keys.set_entry_value(n, value)
        if old is not None:
            self.ledger.leave(old)
        self.ledger.note(value)
        self._rest(n)

    @cython.ccall
    def replace_string(
        self, key: bytes, data: bytes, keep_ttl: cython.bint = False, form: cython.int = 0
    ) -> cython.bint:
        """Do `set_string`, and notify that the old value was overwritten (db.c: setKey). O(1)"""
        if self.on_overwritten is None:
            return self.set_string(key, data, form, keep_ttl)
        return self.replace_string_span(key, len(key), data, len(data), form, keep_ttl)

    @cython.cfunc
    def replace_string_span(
        self, at: cython.p_const_uchar, size: cython.Py_ssize_t, data: cython.p_const_uchar, length: cython.Py_ssize_t,
        form: cython.int, keep_ttl: cython.bint,
    ) -> cython.bint:  # fmt: skip
        """Do `replace_string` for a key and a value at addresses. O(length)"""
        if self.on_overwritten is None:
            return self.set_string_span(at, size, data, length, form, keep_ttl)
        key: bytes = at[:size]
        # Not an access: the caller's lookup has counted it.
        old: object = None if self.expire_if_needed(key) else self.peek(key)
        existed: cython.bint = self.set_string_span(at, size, data, length, form, keep_ttl)
        self.notify_overwritten(key, old, self.peek(key))
        return existed

    def notify_overwritten(self, key: bytes, old: object, value: object) -> None:
        """Notify that a command replaced the value `old` of a key. Call this after the command's own event."""
        if old is not None and self.on_overwritten is not None:
            self.on_overwritten(self, key, old, value)

    @cython.ccall
    def delete(self, key: bytes, lazy: cython.bint = False) -> cython.bint:
        """Delete the key and its expiry; return False if it does not exist. O(1)

        With `lazy`, the value is freed in steps if it is large. The caller must then have dropped it.
        """
        n: cython.Py_ssize_t = self.keys.find(key)
        if n < 0:
            return False
        # The value is freed at the end of this method, when the dict is complete again.
        value: object = self.keys.object_at(n)
        self.keys.delete_entry(n)
        if value is not None:
            self.ledger.leave(value)
        if self._any_expires():
            self.expires.delete(key)
        self._deleted(key)
        if self.on_unlinked is not None and type(value) is ModuleValue:
            self.on_unlinked(self, key, value)
        if lazy and value is not None and self.lazy is not None and type(value) is not String:
            self.lazy.add(value)
        return True

    @cython.ccall
    def delete_replaced(self, key: bytes) -> cython.bint:
        """Delete a key that a command replaces or empties, as lazyfree-lazy-server-del says (db.c: dbDelete). O(1)"""
        return self.delete(key, self.lazy_server_del)

    @cython.cfunc
    def _deleted(self, key: bytes) -> cython.bint:
        """Update what is attached to a key that was deleted."""
        if self.subexpires.count():
            self.subexpires.remove(key)
        if self.idmp_keys:
            self.idmp_keys.pop(key, None)
        if self.blocking_keys:
            self.signal_ready(key)
        return True

    def flush(self, lazy: bool = False) -> int:
        """Delete all keys; return their number and mark the watchers of existing keys. O(watched)

        With `lazy`, tables and values are freed in steps, else at once, in O(keys).
        """
        removed = len(self.keys)
        self._touch_all(None)
        waited = [key for key in self.blocking_keys if key in self.keys]
        if lazy and self.lazy is not None:
            self.lazy.add_database(self.keys.detach(), self.expires.detach(), self.ledger.total)
        else:
            gate: GrowthGate | None = self.keys.gate
            self.keys = Dict(values=True, objects=True, newest=self.keys.newest)
            self.expires = Dict(numbers=True, newest=self.expires.newest)
            self.limit_growth(gate)
        self.awake = []
        self.created = []
        self._first_awake = 0
        self.ledger = Ledger()
        self.idmp_keys = {}
        self.subexpires = DueTimes()
        self.expires_cursor = 0
        self.average_ttl = 0
        for key in waited:
            self.signal_ready(key)
        return removed

    def limit_growth(self, gate: GrowthGate | None) -> None:
        """Let a gate decide whether the dicts may allocate larger tables."""
        self.keys.gate = self.expires.gate = gate

    def resize_as(self, newest: bool) -> None:
        """Let the dicts grow and shrink as in Redis 7.4 and later, or as in 7.0: see structs/dict.py."""
        self.keys.newest = self.expires.newest = newest

    def swap(self, other: Any) -> None:
        """Exchange keys and expiries with another database, but not watchers and blocked clients (dbSwapDatabases)."""
        self._touch_all(other)
        other._touch_all(self)
        self.keys, other.keys = other.keys, self.keys
        self.expires, other.expires = other.expires, self.expires
        self.ledger, other.ledger = other.ledger, self.ledger
        self.awake, other.awake = other.awake, self.awake
        self.created, other.created = other.created, self.created
        self._first_awake, other._first_awake = other._first_awake, self._first_awake
        self.idmp_keys, other.idmp_keys = other.idmp_keys, self.idmp_keys
        self.subexpires, other.subexpires = other.subexpires, self.subexpires
        self.expires_cursor, other.expires_cursor = other.expires_cursor, self.expires_cursor
        self.average_ttl, other.average_ttl = other.average_ttl, self.average_ttl
        for database in (self, other):
            for key in list(database.blocking_keys):
                database.signal_ready(key)

    # -- expiry ------------------------------------------------------------------------------------

    @cython.ccall
    def get_expire(self, key: bytes) -> cython.longlong:
        """Return the expiry time of the key (ms since the epoch), or -1. O(1)"""
        n: cython.Py_ssize_t = self.expires.find(key)
        return -1 if n < 0 else self.expires.number(n)

    @cython.ccall
    def set_expire(self, key: bytes, when: cython.longlong) -> cython.bint:
        """Set the expiry time of an existing key (ms since the epoch). O(1)"""
        assert self.keys.find(key) >= 0
        return self.set_expire_span(key, len(key), when)

    @cython.cfunc
    def set_expire_span(
        self, at: cython.p_const_uchar, size: cython.Py_ssize_t, when: cython.longlong
    ) -> cython.bint:
        """Do `set_expire` for the `size` bytes of a key at an address. O(1)"""
        self.expires.set_number(self.expires.add_span(at, size, at, -1), when)
        if self.embeds_expiry:
            self._separate(at[:size])
        return self._note_expiry(when)

    @cython.cfunc
    def _separate(self, key: bytes) -> cython.bint:
        """Make a string raw that does not fit beside its key and an expiry (Valkey's objectSetExpire)."""
        n: cython.Py_ssize_t = self.keys.find(key)
        value: object = self.keys.object_at(n)
        if value is not None:
            if isinstance(value, String):
                string: String = value
                string.form = _form_with_expiry(len(key), string.value(), string.form)
        elif self.keys.value_byte(n) <= _LAST_STRING and self.keys.value_size(n) <= _MOST_EMBEDDED + 1:
            packed: bytes = self.keys.entry_value(n)
            form: cython.int = packed[0]
            if _form_with_expiry(len(key), packed[1:], form) != form:
                self.keys.set_entry_value(n, bytes([_RAW]) + packed[1:])
        return True

    @cython.cfunc
    def _note_expiry(self, when: cython.longlong) -> cython.bint:
        """Call `on_expiry` if a key or field expires before `notify_before`."""
        if when < self.notify_before and self.on_expiry is not None:
            self.notify_before = NEVER_DUE
            try:
                self.on_expiry()
            except RuntimeError:  # no thread can be started: the key is deleted when a command accesses it
                pass
        return True

    @cython.ccall
    def set_due(self, key: bytes, value: object, when: cython.longlong) -> cython.bint:
        """Register an existing hash, awake, for the next expiry of its fields; 0: none expires. O(log n)"""
        value.expiry.due = when  # type: ignore[attr-defined]
        if when:
            return self._register(key, when)
        return self.subexpires.remove(key)

    @cython.cfunc
    def _register(self, key: bytes, when: cython.longlong) -> cython.bint:
        self.subexpires.set(key, when)
        return self._note_expiry(when)

    @cython.ccall
    def persist(self, key: bytes) -> cython.bint:
        """Remove the key's expiry; return False if it has none. O(1)"""
        return self.expires.delete(key)

    # -- watched and blocking keys -------------------------------------------------------------------

    def expire_idmp(self, now: int) -> None:
        """Remove expired messages of idempotent producers (t_stream.c: handleExpiredIdmpEntries)."""
        for key in list(self.idmp_keys):
            stream = self.peek(key)
            idmp = stream.idmp if isinstance(stream, Stream) else None
            if idmp is None:
                del self.idmp_keys[key]
                continue
            if idmp.expire(now):
                self.touch(key)
            if not idmp.producers:
                del self.idmp_keys[key]

    @cython.ccall
    def touch(self, key: bytes, by_server: cython.bint = False) -> cython.bint:
        """Mark all watchers of the key, and report its change to clients that cache it (db.c: signalModifiedKey).

        by_server: no client made the change: the key expired or was evicted. O(watchers + clients that read the key)
        """
        if self.tracking is not None:
            self.tracking.invalidate(key, None if by_server else self.tracking.writer)
        return self.touch_watchers(key)

    @cython.cfunc
    def touch_watchers(self, key: bytes) -> cython.bint:
        """Mark all watchers of the key. O(watchers)"""
        if self.watched_keys:
            watchers = self.watched_keys.get(key)
            if watchers is not None:
                for watcher in watchers:
                    if watcher.stale and (self, key) in watcher.stale:
                        if key not in self.keys:
                            watcher.stale.discard((self, key))
                    else:
                        watcher.dirty = True
        return True

    def _touch_all(self, replacement: Any) -> None:
        """Mark the watchers of the keys that `replacement` removes or adds (multi.c: touchAllWatchedKeysInDb)."""
        for key, watchers in self.watched_keys.items():
            comes = replacement is not None and key in replacement.keys
            if not comes and key not in self.keys:
                continue
            comes_expired = comes and replacement.is_expired(key)
            for watcher in watchers:
                stale = watcher.stale is not None and (self, key) in watcher.stale
                if stale and not comes:
                    watcher.stale.discard((self, key))
                elif comes_expired and (stale or key not in self.keys):
                    watcher.add_stale(self, key)
                else:
                    watcher.dirty = True

    def watch(self, key: bytes, watcher: Watcher) -> None:
        """Register a watcher, which is marked when the key changes. O(1)"""
        watchers = self.watched_keys.setdefault(key, set())
        if watcher not in watchers:
            watchers.add(watcher)
            watcher.keys.append((self, key))
            if self.is_expired(key):
                watcher.add_stale(self, key)

    @cython.ccall
    def signal_ready(self, key: bytes) -> cython.bint:
        """Record that a key with blocked clients changed; the engine serves them later (signalKeyAsReady)."""
        if self.blocking_keys and key in self.blocking_keys and key not in self.ready_keys:
            self.ready_keys[key] = None
            if self.on_ready is not None:
                self.on_ready(self)
        return True

    # -- iteration -----------------------------------------------------------------------------------

    def items(self) -> Iterator[tuple[bytes, Any]]:
        """Yield keys and values, expired ones included. The caller may change the database meanwhile. O(keys)

        The caller does not change the values, some of which are copies of values at rest.
        """
        keys = self.keys
        for n in keys.entries():
            yield keys.entry_key(n), self.value_at(n)

    def expiries(self) -> Iterator[tuple[bytes, int]]:
        """Yield the keys that have an expiry, with its time in ms since the epoch. O(keys with an expiry)"""
        expires = self.expires
        for n in expires.entries():
            yield expires.entry_key(n), expires.number(n)

    def live_keys(self) -> Iterator[list[bytes]]:
        """Yield the keys that have not expired, in lists of at most 1,024, without deleting any. O(keys)

        The caller must not change the keyspace meanwhile.
        """
        now = self.clock.now_ms()
        expire = self._any_expires() and (self.may_expire is None or self.may_expire())
        for first in range(0, self.keys.top, _BATCH):
            keys = self.keys.keys_between(first, first + _BATCH)
            if expire:
                keys = [key for key in keys if not -1 != self.get_expire(key) < now]
            yield keys

    def scan(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """Return the next cursor (0 at the end) and about `count` keys, from 10 * count buckets at most (dictScan).

        A key that exists during the whole scan is returned at least once. Nothing is stored between two calls.
        """
        following, found = self.keys.scan(cursor, count)
        return following, [self.keys.entry_key(n) for n in found]

    def scan_type(self, cursor: int, count: int, kind: type) -> tuple[int, list[bytes]]:
        """Do `scan`, but return only the keys whose values have this type."""
        following, found = self.keys.scan(cursor, count)
        return following, [self.keys.entry_key(n) for n in found if self.type_at(n) is kind]

    def random_key(self) -> bytes | None:
        """Return a random key, or None; expired keys that are drawn are deleted (db.c: dbRandomKey). O(1) expected

        If they may not be deleted now, the last of 100 draws may be an expired key.
        """
        tries = _DRAWS
        while (n := self.keys.fair_random_entry()) >= 0:
            key = self.keys.entry_key(n)
            tries -= 1
            if not self.expire_if_needed(key) or (tries <= 0 and key in self.keys):
                return key
        return None

    def check(self) -> None:
        """Raise AssertionError if an expiry has no key, or if a dict's or a value's own check fails."""
        self.keys.check()
        self.expires.check()
        assert all(key in self.keys for key in self.expires)
        self.subexpires.check()
        registered = dict(self.subexpires.items())
        for key, value in self.items():
            expiry = value.expiry if isinstance(value, Hash) else None
            assert registered.pop(key, 0) == (0 if expiry is None else expiry.due)
            assert expiry is None or expiry.due or not value.earliest(), "a hash with expiry is not registered"
        assert not registered
        objects = (self.keys.object_at(n) for n in self.keys.entries())
        self.ledger.check(value for value in objects if value is not None)
        for waiting in self.blocking_keys.values():
            assert waiting
        for n in self.keys.entries():
            value = self.keys.object_at(n)
            if value is None:
                rest = self.keys.entry_value(n)
                value = awaken(rest)
                assert to_rest(value) == rest and type(value) is self.type_at(n)
            value.check()
        assert all(key is None for key in self.awake[: self._first_awake])
