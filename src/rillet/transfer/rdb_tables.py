"""The content of an RDB file as Arrow batches: keys, elements, stream entries, consumer groups, or pending entries.

`rillet.persistence.rdb.reader` loads a file into an engine. An analysis, such as a search for the largest keys of a
server, needs rows instead, also from files larger than memory. So this module reads a file from front to back
(rillet.persistence.rdb.records), counts the elements of each value, and discards the value. A stream's nodes are
decoded one at a time for the table of entries.

The reader needs memory for the largest string, packed list or stream node, and for one batch. The size of a whole value
does not matter. Values that rillet cannot load (the values of modules) have a row, too.
Packed lists are only decoded for the table of elements (rdb_elements.py), and stream nodes for the table of entries;
only the file's checksum protects the others. A truncated or malformed file raises LogCorrupt with the file, the offset
and the expected content, after the batches of all records before that offset.

`serialized` is exact: the bytes of type, name and value in the file. `size` is the decompressed bytes of the value's
texts and packed blocks.

Rejected: loading each value with rillet.types.rdb.value and measuring the object. A list of ten million elements would
occupy memory. An estimate of the memory that a server needs: see docs/not-included.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rillet.errors import Corrupt, LogCorrupt, StoreError
from rillet.persistence.rdb.records import DATABASE, END, KEY_METADATA, MODULE_VALUE, RdbRecords
from rillet.persistence.rdb.stream_parts import PendingRow, StreamParts
from rillet.persistence.rdb.value_sizes import FORMS, UNREAD, ValueSize, skip_parts, skip_value
from rillet.transfer.rdb_elements import elements
from rillet.transfer.rdb_stream_tables import entry_batches
from rillet.types.module import type_name
from rillet.types.rdb.primitives import RdbReader

# The columns of each table after `file` and `db`, in Spark's notation.
_COLUMNS = {
    "keys": "key string, type string, encoding string, expires timestamp, ttl_seconds long, idle_seconds long, "
    "frequency int, elements long, largest_element long, serialized long, size long",
    "elements": "key string, type string, index long, field string, value string, score double",
    "entries": "stream string, id string, id_ms long, id_seq long, timestamp timestamp, fields map<string, string>",
    "groups": "stream string, group string, last_delivered_id string, entries_read long, pending long, "
    "consumers long, released long, length long, entries_added long, last_generated_id string",
    "pending": "stream string, group string, consumer string, id string, delivered timestamp, deliveries long",
}
TABLES = tuple(_COLUMNS)
BATCH_ROWS = 10_000
_LARGE = 16 << 20
_EMBEDDED = 44  # bytes of the longest string that is one allocation with its object
_LARGEST = {"int32": (1 << 31) - 1, "int64": (1 << 63) - 1}  # the highest value that a column of this type can store


class RdbHeader(NamedTuple):
    """The header of an RDB file: its version, and the auxiliary fields that the server wrote."""

    path: str
    size: int
    version: int
    product: str
    aux_fields: dict[str, str]


def rdb_files(places: str | Path | Iterable[str | Path]) -> list[str]:
    """Return the RDB files that paths, folders (*.rdb) and globs name, sorted; StoreError if one of them names none."""
    given = [places] if isinstance(places, (str, Path)) else list(places)
    found: set[str] = set()
    empty = []
    for place in map(Path, given):
        if place.is_file():
            found.add(str(place))
            continue
        folder = place if place.is_dir() else Path(*place.parts[:1] if place.is_absolute() else ".")
        pattern = "*.rdb" if place.is_dir() else str(place.relative_to(folder) if place.is_absolute() else place)
        there = {str(one) for one in folder.glob(pattern) if one.is_file() and not one.name.startswith("temp-")}
        found |= there
        if not there:
            empty.append(str(place))
    if empty or not given:
        raise StoreError(
            f"no RDB file at {', '.join(empty) or 'an empty list of paths'} "
            "(`rillet export` writes the data of a store or of a log as an RDB file)"
        )
    return sorted(found)


def rdb_header(path: str | Path) -> RdbHeader:
    """Return the header of an RDB file; raise LogCorrupt if the file has another format. O(1)"""
    with _Walk(path) as walk:
        records = walk.records
        walk.guarded(records.header)
        walk.guarded(records.next)
        aux_fields = {_text(name): _text(value) for name, value in records.facts.items()}
        product = "valkey" if records.valkey else "redis"
        return RdbHeader(str(path), Path(path).stat().st_size, records.version, product, aux_fields)


def schema_of(table: str) -> Any:
    """Return the Arrow schema of a table, whose name is one of TABLES."""
    from rillet.store.tables.schema_inference import schema_of as parse_schema

    return parse_schema(f"file string, db int, {_COLUMNS[table]}")


def rdb_batches(
    path: str | Path, table: str, *, rows: int = BATCH_ROWS, progress: Callable[[int, int], None] | None = None
) -> Iterator[Any]:
    """Yield a table of the file as record batches; at malformed bytes, yield the rows before them and raise LogCorrupt.

    progress(bytes read, total bytes) is called during the read. O(bytes); memory for the largest string or packed list
    """
    with _Walk(path, progress) as walk:
        yield from _Tables(walk, table, rows).batches()


# -- reading of the file ---------------------------------------------------------------------------------------------


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def shown(raw: bytes) -> str:
    """Return a name as text; bytes that are not valid UTF-8 become \\x.. escapes."""
    return raw.decode("utf-8", "backslashreplace")


def moment(milliseconds: int) -> int | None:
    """Return a time in microseconds; None if the time is negative (not set) or beyond 64 bits."""
    return milliseconds * 1000 if 0 <= milliseconds < 1 << 53 else None


class _Walk:
    """An open RDB file and its records. A context manager."""

    def __init__(self, path: str | Path, progress: Callable[[int, int], None] | None = None) -> None:
        self.name = str(path)
        self.file = open(path, "rb")  # noqa: SIM115  # this object is the context manager
        self.size = Path(path).stat().st_size
        self.progress = progress
        self.got = 0
        self.reader = RdbReader.reading(self._read)
        self.records = RdbRecords(self.reader)

    def _read(self, view: memoryview) -> int:
        got = self.file.readinto(view)
        self.got += got
        if self.progress is not None:
            self.progress(self.got, self.size)
        return got

    def __enter__(self) -> _Walk:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def guarded(self, read: Callable[..., Any], *given: Any) -> Any:
        """Call a function that reads; convert an error in the data into LogCorrupt with file and offset."""
        try:
            return read(*given)
        except (Corrupt, IndexError, OverflowError, MemoryError) as error:
            if isinstance(error, LogCorrupt):
                raise
            reason = str(error) or "not enough memory for the value, or its length is wrong"
            raise LogCorrupt(self.name, self.reader.mark, reason) from None


@dataclass
class _Key:
    """The key that is being read."""

    name: bytes = b""
    type: str = ""
    encoding: str = ""
    size: ValueSize = ValueSize()


class _Tables:
    """Reads an RDB file and collects the rows of one table."""

    def __init__(self, walk: _Walk, table: str, rows: int) -> None:
        if table not in TABLES:
            raise ValueError(f"there is no table {table!r}; choose one of {', '.join(TABLES)}")
        self.walk = walk
        self.reader = walk.reader
        self.table = table
        self.most = rows
        self.schema = schema_of(table)
        self.largest = [_LARGEST.get(str(kind)) for kind in self.schema.types]
        self.rows: list[tuple[Any, ...]] = []
        self.pieces: list[Any] = []
        self.records = walk.records
        self.key = _Key()
        self.db = 0

    def batches(self) -> Iterator[Any]:
        """Yield the record batches. At malformed bytes, yield the rows before them, then raise LogCorrupt."""
        walk, records = self.walk, self.records
        failure: LogCorrupt | None = None
        try:
            walk.guarded(records.header)
            while (kind := walk.guarded(records.next)) != END:
                if kind < KEY_METADATA:
                    yield from self._guarded_key(kind, self.reader.position - 1)
                elif kind == DATABASE:
                    walk.guarded(self._select)
                else:
                    walk.guarded(records.skip, kind)
            walk.guarded(records.checksum)
        except LogCorrupt as error:
            failure = error
        if self.rows:
            yield self._batch()
        if self.pieces:
            yield self._joined()
        if failure is not None:
            raise failure

    def _guarded_key(self, kind: int, began: int) -> Iterator[Any]:
        steps = self._key(kind, began)
        while True:
            batch = self.walk.guarded(next, steps, None)
            if batch is None:
                return
            yield batch

    def _row(self, *values: Any) -> Iterator[Any]:
        """Add a row to the batch; yield the batch if it is full. A number beyond its column's range becomes null."""
        row = (self.walk.name, self.db, *values)
        self.rows.append(
            tuple(None if most is not None and value is not None and abs(value) > most else value
                  for value, most in zip(row, self.largest, strict=True))
        )  # fmt: skip
        if len(self.rows) >= self.most:
            yield self._batch()

    def _batch(self) -> Any:
        import pyarrow as pa

        columns = [
            pa.array(values, field.type)
            for values, field in zip(zip(*self.rows, strict=True), self.schema, strict=True)
        ]
        self.rows = []
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _select(self) -> None:
        self.db = self.reader.length()
        if self.db > _LARGEST["int32"]:
            raise Corrupt(f"the number of a database must be below 2147483648, not {self.db}")

    def _key(self, kind: int, began: int) -> Iterator[Any]:
        reader, records = self.reader, self.records
        key = self.key = _Key(reader.string())
        if kind not in FORMS:
            what = UNREAD.get(kind, f"RDB type {kind}")
            raise Corrupt(f"the key {shown(key.name)!r} (database {self.db}) holds {what}, which rillet cannot read")
        key.type, key.encoding, form = FORMS[kind]
        if form == "stream":
            yield from self._stream(kind)
        elif self.table == "elements" and kind != MODULE_VALUE:
            name = shown(key.name)
            for one in elements(reader, key.type, form, records.valkey):
                field = None if one.field is None else shown(one.field)
                yield from self._row(name, key.type, one.position, field, shown(one.value), one.score)
        elif self.table == "keys":
            self._measure(kind)
        else:
            skip_value(reader, kind, records.valkey)
        if self.table == "keys":
            idle = None if records.idle < 0 else records.idle
            frequency = None if records.frequency < 0 else records.frequency
            yield from self._row(
                shown(key.name), key.type, key.encoding, moment(records.expires), self._ttl(), idle, frequency,
                key.size.elements, key.size.largest, reader.position - began, key.size.size,
            )  # fmt: skip

    def _measure(self, kind: int) -> None:
        """Read past a value; find its encoding, if the type does not state it, and its sizes."""
        reader, key = self.reader, self.key
        if key.type == "string":
            text = reader.string()
            key.encoding = "int" if _is_integer(text) else "embstr" if len(text) <= _EMBEDDED else "raw"
            key.size = ValueSize(1, len(text), 0, len(text))
            return
        if kind == MODULE_VALUE:
            key.encoding = type_name(reader.length())
            key.size = skip_parts(reader)
            return
        key.size = size = skip_value(reader, kind, self.records.valkey, opens=True)
        if key.encoding == "quicklist" and size.blocks == 1 and not size.largest and _packs_lists(self.records.facts):
            key.encoding = "listpack"

    def _ttl(self) -> int | None:
        """Return the seconds until the key's expiry when the file was written; negative if it had expired."""
        written = self.records.facts.get(b"ctime", b"")
        if self.records.expires < 0 or not written.isdigit() or len(written) > 18:
            return None
        return self.records.expires // 1000 - int(written)

    def _stream(self, kind: int) -> Iterator[Any]:
        name = shown(self.key.name)
        parts = StreamParts(self.reader, kind)
        pending: list[PendingRow] | None = [] if self.table == "pending" else None
        size = 0
        if self.table == "entries":
            import pyarrow as pa

            schema = pa.schema(list(self.schema)[3:])
            for batch in entry_batches(parts, self.key.name, schema, self.most):
                yield from self._piece(batch)
        else:
            size = sum(self.reader.skip_string() for _ in parts.nodes())
        parts.finish(None if pending is None else pending.append)
        self.key.size = ValueSize(parts.length, size=size)
        if self.table == "groups":
            for one in parts.groups:
                yield from self._row(
                    name, shown(one.name), one.last, one.entries_read, one.pending, one.consumers, one.released,
                    parts.length, parts.entries_added, parts.last_id,
                )  # fmt: skip
        for row in pending or ():
            whose = None if row.consumer is None else shown(row.consumer)
            yield from self._row(name, shown(row.group), whose, row.id, row.delivered, row.deliveries)

    def _piece(self, batch: Any) -> Iterator[Any]:
        """Collect batches of entries and join them, so that many short streams do not yield many small batches."""
        import pyarrow as pa

        whose = [pa.repeat(pa.scalar(value, field.type), batch.num_rows) for value, field in
                 zip((self.walk.name, self.db, shown(self.key.name)), self.schema, strict=False)]  # fmt: skip
        self.pieces.append(pa.RecordBatch.from_arrays([*whose, *batch.columns], schema=self.schema))
        if sum(piece.num_rows for piece in self.pieces) >= self.most or batch.nbytes >= _LARGE:
            yield self._joined()

    def _joined(self) -> Any:
        import pyarrow as pa

        pieces, self.pieces = self.pieces, []
        return pieces[0] if len(pieces) == 1 else pa.Table.from_batches(pieces).combine_chunks().to_batches()[0]


def _is_integer(text: bytes) -> bool:
    """Return whether a server stores a string as a number: canonical digits within 64 bits."""
    digits = text[1:] if text[:1] == b"-" else text
    if len(text) > 20 or not digits.isdigit() or (digits[:1] == b"0" and text != b"0"):
        return False
    return -(1 << 63) <= int(text) < 1 << 63


def _packs_lists(facts: dict[bytes, bytes]) -> bool:
    """Return whether the server that wrote the file stores a short list as one packed block (since 7.2)."""
    version = (facts.get(b"valkey-ver") or facts.get(b"redis-ver") or b"0").split(b".")
    return tuple(int(part) if part.isdigit() else 0 for part in version[:2]) >= (7, 2)
