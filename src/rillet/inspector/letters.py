"""Dead letters: the streams that hold them, how many there are by origin and reason, and the letters themselves.

    letter_streams    the streams whose last entry has the origin of a dead letter, as `rillet dead-letters` finds them
    letter_counts     entries by stream, group and reason, among the newest EXAMINED letters of a stream
    LetterFilter      selects the letters of one such row, for a page of entries (streams.py)

A letter is requeued or dropped by the actions of actions.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rillet.inspector.streams import entry_json, origin_json
from rillet.inspector.text import to_text
from rillet.store.arguments.encoding import parse_id
from rillet.store.consuming.dead_letters import Origin, is_letter, origin_of
from rillet.store.store import Store

EXAMINED = 10_000
"""The most letters that are counted."""
_PAGE = 500
_ROWS = 200
_MANY = 50  # streams whose last entries are read at once


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Selects letters by stream, group and reason; None: any."""

    stream: bytes | None = None
    group: bytes | None = None
    reason: bytes | None = None

    def matches(self, flat: list[bytes]) -> bool:
        """Return whether a letter has this origin."""
        found = origin_of(flat)
        return all(want is None or want == (have or b"") for want, have in (
            (self.stream, found.stream), (self.group, found.group), (self.reason, found.reason)))  # fmt: skip


def letter_streams(store: Store, names: Iterable[bytes]) -> list[dict[str, Any]]:
    """Return the streams among `names` whose last entry is a dead letter, the last written one first. O(names)"""
    found = []
    every = list(names)
    for at in range(0, len(every), _MANY):
        some = every[at : at + _MANY]
        lasts = store.run_many([[b"XREVRANGE", name, b"+", b"-", b"COUNT", b"1"] for name in some], raises=False)
        for name, rows in zip(some, lasts, strict=True):
            if not isinstance(rows, list) or not rows or not is_letter(rows[0][1]):
                continue
            (first_id, _), = store.run([b"XRANGE", name, b"-", b"+", b"COUNT", b"1"]) or [rows[0]]
            found.append({
                "name": to_text(name), "length": int(store.run([b"XLEN", name])), "first": parse_id(first_id).ms,
                "last": parse_id(rows[0][0]).ms, "letter": entry_json(*rows[0]).get("letter"),
            })  # fmt: skip
    return sorted(found, key=lambda one: (-one["last"], one["name"]))


def letter_counts(store: Store, key: bytes) -> dict[str, Any]:
    """Return the rows of the report on a stream's letters, the largest first. O(letters examined)

    A row has stream, group, reason, entries, the most deliveries, and the time of the last letter in ms.
    """
    counts: dict[tuple[bytes | None, bytes | None, bytes | None], list[int]] = {}
    examined, end, complete = 0, b"+", False
    while examined < EXAMINED:
        rows = store.run([b"XREVRANGE", key, end, b"-", b"COUNT", b"%d" % _PAGE])
        for raw_id, flat in rows:
            one = origin_of(flat)
            row = counts.setdefault((one.stream, one.group, one.reason), [0, 0, parse_id(raw_id).ms])
            row[0] += 1
            row[1] = max(row[1], one.deliveries or 0)
        examined += len(rows)
        if len(rows) < _PAGE:
            complete = True
            break
        end = b"(" + rows[-1][0]
    found = sorted(counts.items(), key=lambda one: (-one[1][0], -one[1][2]))[:_ROWS]
    return {
        "examined": examined, "complete": complete, "rows": [
            {**origin_json(Origin(stream, group, None, None, reason, most or None)), "entries": entries, "last": last}
            for (stream, group, reason), (entries, most, last) in found
        ],
    }  # fmt: skip
