"""What the tests of payload formats share: schemas of flights, rows, and reading and writing without Spark."""

from __future__ import annotations

import pickle
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from pyspark.sql.types import StructType

from rillet.spark.options import parse
from rillet.spark.source import BatchReader, RilletDataSource

UTC = timezone.utc
AVRO: dict[str, Any] = {
    "type": "record", "name": "Flight", "namespace": "air", "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "delay", "type": ["null", "int"], "default": None},
        {"name": "departed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "scheduled", "type": ["null", {"type": "long", "logicalType": "local-timestamp-micros"}]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "origin", "type": {"type": "record", "name": "Airport", "fields": [
            {"name": "code", "type": "string"}, {"name": "gates", "type": {"type": "array", "items": "int"}}]}},
        {"name": "target", "type": ["null", "Airport"]},
        {"name": "seats", "type": {"type": "map", "values": "long"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["planned", "landed"]}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "id", "type": "long"},
    ],
}  # fmt: skip
AVRO_COLUMNS = (
    "carrier:string,delay:int,departed:timestamp,scheduled:timestamp_ntz,day:date,price:decimal(6,2),"
    "origin:struct<code:string,gates:array<int>>,target:struct<code:string,gates:array<int>>,seats:map<string,bigint>,"
    "state:string,key:string,hash:binary,id_field:bigint"
)
_AIRPORT = pa.struct([("code", pa.string()), ("gates", pa.list_(pa.int32()))])
_JFK = {"code": "JFK", "gates": [1, 7]}


def avro_rows() -> pa.Table:
    """Return two rows with the fields of AVRO."""
    return pa.table({
        "carrier": ["UA", "Ä"], "delay": pa.array([-3, None], pa.int32()),
        "departed": pa.array([datetime(2013, 1, 1, 5, 15, 0, 250000, UTC)] * 2, pa.timestamp("us", "UTC")),
        "scheduled": pa.array([datetime(2013, 1, 1, 5, 14, 59, 123456), None], pa.timestamp("us")),
        "day": pa.array([date(1969, 12, 31), date(2013, 1, 1)], pa.date32()),
        "price": pa.array([Decimal("-1.05"), Decimal("9999.99")], pa.decimal128(6, 2)),
        "origin": pa.array([_JFK, {"code": "LGA", "gates": []}], _AIRPORT), "target": pa.array([None, _JFK], _AIRPORT),
        "seats": pa.array([[("a", 1), ("b", 1 << 40)], []], pa.map_(pa.string(), pa.int64())),
        "state": ["landed", "planned"], "key": ["6f1c1c6e-0000-4000-8000-000000000001"] * 2,
        "hash": [b"\0\1\2\xff"] * 2, "id": [1, -(1 << 63)],
    })  # fmt: skip


def _field(
    name: str, number: int, kind: str, of: str = "", repeated: bool = False, **more: Any
) -> FieldDescriptorProto:
    label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
    kind = f"TYPE_{kind.upper()}"
    return FieldDescriptorProto(name=name, number=number, type=kind, label=label, type_name=of or None, **more)


