"""Prefetched messages: those that a loop over messages() has read and not handed out yet, and how they stay its own.

    XREADGROUP        one message is handed out, the others are prefetched; the server counts a delivery of each
    XCLAIM            RETRYCOUNT 0: the prefetched ones were not handed out yet            (if hand-outs are counted)
    XPENDING, XCLAIM  check and renew the message that is handed out, and count that, if its lease is older than 10 ms;
                      renew the others if their leases are older than a tenth of claim_idle
    XPENDING, XCLAIM  before the next read: count the hand-outs of messages that were not acknowledged
    XPENDING, XCLAIM  RETRYCOUNT 0, IDLE claim_idle: give the others back when the loop ends

**The lease** of a prefetched message is its idle time on the server: other workers claim a message that was idle for
`claim_idle`. The loop sets the idle time to 0 before it hands out a message. So a worker keeps its prefetched messages
while its handlers take less than `claim_idle`, and a worker that died or hangs loses them.

**The check.** XPENDING lists the messages that still belong to the loop, and XCLAIM renews those whose idle time has
not become smaller since: if another consumer claims one in between, the server leaves it alone, and it is not handed
out here. This needs no clock but the server's, and works on every version of Redis. In a group with retries the check
is a script (consuming/atomic_steps.py): a message that waits for its retry may be idle for long, and is not handed out.

**How many** messages are read ahead depends on the handlers: as many as they handle in AHEAD seconds. So the work is
spread if handlers are slow, and the round trips are few if they are fast. If hand-outs are counted, the first messages
are read one at a time.

**What is counted.** Slow handlers: each hand-out, before it happens. Fast handlers: the hand-outs of messages that are
acknowledged need no count, and the others are counted before the next read. A worker that is killed leaves prefetched
messages with the count that they had, so healthy messages do not become dead letters. The message in its handler may
lack one count if the handlers were fast; every later hand-out of that message is counted before it happens.
Rejected: a command for each hand-out, which halves the rate of fast handlers; a count with the acknowledgement of the
message before, because a worker that ends between the two would have counted a delivery that did not happen.
Rejected for the leases: a thread that renews them, because it renews also for a handler that hangs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rillet.loggers import logger
from rillet.real_time import monotonic
from rillet.store.arguments.encoding import decode, parse_id
from rillet.store.consuming.atomic_steps import keep

if TYPE_CHECKING:
    from rillet.store.command_steps import Commands
    from rillet.store.message import AnyGroup, Delivered

LOGGER = logger("store")
CHECK_AFTER = 0.01  # seconds after which a message is checked before it is handed out
RENEW_AFTER = 0.1  # seconds after which all leases are renewed, if claim_idle is not known
AHEAD = 0.02  # seconds of work that a loop reads ahead
SLOW_START = 8  # messages that are read one at a time before the loop reads ahead
SEARCH_SHARE = 20  # a search that took t seconds is repeated after 20 t at the earliest
PREFETCH = 50  # the default of messages(prefetch=...) if deliveries are counted


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
    consumer: the name of the loop's consumer. counts: whether the server counts hand-outs instead of reads. turn: with
    order_by, the lease (rillet.store.consuming.order_steps); then each message has another key.
    """

    __slots__ = ("_check_after", "_claim_idle", "_consumer", "_counts", "_handed", "_renew_after", "_since",
                 "_turn", "_uncounted", "_warned", "messages")  # fmt: skip

    def __init__(self, consumer: bytes, counts: bool, claim_idle: float | None, turn: bytes | None = None) -> None:
        self.messages: deque[Delivered[Any]] = deque()
        self._consumer = consumer
        self._counts = counts
        self._claim_idle = claim_idle or 0.0
        self._renew_after = claim_idle / 10 if claim_idle else RENEW_AFTER
        self._check_after = min(CHECK_AFTER, self._renew_after)
        self._turn = turn
        self._since = 0.0  # when the leases of the messages began
        self._uncounted: set[int] = set()  # the id() of messages
        self._handed: list[Delivered[Any]] = []  # messages that were handed out and not counted yet
        self._warned = False

    def fill(self, messages: Sequence[Delivered[Any]], size: int) -> Commands[None]:
        """Add messages that were just read or claimed; the first `size` are handed out next."""
        self.messages.extend(messages)
        self._since = monotonic()
        if self._counts and len(messages) > size:
            for message in messages[size:]:
                message.deliveries -= 1
                self._uncounted.add(id(message))
            for same in _alike(messages[size:]):
                if same[0].group.has_retries:
                    kept = yield from self._kept(same, same[0].deliveries + 1, _count(same))
                    self._keep(set(map(id, self.messages)) - set(map(id, same)) | kept)
                else:
                    yield self._claim(same, 0, _count(same))

    def fill_in_turn(self, messages: Sequence[Delivered[Any]], size: int) -> None:
        """Add messages of which the server has counted the hand-outs of the first `size` only: the read did this."""
        self.messages.extend(messages)
        self._since = monotonic()
        self._uncounted.update(map(id, messages[size:]))

    def put_back(self, messages: Sequence[Delivered[Any]]) -> None:
        """Add messages again that `next` returned, to be handed out next."""
        self.messages.extendleft(reversed(messages))

    def next(self, size: int) -> list[Delivered[Any]] | None:
        """Take out the next messages, up to `size`; return None if they must be checked."""
        messages = self.messages
        if monotonic() - self._since >= self._check_after:
            return None
        some = [messages.popleft()] if size == 1 else [messages.popleft() for _ in range(min(size, len(messages)))]
        if self._uncounted:
            for message in some:
                if id(message) in self._uncounted:
                    self._uncounted.discard(id(message))
                    message.deliveries += 1
                    self._handed.append(message)
        return some

    def checked(self, size: int) -> Commands[list[Delivered[Any]]]:
        """Take out the next messages, up to `size`; return those that still belong to this loop.

        Their hand-outs are counted, and the leases of all messages renewed if that is due.
        """
        some = [self.messages.popleft() for _ in range(min(size, len(self.messages)))]
        renews = monotonic() - self._since >= self._renew_after
        new = [message for message in some if id(message) in self._uncounted]
        others = [message for message in some if id(message) not in self._uncounted]
        if renews:
            others += self.messages
            self._since = monotonic()
        calls: list[tuple[list[Delivered[Any]], Sequence[bytes]]] = [(same, _count(same, 1)) for same in _alike(new)]
        kept = yield from self._renewed(calls + [(same, ()) for same in _alike(others)])
        for message in new:
            message.deliveries += 1
        self._uncounted.difference_update(map(id, new))
        if renews:
            self._keep(kept)
        return [message for message in some if id(message) in kept]

    def count_handed(self) -> Commands[None]:
        """Count the hand-outs of messages that are still to be counted and were not acknowledged."""
        if not self._handed:
            return
        handed, self._handed = [message for message in self._handed if not message.settled], []
        for message in handed:
            message.deliveries -= 1  # the number on the server
        yield from self._renewed([(same, _count(same, 1)) for same in _alike(handed)], ends=True)
        for message in handed:
            message.deliveries += 1

    def clear(self) -> None:
        """Forget the messages: those of a loop that begins again, and in a forked child those of its parent."""
        self.messages.clear()
        self._uncounted.clear()
        self._handed.clear()

    def _keep(self, kept: set[int]) -> None:
        """Forget the messages whose id() is not in the set."""
        self.messages = deque(message for message in self.messages if id(message) in kept)
        self._uncounted &= kept

    def give_back(self) -> Commands[None]:
        """Give the messages back to their groups, unless others have claimed them; they may still be handed out later.

        Their deliveries are as before the read. They stay pending for this consumer, so that its restart finds them
        first, and are idle for claim_idle, so that others may claim them at once.
        """
        yield from self.count_handed()
        idle = b"IDLE", b"%d" % (1000 * self._claim_idle)
        counted = [message for message in self.messages if id(message) not in self._uncounted]
        uncounted = [message for message in self.messages if id(message) in self._uncounted]
        kept = yield from self._renewed(
            [(same, (*idle, *_count(same, -1))) for same in _alike(counted)]
            + [(same, (*idle, *_count(same))) for same in _alike(uncounted)], ends=True, gives_back=True,
        )  # fmt: skip
        for message in counted:
            message.deliveries -= 1
            self._uncounted.add(id(message))
        self._since = 0.0
        self._keep(kept)

    # -- leases ------------------------------------------------------------------------------------------

    def _claim(self, same: Sequence[Delivered[Any]], idle_ms: int, options: Sequence[bytes]) -> list[bytes]:
        """Return the XCLAIM that renews messages of one group if they were idle for so long."""
        group = same[0].group
        return [b"XCLAIM", group.stream.key, group.key, self._consumer, b"%d" % idle_ms,
                *[message.raw_id for message in same], *options, b"JUSTID"]  # fmt: skip

    def _renewed(
        self, calls: Sequence[tuple[list[Delivered[Any]], Sequence[bytes]]], ends: bool = False,
        gives_back: bool = False,
    ) -> Commands[set[int]]:  # fmt: skip
        """Claim the messages of each call again, with its options; return the id() of those that belong to this loop.

        If another consumer claims one in between, its idle time is smaller than the listed one.
        """
        kept: set[int] = set()
        for same, options in calls:
            if self._turn is not None:
                kept |= yield from self._kept(same, same[0].deliveries, options, b"free" if gives_back else self._turn)
                continue
            if same[0].group.has_retries:
                kept |= yield from self._kept(same, same[0].deliveries, options)
                continue
            own = yield from self._listed(same, ends)
            if own:
                idle_ms = min(idle for _, idle in own)
                claimed = set((yield self._claim([message for message, _ in own], idle_ms, options)))
                kept.update(id(message) for message, _ in own if message.raw_id in claimed)
        return kept

    def _kept(self, same: Sequence[Delivered[Any]], deliveries: int, options: Sequence[bytes],
              turn: bytes | None = None) -> Commands[set[int]]:  # fmt: skip
        """Renew messages of a group that may have retries, in one step; return the id() of those of this loop."""
        ids = [one.raw_id for one in same]
        found = set((yield keep(same[0].group, self._consumer, deliveries, options, ids, turn)))
        return {id(message) for message in same if message.raw_id in found}

    def _listed(self, same: Sequence[Delivered[Any]], ends: bool) -> Commands[list[tuple[Delivered[Any], int]]]:
        """Return those messages of one group that are unchanged on the server, with their idle times in ms."""
        group = same[0].group
        found = yield from still_pending(same, self._consumer)
        own = [(message, *found[message.raw_id]) for message in same if message.raw_id in found]
        if not ends and any(message.deliveries != count for message, _, count in own):
            self._warn(group)
        return [(message, max(0, idle)) for message, idle, count in own if message.deliveries == count]

    def _warn(self, group: AnyGroup) -> None:
        if not self._warned:
            self._warned = True
            LOGGER.warning(
                "two live readers of the group %r of %r have the name %r and receive each other's messages: give each "
                "its own name", decode(group.key), decode(group.stream.key), decode(self._consumer),
            )  # fmt: skip


