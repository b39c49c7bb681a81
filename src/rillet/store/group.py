"""Group and Consumer: work distributed among readers; each message is handled and acknowledged.

    group = stream.group("billing")
    for message in group.consumer("worker-1").messages(claim_idle=30, max_deliveries=5, dead_letters="billing.dead"):
        handle(message)
        message.ack()

A delivered message is pending until it is acknowledged. If its consumer dies, another consumer claims the message once
it has been idle for `claim_idle` seconds. A message that was handed out `max_deliveries` times goes to the dead-letter
stream instead: its fields, followed by its origin in the fields _stream, _group, _id and _deliveries.

**Creation.** A Group is a name: the stats of a missing group raise NoGroup, and change nothing. The first read or claim
through a Group creates the group, and the stream, if they are missing; so does `create()`. Later reads do not create it
again: a group that an operator deleted stays deleted, and its readers raise NoGroup. Rejected: to create it whenever a
read finds it missing, because a new group delivers the entries that the deleted one had delivered before.

A MultiConsumer reads the groups of the same name of several streams with one command.

Some methods require newer commands, which rillet has: `nack` Redis 8.8, `read(claim_idle=...)` Redis 8.4,
`ack(delete=...)` Redis 8.2.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, overload

from rillet.errors import (
    BusyGroup,
    CommandError,
    InvalidEntry,
    NoGroup,
    NoPerm,
    NotSent,
    OutcomeUnknown,
    PendingMessages,
    StoreTimeout,
)
from rillet.keyspace.helper_keys import order_keys, retries_key
from rillet.store import PublicNames
from rillet.store.arguments.argument_checks import flag, integer_of, one_of, whole_number
from rillet.store.arguments.durations import Seconds, milliseconds_in
from rillet.store.arguments.encoding import IDLike, decode, encode_id, encode_name, parse_id
from rillet.store.arguments.policies import RefPolicy, chunks, policy_arguments
from rillet.store.arguments.positions import Position, encode_after, encode_before, encode_position, milliseconds_of
from rillet.store.arguments.slots import by_slot
from rillet.store.command_steps import Commands, drive, run_step
from rillet.store.consuming.atomic_steps import collect, delete_consumer, lease, release
from rillet.store.consuming.delays import Backoff, Retry, retries_of, waiting_command
from rillet.store.consuming.delivery import (
    Steps,
    counted,
    delivery,
    new_messages_of,
    read_commands,
    read_options,
    valued,
)
from rillet.store.consuming.delivery_options import STOP_CHECK, DeliveryOptions, End, Stop
from rillet.store.consuming.leases import Leases
from rillet.store.consuming.prefetch import Prefetched
from rillet.store.entry import T, Where, stream_part
from rillet.store.info_records import (
    ConsumerInfo,
    GroupInfo,
    OrderedKey,
    PendingEntry,
    PendingSummary,
    consumers_of,
    ordered_keys_of,
    pending_of,
    summary_of,
)
from rillet.store.message import Delivered, Message, lost_leases, new_messages, old_messages
from rillet.store.retries import PATIENCE
from rillet.store.transports.transport import NOT_READY
from rillet.store.typed.forms import RaisingIterator
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from rillet.store.handling import Handled
    from rillet.store.message import AnyConsumer, AnyStream
    from rillet.store.store import Store
    from rillet.store.stream import Stream


_NO_KEY = "ERR no such key"


class GroupCommands(PublicNames, Generic[T]):
    """A group's name and position: the part of a Group that runs no commands."""

    __slots__ = ("stream", "name", "key", "store", "start", "entries_read", "has_retries", "in_order", "token",
                 "_creates")  # fmt: skip

    def __init__(
        self, stream: AnyStream, name: str | bytes, start: Position = "0", entries_read: int | None = None,
        create: bool = False,
    ) -> None:  # fmt: skip
        self.stream = stream
        self.start = start
        self.entries_read = entries_read
        self.has_retries = False  # whether messages of the group are known to wait for a retry (consuming/delays.py)
        self.in_order = False  # whether a loop with order_by reads the group through this object
        self.token: bytes | None = None  # of a partition's owner (rillet.store.partitions)
        self._creates = create  # whether the next read or claim creates a missing group
        self.store = stream.store
        self.key = encode_name(name, "name")
        self.name = decode(self.key)

    def pending_command(self, count: int, consumer: str | bytes | None, idle: Seconds, start: Position,
                        end: Position) -> list[bytes]:  # fmt: skip
        """Return the XPENDING command that `pending` sends."""
        argv = [b"XPENDING", self.stream.key, self.key]
        at_least = milliseconds_in(idle, "idle")
        if at_least != b"0":  # an option since Redis 6.2
            argv += [b"IDLE", at_least]
        argv += [encode_position(start, "start"), encode_position(end, "end"), integer_of(count, "count", 0)]
        return argv if consumer is None else [*argv, encode_name(consumer, "consumer")]

    def _no_group(self) -> NoGroup:
        return NoGroup(f"No such key '{self.stream.name}' or consumer group '{self.name}'")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.stream.name!r}, {self.name!r})"


