"""The ACL rules in the guide suffice to read and to write."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import IntegerType, StructType  # noqa: E402

from rillet.client.errors import ConnectorError  # noqa: E402
from rillet.spark.options import parse  # noqa: E402
from rillet.spark.source import BatchReader  # noqa: E402
from tests.judge import Judge  # noqa: E402
from tests.spark.calls import Query, stopped  # noqa: E402, F401
from tests.spark.sink_server import SinkQuery  # noqa: E402
from tests.spark.tables.tables import rows  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("stopped")]

GUIDE = Path(__file__).parents[2] / "docs" / "spark.md"


def rules(*lines: str) -> list[str]:
    """Return the rules that the guide gives for these lines of its table."""
    table = GUIDE.read_text().partition("**Rights.**")[2].partition("**Replicas.**")[0]
    found = {cells[1].strip(): cells[2] for line in table.splitlines() if len(cells := line.split("|")) == 4}
    return [word for line in lines for text in re.findall(r"`([^`]*)`", found[line]) for word in text.split()]


@pytest.fixture
def user(judge: Judge, url: str) -> Callable[..., str]:
    """Return a function that gives a user rights and returns its url."""

    def make(*given: str) -> str:
        with judge.client() as client:
            client.execute_command("ACL", "SETUSER", "u", "reset", "on", ">p", "+ping", "+hello", "+select", *given)
        return url.replace("redis://", "redis://u:p@")

    return make


def follow(where: str) -> None:
    """Read a stream by a streaming query, behind by an entry."""
    query = Query(where, startingOffsets="earliest", maxEntriesPerTrigger="2")
    assert query.batch() == [0, 1]
    assert query.reader.reportLatestOffset()["behind"] == {"events": 1}
    assert query.batch() == [2]
    query.batch()


def test_reading_a_stream(add: Callable[..., None], user: Callable[..., str]) -> None:
    add(range(3))
    follow(user(*rules("read a stream")))


def test_bad_records(add: Callable[..., None], user: Callable[..., str]) -> None:
    add(range(3))
    reads = user(*rules("read a stream"), "~bad")
    given = {"stream": "events", "badRecords": "stream:bad"}
    schema = StructType().add("user", IntegerType())
    with pytest.raises(ConnectorError, match="NOPERM|does not permit"):
        all_rows(BatchReader(parse({"url": reads, **given}), schema, 1))
    reads = user(*rules("read a stream", "with `badRecords`"))
    assert all_rows(BatchReader(parse({"url": reads, **given}), schema, 1)) == 0


def all_rows(reader: BatchReader) -> int:
    return sum(batch.num_rows for one in reader.partitions() for batch in reader.read(one))


@pytest.mark.parametrize(("sink", "lines"), [
    ("stream", ["write a stream"]),
    ("ordered", ["write a stream", "with `order=stream`"]),
    ("streamColumn", ["write a stream", "with `streamColumn`, `idColumn`"]),
    ("hash", ["write hashes by a streaming query"]),
    ("counter", ["write hashes by a streaming query", "with `addColumns`", "write a stream"]),
])  # fmt: skip
def test_writing(judge: Judge, user: Callable[..., str], sink: str, lines: list[str]) -> None:
    keys = {"streamColumn": ["~to*"], "hash": ["~row:*"], "counter": ["~row:*"]}.get(sink, [])
    given = [*rules(*lines), *keys]
    query = SinkQuery(user(*given), sink)
    query.hundred()
    if sink == "ordered":
        query.options["orderWait"] = "1ms"
        told = [query.task(1, range(160, 200)), query.task(0, range(100, 160))]
        query.commit(told)
    query.hundred()
    missing = "-hset" if "hash" in sink or sink == "counter" else "-xadd"
    lacking = SinkQuery(user(*given, missing), sink)
    lacking.number = query.number
    with pytest.raises(ConnectorError, match="NOPERM|does not permit"):
        lacking.hundred()


def test_reading_hashes(judge: Judge, user: Callable[..., str]) -> None:
    with judge.client() as client:
        for n in range(3):
            client.execute_command("HSET", f"user:{n}", "name", f"n{n}")
    options = {"url": user(*rules("read hashes")), "type": "hash", "keyPrefix": "user:"}
    assert len(rows(1, "key string, name string", **options)) == 3
    assert len(rows(1, **options)) == 3
