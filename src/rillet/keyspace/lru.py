"""The 24 bits of LRU or LFU data in the record of each key (Redis: robj.lru, evict.c, updateLFU in db.c).

    LRU, LRM    +----------------------------+    seconds since the epoch, modulo 2**24 (194 days): the last access,
                | seconds                 24 |    with LRM the last change
                +----------------------------+
    LFU         +-------------------+--------+    minutes since the epoch, modulo 2**16: the last access
                | minutes        16 | freq 8 |    freq: the logarithm of the number of accesses
                +-------------------+--------+

The setting `maxmemory-policy` selects the meaning. After a change, the old bits are read in the new meaning until the
next access of the key, as in Redis.

An access sets the time to `seconds`, a cached clock. The engine compares a tick count that it has anyway with `due`, so
an access costs one store into the record that the lookup has read before. A frequency grows with probability
1 / ((freq - 5) * lfu-log-factor + 1), and falls by 1 for each `lfu-decay-time` minutes without access.

When a clock has gone round since the access, Redis counts its maximum instead of its period, so the idle time is one
second short. Valkey counts exactly (`exact`), and its OBJECT FREQ writes the frequency back with the present minute.

No access is recorded while a child process saves (each changed page would be copied), and while a client with CLIENT
NO-TOUCH runs a command (`untouched`).
"""

from __future__ import annotations

from random import getrandbits
from typing import Any
from weakref import WeakSet

from rillet._cython import cython, public, readonly
from rillet.keyspace.clock import Clock
from rillet.structs.dict import Dict

LRU, LFU, LRM = 0, 1, 2
"""The meanings of the bits. LRM (least recently modified) exists in the newest Redis."""
LFU_INITIAL = 5
"""The frequency of a new key (LFU_INIT_VAL)."""
_LRU = cython.declare(cython.int, 0)
_LFU = cython.declare(cython.int, 1)
_LRM = cython.declare(cython.int, 2)
_LFU_INITIAL = cython.declare(cython.long, 5)
_MAX = cython.declare(cython.long, (1 << 24) - 1)
_MAX_MINUTES = cython.declare(cython.long, (1 << 16) - 1)

_child_saves = cython.declare(cython.bint, False)
_clocks: WeakSet[Any] = WeakSet()


def set_child_saves(saves: bool) -> None:
    """Record whether a child of this process saves; accesses are not recorded meanwhile (hasActiveChildProcess)."""
    global _child_saves
    _child_saves = saves
    for clock in _clocks:
        clock.choose_stamp()


