"""Positions in a stream: an ID or a time, as the argument of a command.

    a StreamID, "1700000000000-5", "-", "+", "$", "(1-5", or an int of milliseconds    an ID
    an aware datetime                                                                  a time: a millisecond of IDs

    where               a time becomes    so that
    start of a range    ms                the first entry of that millisecond is included
    end of a range      ms                the last entry of that millisecond is included (a server appends the sequence)
    `after`, reset_to   (ms - 1)-max      the entries of that millisecond are after it
    a new entry         ms-*              the server appends the next sequence number

An ID has whole milliseconds, so the fraction of a millisecond is dropped. A datetime without a time zone is rejected:
it would mean another time on a machine with another local time.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TypeAlias

from rillet.store.arguments.encoding import IDLike, encode_id
from rillet.types.stream.id import MAX, StreamID

Position: TypeAlias = IDLike | datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# What is accepted beside an ID: "(" excludes the ID that follows it, "*" stands for what the server chooses.
_RANGE = frozenset((b"-", b"+", b"("))
_AFTER = frozenset((b"$", b"-", b"+", b">"))
_NEW = frozenset((b"*",))
_RESET = frozenset((b"-", b"$"))
_MILLISECOND = timedelta(milliseconds=1)


def milliseconds_of(moment: datetime, parameter: str = "a time") -> int:
    """Return the milliseconds from 1970 to a datetime, rounded down; raise ValueError for a naive or earlier one."""
    if not isinstance(moment, datetime):
        raise TypeError(f"{parameter} must be an aware datetime, such as datetime.now(UTC), not {moment!r:.200}")
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise ValueError(f"{parameter}: {moment!r} has no time zone: pass an aware datetime, such as datetime.now(UTC)")
    ms = (moment - _EPOCH) // _MILLISECOND
    if ms < 0:
        raise ValueError(f"{parameter}: {moment.isoformat()} is before 1970, where the IDs of streams begin: "
                         "pass a later time")  # fmt: skip
    return ms


def encode_position(value: Position, parameter: str = "position") -> bytes:
    """Return the argument for the start or the end of a range."""
    return b"%d" % milliseconds_of(value, parameter) if isinstance(value, datetime) \
        else encode_id(value, parameter, _RANGE)  # fmt: skip


def encode_minid(value: Position, parameter: str = "minid") -> bytes:
    """Return the argument for MINID."""
    return b"%d" % milliseconds_of(value, parameter) if isinstance(value, datetime) else encode_id(value, parameter)


def encode_after(value: Position, parameter: str = "after") -> bytes:
    """Return the argument for the position after which a command reads."""
    if not isinstance(value, datetime):
        return encode_id(value, parameter, _AFTER)
    ms = milliseconds_of(value, parameter)
    return b"%d-%d" % (ms - 1, MAX) if ms else b"0-0"


def encode_before(value: Position, parameter: str = "position") -> bytes:
    """Return the argument after which a command reads, so that it reads the entry of a position, too."""
    if isinstance(value, datetime):
        return encode_after(value, parameter)
    raw = encode_id(value, parameter, _RESET)
    if raw in _RESET:
        return b"0-0" if raw == b"-" else b"$"
    return encode_id(before(StreamID.parse(raw)))


def before(id: StreamID) -> StreamID:
    """Return the greatest ID that is smaller; 0-0 for 0-0."""
    if id.seq:
        return StreamID(id.ms, id.seq - 1)
    return StreamID(id.ms - 1, MAX) if id.ms else id


def encode_new_id(value: Position, parameter: str = "id") -> bytes:
    """Return the argument for the ID of a new entry."""
    return b"%d-*" % milliseconds_of(value, parameter) if isinstance(value, datetime) \
        else encode_id(value, parameter, _NEW)  # fmt: skip


def exact_id(value: IDLike, parameter: str = "id") -> StreamID:
    """Return the ID of one entry; a missing sequence number is 0, as in XDEL. InvalidID for other text."""
    return value if type(value) is StreamID else StreamID.parse(encode_id(value, parameter))
