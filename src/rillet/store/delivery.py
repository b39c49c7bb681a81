"""The commands of a consumer, in order, without input or output: `delivery` yields commands and receives replies.

    own      XREADGROUP ... 0-0     messages that this consumer received before a restart
    stale    XAUTOCLAIM             messages that were pending for another consumer for claim_idle seconds
    new      XREADGROUP ... >       new messages; the only command that waits

The synchronous and the asyncio API drive the same generators: they run each yielded list of bytes as a command and send
its reply back; they hand out each yielded tuple of messages.

**Deliveries.** A new message was delivered once. For the others one XPENDING follows, because the replies with old
messages do not contain the number. It lists only messages of this consumer, so a message that another consumer claimed
in between is dropped here. Rejected: XREADGROUP with CLAIM, whose reply contains the number, but which needs Redis 8.4.

**The end.** `stop` and `timeout` end the iteration between two messages. Messages that were read and not handed out are
given back then: XCLAIM sets their delivery count to the value before the read, and their idle time to claim_idle, so
that other consumers may claim them at once. They stay pending for this consumer, so that its restart finds them first.
Rejected: XNACK, which needs Redis 8.8, and after which a restart would not find them.

**Invalid messages** of a typed stream with on_invalid="raise". The first delivery yields the InvalidEntry as a step,
which the iterator raises. Later deliveries, after a restart or a claim, log a warning. So a worker that ends at each
error gets past every invalid message. The messages behind it are given back before the error is raised, because the
worker may end, and taken again if the iteration continues. The invalid message stays pending.
Rejected: raising at each delivery; a worker that a supervisor restarts would never get past the message. A mark of the
messages that were raised, in a key or as another consumer: if a worker dies before it reaches an invalid message, its
restart could still raise, but every other program that works on the group would have to know the mark.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

from rillet.errors import CommandError, InvalidEntry, WrongType
from rillet.real_time import monotonic
from rillet.store.arguments import flag, whole_number
from rillet.store.durations import Seconds, milliseconds_in, seconds_in
from rillet.store.encoding import decode, encode, encode_name
from rillet.store.entry import T, stream_part, stream_parts
from rillet.store.message import Message, new_messages, old_messages
from rillet.store.recovery import LOGGER
from rillet.store.retries import PATIENCE
from rillet.store.slots import by_slot
from rillet.store.typed import InvalidField

if TYPE_CHECKING:
    from rillet.store.group import Consumer
    from rillet.store.store import Store

Result = TypeVar("Result")
Command: TypeAlias = "list[bytes] | list[list[bytes]]"  # one command, or a transaction: from MULTI to EXEC
Commands: TypeAlias = Generator[Command, Any, Result]  # yields commands, receives their replies, returns a result
Step: TypeAlias = "Command | tuple[Message[Any], ...] | InvalidEntry"
Steps: TypeAlias = Generator[Step, Any, Result]

STOP_CHECK = 1.0  # the most seconds after which a waiting consumer notices `stop`


class HasIsSet(Protocol):
    """An event: threading.Event, asyncio.Event, multiprocessing.Event."""

    def is_set(self) -> bool:
        """Return whether the event has occurred."""


Stop: TypeAlias = "Callable[[], bool] | HasIsSet"


@dataclass(frozen=True, slots=True)
class DeliveryOptions:
    """The arguments of Consumer.messages."""

    count: int = 100
    block: Seconds | None = 1.0
    claim_idle: Seconds | None = None
    max_deliveries: int | None = None
    dead_letters: str | bytes | None = None
    on_exhausted: Literal["drop"] | None = None
    stop_when_empty: bool = False
    stop: Stop | None = None
    timeout: Seconds | None = None
    batch: int | None = None
    to_dead_letters: str | None = None  # the stream whose on_invalid is "dead_letter"

    def __post_init__(self) -> None:
        """Raise TypeError or ValueError for values that are not accepted, or that would lose messages or do nothing."""
        whole_number(self.count, "count", 1)
        for name in ("batch", "max_deliveries"):
            if getattr(self, name) is not None:
                whole_number(getattr(self, name), name, 1)
        for name in ("block", "claim_idle"):
            if getattr(self, name) is not None:
                milliseconds_in(getattr(self, name), name)
        if self.timeout is not None:
            seconds_in(self.timeout, "timeout")
        flag(self.stop_when_empty, "stop_when_empty")
        if self.stop is not None and not callable(getattr(self.stop, "is_set", self.stop)):
            raise TypeError(f"stop must be a function, or an event with is_set(), not {self.stop!r:.200}")
        if self.dead_letters is not None:
            encode_name(self.dead_letters, "dead_letters")
        if self.on_exhausted not in (None, "drop"):
            raise ValueError(f"on_exhausted must be 'drop' or None, not {self.on_exhausted!r}")
        if self.to_dead_letters is not None and self.dead_letters is None:
            raise ValueError(
                f"on_invalid='dead_letter' of the stream {self.to_dead_letters!r} needs a place: pass "
                "dead_letters='a stream' to messages(), or the stream itself as on_invalid"
            )
        if self.max_deliveries is None:
            letters = None if self.to_dead_letters is not None else self.dead_letters
            if letters is not None or self.on_exhausted is not None:
                raise ValueError("dead_letters and on_exhausted apply after max_deliveries deliveries: pass it too")
        elif (self.dead_letters is None) == (self.on_exhausted is None):
            raise ValueError(
                "max_deliveries needs a place for the messages that exceed it: pass either dead_letters='a stream', "
                "or on_exhausted='drop' to acknowledge and lose them"
            )


class End:
    """Decides when an iteration over messages ends: at `stop`, or after `timeout` seconds without a message."""

    def __init__(self, options: DeliveryOptions) -> None:
        self.options = options
        self.stopped = False
        self._block = None if options.block is None else seconds_in(options.block)
        self._timeout = None if options.timeout is None else seconds_in(options.timeout)
        stop: Any = options.stop
        self._stop: Callable[[], bool] | None = getattr(stop, "is_set", stop)
        self.handed_out()

    def handed_out(self) -> None:
        """Note that a message was handled: the time without a message begins again."""
        self._since = monotonic()

    def requested(self) -> bool:
        """Return whether `stop` is set; once it was, always True."""
        if not self.stopped and self._stop is not None:
            self.stopped = bool(self._stop())
        return self.stopped

    def expired(self) -> bool:
        """Return whether `timeout` seconds have passed since the last message."""
        return self._timeout is not None and monotonic() - self._since >= self._timeout

    def block(self) -> float | None:
        """Return how long the next read may wait, in seconds; 0 without limit, None for a read that does not wait."""
        wait = self._block
        if wait is None or self.options.stop_when_empty:
            return None
        limits = [wait] if wait > 0 else []
        if self._stop is not None:
            limits.append(STOP_CHECK)
        if self._timeout is not None:
            limits.append(max(0.001, self._timeout - (monotonic() - self._since)))
        return min(limits) if limits else 0


def drive(store: Store, commands: Commands[Result]) -> Result:
    """Run the commands of a generator, and return its result."""
    reply: Any = None
    while True:
        try:
            command = commands.send(reply)
        except StopIteration as end:
            result: Result = end.value
            return result
        reply = run_step(store, command)


def observe(store: Store, commands: Commands[Result]) -> Result:
    """Run the commands of a generator, and return its result; an error reply is sent to the generator as a value."""
    reply: Any = None
    while True:
        try:
            command = commands.send(reply)
        except StopIteration as end:
            result: Result = end.value
            return result
        try:
            reply = run_step(store, command)
        except CommandError as error:
            reply = error


def run_step(store: Store, command: Any, patience: float = PATIENCE) -> Any:
    """Run a command or a transaction; return the reply, or the replies. patience: see rillet.store.retries."""
    if isinstance(command[0], list):
        return store.run_many(command, patience)
    return store.run(command, patience)


def delivery(consumers: Sequence[Consumer[Any]], options: DeliveryOptions, end: End) -> Steps[None]:
    """Yield the commands of a consumer in order, receive their replies with send(), and yield tuples of messages.

    It also yields each InvalidEntry that the iterator must raise.
    consumers: the consumer in the group of each stream; several are read by one command.
    """
    count = options.batch or options.count
    for consumer in consumers:
        after = b"0-0"
        while not end.requested() and (own := stream_part((yield consumer.read_command(count, None, after, False)))):
            after = own[-1][0]
            messages = yield from _to_handle(consumer, old_messages(own, consumer.group), options)
            if options.max_deliveries is not None:
                yield from _logged(consumer, messages)
            yield from _hand_out([consumer], messages, options, end)
    cursors = [b"0-0"] * len(consumers)
    while not end.requested():
        stale = False
        for place, consumer in enumerate(consumers if options.claim_idle is not None else ()):
            reply = yield consumer.claim_command(options.claim_idle or 0.0, count, cursors[place])
            # The pending list may be longer than one reply: the next call continues at the returned ID.
            cursors[place] = reply[0]
            messages = yield from _to_handle(consumer, old_messages(reply[1], consumer.group), options)
            # An invalid message stays pending, so it may be the result of every claim: it does not count.
            handed = yield from _hand_out([consumer], messages, options, end)
            stale = stale or handed or cursors[place] != b"0-0"
            if end.stopped:
                return
        fresh: list[Message[Any]] = []
        for argv in read_commands(consumers, count, None if stale else end.block()):
            fresh += new_messages_of((yield argv), consumers)
        yield from _hand_out(consumers, fresh, options, end)
        if not fresh and not stale:
            if end.expired() or (options.stop_when_empty and all(cursor == b"0-0" for cursor in cursors)):
                return


def read_commands(
    consumers: Sequence[Consumer[Any]], count: int, block: Seconds | None, noack: bool = False,
    claim_idle: Seconds | None = None,
) -> list[list[bytes]]:  # fmt: skip
    """Return the XREADGROUP of new messages of several streams: one command, or one for each slot of a cluster."""
    argv = read_options(consumers[0], count, block, noack, claim_idle)
    keys = by_slot(consumers[0].store, [consumer.group.stream.key for consumer in consumers], block is not None)
    return [[*argv, b"STREAMS", *some, *[b">"] * len(some)] for some in keys]


def read_options(
    consumer: Consumer[Any], count: int, block: Seconds | None, noack: bool, claim_idle: Seconds | None
) -> list[bytes]:
    """Return the XREADGROUP of a consumer up to its STREAMS."""
    argv = [b"XREADGROUP", b"GROUP", consumer.group.key, consumer.key, b"COUNT", b"%d" % count]
    if block is not None:
        argv += [b"BLOCK", milliseconds_in(block)]
    if claim_idle is not None:
        argv += [b"CLAIM", milliseconds_in(claim_idle)]
    if noack:
        argv.append(b"NOACK")
    return argv


def new_messages_of(reply: Any, consumers: Iterable[Consumer[T]]) -> list[Message[T]]:
    """Return the messages of an XREADGROUP reply with several streams."""
    groups = {consumer.group.stream.key: consumer.group for consumer in consumers}
    return [message for key, part in stream_parts(reply) for message in new_messages(part, groups[key])]


def counted(consumer: Consumer[Any], messages: list[Message[T]]) -> Commands[list[Message[T]]]:
    """Set the delivery counts of old messages (XPENDING); return the messages that still belong to the consumer."""
    if not messages:
        return messages
    first, last = min(messages, key=_id_of), max(messages, key=_id_of)
    counts: dict[bytes, int] = {}
    missing = {message.raw_id for message in messages}
    start, size = first.raw_id, len(messages) + 1
    while missing:
        # The consumer may have other pending messages between these, so the list may need several replies.
        page = yield consumer.group.pending_command(size, consumer.key, 0.0, start, last.raw_id)
        counts.update((raw_id, int(times)) for raw_id, _, _, times in page)
        if len(page) < size:
            break
        missing.difference_update(counts)
        start = b"(" + page[-1][0]
    kept = [message for message in messages if message.raw_id in counts]
    for message in kept:
        message.deliveries = counts[message.raw_id]
    return kept


def _id_of(message: Message[Any]) -> Any:
    return message.id


def valued(consumer: bytes, messages: list[Message[T]]) -> Commands[list[Message[T]]]:
    """Set the values of messages of typed streams; return the valid ones, and treat the others as on_invalid says."""
    valid, problem = yield from _valid_before(consumer, messages, None)
    if problem is not None:
        raise problem
    return valid


def _valid_before(
    consumer: bytes, messages: list[Message[T]], options: DeliveryOptions | None
) -> Commands[tuple[list[Message[T]], InvalidEntry | None]]:
    """Set the values of messages up to the first whose error must be raised; return the valid ones, and the error.

    options: those of messages(); None for other reads, which raise at each delivery.
    """
    valid: list[Message[T]] = []
    for message in messages:
        stream = message.group.stream
        if stream.form is not None and message.flat:  # without fields: the entry was deleted
            try:
                message._value = stream.form.read(message.flat)
            except InvalidField as error:
                problem = error.in_entry(stream.name, message)
                problem.__cause__ = error.__cause__
                if (yield from _set_aside(consumer, message, problem, options)):
                    continue
                return valid, problem
        valid.append(message)
    return valid, None


def _set_aside(
    consumer: bytes, message: Message[Any], problem: InvalidEntry, options: DeliveryOptions | None
) -> Commands[bool]:
    """Leave an invalid message pending, acknowledge it, or move it to the dead letters; False to raise the error."""
    group, action = message.group, message.group.stream.on_invalid
    if action == "skip":
        LOGGER.warning("%s: acknowledged and skipped", problem)
        yield [b"XACK", group.stream.key, group.key, message.raw_id]
    elif not isinstance(action, str):
        yield from _bury(consumer, message, problem, action.key)
    elif options is None:
        return False
    elif action == "dead_letter":
        assert options.dead_letters is not None
        yield from _bury(consumer, message, problem, encode_name(options.dead_letters))
    elif message.deliveries > 1:
        LOGGER.warning("%s: delivered before, stays pending", problem)
    else:
        # The log has no record of a count that a read of pending messages raised (t_stream.c,
        # streamReplyWithRangeFromConsumerPEL), but one of XCLAIM's: so a later owner knows of this delivery too.
        yield [b"XCLAIM", group.stream.key, group.key, consumer, b"0", message.raw_id,
               b"RETRYCOUNT", b"%d" % message.deliveries, b"JUSTID"]  # fmt: skip
        return False
    return True


def _bury(consumer: bytes, message: Message[Any], problem: InvalidEntry, key: bytes) -> Commands[None]:
    """Move an invalid message to a dead-letter stream.

    The dead letter and the acknowledgement are one transaction. EXEC continues after a command that fails, so the type
    of the dead-letter key is read first, and a message whose dead letter was refused becomes pending again.
    """
    group = message.group
    acknowledge = [b"XACK", group.stream.key, group.key, message.raw_id]
    letter = [*dead_letter(key, message), b"_error", encode(problem.reason)]
    if (yield [b"TYPE", key]) not in (b"stream", b"none"):
        raise WrongType() from problem
    if len(by_slot(group.store, [group.stream.key, key], False)) > 1:
        yield letter
        yield acknowledge
    else:
        replies = yield [[b"MULTI"], letter, acknowledge, [b"EXEC"]]
        refused = replies[-1][0]
        if isinstance(refused, CommandError):
            yield [b"XCLAIM", group.stream.key, group.key, consumer, b"0", message.raw_id,
                   b"RETRYCOUNT", b"%d" % message.deliveries, b"FORCE", b"JUSTID"]  # fmt: skip
            raise refused from problem
    LOGGER.warning("%s: acknowledged and written to %s", problem, decode(key))


def _to_handle(
    consumer: Consumer[Any], messages: list[Message[T]], options: DeliveryOptions
) -> Commands[list[Message[T]]]:
    """Return the messages to handle; acknowledge those with a deleted entry; move failed ones to the dead letters.

    First the dead letter is written, then the message is acknowledged. Rejected: a transaction. EXEC continues after a
    command that fails, so a dead-letter key of another type would lose the message. A crash between the two commands
    can write the dead letter twice, but never loses the message.
    """
    group = consumer.group
    limit = options.max_deliveries
    kept = []
    for message in (yield from counted(consumer, messages)):
        exhausted = limit is not None and message.deliveries > limit
        if message.flat and not exhausted:
            kept.append(message)
            continue
        if message.flat and options.dead_letters is not None:
            yield dead_letter(encode_name(options.dead_letters), message)
        yield [b"XACK", group.stream.key, group.key, message.raw_id]
    return kept


def _logged(consumer: Consumer[Any], messages: list[Message[Any]]) -> Commands[None]:
    """Log the delivery counts of pending messages that were read again, so that a later owner continues to count.

    The log has no record of a read of pending messages (t_stream.c, streamReplyWithRangeFromConsumerPEL), but one of
    XCLAIM. Without it, a message that ends its process at each delivery would never exceed max_deliveries.
    """
    by_count: dict[int, list[bytes]] = {}
    for message in messages:
        by_count.setdefault(message.deliveries, []).append(message.raw_id)
    for count, ids in by_count.items():
        yield [b"XCLAIM", consumer.group.stream.key, consumer.group.key, consumer.key, b"0", *ids,
               b"RETRYCOUNT", b"%d" % count, b"JUSTID"]  # fmt: skip


def dead_letter(key: bytes, message: Message[Any]) -> list[bytes]:
    """Return the XADD that writes a message to a dead-letter stream: its fields, and its origin."""
    group = message.group
    return [b"XADD", key, b"*", *message.flat, b"_stream", group.stream.key, b"_group", group.key,
            b"_id", message.raw_id, b"_deliveries", b"%d" % message.deliveries]  # fmt: skip


def _hand_out(
    consumers: Sequence[Consumer[Any]], messages: list[Message[Any]], options: DeliveryOptions, end: End
) -> Steps[bool]:
    """Yield messages one at a time or in batches, and the errors of invalid ones; return whether it yielded any.

    After `stop`, it gives the remaining messages back. An invalid message is handled when its turn comes.
    """
    size = options.batch or 1
    handed = False
    start = 0
    while start < len(messages):
        if end.requested():
            yield from _give_back(consumers, messages[start:], options)
            break
        some = messages[start : start + size]
        valid, problem = yield from _valid_before(consumers[0].key, some, options)
        start += size
        if valid:
            yield tuple(valid)
        if problem is not None:
            place = next(place for place, message in enumerate(messages) if message is problem.entry)
            yield from _give_back(consumers, messages[place + 1 :], options)
            yield problem
            messages = yield from _taken_again(consumers, messages[place + 1 :], options)
            start = 0
        if valid or problem is not None:
            handed = True
            end.handed_out()
    return handed


def _give_back(
    consumers: Sequence[Consumer[Any]], messages: list[Message[Any]], options: DeliveryOptions
) -> Commands[None]:
    """Give messages that were not handed out back to their groups."""
    for consumer in consumers:
        own = [message for message in messages if message.group is consumer.group]
        yield from _restore(consumer, own, options.claim_idle or 0.0)


def _restore(consumer: Consumer[Any], messages: list[Message[Any]], idle: Seconds) -> Commands[None]:
    """Restore the delivery counts of messages that were not handed out, unless another consumer has claimed them."""
    by_count: dict[int, list[bytes]] = {}
    for message in (yield from counted(consumer, messages)):
        by_count.setdefault(message.deliveries - 1, []).append(message.raw_id)
    for count, ids in by_count.items():
        yield [b"XCLAIM", consumer.group.stream.key, consumer.group.key, consumer.key, b"0", *ids,
               b"IDLE", milliseconds_in(idle), b"RETRYCOUNT", b"%d" % count, b"JUSTID"]  # fmt: skip


def _taken_again(
    consumers: Sequence[Consumer[Any]], messages: list[Message[T]], options: DeliveryOptions
) -> Commands[list[Message[T]]]:
    """Count the delivery of messages that were given back; return those that no other consumer has claimed."""
    idle = milliseconds_in(options.claim_idle or 0.0)
    taken: set[tuple[bytes, bytes]] = set()
    for consumer in consumers:
        own = yield from counted(consumer, [message for message in messages if message.group is consumer.group])
        by_count: dict[int, list[bytes]] = {}
        for message in own:
            message.deliveries += 1
            by_count.setdefault(message.deliveries, []).append(message.raw_id)
        key = consumer.group.stream.key
        for count, ids in by_count.items():
            reply = yield [b"XCLAIM", key, consumer.group.key, consumer.key, idle, *ids,
                           b"RETRYCOUNT", b"%d" % count, b"JUSTID"]  # fmt: skip
            taken.update((key, raw_id) for raw_id in reply)
    return [message for message in messages if (message.group.stream.key, message.raw_id) in taken]
