"""Payloads of one field, as JSON, Avro and Protobuf, with and without a schema registry."""

from __future__ import annotations

import json
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")
pytest.importorskip("fastavro")
pytest.importorskip("confluent_kafka")

from confluent_kafka.schema_registry import SchemaRegistryClient  # noqa: E402
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer  # noqa: E402
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer  # noqa: E402
from confluent_kafka.serialization import MessageField, SerializationContext  # noqa: E402
from google.protobuf.descriptor_pool import DescriptorPool  # noqa: E402
from google.protobuf.message_factory import GetMessageClass  # noqa: E402
from google.protobuf.timestamp_pb2 import DESCRIPTOR as TIMESTAMP_FILE  # noqa: E402
from google.protobuf.wrappers_pb2 import DESCRIPTOR as WRAPPERS_FILE  # noqa: E402
from pyspark.sql.types import (  # noqa: E402
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rillet.client.errors import ConnectorError  # noqa: E402
from rillet.columns.arrow_batch import NullValue  # noqa: E402
from rillet.columns.row_builder import BadValue  # noqa: E402
from rillet.spark.options import OptionError, parse  # noqa: E402
from rillet.spark.payload.registry import NotRegistered, RegistryError  # noqa: E402
from rillet.spark.payload.registry import _clients as registry_clients  # noqa: E402
from rillet.spark.read.unknown_fields import UnknownField  # noqa: E402
from rillet.spark.sink import BatchWriter  # noqa: E402
from tests.judge import Judge  # noqa: E402
from tests.spark.payloads import (  # noqa: E402
    AVRO,
    AVRO_COLUMNS,
    PROTO_COLUMNS,
    avro_rows,
    descriptor_set,
    inferred,
    proto_file,
    proto_rows,
    read,
    values,
)
from tests.spark.schema_registry import SchemaRegistry, running_registry  # noqa: E402
from tests.spark.writing import batch_writer_of, write  # noqa: E402

pytestmark = pytest.mark.slow
QUICK = json.dumps({"max.retries": 0})
CONTEXT = SerializationContext("flights", MessageField.VALUE)


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with running_registry() as found:
        yield found
        for client in registry_clients.values():
            client.close()
        registry_clients.clear()


@pytest.fixture
def given(url: str) -> dict[str, str]:
    """The options of a stream of flights."""
    return {"url": url, "stream": "flights"}


def with_registry(given: dict[str, str], registry: SchemaRegistry, kind: str = "avro", **more: str) -> dict[str, str]:
    found = {**given, "payload": kind, "schemaRegistry": registry.url, "schemaRegistryOptions": QUICK, **more}
    return {name: value for name, value in found.items() if value}


def payloads(judge: Judge, stream: str = "flights", field: bytes = b"payload") -> list[bytes]:
    found = entries(judge, stream)
    assert {tuple(one) for one in found} <= {(field,)}
    return [one[field] for one in found]


def entries(judge: Judge, stream: str = "bad") -> list[dict[bytes, bytes]]:
    with judge.client() as client:
        found = client.execute_command("XRANGE", stream, "-", "+")
    return [dict(zip(fields[::2], fields[1::2], strict=True)) for _, fields in found]


def put(judge: Judge, *found: bytes, stream: str = "flights") -> None:
    with judge.client() as client:
        for one in found:
            client.xadd(stream, {"payload": one})


def of_payload(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in ("id", "timestamp")} for row in rows]


def message_class() -> Any:
    """Return the class of the message Flight, made as a generated module makes it."""
    pool = DescriptorPool()
    for file in (TIMESTAMP_FILE, WRAPPERS_FILE):
        pool.AddSerializedFile(file.serialized_pb)
    pool.Add(proto_file())
    return GetMessageClass(pool.FindMessageTypeByName("air.Flight"))


# ---- rows that are written are read ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["plain", "file", "registered", "latest"])
def test_avro(given: dict[str, str], registry: SchemaRegistry, judge: Judge, tmp_path: Path, form: str) -> None:
    schema = json.dumps(AVRO)
    if form in ("plain", "file"):
        (tmp_path / "flight.avsc").write_text(schema)
        given = {**given, "payload": "avro",
                 "payloadSchema": schema if form == "plain" else str(tmp_path / "flight.avsc")}  # fmt: skip
    else:
        given = with_registry(given, registry)
    if form == "latest":
        registry.add("flights-value", {**AVRO, "fields": AVRO["fields"][:1]})
        registry.add("flights-value", AVRO)
    write(avro_rows(), {**given, "payloadSchema": schema} if form == "registered" else given)
    assert inferred(given).simpleString() == f"struct<id:string,timestamp:timestamp,{AVRO_COLUMNS}>"
    assert of_payload(read(given)) == values(avro_rows())
    found = payloads(judge)
    if form in ("registered", "latest"):
        assert found[0][:5] == b"\0" + registry.subjects["flights-value"][-1].to_bytes(4, "big")


