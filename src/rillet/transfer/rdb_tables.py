"""The content of an RDB file as Arrow batches: keys, elements, stream entries, consumer groups, or pending entries.

`rillet.persistence.rdb.reader` loads a file into an engine. An analysis, such as a search for the largest keys of a
server, needs rows instead, also from files larger than memory. So this module reads a file from front to back
(rillet.types.rdb.primitives), measures each value, and discards the value:

    FE n    FC ms    type key value    FF CRC-64
     │       │         │   │    └──── read element by element: elements counted, lengths added up
     db   expires    type  key        a stream's nodes: decoded one at a time (columns.nodes) for the table of entries

The reader needs memory for the largest string, packed list or stream node, and for one batch. The size of a whole value
does not matter. Values that rillet cannot load (the values of modules) have a row, too.
Packed lists are only decoded for the table of elements (rdb_elements.py), and stream nodes for the table of entries;
only the file's checksum protects the others. A truncated or malformed file raises LogCorrupt with the file, the offset
and the expected content, after the batches of all records before that offset.

**Memory of a key.** `serialized` is exact: the bytes of type, name and value in the file. `memory` is an estimate of
the reply to MEMORY USAGE key SAMPLES 0 by a 64-bit Redis 7.0 with jemalloc that has loaded the file: the sum of the
structures, each rounded to jemalloc's size classes. Radix trees of streams are measured as in the version that wrote
the file: Redis 7.0 estimates their size, newer servers count the bytes. Compared with Redis 7.0 the estimate is exact
for most keys and within 15 % for all. Newer servers use less memory: for keys of more than 4 KB the estimate is up to
25 % above Redis 8.6 and 45 % above Valkey 9, and small keys may take a third of the estimate. The exception is a stream
with many pending entries: Redis 8.6 indexes these entries twice and takes up to twice the estimate.
tests/store/test_rdb_rows.py tests these limits. The values of modules have no estimate.

Rejected: loading each value with rillet.types.rdb.value and measuring the object. A list of ten million elements would
occupy memory, and the sizes of rillet's objects differ from the server's.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rillet.errors import Corrupt, LogCorrupt, StoreError
from rillet.transfer.rdb_elements import elements
from rillet.transfer.rdb_stream_tables import PendingRow, StreamValue
from rillet.transfer.rdb_value_sizes import ENTRY, FORMS, UNREAD, Key, measure, step_over_parts, text_size
from rillet.types.rdb.primitives import RdbReader

# The columns of each table after `file` and `db`, in Spark's notation.
_COLUMNS = {
    "keys": "key string, type string, encoding string, expires timestamp, ttl_seconds long, idle_seconds long, "
    "frequency int, elements long, largest_element long, serialized long, memory long",
    "elements": "key string, type string, index long, field string, value string, score double",
    "entries": "stream string, id string, id_ms long, id_seq long, timestamp timestamp, fields map<string, string>",
    "groups": "stream string, group string, last_delivered_id string, entries_read long, pending long, "
    "consumers long, released long, length long, entries_added long, last_generated_id string",
    "pending": "stream string, group string, consumer string, id string, delivered timestamp, deliveries long",
}
TABLES = tuple(_COLUMNS)
BATCH_ROWS = 10_000
_LARGE = 16 << 20
_LARGEST = {"int32": (1 << 31) - 1, "int64": (1 << 63) - 1}  # the highest value that a column of this type can store

_HEADER = re.compile(rb"(REDIS|VALKEY)(\d+)")
_NEWEST = {b"REDIS": 14, b"VALKEY": 80}
_SLOT_IMPORT, _SLOT, _FUNCTION, _FUNCTION_PREVIEW, _MODULE_AUX = range(0xF3, 0xF8)
_IDLE, _FREQUENCY, _FACT, _SIZES, _EXPIRE_MS, _EXPIRE_S, _DATABASE, _END = range(0xF8, 0x100)


class RdbHeader(NamedTuple):
    """The header of an RDB file: its version, and the auxiliary fields that the server wrote."""

    path: str
    size: int
    version: int
    product: str
    facts: dict[str, str]


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


def rdb_facts(path: str | Path) -> RdbHeader:
    """Return the header of an RDB file; raise LogCorrupt if the file has another format. O(1)"""
    with _Walk(path) as walk:
        walk.guarded(walk.head)
        return RdbHeader(str(path), Path(path).stat().st_size, walk.version, walk.product, walk.auxiliary_fields())


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


def _major(version: bytes) -> int:
    """Return the major number of a server version; the unreleased development versions have 255."""
    first = version.split(b".")[0]
    return int(first) if first.isdigit() else 0


def shown(raw: bytes) -> str:
    """Return a name as text; bytes that are not valid UTF-8 become \\x.. escapes."""
    return raw.decode("utf-8", "backslashreplace")


def moment(milliseconds: int) -> int | None:
    """Return a time in microseconds; None if the time is negative (not set) or beyond 64 bits."""
    return milliseconds * 1000 if 0 <= milliseconds < 1 << 53 else None


class _Walk:
    """An open RDB file: its reader and its header. A context manager."""

    def __init__(self, path: str | Path, progress: Callable[[int, int], None] | None = None) -> None:
        self.name = str(path)
        self.file = open(path, "rb")  # noqa: SIM115  # this object is the context manager
        self.size = Path(path).stat().st_size
        self.progress = progress
        self.got = 0
        self.reader = RdbReader.reading(self._read)
        self.version = 0
        self.product = ""
        self.facts: dict[bytes, bytes] = {}
        self.next = -1  # the byte after the auxiliary fields: the type of the next record

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

    def head(self) -> None:
        """Read the magic bytes, the version, and the auxiliary fields after it."""
        reader = self.reader
        magic = reader.raw(1)
        magic += reader.raw(8)
        header = _HEADER.fullmatch(magic)
        if header is None:
            raise Corrupt(f"not an RDB file: it must begin with REDIS or VALKEY and a version, not {magic!r}")
        self.version, self.product = int(header[2]), header[1].decode().lower()
        newest = _NEWEST[header[1]]
        if not 1 <= self.version <= newest:
            raise Corrupt(f"RDB version {self.version} of {self.product} is unknown; rillet reads up to {newest}")
        while (kind := reader.byte()) == _FACT:
            name = reader.string()
            self.facts[name] = reader.string()
        self.next = kind

    def auxiliary_fields(self) -> dict[str, str]:
        """Return the auxiliary fields as text."""
        return {name.decode("utf-8", "replace"): text.decode("utf-8", "replace") for name, text in self.facts.items()}

    def guesses(self) -> bool:
        """Return whether the server that wrote the file estimates the size of a radix tree (every Redis before 8)."""
        return self.product == "redis" and _major(self.facts.get(b"redis-ver", b"")) < 8

    def checksum(self) -> None:
        """Compare the checksum at the end of the file with the checksum of the bytes before it."""
        reader = self.reader
        if self.version < 5:
            return
        found = reader.checksum_so_far()
        stored = int.from_bytes(reader.raw(8), "little")
        if stored and found != stored:
            raise Corrupt(f"the stored checksum is {stored:016x}, but the checksum of the file's bytes is {found:016x}")


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
        self.key = Key()
        self.db = 0

    def batches(self) -> Iterator[Any]:
        """Yield the record batches. At malformed bytes, yield the rows before them, then raise LogCorrupt."""
        walk = self.walk
        failure: LogCorrupt | None = None
        try:
            walk.guarded(walk.head)
            kind = walk.next
            while kind != _END:
                if walk.guarded(self._about, kind):
                    kind = walk.guarded(self.reader.byte)
                    continue
                yield from self._guarded_key(kind, self.reader.position - 1)
                kind = walk.guarded(self.reader.byte)
            walk.guarded(walk.checksum)
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

    # -- records between keys

    def _about(self, kind: int) -> bool:
        """Read a record other than a key (a database number, an expiry ...); return False if the record is a key."""
        reader, key = self.reader, self.key
        if kind == _DATABASE:
            self.db = reader.length()
            if self.db > _LARGEST["int32"]:
                raise Corrupt(f"the number of a database must be below 2147483648, not {self.db}")
        elif kind == _EXPIRE_MS:
            order: Any = "little" if self.walk.version >= 9 else sys.byteorder
            key.expires = int.from_bytes(reader.raw(8), order, signed=True)
        elif kind == _EXPIRE_S:
            key.expires = int.from_bytes(reader.raw(4), "little", signed=True) * 1000
        elif kind == _IDLE:
            key.idle = reader.length()
        elif kind == _FREQUENCY:
            key.frequency = reader.byte()
        elif kind == _FACT:
            name = reader.string()
            self.walk.facts[name] = reader.string()
        elif kind in (_SIZES, _SLOT):
            for _ in range(2 if kind == _SIZES else 3):
                reader.length()
        elif kind == _FUNCTION:
            reader.string()
        elif kind == _FUNCTION_PREVIEW:
            for _ in range(2):
                reader.string()
            for _ in range(2 if reader.length() else 1):
                reader.string()
        elif kind == _MODULE_AUX:
            reader.length()
            step_over_parts(reader, key)
        elif kind == _SLOT_IMPORT:
            raise Corrupt("the file contains metadata of keys or the state of a slot import, which rillet cannot read")
        else:
            return False
        return True

    # -- reading a key

    def _key(self, kind: int, began: int) -> Iterator[Any]:
        reader, key = self.reader, self.key
        key.name = reader.string()
        if kind not in FORMS:
            what = UNREAD.get(kind, f"RDB type {kind}")
            raise Corrupt(f"the key {shown(key.name)!r} (database {self.db}) holds {what}, which rillet cannot read")
        key.type, key.encoding, form = FORMS[kind]
        if form == "stream":
            yield from self._stream(kind)
        elif self.table == "elements" and form != "parts":
            name = shown(key.name)
            for one in elements(reader, key, form, self.walk.product == "valkey"):
                field = None if one.field is None else shown(one.field)
                yield from self._row(name, key.type, one.position, field, shown(one.value), one.score)
        else:
            measure(reader, key, form, self.walk.product, self.walk.facts)
        if self.table == "keys":
            if key.memory is not None:
                key.memory += text_size(len(key.name)) + ENTRY  # the key's entry in the database's hash table
            yield from self._row(
                shown(key.name), key.type, key.encoding, moment(key.expires), self._ttl(), key.idle, key.frequency,
                key.elements, key.largest, reader.position - began, key.memory,
            )  # fmt: skip
        self.key = Key()

    def _ttl(self) -> int | None:
        """Return the seconds until the key's expiry when the file was written; negative if it had expired."""
        written = self.walk.facts.get(b"ctime", b"")
        if self.key.expires < 0 or not written.isdigit() or len(written) > 18:
            return None
        return self.key.expires // 1000 - int(written)

    def _stream(self, kind: int) -> Iterator[Any]:
        name = shown(self.key.name)
        value = StreamValue(self.reader, self.key, kind, self.walk.guesses())
        pending: list[PendingRow] | None = [] if self.table == "pending" else None
        schema = None
        if self.table == "entries":
            import pyarrow as pa

            schema = pa.schema(list(self.schema)[3:])
        for batch in value.read(schema, self.most, None if pending is None else pending.append):
            yield from self._piece(batch)
        if self.table == "groups":
            for one in value.groups:
                yield from self._row(
                    name, shown(one.name), one.last, one.entries_read, one.pending, one.consumers, one.released,
                    value.length, value.entries_added, value.last_id,
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
