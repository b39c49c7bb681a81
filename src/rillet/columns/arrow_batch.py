"""Arrow schemas into columns, and columns into pyarrow record batches.

A schema's field is one of the entry's own columns if it has a reserved name (`stream id id_ms id_seq timestamp
fields`), otherwise the entry's field of that name. Metadata {"field": "id"} selects the entry's field of that name,
whatever the column's name is. This is the only way to read a field that has a reserved name. A field may have two
columns: one of a type, and its text as a string or as bytes.

A batch shares its memory with the columns' bytearrays: Arrow keeps them alive, and the columns allocate new ones.

Functions import pyarrow when they are called, because only the Spark extra installs it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rillet.columns import json_column as nested
from rillet.columns.column import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DECIMAL,
    DOUBLE,
    FLOAT,
    INT,
    JSON,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    Column,
)
from rillet.columns.row_builder import MAP, MODES, SOURCE_KINDS, SOURCES, RowBuilder
from rillet.errors import RilletError

_TEXTS = (STRING, BINARY)
KIND_NAMES = (
    "string, binary, boolean, tinyint, smallint, int, bigint, float, double, decimal, timestamp, timestamp_ntz, date; "
    "struct, array and map of those, from JSON"
)


def kind_of(kind: Any) -> int | None:
    """Return the column kind of an Arrow type, or None for an unsupported type."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return TIMESTAMP if kind.unit == "us" else None
    if pa.types.is_decimal128(kind):
        return DECIMAL
    if pa.types.is_nested(kind):
        return JSON if nested.reader(kind) is not None else None
    kinds = {
        pa.string(): STRING, pa.large_string(): STRING, pa.binary(): BINARY, pa.large_binary(): BINARY,
        pa.bool_(): BOOLEAN, pa.int8(): BYTE, pa.int16(): SHORT, pa.int32(): INT, pa.int64(): LONG,
        pa.float32(): FLOAT, pa.float64(): DOUBLE, pa.date32(): DATE,
    }  # fmt: skip
    return kinds.get(kind)


def rows_for(
    schema: Any, key: bytes, mode: str = "PERMISSIVE", corrupt: str = "_corrupt",
    readers: Mapping[str, Callable[[Column], None]] | None = None,
) -> RowBuilder:  # fmt: skip
    """Return a builder with the columns of an Arrow schema; ValueError lists every unsupported column.

    `mode` selects how entries with a malformed value are handled (row_builder.py). A string column named `corrupt`
    shows such entries. readers: by name, functions that give a column of any type a `read` in place of JSON's.
    """
    rows = RowBuilder(key, MODES[mode])
    errors = [error for field in schema if (error := _add(rows, field, corrupt, readers or {}))]
    if errors:
        raise ValueError("; ".join(errors))
    return rows


def field_alias(metadata: dict[bytes, bytes]) -> bytes | None:
    """Return the field name in a column's metadata, or None. Spark stores all metadata as one JSON text."""
    plain = metadata.get(b"field")
    named = json.loads(metadata.get(b"SPARK::metadata::json", b"{}")).get("field")
    return named.encode() if plain is None and isinstance(named, str) else plain


def field_names(schema: Any, corrupt: str = "_corrupt") -> dict[bytes, str]:
    """Return the entries' fields that an Arrow schema reads, each with the name of its column."""
    names = {}
    for column in schema:
        alias = field_alias(column.metadata or {})
        own = column.name in SOURCES or (column.name == corrupt and kind_of(column.type) == STRING)
        if alias is not None or not own:
            names[column.name.encode() if alias is None else alias] = column.name
    return names


