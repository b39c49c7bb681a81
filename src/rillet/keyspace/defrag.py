"""Active defragmentation: frees the memory that deletions leave behind inside values (Redis: defrag.c).

In C, freed blocks leave holes in the allocator's pages, and Redis copies living blocks to other pages. Python's objects
cannot be moved, but the values of rillet are buffers that keep their size after deletions. So this cycle compacts the
buffers themselves:

    stream         nodes that are sparse or small are packed together (types.stream.compaction)
    list           neighbouring listpacks of the quicklist are merged, within list-max-listpack-size
    array          the list of its longer strings loses its gaps
    hash, set,     the unused capacity of a listpack or an intset is released
    sorted set
    module         what the module's own method does
    hash, set,     a sparse hash table is rehashed into a smaller one; the last records and items of a table move into
    the keyspace   the gaps that deletions left (structs/dict.py)
    rax            nodes whose list of children has unused capacity are replaced when the iterator visits them (node_cb)

With `activedefrag yes` the cycle is in one of three states:

    idle ──data changed──► measuring ──fragmentation above the thresholds──► defragmenting ──► idle
     ▲                         │ a walk over all values, which counts          a second walk, which compacts
     └─────────────────────────┘ wasted bytes, at active-defrag-cycle-min

The fragmentation is the share of wasted bytes in percent of the other bytes. Redis computes it from the allocator's
statistics. The thresholds are Redis's: at least active-defrag-ignore-bytes and active-defrag-threshold-lower percent.
The effort rises from active-defrag-cycle-min percent of the time, at the lower threshold, to active-defrag-cycle-max,
at the upper threshold (computeDefragCycles). `active_defrag_running` shows it.

The work is done in steps of STEP nanoseconds, between which commands run. The frontend's timer calls `run`, which
returns the pause that leads to the required share of time. (Redis 7.0 works for up to 25 ms in each call of serverCron.
Redis 8 also has steps of 500 microseconds.) A step checks the clock after each node, so it is late by one node at most.

A walk has the cursor of SCAN, so it needs no snapshot of the keys. Values of more than one node wait in `defrag_later`,
as in Redis, and are processed before the scan continues. In a value the walk remembers the key of the last node
(stream) or a bookmark (list), so commands may change or delete the value between two steps; a replaced value is
abandoned.

The freed blocks are in the middle of the C library's heap, so after each MiB a step returns whole pages to the system
(structs.heap).

The data of each value stays the same, but its nodes may not be those of a Redis with the same history: DUMP and RDB
have other bytes, which every server loads. Therefore it is off by default, as in Redis.
Rejected: a counter of wasted bytes in each stream, which would slow each deletion; a thread, which would contend
for the interpreter's lock; relocating all nodes of a rax (3% of a stream's memory, and the other blocks stay).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from rillet.keyspace.clock import Clock
from rillet.keyspace.database import Database
from rillet.keyspace.memory_usage import value_bytes
from rillet.structs.array.sparse_array import SparseArray
from rillet.structs.dict import Dict
from rillet.structs.heap import release_free_pages
from rillet.structs.intset import Intset
from rillet.structs.listpack import Listpack
from rillet.structs.quicklist import Quicklist, QuicklistNode
from rillet.types.array import Array
from rillet.types.hash import Hash
from rillet.types.list import List
from rillet.types.module import KeyPlace, ModuleValue
from rillet.types.stream.compaction import StreamCompactor
from rillet.types.stream.stream import Stream

STEP = 500_000
"""Nanoseconds of work in one step."""
IDLE = 1.0
"""Seconds until the next check whether the data has changed."""
_TRIMMED = 1 << 20  # freed bytes after which free pages are returned to the system
_KEYS = 4  # keys that one unit of work scans
_MEASURED = 16  # nodes that one unit of work measures
_ENTRIES = 64  # entries of a hash table that one unit of work moves
_SLICES = 2  # slices of an array that one unit of work compacts
_PLACE = 16  # bytes of a free place for a string
_NODE_OVERHEAD = 200  # bytes of the objects of a quicklist node, which a merge frees


class _StreamWork:
    """A walk over the nodes of a stream."""

    def __init__(self, stream: Stream, settings: Any, moves: bool) -> None:
        self._compactor = StreamCompactor(stream)
        self._settings = settings
        self._moves = moves

    def step(self) -> bool:
        if not self._moves:
            return self._compactor.measure(_MEASURED)
        return self._compactor.step(self._settings.stream_node_max_bytes, self._settings.stream_node_max_entries)

    @property
    def moved(self) -> int:
        return self._compactor.moved

    @property
    def nodes(self) -> int:
        return self._compactor.nodes

    @property
    def freed(self) -> int:
        return self._compactor.freed + self._compactor.rax_freed

    @property
    def total(self) -> int:
        return self._compactor.total

    @property
    def wasted(self) -> int:
        return self._compactor.wasted + self._compactor.rax_wasted


class _ListWork:
    """A walk over the nodes of a list; the list's bookmark is the cursor."""

    def __init__(self, elements: Quicklist, moves: bool) -> None:
        self._elements = elements
        self._moves = moves
        self.moved = self.nodes = self.total = self.wasted = self.freed = 0
        elements.bookmark = elements.head

    def step(self) -> bool:
        elements = self._elements
        if self._moves:
            freed = elements.compact()
            self.nodes += 1
            self.moved += freed > 0
            self.freed += freed
        else:
            for _ in range(_MEASURED):
                if elements.bookmark is not None:
                    self._measure(elements.bookmark)
        return elements.bookmark is not None

    def _measure(self, node: QuicklistNode) -> None:
        elements = self._elements
        elements.bookmark = node.next
        self.total += node.nbytes() if node.packed is None else len(node.packed.buf)
        if node.packed is not None:
            self.wasted += _slack(node.packed)
            if elements.can_join_next(node):
                self.wasted += _NODE_OVERHEAD


