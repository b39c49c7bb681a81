"""Every Spark type is either read correctly, or rejected with the column's name before a job starts."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import types

import rillet
from rillet.spark import RilletDataSource
from rillet.spark.options import OptionError

SETTINGS = {"url": "redis://127.0.0.1:1", "stream": "events"}


class Point(types.UserDefinedType):
    """A type of a user's."""

    @classmethod
    def sqlType(cls) -> types.DataType:
        return types.StructType([types.StructField("x", types.DoubleType())])

    @classmethod
    def module(cls) -> str:
        return __name__

    def simpleString(self) -> str:
        return "point"


TEXT = types.StringType()
READ = [
    TEXT, types.StringType("UTF8_LCASE"), types.BinaryType(), types.BooleanType(), types.ByteType(), types.ShortType(),
    types.IntegerType(), types.LongType(), types.FloatType(), types.DoubleType(), types.DecimalType(38, 18),
    types.TimestampType(), types.TimestampNTZType(), types.DateType(), types.VariantType(),
]  # fmt: skip
REFUSED = [
    types.NullType(), types.CalendarIntervalType(), types.DayTimeIntervalType(), types.YearMonthIntervalType(),
    types.TimeType(), types.CharType(3), types.VarcharType(3), types.GeometryType(4326), types.GeographyType(4326),
    Point(),
]  # fmt: skip


def around(kind: types.DataType) -> list[tuple[str, types.DataType]]:
    """Return the type as a column of its own and inside others, with where it is then."""
    inner = types.StructType([types.StructField("a", kind)])
    return [
        ("v", kind), ("v.a", inner), ("v.element", types.ArrayType(kind)), ("v.value", types.MapType(TEXT, kind)),
        ("v.value.element.a", types.MapType(TEXT, types.ArrayType(inner))),
    ]  # fmt: skip


def reader(kind: types.DataType) -> Any:
    schema = types.StructType([types.StructField("id", TEXT), types.StructField("v", kind)])
    return RilletDataSource(SETTINGS).reader(schema)


def test_the_list_of_types_is_complete() -> None:
    every = [found for found in vars(types).values() if isinstance(found, type) and issubclass(found, types.DataType)]
    leaves = [found for found in every if not any(other is not found and issubclass(other, found) for other in every)]
    around_others = {types.StructType, types.ArrayType, types.MapType, types.StructField, types.UserDefinedType}
    assert set(leaves) - {type(kind) for kind in (*READ, *REFUSED)} - around_others == set()


@pytest.mark.parametrize("kind", READ, ids=str)
def test_readable_types_are_accepted(kind: types.DataType) -> None:
    for path, whole in around(kind):
        if isinstance(kind, types.VariantType) and path != "v":
            with pytest.raises(OptionError, match=rf"^rillet: .*'{path}' is a variant inside another.*parse_json"):
                reader(whole)
        else:
            assert reader(whole).arrow_schema.names == ["id", "v"]


@pytest.mark.parametrize("kind", REFUSED, ids=str)
def test_unreadable_types_are_rejected_with_the_columns_name(kind: types.DataType) -> None:
    for path, whole in around(kind):
        with pytest.raises(OptionError, match=rf"^rillet: .*column '{path}' cannot be .*: read it as a string") as told:
            reader(whole)
        assert f"cannot be {kind.simpleString()}:" in str(told.value)


DOCUMENTS = [
    '{"a": 1.50, "b": [1, null, "x", {"deep": []}], "é": "ü"}', "7", "-12345678901", "1e5", "0.1", "true", "null",
    '"text"', "[]", "{}", json.dumps({f"k{n}": n * 10**n for n in range(40)}), "-0.25",
    "123456789012345678901234567890.5", json.dumps("x" * 300), " [1 , 2] ", '{"N": "NaN", "I": 1}',
]  # fmt: skip
BROKEN = ["", "{", "nope", "NaN", "[Infinity]", "{'a': 1}", "1 2", '"\\ud800"', "[" * 5000]


@pytest.mark.spark
@pytest.mark.slow
def test_a_variant_equals_the_result_of_parse_json(spark: Any, url: str) -> None:
    with rillet.connect(url) as store:
        store.stream("events").add_many([*({"v": text} for text in (*DOCUMENTS, *BROKEN)), {"other": 1}])
    options = {"url": url, "stream": "events"}
    events = spark.read.format("rillet").options(**options).schema("v variant, _corrupt string, id_seq bigint").load()
    told = events.selectExpr("to_json(v) v", "schema_of_variant(v) kind", "_corrupt is null fine", "v is null none")
    found = told.collect()
    texts = spark.createDataFrame([(text,) for text in DOCUMENTS], "v string")
    expected = texts.selectExpr("to_json(parse_json(v)) v", "schema_of_variant(parse_json(v)) kind").collect()
    count = len(DOCUMENTS)
    assert [(row.v, row.kind) for row in found[:count]] == [(row.v, row.kind) for row in expected]
    assert [(row.fine, row.none) for row in found[:count]] == [(True, False)] * count
    assert [(row.v, row.fine, row.none) for row in found[count:-1]] == [(None, False, True)] * len(BROKEN)
    assert (found[-1].v, found[-1].fine, found[-1].none) == (None, True, True)
    assert events.selectExpr("v:a::double a").where("a is not null").collect()[0].a == 1.5
    with pytest.raises(Exception, match="rillet: the schema does not fit a stream: column 'n' cannot be interval"):
        spark.read.format("rillet").options(**options).schema("n interval").load().collect()
