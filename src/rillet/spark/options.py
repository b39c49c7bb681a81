"""The options of the connector: known by name, read once, and everything wrong with them said at once.

Spark hands options as strings, names in any case. `parse` turns them into an `Options`; an `OptionError` lists
every unknown name, every malformed value and every contradiction, so that nobody corrects one after the other.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rillet.errors import RilletError
from rillet.types.stream_id import MAX, StreamID

READ_ONLY = ("startingOffsets", "endingOffsets", "maxEntriesPerTrigger", "minPartitions", "pageEntries", "batchEntries")
WRITE_ONLY = ("maxlen", "idColumn", "fieldColumns")
NAMES = ("url", "path", "stream", "timeout", *READ_ONLY, *WRITE_ONLY)
# What Spark itself puts among a source's or sink's options.
SPARKS_OWN = frozenset(("checkpointlocation", "queryname", "outputmode", "triggerinterval"))

EARLIEST = StreamID(0, 0)
_ID = re.compile(r"(\(?)([0-9]{1,20})(?:-([0-9]{1,20}))?")


class OptionError(RilletError):
    """The options cannot be used; the text names everything that is wrong with them."""


@dataclass(frozen=True)
class Options:
    """Checked options, small enough to travel with every task."""

    stream: str
    url: str | None = None
    path: str | None = None
    timeout: float = 60.0
    starting: StreamID | None = EARLIEST  # the ID after which reading starts; None = latest
    ending: StreamID | None = None  # the last ID to read; None = latest
    max_entries_per_trigger: int | None = None
    min_partitions: int | None = None
    page_entries: int = 2500
    batch_entries: int = 10000
    maxlen: int | None = None
    id_column: str | None = None
    field_columns: tuple[str, ...] | None = None
    named: frozenset[str] = field(default=frozenset(), compare=False)  # what the user set, lower case

    def refuse(self, names: tuple[str, ...], use: str) -> None:
        """Raise OptionError when any of `names` was set, which mean nothing for this use."""
        wrong = [name for name in names if name.lower() in self.named]
        if wrong:
            raise OptionError(f"rillet: not for {use}: {', '.join(wrong)}")


def parse(given: Mapping[str, str]) -> Options:
    """Return the options, or raise OptionError about all that is wrong with them."""
    values = {name.lower(): value for name, value in given.items()}
    wrong = [_unknown(name) for name in values if not _is_known(name)]
    if ("url" in values) == ("path" in values):
        wrong.append("give one of url (redis://host:port/db) and path (a store's directory)")
    if not values.get("stream"):
        wrong.append("stream is missing: the key to read or to append to")
    parsed: dict[str, Any] = {}
    for name, (attribute, convert) in _CONVERSIONS.items():
        if name.lower() in values:
            try:
                parsed[attribute] = convert(values[name.lower()])
            except ValueError as error:
                wrong.append(f"{name} is {values[name.lower()]!r}: {error}")
    if wrong:
        raise OptionError("rillet: " + "; ".join(wrong))
    return Options(**parsed, named=frozenset(values))


def _is_known(name: str) -> bool:
    return name in SPARKS_OWN or name in _LOWER_NAMES


def _unknown(name: str) -> str:
    """Return the complaint about an unknown option, with the nearest known one."""
    near = difflib.get_close_matches(name, _LOWER_NAMES, 1)
    return f"unknown option {name}" + (f" (did you mean {_LOWER_NAMES[near[0]]}?)" if near else "")


def start_of(text: str) -> StreamID | None:
    """Return the ID after which reading starts: earliest, latest (None), ID (inclusive) or (ID (exclusive)."""
    if text.lower() in ("earliest", "latest"):
        return EARLIEST if text.lower() == "earliest" else None
    found = _id(text)
    bound = StreamID(int(found[2]), int(found[3] or 0))
    return bound if found[1] or bound == EARLIEST else before(bound)


def end_of(text: str) -> StreamID | None:
    """Return the last ID to read: latest (None), ID (inclusive; without -seq its whole millisecond) or (ID."""
    if text.lower() == "latest":
        return None
    found = _id(text)
    if found[1]:
        bound = StreamID(int(found[2]), int(found[3] or 0))
        return bound if bound == EARLIEST else before(bound)
    return StreamID(int(found[2]), MAX if found[3] is None else int(found[3]))


def _id(text: str) -> re.Match[str]:
    found = _ID.fullmatch(text)
    if found is None or int(found[2]) > MAX or int(found[3] or 0) > MAX:
        raise ValueError("neither earliest, latest nor a stream ID, like 1526919030474-0 or (1526919030474-0")
    return found


def before(bound: StreamID) -> StreamID:
    """Return the ID just below (t_stream.c, streamDecrID)."""
    return StreamID(bound.ms, bound.seq - 1) if bound.seq else StreamID(bound.ms - 1, MAX)


def _at_least_one(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError("not a whole number from 1 up")
    return int(text)


def _not_negative(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError("not a whole number from 0 up")
    return int(text)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < 1e6:
        raise ValueError("not a number of seconds above 0")
    return seconds


def _column_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError("names no column")
    return names


_CONVERSIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "stream": ("stream", str),
    "url": ("url", str),
    "path": ("path", str),
    "timeout": ("timeout", _seconds),
    "startingOffsets": ("starting", start_of),
    "endingOffsets": ("ending", end_of),
    "maxEntriesPerTrigger": ("max_entries_per_trigger", _at_least_one),
    "minPartitions": ("min_partitions", _at_least_one),
    "pageEntries": ("page_entries", _at_least_one),
    "batchEntries": ("batch_entries", _at_least_one),
    "maxlen": ("maxlen", _not_negative),
    "idColumn": ("id_column", str),
    "fieldColumns": ("field_columns", _column_names),
}
_LOWER_NAMES = {name.lower(): name for name in NAMES}