class _PackedWork:
    """The listpack or intset of a hash, set or sorted set: one step."""

    def __init__(self, packed: Listpack | Intset, moves: bool) -> None:
        self._packed = packed
        self._moves = moves
        self.nodes = 1
        if isinstance(packed, Listpack):
            self.total = len(packed.buf)
            self.wasted = _slack(packed)
        else:
            unused = packed.unused()
            self.total = packed.nbytes() + unused
            self.wasted = unused if unused > self.total >> 3 else 0
        self.moved = self.freed = 0

    def step(self) -> bool:
        if self._moves and self.wasted:
            self._packed.shrink()
            self.moved = 1
            self.freed = self.wasted
        return False


class _TableWork:
    """A hash table: first it is shrunk if three in four buckets are spare, then its gaps are filled."""

    def __init__(self, table: Dict, moves: bool) -> None:
        self._table = table
        self._moves = moves
        self.nodes = 1
        self.moved = self.freed = 0
        self.total = table.memory_bytes()
        self._sparse = not table.rehashing and 4 * len(table) <= table.buckets > 4
        self.wasted = table.wasted_bytes() + (4 * (table.buckets - 2 * len(table)) if self._sparse else 0)
        # Some gaps remain, as in the page that receives items: stop after two rounds of the entries without effect.
        self._patience = self._rounds = 8 + 2 * len(table) // _ENTRIES
        self._least = self.wasted

    def step(self) -> bool:
        table = self._table
        if not self._moves:
            return False
        if self._sparse:
            self._sparse = False
            table.resize(max(len(table), 4))
        if table.rehashing:
            remains = table.rehash(_ENTRIES) or not table.rehashing
        else:
            remains = table.defrag_step(_ENTRIES) and self._progresses()
        self.freed = self.total - table.memory_bytes()
        self.moved = int(self.freed > 0)
        return remains

    def _progresses(self) -> bool:
        wasted = self._table.wasted_bytes()
        if wasted < self._least:
            self._least = wasted
            self._patience = self._rounds
        else:
            self._patience -= 1
        return self._patience > 0