@cython.final
@cython.cclass
class AccessClock:
    """The clock of an engine's LRU and LFU data, and the functions that write and read the data of an entry.

    seconds, minutes: the time as the bits hold it. due: the ticks (Clock.ticks) at which `update` must be called.
    mode: LRU, LFU or LRM. exact: compute times modulo 2**24 and 2**16, as Valkey does. untouched: accesses are not
    recorded. stamp: `seconds` if an access sets the bits to it, else -1.
    """

    __slots__ = (
        "clock", "decay_time", "due", "exact", "log_factor", "minutes", "mode", "seconds", "stamp", "untouched",
        "_random", "__weakref__",
    )  # fmt: skip
    clock: readonly[Clock]
    seconds: readonly[cython.long]
    minutes: readonly[cython.long]
    due: readonly[cython.longlong]
    mode: public[cython.int]
    log_factor: public[cython.long]
    decay_time: public[cython.long]
    untouched: public[cython.bint]
    exact: public[cython.bint]
    stamp: readonly[cython.long]
    _random: cython.ulonglong
    __weakref__: Any

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.mode = LRU
        self.log_factor = 10
        self.decay_time = 1
        self.exact = False
        self.untouched = False
        self._random = getrandbits(63) | 1
        self.update()
        _clocks.add(self)

    @cython.ccall
    def update(self) -> cython.bint:
        """Read the clock (getLRUClock)."""
        now: cython.longlong = self.clock.now_ms()
        self.seconds = now // 1000 & _MAX
        self.minutes = now // 60_000 & _MAX_MINUTES
        self.due = self.clock.ticks() + (1000 - now % 1000) * 1_000_000
        return self.choose_stamp()

    @cython.ccall
    def choose_stamp(self) -> cython.bint:
        """Set `stamp`; call this after a change of `mode` or `untouched`."""
        self.stamp = self.seconds if self.mode == _LRU and not self.untouched and not _child_saves else -1
        return True

    # -- writing the bits ----------------------------------------------------------------------------

    @cython.ccall
    def touch(self, keys: Dict, n: cython.Py_ssize_t) -> cython.bint:
        """Record an access of an entry (db.c: lookupKey). O(1)"""
        if _child_saves or self.untouched:
            return True
        if self.mode == _LRU:
            return keys.set_lru(n, self.seconds)
        if self.mode == _LFU:
            return keys.set_lru(n, self.minutes << 8 | self._incremented(self._decayed(keys.lru(n))))
        return True

    @cython.ccall
    def touch_modified(self, keys: Dict, n: cython.Py_ssize_t) -> cython.bint:
        """Record a change of an entry's value (db.c: updateLRM). O(1)"""
        if self.mode == _LRM:
            keys.set_lru(n, self.seconds)
        return True

    @cython.ccall
    def start(self, keys: Dict, n: cython.Py_ssize_t) -> cython.bint:
        """Set the bits of a new entry (initObjectLRUOrLFU). O(1)"""
        return keys.set_lru(n, self.minutes << 8 | _LFU_INITIAL if self.mode == _LFU else self.seconds)

    @cython.ccall
    def overwrite(self, keys: Dict, n: cython.Py_ssize_t) -> cython.bint:
        """Record that a value replaces another; the lookup before it has counted the access for LFU (dbSetValue)."""
        if self.mode != _LFU and not self.untouched:
            keys.set_lru(n, self.seconds)
        return True

    def restore(self, keys: Dict, n: int, idle: int, frequency: int) -> None:
        """Set the bits from a file or RESTORE; -1: not given (objectSetLRUOrLFU). O(1)"""
        if self.mode == LFU:
            if frequency >= 0:
                keys.set_lru(n, self.minutes << 8 | frequency)
        elif idle >= 0:
            then = self.seconds - idle
            if then < 0 and not self.exact:
                then += (1 << 24) - 1  # once, also if the time stays negative
            keys.set_lru(n, then & 0xFFFFFF)

    # -- reading the bits ----------------------------------------------------------------------------

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def idle_time(self, bits: cython.long) -> cython.long:
        """Return the seconds since the access that the bits record (estimateObjectIdleTime). O(1)"""
        if self.seconds >= bits:
            return self.seconds - bits
        return self.seconds + (_MAX - bits) + self.exact

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def frequency(self, bits: cython.long) -> cython.long:
        """Return the access frequency that the bits record, 0 to 255 (LFUDecrAndReturn). O(1)"""
        return self._decayed(bits)

    def settle(self, keys: Dict, n: int) -> int:
        """Return the access frequency of an entry and write it back, as Valkey's OBJECT FREQ does. O(1)"""
        found = self._decayed(keys.lru(n))
        keys.set_lru(n, self.minutes << 8 | found)
        return found

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _decayed(self, bits: cython.long) -> cython.long:
        """Return the frequency, less one for each `decay_time` minutes that have passed."""
        then: cython.long = bits >> 8
        count: cython.long = bits & 255
        elapsed: cython.long = self.minutes - then
        if elapsed < 0:
            elapsed += _MAX_MINUTES + self.exact
        if self.decay_time == 0:
            return count
        periods: cython.long = elapsed // self.decay_time
        return 0 if periods > count else count - periods

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _incremented(self, count: cython.long) -> cython.long:
        """Return the frequency after one more access (LFULogIncr)."""
        if count == 255:
            return 255
        above: cython.long = count - _LFU_INITIAL if count > _LFU_INITIAL else 0
        # xorshift64: the quality of its high bits is more than a probability of 1 / 2551 needs.
        x: cython.ulonglong = self._random
        whole: cython.ulonglong = 0xFFFFFFFFFFFFFFFF
        x ^= x << 13 & whole
        x ^= x >> 7
        x ^= x << 17 & whole
        self._random = x
        share: cython.double = (x >> 11) / 9007199254740992.0
        base: cython.double = above
        return count + 1 if share * (base * self.log_factor + 1.0) < 1.0 else count
