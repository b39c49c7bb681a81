"""`rillet groups PLACE [STREAM ...]`: groups with their consumers, and their pending messages, longest idle first.

PLACE is the directory of a store, or a url, as for `rillet stats`. For each pending message: its ID, consumer, the time
since its delivery, and the number of deliveries. A released message (XNACK) has no consumer. For a group with an order
by key (consuming/order_steps.py): its keys, longest held first, each with its consumer and number of messages.

--collect SECONDS first deletes the consumers that sent no command for so long, and hands their pending messages on
(Group.collect). It is the only option that changes the place, and opens a directory that no process has open.

Exit status: 0, or 2 if there is nothing to show.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

from rillet.cli.output import FAILED, guarded, identity, number, safe, table
from rillet.cli.stats import consumer_table, group_notes, lag_text
from rillet.errors import CommandError, StoreError
from rillet.store.backends.read_access import visit
from rillet.store.info_records import OrderedKey, PendingEntry
from rillet.store.opening import open as open_store
from rillet.store.stats import PENDING, GroupStats, StreamStats, plain
from rillet.store.store import Store
from rillet.units import duration

_PAGE = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("place", metavar="PATH|URL", help="the directory of a store, or the url of a server")
    parser.add_argument("streams", nargs="*", metavar="STREAM", help="only these streams; by default all")
    parser.add_argument("-n", "--lines", type=int, default=10, metavar="N",
                        help="show N pending messages of each group (default 10)")  # fmt: skip
    parser.add_argument("--pending", type=int, default=PENDING, metavar="N",
                        help=f"read up to N pending messages of a group to find these (default {PENDING})")  # fmt: skip
    parser.add_argument("--collect", type=float, metavar="SECONDS",
                        help="first delete consumers that were silent so long, hand their messages on")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one line of JSON for each group")


def run(options: argparse.Namespace) -> int:
    """Print the groups; return the exit status."""
    if options.collect is not None and not 0 <= options.collect < 1e12:
        print(f"rillet: --collect must be a number of seconds from 0 on, not {options.collect:g}", file=sys.stderr)
        return FAILED
    return guarded(lambda: _print(options))


def _print(options: argparse.Namespace) -> None:
    with _opened(options) as store:
        if options.collect is not None:
            _collect(store, options)
        stats = store.stats(*options.streams, pending=options.pending, memory=False)
        if not options.json and not stats.streams:
            print("no streams")
        for stream in stats.streams:
            if not options.json and not stream.groups:
                print(f"{safe(stream.name)}: no groups")
            for group in stream.groups:
                entries = _oldest(store, stream, group, options.pending)[: max(options.lines, 0)]
                keys = _keys(store, stream, group, options.lines)
                if options.json:
                    found = {"stream": stream.name, **plain(group), "messages": plain(entries), "keys": plain(keys)}
                    print(json.dumps(found), flush=True)
                else:
                    print("\n".join(_report(stream, group, entries, keys)) + "\n", flush=True)


def _keys(store: Store, stream: StreamStats, group: GroupStats, most: int) -> list[OrderedKey]:
    """Return up to `most` keys of the order of a group; none if this place cannot run scripts."""
    if group.order.by is None or most < 1:
        return []
    try:
        return store.stream(stream.name).group(group.name, create=False).ordered_keys(most)
    except (CommandError, StoreError):
        return []


def _opened(options: argparse.Namespace) -> Store:
    """Return the store of the place; with --collect, one that can be written."""
    store = visit(options.place)
    if options.collect is None or store.url is not None:
        return store
    store.close()  # a read-only view of a directory that no process has open
    return open_store(options.place)


def _collect(store: Store, options: argparse.Namespace) -> None:
    """Collect the silent consumers of the groups, and print them."""
    for name in options.streams or [stream.name for stream in store.streams()]:
        stream = store.stream(name)
        for info in stream.groups():
            for consumer, messages in stream.group(info.name, create=False).collect(options.collect).items():
                if options.json:
                    print(json.dumps({"stream": stream.name, "group": info.name, "deleted": consumer,
                                      "handed_on": messages}), flush=True)  # fmt: skip
                else:
                    print(f"{safe(stream.name)} / {safe(info.name)}: deleted the consumer {safe(consumer)}, handed on "
                          f"{number(messages)} pending messages", flush=True)  # fmt: skip


def _oldest(store: Store, stream: StreamStats, group: GroupStats, most: int) -> list[PendingEntry]:
    """Return up to `most` pending messages of the group with the lowest IDs, longest idle first."""
    found: list[PendingEntry] = []
    pending = store.stream(stream.name).group(group.name, create=False).pending
    start = "-"
    while len(found) < most and (page := pending(min(_PAGE, most - len(found)), start=start)):
        found += page
        start = f"({page[-1].id}"
    return sorted(found, key=lambda entry: -entry.idle_ms)


def _report(stream: StreamStats, group: GroupStats, entries: list[PendingEntry],
            keys: list[OrderedKey]) -> Iterator[str]:  # fmt: skip
    yield (f"{safe(stream.name)} / {safe(group.name)}: lag {lag_text(group)}, {number(group.pending)} pending, "
           f"last delivered {identity(group.last_delivered_id)}")  # fmt: skip
    yield from group_notes(group)
    if group.consumers:
        yield from consumer_table(group)
    if keys:
        held = [(safe(one.key or "-"), safe(one.consumer or "-"), str(one.first), number(one.deliveries),
                 number(one.messages)) for one in keys]  # fmt: skip
        head = ("key", "consumer", "first message", "deliveries", "messages")
        yield from table(head, held, frozenset((0, 1, 2)), "    ")
    if entries:
        rows = [(str(one.id), safe(one.consumer) or "-", duration(one.idle_ms), number(one.deliveries))
                for one in entries]  # fmt: skip
        yield from table(("message", "consumer", "idle", "deliveries"), rows, frozenset((0, 1)), "    ")
        if len(entries) < group.pending:
            yield f"    and {number(group.pending - len(entries))} more"
