"""`rillet groups PATH|URL [STREAM ...]`: groups with their consumers, and their pending messages, longest idle first.

PATH|URL is a directory or a url, as for `rillet stats`. For each pending message: its ID, consumer, the time
since its delivery, and the number of deliveries. A released message (XNACK) has no consumer. For a group with an order
by key (consuming/order_steps.py): its keys, longest held first, each with its consumer and number of messages.

--collect SECONDS first deletes the consumers that sent no command for so long, and hands their pending messages on
(Group.collect). --group NAME --reset TIME|ID first lets the group deliver again from an entry, a time or an age on:
`-` is the first entry, `$` skips all. Pending messages stay pending (Group.reset_to). These two options change the
place, and open a directory that no process has open.

Exit status: 0, or 2 if there is nothing to show.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence

from rillet.cli.output import FAILED, guarded, identity, number, safe, table
from rillet.cli.places import first_id, opened, place_arguments, position_of
from rillet.cli.stats import consumer_table, group_notes, lag_text
from rillet.errors import CommandError, StoreError
from rillet.store.info_records import OrderedKey, PendingEntry
from rillet.store.stats import PENDING, GroupStats, StreamStats, plain
from rillet.store.store import Store
from rillet.units import counted, duration

_PAGE = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    place_arguments(parser)
    parser.add_argument("streams", nargs="*", default=[], metavar="STREAM", help="only these streams; by default all")
    parser.add_argument("-n", "--lines", type=int, default=10, metavar="N",
                        help="show N pending messages of each group (default 10)")  # fmt: skip
    parser.add_argument("--pending", type=int, default=PENDING, metavar="N",
                        help=f"read up to N pending messages of a group to find these (default {PENDING})")  # fmt: skip
    parser.add_argument("--collect", type=float, metavar="SECONDS",
                        help="first delete consumers that were silent so long, hand their messages on")  # fmt: skip
    parser.add_argument("--group", metavar="NAME", help="only the groups of this name")
    parser.add_argument("--reset", type=position_of, metavar="TIME|ID",
                        help="first move the group there: an ID, a time, an age (10m), - or $")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one line of JSON for each group")


def run(options: argparse.Namespace) -> int:
    """Print the groups; return the exit status."""
    if options.collect is not None and not 0 <= options.collect < 1e12:
        print(f"rillet: --collect must be a number of seconds from 0 on, not {options.collect:g}", file=sys.stderr)
        return FAILED
    if options.reset is not None and (options.group is None or not options.streams):
        print("rillet: --reset needs the names of the streams, and --group NAME", file=sys.stderr)
        return FAILED
    return guarded(lambda: _print(options))


def _print(options: argparse.Namespace) -> None:
    with opened(options, write=options.collect is not None or options.reset is not None) as store:
        if options.collect is not None:
            _collect(store, options)
        if options.reset is not None:
            _reset(store, options)
        stats = store.stats(*options.streams, pending=options.pending, memory=False)
        if not options.json and not stats.streams:
            print("no streams")
        for stream in stats.streams:
            if not options.json and not stream.groups:
                print(f"{safe(stream.name)}: no groups")
            for group in _chosen(stream.groups, options):
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


def _chosen(groups: Sequence[GroupStats], options: argparse.Namespace) -> list[GroupStats]:
    return [group for group in groups if options.group in (None, group.name)]


def _reset(store: Store, options: argparse.Namespace) -> None:
    """Move the group in each stream, and print where it is; StoreError if a stream has no such group."""
    position = options.reset if isinstance(options.reset, str) else first_id(store, options.reset)
    groups = [store.stream(name).group(options.group, create=False) for name in options.streams]
    for group in groups:
        group.info()  # raises before the first change
    for group in groups:
        group.reset_to(position)
        if not options.json:
            print(f"{safe(group.stream.name)} / {safe(group.name)}: delivers again after "
                  f"{identity(group.info().last_delivered_id)}", flush=True)  # fmt: skip


def _collect(store: Store, options: argparse.Namespace) -> None:
    """Collect the silent consumers of the groups, and print them."""
    for name in options.streams or [stream.name for stream in store.streams()]:
        stream = store.stream(name)
        for info in stream.groups():
            if options.group not in (None, info.name):
                continue
            for consumer, messages in stream.group(info.name, create=False).collect(options.collect).items():
                if options.json:
                    print(json.dumps({"stream": stream.name, "group": info.name, "deleted": consumer,
                                      "handed_on": messages}), flush=True)  # fmt: skip
                else:
                    print(f"{safe(stream.name)} / {safe(info.name)}: deleted the consumer {safe(consumer)}, handed on "
                          f"{counted(messages, 'pending message')}", flush=True)  # fmt: skip


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
