"""Sampler: the figures of the overview, collected at rest in small steps under the budget.

    pulse     INFO, DBSIZE: memory, operations, clients over time             every 2 s at most
    notes     SLOWLOG GET, CLIENT LIST (of up to 1,000 clients)               every 10 s
    scan      SCAN of 100 keys, their TYPE, MEMORY USAGE of ten of them       one step at a time, pass after pass
    streams   length, rate, groups and lag of a few streams                   in turn

One thread does one step, then pauses until its share of a core is kept (Budget). It works while somebody looks
(`watch`), and stops otherwise. The figures of a pass are published when the pass is complete; during the first pass the
figures are those of the keys seen so far, and `progress` says how many.

**Honest sizes.** MEMORY USAGE of every key would cost too much, so a random sample of each step is measured. The total
of a type is its number of keys times the mean of the sample, with the half width of the 95 % interval. A sample of all
keys has no such uncertainty. Sizes of keys are heavy-tailed: a sample that missed the largest keys is too low, so the
number of measured keys is always beside the total.
"""

from __future__ import annotations

import contextlib
import math
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from rillet.errors import CommandError, RilletError
from rillet.inspector.place import InspectedPlace
from rillet.inspector.text import to_text
from rillet.real_time import monotonic
from rillet.store.encoding import decode, encode_name
from rillet.store.stats import StreamStats, plain
from rillet.store.store import Store
from rillet.store.transports.cluster import ClusterTransport
from rillet.store.transports.transport import raised

STEP = 100
"""The keys of a step of SCAN."""
STREAMS = 500
"""The most streams whose figures are collected."""
_MEASURED = 10  # keys of a step whose memory is measured
_LARGEST = 20
_PULSE, _NOTES, _PASS = 2.0, 10.0, 60.0  # seconds between two of a kind
_BATCH = 4  # streams of a step
_POINTS = 1800
_CLIENTS = 1000
_IDLE = 0.25  # the shortest pause
_EAGER = 8  # the first steps, which are what the user asked for by opening the page: they are not at rest
_LINGER = 10.0  # seconds for which it works after the last one looked, so that repeated requests find figures


@dataclass
class TypeSample:
    """The keys of a type: how many were seen, how many were measured, and the sums of their sizes."""

    keys: int = 0
    measured: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, size: int) -> None:
        """Add the size of a measured key."""
        self.measured += 1
        self.total += size
        self.squares += float(size) * size

    def as_dict(self) -> dict[str, Any]:
        """Return the estimate for JSON: bytes, and the half width of the 95 % interval (None below two keys)."""
        if not self.measured:
            return {"keys": self.keys, "measured": 0, "bytes": None, "error": None}
        mean = self.total / self.measured
        error: float | None = None
        if self.measured >= self.keys:
            error = 0.0
        elif self.measured > 1:
            variance = max(0.0, self.squares - self.measured * mean * mean) / (self.measured - 1)
            error = 1.96 * math.sqrt(variance / self.measured) * self.keys
        return {"keys": self.keys, "measured": self.measured, "bytes": round(mean * self.keys),
                "error": None if error is None else round(error)}  # fmt: skip


@dataclass
class KeyPass:
    """One pass of SCAN over all keys: figures by type, the largest keys, the streams."""

    began: float = field(default_factory=time.time)
    seen: int = 0
    types: dict[str, TypeSample] = field(default_factory=dict)
    largest: list[tuple[int, str, str]] = field(default_factory=list)
    streams: dict[bytes, None] = field(default_factory=dict)
    complete: bool = False

    def measure(self, key: bytes, kind: str, size: int) -> None:
        """Add the size of a key."""
        self.types[kind].add(size)
        self.largest = sorted([*self.largest, (size, to_text(key)[:200], kind)], reverse=True)[:_LARGEST]


