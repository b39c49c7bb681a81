"""Passes of SCAN over all keys, in small steps: one finds the streams, one counts and measures every key.

    StreamPass    SCAN with TYPE stream, 1,000 keys a step; XLEN of each stream found
    KeyPass       SCAN, 100 keys a step; TYPE and MEMORY USAGE of each of them

A reply of SCAN with TYPE does not say how many keys the server examined, but the cursor does: SCAN visits the slots of
a table in the order of their numbers with the bits reversed (dictScan in Redis's dict.c), so the reversed cursor is the
share of the table that is done. Each master of a cluster is scanned in turn, and counts as one part.

SCAN may return a key twice while the server resizes its table. So streams and sizes are kept by key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rillet.errors import CommandError
from rillet.store.arguments.encoding import decode
from rillet.store.arguments.slots import shards_of
from rillet.store.retries import patiently
from rillet.store.store import Store
from rillet.store.transports.transport import Transport, check_ready, raised

STEP = 100
"""The keys of a step whose types and sizes are read."""
STEP_OF_TYPE = 1000
"""The keys of a step that selects a type: few of them are in the reply."""
STREAMS = 500
"""The most streams whose figures are collected: the longest ones."""
LARGEST = 20
"""The largest keys that are kept."""


class ScanSteps:
    """The position of one pass of SCAN over a server, or over each master of a cluster in turn."""

    def __init__(self, match: bytes | None = None, kind: str | None = None) -> None:
        count = STEP if kind is None else STEP_OF_TYPE
        self._options = [b"COUNT", b"%d" % count, *([b"MATCH", match] if match is not None else []),
                         *([b"TYPE", kind.encode()] if kind is not None else [])]  # fmt: skip
        self._shard, self._cursor = 0, b"0"
        self.share = 0.0  # of the keys that were examined
        self.complete = False

    def step(self, store: Store) -> list[bytes]:
        """Return the next keys, which may be none before the pass is complete."""
        shards = shards_of(store)
        if self._shard < len(shards):
            cursor, names = raised(shards[self._shard]([b"SCAN", self._cursor, *self._options]))
            self._shard += cursor == b"0"
            self._cursor = cursor
        else:  # a master left the cluster
            names = []
        self.complete = self._shard >= len(shards)
        part = 0.0 if store.transport.clustered else _reversed(int(self._cursor))
        self.share = 1.0 if self.complete else max(self.share, (self._shard + part) / len(shards))
        return list(names)


def _reversed(cursor: int) -> float:
    """Return the share of a table before a cursor of SCAN."""
    return int(f"{cursor & (1 << 64) - 1:064b}"[::-1], 2) / 2**64


class StreamPass:
    """One pass over all keys that finds the streams, with their lengths; the longest ones are kept."""

    def __init__(self) -> None:
        self.scan = ScanSteps(kind="stream")
        self.lengths: dict[bytes, int] = {}
        self.count = 0

    def step(self, store: Store) -> dict[bytes, int]:
        """Examine the next keys, and return the new streams among them with their lengths. O(keys of a step)"""
        names = [name for name in self.scan.step(store) if name not in self.lengths]
        lengths = _replies(store, [[b"XLEN", name] for name in names])
        return {name: length for name, length in zip(names, lengths, strict=True) if length is not None}

    def keep(self, found: dict[bytes, int]) -> None:
        """Add the streams of a step; keep the longest. O(n log n) of the streams that are kept"""
        self.lengths.update(found)
        self.count += len(found)
        if len(self.lengths) > 2 * STREAMS or self.scan.complete:
            self.lengths = dict(self.longest())

    def longest(self) -> list[tuple[bytes, int]]:
        """Return the longest streams with their lengths, longest first."""
        return sorted(self.lengths.items(), key=lambda one: (-one[1], one[0]))[:STREAMS]


@dataclass
class TypeStats:
    """The keys of a type: how many there are, how many have a known size, and the sum of these sizes."""

    keys: int = 0
    measured: int = 0
    bytes: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for JSON; `bytes` is None if no size is known."""
        return {"keys": self.keys, "measured": self.measured, "bytes": self.bytes if self.measured else None}


@dataclass
class KeyPass:
    """One pass over all keys: figures by type, and the largest keys."""

    scan: ScanSteps = field(default_factory=ScanSteps)
    seen: int = 0
    types: dict[str, TypeStats] = field(default_factory=dict)
    largest: dict[bytes, tuple[int, str]] = field(default_factory=dict)

    def step(self, store: Store) -> None:
        """Examine the next keys. O(keys of a step)"""
        names = self.scan.step(store)
        kinds = _replies(store, [[b"TYPE", name] for name in names])
        sizes = _replies(store, [[b"MEMORY", b"USAGE", name, b"SAMPLES", b"5"] for name in names])
        for name, kind, size in zip(names, kinds, sizes, strict=True):
            if kind not in (None, b"none"):  # it still exists
                self._add(name, decode(kind), size)
        self.largest = dict(sorted(self.largest.items(), key=lambda one: (-one[1][0], one[0]))[:LARGEST])

    def _add(self, name: bytes, kind: str, size: int | None) -> None:
        stats = self.types.setdefault(kind, TypeStats())
        stats.keys += 1
        self.seen += 1
        if size is not None:
            stats.measured += 1
            stats.bytes += int(size)
            self.largest[name] = int(size), kind


def _replies(store: Store, commands: list[list[bytes]]) -> list[Any]:
    """Return a reply for each command; None where the key has another type by now, or the user lacks the permission."""

    def attempt(transport: Transport) -> list[Any]:
        replies = transport.execute_many(commands)
        check_ready(replies)
        return replies

    replies = patiently(store, attempt, commands) if commands else []
    return [None if isinstance(reply, CommandError) else reply for reply in replies]
