"""Searches that run in small steps and report their progress: keys by pattern and type, entries by field.

    {"found": {...}}    {"progress": {"examined": 4200, "total": 336776}}    {"done": {...}}

Each item is a line of JSON. A search ends when the client closes the connection; between two steps it pauses, so that
it takes at most a quarter of a core of the server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from rillet.errors import CommandError
from rillet.inspector.budget import SEARCH_SHARE, pause_after
from rillet.inspector.filters import FieldFilter, matches
from rillet.inspector.place import InspectedPlace
from rillet.inspector.scanning import STEP, ScanSteps
from rillet.inspector.streams import entry_json
from rillet.inspector.text import to_text
from rillet.real_time import monotonic
from rillet.store.arguments.encoding import decode
from rillet.store.store import Store

FOUND = 1000
"""The most results of a search."""
_PAGE_BYTES = 1 << 20
_PROGRESS = 0.25  # seconds between two reports
Results = Iterator[dict[str, Any]]


class _Pace:
    """Pauses between steps, and says when a report is due."""

    def __init__(self, place: InspectedPlace, sleep: Callable[[float], None]) -> None:
        self._place, self._sleep = place, sleep
        self._reported = 0.0

    def step(self, work: Callable[[Store], Any]) -> Any:
        began = monotonic()
        with self._place.budget.asking():
            found = self._place.call(work)
        self._sleep(pause_after(monotonic() - began, SEARCH_SHARE))
        return found

    def due(self) -> bool:
        now = monotonic()
        if now - self._reported < _PROGRESS:
            return False
        self._reported = now
        return True


def search_keys(place: InspectedPlace, pattern: bytes, kind: str | None,
                sleep: Callable[[float], None] = time.sleep) -> Results:  # fmt: skip
    """Yield the keys that match a glob, with type and size; O(keys) in steps of SCAN."""
    pace = _Pace(place, sleep)
    total = pace.step(lambda store: int(store.execute("DBSIZE")))
    found = 0
    scan = ScanSteps(pattern, kind)
    while not scan.complete:
        names = pace.step(scan.step)
        examined = round(scan.share * total)
        for at in range(0, len(names), STEP):
            for row in pace.step(partial(_about, names[at : at + STEP])):
                yield {"found": row}
                found += 1
                if found >= FOUND:
                    yield {"done": {"examined": examined, "total": total, "found": found, "more": True}}
                    return
        if pace.due():
            yield {"progress": {"examined": examined, "total": total, "found": found}}
    yield {"done": {"examined": total, "total": total, "found": found, "more": False}}


def _run(argv: list[bytes], store: Store) -> Any:
    return store.run(argv)


def _about(names: list[bytes], store: Store) -> list[dict[str, Any]]:
    kinds = [decode(kind) for kind in store.run_many([[b"TYPE", name] for name in names])]
    try:
        sizes = store.run_many([[b"MEMORY", b"USAGE", name, b"SAMPLES", b"5"] for name in names])
    except CommandError:  # the user may lack the permission; the names are the answer
        sizes = [None] * len(names)
    return [
        {"key": to_text(name), "type": kind, "bytes": size}
        for name, kind, size in zip(names, kinds, sizes, strict=True) if kind != "none"
    ]  # fmt: skip


def search_entries(place: InspectedPlace, key: bytes, filters: list[FieldFilter], start: str, end: str,
                   sleep: Callable[[float], None] = time.sleep) -> Results:  # fmt: skip
    """Yield the entries from start to end that match the filters; O(entries) in pages."""
    pace = _Pace(place, sleep)
    total = pace.step(lambda store: store.stream(key).length())
    examined = found = 0
    low, count = start.encode(), 16
    while True:
        argv = [b"XRANGE", key, low, end.encode(), b"COUNT", b"%d" % count]
        rows = pace.step(partial(_run, argv))
        size = 1
        for raw_id, flat in rows:
            examined += 1
            size += sum(map(len, flat))
            if matches(filters, flat):
                yield {"found": entry_json(raw_id, flat)}
                found += 1
                if found >= FOUND:
                    yield {"done": {"examined": examined, "total": total, "found": found, "more": True}}
                    return
        if pace.due() and rows:
            at = rows[-1][0].decode()
            yield {"progress": {"examined": examined, "total": total, "found": found, "at": at}}
        if len(rows) < count:
            break
        low = b"(" + rows[-1][0]
        count = max(1, min(1000, count * 4, _PAGE_BYTES * len(rows) // size))
    yield {"done": {"examined": examined, "total": total, "found": found, "more": False}}
