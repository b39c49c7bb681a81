"""JSON texts in nested columns: against json, and against the types of the columns."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from tests.columns.model import Entry  # noqa: E402
from tests.columns.test_bad_values import read  # noqa: E402

NESTED = pa.struct(
    [
        ("a", pa.int8()),
        ("b", pa.string()),
        ("r", pa.float64()),
        ("d", pa.decimal128(5, 2)),
        ("t", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("flag", pa.bool_()),
        ("raw", pa.binary()),
        ("list", pa.list_(pa.int32())),
        ("map", pa.map_(pa.string(), pa.list_(pa.float32()))),
        ("in", pa.struct([("x", pa.large_string())])),
    ]
)
EMPTY: dict[str, Any] = dict.fromkeys(field.name for field in NESTED)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{}", {}),
        ('{"a": 1, "unknown": [1, {}]}', {"a": 1}),
        ('{"a": 128}', None),
        ('{"a": true}', None),
        ('{"a": 1.0}', None),
        ('{"b": 5}', {"b": "5"}),
        ('{"b": {"c": [1, "x"]}}', {"b": '{"c":[1,"x"]}'}),
        ('{"b": "\\ud83d\\ude00 \\ud800"}', {"b": "\U0001f600 \ufffd"}),
        ('{"r": 1}', {"r": 1.0}),
        ('{"r": "Infinity"}', {"r": float("inf")}),
        ('{"r": "1.5"}', None),
        ('{"d": 1.005}', {"d": Decimal("1.01")}),
        ('{"d": "1.005"}', {"d": Decimal("1.01")}),
        ('{"d": 1000}', None),
        ('{"t": "1970-01-01T01:00:00+01:00"}', {"t": datetime(1970, 1, 1, tzinfo=UTC)}),
        ('{"t": 1500}', {"t": datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=UTC)}),
        ('{"t": "soon"}', None),
        ('{"day": "1970-01-02"}', {"day": date(1970, 1, 2)}),
        ('{"flag": false}', {"flag": False}),
        ('{"flag": "true"}', None),
        ('{"raw": "eHg="}', {"raw": b"xx"}),
        ('{"raw": "?"}', None),
        ('{"list": [1, null, 3]}', {"list": [1, None, 3]}),
        ('{"list": [1, "2"]}', None),
        ('{"list": {}}', None),
        ('{"map": {"k": [0.5], "l": null}}', {"map": [("k", [0.5]), ("l", None)]}),
        ('{"map": []}', None),
        ('{"in": {"x": "y"}}', {"in": {"x": "y"}}),
        ('{"in": 5}', None),
        ("[]", None),
        ('{"a": 1} x', None),
        ("", None),
        ("[" * 100_000, None),
    ],
)
def test_json_objects_become_structs_or_bad_values(text: str, value: dict[str, Any] | None) -> None:
    schema = pa.schema([("j", NESTED), ("_corrupt", pa.string())])
    (row,) = read([(1, 1, [(b"j", text.encode())])], "PERMISSIVE", schema)
    assert row["j"] == (None if value is None else EMPTY | value)
    assert (row["_corrupt"] is None) == (value is not None)


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(st.lists(JSONS, min_size=1, max_size=12))
def test_any_json_is_a_value_or_a_bad_value(values: list[Any]) -> None:
    schema = pa.schema(
        [
            ("numbers", pa.list_(pa.int64())),
            ("words", pa.map_(pa.string(), pa.string())),
            ("truths", pa.struct([("a", pa.bool_())])),
            ("_corrupt", pa.string()),
        ]
    )
    entries: list[Entry] = [
        (1, number, [(name, json.dumps(value).encode()) for name in (b"numbers", b"words", b"truths")])
        for number, value in enumerate(values, 1)
    ]
    for row, value in zip(read(entries, "PERMISSIVE", schema), values, strict=True):
        numbers = isinstance(value, list) and all(
            item is None or (type(item) is int and -(2**63) <= item < 2**63) for item in value
        )
        assert row["numbers"] == (value if numbers else None)
        assert (row["words"] is not None) == isinstance(value, dict)
        truths = isinstance(value, dict) and (value.get("a") is None or isinstance(value["a"], bool))
        assert row["truths"] == ({"a": value.get("a")} if truths else None)
        assert (row["_corrupt"] is None) == (value is None)


@pytest.mark.parametrize(
    "text", ['{"d": 1e99999999999999999999}', '[{"d": -1E-99999999999999999999}]', "1e9999999999999999999"]
)
def test_an_exponent_beyond_every_decimal_is_a_bad_value(text: str) -> None:
    schema = pa.schema([("j", pa.list_(pa.struct([("d", pa.decimal128(5, 2))]))), ("_corrupt", pa.string())])
    (row,) = read([(1, 1, [(b"j", text.encode())])], "PERMISSIVE", schema)
    assert row["j"] is None
    assert json.loads(row["_corrupt"]) == {"j": text}
