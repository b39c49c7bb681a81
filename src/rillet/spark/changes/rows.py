"""Changes and snapshots as record batches; runs in tasks.

    offset      bigint          the position of the stream after the command; that of the snapshot
    arrived     timestamp       when the driver received the change
    db          int
    key         string, binary  the first key; null for commands without keys
    type        string          the type that the command changes; null for commands of all types (DEL)
    command     string          the command's name in upper case; "snapshot" for the initial data
    arguments   array<binary> or array<string>     the command with its arguments
    transaction boolean         whether the command belongs to a transaction
    id          string          of an entry that XADD adds
    fields      map<string,string>                 its fields

Another column of the schema is the field of that name of an added entry, converted to the column's type.

**A snapshot** is written as commands that make its values, at most a hundred elements in each: SET, RPUSH, SADD, ZADD,
HSET, XADD, XGROUP, PEXPIREAT; RESTORE for values that have no such command. `arguments` has the command, and `command`
is "snapshot". The first row has neither a key nor arguments: earlier data is void. Each task reads a part of the
snapshot (rillet.transfer.rdb_parts, rillet.transfer.dumped_values).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rillet.columns.arrow_batch import record_batch, rows_for
from rillet.replication.changes import UnitParser, keys_of, type_of
from rillet.replication.filtering import KeyFilter
from rillet.spark.changes.options import ChangesOptions
from rillet.spark.changes.storage import Storage, StoredFile
from rillet.transfer.dumped_values import Values
from rillet.transfer.rdb_parts import SnapshotPart, snapshot_keys
from rillet.types.compat import COMPATS
from rillet.types.stream.id import StreamID

SCHEMA = (
    "offset bigint, arrived timestamp, db int, key string, type string, command string, arguments array<binary>, "
    "transaction boolean, id string, fields map<string,string>"
)
OWN = ("offset", "arrived", "db", "key", "type", "command", "arguments", "transaction", "id", "fields")
SNAPSHOT = "snapshot"
_VALUES = {b"MAXLEN": 1, b"MINID": 1, b"IDMP": 2, b"IDMPAUTO": 1, b"LIMIT": 1}


def filter_of(options: ChangesOptions) -> KeyFilter | None:
    """Return the filter that the option `keys` selects."""
    if options.keys is None:
        return None
    return KeyFilter([key.encode() for key in options.keys], COMPATS["newest"])


def entry_of(words: list[bytes]) -> tuple[bytes, list[bytes]] | None:
    """Return the ID and the fields of an entry that XADD adds; None for other commands."""
    if len(words) < 5 or words[0].upper() != b"XADD":
        return None
    at = 2
    while at < len(words):
        word = words[at].upper()
        if word in _VALUES:
            at += 1 + _VALUES[word]
            if word in (b"MAXLEN", b"MINID") and words[at - 1] in (b"=", b"~"):
                at += 1
        elif word in (b"NOMKSTREAM", b"KEEPREF", b"DELREF", b"ACKED"):
            at += 1
        else:
            return words[at], words[at + 1 :]
    return None


class RowWriter:
    """Collects rows, and returns them as record batches of a schema."""

    def __init__(self, schema: Any, mode: str) -> None:
        import pyarrow as pa

        self.length = 0
        self._schema = schema
        self._own: dict[str, list[Any]] = {field.name: [] for field in schema if field.name in OWN}
        typed = [field for field in schema if field.name not in OWN]
        self._typed_schema = pa.schema(typed)
        self._typed = rows_for(self._typed_schema, b"", mode) if typed else None
        self._keeps_bytes = {field.name: _is_binary(field.type) for field in schema if field.name in OWN}

    def add(self, offset: int, arrived: int, db: int, words: list[bytes], transaction: bool,
            command: str | None = None) -> None:  # fmt: skip
        """Add the row of a command; arrived: milliseconds since 1970."""
        keys = keys_of(words)
        entry = entry_of(words)
        values = {
            "offset": offset, "arrived": arrived * 1000, "db": db, "key": keys[0] if keys else None,
            "type": type_of(words), "command": command or _text(words[0]).upper(), "arguments": words,
            "transaction": transaction, "id": None if entry is None else entry[0],
            "fields": None if entry is None else entry[1],
        }  # fmt: skip
        for name, column in self._own.items():
            column.append(self._value(name, values[name]))
        if self._typed is not None:
            self._add_typed(entry)
        self.length += 1

    def _value(self, name: str, value: Any) -> Any:
        if value is None:
            return None
        if name == "fields":
            texts = [_text(word) for word in value]
            return list(dict(zip(texts[::2], texts[1::2], strict=False)).items())
        if name == "arguments":
            return value if self._keeps_bytes[name] else [_text(word) for word in value]
        if isinstance(value, bytes):
            return value if self._keeps_bytes[name] else _text(value)
        return value

    def _add_typed(self, entry: tuple[bytes, list[bytes]] | None) -> None:
        rows = self._typed
        assert rows is not None
        if entry is None:
            rows.begin(0, 0)
            rows.finish(bytearray())
            return
        found = StreamID.parse(entry[0].decode("ascii", "replace"))
        buffer = bytearray(b"".join(entry[1]))
        rows.begin(found.ms, found.seq)
        at = 0
        for number, word in enumerate(entry[1]):
            (rows.text if number % 2 else rows.name)(buffer, at, len(word))
            at += len(word)
        rows.finish(buffer)

    def take_batch(self) -> Any:
        """Return the rows as a record batch, and begin anew."""
        import pyarrow as pa

        typed: Any = record_batch(self._typed, self._typed_schema) if self._typed is not None else None
        arrays = []
        for field in self._schema:
            if field.name in self._own:
                arrays.append(pa.array(self._own[field.name], field.type))
                self._own[field.name] = []
            else:
                arrays.append(typed.column(field.name))
        self.length = 0
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _is_binary(kind: Any) -> bool:
    import pyarrow as pa

    inner = kind.value_type if pa.types.is_list(kind) else kind
    return bool(pa.types.is_binary(inner) or pa.types.is_large_binary(inner))


def _text(word: bytes) -> str:
    return word.decode("utf-8", "replace")


def check_schema(schema: Any, mode: str) -> None:
    """Raise ValueError for columns of a type that they cannot have."""
    import pyarrow as pa

    wanted = {
        "offset": "int64", "db": "int32", "transaction": "bool", "type": "string", "command": "string", "id": "string",
    }  # fmt: skip
    errors = [f"column {field.name!r} must be {wanted[field.name]}, not {field.type}" for field in schema
              if field.name in wanted and str(field.type) != wanted[field.name]]  # fmt: skip
    for field in schema:
        if field.name == "arguments" and not (pa.types.is_list(field.type) and _is_text(field.type.value_type)):
            errors.append(f"column 'arguments' must be array<binary> or array<string>, not {field.type}")
        if field.name == "key" and not _is_text(field.type):
            errors.append(f"column 'key' must be string or binary, not {field.type}")
        if field.name == "arrived" and not pa.types.is_timestamp(field.type):
            errors.append(f"column 'arrived' must be timestamp, not {field.type}")
    if errors:
        raise ValueError("; ".join(errors))
    RowWriter(schema, mode)


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def read_file(options: ChangesOptions, file: StoredFile, schema: Any) -> Iterator[Any]:
    """Yield the record batches of a file of changes."""
    keys, rows = filter_of(options), RowWriter(schema, options.mode)
    for record in Storage(options.folder).read(file):
        parser = UnitParser(record.start, record.db)
        for unit in parser.feed(record.data):
            for (db, words), end in zip(unit.commands, unit.ends, strict=True):
                kept = words if keys is None else keys.reduced(words)
                if kept is not None:
                    rows.add(end, record.arrived, db, kept, unit.transaction)
                    if rows.length >= options.batch_rows:
                        yield rows.take_batch()
    if rows.length:
        yield rows.take_batch()


def read_snapshot(options: ChangesOptions, run: str, part: SnapshotPart, offset: int, made: int, schema: Any,
                  is_first: bool) -> Iterator[Any]:  # fmt: skip
    """Yield the record batches of a part of a snapshot. The task holds the bytes of the part, and one value."""
    keys, rows = filter_of(options), RowWriter(schema, options.mode)
    if is_first:
        rows.add(offset, made, 0, [b"snapshot"], False, SNAPSHOT)
    with Values(part.version) as values:
        for key in snapshot_keys(Storage(options.folder).snapshot_bytes(run, part), part):
            if keys is not None and not keys.keeps(key.key):
                continue
            for words in values.commands(key):
                rows.add(offset, made, key.db, words, False, SNAPSHOT)
                if rows.length >= options.batch_rows:
                    yield rows.take_batch()
    if rows.length:
        yield rows.take_batch()
