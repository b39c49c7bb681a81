"""Sampler: the figures of the overview, collected at rest in small steps under the budget.

    pulse     INFO, DBSIZE: memory, operations, clients over time             every 2 s at most
    notes     SLOWLOG GET, CLIENT LIST (of up to 1,000 clients)               every 10 s
    find      SCAN with TYPE stream, and XLEN of what it finds                pass after pass (scanning.StreamPass)
    figures   rate, groups and lag of a few streams                           in turn: new ones first, longest first
    keys      type and size of every key                                      pass after pass (scanning.KeyPass)

One thread does one step, then pauses until its share of a core is kept (Budget). It works while somebody looks
(`watch`), and stops otherwise. The kinds of work that are due take turns. In the first minute, the keys wait until all
streams were found.

**The first pass is not at rest.** A user who opens the page waits for it, so until everything was read once, and for a
minute at most, the sampler takes the share of a search.

The figures of a pass are published when the pass is complete. During the first pass they are those of the keys seen so
far, and `seen` beside `total` says how many. A stream is listed as soon as it is found; until its figures are read, its
row has its name and its length, and `age` None.

**One size for one key.** Every key is measured with MEMORY USAGE. A stream in the list of the largest keys has the size
of the table of streams.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from rillet.errors import CommandError, RilletError
from rillet.inspector.budget import SEARCH_SHARE, pause_after
from rillet.inspector.place import InspectedPlace
from rillet.inspector.scanning import LARGEST, STREAMS, KeyPass, StreamPass
from rillet.inspector.text import to_text
from rillet.real_time import monotonic
from rillet.store.arguments.encoding import decode, encode_name
from rillet.store.stats import StreamStats, plain
from rillet.store.store import Store

_PULSE, _NOTES, _FIND, _PASS = 2.0, 10.0, 10.0, 60.0  # seconds between two of a kind
_FIGURES = 5.0  # seconds between two readings of a stream
_BATCH = 4  # streams of a step
_POINTS = 1800
_CLIENTS = 1000
_IDLE = 0.25  # the shortest pause at rest
_FIRST = 60.0  # the longest time for which the sampler works as fast as a search
_LINGER = 10.0  # seconds for which it works after the last one looked, so that repeated requests find figures


class Sampler:
    """Collects the figures of a place while somebody looks."""

    def __init__(self, place: InspectedPlace) -> None:
        self._place = place
        self._guard = threading.Lock()
        self._wake = threading.Condition(self._guard)
        self._watchers = 0
        self._closed = False
        self._linger = 0.0
        self._first_until: float | None = None  # until then, the first pass is not at rest; None before the start
        self._thread: threading.Thread | None = None
        self._pulses: deque[dict[str, Any]] = deque(maxlen=_POINTS)
        self._about: dict[str, Any] = {}
        self._slow: list[dict[str, Any]] = []
        self._clients: dict[str, Any] = {}
        # The pass that runs, and the last complete one; during the first pass both are the same.
        self._keys_now = self._keys_done = KeyPass()
        self._find_now = self._find_done = StreamPass()
        self._keys_at: float | None = None  # when the last complete pass over the keys ended
        self._streams: dict[bytes, tuple[float, StreamStats]] = {}
        self._turn = 0
        self._focus: dict[bytes, float] = {}
        self._next_find = self._next_pass = self._last_pulse = self._last_notes = 0.0
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

    def wait_for_streams(self, seconds: float) -> None:
        """Wait until the streams were found and read once, at most so long."""
        with self._guard:
            self._wake.wait_for(lambda: self.has_streams() or self._closed, seconds)

    def has_streams(self) -> bool:
        """Return whether the streams were found and read once."""
        return self._find_done.scan.complete and all(key in self._streams for key in list(self._find_done.lengths))

    def _work(self) -> None:
        while True:
            with self._guard:
                while not self._watchers and monotonic() >= self._linger and not self._closed:
                    self._wake.wait()
                if self._closed:
                    return
            first = self._is_first()
            began = monotonic()
            try:
                with self._place.budget.asking(at_rest=not first):
                    self._place.call(self._step)
                self.problem = ""
            except (RilletError, OSError) as error:
                self.problem = f"{type(error).__name__}: {error}"
                self._sleep(2.0)
            with self._guard:
                self.version += 1
                self._wake.notify_all()
            if first:
                self._sleep(pause_after(monotonic() - began, SEARCH_SHARE))
            else:
                self._sleep(max(_IDLE, self._place.budget.pause()))

    def _is_first(self) -> bool:
        """Return whether the sampler still reads what the user waits for: everything, once."""
        now = monotonic()
        if self._first_until is None:
            self._first_until = now + _FIRST
        if now < self._first_until and self._keys_done.scan.complete and self.has_streams():
            self._first_until = now
        return now < self._first_until

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
        due: list[Callable[[Store], None]] = []
        if not self._find_now.scan.complete or now >= self._next_find:
            due.append(self._find_streams)
        if keys := self._turn_of(now):
            due.append(lambda store: self._take_streams(store, keys))
        # A user waits for the streams first.
        early = not self._find_done.scan.complete and (self._first_until is None or now < self._first_until)
        if not early and (not self._keys_now.scan.complete or now >= self._next_pass):
            due.append(self._take_keys)
        self._turn += 1
        return due[self._turn % len(due)] if due else self._take_nothing

    def _take_nothing(self, store: Store) -> None:
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

    def _find_streams(self, store: Store) -> None:
        if self._find_now.scan.complete:
            self._find_now = StreamPass()
        found = self._find_now.step(store)
        # A few new streams are listed with their figures at once.
        self._take_streams(store, [key for key in found if key not in self._streams][:_BATCH])
        self._find_now.keep(found)
        if self._find_now.scan.complete:
            self._find_done = self._find_now
            self._next_find = monotonic() + _FIND
            with self._guard:
                kept = {*self._find_done.lengths, *self._focus}
                self._streams = {key: one for key, one in self._streams.items() if key in kept}

    def _take_keys(self, store: Store) -> None:
        if self._keys_now.scan.complete:
            self._keys_now = KeyPass()
        self._keys_now.step(store)
        if self._keys_now.scan.complete:
            self._keys_done = self._keys_now
            self._keys_at = monotonic()
            self._next_pass = self._keys_at + _PASS

    def _known(self) -> dict[bytes, int]:
        """Return the streams of the last complete pass and of the pass that runs, with their lengths."""
        return {**self._find_done.lengths, **self._find_now.lengths}

    def _turn_of(self, now: float) -> list[bytes]:
        """Return the streams whose figures are due: new ones, the longest first; then the oldest figures."""
        known = self._known()
        waiting = [key for key in known if now - self._streams.get(key, (0.0,))[0] >= _FIGURES]
        return sorted(waiting, key=lambda key: (self._streams.get(key, (0.0,))[0], -known[key]))[:_BATCH]

    def _take_streams(self, store: Store, keys: list[bytes]) -> None:
        now = monotonic()
        for key in keys:
            try:
                stats = store.stats(key, pending=200)
            except CommandError:
                self._streams.pop(key, None)
                for one in (self._find_now, self._find_done):
                    if one.lengths.pop(key, None) is not None and one is self._find_done:
                        one.count -= 1
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
        keys, find, now = self._keys_done, self._find_done, monotonic()
        stats = dict(self._streams)
        streams = [stream_row(stream, now - when) for when, stream in stats.values()]
        new = [unread_row(key, length) for key, length in self._known().items() if key not in stats]
        return {
            "time": time.time(),
            "about": self._about,
            "history": [self._pulses[at] for at in range(len(self._pulses))][-_POINTS:],
            "keys": {
                "total": self._keys, "seen": keys.seen, "complete": keys.scan.complete,
                "age": None if self._keys_at is None else now - self._keys_at,
                "types": {kind: one.as_dict() for kind, one in sorted(keys.types.items())},
                "largest": self._largest(stats),
            },
            "streams": sorted([*streams, *new], key=lambda one: (-one["length"], one["name"])),
            "find": {
                "complete": find.scan.complete, "seen": round(find.scan.share * self._keys), "total": self._keys,
                "streams": max(find.count, len(streams) + len(new)), "most": STREAMS,
            },
            "slow": self._slow,
            "clients": self._clients,
            "budget": self._place.budget.stats(),
            "problem": self.problem,
        }  # fmt: skip

    def _largest(self, stats: dict[bytes, tuple[float, StreamStats]]) -> list[dict[str, Any]]:
        found = {**self._keys_done.largest}
        for key, (_, stream) in stats.items():
            if stream.memory.total is not None:
                found[key] = stream.memory.total, "stream"
        rows = sorted(found.items(), key=lambda one: (-one[1][0], one[0]))[:LARGEST]
        return [{"bytes": size, "key": to_text(key), "type": kind} for key, (size, kind) in rows]


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
    for held in ((found["places"] or {}).get("retention") or {}).get("held", ()):
        held["group"] = to_text(encode_name(held["group"]))
    return {**found, "name": to_text(encode_name(stream.name)), "groups": groups, "age": age,
            "bytes": stream.memory.total}  # fmt: skip


def unread_row(key: bytes, length: int) -> dict[str, Any]:
    """Return the row of a stream that was found and whose figures were not read yet: `age` is None."""
    return {"name": to_text(key), "length": length, "groups": [], "age": None, "bytes": None, "rate": None,
            "last_id": None, "memory": {"note": "not read yet"}}  # fmt: skip


def _slow(row: Any) -> dict[str, Any]:
    words = [to_text(word)[:120] for word in row[3][:32]]
    client = to_text(row[4]) if len(row) > 4 else ""
    return {"id": row[0], "time": row[1], "microseconds": row[2], "command": " ".join(words)[:600], "client": client}


_SHOWN = ("id", "addr", "name", "age", "idle", "db", "cmd", "user", "lib-name", "tot-mem", "flags")


def _client(line: str) -> dict[str, str]:
    found = dict(word.split("=", 1) for word in line.split(" ") if "=" in word)
    return {name: to_text(found[name].encode("utf-8", "surrogateescape")) for name in _SHOWN if name in found}
