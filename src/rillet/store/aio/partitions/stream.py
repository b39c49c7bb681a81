"""The asyncio form of rillet.store.partitions.stream: AsyncPartitionedStream.

Made from store/partitions/stream.py by `python -m tools.make_aio`; edit that file, then run the command.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, overload

from rillet.errors import CommandError
from rillet.keyspace.helper_keys import delayed_key
from rillet.store.aio.command_steps import drive
from rillet.store.aio.partitions.group import AsyncPartitionedGroup
from rillet.store.aio.stream import AsyncStream
from rillet.store.arguments.argument_checks import flag, items_of, whole_number
from rillet.store.arguments.durations import Seconds
from rillet.store.arguments.encoding import Value, parse_id
from rillet.store.arguments.policies import message_ids_of
from rillet.store.arguments.positions import Position, encode_position
from rillet.store.arguments.retention import not_retained, retention_arguments
from rillet.store.consuming.delays import WAITING, DelayedEntry, delayed_of, moment, waiting_command
from rillet.store.entry import Entry, T
from rillet.store.info_records import Retention, merged
from rillet.store.partitions.layout import MOST_PARTITIONS, Layout, is_sealed
from rillet.store.partitions.stream import PartitionedEntries, _add_options, _Merge, _one_of, _producer
from rillet.store.partitions.upkeep import deleted, described, drained, finished, missing_key, repartitioned, retained
from rillet.store.stats import StoreStats
from rillet.store.stream import BATCH
from rillet.store.transports.transport import raised
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from rillet.store.aio.store import AsyncStore


class AsyncPartitionedStream(PartitionedEntries[T]):
    """A partitioned stream of the store. Its name is not a key: each partition is an ordinary stream.

    expected: the number of partitions that the program passed; field: its `by`. None accepts those of the store.
    """

    __slots__ = ()
    store: AsyncStore

    # -- writing -------------------------------------------------------------------------------------

    @overload
    async def add(self, fields: T, *, maxlen: int | None = None, minid: Position | None = None,
                  approximate: bool = True, limit: int | None = None, idmp: tuple[Value, Value] | None = None,
                  idmpauto: Value | None = None) -> StreamID: ...  # fmt: skip

    @overload
    async def add(self, fields: T, *, delay: Seconds, maxlen: int | None = None, minid: Position | None = None,
                  approximate: bool = True, limit: int | None = None) -> datetime: ...  # fmt: skip

    @overload
    async def add(self, fields: T, *, at: datetime, maxlen: int | None = None, minid: Position | None = None,
                  approximate: bool = True, limit: int | None = None) -> datetime: ...  # fmt: skip

    async def add(self, fields: T, *, maxlen: int | None = None, minid: Position | None = None,
                  approximate: bool = True, limit: int | None = None, idmp: tuple[Value, Value] | None = None,
                  idmpauto: Value | None = None, delay: Seconds | None = None,
                  at: datetime | None = None) -> Any:  # fmt: skip
        """Append an entry to its partition and return its ID there (XADD). O(fields)

        ValueError if it lacks the `by` field. maxlen, minid, approximate, limit: trim the partition; see Stream.add.
        idmp=(producer, message ID), idmpauto=producer: a repeated call adds nothing, and returns the ID of the earlier
        entry, also after a `repartition`; see AsyncStream.add. A message ID is known in the partition of its entry.
        delay, at: append the entry so many seconds later, or at a time, by the clock of the store; return that time.
        """
        options, due = _add_options(maxlen, minid, approximate, limit, delay, at)
        if due is not None or idmp is not None or idmpauto is not None:
            ids = None if idmp is None else _one_of(idmp)
            return (await self._send(options, due, [(fields, _producer(due, ids, idmpauto))]))[0]
        while True:
            layout = await self._current()
            argv = self._command(layout, options, None, fields)
            try:
                made = await self.store.id_of(argv)
            except CommandError as error:
                if not is_sealed(error):
                    raise
                made = None
            if made is not None:
                return made
            await self._follow(layout)

    @overload
    async def add_many(self, entries: Iterable[T], *, batch: int = BATCH, maxlen: int | None = None,
                       minid: Position | None = None, approximate: bool = True, limit: int | None = None,
                       idmp: tuple[Value, Iterable[Value]] | None = None,
                       idmpauto: Value | None = None) -> list[StreamID]: ...  # fmt: skip

    @overload
    async def add_many(self, entries: Iterable[T], *, delay: Seconds, batch: int = BATCH, maxlen: int | None = None,
                       minid: Position | None = None, approximate: bool = True,
                       limit: int | None = None) -> list[datetime]: ...  # fmt: skip

    @overload
    async def add_many(self, entries: Iterable[T], *, at: datetime, batch: int = BATCH, maxlen: int | None = None,
                       minid: Position | None = None, approximate: bool = True,
                       limit: int | None = None) -> list[datetime]: ...  # fmt: skip

    async def add_many(self, entries: Iterable[T], *, batch: int = BATCH, maxlen: int | None = None,
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
                made += await self._send(options, due, waiting)
                waiting = []
        return made + await self._send(options, due, waiting)

    async def _send(self, options: list[bytes], due: tuple[bytes, int] | None,
                    entries: list[tuple[T, list[bytes]]]) -> list[Any]:  # fmt: skip
        """Append a batch; what a sealed partition refuses is added to the next epoch, in its order.

        A sealed partition still knows the messages of its producers, so those of earlier epochs are asked first.
        """
        made: dict[int, Any] = {}
        problem: CommandError | None = None
        left = list(enumerate(entries))
        while left:
            layout = await self._current()
            for epoch in layout.epochs if left[0][1][1] else (layout.epoch,):
                commands = [self._command(layout, options + producer, due, fields, epoch)
                            for _, (fields, producer) in left]  # fmt: skip
                replies = await self.store.run_many(commands, raises=False)
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
                await self._follow(layout)
        raised(problem)
        return [made[place] for place in sorted(made)]

    async def delayed(self, count: int = 100) -> list[DelayedEntry]:
        """Return up to `count` entries that wait until they are due, the next one first. O(partitions * count)"""
        keys = (await self.layout()).all_keys()
        replies = await self.store.run_many([waiting_command(delayed_key(key), count) for key in keys])
        return sorted((one for reply in replies for one in delayed_of(reply)), key=attrgetter("due"))[:count]

    async def delayed_count(self) -> int:
        """Return how many entries wait until they are due. O(partitions)"""
        keys = (await self.layout()).all_keys()
        return sum(await self.store.run_many([[b"ZCOUNT", delayed_key(key), *WAITING] for key in keys]))

    # -- the form ------------------------------------------------------------------------------------

    async def layout(self) -> Layout:
        """Return the description of the stream, as it is now in the store; create a missing stream."""
        return await drive(self.store, self._refreshed())

    async def _current(self) -> Layout:
        layout = self._layout
        if layout is None:
            layout = await drive(self.store, self._opened())
        return layout

    async def _follow(self, before: Layout) -> None:
        """Read the description again after a key refused an entry; finish a change that is under way."""
        found = await drive(self.store, described(self.key))
        if found is not None and found.next:
            found = await drive(self.store, finished(found))
        if found is not None and found.epoch == before.epoch and found.partitions == before.partitions:
            raise missing_key(found)
        self._layout = found  # None: everything was deleted, and the next call creates the stream

    async def repartition(self, partitions: int) -> None:
        """Change the number of partitions. A call that is killed is continued by the next one, and by any writer.

        Later entries go to new keys. Nothing is copied: each group handles what is in the old keys first. See
        `delete_drained`. O(partitions)
        """
        number = whole_number(partitions, "partitions", 1, MOST_PARTITIONS)
        await self._current()
        self._layout = await drive(self.store, repartitioned(self.key, number))
        self.expected = None if self.expected is None else number

    async def retain(self, *, age: Seconds | None = None, entries: int | None = None, bytes: int | str | None = None,
                     groups: Literal["acknowledged", "ignore"] = "acknowledged") -> None:  # fmt: skip
        """Keep no more than this of each partition from now on, also of those that `repartition` creates.

        The limits are those of Stream.retain; without one, keep everything again. StoreError over Redis and Valkey.
        O(partitions)
        """
        words = retention_arguments(age, entries, bytes, groups)
        await self._current()
        try:
            self._layout = await drive(self.store, retained(self.key, words))
        except CommandError as error:
            raise not_retained(error) from None

    async def retention(self) -> Retention | None:
        """Return the policy of `retain`, with what all partitions together remove next and hold back; None without one.

        The limits are those of each partition; keeps_from, first_id and due are the lowest ones.
        O(partitions)
        """
        found = [await AsyncStream(self.store, key)._places() for key in (await self.layout()).all_keys()]
        return merged([one.retention for one in found if one is not None and one.retention is not None])

    async def delete_drained(self) -> int:
        """Delete the keys of earlier partitions that every group has handled; return how many keys. O(entries)

        Without a group, it deletes nothing.
        """
        return await drive(self.store, drained(self.key))

    async def delete(self) -> int:
        """Delete the stream, with its groups; return how many keys of partitions it had. O(entries)"""
        self._layout = None
        return await drive(self.store, deleted(self.key))

    async def partitions(self) -> list[AsyncStream[T]]:
        """Return the stream of each partition that receives entries: ordinary streams."""
        found = []
        for key in (await self.layout()).streams():
            found.append(AsyncStream(self.store, key, self.form, self.on_invalid))
        return found

    # -- reading -------------------------------------------------------------------------------------

    async def length(self) -> int:
        """Return the number of entries in all partitions, also of earlier epochs. O(partitions)"""
        return sum(await self.store.run_many([[b"XLEN", key] for key in (await self.layout()).all_keys()]))

    async def scan(self, start: Position = "-", end: Position = "+", *, page: int = BATCH) -> AsyncIterator[Entry[T]]:
        """Yield the entries from start to end, both included, merged by ID; those of an earlier epoch come first.

        O(entries * log(partitions)); up to `page` entries of each partition are in memory.
        """
        page = whole_number(page, "page", 1)
        first, last = encode_position(start, "start"), encode_position(end, "end")
        layout = await self.layout()
        for epoch in layout.epochs:
            merge = _Merge(layout.streams(epoch), first, last, page)
            while (command := merge.command()) is not None:
                merge.filled(await self.store.run(command))
                for entry in self.entries_of(merge.rows()):
                    yield entry

    def __aiter__(self) -> AsyncIterator[Entry[T]]:
        """Yield every entry; see `scan`."""
        return self.scan()

    async def range(self, start: Position = "-", end: Position = "+", count: int | None = None) -> list[Entry[T]]:
        """Return the first `count` entries from start to end, both included, merged by ID; see `scan`."""
        most = None if count is None else whole_number(count, "count", 0)
        found: list[Entry[T]] = []
        if most == 0:
            return found
        async for entry in self.scan(start, end, page=BATCH if most is None else min(most, BATCH)):
            found.append(entry)
            if len(found) == most:
                break
        return found

    async def stats(self) -> StoreStats:
        """Return the stats of each partition, with its groups and consumers; see AsyncStore.stats."""
        return await self.store.stats(*(await self.layout()).all_keys())

    # -- groups ----------------------------------------------------------------------------------------

    def group(self, name: str | bytes, start: Position = "0", *, create: bool = True) -> AsyncPartitionedGroup[T]:
        """Return the consumer group of that name, which need not exist; this call writes nothing.

        If the group is missing, the first read creates it to deliver the entries after `start`; "$" is the last ID of
        each partition at that time. create: if False, it raises NoGroup.
        """
        return AsyncPartitionedGroup(self, name, start, flag(create, "create"))