@pytest.mark.parametrize("form", ["plain", "registered", "latest"])
def test_protobuf(
    given: dict[str, str],
    registry: SchemaRegistry,
    client: SchemaRegistryClient,
    judge: Judge,
    tmp_path: Path,
    form: str,
) -> None:
    named = {"payloadSchema": descriptor_set(tmp_path), "payloadMessage": "air.Flight"}
    if form == "plain":
        given = {**given, "payload": "protobuf", **named}
    else:
        given = with_registry(given, registry, "protobuf", payloadMessage="air.Flight")
    if form == "latest":
        made = message_class()
        ProtobufSerializer(made, client, {"use.deprecated.format": False})(made(), CONTEXT)
    write(proto_rows(), {**given, **named} if form == "registered" else given)
    assert inferred(given).simpleString() == f"struct<id:string,timestamp:timestamp,{PROTO_COLUMNS}>"
    assert of_payload(read(given)) == values(proto_rows())
    start = b"" if form == "plain" else b"\0" + registry.subjects["flights-value"][0].to_bytes(4, "big") + b"\2\2"
    assert [one.startswith(start) for one in payloads(judge)] == [True, True]


@pytest.fixture
def client(registry: SchemaRegistry) -> Iterator[SchemaRegistryClient]:
    """The registry's client of Confluent, without rillet."""
    with SchemaRegistryClient({"url": registry.url, "max.retries": 0}) as found:
        yield found


def test_json(given: dict[str, str], judge: Judge) -> None:
    rows = avro_rows().append_column("rate", pa.array([float("nan"), 0.1]))
    given = {**given, "payload": "json", "payloadField": "body"}
    write(rows, given)
    first, second = payloads(judge, field=b"body")
    assert json.loads(first) == {
        "carrier": "UA", "delay": -3, "departed": "2013-01-01T05:15:00.250000Z",
        "scheduled": "2013-01-01T05:14:59.123456", "day": "1969-12-31", "price": "-1.05",
        "origin": {"code": "JFK", "gates": [1, 7]}, "seats": {"a": 1, "b": 1 << 40},
        "state": "landed", "key": "6f1c1c6e-0000-4000-8000-000000000001", "hash": "AAEC/w==", "id": 1, "rate": "NaN",
    }  # fmt: skip
    assert '"carrier":"Ä"' in second.decode()
    schema = inferred({**given, "payload": "avro", "payloadSchema": json.dumps(AVRO), "payloadField": "body"})
    schema.add("rate", DoubleType())
    found = of_payload(read(given, schema))
    assert str(found[0].pop("rate")) == "nan"
    assert found[1].pop("rate") == 0.1
    assert found == values(avro_rows())


def test_json_without_a_schema_of_the_user(given: dict[str, str]) -> None:
    from rillet.spark.source import RilletDataSource

    given = {**given, "payload": "json"}
    with pytest.raises(OptionError, match=r"^rillet: payload=json needs payloadSchema, or .schema"):
        RilletDataSource(dict(given)).schema()
    schema = RilletDataSource({**given, "payloadSchema": "carrier string, delay double"}).schema()
    assert schema == "id string, timestamp timestamp, carrier string, delay double"
    several = {"url": given["url"], "streams": "a,b", "payload": "json", "payloadSchema": "n int"}
    assert RilletDataSource(several).schema() == "stream string, id string, timestamp timestamp, n int"
    with pytest.raises(OptionError, match="leave out payloadSchema"):
        batch_writer_of(pa.table({"n": [1]}), {**given, "payloadSchema": "n int"})


# ---- interoperability -----------------------------------------------------------------------------------------------


def test_avro_of_confluents_client(
    given: dict[str, str], registry: SchemaRegistry, client: SchemaRegistryClient, judge: Judge
) -> None:
    options = with_registry(given, registry)
    records = [{**row, "id": row.pop("id_field")} for row in values(avro_rows())]
    serialize = AvroSerializer(client, json.dumps(AVRO))
    theirs = [serialize(record, CONTEXT) for record in records]
    put(judge, *theirs)
    assert of_payload(read(options)) == values(avro_rows())
    write(avro_rows(), {**options, "stream": "ours", "payloadSubject": "flights-value"})
    ours = payloads(judge, "ours")
    assert ours == theirs
    deserialize = AvroDeserializer(client)
    assert [deserialize(one, CONTEXT)["origin"] for one in ours] == [record["origin"] for record in records]


