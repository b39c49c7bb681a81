"""What the formats of payloads have in common, and JSON."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rillet.spark.column_types import unfitting
from rillet.spark.options import OptionError

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


def one_line(error: BaseException) -> str:
    """Return what an exception of a format's library says, shortened."""
    text = " ".join(str(error).split()) or ("the bytes end too early" if isinstance(error, EOFError) else "")
    return (text[:200] + "..." if len(text) > 200 else text) or type(error).__name__
