"""Parsers for the values of options and command-line arguments.

Each parser converts the user's text to the value, or raises ValueError with the expected format. The caller puts
"<option> is <text>: " before the error's message.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

from rillet.types.stream.id import MAX, StreamID

EARLIEST = StreamID(0, 0)
LATEST = None
Bound = StreamID | None  # the first or last ID to read; None: latest
Bounds = Bound | dict[str, Bound]

_ID = re.compile(r"(\(?)([0-9]{1,20})(?:-([0-9]{1,20}))?")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)?")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}


# ---- stream IDs and times ---------------------------------------------------------------------------------------


def before(bound: StreamID) -> StreamID:
    """Return the next smaller stream ID (t_stream.c, streamDecrID)."""
    return StreamID(bound.ms, bound.seq - 1) if bound.seq else StreamID(bound.ms - 1, MAX)


def starting_bound(text: str) -> Bound:
    """Return the ID after which to read, for: earliest, latest (None), ID (this entry included) or (ID (excluded)."""
    if text.lower() in ("earliest", "latest"):
        return EARLIEST if text.lower() == "earliest" else LATEST
    match = _match_id(text, "earliest, latest or ")
    bound = StreamID(int(match[2]), int(match[3] or 0))
    return bound if match[1] or bound == EARLIEST else before(bound)


def ending_bound(text: str) -> Bound:
    """Return the last ID to read, for: latest (None), ID (included), (ID (excluded), <ms> (all its IDs included)."""
    if text.lower() == "latest":
        return LATEST
    match = _match_id(text, "latest or ")
    if match[1]:
        bound = StreamID(int(match[2]), int(match[3] or 0))
        return bound if bound == EARLIEST else before(bound)
    return StreamID(int(match[2]), MAX if match[3] is None else int(match[3]))


def _match_id(text: str, words: str) -> re.Match[str]:
    match = _ID.fullmatch(text)
    if match is None or int(match[2]) > MAX or int(match[3] or 0) > MAX:
        raise ValueError(f"expected {words}a stream ID such as 1526919030474-0 or (1526919030474-0")
    return match


def bounds(bound: Callable[[str], Bound]) -> Callable[[str], Bounds]:
    """Return a parser for either one offset for all streams or JSON with an offset per stream: {"<stream>": "<ID>"}."""

    def read(text: str) -> Bounds:
        if not text.lstrip().startswith("{"):
            return bound(text)
        by_stream: dict[str, Bound] = {}
        for stream, value in json_object(text).items():
            if not isinstance(value, str):
                raise ValueError(f"expected a JSON string with an ID for the stream {stream!r}")
            try:
                by_stream[stream] = bound(value)
            except ValueError as error:
                raise ValueError(f"{error}; {value!r} was given for the stream {stream!r}") from None
        return by_stream

    return read


def stream_id(text: str) -> str:
    """Check the text of a stream ID, `<ms>` or `<ms>-<seq>`, and return it unchanged."""
    match = _ID.fullmatch(text)
    if match is None or match[1] or int(match[2]) > MAX or int(match[3] or 0) > MAX:
        raise ValueError("expected a stream ID such as 1526919030474-0")
    return text


def iso_time(text: str) -> datetime:
    """Return the time that a text in ISO 8601 names, as Python 3.11 parses it; ValueError if it is malformed."""
    if sys.version_info < (3, 11):
        text = re.sub(r"[zZ]$", "+00:00", text)
        text = re.sub(r"(?<=:[0-9]{2})([+-][0-9]{2})$", r"\1:00", re.sub(r"([+-][0-9]{2})([0-9]{2})$", r"\1:\2", text))
        text = re.sub(r"\.([0-9]{1,6})", lambda digits: f".{digits[1]:0<6}", text)
    return datetime.fromisoformat(text)


def timestamp(text: str) -> int:
    """Return milliseconds since 1970, from milliseconds or ISO 8601 (UTC unless the text names a time zone)."""
    if text.isascii() and text.isdigit():
        if len(text) > 20 or int(text) > MAX:
            raise ValueError(f"expected at most {MAX} milliseconds, the largest value in a stream ID")
        return int(text)
    try:
        moment = iso_time(text)
    except ValueError:
        raise ValueError("expected milliseconds since 1970 or ISO 8601 such as 2024-05-01T12:00:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return -((datetime(1970, 1, 1, tzinfo=timezone.utc) - moment) // timedelta(milliseconds=1))


def duration(text: str) -> float:
    """Return seconds, from a number of seconds or from a number with a unit: 500ms, 30s, 15m, 1h, 7d."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError("expected a time: a number of seconds, or a number with a unit (500ms, 30s, 15m, 1h, 7d)")
    return float(match[1]) * _UNIT_SECONDS[match[2]]


def timeout(text: str) -> float:
    """Return a duration in seconds, which must be above 0."""
    seconds = duration(text)
    if not 0 < seconds < 1e8:
        raise ValueError("expected a time above 0 and below 1,000 days")
    return seconds


# ---- numbers, words and names -----------------------------------------------------------------------------------


def whole_number(least: int) -> Callable[[str], int]:
    """Return a parser for a whole number of at least `least`."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise ValueError(f"expected a whole number of at least {least}")
        return int(text)

    return read


def boolean(text: str) -> bool:
    """Convert `true` or `false`, in upper or lower case, to a bool."""
    if text.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return text.lower() == "true"


def one_of(*words: str) -> Callable[[str], str]:
    """Return a parser that accepts one of `words` in any case and returns the word as spelled in `words`."""

    def read(text: str) -> str:
        for word in words:
            if text.lower() == word.lower():
                return word
        raise ValueError(f"expected one of {', '.join(words)}")

    return read


def names(text: str) -> tuple[str, ...]:
    """Return the names in a list that is separated by commas; reject a name that occurs twice."""
    listed = tuple(name.strip() for name in text.split(",") if name.strip())
    if not listed:
        raise ValueError("expected at least one name")
    if len(set(listed)) < len(listed):
        raise ValueError("expected each name once")
    return listed


def non_empty(text: str) -> str:
    """Return the text unchanged; reject an empty text."""
    if not text:
        raise ValueError("expected a value that is not empty")
    return text


def stream_target(text: str) -> str:
    """Return the name in `stream:NAME`."""
    kind, _, name = text.partition(":")
    if kind.lower() != "stream" or not name:
        raise ValueError("expected stream:NAME, the key of a stream on the same server")
    return name


def field_map(text: str) -> dict[str, str]:
    """Return the field name of each column, from JSON {"<column>": "<field>"}."""
    fields = json_object(text)
    if not fields or not all(isinstance(name, str) for name in fields.values()):
        raise ValueError('expected JSON of the form {"<column>": "<field>"}')
    return fields


def text_map(text: str) -> dict[str, str]:
    """Return the texts by name in JSON {"<name>": "<text>"}."""
    values = json_object(text)
    if not all(isinstance(value, str) for value in values.values()):
        raise ValueError('expected JSON of the form {"<name>": "<text>"}')
    return values


def json_object(text: str) -> dict[str, Any]:
    """Return the object that a text in JSON contains."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"expected JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError("expected a JSON object")
    return value