class _ArrayWork:
    """A walk over the slices of an array: strings move to free places of their list, which is then shortened."""

    def __init__(self, cells: SparseArray, moves: bool) -> None:
        self._cells = cells
        self._moves = moves
        self._slices = cells.numbered_slices() if moves and cells.spare else []
        self.nodes = max(len(self._slices), 1)
        self.moved = self.freed = 0
        self.total = cells.memory_bytes()
        spare = len(cells.spare)
        self.wasted = _PLACE * spare if spare > len(cells.strings) >> 3 else 0
        if self._slices:
            cells.begin_compaction()

    def step(self) -> bool:
        for _, part in self._slices[-_SLICES:]:
            self.moved += self._cells.compact_slice(part)
        del self._slices[-_SLICES:]
        if self._moves and not self._slices and self._cells.spare:
            self._cells.trim_strings()
            self.freed = max(self.total - self._cells.memory_bytes(), 0)
        return bool(self._slices)


class _ModuleWork:
    """A walk over a module's value: the module compacts it, and leaves a cursor if its time ends."""

    def __init__(self, value: ModuleValue, place: KeyPlace, moves: bool, clock: Clock) -> None:
        self._value = value
        self._place = place
        self._moves = moves
        self._clock = clock
        self._cursor: Any = None
        self.nodes = 1
        self.total = value.size()
        # The module cannot say in advance how much it wastes; a measurement counts a part of its values as wasted.
        self.wasted = self.total // 2 if value.type.overrides("defrag") else 0
        self.moved = self.freed = 0

    def step(self) -> bool:
        if not self._moves or not self._value.type.overrides("defrag"):
            return False
        deadline = self._clock.ticks() + STEP
        remains, run = self._value.defrag(self._place, self._cursor, lambda: self._clock.ticks() >= deadline)
        self._cursor = run.cursor
        self.moved += run.moved
        self.freed += run.freed
        return remains


# A cursor of a walk in one value: `step` processes the next nodes and returns False at the end of the value. Its
# attributes nodes, moved, freed, total and wasted are those of StreamCompactor.
_Work: TypeAlias = _StreamWork | _ListWork | _ArrayWork | _PackedWork | _TableWork | _ModuleWork


def _slack(packed: Listpack) -> int:
    """Return the unused bytes of a buffer if they are more than an eighth of it, else 0."""
    unused = len(packed.buf) - packed.used
    return unused if unused > len(packed.buf) >> 3 else 0


def _node_count(value: object) -> int:
    if isinstance(value, Stream):
        return value.node_count
    if isinstance(value, List):
        return value.elements.nodes
    if isinstance(value, Array):
        return value.cells.slices
    if isinstance(value, ModuleValue):
        return value.free_effort()
    table = getattr(value, "table", None)
    return 1 + len(table) // _ENTRIES if isinstance(table, Dict) else 1