class Sampler:
    """Collects the figures of a place while somebody looks."""

    def __init__(self, place: InspectedPlace) -> None:
        self._place = place
        self._guard = threading.Lock()
        self._wake = threading.Condition(self._guard)
        self._watchers = 0
        self._closed = False
        self._linger = 0.0
        self._eager = _EAGER
        self._thread: threading.Thread | None = None
        self._pulses: deque[dict[str, Any]] = deque(maxlen=_POINTS)
        self._about: dict[str, Any] = {}
        self._slow: list[dict[str, Any]] = []
        self._clients: dict[str, Any] = {}
        self._pass, self._published = KeyPass(), KeyPass()
        self._cursors: list[tuple[int, bytes]] = []
        self._streams: dict[bytes, tuple[float, StreamStats]] = {}
        self._turn: deque[bytes] = deque()
        self._focus: dict[bytes, float] = {}
        self._next_pass = self._last_pulse = self._last_notes = 0.0
        self._keys = 0
        self.problem = ""
        self.version = 0

    # -- watching -------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Collect while the block runs."""
        with self._guard:
            self._watchers += 1
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._work, name="rillet-sampler", daemon=True)
                self._thread.start()
            self._wake.notify_all()
        try:
            yield
        finally:
            with self._guard:
                self._watchers -= 1
                self._linger = monotonic() + _LINGER

    def focus(self, key: bytes) -> None:
        """Collect the figures of a stream next, and again before the others for ten seconds."""
        with self._guard:
            self._focus[key] = monotonic() + 10
            self._wake.notify_all()

    def close(self) -> None:
        """Stop, and wait for the step that runs."""
        with self._guard:
            self._closed = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join(timeout=30)

    def wait(self, version: int, seconds: float) -> int:
        """Wait until the figures changed since a version, at most so long; return the present version."""
        with self._guard:
            self._wake.wait_for(lambda: self.version != version or self._closed, seconds)
            return self.version

    def _work(self) -> None:
        while True:
            with self._guard:
                while not self._watchers and monotonic() >= self._linger and not self._closed:
                    self._wake.wait()
                if self._closed:
                    return
            eager, self._eager = self._eager > 0, self._eager - 1
            try:
                with self._place.budget.asking() if eager else self._place.budget.resting():
                    self._place.call(self._step)
                self.problem = ""
            except (RilletError, OSError) as error:
                self.problem = f"{type(error).__name__}: {error}"
                self._sleep(2.0)
            with self._guard:
                self.version += 1
                self._wake.notify_all()
            if not eager:
                self._sleep(max(_IDLE, self._place.budget.pause()))

    def _sleep(self, seconds: float) -> None:
        """Sleep, but end at once when the sampler is closed."""
        deadline = monotonic() + seconds
        with self._guard:
            while not self._closed and (left := deadline - monotonic()) > 0:
                self._wake.wait(left)

    # -- steps ----------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do the next step now, in the calling thread; `rillet top` and tests use it."""
        self._place.call(self._step)

    def _step(self, store: Store) -> None:
        now = monotonic()
        kind = self._choose(now)
        kind(store)

    def _choose(self, now: float) -> Callable[[Store], None]:
        if now - self._last_pulse >= _PULSE:
            self._last_pulse = now
            return self._take_pulse
        if now - self._last_notes >= _NOTES:
            self._last_notes = now
            return self._take_notes
        with self._guard:
            for key, until in list(self._focus.items()):
                if until < now:
                    del self._focus[key]
            focused = [key for key in self._focus if now - self._streams.get(key, (0.0,))[0] >= 1.0]
        if focused:
            return lambda store: self._take_streams(store, focused[:_BATCH])
        # The pass over the keys and the rounds over the streams take turns.
        if self._scanning(now) and (self.version % 2 or not self._turn_of(now)):
            return self._take_keys
        due = self._turn_of(now)
        return (lambda store: self._take_streams(store, due)) if due else self._take_pulse_later

    def _take_pulse_later(self, store: Store) -> None:
        """Do nothing: no step is due."""

    def _take_pulse(self, store: Store) -> None:
        info = store.info()
        self._keys = int(store.execute("DBSIZE"))
        point = {"time": time.time()}
        for name, of in (("memory", "used_memory"), ("rss", "used_memory_rss"), ("clients", "connected_clients"),
                         ("ops", "instantaneous_ops_per_sec"), ("commands", "total_commands_processed")):  # fmt: skip
            with contextlib.suppress(ValueError):
                point[name] = float(info.get(of, ""))
        self._about = {name: info[name] for name in _ABOUT if name in info}
        self._about["keys"] = self._keys
        self._pulses.append(point)

    def _take_notes(self, store: Store) -> None:
        with contextlib.suppress(CommandError, TypeError, ValueError, IndexError):
            self._slow = [_slow(row) for row in store.execute("SLOWLOG", "GET", 32)]
        count = int(float(self._pulses[-1].get("clients", 0))) if self._pulses else 0
        if count > _CLIENTS:
            self._clients = {"count": count, "list": [], "note": f"more than {_CLIENTS} clients are not listed"}
            return
        try:
            lines = decode(store.execute("CLIENT", "LIST")).splitlines()
        except CommandError as error:
            self._clients = {"count": count, "list": [], "note": to_text(str(error).encode())}
            return
        self._clients = {"count": len(lines), "list": [_client(line) for line in lines[:_CLIENTS]], "note": ""}

    def _scanning(self, now: float) -> bool:
        return bool(self._cursors) or now >= self._next_pass

    def _take_keys(self, store: Store) -> None:
        shards = shards_of(store)
        if not self._cursors:
            self._pass = KeyPass()
            self._cursors = [(number, b"0") for number in range(len(shards))]
        number, cursor = self._cursors[0]
        if number >= len(shards):
            self._cursors = []
            return
        cursor, names = raised(shards[number]([b"SCAN", cursor, b"COUNT", b"%d" % STEP]))
        self._cursors[0] = (number, cursor)
        if names:
            self._take_some(store, names)
        if cursor == b"0":
            self._cursors.pop(0)
        if not self._cursors:
            self._pass.complete = True
            self._published = self._pass
            self._next_pass = monotonic() + _PASS
            with self._guard:
                self._streams = {key: one for key, one in self._streams.items() if key in self._pass.streams}

    def _take_some(self, store: Store, names: list[bytes]) -> None:
        kinds = [decode(kind) for kind in store.run_many([[b"TYPE", name] for name in names])]
        found = self._pass
        for name, kind in zip(names, kinds, strict=True):
            if kind == "none":
                continue
            found.seen += 1
            found.types.setdefault(kind, TypeSample()).keys += 1
            if kind == "stream" and len(found.streams) < STREAMS:
                found.streams[name] = None
        present = [one for one in zip(names, kinds, strict=True) if one[1] != "none"]
        chosen = present if len(present) <= _MEASURED else random.sample(present, _MEASURED)
        try:
            sizes = store.run_many([[b"MEMORY", b"USAGE", name, b"SAMPLES", b"5"] for name, _ in chosen])
        except CommandError:
            return  # no permission
        for (name, kind), size in zip(chosen, sizes, strict=True):
            if size is not None:
                found.measure(name, kind, int(size))

    def _turn_of(self, now: float) -> list[bytes]:
        """Return the streams whose figures are due, the oldest first; each of them every five seconds at most."""
        known = list(self._published.streams or self._pass.streams)
        waiting = [key for key in known if now - self._streams.get(key, (0.0,))[0] >= 5.0]
        return sorted(waiting, key=lambda key: self._streams.get(key, (0.0,))[0])[:_BATCH]

    def _take_streams(self, store: Store, keys: list[bytes]) -> None:
        now = monotonic()
        for key in keys:
            try:
                stats = store.stats(key, pending=200)
            except CommandError:
                self._streams.pop(key, None)
                for one in (self._pass, self._published):
                    one.streams.pop(key, None)
                with self._guard:
                    self._focus.pop(key, None)
                continue
            before = self._streams.get(key)
            stream = stats.streams[0]
            rate: float | None = None
            if before is not None and stream.entries_added is not None and before[1].entries_added is not None:
                rate = max(0.0, (stream.entries_added - before[1].entries_added) / max(0.001, now - before[0]))
            self._streams[key] = (now, replace(stream, rate=rate))

    # -- results --------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        found = self._published if self._published.complete else self._pass
        now = monotonic()
        streams = [stream_row(stream, now - when) for when, stream in list(self._streams.values())]
        known = list(found.streams)
        return {
            "time": time.time(),
            "about": self._about,
            "history": [self._pulses[at] for at in range(len(self._pulses))][-_POINTS:],
            "keys": {
                "total": self._keys, "seen": found.seen, "complete": found.complete,
                "scanning": self._pass.seen if self._cursors else None,
                "types": {kind: one.as_dict() for kind, one in sorted(found.types.items())},
                "largest": [{"bytes": size, "key": key, "type": kind} for size, key, kind in found.largest],
            },
            "streams": sorted(streams, key=lambda one: (-one["length"], one["name"])),
            "streams_known": len(known), "streams_most": STREAMS,
            "slow": self._slow,
            "clients": self._clients,
            "budget": self._place.budget.figures(),
            "problem": self.problem,
        }  # fmt: skip

    def stream_names(self) -> list[str]:
        """Return the names of the streams that were found so far."""
        return [to_text(key) for key in (self._published.streams or self._pass.streams)]