def test_protobuf_of_confluents_client(
    given: dict[str, str], registry: SchemaRegistry, client: SchemaRegistryClient, judge: Judge, tmp_path: Path
) -> None:
    options = with_registry(given, registry, "protobuf", payloadMessage="air.Flight")
    flight = message_class()
    settings = {"use.deprecated.format": False}
    write(proto_rows(), {**options, "payloadSchema": descriptor_set(tmp_path)})
    deserialize = ProtobufDeserializer(flight, settings, client)
    ours = payloads(judge)
    messages = [deserialize(one, CONTEXT) for one in ours]
    assert [(one.carrier, one.seats["a"].number, one.WhichOneof("place")) for one in messages] == [
        ("UA", 2**64 - 1, "gate"), ("", 0, "stand"),
    ]  # fmt: skip
    serialize = ProtobufSerializer(flight, client, settings)
    put(judge, *(serialize(one, CONTEXT) for one in messages), stream="theirs")
    theirs = {**options, "stream": "theirs", "payloadSubject": "flights-value"}
    assert of_payload(read(theirs))[0] == values(proto_rows())[0]


# ---- schemas that change --------------------------------------------------------------------------------------------


def flight(*fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Flight", "fields": [
        {"name": name, "type": kind, **(more[0] if more else {})} for name, kind, *more in fields]}  # fmt: skip


def test_records_of_other_schemas_are_resolved_by_id(
    given: dict[str, str], registry: SchemaRegistry, client: SchemaRegistryClient, judge: Judge
) -> None:
    options = with_registry(given, registry)
    one = flight(("carrier", "string"), ("delay", "int"))
    two = flight(("airline", "string"), ("delay", "int"), ("extra", {"type": "array", "items": "string"}))  # fmt: skip
    reader = flight(
        ("carrier", "string", {"aliases": ["airline"]}), ("delay", "long"), ("gate", "string", {"default": "?"})
    )
    serializers = [AvroSerializer(client, json.dumps(schema)) for schema in (one, two)]
    put(judge, *(serializers[0]({"carrier": "UA", "delay": n}, CONTEXT) for n in range(200)))
    put(judge, *(serializers[1]({"airline": "AA", "delay": n, "extra": ["x"]}, CONTEXT)
                 for n in range(200)))  # fmt: skip
    registry.add("flights-value", reader)
    registry.requests.clear()
    found = of_payload(read({**options, "minPartitions": "4"}))
    assert found == [{"carrier": carrier, "delay": n, "gate": "?"} for carrier in ("UA", "AA") for n in range(200)]
    ids = {name: count for name, count in registry.requests.items() if name.startswith("GET /schemas/ids/")}
    assert list(ids.values()) == [1, 1]  # four tasks in one process
    schema = StructType().add("delay", LongType())  # what is not read need not be compatible
    put(judge, AvroSerializer(client, json.dumps(flight(("delay", "int"))))({"delay": 7}, CONTEXT))
    assert read(options, schema)[-1] == {"delay": 7}


def test_an_unknown_id_is_asked_for_once(
    given: dict[str, str], registry: SchemaRegistry, judge: Judge, tmp_path: Path
) -> None:
    registry.add("flights-value", json.loads(SMALL))
    number = registry.add("other", '"string"')
    put(judge, *[b"\0\0\0\x27\x0f" + SOUND, b"\0" + number.to_bytes(4, "big") + b"\4UA"] * 50)
    options = with_registry(given, registry, mode="DROPMALFORMED")
    assert read(options, COLUMNS) == []
    options |= {"payload": "protobuf", "payloadSchema": descriptor_set(tmp_path), "payloadMessage": "air.Flight"}
    assert read(options, COLUMNS) == []
    asked = {name: count for name, count in registry.requests.items() if name.startswith("GET /schemas/ids/")}
    assert asked == {"GET /schemas/ids/9999": 2, f"GET /schemas/ids/{number}": 1}


def test_times_of_another_zone(given: dict[str, str], tmp_path: Path) -> None:
    """Spark's rows have the session's zone; half past two occurs twice in the night in which summer time ends."""
    moments = [datetime(2013, 10, 27, hour, 30, tzinfo=timezone.utc) for hour in (0, 1)]
    rows = pa.table({"departed": pa.array(moments, pa.timestamp("us", "Europe/Berlin"))})
    schema = StructType().add("departed", TimestampType())
    kind = {"type": "long", "logicalType": "timestamp-micros"}
    for more in (
        {"payload": "json"}, {"payload": "avro", "payloadSchema": json.dumps(flight(("departed", kind)))},
        {"payload": "protobuf", "payloadSchema": descriptor_set(tmp_path), "payloadMessage": "air.Flight"},
    ):  # fmt: skip
        options = {**given, **more, "stream": more["payload"]}
        write(rows, options)
        assert [row["departed"] for row in read(options, schema)] == moments


def test_schemas_that_refer_to_others(given: dict[str, str], registry: SchemaRegistry, judge: Judge) -> None:
    registry.add("airport", {"type": "record", "name": "Airport", "namespace": "air",
                             "fields": [{"name": "code", "type": "string"}]})  # fmt: skip
    refers = [{"name": "air.Airport", "subject": "airport", "version": 1}]
    registry.add(
        "flights-value", flight(("origin", "air.Airport"), ("target", ["null", "air.Airport"])), references=refers
    )
    options = with_registry(given, registry)
    airport = pa.struct([("code", pa.string())])
    rows = pa.table({"origin": pa.array([{"code": "JFK"}], airport), "target": pa.array([{"code": "LGA"}], airport)})
    write(rows, options)
    assert of_payload(read(options)) == rows.to_pylist()
    registry.add("flights-value", flight(("target", ["null", "air.Airport"])), references=refers)
    assert of_payload(read(options)) == [{"target": {"code": "LGA"}}]


