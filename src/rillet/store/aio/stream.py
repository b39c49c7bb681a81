"""The asyncio form of rillet.store.stream: AsyncStream.

Made from store/stream.py by `python -m tools.make_aio`; edit that file, then run the command.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, overload

from rillet.errors import CommandError, NoPerm
from rillet.keyspace.helper_keys import delayed_key
from rillet.store.aio.group import AsyncGroup
from rillet.store.arguments.argument_checks import flag, integer_of, items_of, whole_number
from rillet.store.arguments.durations import Seconds, seconds_in
from rillet.store.arguments.encoding import IDLike, Value, encode_id, parse_id
from rillet.store.arguments.policies import (
    RefPolicy,
    add_arguments,
    chunks,
    message_ids_of,
    next_message_id,
    policy_arguments,
    producer_arguments,
    trim_arguments,
)
from rillet.store.arguments.positions import Position, encode_after, encode_new_id, encode_position, exact_id
from rillet.store.consuming.atomic_steps import STEP_SIZE, add_delayed, deliver_due
from rillet.store.consuming.delays import (
    WAITING,
    DelayedEntry,
    delayed_of,
    due_time,
    in_process,
    moment,
    waiting_command,
)
from rillet.store.consuming.delivery_options import DeliveryOptions, End, Stop
from rillet.store.entry import Entry, T, Where, named, stream_part
from rillet.store.info_records import GroupInfo, Retention, StreamPlaces, groups_of, places_of
from rillet.store.stream import _NEW, _NEWEST, _NOT_LATER, BATCH, BATCH_BYTES, BOUNDS, Stream, StreamEntries, _is_pair
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    import polars
    import pyarrow

    from rillet.store.aio.store import AsyncStore


class AsyncStream(StreamEntries[T]):
    """A stream of the store. Each method is one command, with the cost that it has in Redis.

    `async for` reads all entries from first to last, a thousand at a time. Where a method accepts a range or a
    position, it accepts an ID or an aware datetime, whose fraction of a millisecond is dropped.
    """

    __slots__ = ()
    store: AsyncStore

    # -- writing -------------------------------------------------------------------------------------

    @overload
    async def add(self, fields: T, id: Position = _NEW, *, maxlen: int | None = None, minid: Position | None = None,
                  approximate: bool = True, limit: int | None = None, create: Literal[True] = True,
                  ref_policy: RefPolicy | None = None, idmp: tuple[Value, Value] | None = None,
                  idmpauto: Value | None = None) -> StreamID: ...  # fmt: skip

    @overload
    async def add(self, fields: T, id: Position = _NEW, *, maxlen: int | None = None, minid: Position | None = None,
                  approximate: bool = True, limit: int | None = None, create: bool,
                  ref_policy: RefPolicy | None = None, idmp: tuple[Value, Value] | None = None,
                  idmpauto: Value | None = None) -> StreamID | None: ...  # fmt: skip

    @overload
    async def add(self, fields: T, *, delay: Seconds, maxlen: int | None = None, minid: Position | None = None,
                  approximate: bool = True, limit: int | None = None) -> datetime: ...  # fmt: skip

    @overload
    async def add(self, fields: T, *, at: datetime, maxlen: int | None = None, minid: Position | None = None,
                  approximate: bool = True, limit: int | None = None) -> datetime: ...  # fmt: skip

    async def add(self, fields: T, id: Position = _NEW, *, maxlen: int | None = None, minid: Position | None = None,
                  approximate: bool = True, limit: int | None = None, create: bool = True,
                  ref_policy: RefPolicy | None = None, idmp: tuple[Value, Value] | None = None,
                  idmpauto: Value | None = None, delay: Seconds | None = None,
                  at: datetime | None = None) -> StreamID | datetime | None:  # fmt: skip
        """Append an entry and return its ID (XADD); None if create is False and the key does not exist. O(fields)

        maxlen or minid trims the stream afterwards, only whole nodes unless approximate is False, and at most `limit`
        entries. ref_policy: what the trim does with entries that groups refer to (Redis 8.2, arguments.policies).
        idmp=(producer, message ID): if this producer added that message ID before, add nothing and return the ID of the
        earlier entry, so that a producer may repeat a call; idmpauto=producer computes the message ID from the fields
        (Redis 8.6). A stream stores 100 message IDs per producer for 100 seconds, unless configure_idmp changes this.
        delay, at: append the entry so many seconds later, or at a time, by the clock of the store; return that time.
        The entry waits in a sorted set until a consumer's messages() or `deliver_due` moves it (consuming/delays.py).
        It gets its ID then, and id, create, ref_policy, idmp and idmpauto cannot be chosen. O(log n + fields)
        """
        if delay is not None or at is not None:
            if id is not _NEW or create is not True or (ref_policy, idmp, idmpauto) != (None, None, None):
                raise ValueError(_NOT_LATER)
            words = self._delayed(add_arguments(True, None, maxlen, minid, approximate, limit), fields)
            return moment(int(await self.store.run(add_delayed(self.key, *due_time(delay, at), words))))
        argv = [b"XADD", self.key]
        trims = maxlen is not None or minid is not None or limit is not None
        if trims or create is not True or approximate is not True or ref_policy is not None:
            argv += add_arguments(create, ref_policy, maxlen, minid, approximate, limit)
        if idmp is not None or idmpauto is not None:
            argv += producer_arguments(idmp, idmpauto)
        argv.append(b"*" if id is _NEW else encode_new_id(id))
        self._append(argv, fields)
        return await self.store.id_of(argv)

    async def delayed(self, count: int = 100) -> list[DelayedEntry]:
        """Return up to `count` entries that wait until they are due, the next one first. O(log n + count)"""
        return delayed_of(await self.store.run(waiting_command(delayed_key(self.key), count)))

    async def delayed_count(self) -> int:
        """Return how many entries wait until they are due. O(log n)"""
        return int(await self.store.run([b"ZCOUNT", delayed_key(self.key), *WAITING]))

    async def deliver_due(self) -> int:
        """Append the delayed entries that are due, and return how many; messages() of any consumer does it, too."""
        delivered = 0
        while True:
            some = int(await self.store.run(deliver_due(self.key)))
            delivered += some
            if some < STEP_SIZE:
                return delivered

    @overload
    async def add_many(self, entries: Iterable[T | tuple[Position, T]], *, batch: int = BATCH,
                       maxlen: int | None = None, minid: Position | None = None, approximate: bool = True,
                       limit: int | None = None, create: Literal[True] = True, ref_policy: RefPolicy | None = None,
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

    @overload
    async def add_many(self, entries: Iterable[T | tuple[Position, T]], *, batch: int = BATCH,
                       maxlen: int | None = None, minid: Position | None = None, approximate: bool = True,
                       limit: int | None = None, create: bool, ref_policy: RefPolicy | None = None,
                       idmp: tuple[Value, Iterable[Value]] | None = None,
                       idmpauto: Value | None = None) -> list[StreamID | None]: ...  # fmt: skip

    async def add_many(self, entries: Iterable[T | tuple[Position, T]], *, batch: int = BATCH,
                       maxlen: int | None = None, minid: Position | None = None, approximate: bool = True,
                       limit: int | None = None, create: bool = True, ref_policy: RefPolicy | None = None,
                       idmp: tuple[Value, Iterable[Value]] | None = None, idmpauto: Value | None = None,
                       delay: Seconds | None = None, at: datetime | None = None) -> Any:  # fmt: skip
        """Append entries and return their IDs. An item is the fields, or (id, fields) to set the ID.

        Each batch is one exchange and one write to the log; one that exceeds 16 MiB ends early. If an entry is
        rejected, the other entries of its batch are added, the error is raised, and later batches are not sent. The
        other arguments are those of `add`; idmp has the producer and an iterable with the message ID of each entry.
        With delay or at, the times are returned when the entries are due.
        """
        from rillet.store.arguments.entry_packing import EntryPacker

        if delay is not None or at is not None:
            if create is not True or (ref_policy, idmp, idmpauto) != (None, None, None):
                raise ValueError(_NOT_LATER)
            options = add_arguments(True, None, maxlen, minid, approximate, limit)
            return await self._add_later(entries, whole_number(batch, "batch", 1), due_time(delay, at), options)
        start = [b"XADD", self.key, *add_arguments(create, ref_policy, maxlen, minid, approximate, limit)]
        batch = whole_number(batch, "batch", 1)
        message_ids = None if idmp is None else message_ids_of(idmp)
        if message_ids is None or idmpauto is not None:
            start += producer_arguments(None if idmp is None else (idmp[0], b""), idmpauto)
        ids: list[StreamID | None] = []
        packer = EntryPacker(start, batch, BATCH_BYTES)
        item: Any
        for item in items_of(entries, "entries", "entries"):
            words = _NEWEST
            if idmp is not None and message_ids is not None:
                words = [*producer_arguments((idmp[0], next_message_id(message_ids)), None), b"*"]
            # The item is (id, fields), not a tuple of two (field, value) pairs.
            if type(item) is tuple and len(item) == 2 and (self.form is not None or not _is_pair(item[0])):
                id, item = item
                words = [*words[:-1], encode_new_id(id)]
            full = packer.add(words, item) if self.form is None else packer.add_words(words, self._flat(item))
            if full:
                ids += await self.store.add_packed(self.key, packer)
        return ids + await self.store.add_packed(self.key, packer) if packer.count else ids

    async def _add_later(self, entries: Any, batch: int, due: tuple[bytes, int],
                         options: Sequence[bytes]) -> list[datetime]:  # fmt: skip
        """Append entries when they are due; return these times."""
        times: list[datetime] = []
        commands: list[list[bytes]] = []
        for item in items_of(entries, "entries", "entries"):
            if type(item) is tuple and len(item) == 2 and (self.form is not None or not _is_pair(item[0])):
                raise ValueError(_NOT_LATER)
            commands.append(add_delayed(self.key, *due, self._delayed(options, item)))
            if len(commands) >= batch:
                times += [moment(int(time)) for time in await self.store.run_many(commands)]
                commands = []
        return times + [moment(int(time)) for time in await self.store.run_many(commands)]

    async def delete(self, *ids: IDLike, ref_policy: RefPolicy | None = None) -> int:
        """Delete entries by ID; return how many were deleted (XDEL, or XDELEX with a policy). O(1) each

        ref_policy: what happens to the references of groups (Redis 8.2; see arguments.policies). With "ACKED" an
        entry that a group still needs is not deleted. A thousand IDs are one command; a longer list is several.
        """
        deleted = 0
        policy = policy_arguments(ref_policy)
        for some in chunks([encode_id(one, "one of ids") for one in ids]):
            if not policy:
                deleted += int(await self.store.run([b"XDEL", self.key, *some]))
                continue
            argv = [b"XDELEX", self.key, *policy, b"IDS", b"%d" % len(some), *some]
            deleted += sum(result == 1 for result in await self.store.run(argv))
        return deleted

    async def trim(self, *, maxlen: int | None = None, minid: Position | None = None,
                   max_age: Seconds | None = None, approximate: bool = False, limit: int | None = None,
                   ref_policy: RefPolicy | None = None) -> int:  # fmt: skip
        """Remove the oldest entries; return how many (XTRIM). O(removed)

        maxlen: the number of entries that remain. minid: the first ID, or time, that remains. max_age: a timedelta, or
        seconds; entries that are older by the clock of the engine or server (TIME) are removed.
        """
        if max_age is not None:
            if maxlen is not None or minid is not None:
                raise ValueError("pass one of maxlen, minid and max_age: max_age was passed with another one")
            age = seconds_in(max_age, "max_age")
            seconds, microseconds = map(int, await self.store.run([b"TIME"]))
            minid = max(0, seconds * 1000 + microseconds // 1000 - round(age * 1000))
        elif maxlen is None and minid is None:
            raise ValueError("pass one of maxlen, minid and max_age: none was passed")
        elif maxlen is not None and minid is not None:
            raise ValueError("pass one of maxlen, minid and max_age: maxlen and minid were passed")
        argv = [b"XTRIM", self.key, *trim_arguments(maxlen, minid, approximate, limit), *policy_arguments(ref_policy)]
        return int(await self.store.run(argv))

    async def retain(self, *, age: Seconds | None = None, entries: int | None = None, bytes: int | str | None = None,
                     groups: Literal["acknowledged", "ignore"] = "acknowledged") -> None:  # fmt: skip
        """Keep no more than this of the stream from now on; without a limit, keep everything again (RILLET.XRETAIN).

        age: a timedelta, or seconds; entries: a number; bytes: of the nodes, a number or text such as "256mb". Entries
        that exceed one of the limits go by themselves, in small steps, as by XTRIM (docs/larger-than-memory.md).
        groups: with "acknowledged", entries stay until every group has received and acknowledged them, and without a
        group all stay; "ignore" removes them in any case. The policy belongs to the name of the stream, and replaces
        the one before. StoreError over Redis and Valkey, which do not remove entries by themselves. O(1)
        """
        from rillet.store.arguments.retention import not_retained, retention_arguments

        argv = [b"RILLET.XRETAIN", self.key, *retention_arguments(age, entries, bytes, groups)]
        try:
            await self.store.run(argv)
        except CommandError as error:
            raise not_retained(error) from None

    async def retention(self) -> Retention | None:
        """Return the policy of `retain`, what it removes next, and what groups hold back; None without a policy."""
        places = await self._places()
        return None if places is None else places.retention

    async def configure_idmp(self, *, duration: Seconds | None = None, max_entries: int | None = None) -> None:
        """Set how many message IDs per producer an existing stream stores, and for how long (XCFGSET, Redis 8.6).

        duration: a timedelta, or seconds, rounded to whole ones (1 to 86400); max_entries: 1 to 10000. None keeps a
        value. A change forgets all stored message IDs.
        """
        argv = [b"XCFGSET", self.key]
        if duration is not None:
            argv += [b"IDMP-DURATION", b"%d" % round(seconds_in(duration, "duration"))]
        if max_entries is not None:
            argv += [b"IDMP-MAXSIZE", integer_of(max_entries, "max_entries", 1, 10_000)]
        await self.store.run(argv)

    # -- reading -------------------------------------------------------------------------------------

    async def range(self, start: Position = "-", end: Position = "+", count: int | None = None, *,
                    reverse: bool = False, where: Where | None = None) -> list[Entry[T]]:  # fmt: skip
        """Return the entries from start to end, both included ("(" before an ID excludes it) (XRANGE).

        A datetime as the start includes the first entry of its millisecond, as the end the last one.
        reverse: last entry first, so that `count` selects the last ones (XREVRANGE).
        where: only entries whose fields have these values, and up to `count` of these: a mapping from fields to a
        value, or to several of which one suffices. The store evaluates it, a thousand entries at a time
        (rillet.store.consuming.filter_steps). O(entries of the range)
        """
        if flag(reverse, "reverse"):
            return await self._range(b"XREVRANGE", end, start, count, where)
        return await self._range(b"XRANGE", start, end, count, where)

    async def reverse(self, start: Position = "+", end: Position = "-", count: int | None = None, *,
                      where: Where | None = None) -> list[Entry[T]]:  # fmt: skip
        """Return the entries from the higher ID start down to end (XREVRANGE); where: as for `range`."""
        return await self._range(b"XREVRANGE", start, end, count, where)

    async def first(self) -> Entry[T] | None:
        """Return the first entry, None if the stream is empty. O(1)"""
        found = await self.range(count=1)
        return found[0] if found else None

    async def last(self) -> Entry[T] | None:
        """Return the last entry, None if the stream is empty. O(1)"""
        found = await self.range(count=1, reverse=True)
        return found[0] if found else None

    async def _range(self, command: bytes, start: Position, end: Position, count: int | None,
                     where: Where | None) -> list[Entry[T]]:  # fmt: skip
        argv = [command, self.key, encode_position(start, "start"), encode_position(end, "end")]
        if where is not None:
            return await self._matching(argv, None if count is None else whole_number(count, "count", 0), where)
        if count is None:
            return list(self._typed(await self.store.read_entries(argv)))
        found: list[Entry[T]] = []
        wanted = count = whole_number(count, "count", 0)
        while True:
            entries = await self.store.read_entries([*argv, b"COUNT", b"%d" % wanted])
            found += self._typed(entries)
            if not entries or len(entries) < wanted or len(found) >= count or entries[-1].raw_id in BOUNDS:
                return found
            argv[2] = b"(" + entries[-1].raw_id  # entries were skipped: read as many again
            wanted = count - len(found)

    async def _matching(self, argv: list[bytes], count: int | None, where: Where) -> list[Entry[T]]:
        """Return up to `count` entries of an XRANGE or XREVRANGE that match."""
        found: list[Entry[T]] = []
        async for entry in self._search(argv, count, where):
            if count != 0:
                found.append(entry)
            if count is not None and len(found) >= count:
                break
        return found

    async def _search(self, argv: list[bytes], count: int | None, where: Where) -> AsyncIterator[Entry[T]]:
        """Yield the entries of an XRANGE or XREVRANGE that match; count: how many the caller needs."""
        from rillet.store.arguments.conditions import Conditions
        from rillet.store.consuming.filter_steps import SEARCHED, search

        conditions = Conditions(where)
        command, key, first, last = argv
        most = SEARCHED if count is None else max(1, min(count, SEARCHED))
        remote = not in_process(self.store)  # else a script sends nothing less, and is slower
        while True:
            try:
                if remote:
                    after, rows = await self.store.run(search(key, command, first, last, most, conditions.words))
            except CommandError:  # scripts are not allowed; XRANGE reports any other error
                remote = False
            if not remote:
                page = await self.store.run([command, key, first, last, b"COUNT", b"%d" % SEARCHED])
                after = page[-1][0] if len(page) == SEARCHED else b""
                rows = [row for row in page if conditions.match(row[1])]
            for one in self.entries_of(rows):
                yield one
            if not after or after in BOUNDS:
                return
            first = b"(" + after

    async def get(self, id: IDLike) -> Entry[T] | None:
        """Return the entry of that ID, or None. O(log n)"""
        exact = exact_id(id)
        found = await self.range(exact, exact)
        return found[0] if found else None

    async def contains(self, id: IDLike | Entry[Any]) -> bool:
        """Return whether an entry of that ID exists; for an Entry, whether it is in this stream. O(log n)"""
        exact = encode_id(exact_id(id.id if isinstance(id, Entry) else id))
        rows = await self.store.run([b"XRANGE", self.key, exact, exact])
        return bool(rows) and (not isinstance(id, Entry) or rows[0][1] == id.flat)

    async def read(self, after: Position = "0-0", count: int | None = None,
                   block: Seconds | None = None) -> list[Entry[T]]:  # fmt: skip
        """Return the entries after an ID, "$" for the last ID (XREAD). block: seconds to wait, 0 without limit.

        A datetime returns the entries from that time on.
        """
        while True:
            rows = stream_part(await self.store.run(self.read_command(after, count, block)))
            found = list(self.entries_of(rows))
            if found or not rows:
                return found
            after = rows[-1][0]  # all were skipped

    async def follow(self, after: Position = "$", block: Seconds = 1.0, *, stop: Stop | None = None,
                     timeout: Seconds | None = None) -> AsyncIterator[Entry[T]]:  # fmt: skip
        """Yield entries as they are added, without end. block: seconds that each XREAD waits.

        stop: an event or a function; when it is set or returns True, end after the current entry. A waiting read
        notices it within a second. timeout: end after that many seconds without an entry.
        """
        end = End(DeliveryOptions(block=block, stop=stop, timeout=timeout))
        last: Position = await self.last_id() if after == "$" else after
        while not end.requested():
            rows = stream_part(await self.store.run(self.read_command(last, BATCH, end.block())))
            for entry in self.entries_of(rows):
                if end.requested():
                    return
                yield entry
                end.handed_out()
            if not rows and end.expired():
                return
            last = rows[-1][0] if rows else last

    async def scan(self, start: Position = "-", end: Position = "+", *, reverse: bool = False, page: int = BATCH,
                   where: Where | None = None) -> AsyncIterator[Entry[T]]:  # fmt: skip
        """Yield the entries from start to end, both included, or from end to start if `reverse`; `page` per command.

        where: as for `range`; then up to `page` entries that match per command.
        """
        page = whole_number(page, "page", 1)
        name, first, last = b"XRANGE", encode_position(start, "start"), encode_position(end, "end")
        if flag(reverse, "reverse"):
            name, first, last = b"XREVRANGE", last, first
        if where is not None:
            async for one in self._search([name, self.key, first, last], page, where):
                yield one
            return
        while True:
            entries = await self.store.read_entries([name, self.key, first, last, b"COUNT", b"%d" % page])
            for one in self._typed(entries):
                yield one
            if len(entries) < page or entries[-1].raw_id in BOUNDS:
                return
            first = b"(" + entries[-1].raw_id

    def __aiter__(self) -> AsyncIterator[Entry[T]]:
        """Yield every entry, first to last, until the end is reached."""
        return self.scan()

    async def length(self) -> int:
        """Return the number of entries (XLEN). O(1)"""
        return int(await self.store.run([b"XLEN", self.key]))

    async def count(self, start: Position = "-", end: Position = "+") -> int:
        """Return how many entries are between two IDs or times, both included, as in `range` (RILLET.XCOUNT).

        rillet: O(log n), after O(nodes) for the first call. Redis and Valkey have no such command: it reads the
        entries, in pages. O(entries)
        """
        bounds = [self.key, encode_position(start, "start"), encode_position(end, "end")]
        try:
            return int(await self.store.run([b"RILLET.XCOUNT", *bounds]))
        except CommandError:  # unknown, or not allowed; XRANGE reports any other error
            return await self._counted(bounds)

    async def _counted(self, bounds: list[bytes]) -> int:
        total = 0
        while True:
            rows = await self.store.run([b"XRANGE", *bounds, b"COUNT", b"%d" % BATCH])
            total += len(rows)
            if len(rows) < BATCH or rows[-1][0] in BOUNDS:
                return total
            bounds[1] = b"(" + rows[-1][0]

    async def rank(self, id: IDLike) -> int:
        """Return how many entries are at or before an ID: 1 for the first entry, `len(stream)` for the last. O(log n)

        Redis and Valkey: as `count`.
        """
        return await self.count("-", exact_id(id))

    async def exists(self) -> bool:
        """Return whether the key exists."""
        return bool(await self.store.run([b"EXISTS", self.key]))

    async def first_id(self) -> StreamID | None:
        """The ID of the first entry; None for an empty stream."""
        rows = await self.store.run([b"XRANGE", self.key, b"-", b"+", b"COUNT", b"1"])
        return parse_id(rows[0][0]) if rows else None

    async def last_id(self) -> StreamID:
        """The last ID that was assigned (0-0 if the stream does not exist); its entry may have been deleted."""
        if not await self.exists():
            return StreamID(0, 0)
        return StreamID.parse(named(await self.store.run([b"XINFO", b"STREAM", self.key]))["last-generated-id"])

    async def info(self, full: bool = False, count: int | None = None) -> dict[str, Any]:
        """Return the fields of XINFO STREAM; full=True adds groups, consumers and pending entries.

        Of rillet, also `places`: what is in memory and in segments, and the retention (RILLET.XINFO, StreamPlaces).
        """
        argv: list[bytes] = [b"XINFO", b"STREAM", self.key]
        if flag(full, "full"):
            argv.append(b"FULL")
            if count is not None:
                argv += [b"COUNT", integer_of(count, "count", 0)]
        found = named(await self.store.run(argv))
        places = await self._places()
        return found if places is None else {**found, "places": places}

    async def _places(self) -> StreamPlaces | None:
        """Return where the entries are; None from another server than rillet."""
        from rillet.store.arguments.retention import is_unknown

        if self.store.is_foreign:
            return None
        try:
            return places_of(await self.store.run([b"RILLET.XINFO", self.key]))
        except CommandError as error:
            if is_unknown(error) or isinstance(error, NoPerm):
                self.store.is_foreign = True
                return None
            raise

    # -- Arrow -----------------------------------------------------------------------------------------

    async def to_arrow(self, start: Position = "-", end: Position = "+", *, count: int | None = None,
                       schema: Any = None, columns: Sequence[str] | None = None,
                       fields: str = "infer") -> pyarrow.Table:  # fmt: skip
        """Return the entries from start to end, both included, as a pyarrow.Table. O(entries)

        schema: Arrow's, or text like "id string, delay double". Without a schema the columns are id, timestamp, and one
        for each field, of the narrowest type that fits all its values; fields="map" makes one map column of all fields.
        columns: the names of the columns to return; fewer columns are faster.
        """
        return await self.store.in_thread(Stream(self.store.synchronous, self.key).to_arrow, start, end, count=count,
                                          schema=schema, columns=columns, fields=fields)  # fmt: skip

    async def to_pandas(self, start: Position = "-", end: Position = "+", *, count: int | None = None,
                        schema: Any = None, columns: Sequence[str] | None = None, fields: str = "infer",
                        **how: Any) -> Any:  # fmt: skip
        """Return a pandas.DataFrame; see to_arrow. Further arguments go to pyarrow's Table.to_pandas."""
        return await self.store.in_thread(Stream(self.store.synchronous, self.key).to_pandas, start, end, count=count,
                                          schema=schema, columns=columns, fields=fields, **how)  # fmt: skip

    async def to_polars(self, start: Position = "-", end: Position = "+", *, count: int | None = None,
                        schema: Any = None, columns: Sequence[str] | None = None,
                        fields: str = "infer") -> polars.DataFrame:  # fmt: skip
        """Return a polars.DataFrame; see to_arrow."""
        return await self.store.in_thread(Stream(self.store.synchronous, self.key).to_polars, start, end, count=count,
                                          schema=schema, columns=columns, fields=fields)  # fmt: skip

    async def add_arrow(self, table: Any, *, id_column: str | None = None, columns: Sequence[str] | None = None,
                        maxlen: int | None = None, minid: Position | None = None, approximate: bool = True,
                        limit: int | None = None, ref_policy: RefPolicy | None = None) -> int:  # fmt: skip
        """Append each row of a table as an entry and return how many. O(rows)

        table: Arrow's Table, RecordBatch or RecordBatchReader, a DataFrame of pandas or polars. Columns become fields;
        a map column named `fields` contains the fields. Nulls are omitted, and so are the columns of to_arrow (stream,
        id, id_ms, id_seq, timestamp) unless `columns` names them. Such columns of other types are written, and
        ValueError names those that may be yours (rillet.columns.own_columns). id_column contains the IDs, or
        timestamps. Rows are sent in chunks. The error for a rejected row names the row; earlier chunks are added, later
        chunks are not sent. maxlen, minid, approximate, limit, ref_policy: as for `add`.
        """
        return await self.store.in_thread(Stream(self.store.synchronous, self.key).add_arrow, table,
                                          id_column=id_column, columns=columns, maxlen=maxlen, minid=minid,
                                          approximate=approximate, limit=limit, ref_policy=ref_policy)  # fmt: skip

    async def plot(self, start: Position | None = None, end: Position | None = None, *, buckets: int = 120) -> Any:
        """Return a figure of matplotlib: entries per second, lag of the groups, ages of pending messages.

        start, end: the part of the time, by default all. `buckets`: the number of steps. See display.timeline.
        """
        return await self.store.in_thread(Stream(self.store.synchronous, self.key).plot, start, end, buckets=buckets)

    # -- groups ----------------------------------------------------------------------------------------

    async def group(self, name: str | bytes, start: Position = "0", *, create: bool = True,
                    entries_read: int | None = None) -> AsyncGroup[T]:  # fmt: skip
        """Return the consumer group of that name, which need not exist; this call writes nothing.

        If the group is missing, the first read or claim creates it (and the stream) to deliver the entries after
        `start`, or Group.create does, which returns whether the group was new. "$" is the last ID at the time of this
        call. entries_read: the number of entries up to `start`. create: if False, a read of a missing group raises
        NoGroup.
        """
        if entries_read is not None:
            whole_number(entries_read, "entries_read", 0)
        if flag(create, "create") and encode_after(start, "start") == b"$":
            start = await self.last_id()
        return AsyncGroup(self, name, start, entries_read, create)

    async def groups(self) -> list[GroupInfo]:
        """Return the state of each group, sorted by name (XINFO GROUPS)."""
        return groups_of(await self.store.run([b"XINFO", b"GROUPS", self.key]))