class Group(GroupCommands[T]):
    """A consumer group of a stream: `last-delivered-id`, consumers, and pending entries.

    start, entries_read: the position of a group that `create` or the first read creates; see Stream.group.
    """

    __slots__ = ()
    store: Store
    stream: Stream[T]

    # -- messages --------------------------------------------------------------------------------------

    def consumer(self, name: str | bytes) -> Consumer[T]:
        """Return the consumer of that name; its first read creates it."""
        return Consumer(self, name)

    def ack(self, *ids: IDLike, delete: RefPolicy | None = None) -> int:
        """Acknowledge messages and return how many were pending (XACK). O(1) each

        delete: also delete the entries (XACKDEL, Redis 8.2): "ACKED" only those that no group still needs, "DELREF"
        with the references of other groups, "KEEPREF" without these. A thousand IDs are one command; a longer list is
        several.
        """
        acknowledged = 0
        policy = policy_arguments(delete, "delete")
        for some in chunks([encode_id(one, "one of ids") for one in ids]):
            if self.in_order:
                acknowledged += int(self.store.run(release(self, some, b"".join(policy))))
                continue
            if not policy:
                acknowledged += int(self.store.run([b"XACK", self.stream.key, self.key, *some]))
                continue
            argv = [b"XACKDEL", self.stream.key, self.key, *policy, b"IDS", b"%d" % len(some), *some]
            acknowledged += sum(result != -1 for result in self.store.run(argv))
        return acknowledged

    def _ack_messages(self, messages: Sequence[Message[Any]], delete: RefPolicy | None = None) -> int:
        """Acknowledge messages of consumers as `ack` does; LeaseLost for fenced ones that were lost (Message.ack)."""
        others = [_settled_id(message) for message in messages if not message.fenced]
        acknowledged = self.ack(*others, delete=delete) if others else 0
        fenced = [message for message in messages if message.fenced]
        policy = b"".join(policy_arguments(delete, "delete"))
        lost: list[Message[Any]] = []
        for key, turn in dict.fromkeys((message.consumer, message.turn) for message in fenced):
            for some in chunks([message for message in fenced if (message.consumer, message.turn) == (key, turn)]):
                gone = set(self.store.run(lease(self, key, b"ack", some, policy)))
                lost += [message for message in some if message.raw_id in gone]
                for message in some:
                    message.settled = True
                    message.released = message.raw_id in gone
        if lost:
            raise lost_leases(lost)
        return acknowledged + len(fenced)

    def nack(self, *ids: IDLike, mode: str = "fail", deliveries: int | None = None, force: bool = False) -> int:
        """Release messages, so that the next claim gets them first; return how many were pending (XNACK). O(1) each

        mode: "fail" keeps the delivery count; "silent" decrements it; "fatal" sets the highest possible count.
        deliveries: sets the delivery count to this number. force: also release entries that are not pending.
        """
        released = 0
        options = [] if deliveries is None else [b"RETRYCOUNT", integer_of(deliveries, "deliveries", 0)]
        if flag(force, "force"):
            options.append(b"FORCE")
        one_of(mode, "mode", ("fail", "silent", "fatal"))
        for some in chunks([encode_id(one, "one of ids") for one in ids]):
            argv = [b"XNACK", self.stream.key, self.key, encode_name(mode), b"IDS", b"%d" % len(some), *some, *options]
            released += int(self.store.run(argv))
        return released

    def _nack_messages(self, messages: Sequence[Message[Any]], mode: str, deliveries: int | None) -> int:
        """Release messages of consumers as `nack` does; LeaseLost for messages of an order by key that were lost."""
        others = [_settled_id(message) for message in messages if message.turn is None]
        for message in messages:
            message.released = True
        released = self.nack(*others, mode=mode, deliveries=deliveries)
        ordered = [message for message in messages if message.turn is not None]
        for message in ordered:
            message.nack(mode, deliveries=deliveries)
        return released + len(ordered)

    # -- administration --------------------------------------------------------------------------------

    def create(
        self, start: Position | None = None, *, entries_read: int | None = None, mkstream: bool = True
    ) -> bool:  # fmt: skip
        """Create the group, to deliver the entries after `start`; return False if it exists (XGROUP CREATE).

        start, entries_read: by default those of Stream.group. entries_read is the number of entries up to `start`, from
        which the server computes the lag (Redis 7.0). mkstream: create a missing stream; otherwise the server's error
        is raised.
        """
        if start is None:
            start = self.start
            entries_read = self.entries_read if entries_read is None else entries_read
        return self._create(start, entries_read, mkstream, PATIENCE)

    def _create(self, start: Position, entries_read: int | None, mkstream: bool, patience: float) -> bool:
        argv = [b"XGROUP", b"CREATE", self.stream.key, self.key, encode_after(start, "start")]
        if flag(mkstream, "mkstream"):
            argv.append(b"MKSTREAM")
        created = True
        try:
            self.store.run(argv + _entries_read(entries_read), patience)
        except BusyGroup:
            created = False
        self._creates = False
        return created

    def create_missing(self, patience: float = PATIENCE) -> None:
        """Create the group if it is missing, before the first read; nothing later, or if `create` was False."""
        if self._creates:
            self._create(self.start, self.entries_read, True, patience)

    def set_id(self, id: Position, *, entries_read: int | None = None) -> None:
        """Set the ID after which the group delivers next (XGROUP SETID); entries_read: see `create`."""
        argv = [b"XGROUP", b"SETID", self.stream.key, self.key, encode_after(id, "id")]
        self.store.run(argv + _entries_read(entries_read))

    def reset_to(self, position: Position) -> None:
        """Deliver the entry of an ID, or of a time, and all later ones, to this group again (XGROUP SETID).

        "-" is the first entry, and "$" skips all entries that exist. A missing group is created there, unless `create`
        was False. Pending messages stay pending: acknowledge them if they are not to be handled twice. Lower the
        position only while no loop with order_by reads the group. O(log n)
        """
        raw = encode_before(position, "position")
        if self._creates and self._create(raw, None, True, PATIENCE):
            return
        self.set_id(raw)

    def delete(self) -> bool:
        """Delete the group and its pending entries (XGROUP DESTROY); return whether it existed. O(pending)

        Also deletes the keys of its order (messages(order_by=...)), if the user may.
        """
        self._creates = False
        try:
            deleted = bool(self.store.run([b"XGROUP", b"DESTROY", self.stream.key, self.key]))
            with contextlib.suppress(NoPerm):
                self.store.run([b"DEL", *order_keys(self.stream.key, self.key)])
            return deleted
        except CommandError as error:
            if "requires the key to exist" in str(error):
                return False
            raise

    def create_consumer(self, name: str | bytes) -> bool:
        """Create a consumer; return False if it exists (XGROUP CREATECONSUMER). A first read also creates it.

        A missing group is created, as by a read.
        """
        self.create_missing()
        argv = [b"XGROUP", b"CREATECONSUMER", self.stream.key, self.key, encode_name(name, "name")]
        return bool(self.store.run(argv))

    def delete_consumer(self, name: str | bytes, *, pending: str | bytes | Consumer[Any] | None = None) -> int:
        """Delete a consumer; return how many pending messages it had (XGROUP DELCONSUMER). O(these messages)

        pending: what happens to these: "drop" loses them; a consumer, or its name, receives them, with their idle time
        and number of deliveries. By default PendingMessages is raised if there are any. Except with "drop", this is a
        script (rillet.store.consuming.atomic_steps).
        """
        key = encode_name(name, "name")
        if pending == "drop":
            return int(self.store.run([b"XGROUP", b"DELCONSUMER", self.stream.key, self.key, key]))
        to = None if pending is None else _receiver(pending, "pending")
        if to == key:
            raise ValueError(f"pending must be another consumer than the deleted one, {decode(key)!r}")
        try:
            deleted, messages = self.store.run(delete_consumer(self, key, to))
        except NoPerm:
            deleted, messages = self.store.run(delete_consumer(self, key, to, in_order=False))
        if not deleted:
            raise PendingMessages(
                f"the consumer {decode(key)!r} of the group {self.name!r} of {self.stream.name!r} has pending "
                "messages: pass pending='another consumer' to hand them on, or pending='drop' to lose them"
            )
        return int(messages)

    def collect(self, idle: Seconds, *, to: str | bytes | Consumer[Any] | None = None) -> dict[str, int]:
        """Delete consumers that sent no command for `idle` seconds; return how many messages each of them had.

        `to` receives their pending messages, with their idle time and number of deliveries; by default the consumer
        that sent a command last, which is deleted only if it is silent, too, and no messages are left. A consumer that
        has messages on hold, by `retry` or `extend`, is left until these are due. Each consumer is deleted in the step
        that hands on its last messages, so one that comes back loses none; a step hands on up to a hundred messages. A
        consumer in a read that waits for longer than `idle` is deleted, too, and created again by its next message.
        O(consumers + messages), by scripts (rillet.store.consuming.atomic_steps)
        """
        at_least = int(milliseconds_in(idle, "idle"))
        receiver = b"" if to is None else _receiver(to, "to")
        moved: dict[str, int] = {}
        deleted: dict[str, int] = {}
        more, in_order = True, True
        while more:
            try:
                more, *found = self.store.run(collect(self, at_least, receiver, in_order))
            except NoPerm:
                if not in_order:
                    raise
                in_order = False
                continue
            count_collected(found, moved, deleted)
        return deleted

    # -- state -----------------------------------------------------------------------------------------

    def consumers(self) -> list[ConsumerInfo]:
        """Return the consumers, sorted by name (XINFO CONSUMERS); NoGroup if the group does not exist."""
        try:
            return consumers_of(self.store.run([b"XINFO", b"CONSUMERS", self.stream.key, self.key]))
        except CommandError as error:
            raise self._no_group() if str(error) == _NO_KEY else error from None

    def info(self) -> GroupInfo:
        """Return the state of the group (XINFO GROUPS); NoGroup if it does not exist. O(groups)"""
        try:
            groups = self.stream.groups()
        except CommandError as error:
            raise self._no_group() if str(error) == _NO_KEY else error from None
        for one in groups:
            if one.name == self.name:
                return one
        raise self._no_group()

    @property
    def lag(self) -> int | None:
        """The number of entries that were not delivered yet; None if unknown (see GroupInfo); NoGroup as for `info`."""
        return self.info().lag

    def pending_count(self) -> int:
        """Return the number of pending messages of all consumers (XPENDING); NoGroup as for `info`. O(1)"""
        return self.pending_summary().total

    def pending_summary(self) -> PendingSummary:
        """Return the number of pending messages, their lowest and highest ID, and the number of each consumer."""
        return summary_of(self.store.run([b"XPENDING", self.stream.key, self.key]))

    def retries(self, count: int = 100) -> list[Retry]:
        """Return up to `count` pending messages that wait for their next delivery, the next one first (Message.retry).

        A message that was acknowledged meanwhile is in the list until its time comes. O(log n + count)
        """
        key = retries_key(self.stream.key, self.key)
        return retries_of(self.store.run(waiting_command(key, count)))

    def ordered_keys(self, count: int = 100) -> list[OrderedKey]:
        """Return up to `count` keys with pending messages in the order of messages(order_by=...), longest held first.

        For each: its consumer, its first message, and how many messages it has. O(count log n), a script.
        """
        from rillet.store.consuming.order_steps import held

        return ordered_keys_of(self.store.run(held(self, whole_number(count, "count", 1)))[1])

    def pending(self, count: int = 100, *, consumer: str | bytes | None = None, idle: Seconds = 0.0,
                start: Position = "-", end: Position = "+") -> list[PendingEntry]:  # fmt: skip
        """Return up to `count` pending messages, lowest ID first; idle: the minimum seconds since delivery."""
        return pending_of(self.store.run(self.pending_command(count, consumer, idle, start, end)))

    def _repr_html_(self) -> str:
        """Return what a notebook shows; see rillet.store.display.html."""
        from rillet.store.display.html import group_html

        return group_html(self)


