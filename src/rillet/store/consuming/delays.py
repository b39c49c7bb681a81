"""Delays: entries and messages that consumers receive later, and when a loop looks for those that are due.

    stream.add(fields, delay=30)       a sorted set has the entry until a consumer moves it to the stream
    message.retry(delay=30)            the message stays pending; a sorted set has the time of its next delivery
    message.extend(30)                 the same, but the handler goes on with the message

In a loop with claim_idle, the time of an extension has a fraction, half a millisecond, which no retry has. When it is
over, no retry is due: the lease of claim_idle holds, as if nothing had been extended.

The sorted sets are those of rillet.keyspace.helper_keys, the moves those of consuming/atomic_steps.py. No process is
needed: every loop over messages() looks whether something is due, and the first one that sees it moves it. A consumer
that is killed before or after the move changes nothing, because the move is one step of the server.

    a member of rillet:delayed:...     0000000002 000001700000000 1:*5:field5:value
                                       |          |               XADD's words after the key: length, colon, bytes
                                       |          when it was added, in ms since 1970
                                       its place among the entries with the same due time

**When a loop looks.** At its start. Then every second, between two reads, as long as nobody has used delays on the
stream. Once somebody has, it looks every LOOK seconds, and exactly when the next one that it knows is due: a read waits
no longer than that. The first delayed entry of a stream may be late by the time that a read waits (`block`). And a loop
that claims a message between two looks does not notice the very first retry of its group: it could claim that message
early if it was idle for claim_idle. So `retry` sets the idle time to 0.

**Order.** Entries are added in the order of their due times, and those with the same one in the order of their calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rillet.keyspace.helper_keys import delayed_key, order_keys, retries_key
from rillet.real_time import monotonic
from rillet.store.arguments.argument_checks import integer_of
from rillet.store.arguments.durations import Seconds, seconds_in
from rillet.store.arguments.encoding import decode, decode_fields, parse_id
from rillet.store.arguments.positions import milliseconds_of
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from rillet.store.message import AnyGroup

Backoff: TypeAlias = Callable[[int], Seconds]  # the number of deliveries -> how long a failed message waits

LOOK, LOOK_IN_PROCESS = 0.1, 0.02  # seconds between two looks if delays are in use
LOOK_UNUSED = 1.0
_UNUSED_BLOCK = 10.0  # the most seconds that a read waits although nobody has used delays yet
_LONGEST = 100 * 366 * 86400  # seconds
_HEAD = 25  # bytes before the words of an entry
WAITING = (b"-inf", b"(inf")  # the scores of what waits


class DelayedEntry(NamedTuple):
    """An entry that waits until it is added to its stream.

    due: when that is; since: when `add` was called; fields: as text.
    """

    due: datetime
    since: datetime
    fields: dict[str, str]


class Retry(NamedTuple):
    """A pending message that waits for its next delivery, and when that is due."""

    id: StreamID
    due: datetime


def due_time(delay: Seconds | None, at: datetime | None) -> tuple[bytes, int]:
    """Return b"in" and a number of milliseconds, or b"at" and a time in milliseconds since 1970; rounded up."""
    if (delay is None) == (at is None):
        raise ValueError(f"pass either delay or at: {'neither was' if at is None else 'both were'} passed")
    if at is not None:
        return b"at", milliseconds_of(at, "at") + (at.microsecond % 1000 > 0)
    assert delay is not None
    seconds = seconds_in(delay, "delay")
    if seconds > _LONGEST:
        raise ValueError(f"delay must be at most a hundred years, not {delay!r:.200}")
    return b"in", math.ceil(round(seconds * 1000, 3))


def waiting_command(key: bytes, count: int) -> list[bytes]:
    """Return the command that lists the first members of a sorted set that wait."""
    return [b"ZRANGEBYSCORE", key, *WAITING, b"WITHSCORES", b"LIMIT", b"0", integer_of(count, "count", 0)]


def moment(ms: float) -> datetime:
    """Return a time in milliseconds since 1970 as a datetime."""
    return datetime.fromtimestamp(ms / 1000, timezone.utc)


def delayed_of(reply: Any) -> list[DelayedEntry]:
    """Return the entries of a ZRANGE with scores."""
    found = []
    for member, score in scored(reply):
        found.append(DelayedEntry(moment(score), moment(int(member[10:_HEAD])), decode_fields(fields_of(member))))
    return found


def retries_of(reply: Any) -> list[Retry]:
    """Return the retries of a ZRANGE with scores."""
    return [Retry(parse_id(member), moment(score)) for member, score in scored(reply)]


def scored(reply: Any) -> list[tuple[bytes, float]]:
    """Return the members of a reply with scores (RESP2: one list, RESP3: pairs)."""
    pairs = reply if not reply or isinstance(reply[0], list) else zip(reply[::2], reply[1::2], strict=True)
    return [(member, float(score)) for member, score in pairs]


def _words(member: bytes) -> list[bytes]:
    """Return the words of XADD that a member contains."""
    words, at = [], _HEAD
    while at < len(member):
        colon = member.index(b":", at)
        at = colon + 1 + int(member[at:colon])
        words.append(member[colon + 1 : at])
    return words


def fields_of(member: bytes) -> list[bytes]:
    """Return the fields and values of a member: the words after the ID "*"; no option before it has that value."""
    words = _words(member)
    return words[words.index(b"*") + 1 :]


class Exponential:
    """A back-off: a failed message waits `first` seconds, then `factor` times as long after each failure, up to `most`.

    jitter: the part of each wait that is random, from 0 to 1. So messages that failed together do not come together.
    """

    __slots__ = ("factor", "first", "jitter", "most")

    def __init__(self, first: Seconds = 1.0, *, factor: float = 2.0, most: Seconds = 3600.0,
                 jitter: float = 0.1) -> None:  # fmt: skip
        self.first = seconds_in(first, "first")
        self.most = seconds_in(most, "most")
        if self.most > _LONGEST or self.first > self.most:
            raise ValueError(f"most must be at least first and at most a hundred years, not {most!r:.200}")
        for name, value, least, greatest in (("factor", factor, 1.0, 1e6), ("jitter", jitter, 0.0, 1.0)):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"{name} must be a number, not {value!r:.200}")
            if not least <= value <= greatest:
                raise ValueError(f"{name} must be a number from {least:g} to {greatest:g}, not {value!r}")
        self.factor, self.jitter = float(factor), float(jitter)

    def __call__(self, deliveries: int) -> float:
        """Return how many seconds a message waits that was delivered so often."""
        from random import random

        try:
            seconds = min(self.most, self.first * self.factor ** max(0, deliveries - 1))
        except OverflowError:
            seconds = self.most
        return seconds * (1 - self.jitter * random())

    def __repr__(self) -> str:
        return f"Exponential({self.first:g}, factor={self.factor:g}, most={self.most:g}, jitter={self.jitter:g})"


def in_process(store: Any) -> bool:
    """Return whether the engine of a store is in this process."""
    return bool(getattr(store, "synchronous", store).owner)


class Delays:
    """When a loop over the messages of some streams looks for what is due, and what it saw at the last look.

    groups: the group of each stream. A group whose `has_retries` is set has its retries looked up before each claim.
    order_by: the field of the order by key, if the loop has one. look: seconds between two looks if they are needed.
    """

    __slots__ = ("_groups", "_next", "_order_by", "_seen", "_used", "forbidden", "look", "sees_order")

    def __init__(self, groups: Sequence[AnyGroup], order_by: bytes | None = None) -> None:
        self._order_by = order_by
        self._groups = groups
        self._used = [False] * len(groups)
        self._seen = [False] * len(groups)  # whether has_retries was set at the last look
        self._next = 0.0
        self.look = LOOK_IN_PROCESS if in_process(groups[0].store) else LOOK
        self.forbidden = False  # the user has no permission for these keys
        self.sees_order = True  # or at least for those of delays

    def due(self, before_end: bool) -> bool:
        """Return whether to look now. before_end: the loop ends if nothing is due."""
        if self.forbidden:
            return False
        if monotonic() >= self._next or (before_end and any(self._used)):
            return True
        return any(group.has_retries and not seen for group, seen in zip(self._groups, self._seen, strict=True))

    def began(self) -> None:
        """Note that a look begins."""
        self._next = monotonic() + LOOK_UNUSED
        self._seen = [group.has_retries for group in self._groups]

    def command(self, place: int) -> list[list[bytes]]:
        """Return the transaction that looks at the stream of that place."""
        group = self._groups[place]
        first = b"0", b"0", b"WITHSCORES"
        order = [[b"HGET", order_keys(group.stream.key, group.key)[0], b""]] if self.sees_order else []
        return [[b"MULTI"], [b"ZRANGE", delayed_key(group.stream.key), *first],
                [b"ZRANGE", retries_key(group.stream.key, group.key), *first], [b"TIME"], *order,
                [b"EXEC"]]  # fmt: skip

    def saw(self, place: int, delayed: Any, retries: Any, time: Any, field: Any = None) -> tuple[bool, bool]:
        """Note the replies of such a transaction; return whether an entry and whether a retry is due.

        field: that of the present order by key. ValueError if it is not `order_by` of the loop.
        """
        if isinstance(field, bytes) and field != self._order_by:
            raise other_order(self._groups[place], field)
        now = int(time[0]) * 1000 + int(time[1]) // 1000
        first = [scored(reply)[0][1] if reply and isinstance(reply, list) else None for reply in (delayed, retries)]
        self._groups[place].has_retries |= first[1] is not None
        self._used[place] = first != [None, None]
        waits = min((one for one in first if one is not None), default=math.inf) - now
        if self._used[place]:
            self._next = min(self._next, monotonic() + min(self.look, max(0.001, waits / 1000)))
        return first[0] is not None and first[0] <= now, first[1] is not None and first[1] <= now

    def limit(self, block: float) -> float:
        """Return how long a read may wait that would wait for `block` seconds, 0 without limit."""
        if self.forbidden:
            return block
        if any(self._used):
            most = max(0.001, self._next - monotonic())
        else:
            most = _UNUSED_BLOCK
        return min(block, most) if block else most


def other_order(group: AnyGroup, field: bytes) -> ValueError:
    """Return the error of a loop whose order_by is not that of its group."""
    return ValueError(
        f"messages of the group {decode(group.key)!r} of {decode(group.stream.key)!r} are handed out in the order of "
        f"{decode(field)!r}: pass order_by={decode(field)!r}, or let such loops handle what is pending first"
    )
