"""A field has two columns: one of a type, and its text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import redis
from pyspark.sql.types import MapType, StringType, StructType

from rillet.errors import RilletError
from rillet.spark.options import OptionError, parse
from rillet.spark.source import BatchReader
from tests.judge import redis_binary, running_redis
from tests.server.harness import running

VALUES = ["7", "x", None, "-12", "99999999999", "", "1.5", *map(str, range(300))]  # None: the field is missing


@pytest.fixture(scope="module", params=["redis", "rillet"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose stream has VALUES, whose pages or nodes are decoded."""
    folder: Path = tmp_path_factory.mktemp("server")
    if request.param == "redis" and redis_binary() is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    with running(folder) if request.param == "rillet" else running_redis() as server:
        with redis.Redis(port=server.port) as client:
            for n, value in enumerate(VALUES):
                client.xadd("s", {"n": n} if value is None else {"n": n, "v": value})
        yield f"redis://127.0.0.1:{server.port}"


def read(url: str, schema: StructType, **options: str) -> list[tuple[Any, ...]]:
    """Return the rows of the stream."""
    reader = BatchReader(parse({"url": url, "stream": "s", **options}), schema, 1)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]


def as_int(value: str | None) -> int | None:
    """Return what an int column has."""
    return int(value) if value and value.lstrip("-").isdigit() and abs(int(value)) < 2**31 else None


@pytest.mark.parametrize("first", ["v", "raw"])
def test_the_text_beside_the_number(url: str, first: str) -> None:
    schema = StructType().add("n", "long")
    for name in ("v", "raw") if first == "v" else ("raw", "v"):
        schema = schema.add("v", "integer") if name == "v" else schema.add("raw", "string", True, {"field": "v"})
    pairs = [(as_int(value), value) for value in VALUES]
    rows = [(n, *(pair if first == "v" else pair[::-1])) for n, pair in enumerate(pairs)]
    assert read(url, schema) == rows
    good = [row for row, value in zip(rows, VALUES, strict=True) if value is None or as_int(value) is not None]
    assert read(url, schema, mode="DROPMALFORMED") == good
    with pytest.raises(RilletError, match="the field 'v' is not of type int: 'x'"):
        read(url, schema, mode="FAILFAST")


def test_with_a_map_and_the_corrupt_column(url: str) -> None:
    schema = StructType().add("v", "double").add("bytes", "binary", True, {"field": "v"})
    rows = read(url, schema.add("fields", MapType(StringType(), StringType())).add("_corrupt", "string"))
    for n, (value, (number, text, fields, corrupt)) in enumerate(zip(VALUES, rows, strict=True)):
        assert text == (None if value is None else value.encode())
        assert dict(fields) == {"n": str(n)} | ({} if value is None else {"v": value})
        assert (number is None) == (value in (None, "x", ""))
        assert (corrupt is None) == (value not in ("x", ""))


def test_other_pairs_are_refused(url: str) -> None:
    again = {"field": "v"}
    two = StructType().add("v", "integer").add("w", "string", True, again)
    for schema, problem in (
        (StructType().add("v", "integer").add("w", "long", True, again), "two columns take the field 'v'"),
        (StructType().add("v", "string").add("w", "binary", True, again), "two columns take the field 'v'"),
        (two.add("x", "string", True, again), "three columns take the field 'v'"),
    ):
        with pytest.raises(OptionError, match=problem):
            read(url, schema)