def _receiver(consumer: str | bytes | AnyConsumer, parameter: str) -> bytes:
    """Return the name of a consumer that receives messages."""
    key = getattr(consumer, "key", None)
    return key if isinstance(key, bytes) else encode_name(consumer, parameter)


def count_collected(found: Sequence[Any], moved: dict[str, int], deleted: dict[str, int]) -> None:
    """Add the consumers of a reply of `collect`: name, number of messages, and whether it was deleted."""
    for name, messages, gone in zip(found[::3], found[1::3], found[2::3], strict=True):
        moved[decode(name)] = moved.get(decode(name), 0) + int(messages)
        if gone:
            deleted[decode(name)] = moved[decode(name)]


def _entries_read(number: int | None) -> list[bytes]:
    return [] if number is None else [b"ENTRIESREAD", integer_of(number, "entries_read", 0)]


class MessageReader(PublicNames, Generic[T]):
    """The part that Consumer and MultiConsumer share: iteration over messages."""

    __slots__ = ("key", "name", "store")
    store: Store

    def __init__(self, name: str | bytes) -> None:
        self.key = encode_name(name, "name")
        self.name = decode(self.key)

    def parts(self) -> Sequence[Consumer[T]]:
        """Return the consumer in the group of each stream."""
        raise NotImplementedError

    @overload
    def messages(self, count: int = 100, *, prefetch: int | None = None, batch: None = None,
                 block: Seconds | None = 1.0, claim_idle: Seconds | None = None, max_deliveries: int | None = None,
                 dead_letters: str | bytes | None = None, on_exhausted: Literal["drop"] | None = None,
                 backoff: Backoff | None = None, heartbeat: bool = False, collect: Seconds | None = None,
                 order_by: str | bytes | None = None, where: Where | None = None,
                 skipped: Literal["ack", "leave"] = "ack", stop_when_empty: bool = False, stop: Stop | None = None,
                 timeout: Seconds | None = None) -> Iterator[Message[T]]: ...  # fmt: skip

    @overload
    def messages(self, count: int = 100, *, prefetch: int | None = None, batch: int,
                 block: Seconds | None = 1.0, claim_idle: Seconds | None = None, max_deliveries: int | None = None,
                 dead_letters: str | bytes | None = None, on_exhausted: Literal["drop"] | None = None,
                 backoff: Backoff | None = None, heartbeat: bool = False, collect: Seconds | None = None,
                 order_by: str | bytes | None = None, where: Where | None = None,
                 skipped: Literal["ack", "leave"] = "ack", stop_when_empty: bool = False, stop: Stop | None = None,
                 timeout: Seconds | None = None) -> Iterator[list[Message[T]]]: ...  # fmt: skip

    def messages(self, count: int = 100, *, prefetch: int | None = None, batch: int | None = None,
                 block: Seconds | None = 1.0, claim_idle: Seconds | None = None, max_deliveries: int | None = None,
                 dead_letters: str | bytes | None = None, on_exhausted: Literal["drop"] | None = None,
                 backoff: Backoff | None = None, heartbeat: bool = False, collect: Seconds | None = None,
                 order_by: str | bytes | None = None, where: Where | None = None,
                 skipped: Literal["ack", "leave"] = "ack", stop_when_empty: bool = False, stop: Stop | None = None,
                 timeout: Seconds | None = None
                 ) -> Iterator[Message[T]] | Iterator[list[Message[T]]]:  # fmt: skip
        """Yield this consumer's own pending messages (after a restart), then stale messages, then new messages.

        count: the most messages that one command reads. batch: yield lists of up to that many messages instead of
        single ones; a list has what one command returned, so it may be shorter.
        prefetch: the most messages that are read and wait to be handed out; by default 50 with claim_idle or
        max_deliveries, else `count`. With these two, a loop reads ahead only while its handlers are fast. Its messages
        stay its own while each handler takes less than claim_idle.
        block: seconds that a read waits for new messages, 0 without limit, None to poll without waiting.
        claim_idle: seconds after which pending messages of other consumers are stale; None claims nothing.
        max_deliveries, dead_letters: a message that was handed out so often without being acknowledged goes to that
        stream, and is acknowledged. A message that was only read ahead was not handed out. Without
        such a stream, on_exhausted="drop" acknowledges it. ValueError if neither is given. The dead letters are also
        the place of invalid messages if on_invalid of the stream is "dead_letter".
        backoff: a failed message waits for so long before it is delivered again: a function from the number of its
        deliveries to seconds, such as Exponential(first=1, most=600). A message has failed if it is neither
        acknowledged nor released when the next one is asked for, or when the loop ends.
        heartbeat: while a handler works, a thread renews the lease of its message three times in claim_idle. So
        claim_idle may be shorter than a handler takes. LeaseLost is raised by the acknowledgement of a message that
        another consumer claimed nevertheless. The loop reads one message or batch at a time.
        collect: delete consumers of the group that were silent for that many seconds, and hand their messages out here;
        see Group.collect. It runs at the start, and four times in that time.
        order_by: hand out messages with the same value of this field one after another, in the order of their IDs, each
        when the one before was acknowledged or became a dead letter; different values in parallel. claim_idle is the
        lease of such a key, by the clock of the store: after it, another consumer receives the message, and `ack` of
        the first one raises LeaseLost. A batch has messages of different keys. A message without the field is an
        InvalidEntry. All loops of the group must pass it (rillet.store.consuming.order_steps).
        where: only messages whose fields have these values: a mapping from fields to a value, or to several of which
        one suffices. The store evaluates it (consuming/filter_steps.py). skipped: "ack" acknowledges the other
        messages; "leave" leaves them pending, with the deliveries that they had, for loops that claim them.
        stop_when_empty: end when no message is left instead of waiting for more.
        stop: an event or a function; when it is set or returns True, end after the current message or batch. A waiting
        read notices it within a second.
        However the loop ends, messages that were read and not yielded are given back: they stay pending, their delivery
        count is as before the read, and others may claim them at once.
        timeout: end after that many seconds without a message.
        While a server is away, the iteration waits for it, then continues with the pending messages.
        InvalidEntry: raised once for each invalid message of a typed stream whose on_invalid is "raise". The message
        stays pending, and the next call of the iterator, or a new iterator, continues with the next message.
        """
        streams = [consumer.group.stream for consumer in self.parts()]
        to_dead_letters = next((stream.name for stream in streams if stream.on_invalid == "dead_letter"), None)
        options = DeliveryOptions(count, block, claim_idle, max_deliveries, dead_letters, on_exhausted, stop_when_empty,
                                  stop, timeout, batch, prefetch, to_dead_letters, backoff, heartbeat,
                                  collect, order_by, where, skipped)  # fmt: skip
        keys = [stream.key for stream in streams]
        by_slot(self.store, keys, options.block is not None and not stop_when_empty)  # raises before the first read
        for consumer in self.parts():
            consumer.group.in_order |= order_by is not None
        ordered = order_by is not None
        if any((ordered or stream.form is not None) and stream.on_invalid == "raise" for stream in streams):
            return RaisingIterator(self._handed_out(options))
        return self._handed_out(options)

    def run(self, handler: Callable[[Message[T]], object], *, concurrency: int = 1,
            claim_idle: Seconds | None = 30.0, max_deliveries: int | None = 5, dead_letters: str | bytes | None = None,
            on_exhausted: Literal["drop"] | None = None,
            backoff: Backoff | Literal["exponential"] | None = "exponential", heartbeat: bool = True,
            collect: Seconds | None = None, order_by: str | bytes | None = None, where: Where | None = None,
            skipped: Literal["ack", "leave"] = "ack", stop_when_empty: bool = False, stop: Stop | None = None,
            timeout: Seconds | None = None, signals: Sequence[int] | None = None) -> Handled:  # fmt: skip
        """Call handler(message) for each message of messages(), and acknowledge those for which it raises nothing.

        It returns at SIGTERM or ^C, at `stop`, or as messages() does; the messages in handlers are finished before. The
        result has the numbers of handled messages and of failures: Handled(succeeded, failed).
        handler: what it acknowledges, releases or retries itself is left so. If it raises an exception, the message is
        logged with a warning, and delivered again after `backoff`; after max_deliveries it goes to the dead letters,
        with the error in the field `_error`.
        concurrency: how many handlers may work at the same time; each is a consumer of the group, called as this one
        with ":2", ":3" and so on. With the synchronous API each has a thread.
        dead_letters: by default the stream whose name has ".dead" at its end; a reader of several streams must name
        it. None is used with on_exhausted="drop", or max_deliveries=None.
        backoff: "exponential" is 1, 2, 4 ... seconds, at most ten minutes; else as for messages(). heartbeat: as there;
        it needs claim_idle.
        signals: those that end the loops, by default SIGTERM and SIGINT; () for none. The first signal restores the
        earlier handlers of signals. In another thread than the main one, only `stop` ends the loops.
        If the store is instrumented (rillet.opentelemetry), each call of the handler has its span and its duration.
        The other options are those of messages(). TypeError, ValueError as there; StoreError if the store fails.
        """
        parts = self.parts()
        letters = max_deliveries is not None and on_exhausted is None and len(parts) == 1
        if dead_letters is None and letters:
            dead_letters = parts[0].group.stream.key + b".dead"
        options = {"claim_idle": claim_idle, "max_deliveries": max_deliveries, "dead_letters": dead_letters,
                   "on_exhausted": on_exhausted, "backoff": backoff, "heartbeat": heartbeat, "collect": collect,
                   "order_by": order_by, "where": where, "skipped": skipped, "stop_when_empty": stop_when_empty,
                   "timeout": timeout}  # fmt: skip
        return self.store._handle(self, handler, concurrency, signals, stop, options)

    def _loop(self, options: DeliveryOptions) -> tuple[Prefetched, Leases]:
        """Return what a loop over messages() keeps between its commands."""
        return options.prefetched(self.key), options.leases(self.key)

    def _steps(self, options: DeliveryOptions, end: End, prefetched: Prefetched, leases: Leases) -> Steps[None]:
        """Return the commands of a loop over messages()."""
        return delivery(self.parts(), options, end, prefetched, leases)

    def _handed_out(self, options: DeliveryOptions) -> Iterator[Any]:
        end = End(options)
        prefetched, leases = self._loop(options)
        beat = options.beat(self.store, leases)
        self.store._loops.add(prefetched)
        steps = self._steps(options, end, prefetched, leases)
        reply: Any = None
        failure: CommandError | None = None
        try:
            while True:
                try:
                    step = steps.send(reply) if failure is None else steps.throw(failure)
                except StopIteration:
                    return
                reply = failure = None
                if isinstance(step, list):
                    try:
                        for consumer in self.parts():
                            consumer.group.create_missing(STOP_CHECK)
                        reply = run_step(self.store, step, STOP_CHECK)
                    except StoreTimeout:
                        raise
                    except (OutcomeUnknown, NotSent, *NOT_READY) as error:
                        if isinstance(error, NotSent) and not getattr(self.store.transport, "reached", False):
                            raise
                        if end.requested() or end.expired():
                            return
                        # What the command delivered is pending for this consumer: begin again with the pending ones.
                        steps.close()
                        prefetched.clear()
                        steps = self._steps(options, end, prefetched, leases)
                    except CommandError as error:
                        failure = error
                    continue
                if beat is not None:
                    beat.start()
                if isinstance(step, InvalidEntry):
                    yield step  # RaisingIterator raises it
                elif options.batch is None:
                    yield from step
                else:
                    yield list(step)
        finally:
            steps.close()
            if beat is not None:
                beat.stop()
            self.store._loops.discard(prefetched)
            self.store._end_loop(leases, prefetched)

    def __iter__(self) -> Iterator[Message[T]]:
        """Yield messages without end; see `messages`."""
        return self.messages()