def test_another_message_is_a_bad_record(
    given: dict[str, str], registry: SchemaRegistry, judge: Judge, tmp_path: Path
) -> None:
    options = with_registry(given, registry, "protobuf", payloadMessage="air.Airport",
                            payloadSchema=descriptor_set(tmp_path))  # fmt: skip
    write(pa.table({"code": ["JFK"]}), options)
    write(proto_rows(), {**options, "payloadMessage": "air.Flight"}, partition=1)
    put(judge, payloads(judge)[0][:5] + b"\2\x14", b"\0\0\0\0\1\x80")
    rows = read({**options, "badRecords": "stream:bad"})
    assert of_payload(rows) == [{"code": "JFK", "gates": []}]
    reasons = [one[b"reason"].decode().split(": ", 1)[1].split(": b")[0] for one in entries(judge)]
    assert reasons == ["the message is a air.Flight"] * 2 + [
        "the message indexes [10] lead to no message of the schema", "the message indexes are malformed"]  # fmt: skip


# ---- bad payloads ---------------------------------------------------------------------------------------------------

SMALL = json.dumps(flight(("carrier", "string"), ("delay", ["null", "int"])))
SOUND, TOO_SHORT, TOO_LONG, NO_INT = b"\4UA\2\6", b"\4UA", b"\4UA\2\6!", b"\4UA\2\xfe\xff\xff\xff\x7f"
COLUMNS = StructType().add("carrier", StringType()).add("delay", IntegerType())


@pytest.fixture
def bad(given: dict[str, str], judge: Judge) -> dict[str, str]:
    """The options of a stream with a sound payload and three others."""
    put(judge, TOO_SHORT, SOUND, TOO_LONG, NO_INT)
    return {**given, "payload": "avro", "payloadSchema": SMALL}


def test_bad_payloads_are_null(bad: dict[str, str]) -> None:
    schema = StructType([*COLUMNS.fields, StructField("_corrupt", StringType()),
                         StructField("raw", BinaryType(), metadata={"field": "payload"})])  # fmt: skip
    found = read(bad, schema)
    assert found[1] == {"carrier": "UA", "delay": 3, "_corrupt": None, "raw": SOUND}
    assert found[0] == {"carrier": None, "delay": None, "_corrupt": '{"payload": "\\u0004UA"}', "raw": TOO_SHORT}
    assert [row["raw"] for row in found] == [TOO_SHORT, SOUND, TOO_LONG, NO_INT]
    assert read({**bad, "mode": "DROPMALFORMED"}, COLUMNS) == [{"carrier": "UA", "delay": 3}]


def test_a_bad_payload_fails(bad: dict[str, str], judge: Judge) -> None:
    error = (
        r"entry .*, the field 'payload' is not of type avro Flight \(the bytes end too early\): '\\x04UA' \(mode FAIL"
    )
    with pytest.raises(BadValue, match=error):
        read({**bad, "mode": "FAILFAST"}, COLUMNS)


def test_bad_payloads_go_to_a_stream_as_they_are(bad: dict[str, str], judge: Judge) -> None:
    with judge.client() as client:
        client.xadd("flights", {"other": "1"})
    assert read({**bad, "badRecords": "stream:bad"}, COLUMNS) == [
        {"carrier": "UA", "delay": 3},
        dict.fromkeys(COLUMNS.names),
    ]
    assert [one[b"payload"] for one in entries(judge)] == [TOO_SHORT, TOO_LONG, NO_INT]
    assert [one[b"reason"].decode() for one in entries(judge)] == [
        f"the field 'payload' is not avro Flight: {why}: {data!r}" for why, data in (
            ("the bytes end too early", TOO_SHORT), ("1 bytes follow the record", TOO_LONG),
            (f"{2**34 - 1} is not an int", NO_INT))]  # fmt: skip
    raw = StructField("raw", BinaryType(), metadata={"field": "payload"})
    with pytest.raises(OptionError, match="leave out column 'raw': badRecords keeps the payload's bytes"):
        read({**bad, "badRecords": "stream:bad"}, StructType([*COLUMNS.fields, raw]))


def test_columns_that_are_not_null(bad: dict[str, str]) -> None:
    schema = StructType().add("carrier", StringType(), False)
    with pytest.raises(NullValue, match="column 'carrier' is declared NOT NULL, but 2 of 4 entries lack the field"):
        read(bad, schema)


def test_columns_of_the_entry_alone(bad: dict[str, str], judge: Judge) -> None:
    """The payload is not read."""
    assert len(read({**bad, "badRecords": "stream:bad"}, StructType().add("id", StringType()))) == 4
    assert entries(judge) == []