_ABOUT = ("redis_version", "rillet_version", "valkey_version", "redis_mode", "uptime_in_seconds", "used_memory",
          "used_memory_peak", "maxmemory", "connected_clients", "blocked_clients", "role", "total_commands_processed",
          "instantaneous_ops_per_sec", "keyspace_hits", "keyspace_misses", "expired_keys", "evicted_keys")  # fmt: skip


def stream_row(stream: StreamStats, age: float = 0.0) -> dict[str, Any]:
    """Return the figures of a stream and its groups for JSON, with names as printable text."""
    groups = []
    for group in stream.groups:
        row: dict[str, Any] = plain(group)
        row["name"] = to_text(encode_name(group.name))
        row["consumers"] = [{**plain(one), "name": to_text(encode_name(one.name))} for one in group.consumers]
        groups.append(row)
    found: dict[str, Any] = plain(stream)
    return {**found, "name": to_text(encode_name(stream.name)), "groups": groups, "age": age,
            "bytes": stream.memory.total}  # fmt: skip


def shards_of(store: Store) -> list[Callable[[list[bytes]], Any]]:
    """Return a function for each master of a cluster that runs a command there; of a server, one."""
    transport = store.transport
    return transport.shards() if isinstance(transport, ClusterTransport) else [store.run]


def _slow(row: Any) -> dict[str, Any]:
    words = [to_text(word)[:120] for word in row[3][:32]]
    client = to_text(row[4]) if len(row) > 4 else ""
    return {"id": row[0], "time": row[1], "microseconds": row[2], "command": " ".join(words)[:600], "client": client}


_SHOWN = ("id", "addr", "name", "age", "idle", "db", "cmd", "user", "lib-name", "tot-mem", "flags")


def _client(line: str) -> dict[str, str]:
    found = dict(word.split("=", 1) for word in line.split(" ") if "=" in word)
    return {name: to_text(found[name].encode("utf-8", "surrogateescape")) for name in _SHOWN if name in found}


__all__ = ["STEP", "STREAMS", "KeyPass", "Sampler", "TypeSample", "shards_of", "stream_row"]
