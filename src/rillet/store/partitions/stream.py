"""PartitionedStream: one logical stream over several keys, whose entries are distributed by a field.

    orders = store.partitioned("orders", partitions=16, by="customer")
    orders.add({"customer": "42", "total": "99.90"})

Entries with the same value of the field are in the same partition, and so in order. In a cluster the partitions are on
different nodes. rillet.store.partitions.layout describes the keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, overload

from rillet.errors import CommandError
from rillet.keyspace.helper_keys import delayed_key
from rillet.store.arguments.argument_checks import flag, items_of, whole_number
from rillet.store.arguments.durations import Seconds
from rillet.store.arguments.encoding import Value, decode, encode_name, find_field, parse_id
from rillet.store.arguments.policies import add_arguments, message_ids_of, next_message_id, producer_arguments
from rillet.store.arguments.positions import Position, encode_position
from rillet.store.arguments.retention import not_retained, retention_arguments
from rillet.store.command_steps import Commands, drive
from rillet.store.consuming.atomic_steps import MOST_WORDS
from rillet.store.consuming.delays import WAITING, DelayedEntry, delayed_of, due_time, moment, waiting_command
from rillet.store.entry import Entry, T
from rillet.store.info_records import Retention, merged
from rillet.store.partitions.group import PartitionedGroup
from rillet.store.partitions.layout import MOST_PARTITIONS, Layout, is_sealed
from rillet.store.partitions.scripts import add_later
from rillet.store.partitions.upkeep import (
    deleted,
    described,
    drained,
    finished,
    missing_key,
    opened,
    repartitioned,
    retained,
)
from rillet.store.stats import StoreStats
from rillet.store.stream import BATCH, Stream, StreamEntries
from rillet.store.transports.transport import raised
from rillet.store.typed.forms import Form, OnInvalid
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from rillet.store.arguments.slots import HasTransport
    from rillet.store.store import Store


class PartitionedEntries(StreamEntries[T]):
    """A partitioned stream's name, layout and the commands of its entries: the part that runs no commands."""

    __slots__ = ("expected", "field", "_layout")

    def __init__(
        self, store: HasTransport, name: str | bytes, partitions: int | None = None, by: str | bytes | None = None,
        form: Form[T] | None = None, on_invalid: OnInvalid = "raise",
    ) -> None:  # fmt: skip
        super().__init__(store, name, form, on_invalid)
        self.expected = None if partitions is None else whole_number(partitions, "partitions", 1, MOST_PARTITIONS)
        self.field = None if by is None else encode_name(by, "by")
        self._layout: Layout | None = None

    def _command(self, layout: Layout, options: list[bytes], due: tuple[bytes, int] | None, fields: T,
                 epoch: int | None = None) -> list[bytes]:  # fmt: skip
        """Return the command that appends an entry, now or when it is due; ValueError if it lacks the `by` field."""
        argv = [b"XADD", b"", *options, b"*"]
        head = len(argv)
        self._append(argv, fields)
        value: Any = find_field(argv[head:], layout.by)
        if value is None:
            raise ValueError(
                f"an entry of the partitioned stream {self.name!r} needs the field {decode(layout.by)!r}, which "
                f"selects its partition: {fields!r:.200}"
            )
        argv[1] = layout.key_for(value, epoch)
        if due is None:
            return argv
        if len(argv) > MOST_WORDS:
            raise ValueError(f"an entry with delay or at has at most {MOST_WORDS // 2 - 5} fields")
        return add_later(argv[1], layout.epoch, *due, argv[2:])

    def _opened(self) -> Commands[Layout]:
        """Return the last description that is known; the first call reads and checks it, and creates a missing stream.

        So a program goes on when another one changes the number of partitions.
        """
        if self._layout is None:
            self._layout = yield from opened(self.key, self.expected, self.field)
        return self._layout

    def _refreshed(self) -> Commands[Layout]:
        """Return the description as it is now."""
        if self._layout is not None:
            self._layout = yield from described(self.key)
            if self._layout is not None and self._layout.epoch == 0:
                self._layout = None
        return (yield from self._opened())