def test_delivered_payloads(bad: dict[str, str]) -> None:
    from rillet.spark.source import StreamingReader

    reader = StreamingReader(parse({**bad, "group": "g", "groupMode": "deliver"}), COLUMNS, 1)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    found = [batch for one in reader.partitions(start, end) for batch in reader.read(one)]
    reader.stop()
    assert pa.Table.from_batches(found).column("delay").to_pylist() == [None, 3, None, None]


def test_a_misspelled_field_of_the_entry(bad: dict[str, str]) -> None:
    with pytest.raises(UnknownField, match=r"none of 4 sampled entries .* has the field 'paylode' \(did you mean 'pay"):
        read({**bad, "payloadField": "paylode", "unknownFields": "fail"}, COLUMNS)


def test_bad_json(given: dict[str, str], judge: Judge) -> None:
    put(judge, b'{"delay": 1}', b'{"delay": "late"}', b"{", b"null")
    schema = StructType().add("delay", IntegerType())
    rows = read({**given, "payload": "json", "badRecords": "stream:bad"}, schema)
    assert rows == [{"delay": 1}, {"delay": None}]
    first, second = (one[b"reason"].decode() for one in entries(judge))
    assert first.startswith("the field 'payload' is not json: the value is not an integer in the column's range: b'{")
    assert "Expecting property name" in second


def test_payloads_without_a_schema_id(given: dict[str, str], registry: SchemaRegistry, judge: Judge) -> None:
    registry.add("flights-value", json.loads(SMALL))
    registry.add("other", "{}", "JSON")
    put(judge, SOUND, b"\0\0\0", b"\0\0\0\x27\x0f" + SOUND)
    assert read(with_registry(given, registry, badRecords="stream:bad"), COLUMNS) == []
    reasons = [one[b"reason"].decode() for one in entries(judge)]
    assert ["a schema ID is missing" in one for one in reasons] == [True, True, False]
    assert f"the schema registry at {registry.url} has no schema with the ID 9999" in reasons[2]


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_random_bytes_are_bad_or_a_record(given: dict[str, str], judge: Judge, tmp_path: Path, kind: str) -> None:
    """No payload fails a task: each becomes a row that Arrow can hold, or is a bad record."""
    from random import Random

    chance = Random(34)
    options = {**given, "payload": kind, "payloadSchema": json.dumps(AVRO)}
    rows = avro_rows()
    if kind == "protobuf":
        options |= {"payloadSchema": descriptor_set(tmp_path), "payloadMessage": "air.Flight"}
        rows = proto_rows()
    write(rows, options)
    options["batchEntries"] = "300"
    sound = payloads(judge)
    for _ in range(600):
        data = bytearray(chance.choice(sound))
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF, chance.randrange(256)))
        put(judge, bytes(data[: chance.choice((len(data), chance.randrange(len(data) + 1)))]))
    assert len(read(options)) == 602
    assert 2 < len(read({**options, "mode": "DROPMALFORMED"})) < 602


# ---- what cannot be mapped ------------------------------------------------------------------------------------------

NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (["string", "int"], "the field 'x' of the Avro schema is a union of string, int: no type"),
        (["null", "string", {"type": "array", "items": "int"}], "'x' .* a union of null, string, array"),
        ({"type": "map", "values": {"type": "array", "items": ["int", "boolean"]}}, "'x.value.element' .* a union of"),
        ("null", "the field 'x' of the Avro schema is always null"),
        (NODE, "the field 'x.next' of the Avro schema is a Node inside itself"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 40}, "'x' .* is a decimal of 40 digits"),
    ],
)
def test_fields_without_a_type_in_spark(given: dict[str, str], judge: Judge, kind: Any, error: str) -> None:
    put(judge, b"")
    given = {**given, "payload": "avro", "payloadSchema": json.dumps(flight(("x", kind), ("y", "int")))}
    with pytest.raises(OptionError, match=error) as caught:
        inferred(given)
    assert "\n" not in str(caught.value)
    assert read(given, StructType().add("y", IntegerType())) == [{"y": None}]
    with pytest.raises(OptionError, match=error):
        read(given, StructType().add("x", StringType()))


def test_numbers_of_two_widths(given: dict[str, str], judge: Judge) -> None:
    odd, time = {"type": "int", "logicalType": "odd"}, {"type": "long", "logicalType": "time-micros"}
    kinds = flight(("a", ["int", "null", "long"]), ("b", ["float", "double"]), ("c", odd), ("d", time))
    given = {**given, "payload": "avro", "payloadSchema": json.dumps(kinds)}
    assert inferred(given).simpleString().endswith("a:bigint,b:double,c:int,d:bigint>")
    rows = pa.table({"a": [1 << 40], "b": [0.1], "c": pa.array([1], pa.int32()), "d": [2]})
    write(rows, given)
    assert of_payload(read(given)) == rows.to_pylist()


