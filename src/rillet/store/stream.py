"""Stream: entries with rising IDs under one key; Entry: one of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rillet.errors import BusyGroup
from rillet.store.encoding import Fields, IDLike, append_fields, decode, encode_id, encode_name, parse_id
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    import polars
    import pyarrow

    from rillet.store.group import Group
    from rillet.store.store import Store

BATCH = 1000
_NEW = "*"
# Nothing comes after it: "(" before it is refused.
LAST_ID = StreamID(2**64 - 1, 2**64 - 1)


class Entry:
    """One entry: `id`, and its fields in order. `entry["name"]` gives the last value of a field.

    `fields` is a dict of text; `pairs` are the raw (field, value) bytes, for fields that occur twice or are not text.
    The ID and the text are made when they are asked for: most readers of a batch look at a part of it.
    """

    __slots__ = ("raw_id", "flat", "_id")
    _id: StreamID

    def __init__(self, raw_id: bytes, flat: list[bytes]) -> None:
        self.raw_id = raw_id
        self.flat = flat

    @property
    def id(self) -> StreamID:
        """The entry's ID."""
        try:
            return self._id
        except AttributeError:
            self._id = parse_id(self.raw_id)
            return self._id

    @property
    def pairs(self) -> list[tuple[bytes, bytes]]:
        """The fields as (field, value), as they were added."""
        return list(zip(self.flat[::2], self.flat[1::2], strict=True))

    @property
    def fields(self) -> dict[str, str]:
        """The fields as text; of a field that occurs twice the last value."""
        text = [word.decode("utf-8", "surrogateescape") for word in self.flat]
        return dict(zip(text[::2], text[1::2], strict=True))

    def __getitem__(self, field: str) -> str:
        return self.fields[field]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entry) and (self.id, self.flat) == (other.id, other.flat)

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.id)!r}, {self.fields!r})"