def _add(rows: RowBuilder, field: Any, corrupt: str, readers: Mapping[str, Callable[[Column], None]]) -> str | None:
    """Add the column for one field of an Arrow schema; return an error message if its type is unsupported."""
    alias = field_alias(field.metadata or {})
    source = SOURCES.get(field.name) if alias is None else None
    kind = JSON if field.name in readers else kind_of(field.type)
    if source == MAP:
        value = map_value_kind(field.type)
        if value is None:
            return f"column {field.name!r} must be map<string,string> or map<string,binary>, not {field.type}"
        rows.add_map(value)
    elif source is not None:
        if kind != SOURCE_KINDS[source]:
            return f"column {field.name!r} cannot be {field.type}: its values are the entry's ID or key"
        rows.add_source(source)
    elif kind == STRING and alias is None and field.name == corrupt:
        rows.add_corrupt()
    elif kind is None:
        return f"column {field.name!r} cannot be {field.type} (supported: {KIND_NAMES})"
    else:
        try:
            name = field.name.encode() if alias is None else alias
            other = rows.wanted.get(name)
            second = other is not None and (other.kind in _TEXTS) != (kind in _TEXTS)
            column = set_type(rows.add_twin(name, kind) if second else rows.add_field(name, kind), field.type)
            if field.name in readers:
                readers[field.name](column)
        except ValueError as error:
            return str(error)
    return None


def set_type(column: Column, kind: Any) -> Column:
    """Set what a column's Arrow type has beyond its kind: precision and scale, or the reader of JSON; return it."""
    if column.kind == DECIMAL:
        column.be_decimal(kind.precision, kind.scale)
    elif column.kind == JSON:
        column.read = nested.reader(kind)
        column.label = str(kind)
    return column


def map_value_kind(kind: Any) -> int | None:
    """Return the kind of a map's values, STRING or BINARY; None for other maps and other types."""
    import pyarrow as pa

    if not pa.types.is_map(kind) or kind.key_type != pa.string():
        return None
    value = kind_of(kind.item_type)
    return value if value in (STRING, BINARY) else None


class NullValue(RilletError, ValueError):
    """A column that the schema declares NOT NULL has a null in this batch."""


def require_values(arrays: Sequence[Any], schema: Any) -> None:
    """Raise NullValue if a column of a batch has a null, and its field in the schema is NOT NULL."""
    for field, column in zip(schema, arrays, strict=False):
        if column.null_count and not field.nullable:
            raise NullValue(f"rillet: column {field.name!r} is declared NOT NULL, but {column.null_count} of "
                            f"{len(column)} entries lack the field")  # fmt: skip


def record_batch(rows: RowBuilder, schema: Any) -> Any:
    """Return the builder's rows as a pyarrow.RecordBatch with the given schema, and empty the builder."""
    import pyarrow as pa

    length = rows.length
    rows.begin(0, 0)  # removes the values of an entry that is not complete yet
    arrays = []
    for field, column in zip(schema, rows.columns, strict=True):
        if column.nulls and not field.nullable:
            raise NullValue(
                f"rillet: column {field.name!r} is declared NOT NULL, but {column.nulls} of {length} entries "
                f"lack the field or have a value that is not {field.type}"
            )
        arrays.append(_map_array(rows, field.type) if column.source == MAP else _array(column, field.type))
    rows.clear()
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(column: Column, kind: Any) -> Any:
    """Return one column as a pyarrow array, and empty the column."""
    import pyarrow as pa

    if column.kind == JSON:
        return pa.array(column.take_objects(), kind)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _array(column, pa.string() if pa.types.is_large_string(kind) else pa.binary()).cast(kind)
    length, nulls, *buffers = column.take_buffers()
    if buffers[1] is None:
        del buffers[1]
    wrapped = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
    return pa.Array.from_buffers(kind, length, wrapped, nulls)


def _map_array(rows: RowBuilder, kind: Any) -> Any:
    """Return the map column as a pyarrow array: int32 offsets over a column of names and a column of values."""
    import pyarrow as pa

    length, _, _, _, ends = rows.map_ends.take_buffers()
    keys = _array(rows.keys, kind.key_type)
    items = _array(rows.items, kind.item_type)
    pairs = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
    offsets = pa.py_buffer(b"\0\0\0\0" + bytes(ends))
    return pa.Array.from_buffers(kind, length, [None, offsets], 0, children=[pairs])
