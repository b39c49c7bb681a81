"""`rillet dead-letters PATH|URL [STREAM ...]`: what consumers gave up, and why; requeue it, or drop it.

    rillet dead-letters events.rillet                            the dead letters by stream, group, reason and age
    rillet dead-letters events.rillet orders.dead -n 20          and 20 letters, oldest first
    rillet dead-letters events.rillet orders.dead --reason timeout --requeue
    rillet dead-letters events.rillet orders.dead --id 1795435200123-0 --drop

Without names, all streams are shown whose last entry is a dead letter. --reason, --group and --id select letters.
--requeue adds each one to its stream again, as a new entry with its own fields, exactly once also if the command is
killed and repeated (rillet.spark.pipelines.requeue); then it deletes the letter. --drop deletes letters for good. Both
need the names of the streams. `rillet pipeline dead-letters` is the form for millions of letters: the same report, on
Spark, with conditions in SQL.

Exit status: 0; 2 if there is nothing to show, or a letter cannot be requeued.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from typing import Any

from rillet.cli.output import coloured, guarded
from rillet.cli.places import opened, place_arguments, server_url
from rillet.client.servers import Servers
from rillet.errors import StoreError
from rillet.spark.options import parse
from rillet.spark.pipelines.letter_text import entries_text, letter_text, report_text, requeued_text
from rillet.spark.pipelines.letters import Letter, counts_of, letter_of
from rillet.spark.pipelines.requeue import RequeueSummary, put_back
from rillet.store.consuming.dead_letters import is_letter
from rillet.store.entry import Entry
from rillet.store.store import Store
from rillet.types.stream.id import StreamID

_BATCH = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    place_arguments(parser)
    add = parser.add_argument
    add("streams", nargs="*", default=[], metavar="STREAM", help="dead-letter streams; by default all are shown")
    add("-n", "--lines", type=int, default=10, metavar="N", help="print N letters of each stream (default 10)")
    add("--reason", metavar="TEXT", help="only letters whose reason contains this text")
    add("--group", metavar="NAME", help="only letters of this group")
    add("--id", action="append", type=_id, metavar="ID", help="only the letter with this ID; may be repeated")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--requeue", action="store_true", help="add the letters to their streams again")
    action.add_argument("--drop", action="store_true", help="delete the letters")
    add("--to", metavar="STREAM", help="with --requeue: add the entries to this stream instead")
    add("--json", action="store_true", help="print each letter, and each result, as one line of JSON")


def _id(text: str) -> StreamID:
    try:
        return StreamID.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(options: argparse.Namespace) -> int:
    """Print the dead letters, and requeue or drop them; return the exit status."""
    return guarded(lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    changes = options.requeue or options.drop
    if changes and not options.streams:
        raise StoreError("--requeue and --drop need the names of the dead-letter streams")
    if options.to is not None and not options.requeue:
        raise StoreError("--to needs --requeue")
    with opened(options, write=changes) as store:
        names = options.streams or list(_dead(store))
        if not names and not options.json:
            print("no dead letters")
        for name in names:
            if not store.stream(name).exists():
                raise StoreError(f"there is no stream {name!r}: `rillet dead-letters PATH|URL` lists what there is")
            _show(store, name, options)
            if options.requeue:
                with Servers(parse({"url": server_url(store, options), "stream": name})) as servers:
                    summary = _requeued(servers, name, _selected(store, name, options), options.to)
                _tell({"stream": name, **asdict(summary)}, f"{name}: {requeued_text(summary)}", options)
            elif options.drop:
                dropped = _dropped(store, name, _selected(store, name, options))
                _tell({"stream": name, "dropped": dropped}, f"{name}: {dropped:,} dropped", options)


def _tell(facts: dict[str, Any], text: str, options: argparse.Namespace) -> None:
    print(json.dumps(facts) if options.json else text, flush=True)


def _dead(store: Store) -> Iterator[str]:
    """Yield the names of the streams whose last entry has the origin of a dead letter."""
    for stream in store.streams():
        last = stream.last()
        if last is not None and is_letter(last.flat):
            yield stream.name


def _selected(store: Store, name: str, options: argparse.Namespace) -> Iterator[Letter]:
    """Yield the letters of a stream that the options select, oldest first."""
    stream = store.stream(name)
    found: Iterable[Entry[Any]] = stream
    if options.id is not None:
        found = [entry for entry in map(stream.get, sorted(set(options.id))) if entry is not None]
    for entry in found:
        letter = letter_of(name, entry.id, entry.flat)
        if (options.reason is None or options.reason in (letter.reason or "")) and (
            options.group is None or options.group == letter.group
        ):
            yield letter


def _show(store: Store, name: str, options: argparse.Namespace) -> None:
    """Print the report on a stream's letters, and some of them; with --json, all of them."""
    if options.json:
        for letter in _selected(store, name, options) if not (options.requeue or options.drop) else ():
            print(json.dumps(asdict(letter)), flush=True)
        return
    seconds, _ = map(int, store.execute("TIME"))
    rows = counts_of(_selected(store, name, options), seconds * 1000)
    head, _, lines = report_text(rows).partition("\n")
    print(coloured(head, "bold"), lines, sep="\n")
    for letter in islice(_selected(store, name, options), max(0, options.lines)):
        print(letter_text(letter.letter_id or "", letter.reason, letter.fields))
    print(f"{name}: {entries_text(sum(row[4] for row in rows))}", flush=True)


def _batches(letters: Iterator[Letter]) -> Iterator[list[Letter]]:
    # All IDs are read before the first change: an entry that is requeued may become a letter of this stream again.
    selected = list(letters)
    for start in range(0, len(selected), _BATCH):
        yield selected[start : start + _BATCH]


def _requeued(servers: Servers, name: str, letters: Iterator[Letter], to: str | None) -> RequeueSummary:
    """Requeue letters in their order; return the counts."""
    done = RequeueSummary()
    for batch in _batches(letters):
        by_target: dict[str | None, list[bytes]] = {}
        for letter in batch:
            by_target.setdefault(to or letter.stream, []).append((letter.letter_id or "").encode())
        for target, ids in by_target.items():
            if target is None:
                done.nowhere += len(ids)
            else:
                done += put_back(servers, _raw(name), ids, _raw(target))
    return done


def _dropped(store: Store, name: str, letters: Iterator[Letter]) -> int:
    return sum(store.stream(name).delete(*(letter.letter_id or "" for letter in batch)) for batch in _batches(letters))


def _raw(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