class PartitionedStream(PartitionedEntries[T]):
    """A partitioned stream of the store. Its name is not a key: each partition is an ordinary stream.

    expected: the number of partitions that the program passed; field: its `by`. None accepts those of the store.
    """

    __slots__ = ()
    store: Store

    # -- writing -------------------------------------------------------------------------------------

    @overload
    def add(self, fields: T, *, maxlen: int | None = None, minid: Position | None = None, approximate: bool = True,
            limit: int | None = None, idmp: tuple[Value, Value] | None = None,
            idmpauto: Value | None = None) -> StreamID: ...  # fmt: skip

    @overload
    def add(self, fields: T, *, delay: Seconds, maxlen: int | None = None, minid: Position | None = None,
            approximate: bool = True, limit: int | None = None) -> datetime: ...  # fmt: skip

    @overload
    def add(self, fields: T, *, at: datetime, maxlen: int | None = None, minid: Position | None = None,
            approximate: bool = True, limit: int | None = None) -> datetime: ...  # fmt: skip

    def add(self, fields: T, *, maxlen: int | None = None, minid: Position | None = None, approximate: bool = True,
            limit: int | None = None, idmp: tuple[Value, Value] | None = None, idmpauto: Value | None = None,
            delay: Seconds | None = None, at: datetime | None = None) -> Any:  # fmt: skip
        """Append an entry to its partition and return its ID there (XADD). O(fields)

        ValueError if it lacks the `by` field. maxlen, minid, approximate, limit: trim the partition; see Stream.add.
        idmp=(producer, message ID), idmpauto=producer: a repeated call adds nothing, and returns the ID of the earlier
        entry, also after a `repartition`; see Stream.add. A message ID is known in the partition of its entry.
        delay, at: append the entry so many seconds later, or at a time, by the clock of the store; return that time.
        """
        options, due = _add_options(maxlen, minid, approximate, limit, delay, at)
        if due is not None or idmp is not None or idmpauto is not None:
            ids = None if idmp is None else _one_of(idmp)
            return self._send(options, due, [(fields, _producer(due, ids, idmpauto))])[0]
        while True:
            layout = self._current()
            argv = self._command(layout, options, None, fields)
            try:
                made = self.store.id_of(argv)
            except CommandError as error:
                if not is_sealed(error):
                    raise
                made = None
            if made is not None:
                return made
            self._follow(layout)

    @overload
    def add_many(self, entries: Iterable[T], *, batch: int = BATCH, maxlen: int | None = None,
                 minid: Position | None = None, approximate: bool = True, limit: int | None = None,
                 idmp: tuple[Value, Iterable[Value]] | None = None,
                 idmpauto: Value | None = None) -> list[StreamID]: ...  # fmt: skip

    @overload
    def add_many(self, entries: Iterable[T], *, delay: Seconds, batch: int = BATCH, maxlen: int | None = None,
                 minid: Position | None = None, approximate: bool = True,
                 limit: int | None = None) -> list[datetime]: ...  # fmt: skip

    @overload
    def add_many(self, entries: Iterable[T], *, at: datetime, batch: int = BATCH, maxlen: int | None = None,
                 minid: Position | None = None, approximate: bool = True,
                 limit: int | None = None) -> list[datetime]: ...  # fmt: skip

    def add_many(self, entries: Iterable[T], *, batch: int = BATCH, maxlen: int | None = None,
                 minid: Position | None = None, approximate: bool = True, limit: int | None = None,
                 idmp: tuple[Value, Iterable[Value]] | None = None, idmpauto: Value | None = None,
                 delay: Seconds | None = None, at: datetime | None = None) -> Any:  # fmt: skip
        """Append entries to their partitions and return their IDs, in the same order; delay, at, idmpauto: see `add`.

        Each batch is one exchange. An entry without the `by` field raises ValueError before its batch is sent. If an
        entry is rejected, the other entries of its batch are added, and the error is raised. idmp: the producer, and an
        iterable with the message ID of each entry.
        """
        options, due = _add_options(maxlen, minid, approximate, limit, delay, at)
        batch = whole_number(batch, "batch", 1)
        numbers = None if idmp is None else message_ids_of(idmp)
        ids = None if idmp is None or numbers is None else (idmp[0], numbers)
        made: list[Any] = []
        waiting: list[tuple[T, list[bytes]]] = []
        for fields in items_of(entries, "entries", "entries"):
            waiting.append((fields, _producer(due, ids, idmpauto)))
            if len(waiting) >= batch:
                made += self._send(options, due, waiting)
                waiting = []
        return made + self._send(options, due, waiting)

    def _send(self, options: list[bytes], due: tuple[bytes, int] | None,
              entries: list[tuple[T, list[bytes]]]) -> list[Any]:  # fmt: skip
        """Append a batch; what a sealed partition refuses is added to the next epoch, in its order.

        A sealed partition still knows the messages of its producers, so those of earlier epochs are asked first.
        """
        made: dict[int, Any] = {}
        problem: CommandError | None = None
        left = list(enumerate(entries))
        while left:
            layout = self._current()
            for epoch in layout.epochs if left[0][1][1] else (layout.epoch,):
                commands = [self._command(layout, options + producer, due, fields, epoch)
                            for _, (fields, producer) in left]  # fmt: skip
                replies = self.store.run_many(commands, raises=False)
                refused = []
                for item, reply in zip(left, replies, strict=True):
                    if reply is None or is_sealed(reply):
                        refused.append(item)
                    elif isinstance(reply, CommandError):
                        problem = problem or reply
                    else:
                        made[item[0]] = parse_id(reply) if due is None else moment(int(reply))
                left = refused
                if not left:
                    break
            if left:
                self._follow(layout)
        raised(problem)
        return [made[place] for place in sorted(made)]

    def delayed(self, count: int = 100) -> list[DelayedEntry]:
        """Return up to `count` entries that wait until they are due, the next one first. O(partitions * count)"""
        keys = self.layout().all_keys()
        replies = self.store.run_many([waiting_command(delayed_key(key), count) for key in keys])
        return sorted((one for reply in replies for one in delayed_of(reply)), key=attrgetter("due"))[:count]

    def delayed_count(self) -> int:
        """Return how many entries wait until they are due. O(partitions)"""
        keys = self.layout().all_keys()
        return sum(self.store.run_many([[b"ZCOUNT", delayed_key(key), *WAITING] for key in keys]))

    # -- the form ------------------------------------------------------------------------------------

    def layout(self) -> Layout:
        """Return the description of the stream, as it is now in the store; create a missing stream."""
        return drive(self.store, self._refreshed())

    def _current(self) -> Layout:
        layout = self._layout
        if layout is None:
            layout = drive(self.store, self._opened())
        return layout

    def _follow(self, before: Layout) -> None:
        """Read the description again after a key refused an entry; finish a change that is under way."""
        found = drive(self.store, described(self.key))
        if found is not None and found.next:
            found = drive(self.store, finished(found))
        if found is not None and found.epoch == before.epoch and found.partitions == before.partitions:
            raise missing_key(found)
        self._layout = found  # None: everything was deleted, and the next call creates the stream

    def repartition(self, partitions: int) -> None:
        """Change the number of partitions. A call that is killed is continued by the next one, and by any writer.

        Later entries go to new keys. Nothing is copied: each group handles what is in the old keys first. See
        `delete_drained`. O(partitions)
        """
        number = whole_number(partitions, "partitions", 1, MOST_PARTITIONS)
        self._current()
        self._layout = drive(self.store, repartitioned(self.key, number))
        self.expected = None if self.expected is None else number

    def retain(self, *, age: Seconds | None = None, entries: int | None = None, bytes: int | str | None = None,
               groups: Literal["acknowledged", "ignore"] = "acknowledged") -> None:  # fmt: skip
        """Keep no more than this of each partition from now on, also of those that `repartition` creates.

        The limits are those of Stream.retain; without one, keep everything again. StoreError over Redis and Valkey.
        O(partitions)
        """
        words = retention_arguments(age, entries, bytes, groups)
        self._current()
        try:
            self._layout = drive(self.store, retained(self.key, words))
        except CommandError as error:
            raise not_retained(error) from None

    def retention(self) -> Retention | None:
        """Return the policy of `retain`, with what all partitions together remove next and hold back; None without one.

        The limits are those of each partition; keeps_from, first_id and due are the lowest ones.
        O(partitions)
        """
        found = [Stream(self.store, key)._places() for key in self.layout().all_keys()]
        return merged([one.retention for one in found if one is not None and one.retention is not None])

    def delete_drained(self) -> int:
        """Delete the keys of earlier partitions that every group has handled; return how many keys. O(entries)

        Without a group, it deletes nothing.
        """
        return drive(self.store, drained(self.key))

    def delete(self) -> int:
        """Delete the stream, with its groups; return how many keys of partitions it had. O(entries)"""
        self._layout = None
        return drive(self.store, deleted(self.key))

    def partitions(self) -> list[Stream[T]]:
        """Return the stream of each partition that receives entries: ordinary streams."""
        found = []
        for key in self.layout().streams():
            found.append(Stream(self.store, key, self.form, self.on_invalid))
        return found

    # -- reading -------------------------------------------------------------------------------------

    def length(self) -> int:
        """Return the number of entries in all partitions, also of earlier epochs. O(partitions)"""
        return sum(self.store.run_many([[b"XLEN", key] for key in self.layout().all_keys()]))

    def __len__(self) -> int:
        """Return the number of entries; see `length`."""
        return self.length()

    def scan(self, start: Position = "-", end: Position = "+", *, page: int = BATCH) -> Iterator[Entry[T]]:
        """Yield the entries from start to end, both included, merged by ID; those of an earlier epoch come first.

        O(entries * log(partitions)); up to `page` entries of each partition are in memory.
        """
        page = whole_number(page, "page", 1)
        first, last = encode_position(start, "start"), encode_position(end, "end")
        layout = self.layout()
        for epoch in layout.epochs:
            merge = _Merge(layout.streams(epoch), first, last, page)
            while (command := merge.command()) is not None:
                merge.filled(self.store.run(command))
                for entry in self.entries_of(merge.rows()):  # noqa: UP028 - `yield from` has no asyncio form
                    yield entry

    def __iter__(self) -> Iterator[Entry[T]]:
        """Yield every entry; see `scan`."""
        return self.scan()

    def range(self, start: Position = "-", end: Position = "+", count: int | None = None) -> list[Entry[T]]:
        """Return the first `count` entries from start to end, both included, merged by ID; see `scan`."""
        most = None if count is None else whole_number(count, "count", 0)
        found: list[Entry[T]] = []
        if most == 0:
            return found
        for entry in self.scan(start, end, page=BATCH if most is None else min(most, BATCH)):
            found.append(entry)
            if len(found) == most:
                break
        return found

    def stats(self) -> StoreStats:
        """Return the stats of each partition, with its groups and consumers; see Store.stats."""
        return self.store.stats(*self.layout().all_keys())

    # -- groups ----------------------------------------------------------------------------------------

    def group(self, name: str | bytes, start: Position = "0", *, create: bool = True) -> PartitionedGroup[T]:
        """Return the consumer group of that name, which need not exist; this call writes nothing.

        If the group is missing, the first read creates it to deliver the entries after `start`; "$" is the last ID of
        each partition at that time. create: if False, it raises NoGroup.
        """
        return PartitionedGroup(self, name, start, flag(create, "create"))


