"""`rillet delayed PATH|URL [STREAM ...]`: what waits until it is due: delayed entries, and retries of messages.

PATH|URL is a directory or a url, as for `rillet stats`. For each delayed entry of a stream: when it is due,
when it was added, and its fields. For each retry of a group: when it is due, and the ID of the message.

Exit status: 0, or 2 if there is nothing to show.
"""

from __future__ import annotations

import argparse
import json

from rillet.cli.output import guarded, safe, table
from rillet.cli.places import opened, place_arguments
from rillet.cli.stats import time_text
from rillet.store.store import Store
from rillet.store.stream import Stream
from rillet.units import counted

_WIDEST = 100  # characters of the fields of an entry


def add_arguments(parser: argparse.ArgumentParser) -> None:
    place_arguments(parser)
    parser.add_argument("streams", nargs="*", default=[], metavar="STREAM",
                        help="only these streams; by default all with delays")  # fmt: skip
    parser.add_argument("-n", "--lines", type=int, default=10, metavar="N",
                        help="show the next N of each stream and group (default 10)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print each one as a line of JSON")


def run(options: argparse.Namespace) -> int:
    """Print what waits; return the exit status."""
    return guarded(lambda: _print(options))


def _print(options: argparse.Namespace) -> None:
    with opened(options) as store:
        names = options.streams or _names(store)
        if not names and not options.json:
            print("nothing is delayed")
        for name in names:
            _print_stream(store.stream(name), max(0, options.lines), options.json)


def _names(store: Store) -> list[str]:
    """Return the names of the streams for which something waits, also of those that do not exist yet."""
    helpers = [name for kind in ("delayed", "retries") for name in store.keys(f"rillet:{kind}:{{*", "zset")]
    found = {name.partition("}")[2] for name in helpers if name.startswith("rillet:delayed:")}
    found.update(name.partition("}")[2].rpartition(":")[0] for name in helpers if name.startswith("rillet:retries:"))
    return sorted(found)


def _print_stream(stream: Stream, most: int, as_json: bool) -> None:
    stats = stream.store.stats(stream.key, pending=0, memory=False).streams if stream.exists() else []
    groups = stats[0].groups if stats else []
    entries = stream.delayed(most)
    if as_json:
        for entry in entries:
            print(json.dumps({"stream": stream.name, "due": entry.due.timestamp(), "since": entry.since.timestamp(),
                              "fields": entry.fields}), flush=True)  # fmt: skip
    else:
        waiting = stream.delayed_count()
        print(f"{safe(stream.name)}: {counted(waiting, 'delayed entry', 'delayed entries')}", flush=True)
        rows = [(time_text(one.due.timestamp()), time_text(one.since.timestamp()), _fields(one.fields))
                for one in entries]  # fmt: skip
        if rows:
            print("\n".join(table(("due", "added", "fields"), rows, frozenset((0, 1, 2)), "    ")))
    for group in groups:
        for retry in stream.group(group.name, create=False).retries(most):
            if as_json:
                print(json.dumps({"stream": stream.name, "group": group.name, "due": retry.due.timestamp(),
                                  "id": str(retry.id)}), flush=True)  # fmt: skip
            else:
                print(f"    {time_text(retry.due.timestamp())}  {safe(group.name)}: {retry.id} again", flush=True)


def _fields(fields: dict[str, str]) -> str:
    text = " ".join(f"{name}={value}" for name, value in fields.items())
    return safe(text if len(text) <= _WIDEST else text[:_WIDEST] + "...")
