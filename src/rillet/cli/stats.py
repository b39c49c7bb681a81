"""`rillet stats PATH|URL`: streams, groups, lag, pending messages by age, consumers, memory by structure.

PATH|URL is a directory, an RDB file, or a url: redis://, rediss://, unix://, redis+cluster://. If a process
has the directory open, it is asked; otherwise the files are read without changing a byte. --watch repeats the report,
with the rate of each stream, until ^C; --json prints one line for each report.

Exit status: 0, or 2 if there is nothing to show.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timezone

from rillet.cli.output import guarded, identity, number, safe, table, until_interrupted
from rillet.cli.places import place_arguments, visited
from rillet.store.info_records import StreamPlaces
from rillet.store.stats import (
    AGES,
    OLDER,
    PENDING,
    RELEASED,
    GroupStats,
    PartitionStats,
    StoreStats,
    StreamStats,
    Waiting,
)
from rillet.store.store import Store
from rillet.units import counted, duration, size

_CLEAR = "\x1b[H\x1b[J"  # the cursor to the top, and everything below it erased
_AGES = [*(name for name, _ in AGES), OLDER, RELEASED]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    place_arguments(parser, "the directory of a store, an RDB file, or the url of a server")
    parser.add_argument("streams", nargs="*", default=[], metavar="STREAM", help="only these streams; by default all")
    parser.add_argument("--watch", nargs="?", type=_seconds, const=2.0, metavar="SECONDS",
                        help="repeat the report, with rates, every 2 seconds until ^C")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print each report as one line of JSON")
    parser.add_argument("--pending", type=int, default=PENDING, metavar="N",
                        help=f"read up to N pending messages per group for the ages (default {PENDING})")  # fmt: skip


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise argparse.ArgumentTypeError(f"expected a number of seconds above 0, got {text!r}")
    return seconds


def run(options: argparse.Namespace) -> int:
    """Print the report once, or repeatedly; return the exit status."""
    if options.watch is None:
        return guarded(lambda: _print(options))
    return guarded(lambda: until_interrupted(lambda: _print(options)))


def _print(options: argparse.Namespace) -> None:
    previous: StoreStats | None = None

    def sample(store: Store) -> StoreStats:
        return store.stats(*options.streams, previous=previous, pending=options.pending)

    with visited(options) as visit:
        while True:
            stats = visit.ask(sample)
            if options.json:
                print(json.dumps(stats.as_dict()), flush=True)
            else:
                top = _CLEAR if options.watch is not None and sys.stdout.isatty() else ""
                print(top + "\n".join(report(options.place, stats)), flush=True)
            if options.watch is None:
                return
            previous = stats
            time.sleep(options.watch)


def report(place: str, stats: StoreStats) -> list[str]:
    """Return the report as lines."""
    now = datetime.fromtimestamp(stats.time, timezone.utc)
    when = now.isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
    count = len(stats.streams)
    lines = [f"{without_password(place)}: {stats.server}, {count} stream{'s' if count != 1 else ''}, {when}"]
    if stats.streams:
        head = ("stream", "length", "rate/s", "nodes", "memory", "first", "last")
        lines += ["", *table(head, [_row(stream) for stream in stats.streams], frozenset((0, 5, 6)))]
    lines += _partitions(stats)
    for stream in stats.streams:
        lines += ["", *_detail(stream)]
    return lines


def _partitions(stats: StoreStats) -> list[str]:
    """Return a table of the partitions of each partitioned stream, and which consumer of each group reads them."""
    found: dict[str, list[tuple[str, int, int, tuple[str, ...]]]] = {}
    for stream in stats.streams:
        for group in stream.groups:
            if (part := group.partition) is not None:
                row = (safe(group.name), str(part.epoch), str(part.number), number(stream.length), lag_text(group),
                       number(group.pending), *owner_texts(part, stats.time))  # fmt: skip
                found.setdefault(part.stream, []).append((group.name, part.epoch, part.number, row))
    lines = []
    head = ("group", "epoch", "partition", "length", "lag", "pending", "consumer", "lease")
    for name in sorted(found):
        rows = [row for *_, row in sorted(found[name])]
        lines += ["", f"partitions of {safe(name)}", *table(head, rows, frozenset((0, 6)), "  ")]
    return lines


def owner_texts(part: PartitionStats, now: float) -> tuple[str, str]:
    """Return the consumer that reads a partition, and how long its lease lasts, as text."""
    if part.consumer is None:
        return ("none" if part.state == "current" else part.state), ""
    if part.lease_until is None or part.lease_until <= now:
        return safe(part.consumer), "ended"
    return safe(part.consumer), duration(round(1000 * (part.lease_until - now)))


def without_password(place: str) -> str:
    """Return a url without its user and password."""
    scheme, mark, rest = place.partition("://")
    return safe(f"{scheme}://{rest.rpartition('@')[2]}" if mark else place)


def _row(stream: StreamStats) -> tuple[str, ...]:
    rate = "" if stream.rate is None else number(stream.rate)
    return (safe(stream.name), number(stream.length), rate, number(stream.nodes), size(stream.memory.total),
            identity(stream.first_id), identity(stream.last_id))  # fmt: skip


def _detail(stream: StreamStats) -> Iterator[str]:
    yield f"{safe(stream.name)}"
    yield f"  memory    {_memory(stream)}"
    if stream.places is not None:
        yield from _places(stream.places)
    added = "" if stream.entries_added is None else f"{counted(stream.entries_added, 'entry', 'entries')} added, "
    if stream.delayed.number:
        yield f"  delayed   {waiting_text(stream.delayed, 'entry waits', 'entries wait')}"
    yield f"  counters  {added}last generated ID {stream.last_generated_id}, {counted(stream.rax_nodes, 'rax node')}"
    if stream.groups:
        head = ("group", "lag", "pending", *_AGES, "oldest", "last delivered")
        rows = [_group_row(group) for group in stream.groups]
        yield from table(head, rows, frozenset((0, len(head) - 1)), "  ")
    for group in stream.groups:
        yield from group_notes(group)
        if group.consumers:
            yield f"  consumers of {safe(group.name)}"
            yield from consumer_table(group)


def _memory(stream: StreamStats) -> str:
    memory = stream.memory
    if memory.listpacks is None:
        return f"{size(memory.total)}; {safe(memory.note)}"
    parts = ("listpacks", "rax", "groups", "pending", "idmp", "stream")
    shown = ", ".join(f"{name} {size(getattr(memory, name))}" for name in parts if getattr(memory, name))
    partly = memory.measured is not None and memory.measured < stream.nodes
    return shown + (f" (estimated from {counted(memory.measured, 'listpack')})" if partly else "")


def _places(places: StreamPlaces) -> Iterator[str]:
    if places.ranges:
        entries = counted(places.entries_in_memory, "entry", "entries")
        yield (f"  places    in memory {entries} ({size(places.bytes_in_memory)}), in segments "
               f"{number(places.entries_in_segments)} ({size(places.bytes_in_segments)})")  # fmt: skip
    kept = places.retention
    if kept is None:
        return
    limits = [] if kept.age is None else [f"age {duration(round(1000 * kept.age))}"]
    limits += [] if kept.entries is None else [f"entries {number(kept.entries)}"]
    limits += [] if kept.bytes is None else [f"bytes {size(kept.bytes)}"]
    due = "" if kept.due is None else f"; the first entry is too old from {time_text(kept.due)} on"
    yield f"  retention {', '.join(limits)}, groups {safe(kept.groups)}{due}"
    if kept.drops_entries:
        yield (f"            next, {counted(kept.drops_entries, 'entry', 'entries')} ({size(kept.drops_bytes)}) before "
               f"{identity(kept.keeps_from)} {'goes' if kept.drops_entries == 1 else 'go'}")  # fmt: skip
    for held in kept.held:
        yield (f"            the group {safe(held.group)} holds back {counted(held.entries, 'entry', 'entries')} "
               f"({size(held.bytes)}) from {held.first_id} on")  # fmt: skip
    if kept.note:
        yield f"            {safe(kept.note)}"


def _group_row(group: GroupStats) -> tuple[str, ...]:
    return (safe(group.name), lag_text(group), number(group.pending), *(number(group.ages[age]) for age in _AGES),
            duration(group.oldest_ms), identity(group.last_delivered_id))  # fmt: skip


def lag_text(group: GroupStats) -> str:
    """Return the lag of a group: "?" if it is unknown, with "~" if it is not exact."""
    return ("" if group.lag is None or group.lag_exact else "~") + number(group.lag)


def group_notes(group: GroupStats) -> Iterator[str]:
    """Yield what a reader of a group's figures must know."""
    if group.lag is None:
        yield f"  lag of {safe(group.name)} is unknown: {safe(group.lag_note)}"
    elif not group.lag_exact:
        yield f"  lag of {safe(group.name)} is not exact: {safe(group.lag_note)}"
    if group.retries.number:
        yield f"  retries of {safe(group.name)}: {waiting_text(group.retries, 'message waits', 'messages wait')}"
    if group.order.by is not None:
        keys = counted(group.order.keys, "key with pending messages", "keys with pending messages")
        waiting = counted(group.order.waiting, "message waits", "messages wait")
        yield f"  order of {safe(group.name)} by {safe(group.order.by)}: {keys}, {waiting} behind others"
    if group.examined < group.pending:
        yield (f"  ages of {safe(group.name)}: of the first {number(group.examined)} of {number(group.pending)} "
               "pending messages")  # fmt: skip


def waiting_text(waiting: Waiting, one: str, several: str) -> str:
    """Return what waits: the number with one of two texts, and when the next one is due and was added."""
    due = "" if waiting.next_due is None else f", the next one due {time_text(waiting.next_due)}"
    since = "" if waiting.next_since is None else f", added {time_text(waiting.next_since)}"
    return f"{counted(waiting.number, one, several)}{due}{since}"


def time_text(seconds: float) -> str:
    """Return a time as text, in UTC with milliseconds."""
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    return moment.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")


def consumer_table(group: GroupStats) -> list[str]:
    """Return the consumers of a group as a table."""
    head = ("consumer", "pending", "idle", "inactive")
    rows = [(safe(one.name), number(one.pending), duration(one.idle_ms), duration(one.inactive_ms))
            for one in group.consumers]  # fmt: skip
    return table(head, rows, indent="    ")
