"""Failed entries in this process: dead letters and pending entries, without Spark.

    found = read_letters(options)                      dead letters of the streams, oldest first
    found = read_pending(options, least=5, idle=0)     pending entries of their groups
    counts_of(found, now)                              the rows of the report
    requeue_here(options, found)                       moves them back into their streams (requeue.py), in order

`rillet dead-letters` and, for few entries, `rillet pipeline dead-letters` use this module; about 20 us an entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rillet.client.pages import reply_pages
from rillet.client.servers import Servers
from rillet.spark.options import Options
from rillet.spark.pipelines.group_info import after, pending_pages, streams_of, xinfo_groups
from rillet.spark.pipelines.letter_text import age_of, moment
from rillet.spark.pipelines.requeue import RequeueSummary, as_text, requeue_task
from rillet.store.arguments.encoding import decode, decode_fields
from rillet.store.consuming.dead_letters import META, OLD_META, origin_of, own_fields
from rillet.types.stream.id import StreamID

PAGE = 1000


@dataclass
class Letter:
    """A dead letter or a pending entry. The names are those of the columns of `rillet pipeline dead-letters`.

    failed: ms since 1970, 0 if unknown. letter_stream and letter_id are None for a pending entry.
    """

    stream: str | None
    group: str | None
    consumer: str | None
    id: str | None
    reason: str | None
    deliveries: int | None
    failed: int
    letter_stream: str | None
    letter_id: str | None
    fields: dict[str, str] | None


def letter_of(name: str, identifier: StreamID, flat: list[bytes]) -> Letter:
    """Return an entry of a dead-letter stream as a Letter."""
    own, every, origin = own_fields(flat), decode_fields(flat), origin_of(flat)
    meta = {decode(field) for field in (*META, *OLD_META)}
    fields = decode_fields(own) if len(own) < len(flat) else {
        field: value for field, value in every.items() if field not in meta
    }  # fmt: skip
    return Letter(_text(origin.stream), _text(origin.group), _text(origin.consumer), _text(origin.id),
                  _text(origin.reason), origin.deliveries, identifier.ms, name, str(identifier), fields)  # fmt: skip


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else decode(raw)


def read_letters(servers: Servers, options: Options) -> Iterator[Letter]:
    """Yield the entries of dead-letter streams, each stream in the order of its IDs."""
    for key in streams_of(servers, options):

        def command(at: bytes, key: bytes = key) -> tuple[bytes, ...]:
            return (b"XRANGE", key, at, b"+", b"COUNT", b"%d" % PAGE)

        def send(request: list[bytes], key: bytes = key) -> list[Any]:
            entries: list[Any] = servers.call(key, *request)
            return entries

        for page in reply_pages(send, command, b"-", PAGE, lambda entry: after(StreamID.parse(entry[0]))):
            for raw, flat in page:
                yield letter_of(decode(key), StreamID.parse(raw), flat)


def pending_parts(servers: Servers, options: Options) -> list[tuple[bytes, bytes, int]]:
    """Return (stream, group, number of pending entries) of each group that has some."""
    keys = streams_of(servers, options)
    return [(key, one["name"], one["pending"]) for key in keys for one in xinfo_groups(servers, key) if one["pending"]]


def read_pending(servers: Servers, key: bytes, group: bytes, least: int, idle: int) -> Iterator[Letter]:
    """Yield the pending entries of a group with their fields: delivered at least `least` times, `idle` ms ago."""
    for page in pending_pages(servers, key, group, idle=idle):
        chosen = [one for one in page if one.deliveries >= least]
        ids = [b"%d-%d" % one.id for one in chosen]
        entries = servers.calls(key, [(b"XRANGE", key, one, one) for one in ids])
        for one, raw, entry in zip(chosen, ids, entries, strict=True):
            fields = None if not entry else _texts(entry[0][1])
            reason = "the entry was deleted" if not entry else "not acknowledged" if one.consumer else "released"
            yield Letter(as_text(key), as_text(group), as_text(one.consumer) or None, raw.decode(), reason,
                         one.deliveries, one.delivered, None, None, fields)  # fmt: skip


def _texts(flat: list[bytes]) -> dict[str, str]:
    return {as_text(name): as_text(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}


def counts_of(letters: Iterable[Letter], now: int) -> list[tuple[Any, ...]]:
    """Return the rows of the report on entries, the largest first; now: the server's time in ms."""
    counts: dict[tuple[str | None, str | None, str | None, str], list[int]] = {}
    for letter in letters:
        age = age_of((now - letter.failed) / 1000 if letter.failed else None)
        found = counts.setdefault((letter.stream, letter.group, letter.reason, age), [0, 0, 0])
        found[0] += 1
        found[1:] = max(found[1], letter.deliveries or 0), max(found[2], letter.failed)
    rows = [(*key, entries, most or None, moment(last)) for key, (entries, most, last) in counts.items()]
    return sorted(rows, key=lambda row: (-row[4], *map(str, row[:3])))


def requeue_here(options: Options, letters: Iterable[Letter], to: str | None, min_idle: int) -> RequeueSummary:
    """Requeue entries into their streams or into `to`, in the order of requeue.py."""

    def place(letter: Letter) -> tuple[Any, ...]:
        group = letter.group or "" if letter.letter_stream is None else ""
        identifier = letter.letter_id or letter.id or "0"
        return to or letter.stream or "", letter.letter_stream or "", group, StreamID.parse(identifier)

    rows = [(one.stream, one.group, one.id, one.letter_stream, one.letter_id) for one in sorted(letters, key=place)]
    return sum(requeue_task(options, to, min_idle, rows), RequeueSummary())
