"""Avro payloads, by fastavro.

Spark's types of Avro's:

    boolean, int, long, float, double, string, bytes     the same; enum: string; fixed: binary
    date, timestamp-millis and -micros                   date, timestamp; local-timestamp-...: timestamp_ntz
    decimal                                              decimal, up to 38 digits
    uuid                                                 string
    time-..., timestamp-nanos, duration, others          those of the type beneath: int, long, binary
    record, array, map                                   struct, array, map
    union of one of these and null                       the same; int with long: bigint, float with double: double

Other unions, null alone and records that contain themselves are refused, with the field's name.

A payload is resolved: fastavro reads it with the writer's schema (by the ID before it, if there is a registry) into the
reader's, which has the fields of the user's columns only. So others are skipped, and need not be compatible.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from rillet.spark.options import OptionError, Options
from rillet.spark.payload.formats import Decode, Encode, Format
from rillet.spark.payload.registry import HEADER, NotRegistered, Registry, header_of, schema_number, subject_of

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

Schema = dict[str, Any]
_NAMED = ("record", "error", "enum", "fixed")
_LOGICAL = {
    ("int", "date"), ("long", "timestamp-millis"), ("long", "timestamp-micros"), ("long", "local-timestamp-millis"),
    ("long", "local-timestamp-micros"), ("bytes", "decimal"), ("fixed", "decimal"),
}  # fmt: skip


@dataclass(frozen=True)
class AvroFormat(Format):
    """A record of an Avro schema."""

    schema: Schema  # the reader's, or that to write with, complete in itself
    registry: Registry | None = None
    number: int = 0  # the schema's ID in the registry, if rows are written
    writers: dict[int, Schema] = field(default_factory=dict)  # by ID: the schemas that the driver has seen

    source = "the Avro schema"

    @property
    def title(self) -> str:  # type: ignore[override]
        """Return the name of the format and of the record."""
        return f"avro {self.schema['name']}"

    @classmethod
    def of(cls, options: Options, writing: bool) -> AvroFormat:
        """Return the format with the schema of the options, or with the latest of the registry's subject."""
        registry = Registry.of(options)
        if options.payload_schema is not None:
            text = options.payload_schema
            if text.lstrip()[:1] not in ('"', "[", "{"):
                text = _content(text)
            made = cls(_schema(text, (), "payloadSchema"), registry)
            if registry is not None and writing:
                made = replace(made, number=registry.register(subject_of(options), "AVRO", text))
            elif registry is not None:
                registry.require_answer()
            return made
        assert registry is not None  # the options require one of both
        subject = subject_of(options)
        found = registry.latest(subject)
        if found.kind != "AVRO":
            raise OptionError(f"rillet: the subject {subject!r} at {registry.place} has a schema of type {found.kind}")
        schema = _schema(found.text, found.references, f"the latest schema of {subject!r}")
        return cls(schema, registry, found.number, {found.number: schema})

    def types(self, columns: StructType) -> Mapping[str, Callable[[], DataType]]:
        """Return a function for the type of each field of the record."""
        named = _definitions(self.schema, {})
        within = (self.schema["name"],)
        return {one["name"]: lambda one=one: _type(one["type"], one["name"], named, within)  # type: ignore[misc]
                for one in self.schema["fields"]}  # fmt: skip

    def required(self) -> Sequence[str]:
        """Return the fields without a default that cannot be null."""
        return [one["name"] for one in self.schema["fields"] if "default" not in one and not _nullable(one["type"])]

    def decoder(self, columns: StructType) -> Decode:
        """Return a function that resolves a payload into the columns."""
        named = _definitions(self.schema, {})
        wanted = [one for one in self.schema["fields"] if one["name"] in columns.names]
        reader = _complete({**self.schema, "fields": wanted}, named, set())
        checks = [(one["name"], check) for one in wanted if (check := _checked(one["type"], named)) is not None]

        def pair(writer: Schema) -> tuple[Any, Any]:
            return parse_schema(writer), None if writer == reader else parse_schema(reader)

        pairs = {header_of(number): pair(schema) for number, schema in self.writers.items()}
        if self.registry is None:
            pairs[b""] = pair(self.schema)
        start = 0 if self.registry is None else HEADER
        wrong: dict[bytes, str] = {}  # by header: why there is no schema

        def decode(data: bytes) -> Any:
            header = data[:start]
            if header not in pairs:
                if header in wrong:
                    raise ValueError(wrong[header])
                try:
                    pairs[header] = pair(self._writer(header))
                except (NotRegistered, OptionError, ValueError) as error:
                    wrong[header] = str(error).removeprefix("rillet: ")
                    raise ValueError(wrong[header]) from None
            stream = BytesIO(data)
            stream.seek(start)
            row: Any = schemaless_reader(stream, *pairs[header])
            if stream.tell() != len(data):
                raise ValueError(f"{len(data) - stream.tell()} bytes follow the record")
            for name, check in checks:
                row[name] = check(row[name])
            return row

        return decode

    def _writer(self, header: bytes) -> Schema:
        """Return the schema with the ID in a header."""
        assert self.registry is not None
        number = schema_number(header)
        found = self.registry.by_number(number)
        if found.kind != "AVRO":
            raise ValueError(f"the schema with the ID {number} is of type {found.kind}")
        return _schema(found.text, found.references, f"the schema with the ID {number}")

    def encoder(self, columns: StructType) -> Encode:
        """Return a function that writes a row, after the schema's ID if there is a registry."""
        schema = parse_schema(self.schema)
        header = b"" if self.registry is None else header_of(self.number)

        def encode(row: dict[str, Any]) -> bytes:
            stream = BytesIO()
            stream.write(header)
            schemaless_writer(stream, schema, row)
            return stream.getvalue()

        return encode


