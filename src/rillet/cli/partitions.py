"""`rillet partitions PATH|URL [STREAM ...]`: partitioned streams, their groups, and who reads which partition.

PATH|URL is a directory or a url, as for `rillet stats`. For each partitioned stream: the field that selects
the partition, the entries of each partition, the epochs, and for each group its lag, its pending messages and its
consumers. `--repartition N` changes the number of partitions of one stream, or continues this, and
`--delete-drained` deletes the keys of earlier partitions that every group has handled (docs/partitions.md). Only these
two change the place, and open a directory that no process has open.

Exit status: 0; 2 if there is nothing to show, or a change is not possible.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from rillet.cli.output import guarded, number, safe, table
from rillet.cli.places import opened, place_arguments
from rillet.errors import StoreError
from rillet.store.arguments.encoding import decode
from rillet.store.partitions.layout import MOST_PARTITIONS
from rillet.store.partitions.stream import PartitionedStream
from rillet.store.store import Store
from rillet.units import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    place_arguments(parser)
    parser.add_argument("streams", nargs="*", default=[], metavar="STREAM",
                        help="only these; by default all partitioned streams")  # fmt: skip
    parser.add_argument("--repartition", type=int, metavar="N", help="change the number of partitions of one stream")
    parser.add_argument("--delete-drained", action="store_true",
                        help="delete the keys of earlier partitions that every group has handled")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print each stream as a line of JSON")


def run(options: argparse.Namespace) -> int:
    """Print the partitioned streams; return the exit status."""
    return guarded(lambda: _print(options))


def _print(options: argparse.Namespace) -> None:
    wanted = options.repartition
    if wanted is not None and (len(options.streams) != 1 or not 1 <= wanted <= MOST_PARTITIONS):
        raise StoreError(f"--repartition needs the name of one stream, and a number from 1 to {MOST_PARTITIONS}")
    with opened(options, write=wanted is not None or options.delete_drained) as store:
        names = options.streams or _names(store)
        if not names and not options.json:
            print("there is no partitioned stream")
        for name in names:
            stream = store.partitioned(name)
            if wanted is not None:
                stream.repartition(wanted)
            if options.delete_drained:
                print(f"{safe(name)}: {counted(stream.delete_drained(), 'key')} deleted")
            found = _state(stream)
            print(json.dumps(found) if options.json else _text(found), flush=True)


def _names(store: Store) -> list[str]:
    return sorted({key.partition("}")[2] for key in store.keys("rillet:partitions:{*", "hash")})


def _state(stream: PartitionedStream[Any]) -> dict[str, Any]:
    layout = stream.layout()
    lengths = {str(epoch): [int(stream.store.run([b"XLEN", key])) for key in layout.streams(epoch)]
               for epoch in layout.epochs}  # fmt: skip
    groups = {decode(name): stream.group(name, create=False).info()._asdict() for name in sorted(layout.groups)}
    return {"stream": stream.name, "by": decode(layout.by), "epoch": layout.epoch, "partitions": layout.partitions,
            "next": layout.next or None, "entries": lengths, "groups": groups}  # fmt: skip


def _text(state: dict[str, Any]) -> str:
    entries = sum(map(sum, state["entries"].values()))
    head = f"{safe(state['stream'])}: {counted(state['partitions'], 'partition')} by {safe(state['by'])}"
    lines = [f"{head}, {counted(entries, 'entry', 'entries')}"]
    if state["next"]:
        change = f"a change to {counted(state['next'], 'partition')} is under way"
        lines.append(f"    {change}: --repartition {state['next']} ends it")
    for epoch, lengths in state["entries"].items():
        kind = "receives entries" if int(epoch) == state["epoch"] else "ended"
        lines.append(f"    epoch {epoch}, {kind}: {' '.join(map(number, lengths))}")
    rows = [(safe(name), str(info["epoch"]), "?" if info["lag"] is None else number(info["lag"]),
             number(info["pending"]), _consumers(info["consumers"]))
            for name, info in state["groups"].items()]  # fmt: skip
    if rows:
        lines += table(("group", "epoch", "lag", "pending", "consumers"), rows, frozenset((0, 4)), "    ")
    return "\n".join(lines)


def _consumers(consumers: dict[str, list[int]]) -> str:
    return "; ".join(f"{safe(name)}: {' '.join(map(str, parts)) or 'none'}" for name, parts in consumers.items())