def proto_file() -> FileDescriptorProto:
    """Return the file flight.proto, as protoc would:

    message Airport { string code = 1; repeated int32 gates = 2; }
    message Flight {
      enum State { planned = 0; landed = 1; }
      message Seat { uint64 number = 1; }
      string carrier = 1;  optional int32 delay = 2;  google.protobuf.Timestamp departed = 3;  Airport origin = 4;
      map<string, Seat> seats = 5;  State state = 6;  google.protobuf.Int64Value weight = 7;
      oneof place { string gate = 8; uint32 stand = 9; }  bytes hash = 10;  repeated State states = 11;
      map<int32, double> prices = 12;  uint64 id = 13;
    }
    """
    entry = {"map_entry": True}
    of = ".air.Flight"
    airport = DescriptorProto(
        name="Airport", field=[_field("code", 1, "string"), _field("gates", 2, "int32", "", True)]
    )
    flight = DescriptorProto(
        name="Flight",
        enum_type=[{"name": "State", "value": [{"name": "planned", "number": 0}, {"name": "landed", "number": 1}]}],
        nested_type=[
            DescriptorProto(name="Seat", field=[_field("number", 1, "uint64")]),
            DescriptorProto(name="SeatsEntry", options=entry, field=[
                _field("key", 1, "string"), _field("value", 2, "message", f"{of}.Seat")]),
            DescriptorProto(name="PricesEntry", options=entry, field=[
                _field("key", 1, "int32"), _field("value", 2, "double")]),
        ],
        field=[
            _field("carrier", 1, "string"), _field("delay", 2, "int32", proto3_optional=True, oneof_index=1),
            _field("departed", 3, "message", ".google.protobuf.Timestamp"),
            _field("origin", 4, "message", ".air.Airport"),
            _field("seats", 5, "message", f"{of}.SeatsEntry", True), _field("state", 6, "enum", f"{of}.State"),
            _field("weight", 7, "message", ".google.protobuf.Int64Value"), _field("gate", 8, "string", oneof_index=0),
            _field("stand", 9, "uint32", oneof_index=0), _field("hash", 10, "bytes"),
            _field("states", 11, "enum", f"{of}.State", True),
            _field("prices", 12, "message", f"{of}.PricesEntry", True), _field("id", 13, "uint64"),
        ],
        oneof_decl=[{"name": "place"}, {"name": "_delay"}],
    )  # fmt: skip
    imports = ["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"]
    return FileDescriptorProto(name="flight.proto", package="air", syntax="proto3", dependency=imports,
                               message_type=[airport, flight])  # fmt: skip


PROTO_COLUMNS = (
    "carrier:string,delay:int,departed:timestamp,origin:struct<code:string,gates:array<int>>,"
    "seats:map<string,struct<number:decimal(20,0)>>,state:string,weight:bigint,gate:string,stand:bigint,hash:binary,"
    "states:array<string>,prices:map<int,double>,id_field:decimal(20,0)"
)


def proto_rows() -> pa.Table:
    """Return two rows with the fields of the message Flight."""
    seat = pa.struct([("number", pa.decimal128(20, 0))])
    return pa.table({
        "carrier": ["UA", ""], "delay": pa.array([0, None], pa.int32()),
        "departed": pa.array([datetime(1969, 12, 31, 23, 59, 59, 123456, UTC), None], pa.timestamp("us", "UTC")),
        "origin": pa.array([_JFK, None], _AIRPORT),
        "seats": pa.array([[("a", {"number": Decimal(2**64 - 1)})], []], pa.map_(pa.string(), seat)),
        "state": ["landed", "planned"], "weight": pa.array([0, None], pa.int64()), "gate": ["", None],
        "stand": pa.array([None, 2**32 - 1], pa.int64()), "hash": [b"\xff\0", b""],
        "states": pa.array([["planned", "landed"], []], pa.list_(pa.string())),
        "prices": pa.array([[(-1, 0.5)], []], pa.map_(pa.int32(), pa.float64())),
        "id": pa.array([Decimal(2**64 - 1), Decimal(0)], pa.decimal128(20, 0)),
    })  # fmt: skip


def descriptor_set(folder: Path) -> str:
    """Write the descriptor set of flight.proto, without the files that it imports; return its path."""
    path = folder / "flight.desc"
    path.write_bytes(FileDescriptorSet(file=[proto_file()]).SerializeToString())
    return str(path)


def inferred(options: dict[str, str]) -> StructType:
    """Return the schema of a user who gives none."""
    schema = RilletDataSource(dict(options)).schema()
    assert isinstance(schema, StructType)
    return schema


def read(options: dict[str, str], schema: StructType | None = None) -> list[dict[str, Any]]:
    """Return the rows that the tasks of a batch read yield."""
    reader = BatchReader(parse(options), inferred(options) if schema is None else schema, 2)
    reader, partitions = pickle.loads(pickle.dumps((reader, reader.partitions())))
    return [
        row for one in partitions for batch in reader.read(one) for row in batch.to_pylist(maps_as_pydicts="strict")
    ]


def values(rows: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table as `read` returns them after writing: with id_field in place of id."""
    found = rows.to_pylist(maps_as_pydicts="strict")
    return [{"id_field" if name == "id" else name: value for name, value in row.items()} for row in found]