def _one_of(idmp: tuple[Value, Value]) -> tuple[Value, Iterator[Value]]:
    """Return the producer of idmp=(producer, message ID), and an iterator over its only ID."""
    producer_arguments(idmp, None)  # raises if it is not such a pair
    return idmp[0], iter((idmp[1],))


class _Merge:
    """Merges the entries of several keys by ID: a page of each key at a time."""

    def __init__(self, keys: Iterable[bytes], first: bytes, last: bytes, page: int) -> None:
        self._pages: dict[bytes, list[tuple[StreamID, bytes, Any]]] = {key: [] for key in keys}  # the first one is last
        self._starts = dict.fromkeys(self._pages, first)
        self._last, self._page = last, page
        self._asked = b""

    def command(self) -> list[bytes] | None:
        """Return the command that reads the next page of a key without one; None if no key has more entries."""
        self._asked = next((key for key, rows in self._pages.items() if not rows), b"")
        if not self._asked:
            return None
        return [b"XRANGE", self._asked, self._starts[self._asked], self._last, b"COUNT", b"%d" % self._page]

    def filled(self, rows: Any) -> None:
        """Note the reply of that command."""
        key = self._asked
        self._pages[key] = [(parse_id(raw_id), raw_id, flat) for raw_id, flat in reversed(rows)]
        if not rows:
            del self._pages[key]
        else:
            self._starts[key] = b"(" + rows[-1][0]

    def rows(self) -> list[Any]:
        """Return the next entries, up to where another page is needed."""
        from heapq import heapify, heapreplace

        found: list[Any] = []
        heads = [(rows[-1][0], key) for key, rows in self._pages.items() if rows]
        if not heads or len(heads) < len(self._pages):
            return found
        heapify(heads)
        while True:
            _, key = heads[0]
            _, raw_id, flat = self._pages[key].pop()
            found.append((raw_id, flat))
            if not self._pages[key]:
                return found
            heapreplace(heads, (self._pages[key][-1][0], key))


def _add_options(
    maxlen: int | None, minid: Position | None, approximate: bool, limit: int | None,
    delay: Seconds | None, at: datetime | None,
) -> tuple[list[bytes], tuple[bytes, int] | None]:  # fmt: skip
    """Return the options of XADD, and when the entries are due; None for now."""
    later = delay is not None or at is not None
    return add_arguments(later, None, maxlen, minid, approximate, limit), due_time(delay, at) if later else None


def _producer(due: tuple[bytes, int] | None, ids: tuple[Value, Iterator[Value]] | None,
              auto: Value | None) -> list[bytes]:  # fmt: skip
    """Return the options of the next entry of a producer, none without one."""
    if ids is None and auto is None:
        return []
    if due is not None:
        raise ValueError("idmp and idmpauto cannot be combined with delay and at: the entry is added later")
    return producer_arguments(None if ids is None else (ids[0], next_message_id(ids[1])), auto)
