"""Positions in a stream: an ID or a time, as the argument of a command.

    a StreamID, "1700000000000-5", "-", "+", "$", "(1-5", or an int of milliseconds    an ID
    an aware datetime                                                                  a time: a millisecond of IDs

    where               a time becomes    so that
    start of a range    ms                the first entry of that millisecond is included
    end of a range      ms                the last entry of that millisecond is included (a server appends the sequence)
    `after`             (ms - 1)-max      the entries of that millisecond are after it
    a new entry         ms-*              the server appends the next sequence number

An ID has whole milliseconds, so the fraction of a millisecond is dropped. A datetime without a time zone is rejected:
it would mean another time on a machine with another local time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from rillet.store.encoding import IDLike, encode_id
from rillet.types.stream.id import MAX, StreamID

Position: TypeAlias = IDLike | datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def milliseconds_of(moment: datetime) -> int:
    """Return the milliseconds from 1970 to a datetime, rounded down; raise ValueError for a naive or earlier one."""
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise ValueError(f"{moment!r} has no time zone: pass an aware datetime, such as datetime.now(UTC)")
    ms = (moment - _EPOCH) // _MILLISECOND
    if ms < 0:
        raise ValueError(f"{moment.isoformat()} is before 1970, where the IDs of streams begin: pass a later time")
    return ms


def encode_position(value: Position) -> bytes:
    """Return the argument for the start or the end of a range, and for MINID."""
    return b"%d" % milliseconds_of(value) if isinstance(value, datetime) else encode_id(value)


def encode_after(value: Position) -> bytes:
    """Return the argument for the position after which a command reads."""
    if not isinstance(value, datetime):
        return encode_id(value)
    ms = milliseconds_of(value)
    return b"%d-%d" % (ms - 1, MAX) if ms else b"0-0"


def encode_new_id(value: Position) -> bytes:
    """Return the argument for the ID of a new entry."""
    return b"%d-*" % milliseconds_of(value) if isinstance(value, datetime) else encode_id(value)


def exact_id(value: IDLike) -> StreamID:
    """Return the ID of one entry; a missing sequence number is 0, as in XDEL. Raise ValueError for other text."""
    return value if type(value) is StreamID else StreamID.parse(encode_id(value))