def test_columns_that_do_not_fit(given: dict[str, str]) -> None:
    given = {**given, "payload": "avro", "payloadSchema": json.dumps(AVRO)}
    wrong = (StructType().add("karrier", StringType()).add("delay", StringType()).add("departed", LongType())
             .add("origin", StructType().add("kode", StringType()))
             .add("seats", MapType(StringType(), IntegerType())))  # fmt: skip
    with pytest.raises(OptionError) as caught:
        read(given, wrong)
    text = str(caught.value)
    for part in (
        "rillet: the schema does not fit the Avro schema: column 'karrier' is not in the Avro schema, which has",
        "column 'delay' is string, but the Avro schema has int",
        "column 'departed' is bigint, but the Avro schema has time",
        "column 'origin.kode' is not in the Avro schema, which has code, gates",
        "column 'seats.value' is int, but the Avro schema has bigint",
    ):  # fmt: skip
        assert part in text
    assert "\n" not in text


def test_wider_columns_and_parts_of_structs(given: dict[str, str]) -> None:
    given = {**given, "payload": "avro", "payloadSchema": json.dumps(AVRO)}
    write(avro_rows(), given)
    schema = StructType([StructField("delay", LongType()),
                         StructField("origin", StructType().add("code", StringType())),
                         StructField("id", LongType(), metadata={"payload": "id"}),
                         StructField("entry", TimestampType(), metadata={"payload": "departed"})])  # fmt: skip
    found = read(given, schema)
    assert [(row["delay"], row["origin"], row["id"]) for row in found] == [
        (-3, {"code": "JFK"}, 1), (None, {"code": "LGA"}, -(1 << 63))]  # fmt: skip
    assert found[0]["entry"].microsecond == 250000


def test_messages_without_a_type_in_spark(given: dict[str, str], judge: Judge, tmp_path: Path) -> None:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    from tests.spark.payloads import _field

    file = proto_file()
    file.message_type[0].field.append(_field("more", 3, "message", ".google.protobuf.Struct"))
    file.dependency.append("google/protobuf/struct.proto")
    path = tmp_path / "set"
    path.write_bytes(FileDescriptorSet(file=[file]).SerializeToString())
    given = {**given, "payload": "protobuf", "payloadSchema": str(path), "payloadMessage": "air.Flight"}
    with pytest.raises(OptionError, match="the field 'origin.more.fields.value.struct_value' .* inside itself"):
        inferred(given)
    put(judge, b"")
    assert read(given, StructType().add("carrier", StringType())) == [{"carrier": ""}]
    for more, error in (
        (
            {"payloadMessage": "air.Fligt"},
            "payloadMessage is 'air.Fligt': the descriptors have air.Airport, air.Flight$",
        ),
        ({"payloadSchema": str(tmp_path / "absent")}, "payloadSchema is not the path of a Protobuf descriptor set: "),
        ({"payloadSchema": __file__}, "payloadSchema is not the path of a Protobuf descriptor set: "),
    ):
        with pytest.raises(OptionError, match=error):
            inferred({**given, **more})
    file.dependency.append("other.proto")
    path.write_bytes(FileDescriptorSet(file=[file]).SerializeToString())
    with pytest.raises(
        OptionError, match="the Protobuf descriptors lack 'other.proto': protoc has the option --include_"
    ):
        inferred(given)


# ---- writing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"carrier": ["UA"], "day": [1]}, "column 'day' is not in the Avro schema, which has carrier, delay"),
        ({"carrier": ["UA"], "delay": ["1"]}, "column 'delay' is string, but the Avro schema has int"),
        ({"carrier": ["UA"], "delay": [1 << 40]}, "column 'delay' is bigint, but the Avro schema has int"),
        ({"delay": pa.array([1], pa.int32())}, "the Avro schema needs a column for carrier, without a default"),
    ],
)
def test_rows_that_do_not_fit(given: dict[str, str], columns: dict[str, Any], error: str) -> None:
    with pytest.raises(OptionError, match=f"^rillet: the columns do not fit the Avro schema: {error}"):
        batch_writer_of(pa.table(columns), {**given, "payload": "avro", "payloadSchema": SMALL})


@pytest.mark.parametrize(
    ("carrier", "state", "error"),
    [(None, "landed", "avro Flight: must be string on field carrier"), ("UA", "lost", "avro Flight: 'lost' is not in")],
)
def test_a_row_that_does_not_fit(given: dict[str, str], judge: Judge, carrier: Any, state: str, error: str) -> None:
    schema = flight(("carrier", "string"), ("state", {"type": "enum", "name": "S", "symbols": ["landed"]}))
    rows = pa.table({"carrier": pa.array(["AA", carrier]), "state": ["landed", state]})
    with pytest.raises(ConnectorError, match=f"^rillet: a row does not fit {error}"):
        write(rows, {**given, "payload": "avro", "payloadSchema": json.dumps(schema)})
    assert payloads(judge) == []


