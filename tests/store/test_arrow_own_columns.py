"""add_arrow leaves out the columns of entries that were read, and loses no column of the user."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from rillet import Store
from tests.store.conftest import only

pa = pytest.importorskip("pyarrow")

TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@only("memory")
def test_columns_named_like_those_of_to_arrow(store: Store) -> None:
    stream = store.stream("s")
    stream.add_arrow(pa.table({"id": [7], "timestamp": [TIME], "stream": ["a"], "n": [1]}))
    (entry,) = stream
    assert entry.fields == {"id": "7", "timestamp": "2026-01-02T03:04:05.000000Z", "stream": "a", "n": "1"}
    copy = store.stream("copy")
    read = store.stream("read")
    read.add({"n": 5})
    assert copy.add_arrow(read.to_arrow()) == copy.add_arrow(read.to_arrow(fields="map")) == 1
    assert [entry.fields for entry in copy] == [{"n": "5"}] * 2
    refused: list[tuple[dict[str, Any], str]] = [
        ({"timestamp": [TIME]}, "the columns timestamp may be .* yours: name the columns to write with columns="),
        ({"stream": ["a"]}, "the columns stream may be"),
        ({"id": ["order-7"]}, "the id 'order-7' is not that of an entry: name the columns"),
        ({"id": ["1-1"], "timestamp": [TIME]}, "a timestamp is not the time of the id '1-1'"),
        ({"id": [""], "timestamp": [TIME]}, "a timestamp is not the time of the id ''"),
        ({"id": pa.array([None], pa.string()), "timestamp": [TIME]}, "the id None is not that of an entry"),
    ]
    for columns, text in refused:
        with pytest.raises(ValueError, match=text):
            copy.add_arrow(pa.table({**columns, "n": [1]}))
    assert len(copy) == 2
    copy.add_arrow(pa.table({"timestamp": [TIME], "n": [1]}), columns=["timestamp", "n"])
    assert len(copy) == 3
    # An INSERT must name every column of its table: an empty text for the ID has no value that could be lost.
    assert copy.add_arrow(pa.table({"id": [""], "timestamp": pa.array([None], pa.timestamp("ms")), "n": [2]})) == 1
    assert [entry.fields for entry in copy][3:] == [{"n": "2"}]
