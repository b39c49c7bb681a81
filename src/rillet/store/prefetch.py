"""Prefetched messages: those that a loop over messages() has read and not handed out yet, and how they stay its own.

    XREADGROUP      one message is handed out, the others are prefetched; the server counts a delivery of each
    XCLAIM          RETRYCOUNT 0: the prefetched ones were not handed out yet         (if hand-outs are counted)
    XCLAIM          RETRYCOUNT 1 before each of them is handed out                    (if hand-outs are counted)
    XPENDING, XCLAIM  check and renew the message that is handed out, unless its lease is younger than 10 ms; and the
                    others, if their leases are older than a tenth of claim_idle
    XCLAIM          RETRYCOUNT 0, IDLE claim_idle: gives them back when the loop ends

**The lease** of a prefetched message is its idle time on the server: other workers claim a message that was idle for
`claim_idle`. The loop sets the idle time to 0 before it hands out a message. So a worker keeps its prefetched messages
while its handlers take less than `claim_idle`, and a worker that died or hangs loses them.

**The check.** XPENDING lists the messages that still belong to the loop, and XCLAIM renews those whose idle time has
not become smaller since: if another consumer claims one in between, the server leaves it alone, and it is not handed
out here. This needs no clock but the server's, and works on every version of Redis.

**How many** messages are read ahead depends on the handlers: as many as they handle in AHEAD seconds, at first one. So
the work is spread if handlers are slow, and the round trips are few if they are fast. In process nothing is read ahead,
because a read is not slower than the XCLAIM that it replaces.

Rejected: a thread that renews the lease, because it renews also for a handler that hangs; a read of a hundred messages
whose unhandled ones are counted as delivered, because a worker that is killed repeatedly makes dead letters of healthy
messages; a count of deliveries with the acknowledgement of the message before, because a worker that ends between the
two would have counted a delivery that did not happen.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from rillet.real_time import monotonic
from rillet.store.encoding import decode, parse_id
from rillet.store.recovery import LOGGER

CHECK_AFTER = 0.01  # seconds after which a message is checked before it is handed out
RENEW_AFTER = 0.1  # seconds after which all leases are renewed, if claim_idle is not known
AHEAD = 0.02  # seconds of work that a loop reads ahead
SLOW_START = 8  # messages that are read one at a time before the loop reads ahead
SEARCH_SHARE = 20  # a search that took t seconds is repeated after 20 t at the earliest
PREFETCH = 16  # the default of messages(prefetch=...) if deliveries are counted

Result = TypeVar("Result")
Commands: TypeAlias = Generator[Any, Any, Result]


class Post:
    """A command whose reply is not needed: over a socket, the loop does not wait for it."""

    __slots__ = ("argv",)

    def __init__(self, argv: list[bytes]) -> None:
        self.argv = argv


class _Stream(Protocol):
    key: bytes


class GroupLike(Protocol):
    """A Group or an AsyncGroup."""

    key: bytes

    @property
    def stream(self) -> _Stream:
        """The stream of the group."""


class Pace:
    """How many messages the next read returns: as many as are handled in AHEAD seconds, from `least` to `most`.

    first: the size of the first read.
    """

    __slots__ = ("_handled", "_since", "least", "most", "size")

    def __init__(self, most: int, first: int, least: int = 1) -> None:
        self.most, self.size, self.least = most, first, least
        self._handled = 0  # messages, up to SLOW_START
        self._since = 0.0

    def began(self) -> None:
        """Note that messages were read."""
        self._since = monotonic()

    def handled(self, number: int) -> None:
        """Note that so many messages were handled since the last read."""
        self._handled = min(SLOW_START, self._handled + number)
        each = (monotonic() - self._since) / number
        if each * self.size > AHEAD:
            self.size = max(self.least, int(AHEAD / each))
        elif self._handled == SLOW_START and each * self.size * 2 <= AHEAD:
            self.size = min(self.most, 2 * self.size)


class Search:
    """When the next search for stale messages is due, and where in the pending list of each group it continues.

    groups: how many pending lists are searched.
    """

    __slots__ = ("_idle", "_next", "starts")

    def __init__(self, groups: int, claim_idle: float | None) -> None:
        self.starts = [b"-"] * (0 if claim_idle is None else groups)
        self._idle = claim_idle or 0.0
        self._next = 0.0

    def due(self, empty: bool) -> bool:
        """Return whether to search now. empty: the last read returned no message."""
        return empty or (bool(self.starts) and monotonic() >= self._next)

    @property
    def complete(self) -> bool:
        """True if the last search reached the end of each pending list."""
        return all(start == b"-" for start in self.starts)

    def took(self, seconds: float) -> None:
        """Note how long the commands of a search took."""
        self._next = monotonic() + max(SEARCH_SHARE * seconds, min(self._idle / 4, 0.25))


class Prefetched:
    """The messages that a loop has read and not handed out, first to be handed out first.

    `deliveries` of each is the number on the server, where the next hand-out of some is still to be counted.
    consumer: the name of the loop's consumer. counts: whether the server counts hand-outs instead of reads.
    """

    __slots__ = ("_claim_idle", "_consumer", "_counts", "_process", "_renew_after", "_since", "_uncounted", "_warned",
                 "messages")  # fmt: skip

    def __init__(self, consumer: bytes, counts: bool, claim_idle: float | None) -> None:
        self.messages: deque[Any] = deque()
        self._consumer = consumer
        self._counts = counts
        self._claim_idle = claim_idle or 0.0
        self._renew_after = claim_idle / 10 if claim_idle else RENEW_AFTER
        self._since = 0.0  # when the leases of the messages began
        self._uncounted: set[int] = set()  # the id() of messages
        self._warned = False
        self._process = os.getpid()

    def fill(self, messages: Sequence[Any], size: int) -> Commands[None]:
        """Add messages that were just read or claimed; the first `size` are handed out next."""
        self.messages.extend(messages)
        self._since = monotonic()
        if self._counts and len(messages) > size:
            for same in self._unhanded(messages[size:]):
                yield Post(self._claim(same, 0, _count(same)))

    def put_back(self, messages: Sequence[Any]) -> None:
        """Add messages again that `next` returned, to be handed out next."""
        self.messages.extendleft(reversed(messages))

    def next(self, size: int) -> Commands[list[Any]]:
        """Take out the next messages, up to `size`; return those that still belong to this loop.

        Their hand-outs are counted now, and the leases of all messages renewed, where that is due.
        """
        if os.getpid() != self._process:  # in a forked child: they are the parent's
            self.clear()
            self._process = os.getpid()
        some = [self.messages.popleft() for _ in range(min(size, len(self.messages)))]
        new = [message for message in some if id(message) in self._uncounted]
        counts = [(same, _count(same, 1)) for same in _alike(new)]
        age = monotonic() - self._since
        if age >= min(CHECK_AFTER, self._renew_after):
            others = [message for message in some if id(message) not in self._uncounted]
            renews = age >= self._renew_after
            if renews:
                others += self.messages
                self._since = monotonic()
            kept = yield from self._renewed(counts + [(same, ()) for same in _alike(others)])
            some = [message for message in some if id(message) in kept]
            if renews:
                self._keep(kept)
        else:
            for same, options in counts:
                reply = yield Post(self._claim(same, 0, options))
                if reply is not None and len(reply) < len(same):  # acknowledged meanwhile, or deleted
                    gone = {id(message) for message in same if message.raw_id not in reply}
                    some = [message for message in some if id(message) not in gone]
        for message in new:
            message.deliveries += 1
        self._uncounted.difference_update(map(id, new))
        return some

    def clear(self) -> None:
        """Forget the messages."""
        self.messages.clear()
        self._uncounted.clear()

    def _keep(self, kept: set[int]) -> None:
        """Forget the messages whose id() is not in the set."""
        self.messages = deque(message for message in self.messages if id(message) in kept)
        self._uncounted &= kept

    def give_back(self) -> Commands[None]:
        """Give the messages back to their groups, unless others have claimed them; they may still be handed out later.

        Their deliveries are as before the read. They stay pending for this consumer, so that its restart finds them
        first, and are idle for claim_idle, so that others may claim them at once.
        """
        if os.getpid() != self._process:  # a forked child's copy: the loop belongs to the parent
            self.clear()
        counted = [message for message in self.messages if id(message) not in self._uncounted]
        idle = b"%d" % (1000 * self._claim_idle)
        kept = yield from self._renewed([
            (same, (b"IDLE", idle, *_count(same, -1 if id(same[0]) not in self._uncounted else 0)))
            for some in (counted, [message for message in self.messages if id(message) in self._uncounted])
            for same in _alike(some)
        ], ends=True)  # fmt: skip
        self._unhanded(counted)
        self._since = 0.0
        self._keep(kept)

    # -- leases ------------------------------------------------------------------------------------------

    def _unhanded(self, messages: Sequence[Any]) -> list[list[Any]]:
        """Note that the server will not count the read of messages as a delivery; see _alike."""
        for message in messages:
            message.deliveries -= 1
            self._uncounted.add(id(message))
        return _alike(messages)

    def _claim(self, same: Sequence[Any], idle_ms: int, options: Sequence[bytes]) -> list[bytes]:
        """Return the XCLAIM that renews messages of one group if they were idle for so long."""
        group = same[0].group
        return [b"XCLAIM", group.stream.key, group.key, self._consumer, b"%d" % idle_ms,
                *[message.raw_id for message in same], *options, b"JUSTID"]  # fmt: skip

    def _renewed(
        self, calls: Sequence[tuple[list[Any], Sequence[bytes]]], ends: bool = False
    ) -> Commands[set[int]]:  # fmt: skip
        """Claim the messages of each call again, with its options; return the id() of those that belong to this loop.

        If another consumer claims one in between, its idle time is smaller than the listed one.
        """
        kept: set[int] = set()
        for same, options in calls:
            own = yield from self._listed(same, ends)
            if own:
                idle_ms = min(idle for _, idle in own)
                claimed = set((yield self._claim([message for message, _ in own], idle_ms, options)))
                kept.update(id(message) for message, _ in own if message.raw_id in claimed)
        return kept

    def _listed(self, same: Sequence[Any], ends: bool) -> Commands[list[tuple[Any, int]]]:
        """Return those messages of one group that nobody has touched since, with their idle times in ms."""
        group = same[0].group
        ids = sorted((message.raw_id for message in same), key=parse_id)
        listing = [b"XPENDING", group.stream.key, group.key]
        start, size = ids[0], len(same) + 8
        found: dict[bytes, tuple[int, int]] = {}
        while True:
            # The consumer may have other pending messages between these, so the list may need several replies.
            rows = yield [*listing, start, ids[-1], b"%d" % size, self._consumer]
            found.update((row[0], (int(row[2]), int(row[3]))) for row in rows)
            if len(rows) < size:
                break
            start = b"(" + rows[-1][0]
        own = [(message, *found[message.raw_id]) for message in same if message.raw_id in found]
        if not ends and any(message.deliveries != count for message, _, count in own):
            self._warn(group)
        return [(message, max(0, idle)) for message, idle, count in own if message.deliveries == count]

    def _warn(self, group: GroupLike) -> None:
        if not self._warned:
            self._warned = True
            LOGGER.warning(
                "two live readers of the group %r of %r have the name %r and receive each other's messages: give each "
                "its own name", decode(group.key), decode(group.stream.key), decode(self._consumer),
            )  # fmt: skip


def _count(same: Sequence[Any], more: int = 0) -> tuple[bytes, bytes]:
    """Return the option that sets the deliveries of messages with the same number."""
    return b"RETRYCOUNT", b"%d" % (same[0].deliveries + more)


def _alike(messages: Iterable[Any]) -> list[list[Any]]:
    """Return the messages in lists of one group and one number of deliveries, for which one XCLAIM suffices."""
    found: dict[tuple[Any, int], list[Any]] = {}
    for message in messages:
        found.setdefault((message.group, message.deliveries), []).append(message)
    return list(found.values())


__all__ = ["PREFETCH", "Pace", "Post", "Prefetched", "Search"]