def test_a_message_has_no_nulls_in_lists(given: dict[str, str], tmp_path: Path) -> None:
    options = {
        **given,
        "payload": "protobuf",
        "payloadSchema": descriptor_set(tmp_path),
        "payloadMessage": "air.Flight",
    }
    for columns, error in (
        ({"states": [["landed", None]]}, "the field 'states' contains a null"), ({"state": ["lost"]}, "'lost'"),
        ({"stand": [-1]}, "-1"),
    ):  # fmt: skip
        with pytest.raises(ConnectorError, match=f"^rillet: a row does not fit protobuf air.Flight: .*{error}"):
            write(pa.table(columns), options)


def test_other_options_of_the_sink(given: dict[str, str], judge: Judge) -> None:
    """IDs, streams and names come from columns as they do without a payload; columns of a source are left out."""
    rows = pa.table({"id": ["1-1", "2-1", "3-1"], "to": ["a", "b", "a"], "airline": ["UA", "AA", "ÄÄ"]})
    options = {"url": given["url"], "payload": "avro", "payloadSchema": SMALL, "streamColumn": "to", "idColumn": "id"}
    write(rows, {**options, "fields": '{"airline": "carrier"}'})
    assert read({"url": given["url"], "streams": "a,b", "payload": "avro", "payloadSchema": SMALL},
                StructType().add("stream", StringType()).add("id", StringType()).add("carrier", StringType())) == [
        {"stream": "a", "id": "1-1", "carrier": "UA"}, {"stream": "a", "id": "3-1", "carrier": "ÄÄ"},
        {"stream": "b", "id": "2-1", "carrier": "AA"},
    ]  # fmt: skip
    back = pa.table({"id": ["1-1"], "timestamp": pa.array([1000], pa.timestamp("us", "UTC")), "carrier": ["UA"]})
    write(back, {**given, "payload": "avro", "payloadSchema": SMALL, "partitioned": "1"})
    assert len(payloads(judge, "flights:0")) == 1


# ---- the registry ---------------------------------------------------------------------------------------------------


def closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_errors_of_the_registry(given: dict[str, str], registry: SchemaRegistry, tmp_path: Path) -> None:
    options = with_registry(given, registry)
    rows = pa.table({"carrier": ["UA"]})
    place = f"^rillet: the schema registry at {registry.url} "
    for use in (lambda: inferred(options), lambda: read(options, COLUMNS), lambda: batch_writer_of(rows, options)):
        with pytest.raises(NotRegistered, match=f"{place}has no subject 'flights-value'$"):
            use()
    registry.add("flights-value", "{}", "JSON")
    with pytest.raises(OptionError, match="the subject 'flights-value' at .* has a schema of type JSON"):
        inferred(options)
    registry.auth = "ada:secret"
    with pytest.raises(RegistryError, match=f"{place}rejects subject 'flights-value': Unauthorized .HTTP status 401"):
        inferred(options)
    registry.add("flights-value", json.loads(SMALL))
    named = {**options, "schemaRegistryUser": "ada", "schemaRegistryPassword": "secret"}
    assert len(inferred(named).fields) == 4
    assert len(inferred({**options, "schemaRegistry": registry.url.replace("//", "//ada:secret@")}).fields) == 4
    assert "secret" not in repr(parse(named))
    registry.refuses = "Schema being registered is incompatible"
    with pytest.raises(RegistryError, match="rejects subject 'flights-value': Schema being registered is incompatible"):
        batch_writer_of(rows, {**named, "payloadSchema": json.dumps(flight(("carrier", "string")))})
    port = closed_port()
    for more in ({}, {"payloadSchema": SMALL}):
        with pytest.raises(
            RegistryError, match=f"^rillet: the schema registry at http://127.0.0.1:{port} is unreachable"
        ):
            read({**options, "schemaRegistry": f"http://ada:secret@127.0.0.1:{port}", **more}, COLUMNS)
    with pytest.raises(OptionError, match=r"schemaRegistry, schemaRegistryOptions: Unrecognized properties: odd"):
        inferred({**options, "schemaRegistryOptions": '{"odd": 1}'})
    with pytest.raises(
        OptionError, match="schemaRegistry needs payloadSubject, because the options name no single stream"
    ):
        inferred({name: value for name, value in options.items() if name != "stream"} | {"streams": "a,b"})


def test_a_registry_that_fails_is_no_bad_record(given: dict[str, str], registry: SchemaRegistry, judge: Judge) -> None:
    registry.add("flights-value", json.loads(SMALL))
    other = registry.add("other", flight(("carrier", "string"), ("more", "int")))
    put(judge, b"\0" + other.to_bytes(4, "big") + b"\4UA\2")
    options = with_registry(given, registry, mode="DROPMALFORMED")
    schema = StructType().add("carrier", StringType())
    from rillet.spark.source import BatchReader

    reader = BatchReader(parse(options), schema, 1)
    [partition] = reader.partitions()
    registry.fails = True
    with pytest.raises(RegistryError, match="rejects schema with the ID .*: no leader"):
        list(reader.read(partition))
    registry.fails = False
    assert [batch.to_pylist() for batch in reader.read(partition)] == [[{"carrier": "UA"}]]