def _content(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise OptionError(f"rillet: payloadSchema is neither JSON nor a file: {error}") from None


def _schema(text: str, references: Sequence[tuple[str, str]], what: str) -> Schema:
    """Return a record's schema with the definitions that it refers to; OptionError if the text is none."""
    named: dict[str, Any] = {}
    try:
        for _, one in references:
            parse_schema(json.loads(one), named)
        parsed: Any = parse_schema(json.loads(text), named)
        schema = _complete(parsed, named, set())
    except Exception as error:  # fastavro has several, without a common class
        raise OptionError(f"rillet: {what} is not an Avro schema: {type(error).__name__}: {error}") from None
    if not isinstance(schema, dict) or schema["type"] != "record":
        raise OptionError(f"rillet: {what} is not the schema of an Avro record")
    return schema


def _complete(node: Any, named: Mapping[str, Any], done: set[str]) -> Any:
    """Return a parsed schema in which a name's first use is its definition, without logical types that are ignored."""
    if isinstance(node, str):
        if node not in named or node in done:
            return node
        node = named[node]
    if isinstance(node, list):
        return [_complete(one, named, done) for one in node]
    kind = node["type"]
    if not isinstance(kind, str) or kind in named:  # {"type": {"type": ...}}
        return _complete(kind, named, done)
    if kind in _NAMED and node["name"] in done:
        return node["name"]
    node = {key: value for key, value in node.items() if not key.startswith("__")}
    if "logicalType" in node and (kind, node["logicalType"]) not in _LOGICAL:
        del node["logicalType"]
    if kind in _NAMED:
        done.add(node["name"])
    for key in ("items", "values"):
        if key in node:
            node[key] = _complete(node[key], named, done)
    if kind in ("record", "error"):
        node["fields"] = [{**one, "type": _complete(one["type"], named, done)} for one in node["fields"]]
    return node


def _definitions(node: Any, found: dict[str, Any]) -> dict[str, Any]:
    """Return the named types that are defined in a schema."""
    if isinstance(node, list):
        for one in node:
            _definitions(one, found)
    elif isinstance(node, dict):
        if node["type"] in _NAMED:
            found[node["name"]] = node
        for one in (node.get("items"), node.get("values"), *(each["type"] for each in node.get("fields", ()))):
            _definitions(one, found)
    return found


def _nullable(node: Any) -> bool:
    return node == "null" or (isinstance(node, list) and "null" in node)


def _only(node: Any) -> Any:
    """Return the type in a union besides null, the wider one of two numbers; a union that has others unchanged."""
    if not isinstance(node, list):
        return node
    others = [one for one in node if one != "null"]
    for wide in ("long", "double"):
        if wide in others and all(one in ("int" if wide == "long" else "float", wide) for one in others):
            return wide
    return others[0] if len(others) == 1 else node


def _type(node: Any, path: str, named: Mapping[str, Any], within: tuple[str, ...]) -> DataType:
    """Return Spark's type for a schema; OptionError with the path to what it lacks."""
    from pyspark.sql import types

    node = _only(node)
    if isinstance(node, list) or node == "null":
        what = f"a union of {', '.join(map(_name, node))}" if isinstance(node, list) else "always null"
        raise OptionError(f"rillet: the field {path!r} of the Avro schema is {what}: no type of a column can hold it")
    if isinstance(node, str) and node in named:
        node = named[node]
    kind = node if isinstance(node, str) else node["type"]
    logical = None if isinstance(node, str) else node.get("logicalType")
    if logical == "decimal":
        if node["precision"] > 38:
            raise OptionError(f"rillet: the field {path!r} of the Avro schema is a decimal of {node['precision']} "
                              "digits: a column has 38 at most")  # fmt: skip
        return types.DecimalType(node["precision"], node.get("scale", 0))
    if logical is not None:
        ntz = types.TimestampNTZType() if logical.startswith("local") else types.TimestampType()
        return types.DateType() if logical == "date" else ntz
    if kind == "array":
        return types.ArrayType(_type(node["items"], f"{path}.element", named, within))
    if kind == "map":
        return types.MapType(types.StringType(), _type(node["values"], f"{path}.value", named, within))
    if kind == "record":
        if node["name"] in within:
            raise OptionError(f"rillet: the field {path!r} of the Avro schema is a {node['name']} inside itself: no "
                              "type of a column can hold it")  # fmt: skip
        inner = (*within, node["name"])
        parts = [(one["name"], _type(one["type"], f"{path}.{one['name']}", named, inner)) for one in node["fields"]]
        return types.StructType([types.StructField(*part) for part in parts])
    plain = {"boolean": types.BooleanType, "int": types.IntegerType, "long": types.LongType, "float": types.FloatType,
             "double": types.DoubleType, "bytes": types.BinaryType, "fixed": types.BinaryType}  # fmt: skip
    return plain.get(kind, types.StringType)()


def _name(node: Any) -> str:
    return node if isinstance(node, str) else str(node.get("name") or node["type"])


def _checked(node: Any, named: Mapping[str, Any]) -> Callable[[Any], Any] | None:
    """Return a function that rejects what fastavro returns and the column's Arrow type cannot hold; None if nothing."""
    node = _only(node)
    node = named.get(node, node) if isinstance(node, str) else node
    if node == "int":
        return _int
    if isinstance(node, (str, list)):
        return None
    kind, logical = node["type"], node.get("logicalType")
    if logical == "decimal":
        return _decimal(node["precision"], node.get("scale", 0))
    if logical is not None:
        return _moment
    if kind == "int":
        return _int
    if kind in ("array", "map"):
        inner = _checked(node["items" if kind == "array" else "values"], named)
        return None if inner is None else _array(inner) if kind == "array" else _map(inner)
    if kind == "record":
        checks = [(one["name"], check) for one in node["fields"] if (check := _checked(one["type"], named)) is not None]
        return _record(checks) if checks else None
    return None


def _array(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: value if value is None else [check(one) for one in value]


def _map(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: value if value is None else {name: check(one) for name, one in value.items()}


def _record(checks: Sequence[tuple[str, Callable[[Any], Any]]]) -> Callable[[Any], Any]:
    def record(value: Any) -> Any:
        if value is not None:
            for name, check in checks:
                value[name] = check(value[name])
        return value

    return record


def _int(value: Any) -> Any:
    if value is not None and not -(1 << 31) <= value < 1 << 31:
        raise ValueError(f"{value} is not an int")
    return value


def _moment(value: Any) -> Any:
    if isinstance(value, int):  # the writer's schema has no logical type
        raise ValueError("the writer's schema has a number in place of a date or timestamp")
    return value


def _decimal(precision: int, scale: int) -> Callable[[Any], Any]:
    bound = Decimal(10) ** (precision - scale)

    def decimal(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, Decimal) or abs(value) >= bound or -int(value.as_tuple().exponent) > scale:
            raise ValueError(f"{value!r} is not a decimal({precision},{scale})")
        return value

    return decimal
