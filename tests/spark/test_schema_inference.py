"""inferSchema: columns and types from a sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow as pa

from rillet.client.errors import ConnectorError
from rillet.spark.options import parse
from rillet.spark.read.schema_inference import FieldType, infer, schema_of
from rillet.store.tables.schema_inference import typed
from tests.judge import Judge
from tests.spark.conftest import options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FLIGHTS = [
    ("2013-01-01", "UA", "517", "", "2.0", "N14228", "2013-01-01T05:15:00-05:00", "false", "0515", "nan"),
    ("2013-01-01", "AA", "542", "-4", "2", "N24211", "2013-01-01T05:29:00Z", "TRUE", "0529", "1e3"),
    ("2013-01-02", "B6", "725", "", ".5", "", "2013-01-01 05:40:00.25", "False", "0540", "7"),
]
NAMES = ("day", "carrier", "flight", "arr_delay", "dep_delay", "tailnum", "time_hour", "cancelled", "sched", "gain")


ARROW = {
    "bigint": pa.int64(), "double": pa.float64(), "boolean": pa.bool_(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "string": pa.string(),
}  # fmt: skip

SINGLE = {
    "bigint": ("0", "-0", "+0", "-12", "7 ", "\t7", "-9223372036854775808"),
    "double": ("-9223372036854775809", "1.5", "+.5", "5.", "-0.0", "1E+3", "NaN", "-Infinity"),
    "date": ("0001-01-01", "9999-12-31", "2024-01-05 "),
    "timestamp": [f"2024-01-05T10:15{end}" for end in ("", ":30", ":30.5", "Z", ":30+01", "-0100", ":30+01:00")],
    "string": (
        "-007", "00.5", "0e", "1_000", "0x10", "yes", "1 2", "+-7", "10:15", "2024-1-5", "10000-01-01", "2024-01-05T10",
        "2024-01-05 10Z", "2024-01-05T10:15:60",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        *[([text], kind) for kind, texts in SINGLE.items() for text in texts],
        (["2024-01-05T10:15:30Z", "2024-01-05 10:15", "2024-01-05"], "timestamp"),
        (["1", "-7", "+9223372036854775807", " 3 "], "bigint"),
        (["9223372036854775808"], "double"),
        (["1", "0.5"], "double"),
        (["007"], "string"),
        (["true", "FALSE"], "boolean"),
        (["t", "f"], "string"),
        (["2024-02-29"], "date"),
        (["2023-02-29"], "string"),
        (["2024-02-29", "2024-02-29T23:59:59.999999+01:00"], "timestamp"),
        (["2024-02-29T25:00:00"], "string"),
        (["", " "], "string"),
        (["1", "true"], "string"),
        (["NA", "1"], "string"),
        (["\xff"], "string"),
    ],
)
def test_types_are_inferred_from_values(values: list[str], kind: str) -> None:
    """inferSchema and `Stream.to_arrow` have the same table."""
    seen = FieldType()
    for value in values:
        seen.add(value.encode("latin-1"))
    assert seen.name == kind
    if values[0].isascii():
        assert typed(pa.chunked_array([values])).type == ARROW[kind]


def test_the_flights_sample_is_inferred(judge: Judge, url: str) -> None:
    with judge.client() as client:
        for number, row in enumerate(FLIGHTS):
            flat = [word for pair in zip(NAMES, row, strict=True) for word in pair]
            client.execute_command("XADD", "events", f"{number + 1}-0", *flat)
    assert infer(options(url, inferSchema="true")).simpleString() == (
        "struct<id:string,timestamp:timestamp,day:date,carrier:string,flight:bigint,arr_delay:bigint,dep_delay:double,"
        "tailnum:string,time_hour:timestamp,cancelled:boolean,sched:string,gain:double>"
    )


def test_the_sample_is_the_first_and_the_last_entries_of_all_streams(judge: Judge, url: str) -> None:
    with judge.client() as client:
        for stream in ("a", "b"):
            for number in range(1, 101):
                client.execute_command("XADD", stream, f"{number}-0", f"{stream}{number}", number)
    found = infer(parse({"url": url, "streamPattern": "?", "inferSchema": "true", "sampleEntries": "8"}))
    assert found.names == ["stream", "id", "timestamp", "a1", "a2", "b1", "b2", "a99", "a100", "b99", "b100"]
    with pytest.raises(ConnectorError, match="cannot infer a schema at 127.0.0.1"):
        infer(options(url, "absent", inferSchema="true"))
    with judge.client() as client:
        client.execute_command("SET", "text", "1")
    with pytest.raises(ConnectorError, match="WRONGTYPE.*stream 'text'"):
        infer(options(url, "text", inferSchema="true"))


def test_clashing_names_get_distinct_columns() -> None:
    entry: list[bytes] = []
    for name in (b"id", b"Timestamp", b"delay", b"Delay", b"DELAY", b"id_field", b"\xff", b"stream"):
        entry += [name, b"1"]
    found = schema_of([entry], several=False)
    assert [(field.name, field.metadata) for field in found.fields[2:]] == [
        ("id_field", {"field": "id"}),
        ("Timestamp_field", {"field": "Timestamp"}),
        ("delay", {}),
        ("Delay_2", {"field": "Delay"}),
        ("DELAY_3", {"field": "DELAY"}),
        ("id_field_2", {"field": "id_field"}),
        ("stream_field", {"field": "stream"}),
    ]


@pytest.mark.spark
@pytest.mark.slow
def test_spark_reads_what_was_inferred(spark: SparkSession, judge: Judge, url: str) -> None:
    with judge.client() as client:
        client.execute_command("XADD", "events", "1-0", "id", "7", "n", "1", "N", "x", "at", "2013-01-01T05:15:00Z")
        client.execute_command("XADD", "events", "2-0", "n", "2.5")
    read: Any = spark.read.format("rillet").option("url", url).option("stream", "events").option("inferSchema", "true")
    frame = read.load()
    assert frame.dtypes == [
        ("id", "string"), ("timestamp", "timestamp"), ("id_field", "bigint"), ("n", "double"), ("N_2", "string"),
        ("at", "timestamp"),
    ]  # fmt: skip
    rows = sorted(frame.drop("timestamp").collect())
    assert [tuple(row)[:4] for row in rows] == [("1-0", 7, 1.0, "x"), ("2-0", None, 2.5, None)]
    assert rows[0].at.isoformat() == "2013-01-01T05:15:00"
