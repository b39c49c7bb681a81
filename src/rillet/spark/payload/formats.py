"""What the formats of payloads have in common, JSON, and the encoder of rows."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rillet.client.errors import ConnectorError
from rillet.extras import require
from rillet.spark.column_types import unfitting
from rillet.spark.options import OptionError, Options

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

Decode = Callable[[bytes], Any]
Encode = Callable[[dict[str, Any]], bytes]


class Format:
    """The format of a payload with its schema; Spark pickles it with every task."""

    title = ""  # for messages: "avro flights.Flight"
    source = ""  # for messages: "the Avro schema"

    def types(self, columns: StructType) -> Mapping[str, Callable[[], DataType]]:
        """Return a function for the type of each field, which raises OptionError if Spark has no such type.

        columns: those of the user's schema that the payload fills.
        """
        raise NotImplementedError

    def required(self) -> Sequence[str]:
        """Return the fields that a row must have a column for."""
        return ()

    def decoder(self, columns: StructType) -> Decode:
        """Return a function that converts a payload to a dict of columns; it raises an exception for bad bytes."""
        raise NotImplementedError

    def encoder(self, columns: StructType) -> Encode:
        """Return a function that converts a row, a dict, to a payload; it raises an exception for a bad row."""
        raise NotImplementedError

    def problems(self, columns: StructType, reading: bool) -> list[str]:
        """Return an error message for each column, or part of one, that the payload cannot fill, or be filled by."""
        types = self.types(columns)
        problems = []
        for column in columns.fields:
            if column.name not in types:
                problems.append(f"column {column.name!r} is not in {self.source}, which has {', '.join(types)}")
                continue
            try:
                kind = types[column.name]()
            except OptionError as error:
                problems.append(str(error).removeprefix("rillet: "))
            else:
                problems += unfitting(column.name, column.dataType, kind, self.source, reading)
        return problems


def format_of(options: Options, writing: bool = False) -> Format:
    """Return the format that the options name, with its schema from the options or the registry, on the driver."""
    if options.payload == "json":
        if writing and options.payload_schema is not None:
            raise OptionError("rillet: leave out payloadSchema: payload=json is written with the columns of the rows")
        return JsonFormat()
    require(str(options.payload), f"payload={options.payload}")
    if options.payload == "avro":
        from rillet.spark.payload.avro import AvroFormat

        return AvroFormat.of(options, writing)
    from rillet.spark.payload.protobuf import ProtobufFormat

    return ProtobufFormat.of(options, writing)


class JsonFormat(Format):
    """A JSON object."""

    title, source = "json", "JSON"

    def types(self, columns: StructType) -> Mapping[str, Callable[[], DataType]]:
        """Return the types of the columns themselves, if JSON has them."""
        from rillet.columns.json_column import reader
        from rillet.spark.spark_versions import arrow_schema

        if reader(_struct(arrow_schema(columns))) is None:
            raise OptionError("rillet: payload=json: the keys of a map must be strings, and there is no variant")
        return {column.name: lambda kind=column.dataType: kind for column in columns.fields}  # type: ignore[misc]

    def decoder(self, columns: StructType) -> Decode:
        """Return a function that parses an object by the rules of JSON columns."""
        from rillet.columns.json_column import reader
        from rillet.spark.spark_versions import arrow_schema

        read = reader(_struct(arrow_schema(columns)))
        assert read is not None
        return read

    def encoder(self, columns: StructType) -> Encode:
        """Return a function that writes an object without its nulls, as `to_json`; decimals are strings."""

        write = json.JSONEncoder(default=_json, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode

        def encode(row: dict[str, Any]) -> bytes:
            row = {name: value for name, value in row.items() if value is not None}
            try:
                return write(row).encode()
            except ValueError:  # NaN and infinities
                return write(_finite(row)).encode()

        return encode


def _struct(schema: Any) -> Any:
    import pyarrow as pa

    return pa.struct(list(schema))


def _json(value: Any) -> str:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.isoformat(timespec="microseconds")
        return value.astimezone(timezone.utc).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    return f"{value:f}" if isinstance(value, Decimal) else base64.b64encode(value).decode()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


class PayloadEncoder:
    """Encodes the payload's columns of a row; Spark pickles it with every task."""

    def __init__(self, options: Options, columns: Mapping[str, str], schema: StructType) -> None:
        """columns: the name in the payload of each column to write. schema: of the rows."""
        from pyspark.sql.types import StructField, StructType

        self.field = options.payload_field
        self.columns = dict(columns)
        self.struct = StructType([StructField(name, schema[column].dataType) for column, name in columns.items()])
        self.format = format_of(options, writing=True)
        wrong = self.format.problems(self.struct, reading=False)
        if missing := [name for name in self.format.required() if name not in self.columns.values()]:
            wrong.append(f"{self.format.source} needs a column for {', '.join(missing)}, without a default")
        if wrong:
            raise OptionError(f"rillet: the columns do not fit {self.format.source}: {'; '.join(wrong)}")

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the function, which a task makes."""
        return {name: value for name, value in self.__dict__.items() if name != "_encode"}

    def payloads(self, batch: Any) -> Any:
        """Return the payloads of a record batch's rows as an Arrow array; ConnectorError if a row does not fit."""
        import pyarrow as pa

        encode = self.__dict__.get("_encode") or self.__dict__.setdefault("_encode", self.format.encoder(self.struct))
        arrays = [batch.column(column) for column in self.columns]
        table = pa.RecordBatch.from_arrays(arrays, list(self.columns.values()))
        # The argument slows pyarrow down, also where there is no map.
        rows = table.to_pylist(maps_as_pydicts="strict") if "map<" in str(table.schema) else table.to_pylist()
        try:
            return pa.array(map(encode, rows), pa.binary())
        except Exception as error:  # the libraries raise many kinds
            raise ConnectorError(f"rillet: a row does not fit {self.format.title}: {one_line(error)}") from None


def one_line(error: BaseException) -> str:
    """Return what an exception of a format's library says, shortened."""
    text = " ".join(str(error).split()) or ("the bytes end too early" if isinstance(error, EOFError) else "")
    return (text[:200] + "..." if len(text) > 200 else text) or type(error).__name__
