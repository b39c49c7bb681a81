"""The columns of a schema that a payload fills: they become one column for the tasks, and columns again for Spark.

    schema of the user     id  carrier  delay                 carrier and delay are fields of the payload
    schema of the tasks    id  payload: struct<carrier, delay>
    batch for Spark        id  carrier  delay

A column is one of the payload's fields unless it is one of the entry's own columns, the column of bad entries, or has a
field of the entry in its metadata ({"field": "..."}, as without a payload). Metadata {"payload": "id"} names the
payload's field, for fields with the name of an entry's own column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rillet.columns.arrow_batch import require_values
from rillet.columns.column import Column
from rillet.columns.row_builder import SOURCES
from rillet.errors import RilletError
from rillet.spark.options import OptionError, Options
from rillet.spark.payload.encoder import format_of
from rillet.spark.payload.formats import Decode, Format, one_line
from rillet.spark.spark_versions import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType


class PayloadDecoder:
    """Converts payloads to the values of a struct column, in a task; Spark pickles it."""

    def __init__(self, column: str, form: Format, struct: StructType) -> None:
        """column: the name of the struct column in the schema of the tasks."""
        self.column, self.format, self.struct = column, form, struct

    def reader(self) -> Decode:
        """Return a function that converts a payload; ValueError, with the reason, for bad bytes."""
        decode = self.format.decoder(self.struct)

        def read(data: bytes) -> Any:
            try:
                return decode(data)
            except RilletError:  # of the registry: the payload may be sound
                raise
            except Exception as error:  # the libraries raise many kinds
                raise ValueError(one_line(error)) from None

        return read

    def attach(self, column: Column) -> None:
        """Make a column of a batch read payloads. Its label, which is part of an error's text, has the last reason."""
        decode, title = self.reader(), self.format.title
        column.label = title

        def read(data: bytes) -> Any:
            try:
                return decode(data)
            except ValueError as error:
                column.label = f"{title} ({error})"
                raise

        column.read = read

    def reasons(self, payloads: Sequence[bytes | None]) -> list[str]:
        """Return what is wrong with each of some payloads; an empty text if nothing is."""
        read, found = self.reader(), []
        for data in payloads:
            try:
                if data is not None:
                    read(data)
                found.append("")
            except ValueError as error:
                found.append(f"is not {self.format.title}: {error}")
        return found


class PayloadColumns:
    """Divides a schema into the columns of a payload and others, on the driver; and batches, in tasks."""

    def __init__(self, options: Options, schema: StructType) -> None:
        """Raise OptionError if a column does not fit the payload's schema."""
        from pyspark.sql.types import StructField, StructType

        self.names = [_payload_name(column, options.corrupt_column) for column in schema.fields]
        named = list(zip(schema.fields, self.names, strict=True))
        wanted = {name: column.dataType for column, name in named if name is not None}
        others = [column for column, name in named if name is None]
        if len(wanted) + len(others) < len(schema.fields):
            raise OptionError("rillet: two columns take the same field of the payload")
        kept = [column.name for column in others if column.metadata.get("field") == options.payload_field]
        if options.bad_records is not None and kept:
            raise OptionError(f"rillet: leave out column {kept[0]!r}: badRecords keeps the payload's bytes")
        struct = StructType([StructField(name, kind) for name, kind in wanted.items()])
        form = format_of(options)
        if wrong := form.problems(struct, reading=True):
            raise OptionError(f"rillet: the schema does not fit {form.source}: {'; '.join(wrong)}")
        column = options.payload_field
        while column in schema.names:
            column += " "
        self.decoder = PayloadDecoder(column, form, struct) if wanted else None
        tasks = StructType(others)
        if wanted:
            tasks.add(StructField(column, struct, metadata={"field": options.payload_field}))
        self.tasks = arrow_schema(tasks)
        self.given = arrow_schema(schema)

    def of_spark(self, batch: Any) -> Any:
        """Return a record batch of the tasks' schema with the columns of the user's; NullValue as for other columns."""
        import pyarrow as pa

        arrays, fields = batch.columns, {}
        if self.decoder is not None:
            fields = dict(zip(self.decoder.struct.names, arrays[-1].flatten(), strict=True))
        others = iter(arrays)
        found = [next(others) if name is None else fields[name] for name in self.names]
        require_values(found, self.given)
        return pa.RecordBatch.from_arrays(found, schema=self.given)


def _payload_name(column: StructField, corrupt: str) -> str | None:
    """Return the name in the payload of a column; None for a column of the entry."""
    from pyspark.sql.types import StringType

    metadata = column.metadata or {}
    if "payload" in metadata:
        return str(metadata["payload"])
    is_corrupt = column.name == corrupt and isinstance(column.dataType, StringType)
    return None if "field" in metadata or column.name in SOURCES or is_corrupt else column.name


def payload_fields(options: Options) -> list[tuple[str, DataType]] | str:
    """Return the name and type of each field, for a user who gives no schema; for JSON, the text of payloadSchema."""
    from pyspark.sql.types import StructType

    if options.payload == "json":  # Python parses no such text without a session
        if options.payload_schema is None:
            raise OptionError("rillet: payload=json needs payloadSchema, or .schema('id string, delay double')")
        return options.payload_schema
    return [(name, kind()) for name, kind in format_of(options).types(StructType()).items()]