class Consumer(MessageReader[T]):
    """A reader of a group. Iterating yields messages without end and waits for new ones."""

    __slots__ = ("group",)
    _message_class: ClassVar[type[Delivered[Any]]] = Message

    def __init__(self, group: Group[T], name: str | bytes) -> None:
        super().__init__(name)
        self.group = group
        self.store = group.store

    def parts(self) -> Sequence[Consumer[T]]:
        return (self,)

    def ack(self, *messages: Message[Any], delete: RefPolicy | None = None) -> int:
        """Acknowledge messages and return how many were pending; see Group.ack and Message.ack."""
        return self.group._ack_messages(_checked(messages), delete)

    def nack(self, *messages: Message[Any], mode: str = "fail", deliveries: int | None = None) -> int:
        """Release messages, so that the next claim gets them first; return how many were pending; see Group.nack."""
        return self.group._nack_messages(_checked(messages), mode, deliveries)

    # -- reading ---------------------------------------------------------------------------------------

    def read(self, count: int = 100, *, block: Seconds | None = None, after: Position = ">", noack: bool = False,
             claim_idle: Seconds | None = None) -> list[Message[T]]:  # fmt: skip
        """Return new messages or, if `after` is an ID, this consumer's pending messages after that ID (XREADGROUP).

        block: seconds to wait for a new message, 0 without limit; noack: the messages are acknowledged at once.
        claim_idle: first claim messages that were pending for that many seconds; `block` also waits for such messages.
        """
        self.group.create_missing()
        reply = stream_part(self.store.run(self.read_command(count, block, after, noack, claim_idle)))
        if encode_after(after) == b">":
            return drive(self.store, valued(self.messages_of(reply), not noack))
        return drive(self.store, self._counted(old_messages(reply, self, Message)))

    def _counted(self, messages: list[Message[T]]) -> Commands[list[Message[T]]]:
        """Set the delivery counts and the values of old messages."""
        return (yield from valued((yield from counted(self, messages))))

    def read_command(self, count: int, block: Seconds | None, after: Position, noack: bool,
                     claim_idle: Seconds | None = None) -> list[bytes]:  # fmt: skip
        """Return the XREADGROUP command that `read` sends."""
        argv = read_options(self, count, block, noack, claim_idle)
        return [*argv, b"STREAMS", self.group.stream.key, encode_after(after, "after")]

    def messages_of(self, reply: Any) -> list[Message[T]]:
        """Return the messages of a reply with new messages."""
        return new_messages(reply, self, Message)

    # -- claiming --------------------------------------------------------------------------------------

    def claim(self, idle: Seconds, count: int = 100, start: Position = "0-0") -> tuple[StreamID, list[Message[T]]]:
        """Claim messages that were pending for `idle` seconds (XAUTOCLAIM); return (start of the next call, messages).

        Messages whose entries were deleted leave the pending list. The start (0, 0) means that the whole list was read.
        """
        self.group.create_missing()
        reply = self.store.run(self.claim_command(idle, count, start))
        return parse_id(reply[0]), drive(self.store, self._counted(old_messages(reply[1], self, Message)))

    def claim_command(self, idle: Seconds, count: int, start: Position) -> list[bytes]:
        """Return the XAUTOCLAIM command that `claim` sends."""
        return [b"XAUTOCLAIM", self.group.stream.key, self.group.key, self.key, milliseconds_in(idle, "idle"),
                encode_position(start, "start"), b"COUNT", integer_of(count, "count", 1)]  # fmt: skip

    def claim_all(self, idle: Seconds, *, count: int = 100) -> Iterator[Message[T]]:
        """Claim and yield all messages that were pending for `idle` seconds, in pages of `count` (XAUTOCLAIM)."""
        start: Position = "0-0"
        while True:
            start, messages = self.claim(idle, count, start)
            yield from messages
            if start == StreamID(0, 0):
                return

    @overload
    def claim_ids(self, *ids: IDLike, idle: Seconds = 0.0, set_idle: Seconds | None = None,
                  delivered_at: datetime | None = None, deliveries: int | None = None, force: bool = False,
                  last_id: IDLike | None = None, just_ids: Literal[False] = False) -> list[Message[T]]: ...  # fmt: skip

    @overload
    def claim_ids(self, *ids: IDLike, idle: Seconds = 0.0, set_idle: Seconds | None = None,
                  delivered_at: datetime | None = None, deliveries: int | None = None, force: bool = False,
                  last_id: IDLike | None = None, just_ids: Literal[True]) -> list[StreamID]: ...  # fmt: skip

    def claim_ids(self, *ids: IDLike, idle: Seconds = 0.0, set_idle: Seconds | None = None,
                  delivered_at: datetime | None = None, deliveries: int | None = None, force: bool = False,
                  last_id: IDLike | None = None,
                  just_ids: bool = False) -> list[Message[T]] | list[StreamID]:  # fmt: skip
        """Claim the given pending messages and return them, lowest ID of each command first (XCLAIM). O(log n) each

        idle: only messages that were pending for that many seconds. set_idle: seconds that the messages count as idle
        after the claim, or delivered_at: the time of their delivery; by default they were delivered now.
        deliveries: the new delivery count; by default it grows by one. force: also claim entries that are not pending.
        last_id: raise the group's last delivered ID to this one.
        just_ids: return IDs, without the entries and without counting a delivery.
        """
        options: list[bytes] = []
        if set_idle is not None:
            options += [b"IDLE", milliseconds_in(set_idle, "set_idle")]
        if delivered_at is not None:
            options += [b"TIME", b"%d" % milliseconds_of(delivered_at, "delivered_at")]
        if deliveries is not None:
            options += [b"RETRYCOUNT", integer_of(deliveries, "deliveries", 0)]
        options += [b"FORCE"] if flag(force, "force") else []
        options += [b"JUSTID"] if flag(just_ids, "just_ids") else []
        if last_id is not None:
            options += [b"LASTID", encode_id(last_id, "last_id")]
        claimed: list[Any] = []
        for some in chunks([encode_id(one, "one of ids") for one in ids]):
            self.group.create_missing()
            claimed += self.store.run([b"XCLAIM", self.group.stream.key, self.group.key, self.key,
                                       milliseconds_in(idle, "idle"), *some, *options])  # fmt: skip
        if just_ids:
            return [parse_id(raw_id) for raw_id in claimed]
        return drive(self.store, self._counted(old_messages(claimed, self, Message)))

    # -- state -----------------------------------------------------------------------------------------

    def pending(self, count: int = 100, idle: Seconds = 0.0) -> list[PendingEntry]:
        """Return the pending messages of this consumer, lowest ID first."""
        return self.group.pending(count, consumer=self.key, idle=idle)

    def info(self) -> ConsumerInfo:
        """Return the state of the consumer (XINFO CONSUMERS); KeyError if it does not exist, NoGroup as for Group."""
        for one in self.group.consumers():
            if one.name == self.name:
                return one
        raise KeyError(self.name)

    def __repr__(self) -> str:
        return f"Consumer({self.group.stream.name!r}, {self.group.name!r}, {self.name!r})"