WORKER = """
import pickle, sys
reader, partitions = pickle.load(open(sys.argv[1], "rb"))
print(sum(batch.num_rows for one in partitions for batch in reader.read(one)))
print(*[name for name in ("fastavro", "google.protobuf", "confluent_kafka") if name in sys.modules])
"""


@pytest.mark.parametrize("kind", ["none", "json", "avro", "protobuf", "registry", "unknown ID"])
def test_what_a_worker_imports(
    given: dict[str, str], registry: SchemaRegistry, judge: Judge, tmp_path: Path, kind: str
) -> None:
    """The library of the format; the registry's client if the driver has not seen the schema of a record."""
    from rillet.spark.source import BatchReader

    options, expected = (
        {**given, "payload": kind},
        ["1", {"avro": "fastavro", "protobuf": "google.protobuf"}.get(kind, "")],
    )
    put(judge, b"{}" if kind == "json" else b"\4UA\0")
    if kind == "none":
        options = given
    elif kind == "avro":
        options["payloadSchema"] = SMALL
    elif kind == "protobuf":
        options |= {"payloadSchema": descriptor_set(tmp_path), "payloadMessage": "air.Flight"}
    elif kind != "json":
        registry.add("flights-value", json.loads(SMALL))
        other = registry.add("other", flight(("carrier", "string")))
        options, expected = with_registry(given, registry), ["2", "fastavro"]
        put(judge, b"\0\0\0\0\1\4UA\0")
        if kind == "unknown ID":
            put(judge, b"\0" + other.to_bytes(4, "big") + b"\4UA")
            expected = ["3", "fastavro confluent_kafka"]
    reader = BatchReader(parse(options), StructType().add("carrier", StringType()), 1)
    (tmp_path / "reader").write_bytes(pickle.dumps((reader, reader.partitions())))
    command = [sys.executable, "-c", WORKER, str(tmp_path / "reader")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == expected


# ---- options --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"payload": "xml"}, "payload is 'xml': expected one of json, avro, protobuf"),
        ({"payload": "avro"}, "payload=avro needs payloadSchema or schemaRegistry"),
        ({"payload": "protobuf"}, "payload=protobuf needs payloadSchema or schemaRegistry"),
        ({"payload": "protobuf", "payloadSchema": "x"}, "payloadSchema needs payloadMessage"),
        ({"payloadSchema": "x"}, "payloadSchema needs payload$"),
        ({"payloadField": "x"}, "payloadField needs payload$"),
        ({"schemaRegistry": "http://x"}, "schemaRegistry needs payload$"),
        ({"payload": "avro", "payloadSchema": "x", "payloadMessage": "x"}, "payloadMessage is for payload=protobuf"),
        ({"payload": "avro", "payloadSchema": "x", "payloadSubject": "x"}, "payloadSubject needs schemaRegistry"),
        ({"payload": "json", "schemaRegistry": "http://x"}, "schemaRegistry is for payload=avro and payload=protobuf"),
        ({"payload": "avro", "schemaRegistry": "http://x", "schemaRegistryUser": "x"}, "needs schemaRegistryPassword"),
        ({"payload": "json", "archive": "x"}, "give only one of payload and archive"),
        ({"payload": "json", "inferSchema": "true"}, "give only one of payload and inferSchema"),
    ],
)
def test_options_that_contradict(more: dict[str, str], error: str) -> None:
    with pytest.raises(OptionError, match=error):
        parse({"url": "redis://localhost", "stream": "flights", **more})


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        ("{", "payloadSchema is not an Avro schema: "), ('"string"', "is not the schema of an Avro record"),
        ('{"type": "record"}', "payloadSchema is not an Avro schema: "),
        ("absent.avsc", "payloadSchema is neither JSON nor a file: "),
    ],
)  # fmt: skip
def test_malformed_schemas(given: dict[str, str], schema: str, error: str) -> None:
    with pytest.raises(OptionError, match=error) as caught:
        inferred({**given, "payload": "avro", "payloadSchema": schema})
    assert "\n" not in str(caught.value)


def test_the_writer_names_the_partitioned_streams_field(given: dict[str, str]) -> None:
    import rillet

    with rillet.connect(given["url"]) as store:
        store.partitioned("sales", 2, by="carrier").add({"carrier": "UA"})
    options = {"url": given["url"], "partitionedStream": "sales", "payload": "avro", "payloadSchema": SMALL}
    with pytest.raises(
        OptionError, match="with a payload, an entry lacks the field 'carrier' of the partitioned stream"
    ):
        BatchWriter(parse(options), StructType().add("carrier", StringType()))