def still_pending(same: Sequence[Delivered[Any]], consumer: bytes) -> Commands[dict[bytes, tuple[int, int]]]:
    """Return the idle time in ms and the deliveries of those messages of one group that are pending for a consumer."""
    group = same[0].group
    missing = {message.raw_id for message in same}
    ids = sorted(missing, key=parse_id)
    start, size = ids[0], len(ids) + 1
    found: dict[bytes, tuple[int, int]] = {}
    while missing:
        # The consumer may have other pending messages between these, so the list may need several replies.
        rows = yield [b"XPENDING", group.stream.key, group.key, start, ids[-1], b"%d" % size, consumer]
        found.update((raw_id, (int(idle), int(times))) for raw_id, _, idle, times in rows)
        if len(rows) < size:
            break
        missing.difference_update(found)
        start = b"(" + rows[-1][0]
    return found


def _count(same: Sequence[Delivered[Any]], more: int = 0) -> tuple[bytes, bytes]:
    """Return the option that sets the deliveries of messages with the same number."""
    return b"RETRYCOUNT", b"%d" % (same[0].deliveries + more)


def _alike(messages: Iterable[Any]) -> list[list[Delivered[Any]]]:
    """Return the messages in lists of one group and one number of deliveries, for which one XCLAIM suffices."""
    found: dict[tuple[Delivered[Any], int], list[Delivered[Any]]] = {}
    for message in messages:
        found.setdefault((message.group, message.deliveries), []).append(message)
    return list(found.values())