class Stream:
    """A stream of the store. Every method is one command; costs are Redis's.

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
        """Append an entry and return its ID (XADD); None where create is False and there is no stream. O(fields)

        maxlen or minid trim the stream afterwards, at node borders unless approximate is False.
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
        """Append entries and return how many; an item is the fields, or (id, fields) for an ID of one's own.

        Each batch is one exchange and one write to the log. An entry that is refused raises once its batch is
        through: what else was in the batch is added, what comes after it is not.
        """
        count = 0
        commands: list[list[bytes]] = []
        for item in entries:
            argv = [b"XADD", self.key, b"*"]
            # A tuple of ID and fields, not the first two pairs of a tuple of pairs.
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
        """Delete entries by ID and return how many there were (XDEL). O(1) each"""
        return int(self.store.execute(b"XDEL", self.key, *map(encode_id, ids)))

    def trim(self, *, maxlen: int | None = None, minid: IDLike | None = None, approximate: bool = False,
             limit: int | None = None) -> int:  # fmt: skip
        """Drop the oldest entries and return how many (XTRIM). O(dropped)"""
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
        """Return entries after an ID, or after now for "$" (XREAD); block: seconds to wait for one, 0 for ever."""
        return entries_of(stream_part(self.store.run(self.read_command(after, count, block))))

    def read_command(self, after: IDLike, count: int | None, block: float | None) -> list[bytes]:
        """Return the words of `read`."""
        argv: list[bytes] = [b"XREAD"]
        if count is not None:
            argv += [b"COUNT", b"%d" % count]
        if block is not None:
            argv += [b"BLOCK", milliseconds(block)]
        return [*argv, b"STREAMS", self.key, encode_id(after)]

    def follow(self, after: IDLike = "$", block: float = 1.0) -> Iterator[Entry]:
        """Yield entries as they are added, for ever; `block` seconds is how long one wait takes."""
        last: IDLike = self.last_id if after == "$" else after
        while True:
            for entry in self.read(last, count=BATCH, block=block):
                last = entry.raw_id
                yield entry

    def __iter__(self) -> Iterator[Entry]:
        """Yield every entry, first to last, until the end is reached."""
        start: IDLike = "-"
        while len(batch := self.range(start, count=BATCH)) == BATCH and batch[-1].id != LAST_ID:
            yield from batch
            start = b"(" + batch[-1].raw_id
        yield from batch

    def __reversed__(self) -> Iterator[Entry]:
        """Yield every entry, last to first."""
        start: IDLike = "+"
        while len(batch := self.reverse(start, count=BATCH)) == BATCH:
            yield from batch
            start = b"(" + batch[-1].raw_id
        yield from batch

    def __len__(self) -> int:
        """Return the number of entries (XLEN). O(1)"""
        return int(self.store.execute(b"XLEN", self.key))

    def __bool__(self) -> bool:
        """A Stream is a handle: true also while it is empty."""
        return True

    def exists(self) -> bool:
        """Whether the key exists."""
        return bool(self.store.execute(b"EXISTS", self.key))

    @property
    def first_id(self) -> StreamID | None:
        """The ID of the first entry, or None where there is none."""
        found = self.range(count=1)
        return found[0].id if found else None

    @property
    def last_id(self) -> StreamID:
        """The last ID that was given out (0-0 for no stream); its entry may be deleted since."""
        return StreamID.parse(self.info()["last-generated-id"]) if self.exists() else StreamID(0, 0)

    def info(self, full: bool = False, count: int | None = None) -> dict[str, Any]:
        """Return what XINFO STREAM tells, by field name; full=True with groups, consumers and pending entries."""
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

        schema: Arrow's, or text like "id string, delay double". Without one the columns are id, timestamp, and one for
        each field, of the narrowest type that all its values fit; fields="map" leaves them in one map column. columns
        names those that are wanted, which is faster.
        """
        from rillet.store.arrow import to_arrow

        return to_arrow(self, start, end, count, schema, columns, fields)

    def to_pandas(self, start: IDLike = "-", end: IDLike = "+", *, count: int | None = None, schema: Any = None,
                  columns: Sequence[str] | None = None, fields: str = "infer", **how: Any) -> Any:  # fmt: skip
        """Return a pandas.DataFrame; as to_arrow, whose Table.to_pandas is given what else is said."""
        from rillet.store.arrow import to_pandas

        return to_pandas(self.to_arrow(start, end, count=count, schema=schema, columns=columns, fields=fields), how)

    def to_polars(self, start: IDLike = "-", end: IDLike = "+", *, count: int | None = None, schema: Any = None,
                  columns: Sequence[str] | None = None, fields: str = "infer") -> polars.DataFrame:  # fmt: skip
        """Return a polars.DataFrame; as to_arrow."""
        from rillet.store.arrow import to_polars

        table = self.to_arrow(start, end, count=count, schema=schema, columns=columns, fields=fields)
        frame: polars.DataFrame = to_polars(table)
        return frame

    def add_arrow(self, table: Any, *, id_column: str | None = None, columns: Sequence[str] | None = None,
                  maxlen: int | None = None, minid: IDLike | None = None, approximate: bool = True,
                  limit: int | None = None) -> int:  # fmt: skip
        """Append each row of a table as an entry and return how many. O(rows)

        table: Arrow's Table, RecordBatch or RecordBatchReader, a DataFrame of pandas or polars. Columns become fields,
        or the pairs of a map column `fields` do; nulls are left out, and so are stream, id, id_ms, id_seq and
        timestamp unless columns names them. id_column holds the IDs, or moments. A row that is refused is named; the
        rows before its chunk are added, and none behind it.
        """
        from rillet.store.arrow import add_arrow

        trimming = []
        if maxlen is not None or minid is not None:
            trimming = _trim_arguments(maxlen, minid, approximate, limit)
        return add_arrow(self, table, id_column, columns, trimming)

    # -- groups ----------------------------------------------------------------------------------------

    def group(self, name: str | bytes, start: IDLike = "0", *, create: bool = True) -> Group:
        """Return the consumer group, created (with the stream) where it does not exist, reading after `start`."""
        from rillet.store.group import Group

        group = Group(self, name)
        if create:
            with contextlib.suppress(BusyGroup):
                self.store.execute(b"XGROUP", b"CREATE", self.key, group.key, encode_id(start), b"MKSTREAM")
        return group

    def groups(self) -> list[dict[str, Any]]:
        """Return what XINFO GROUPS tells, a dict for each group."""
        return [named(one) for one in self.store.execute(b"XINFO", b"GROUPS", self.key)]

    def __repr__(self) -> str:
        return f"Stream({self.name!r})"


def _is_pair(item: object) -> bool:
    return isinstance(item, (tuple, list)) and type(item) is not StreamID


def _trim_arguments(maxlen: int | None, minid: IDLike | None, approximate: bool, limit: int | None) -> list[bytes]:
    if (maxlen is None) == (minid is None):
        raise ValueError("pass one of maxlen and minid")
    threshold = [b"MAXLEN", b"%d" % maxlen] if maxlen is not None else [b"MINID", encode_id(minid)]
    argv = [threshold[0], b"~" if approximate else b"=", threshold[1]]
    return argv if limit is None else [*argv, b"LIMIT", b"%d" % limit]


def milliseconds(block: float) -> bytes:
    """Return seconds as BLOCK takes them; a wait shorter than a millisecond is one, because 0 means for ever."""
    return b"%d" % (max(1, round(block * 1000)) if block > 0 else round(block * 1000))


def entries_of(reply: Any) -> list[Entry]:
    """Return the entries of an XRANGE reply; an entry that was deleted while pending has no fields."""
    return [Entry(raw_id, flat or []) for raw_id, flat in reply or ()]


def stream_part(reply: Any) -> Any:
    """Return the entries of the one stream in an XREAD or XREADGROUP reply (RESP2: pairs, RESP3: a map)."""
    if not reply:
        return []
    return next(iter(reply.values())) if isinstance(reply, dict) else reply[0][1]


def named(reply: Any) -> dict[str, Any]:
    """Return a flat or mapped reply as a dict by text; nested lists of fields become dicts, bytes become text."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {decode(field): _plain(decode(field), value) for field, value in pairs}


def _plain(field: str, value: Any) -> Any:
    if field in ("first-entry", "last-entry"):
        return None if value is None else Entry(value[0], value[1])
    if field == "entries":
        return entries_of(value)
    if field in ("groups", "consumers") and isinstance(value, list):
        return [named(one) for one in value]
    return decode(value) if isinstance(value, bytes) else value
