"""The commands of a consumer, in order, without input or output: `delivery` yields commands and receives replies.

    own      XPENDING ... consumer  messages that this consumer received before a restart
    stale    XPENDING IDLE          messages that were pending for any consumer for claim_idle seconds
             XCLAIM                 one of either, when its turn comes, unless another consumer has claimed it
    due      MULTI ZRANGE ... EXEC  what is due now: delayed entries, which move to the stream, and retries
    new      XREADGROUP ... >       new messages; the only command that waits

    read                            with where, in place of new: rillet.store.consuming.filter_steps
    free, take                      with order_by, in place of own, stale and new: rillet.store.consuming.order_steps
    wait     XREAD                  with either, this is the command that waits

The synchronous and the asyncio API drive the same generators: they run each yielded list of bytes as a command and send
its reply back; they hand out each yielded tuple of messages.

**A message belongs to one loop.** Listing messages changes nothing. XCLAIM takes a message, counts its delivery and
returns its entry, unless another consumer was faster: the idle time that was listed is the condition. So a worker that
dies leaves nothing behind but the message in its handler. New messages may be read ahead: see consuming/prefetch.py.
Rejected: XAUTOCLAIM and the history of XREADGROUP, which take and count a hundred messages at once.

**Deliveries** count how often a message was handed out. A message that was handed out `max_deliveries` times goes to
the dead letters instead of being handed out again.

**The end.** `stop` and `timeout` end the iteration between two messages. Messages that were read ahead are given back
then, and also when the loop is left by `break` or an exception, or the store is closed. They stay pending for this
consumer, so that its restart finds them first.
Rejected: XNACK, which needs Redis 8.8, and after which a restart would not find them.

**The search for stale messages** reads the pending list of the group, so it takes at most a twentieth of a worker's
time. A worker that receives new messages without a pause searches a few times in `claim_idle`.

**Invalid messages** of a typed stream with on_invalid="raise". The first delivery yields the InvalidEntry as a step,
which the iterator raises. Later deliveries, after a restart or a claim, log a warning. So a worker that ends at each
error gets past every invalid message. The messages behind it are given back before the error is raised, because the
worker may end. The invalid message stays pending.
Rejected: raising at each delivery; a worker that a supervisor restarts would never get past the message. A mark of the
messages that were raised, in a key or as another consumer: if a worker dies before it reaches an invalid message, its
restart could still raise, but every other program that works on the group would have to know the mark.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from rillet.errors import CommandError, ExecAbort, InvalidEntry, NoPerm
from rillet.keyspace.helper_keys import retries_key
from rillet.loggers import logger
from rillet.real_time import monotonic
from rillet.store.arguments.argument_checks import flag, integer_of
from rillet.store.arguments.durations import Seconds, milliseconds_in, seconds_in
from rillet.store.arguments.encoding import decode, encode, encode_name, find_field
from rillet.store.arguments.slots import by_slot
from rillet.store.command_steps import Command, Commands, Result
from rillet.store.consuming.atomic_steps import MOST_WORDS, STEP_SIZE, claim, collect, deliver_due, due_retries, lease
from rillet.store.consuming.delays import LOOK_UNUSED, Delays, other_order
from rillet.store.consuming.delivery_options import DeliveryOptions, End
from rillet.store.consuming.leases import Leases
from rillet.store.consuming.prefetch import Prefetched, Search, still_pending
from rillet.store.entry import stream_part, stream_parts
from rillet.store.message import Delivered, M, new_messages, old_messages
from rillet.store.typed.forms import InvalidField

if TYPE_CHECKING:
    from rillet.store.arguments.conditions import Conditions
    from rillet.store.message import AnyConsumer

LOGGER = logger("store")
Step: TypeAlias = "Command | tuple[Delivered[Any], ...] | InvalidEntry"
Steps: TypeAlias = Generator[Step, Any, Result]

MOST_TAKEN = 1000  # messages that one command takes in an order by key
PAGE = 100  # pending messages that one command lists
CURRENT = 0.005  # seconds for which a list of pending messages is current


def delivery(consumers: Sequence[AnyConsumer], options: DeliveryOptions, end: End, prefetched: Prefetched,
             leases: Leases) -> Steps[None]:  # fmt: skip
    """Yield the commands of a consumer in order, receive their replies with send(), and yield tuples of messages.

    It also yields each InvalidEntry that the iterator must raise.
    consumers: the consumer in the group of each stream; several are read by one command.
    """
    delays = Delays([consumer.group for consumer in consumers], options.order_field)
    loop = Loop(options, end, prefetched, leases, options.conditions())
    late: list[AnyConsumer] = []
    if not end.requested():
        late = yield from _look(consumers, delays)
    if options.order_by is not None:
        yield from _in_turn(consumers, delays, loop)
        return
    for consumer in consumers:
        if consumer in late:
            yield due_retries(consumer.group)  # longer leases that are over leave the list: their messages are its own
        yield from _own(consumer, loop)
    search = options.search(len(consumers))
    silent = Collection(options)
    pace = options.pace()
    empty = True
    while not end.requested():
        searched, stale = search.due(empty), False
        if late or delays.due(empty and options.stop_when_empty):
            late = yield from _look(consumers, delays)
            for consumer in late:
                stale = (yield from _retried(consumer, loop)) or stale
            late = []
        if silent.due():
            yield from _collected(consumers, loop)
        if searched:
            stale = (yield from _stale(consumers, search, loop)) or stale
            if end.requested():
                return
        yield from prefetched.count_handed()
        block = end.block() if searched and not stale else None
        fresh = yield from _fresh(consumers, pace.size, None if block is None else delays.limit(block), loop)
        empty = not fresh
        if fresh:
            pace.began()
            yield from prefetched.fill(fresh, options.batch or 1)
            yield from _hand_out(consumers[0].key, loop)
            pace.handled(len(fresh))
        elif searched and not stale:
            if end.expired() or (options.stop_when_empty and search.complete):
                return


@dataclass(frozen=True, slots=True)
class Loop:
    """What the steps of one loop over messages() share."""

    options: DeliveryOptions
    end: End
    prefetched: Prefetched
    leases: Leases
    conditions: Conditions | None = None


def _fresh(consumers: Sequence[AnyConsumer], size: int, block: float | None,
           loop: Loop) -> Commands[list[Delivered[Any]]]:  # fmt: skip
    """Return new messages, up to `size` of each stream; block: how long to wait for one, None not to wait."""
    fresh: list[Delivered[Any]] = []
    if loop.conditions is None:
        for argv in read_commands(consumers, size, block):
            fresh += new_messages_of((yield argv), consumers, consumers[0]._message_class)
        return fresh
    from rillet.store.consuming.filter_steps import read  # only loops with where import the scripts

    last: dict[bytes, bytes] = {}
    for consumer in consumers:
        more = True
        while more and not loop.end.requested():
            others = loop.options.others
            more, after, rows = yield read(consumer.group, consumer.key, size, others, loop.conditions.words)
            fresh += new_messages(rows, consumer, consumer._message_class)
            more = more and not rows
            last[consumer.group.stream.key] = after
    if not fresh and block is not None and all(last.values()):
        yield from _waited(consumers, last, block)
    return fresh


def _wanted(consumer: AnyConsumer, rows: Sequence[Any], loop: Loop) -> Commands[Sequence[Any]]:
    """Return the rows of a pending list whose entries match `where`, or are deleted; others are treated as skipped."""
    if loop.conditions is None or not rows:
        return rows
    key, group = consumer.group.stream.key, consumer.group.key
    replies = yield [[b"MULTI"], *[[b"XRANGE", key, row[0], row[0]] for row in rows], [b"EXEC"]]
    found = [not entries or loop.conditions.match(entries[0][1]) for entries in replies[-1]]
    others = [row[0] for row, wanted in zip(rows, found, strict=True) if not wanted]
    if others and loop.options.skipped == "ack":
        yield [b"XACK", key, group, *others]
    return [row for row, wanted in zip(rows, found, strict=True) if wanted]


def _in_turn(consumers: Sequence[AnyConsumer], delays: Delays, loop: Loop) -> Steps[None]:
    """Hand out messages in the order of their keys, as `delivery` does without one."""
    options, end, prefetched = loop.options, loop.end, loop.prefetched
    turns = [Turns() for _ in consumers]
    silent = Collection(options)
    pace = options.pace()
    for place, consumer in enumerate(consumers):
        yield from turns[place].free(consumer, True)
    seen: set[bytes] = set()  # invalid messages since the last valid one
    empty = True
    while not end.requested():
        if delays.due(empty and options.stop_when_empty):
            yield from _look(consumers, delays)
        if silent.due():
            for consumer in consumers:
                yield from _collect(consumer, options)
        yield from prefetched.count_handed()
        empty, more = True, False
        for place, consumer in enumerate(consumers):
            if end.requested():
                return
            messages = yield from turns[place].take_messages(consumer, pace.size, loop)
            more = more or turns[place].more
            if messages:
                ids = {message.raw_id for message in messages}
                pace.began()
                prefetched.fill_in_turn(messages, options.batch or 1)
                handed = yield from _hand_out(consumers[0].key, loop)
                pace.handled(len(messages))
                # An invalid message stays pending, so it may be the result of every take: it does not count again.
                empty = empty and not handed and ids <= seen
                seen = set() if handed else seen | ids
        if not empty or more:
            continue
        freed = 0
        for place, consumer in enumerate(consumers):
            if turns[place].due() or options.stop_when_empty:
                freed += yield from turns[place].free(consumer, False)
        if freed:
            continue
        if end.expired() or options.stop_when_empty:
            return
        block = end.block()
        if block is not None:
            limits = (block, delays.limit(block), *(one.limit(delays.look) for one in turns))
            last = {consumer.group.stream.key: turns[place].last for place, consumer in enumerate(consumers)}
            yield from _waited(consumers, last, min((limit for limit in limits if limit), default=0.0))


class Turns:
    """What a loop with order_by knows of one group: rillet.store.consuming.order_steps.

    more: whether the next take may find messages at once. last: the ID after which the group has new entries.
    """

    __slots__ = ("_behind", "_from", "_next", "_wait", "last", "more")

    def __init__(self) -> None:
        self.more = False
        self.last = b"$"
        self._from = b"-"  # where an adoption continues
        self._wait = -1.0  # seconds until the next turn comes
        self._behind = False  # whether messages wait behind others
        self._next = monotonic() + LOOK_UNUSED

    def take_messages(self, consumer: AnyConsumer, most: int, loop: Loop) -> Commands[list[Delivered[Any]]]:
        """Take up to `most` messages of different keys; those that were delivered too often go to the dead letters."""
        from rillet.store.consuming.order_steps import take  # only loops with order_by import the scripts

        options, conditions, group = loop.options, loop.conditions, consumer.group
        field = options.order_field
        assert field is not None
        command = take(group, consumer.key, field, min(most, MOST_TAKEN), options.batch or 1, options.turn,
                       options.max_deliveries, self._from, conditions.words if conditions else ())  # fmt: skip
        reply = yield command
        if reply[0] == -1:
            raise other_order(group, reply[1])
        more, self._from, last, wait, behind, rows = reply
        self.last = last or self.last  # invalid messages alone leave it
        self.more, self._wait, self._behind = bool(more), wait / 1e6, behind > 0
        messages = []
        for raw_id, flat, deliveries, spent in rows:
            idle_ms = None if deliveries > 1 else 0
            message = consumer._message_class(raw_id, flat, group, idle_ms, deliveries, consumer.key)
            message.fenced, message.turn = True, options.turn
            if spent:
                yield from _discard(message, options)
            else:
                messages.append(message)
        self.more = self.more or len(messages) < len(rows)
        return messages

    def free(self, consumer: AnyConsumer, restarted: bool) -> Commands[int]:
        """Give the turn to keys whose message is gone; restarted: also to those of this consumer; return how many."""
        from rillet.store.consuming.order_steps import free

        self._next = monotonic() + LOOK_UNUSED
        place, freed = 0, 0
        while place >= 0:
            place, some = yield free(consumer.group, consumer.key, restarted, place)
            freed += some
        return freed

    def due(self) -> bool:
        """Return whether to look for keys whose message is gone."""
        return monotonic() >= self._next

    def limit(self, look: float) -> float:
        """Return how long a loop may wait for new messages, in seconds; 0 without limit."""
        if self._behind:
            return look if self._wait < 0 else max(0.001, min(look, self._wait))
        return 0.0 if self._wait < 0 else max(0.001, self._wait)


def _waited(consumers: Sequence[AnyConsumer], last: dict[bytes, bytes], block: float) -> Commands[None]:
    """Wait until one of the streams has an entry after its ID; block: for so many seconds, 0 without limit."""
    for keys in by_slot(consumers[0].store, list(last), True):
        head = [b"XREAD", b"COUNT", b"1", b"BLOCK", milliseconds_in(block, "block"), b"STREAMS"]
        yield [*head, *keys, *[last[key] for key in keys]]


def _look(consumers: Sequence[AnyConsumer], delays: Delays) -> Commands[list[AnyConsumer]]:
    """Move the entries that are due to their streams; return the consumers in whose group a retry is due."""
    late = []
    delays.began()
    for place, consumer in enumerate(consumers):
        try:
            try:
                replies = yield delays.command(place)
            except (NoPerm, ExecAbort):
                delays.sees_order = False
                replies = yield delays.command(place)
        except (NoPerm, ExecAbort):
            delays.forbidden = True
            return []
        due, retry = delays.saw(place, *replies[-1])
        while due:
            due = (yield deliver_due(consumer.group.stream.key)) == STEP_SIZE
        if retry:
            late.append(consumer)
    return late


class Collection:
    """When silent consumers are collected: at the start of a loop, and four times in the time of their silence."""

    __slots__ = ("_every", "_next")

    def __init__(self, options: DeliveryOptions) -> None:
        self._every = 0.0 if options.collect is None else max(0.1, seconds_in(options.collect) / 4)
        self._next = math.inf if options.collect is None else 0.0

    def due(self) -> bool:
        """Return whether to collect now, and note that it is done."""
        if monotonic() < self._next:
            return False
        self._next = monotonic() + self._every
        return True


def _collected(consumers: Sequence[AnyConsumer], loop: Loop) -> Steps[None]:
    """Collect silent consumers, and hand out their messages."""
    assert loop.options.collect is not None
    idle_ms = int(milliseconds_in(loop.options.collect))
    for consumer in consumers:
        moved = yield from _collect(consumer, loop.options)
        start = b"-"
        while moved and not loop.end.requested():
            page = yield consumer.group.pending_command(PAGE, consumer.key, loop.options.collect, start, "+")
            rows = yield from _without_retry(consumer, page)
            yield from _claimed(consumer, rows, idle_ms, loop)
            if len(page) < PAGE:
                break
            start = b"(" + page[-1][0]


def _collect(consumer: AnyConsumer, options: DeliveryOptions) -> Commands[bool]:
    """Collect silent consumers; return whether they had messages."""
    assert options.collect is not None
    more, moved, in_order, idle_ms = True, False, True, int(milliseconds_in(options.collect))
    while more:
        try:
            more, *found = yield collect(consumer.group, idle_ms, consumer.key, in_order)
        except NoPerm:
            if not in_order:
                raise
            in_order = False
            continue
        moved = moved or any(found[1::3])
    return moved


def _retried(consumer: AnyConsumer, loop: Loop) -> Steps[bool]:
    """Hand out messages whose retry is due; return whether there may be more of them."""
    rows = yield due_retries(consumer.group)
    yield from _claimed(consumer, rows, -1, loop)
    return len(rows) == STEP_SIZE


def _claimed(consumer: AnyConsumer, rows: Sequence[Any], least: int, loop: Loop) -> Steps[bool]:
    """Claim and hand out the messages of a pending list that were idle for so many ms; return whether there were any.

    least: -1 for messages whose retry is due.
    """
    found = False
    rows = yield from _wanted(consumer, rows, loop)
    for some in _units(rows, loop.options):
        if loop.end.requested():
            break
        idle_ms = least if least < 0 else max(least, min(int(row[2]) for row in some))
        messages = yield from _taken(consumer, some, idle_ms, loop.options)
        yield from loop.prefetched.fill(messages, len(messages))
        # An invalid message stays pending, so it may be the result of every search: it does not count.
        found = (yield from _hand_out(consumer.key, loop)) or found
    return found


def _without_retry(consumer: AnyConsumer, rows: Sequence[Any]) -> Commands[Sequence[Any]]:
    """Return the rows of a pending list except messages that wait for their retry."""
    group = consumer.group
    if not group.has_retries or not rows:
        return rows
    times = yield [b"ZMSCORE", retries_key(group.stream.key, group.key), *[row[0] for row in rows]]
    return [row for row, time in zip(rows, times, strict=True) if time is None]


def _own(consumer: AnyConsumer, loop: Loop) -> Steps[None]:
    """Hand out the messages that are pending for the consumer from before."""
    options, end = loop.options, loop.end
    start = b"-"
    repeated = False
    while not end.requested():
        page = yield consumer.group.pending_command(PAGE, consumer.key, 0.0, start, "+")
        if not page:
            return
        current = monotonic() + CURRENT
        rows = yield from _wanted(consumer, (yield from _without_retry(consumer, page)), loop)
        if not rows:
            start = b"(" + page[-1][0]
        for some in _units(rows, options):
            messages = yield from _taken(consumer, some, min(int(row[2]) for row in some), options)
            yield from loop.prefetched.fill(messages, len(messages))
            yield from _hand_out(consumer.key, loop)
            # One that was refused belongs to another consumer, or the server's clock was set back: list it again.
            repeated = not messages and not repeated
            if repeated:
                break
            start = b"(" + some[-1][0]
            if end.stopped or monotonic() > current:  # others may have claimed the next ones: list them again
                break


def _stale(consumers: Sequence[AnyConsumer], search: Search, loop: Loop) -> Steps[bool]:
    """Hand out messages that were pending for claim_idle seconds; return whether there may be more of them."""
    claim_idle = loop.options.claim_idle
    if claim_idle is None:
        return False
    least = int(milliseconds_in(claim_idle))
    found = False
    took = 0.0
    for place, consumer in enumerate(consumers):
        began = monotonic()
        rows = yield consumer.group.pending_command(PAGE, None, claim_idle, search.starts[place], "+")
        took += monotonic() - began
        # The pending list may be longer than one reply: the next search continues behind it.
        search.starts[place] = b"(" + rows[-1][0] if len(rows) >= PAGE else b"-"
        rows = yield from _without_retry(consumer, rows)
        found = (yield from _claimed(consumer, rows, least, loop)) or found
        if loop.end.requested():
            return found
    search.took(took)
    return found or not search.complete


def _units(rows: Sequence[Any], options: DeliveryOptions) -> list[Sequence[Any]]:
    """Return the rows of a pending list in parts that are handed out together."""
    size = options.batch or 1
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _taken(
    consumer: AnyConsumer, rows: Sequence[Any], idle_ms: int, options: DeliveryOptions
) -> Commands[list[Delivered[Any]]]:
    """Claim pending messages that are idle for so long, and count their deliveries; return them.

    rows: the part of the pending list with the messages. Failed messages go to the dead letters instead. Redis removes
    messages with a deleted entry from the pending list; a server before 7.0 returns nil, and they are acknowledged.
    """
    group, limit = consumer.group, options.max_deliveries
    before = {row[0]: int(row[3]) for row in rows}
    failed = [raw_id for raw_id, count in before.items() if limit is not None and count >= limit]
    for raw_id in failed:
        count = before.pop(raw_id)
        reply = yield _claim(consumer, idle_ms, [raw_id], count)
        for message in old_messages(reply, consumer, consumer._message_class):
            message.deliveries = count
            yield from _discard(message, options)
    if not before:
        return []
    reply = yield _claim(consumer, idle_ms, list(before))
    messages = old_messages(reply, consumer, consumer._message_class)
    for message in messages:
        message.deliveries = before.pop(message.raw_id) + 1
    if None in reply:
        for raw_id in before:
            if not (yield [b"XRANGE", group.stream.key, raw_id, raw_id]):
                yield [b"XACK", group.stream.key, group.key, raw_id]
    return messages


def _claim(consumer: AnyConsumer, idle_ms: int, ids: Sequence[bytes], deliveries: int | None = None) -> list[bytes]:
    """Return the command that claims messages, except those whose retry is not due; -1 ms: only those that are due."""
    group = consumer.group
    if group.has_retries:
        return claim(group, consumer.key, idle_ms, ids, deliveries)
    count = [] if deliveries is None else [b"RETRYCOUNT", b"%d" % deliveries]
    return [b"XCLAIM", group.stream.key, group.key, consumer.key, b"%d" % idle_ms, *ids, *count]


def _discard(message: Delivered[Any], options: DeliveryOptions) -> Commands[None]:
    """Move a failed message to the dead letters, or drop it."""
    letters = options.dead_letters
    yield from given_up(message, None if letters is None else dead_letter(encode_name(letters), message))


def given_up(message: Delivered[Any], letter: list[bytes] | None) -> Commands[None]:
    """Write a dead letter, if there is one, and acknowledge its message, if that still belongs to the consumer.

    It is one step (consuming/atomic_steps.py): a worker that was paused before gives up no message that another one
    has by now. It is two if the dead letters are in another slot of a cluster, if the letter is too long for a script,
    or without the right to run scripts. Then the dead letter is first: a crash between the two can write it twice, but
    never loses the message. Rejected: a transaction, which continues after a command that fails, so a dead-letter key
    of another type would lose the message.
    """
    group = message.group
    key = group.stream.key
    try:
        if letter and (len(letter) > MOST_WORDS or len(by_slot(group.store, [key, letter[1]], False)) > 1):
            yield letter
            letter = None
        yield lease(group, message.consumer, b"bury" if letter else b"ack", [message], b"", letter or ())
    except NoPerm:
        if letter:
            yield letter
        yield [b"XACK", key, group.key, message.raw_id]


def read_commands(
    consumers: Sequence[AnyConsumer], count: int, block: Seconds | None, noack: bool = False,
    claim_idle: Seconds | None = None,
) -> list[list[bytes]]:  # fmt: skip
    """Return the XREADGROUP of new messages of several streams: one command, or one for each slot of a cluster."""
    argv = read_options(consumers[0], count, block, noack, claim_idle)
    keys = by_slot(consumers[0].store, [consumer.group.stream.key for consumer in consumers], block is not None)
    return [[*argv, b"STREAMS", *some, *[b">"] * len(some)] for some in keys]


def read_options(
    consumer: AnyConsumer, count: int, block: Seconds | None, noack: bool, claim_idle: Seconds | None
) -> list[bytes]:
    """Return the XREADGROUP of a consumer up to its STREAMS."""
    argv = [b"XREADGROUP", b"GROUP", consumer.group.key, consumer.key, b"COUNT", integer_of(count, "count", 1)]
    if block is not None:
        argv += [b"BLOCK", milliseconds_in(block, "block")]
    if claim_idle is not None:
        argv += [b"CLAIM", milliseconds_in(claim_idle, "claim_idle")]
    if flag(noack, "noack"):
        argv.append(b"NOACK")
    return argv


def new_messages_of(reply: Any, consumers: Sequence[AnyConsumer], kind: type[M]) -> list[M]:
    """Return the messages of an XREADGROUP reply with several streams."""
    if len(consumers) == 1:
        return new_messages(stream_part(reply), consumers[0], kind)
    by_key = {consumer.group.stream.key: consumer for consumer in consumers}
    return [message for key, part in stream_parts(reply) for message in new_messages(part, by_key[key], kind)]


def counted(consumer: AnyConsumer, messages: list[M]) -> Commands[list[M]]:
    """Set the delivery counts of old messages (XPENDING); return the messages that still belong to the consumer."""
    if not messages:
        return messages
    found = yield from still_pending(messages, consumer.key)
    kept = [message for message in messages if message.raw_id in found]
    for message in kept:
        _, message.deliveries = found[message.raw_id]
    return kept


def valued(messages: list[M], pending: bool = True) -> Commands[list[M]]:
    """Set the values of messages of typed streams; return the valid ones, and treat the others as on_invalid says.

    pending: whether the messages are pending; those of a read with noack are not.
    """
    valid, problem = yield from _valid_before(messages, None, pending)
    if problem is not None:
        raise problem
    return valid


def _valid_before(
    messages: list[M], options: DeliveryOptions | None, pending: bool = True
) -> Commands[tuple[list[M], InvalidEntry | None]]:
    """Set the values of messages up to the first whose error must be raised; return the valid ones, and the error.

    options: those of messages(); None for other reads, which raise at each delivery.
    """
    valid: list[M] = []
    for message in messages:
        problem = _problem(message, None if options is None else options.order_field)
        if problem is None:
            valid.append(message)
        elif not (yield from _set_aside(message, problem, options, pending)):
            return valid, problem
    return valid, None


def _problem(message: Delivered[Any], order_by: bytes | None) -> InvalidEntry | None:
    """Set the value of a message of a typed stream; return the error of an invalid one, or of one without a key."""
    stream = message.group.stream
    if order_by is not None and find_field(message.flat, order_by) is None:
        field = decode(order_by)
        return InvalidEntry(stream.name, message, f"the field {field!r} of order_by is missing", field)
    if stream.form is not None and message.flat:  # without fields: the entry was deleted
        try:
            message._value = stream.form.read(message.flat)
        except InvalidField as error:
            problem = error.in_entry(stream.name, message)
            problem.__cause__ = error.__cause__
            return problem
    return None


def _set_aside(message: Delivered[Any], problem: InvalidEntry, options: DeliveryOptions | None,
               pending: bool) -> Commands[bool]:  # fmt: skip
    """Leave an invalid message pending, acknowledge it, or move it to the dead letters; False to raise the error."""
    action = message.group.stream.on_invalid
    if action == "skip":
        LOGGER.warning("%s: acknowledged and skipped", problem)
        if pending:
            yield from given_up(message, None)
    elif not isinstance(action, str):
        yield from _bury(message, problem, action.key, pending)
    elif options is None:
        return False
    elif action == "dead_letter":
        assert options.dead_letters is not None
        yield from _bury(message, problem, encode_name(options.dead_letters), pending)
    elif message.deliveries > 1:
        LOGGER.warning("%s: delivered before, stays pending", problem)
    else:
        return False
    return True


def _bury(message: Delivered[Any], problem: InvalidEntry, key: bytes, pending: bool) -> Commands[None]:
    """Move an invalid message to a dead-letter stream."""
    letter = [*dead_letter(key, message), b"_error", encode(problem.reason)]
    try:
        if pending:
            yield from given_up(message, letter)
        else:
            yield letter
    except CommandError as error:
        raise error from problem
    LOGGER.warning("%s: acknowledged and written to %s", problem, decode(key))


def dead_letter(key: bytes, message: Delivered[Any]) -> list[bytes]:
    """Return the XADD that writes a message to a dead-letter stream: its fields, and its origin."""
    group = message.group
    from rillet.store.consuming.dead_letters import letter  # most loops give nothing up

    return letter(key, message.flat, group.stream.key, group.key, message.raw_id, message.deliveries)


def _hand_out(consumer: bytes, loop: Loop) -> Steps[bool]:
    """Yield messages one at a time or in batches, and the errors of invalid ones; return whether it yielded any.

    It ends at `stop`. An invalid message is handled when its turn comes.
    """
    options, end, prefetched, leases = loop.options, loop.end, loop.prefetched, loop.leases
    size = options.batch or 1
    handed = False
    typed = any(message.group.stream.form is not None for message in prefetched.messages)
    checked = typed or options.order_by is not None
    while prefetched.messages and not end.requested():
        some = prefetched.next(size)
        if some is None:
            some = yield from prefetched.checked(size)
        valid, problem = (yield from _valid_before(some, options)) if checked else (some, None)
        if problem is not None:
            place = next(place for place, message in enumerate(some) if message is problem.entry)
            prefetched.put_back(some[place + 1 :])
        if valid:
            leases.began(valid)
            yield tuple(valid)
            yield from leases.ended()
        if problem is not None:
            yield from prefetched.give_back()  # the worker may end
            yield problem
        if valid or problem is not None:
            handed = True
            end.handed_out()
    return handed
