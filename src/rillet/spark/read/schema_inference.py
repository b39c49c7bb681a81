"""inferSchema: infers columns and their types from a sample of the streams' entries.

Half of `sampleEntries` are the first entries of the streams, half are the last ones, divided equally among the streams.
The columns are `stream` (if there are several streams), `id` and `timestamp`, then every field in order of appearance.
The type of a field is the first type in this table that all of the field's sampled values fit, except empty values and
without the blanks around them. `Stream.to_arrow` has the same table (rillet/store/tables/schema_inference.py):

    bigint       digits with an optional sign, in range. Leading zeros make a string: 0515 and 02134 are codes
    double       a decimal number with an optional exponent; nan, inf
    boolean      true or false, in any case. Not t, f, yes, no, 1, 0, which an explicit schema accepts: a single letter
                 or digit is more often a code
    date         YYYY-MM-DD, a valid day
    timestamp    ISO 8601 with hours and minutes, in UTC if there is no zone (in some of the values, the time may be
                 missing)
    string       anything else

If a later value does not fit the inferred type, the option `mode` decides; by default, the value becomes null. A
production query should use an explicit schema: print the inferred one with `df.schema.simpleString()`.

A field with the name of a source column (stream, id, id_ms, id_seq, timestamp, fields) becomes the column
`<name>_field`. Spark's column names ignore case, so the second of two fields that differ only by case becomes
`<name>_2`. The metadata of a renamed column contains the field's original name. A field whose name is not UTF-8 has no
column.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import date
from typing import TYPE_CHECKING, Any

from rillet.client.errors import ConnectorError
from rillet.client.servers import Servers
from rillet.columns.row_builder import SOURCES
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.option_types import iso_time
from rillet.spark.options import Options
from rillet.spark.read.metadata import selected_streams
from rillet.spark.read.stream_info import stream_error

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_INTEGER = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,18})")
_NUMBER = re.compile(r"[+-]?(?:(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|nan|inf|infinity)", re.I)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?"
)


def _parses(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True


def _is_date(text: str) -> bool:
    return bool(_DATE.fullmatch(text)) and _parses(date.fromisoformat, text)


# Column types from narrow to wide, each with a function that returns whether a text fits the type.
KINDS: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("bigint", lambda text: bool(_INTEGER.fullmatch(text)) and -(1 << 63) <= int(text) < 1 << 63),
    ("double", lambda text: bool(_NUMBER.fullmatch(text))),
    ("boolean", lambda text: text.lower() in ("true", "false")),
    ("date", _is_date),
    (
        "timestamp",
        lambda text: _is_date(text) or (bool(_TIME.fullmatch(text)) and _parses(iso_time, text)),
    ),
    ("string", lambda text: True),
)


class FieldType:
    """The narrowest type that fits all values of a field so far."""

    def __init__(self) -> None:
        self.left = list(KINDS)
        self.sampled = False

    def add(self, value: bytes) -> None:
        """Exclude the column types that a value does not fit."""
        value = value.strip()
        if not value:
            return
        self.sampled = True
        try:
            text = value.decode()
        except UnicodeDecodeError:
            self.left = [KINDS[-1]]
            return
        self.left = [kind for kind in self.left if kind[1](text)]

    @property
    def name(self) -> str:
        """Return the narrowest column type that fits all values so far; string if all values were empty."""
        return self.left[0][0] if self.sampled else "string"


def sample(options: Options, servers: Servers) -> list[list[bytes]]:
    """Return the first and last entries of the streams, each as a list of alternating fields and values."""
    named = options.keys()
    if options.partitioned_stream is not None:
        named = tuple(selected_streams(options, servers))
    keys = [name.encode() for name in named] if named is not None else servers.scan(options.stream_pattern or "*")
    keys = keys[: options.sample_entries]
    each = max(1, options.sample_entries // max(1, len(keys)))
    first, last = b"%d" % -(-each // 2), b"%d" % (each // 2)
    asked: list[tuple[bytes, tuple[bytes, ...]]] = [
        (key, (b"XRANGE", key, b"-", b"+", b"COUNT", first)) for key in keys
    ]
    if each > 1:
        asked += [(key, (b"XREVRANGE", key, b"+", b"-", b"COUNT", last)) for key in keys]
    found: dict[tuple[bytes, bytes], list[bytes]] = {}
    for (key, words), reply in zip(asked, servers.each(asked), strict=True):
        if isinstance(reply, ReplyError):
            raise stream_error(servers, key, words[0].decode(), str(reply))
        entries = reply if words[0] == b"XRANGE" else reversed(reply)
        found.update({(key, entry[0]): entry[1] for entry in entries if entry[1]})
    if not found:
        raise ConnectorError(
            f"rillet: cannot infer a schema at {servers}: the stream has no entries. Give a schema, or leave out "
            "inferSchema"
        )
    return list(found.values())


def schema_of(entries: Iterable[list[bytes]], several: bool) -> StructType:
    """Return the schema for sampled entries; `several`: add a column for the stream's name."""
    from pyspark.sql import types

    of_kind = {
        "bigint": types.LongType(), "double": types.DoubleType(), "boolean": types.BooleanType(),
        "date": types.DateType(), "timestamp": types.TimestampType(), "string": types.StringType(),
    }  # fmt: skip
    kinds: dict[bytes, FieldType] = {}
    for flat in entries:
        for field, value in zip(flat[::2], flat[1::2], strict=True):
            kinds.setdefault(field, FieldType()).add(value)
    found = []
    for raw, kind in kinds.items():
        try:
            found.append((raw.decode(), of_kind[kind.name]))
        except UnicodeDecodeError:
            continue
    return beside_own_columns(found, several, "field")


def beside_own_columns(found: Iterable[tuple[str, DataType]], several: bool, key: str) -> StructType:
    """Return a schema of the entry's own columns and others; `key` is that of a renamed one's name in its metadata."""
    from pyspark.sql import types

    columns = [types.StructField("stream", types.StringType())] if several else []
    columns += [types.StructField("id", types.StringType()), types.StructField("timestamp", types.TimestampType())]
    taken = {column.name.lower() for column in columns}
    for name, kind in found:
        column = _free(name, taken)
        taken.add(column.lower())
        metadata: dict[str, Any] = {} if column == name else {key: name}
        columns.append(types.StructField(column, kind, metadata=metadata))
    return types.StructType(columns)


def _free(name: str, taken: set[str]) -> str:
    """Return a column name for a field that differs from the names in `taken` and from stream, id, id_ms and so on."""
    wanted = f"{name}_field" if name.lower() in SOURCES else name
    found, number = wanted, 1
    while found.lower() in taken:
        number += 1
        found = f"{wanted}_{number}"
    return found


def infer(options: Options) -> StructType:
    """Return the schema inferred from a sample of entries; raise ConnectorError if the streams are empty."""
    with Servers(options) as servers:
        return schema_of(sample(options, servers), selects_several(options))


def selects_several(options: Options) -> bool:
    """Return whether the options may select more than one stream."""
    return options.keys() is None or len(options.keys() or ()) > 1
