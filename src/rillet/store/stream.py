"""Stream: entries with rising IDs under one key."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rillet.client.pages import reply_pages
from rillet.errors import BusyGroup
from rillet.store.encoding import Fields, IDLike, append_fields, decode, encode_id, encode_name, parse_id
from rillet.store.entry import Entry, entries_of, milliseconds, named, stream_part
from rillet.store.group import Group
from rillet.types.stream.id import MAX, StreamID

if TYPE_CHECKING:
    import polars
    import pyarrow

    from rillet.store.store import Store

BATCH = 1000
_NEW = "*"
LAST_ID = StreamID(MAX, MAX)  # the highest ID, which XRANGE rejects after "("


class Stream:
    """A stream of the store. Each method is one command, with the cost that it has in Redis.

    Iterating reads all entries from first to last, a thousand at a time.
    """

    __slots__ = ("store", "name", "key")

    def __init__(self, store: Store, name: str | bytes) -> None:
        self.store = store
        self.key = encode_name(name)
        self.name = decode(self.key)

    # -- writing -------------------------------------------------------------------------------------

    def add(self, fields: Fields, id: IDLike = _NEW, *, maxlen: int | None = None, minid: IDLike | None = None,
            approximate: bool = True, limit: int | None = None, create: bool = True) -> StreamID | None:  # fmt: skip
        """Append an entry and return its ID (XADD); None if create is False and the key does not exist. O(fields)

        maxlen or minid trims the stream afterwards, only whole nodes unless approximate is False.
        """
        argv = [b"XADD", self.key]
        if not create:
            argv.append(b"NOMKSTREAM")
        if maxlen is not None or minid is not None:
            argv += _trim_arguments(maxlen, minid, approximate, limit)
        argv.append(b"*" if id is _NEW else encode_id(id))
        append_fields(argv, fields)
        return self.store.id_of(argv)

    def add_many(self, entries: Iterable[Fields | tuple[IDLike, Fields]], *, batch: int = BATCH) -> int:
        """Append entries and return their number. An item is the fields, or (id, fields) to set the ID.

        Each batch is one exchange and one write to the log. If an entry is rejected, the other entries of its batch are
        added, the error is raised, and later batches are not sent.
        """
        count = 0
        commands: list[list[bytes]] = []
        for item in entries:
            argv = [b"XADD", self.key, b"*"]
            # The item is (id, fields), not a tuple of two (field, value) pairs.
            if type(item) is tuple and len(item) == 2 and not _is_pair(item[0]):
                argv[2] = encode_id(item[0])
                append_fields(argv, item[1])
            else:
                append_fields(argv, item)
            commands.append(argv)
            if len(commands) >= batch:
                count += self._send(commands)
                commands = []
        return count + self._send(commands)

    def _send(self, commands: list[list[bytes]]) -> int:
        self.store.run_many(commands)
        return len(commands)

    def delete(self, *ids: IDLike) -> int:
        """Delete entries by ID; return how many existed (XDEL). O(1) each"""
        return int(self.store.execute(b"XDEL", self.key, *map(encode_id, ids)))

    def trim(self, *, maxlen: int | None = None, minid: IDLike | None = None, approximate: bool = False,
             limit: int | None = None) -> int:  # fmt: skip
        """Remove the oldest entries; return how many (XTRIM). O(removed)"""
        return int(self.store.execute(b"XTRIM", self.key, *_trim_arguments(maxlen, minid, approximate, limit)))

    # -- reading -------------------------------------------------------------------------------------

    def range(self, start: IDLike = "-", end: IDLike = "+", count: int | None = None) -> list[Entry]:
        """Return the entries from start to end, both included ("(" before an ID excludes it) (XRANGE)."""
        return self._range(b"XRANGE", start, end, count)

    def reverse(self, start: IDLike = "+", end: IDLike = "-", count: int | None = None) -> list[Entry]:
        """Return the entries from the higher ID start down to end (XREVRANGE)."""
        return self._range(b"XREVRANGE", start, end, count)

    def _range(self, command: bytes, start: IDLike, end: IDLike, count: int | None) -> list[Entry]:
        argv = [command, self.key, encode_id(start), encode_id(end)]
        if count is not None:
            argv += [b"COUNT", b"%d" % count]
        return entries_of(self.store.run(argv))

    def get(self, id: IDLike) -> Entry | None:
        """Return the entry of that ID, or None. O(log n)"""
        found = self.range(id, id)
        return found[0] if found else None

    def read(self, after: IDLike = "0-0", count: int | None = None, block: float | None = None) -> list[Entry]:
        """Return the entries after an ID, "$" for the last ID (XREAD). block: seconds to wait, 0 without limit."""
        return entries_of(stream_part(self.store.run(self.read_command(after, count, block))))

    def read_command(self, after: IDLike, count: int | None, block: float | None) -> list[bytes]:
        """Return the XREAD command that `read` sends."""
        argv: list[bytes] = [b"XREAD"]
        if count is not None:
            argv += [b"COUNT", b"%d" % count]
        if block is not None:
            argv += [b"BLOCK", milliseconds(block)]
        return [*argv, b"STREAMS", self.key, encode_id(after)]

    def follow(self, after: IDLike = "$", block: float = 1.0) -> Iterator[Entry]:
        """Yield entries as they are added, without end. block: seconds that each XREAD waits."""
        last: IDLike = self.last_id if after == "$" else after
        while True:
            for entry in self.read(last, count=BATCH, block=block):
                last = entry.raw_id
                yield entry

    def __iter__(self) -> Iterator[Entry]:
        """Yield every entry, first to last, until the end is reached."""
        return self._entries(b"XRANGE", b"-", b"+", LAST_ID)

    def __reversed__(self) -> Iterator[Entry]:
        """Yield every entry, last to first."""
        return self._entries(b"XREVRANGE", b"+", b"-", StreamID(0, 0))

    def _entries(self, name: bytes, start: bytes, end: bytes, last: StreamID) -> Iterator[Entry]:
        """Yield the entries of a range, a page at a time; `last` is the ID at which the range ends."""
        count = b"%d" % BATCH
        for page in reply_pages(
            self.store.run, lambda first: (name, self.key, first, end, b"COUNT", count), start, BATCH,
            lambda entry: None if parse_id(entry[0]) == last else b"(" + entry[0],
        ):  # fmt: skip
            yield from entries_of(page)

    def __len__(self) -> int:
        """Return the number of entries (XLEN). O(1)"""
        return int(self.store.execute(b"XLEN", self.key))

    def __bool__(self) -> bool:
        """Return True, even if the stream is empty: without this method, `bool` would use the length."""
        return True

    def exists(self) -> bool:
        """Return whether the key exists."""
        return bool(self.store.execute(b"EXISTS", self.key))

    @property
    def first_id(self) -> StreamID | None:
        """The ID of the first entry; None for an empty stream."""
        found = self.range(count=1)
        return found[0].id if found else None

    @property
    def last_id(self) -> StreamID:
        """The last ID that was assigned (0-0 if the stream does not exist); its entry may have been deleted."""
        return StreamID.parse(self.info()["last-generated-id"]) if self.exists() else StreamID(0, 0)

    def info(self, full: bool = False, count: int | None = None) -> dict[str, Any]:
        """Return the fields of XINFO STREAM; full=True adds groups, consumers and pending entries."""
        argv: list[bytes] = [b"XINFO", b"STREAM", self.key]
        if full:
            argv.append(b"FULL")
            if count is not None:
                argv += [b"COUNT", b"%d" % count]
        return named(self.store.execute(*argv))

    # -- Arrow -----------------------------------------------------------------------------------------

    def to_arrow(self, start: IDLike = "-", end: IDLike = "+", *, count: int | None = None, schema: Any = None,
                 columns: Sequence[str] | None = None, fields: str = "infer") -> pyarrow.Table:  # fmt: skip
        """Return the entries from start to end, both included, as a pyarrow.Table. O(entries)

        schema: Arrow's, or text like "id string, delay double". Without a schema the columns are id, timestamp, and one
        for each field, of the narrowest type that fits all its values; fields="map" makes one map column of all fields.
        columns: the names of the columns to return; fewer columns are faster.
        """
        from rillet.store.arrow import to_arrow

        return to_arrow(self, start, end, count, schema, columns, fields)

    def to_pandas(self, start: IDLike = "-", end: IDLike = "+", *, count: int | None = None, schema: Any = None,
                  columns: Sequence[str] | None = None, fields: str = "infer", **how: Any) -> Any:  # fmt: skip
        """Return a pandas.DataFrame; see to_arrow. Further arguments go to pyarrow's Table.to_pandas."""
        from rillet.store.arrow import to_pandas

        return to_pandas(self.to_arrow(start, end, count=count, schema=schema, columns=columns, fields=fields), how)

    def to_polars(self, start: IDLike = "-", end: IDLike = "+", *, count: int | None = None, schema: Any = None,
                  columns: Sequence[str] | None = None, fields: str = "infer") -> polars.DataFrame:  # fmt: skip
        """Return a polars.DataFrame; see to_arrow."""
        from rillet.store.arrow import to_polars

        table = self.to_arrow(start, end, count=count, schema=schema, columns=columns, fields=fields)
        frame: polars.DataFrame = to_polars(table)
        return frame

    def add_arrow(self, table: Any, *, id_column: str | None = None, columns: Sequence[str] | None = None,
                  maxlen: int | None = None, minid: IDLike | None = None, approximate: bool = True,
                  limit: int | None = None) -> int:  # fmt: skip
        """Append each row of a table as an entry and return how many. O(rows)

        table: Arrow's Table, RecordBatch or RecordBatchReader, a DataFrame of pandas or polars. Columns become fields;
        a map column named `fields` contains the fields. Nulls are omitted, and so are the columns stream, id, id_ms,
        id_seq and timestamp unless `columns` names them. id_column contains the IDs, or timestamps. Rows are sent in
        chunks. The error for a rejected row names the row; earlier chunks are added, later chunks are not sent.
        """
        from rillet.store.arrow import add_arrow

        trimming = []
        if maxlen is not None or minid is not None:
            trimming = _trim_arguments(maxlen, minid, approximate, limit)
        return add_arrow(self, table, id_column, columns, trimming)

    # -- groups ----------------------------------------------------------------------------------------

    def group(self, name: str | bytes, start: IDLike = "0", *, create: bool = True) -> Group:
        """Return the consumer group; if missing, create it (and the stream) to deliver the entries after `start`."""
        group = Group(self, name)
        if create:
            with contextlib.suppress(BusyGroup):
                self.store.execute(b"XGROUP", b"CREATE", self.key, group.key, encode_id(start), b"MKSTREAM")
        return group

    def groups(self) -> list[dict[str, Any]]:
        """Return the fields of XINFO GROUPS, a dict for each group."""
        return [named(one) for one in self.store.execute(b"XINFO", b"GROUPS", self.key)]

    def __repr__(self) -> str:
        return f"Stream({self.name!r})"


def _is_pair(item: object) -> bool:
    return isinstance(item, (tuple, list)) and type(item) is not StreamID


def _trim_arguments(maxlen: int | None, minid: IDLike | None, approximate: bool, limit: int | None) -> list[bytes]:
    if (maxlen is None) == (minid is None):
        passed = "neither was" if maxlen is None else "both were"
        raise ValueError(f"pass either maxlen or minid: {passed} passed")
    threshold = [b"MAXLEN", b"%d" % maxlen] if maxlen is not None else [b"MINID", encode_id(minid)]
    argv = [threshold[0], b"~" if approximate else b"=", threshold[1]]
    return argv if limit is None else [*argv, b"LIMIT", b"%d" % limit]
