"""Groups of a stream, and the pending workbench: which consumer holds which entry, and for how long.

The lag and its reason are those of `Store.stats`, so the page, `rillet stats` and `rillet top` show the same numbers.
"""

from __future__ import annotations

from typing import Any

from rillet.inspector.sampling import stream_row
from rillet.inspector.streams import entry_json
from rillet.inspector.text import to_text
from rillet.store.arguments.encoding import encode_name, parse_id
from rillet.store.partitions.layout import description_key, layout_of
from rillet.store.stats import PENDING, StreamStats, plain
from rillet.store.store import Store

PAGE = 50
MOST_PAGE = 500
_PAGE_BYTES = 4 << 20


def groups_of_stream(store: Store, key: bytes) -> dict[str, Any]:
    """Return the stream's figures with its groups, their consumers and ages of pending entries. O(pending)"""
    stats = store.stats(key, pending=PENDING)
    return {**stream_row(stats.streams[0]), "server": stats.server, "time": stats.time,
            "partitions": _partitions(store, stats.streams[0])}  # fmt: skip


def _partitions(store: Store, one: StreamStats) -> list[dict[str, Any]]:
    """Return all partitions of the partitioned stream to which a stream belongs, for each group; else nothing."""
    name = next((encode_name(group.partition.stream) for group in one.groups if group.partition is not None), None)
    layout = None if name is None else layout_of(name, store.run([b"HGETALL", description_key(name)]))
    if layout is None:
        return []
    keys = [one for one in layout.all_keys() if store.run([b"EXISTS", one])]
    return [
        {"key": to_text(encode_name(stream.name)), "length": stream.length, "group": to_text(encode_name(group.name)),
         "lag": group.lag, "lag_exact": group.lag_exact, "lag_note": group.lag_note, "pending": group.pending,
         **plain(group.partition)}
        for stream in store.stats(*keys, pending=0, memory=False).streams
        for group in stream.groups if group.partition is not None
    ]  # fmt: skip


def pending_page(store: Store, key: bytes, group: bytes, *, consumer: bytes | None = None, idle: int = 0,
                 start: str = "-", count: int = PAGE) -> dict[str, Any]:  # fmt: skip
    """Return pending entries in the order of their IDs, each with its entry beside it, and where to continue.

    idle: only entries that were delivered so many milliseconds ago or earlier. An entry that no longer exists in the
    stream has `fields` None: it was deleted or trimmed while it was pending.
    """
    count = max(1, min(count, MOST_PAGE))
    of_group = store.stream(key).group(group, create=False)
    rows = store.run(of_group.pending_command(count, consumer, idle / 1000, start, "+"))
    found = []
    size = 0
    for raw_id, holder, idle_ms, deliveries in rows:
        flat: list[bytes] | None = None
        cut = size >= _PAGE_BYTES
        if not cut:
            entry = store.run([b"XRANGE", key, raw_id, raw_id, b"COUNT", b"1"])
            flat = entry[0][1] if entry else None
            size += sum(map(len, flat or ()))
        found.append({
            **entry_json(raw_id, flat), "consumer": to_text(holder) if holder else None, "idle": int(idle_ms),
            "deliveries": int(deliveries), "gone": flat is None and not cut,
        })  # fmt: skip
    following = f"({parse_id(rows[-1][0])}" if len(rows) == count else None
    return {"pending": found, "next": following}


def consumer_names(store: Store, key: bytes, group: bytes) -> list[str]:
    """Return the consumers of a group."""
    return [to_text(encode_name(one.name)) for one in store.stream(key).group(group, create=False).consumers()]