class _Walk:
    """One walk over all values, which measures or compacts; `unit` does a small bounded part of it."""

    def __init__(self, databases: list[Database], settings: Any, moves: bool, clock: Clock) -> None:
        self._databases = databases
        self._settings = settings
        self._moves = moves
        self._clock = clock
        self._at = 0
        self._cursor = 0
        self._scanned = False
        self._value: object = None
        self._key = b""
        self._work: _Work | None = None
        self._tables: list[Dict] | None = None  # those of the keyspace that are still to do; None before a database
        self.defrag_later: deque[bytes] = deque()
        self.total = self.wasted = self.freed = 0
        self.hits = self.misses = self.key_hits = self.key_misses = 0

    @property
    def freed_so_far(self) -> int:
        """The bytes that this walk has freed."""
        return self.freed + (0 if self._work is None else self._work.freed)

    def unit(self) -> bool:
        """Process some nodes or scan some keys; return False at the end."""
        if self._at == len(self._databases):
            return False
        database = self._databases[self._at]
        if self._work is not None:
            abandoned = self._value is not None and database.awake_value(self._key) is not self._value
            if abandoned or not self._work.step():
                self._close(self._work)
        elif self._tables is None:
            self._tables = [database.keys, database.expires, database.subexpires.table]
        elif self._tables:
            self._work = _TableWork(self._tables.pop(), self._moves)
        elif self.defrag_later:
            self._open(database, self.defrag_later.popleft())
        elif self._scanned:
            self._at += 1
            self._scanned = False
            self._tables = None
        else:
            self._scan(database)
        return True

    def _scan(self, database: Database) -> None:
        self._cursor, keys = database.scan(self._cursor, _KEYS) if len(database) else (0, [])
        for key in keys:
            value = database.awake_value(key)
            if value is None:  # at rest: a part of the keyspace's table
                continue
            if _node_count(value) > 1:
                self.defrag_later.append(key)
                continue
            self._open(database, key)
            while self._work is not None:
                if not self._work.step():
                    self._close(self._work)
        self._scanned = self._cursor == 0

    def _open(self, database: Database, key: bytes) -> None:
        """Begin with the value of a key."""
        value = database.awake_value(key)
        self._key, self._value = key, value
        packed = getattr(value, "listpack", None)
        packed = getattr(value, "intset", None) if packed is None else packed
        if isinstance(value, Hash) and value.expiry is not None:
            packed = value.expiry.triples
        table = getattr(value, "table", None)
        if isinstance(value, Stream):
            self._work = _StreamWork(value, self._settings, self._moves)
        elif isinstance(value, ModuleValue):
            self._work = _ModuleWork(value, KeyPlace(database.index, key), self._moves, self._clock)
        elif isinstance(value, List):
            self._work = _ListWork(value.elements, self._moves)
        elif isinstance(value, Array):
            self._work = _ArrayWork(value.cells, self._moves)
        elif isinstance(packed, Listpack | Intset):
            self._work = _PackedWork(packed, self._moves)
        elif isinstance(table, Dict):
            self._work = _TableWork(table, self._moves)
        elif value is not None and not self._moves:
            self.total += value_bytes(value)

    def _close(self, work: _Work) -> None:
        """Count the result of a value."""
        database = self._databases[self._at]
        if self._moves and self._value is not None and database.awake_value(self._key) is self._value:
            database.ledger.note(self._value)
        if isinstance(self._value, List):
            self._value.elements.bookmark = None  # the walk may have been abandoned: the list has another key now
        self.total += work.total
        self.wasted += work.wasted
        self.freed += work.freed
        if self._moves:
            self.hits += work.moved
            self.misses += max(work.nodes - work.moved, 0)
            if self._value is not None:
                self.key_hits += work.moved > 0
                self.key_misses += work.moved == 0
        self._work = None
        self._value = None

    def stop(self) -> None:
        """End the walk early."""
        if isinstance(self._value, List):
            self._value.elements.bookmark = None