def _by_group(messages: Sequence[Message[Any]]) -> dict[Group[Any], list[Message[Any]]]:
    found: dict[Group[Any], list[Message[Any]]] = {}
    for message in _checked(messages):
        found.setdefault(message.group, []).append(message)
    return found


def _checked(messages: Sequence[Message[Any]]) -> Sequence[Message[Any]]:
    """Return messages; TypeError if one of them is something else."""
    for message in messages:
        if not isinstance(message, Message):
            raise TypeError(f"one of messages must be a Message of a consumer, not {message!r:.200}")
    return messages


def _settled_id(message: Delivered[Any]) -> bytes:
    """Return the ID of a message that is acknowledged or released now, and note this."""
    message.settled = True
    return message.raw_id


class MultiConsumer(MessageReader[T]):
    """A reader of the groups of the same name of several streams; one command reads them all.

    Iterating yields messages without end and waits for new ones in any of the streams. `message.stream` is the stream
    of a message. On a cluster the streams must be in the same slot, unless no read waits.
    """

    __slots__ = ("consumers",)

    def __init__(self, groups: Sequence[Group[T]], name: str | bytes) -> None:
        super().__init__(name)
        if not groups:
            raise ValueError("a consumer needs at least one stream: streams is empty")
        self.consumers = tuple(group.consumer(name) for group in groups)
        self.store = groups[0].store

    def parts(self) -> Sequence[Consumer[T]]:
        return self.consumers

    def read(self, count: int = 100, *, block: Seconds | None = None, noack: bool = False,
             claim_idle: Seconds | None = None) -> list[Message[T]]:  # fmt: skip
        """Return new messages, up to `count` of each stream (XREADGROUP); see Consumer.read."""
        found: list[Message[T]] = []
        for consumer in self.consumers:
            consumer.group.create_missing()
        for argv in read_commands(self.consumers, count, block, noack, claim_idle):
            found += new_messages_of(self.store.run(argv), self.consumers, Message)
        return drive(self.store, valued(found, not noack))

    def ack(self, *messages: Message[Any], delete: RefPolicy | None = None) -> int:
        """Acknowledge messages, with one command for each stream; return how many were pending; see Consumer.ack."""
        acknowledged = 0
        for group, some in _by_group(messages).items():
            acknowledged += group._ack_messages(some, delete)
        return acknowledged

    def nack(self, *messages: Message[Any], mode: str = "fail", deliveries: int | None = None) -> int:
        """Release messages, with one command for each stream; return how many were pending; see Group.nack."""
        released = 0
        for group, some in _by_group(messages).items():
            released += group._nack_messages(some, mode, deliveries)
        return released

    def __repr__(self) -> str:
        names = [consumer.group.stream.name for consumer in self.consumers]
        return f"MultiConsumer({names!r}, {self.consumers[0].group.name!r}, {self.name!r})"