class ActiveDefrag:
    """The defragmentation of an engine's databases; the frontend calls `run` from its timer.

    running: the share of time in percent while it defragments, else 0 (active_defrag_running). hits, misses: nodes that
    were compacted, and nodes that needed nothing; key_hits, key_misses: likewise for keys.
    """

    def __init__(self, databases: list[Database], settings: Any, clock: Clock, changes: Callable[[], int]) -> None:
        """changes: returns a number that differs after data was changed."""
        self._databases = databases
        self._settings = settings
        self._clock = clock
        self._changes = changes
        self._walk: _Walk | None = None
        self._measured: int | None = None  # `changes` when the last measurement began
        self._trimmed = 0  # the freed bytes whose pages were returned to the system
        self._began = 0
        self._total_ns = 0
        self.running = 0
        # Called when the setting `activedefrag` becomes yes; a frontend without a timer starts a thread.
        self.on_enabled: Callable[[], object] | None = None
        # Called when a measurement begins: modules compact what they hold outside of keys.
        self.on_started: Callable[[], object] | None = None
        # Whether a child process shares the memory: each change of a page would be copied (hasActiveChildProcess).
        self.is_blocked: Callable[[], bool] = bool
        self.reset()

    def reset(self) -> None:
        """Set the counters to 0 (CONFIG RESETSTAT)."""
        self.hits = self.misses = self.key_hits = self.key_misses = 0
        self._total_ns = 0
        self._began = self._clock.ticks() if self.running else 0

    def take_settings(self) -> None:
        """React to a change of the settings."""
        if self._settings.activedefrag:
            self._measured = None  # also other thresholds may apply
            if self.on_enabled is not None:
                self.on_enabled()

    def stats(self) -> dict[str, int]:
        """Return the fields of INFO stats; times in ms."""
        current = self._clock.ticks() - self._began if self._began else 0
        return {
            "active_defrag_hits": self.hits, "active_defrag_misses": self.misses,
            "active_defrag_key_hits": self.key_hits, "active_defrag_key_misses": self.key_misses,
            "total_active_defrag_time": (self._total_ns + current) // 1_000_000,
            "current_active_defrag_time": current // 1_000_000,
        }  # fmt: skip

    def run(self, budget: int = STEP) -> float:
        """Work for `budget` ns; return the seconds until the next call (defrag.c: activeDefragCycle)."""
        if not self._settings.activedefrag:
            self._stop()
            return IDLE
        if self.is_blocked():
            return IDLE
        if self._walk is None:
            changes = self._changes()
            if changes == self._measured:
                return IDLE
            self._measured = changes
            self._walk = _Walk(self._databases, self._settings, moves=False, clock=self._clock)
            if self.on_started is not None:
                self.on_started()
        walk = self._walk
        if walk.freed_so_far - self._trimmed >= _TRIMMED:
            self._trimmed = walk.freed_so_far
            release_free_pages()
            return self._pause(budget)
        deadline = self._clock.ticks() + budget
        while walk.unit():
            if self._clock.ticks() >= deadline:
                self._count(walk)
                return self._pause(budget)
        self._count(walk)
        self._end(walk)
        return IDLE if self._walk is None else self._pause(budget)

    def _pause(self, budget: int) -> float:
        share = self.running or self._settings.active_defrag_cycle_min
        return budget / 1e9 * (100 - share) / share

    def _count(self, walk: _Walk) -> None:
        """Add a walk's counters to those of INFO."""
        self.hits += walk.hits
        self.misses += walk.misses
        self.key_hits += walk.key_hits
        self.key_misses += walk.key_misses
        walk.hits = walk.misses = walk.key_hits = walk.key_misses = 0

    def _end(self, walk: _Walk) -> None:
        """After a measurement, defragment if the thresholds are reached; otherwise become idle."""
        if self.running:
            self._stop()
            if walk.freed:
                release_free_pages()
            return
        self._walk = None
        self.running = self.share_for(walk.wasted, walk.total)
        if self.running:
            self._began = self._clock.ticks()
            self._walk = _Walk(self._databases, self._settings, moves=True, clock=self._clock)

    def _stop(self) -> None:
        if self._walk is not None:
            self._walk.stop()
        self._trimmed = 0
        if self._began:
            self._total_ns += self._clock.ticks() - self._began
        self._walk = None
        self._began = self.running = 0

    def share_for(self, wasted: int, total: int) -> int:
        """Return the share of time in percent for that many wasted bytes, 0 = below the thresholds."""
        settings = self._settings
        percent = 100 * wasted / max(total - wasted, 1)
        lower, upper = settings.active_defrag_threshold_lower, settings.active_defrag_threshold_upper
        least, most = settings.active_defrag_cycle_min, settings.active_defrag_cycle_max
        if percent < lower or wasted < settings.active_defrag_ignore_bytes:
            return 0
        share = least + (percent - lower) * (most - least) / (upper - lower) if upper > lower else most
        return int(max(min(share, most), least))
