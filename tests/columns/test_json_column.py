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

from rillet.columns.json_column import reader  # noqa: E402
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


# ---- every type of a leaf ------------------------------------------------------------------------------------------

INF = float("inf")
LEAVES: list[tuple[Any, list[tuple[str, Any]], list[str]]] = [
    (
        pa.int8(),
        [("127", 127), ("-128", -128), ("0", 0), ("-0", 0)],
        ["128", "-129", "1.0", "1e1", '"1"', "true", "[]"],
    ),
    (pa.int16(), [("32767", 32767), ("-32768", -32768)], ["32768", "-32769", "0.5", "{}"]),
    (pa.int32(), [("2147483647", 2**31 - 1), ("-2147483648", -(2**31))], ["2147483648", '"x"', "NaN"]),
    (pa.int64(), [(str(2**63 - 1), 2**63 - 1), (str(-(2**63)), -(2**63))], [str(2**63), str(-(2**63) - 1), "9" * 5000]),
    (
        pa.float64(),
        [("1", 1.0), ("1.5e3", 1500.0), ("1e400", INF), ('"Infinity"', INF), ('"-Infinity"', -INF), ("-0.0", -0.0)],
        ['"1.5"', '"inf"', "true", "[]", '""'],
    ),
    (
        pa.float32(),
        [("0.5", 0.5), ("16777217", 16777216.0), (str(10**400), INF), ("-" + str(10**400), -INF)],
        ['"x"', "false"],
    ),
    (pa.bool_(), [("true", True), ("false", False)], ["1", "0", '"true"', "[]", "TRUE"]),
    (
        pa.string(),
        [
            ('""', ""),
            ('"x"', "x"),
            ("5", "5"),
            ("1.5", "1.5"),
            ("true", "true"),
            ("[1,{}]", "[1,{}]"),
            ('{"a": [null]}', '{"a":[null]}'),
            ('"\\u0000"', "\0"),
            ('"\\ud800"', "\ufffd"),
            ('"gr\\u00f6\u00dfe"', "größe"),
        ],
        ["nul", "'x'", '"\t"'],
    ),
    (pa.binary(), [('""', b""), ('"AA=="', b"\0"), ('"//8="', b"\xff\xff")], ['"A"', '"AA="', '"A A="', '"é"', "5"]),
    (
        pa.date32(),
        [('"1970-01-02"', date(1970, 1, 2)), ('"2000-02-29T12:00"', date(2000, 2, 29))],
        ['"2001-02-29"', "5", "true", '""'],
    ),
    (
        pa.timestamp("us"),
        [('"1970-01-01T00:00:01"', datetime(1970, 1, 1, 0, 0, 1)), ("1000", datetime(1970, 1, 1, 0, 0, 1))],
        ['"noon"', "1.5", "true", str(2**63)],
    ),
    (
        pa.decimal128(5, 2),
        [
            ("1", Decimal("1.00")),
            ("1.005", Decimal("1.01")),
            ('"-999.99"', Decimal("-999.99")),
            ("1e2", Decimal("100.00")),
        ],
        ["999.995", "1000", '"x"', "true", "[]", "NaN", "1e999999999", "-1e-999999999999999999999"],
    ),
]
WRAPPERS: list[tuple[str, Any, Any, Any]] = [
    ("struct", lambda type_: pa.struct([("v", type_)]), lambda text: f'{{"v": {text}}}', lambda value: {"v": value}),
    ("list", pa.list_, lambda text: f"[null, {text}]", lambda value: [None, value]),
    ("large list", pa.large_list, lambda text: f"[{text},null]", lambda value: [value, None]),
    ("map", lambda type_: pa.map_(pa.string(), type_), lambda text: f'{{"": {text}}}', lambda value: [("", value)]),
    (
        "nested",
        lambda type_: pa.list_(pa.struct([("m", pa.map_(pa.string(), type_))])),
        lambda text: f'[{{"m": {{"k": {text}, "n": null}}}}]',
        lambda value: [{"m": [("k", value), ("n", None)]}],
    ),
]


def column_of(type_: Any, texts: list[str]) -> list[tuple[Any, bool]]:
    """Return the value of each text and whether the text is bad."""
    schema = pa.schema([("j", type_), ("_corrupt", pa.string())])
    entries: list[Entry] = [(1, n, [(b"j", text.encode())]) for n, text in enumerate(texts, 1)]
    return [(row["j"], row["_corrupt"] is not None) for row in read(entries, "PERMISSIVE", schema)]


@pytest.mark.parametrize(("wrapper", "type_of", "text_of", "value_of"), WRAPPERS, ids=[row[0] for row in WRAPPERS])
@pytest.mark.parametrize(("leaf", "good", "bad"), LEAVES, ids=[str(row[0]) for row in LEAVES])
def test_every_leaf_type_is_read_in_every_nested_type(
    leaf: Any, good: list[tuple[str, Any]], bad: list[str], wrapper: str, type_of: Any, text_of: Any, value_of: Any
) -> None:
    texts = [text for text, _ in good]
    read_back = column_of(type_of(leaf), [text_of(text) for text in [*texts, *bad, "null"]])
    expected = [(value_of(value), False) for _, value in good] + [(None, True)] * len(bad) + [(value_of(None), False)]
    assert repr(read_back) == repr(expected)


@pytest.mark.parametrize("type_", [wrapper[1](pa.int8()) for wrapper in WRAPPERS], ids=[row[0] for row in WRAPPERS])
def test_null_is_null_and_other_json_values_are_bad(type_: Any) -> None:
    assert column_of(type_, ["null", " null\n"]) == [(None, False), (None, False)]
    for text in ("5", '"x"', "true", "", " ", "nul", "{", "[", "[1,]", '{"a"}', "{} {}", "[] x", "\x00", "\ufeff[]"):
        assert column_of(type_, [text]) == [(None, True)], text


@given(JSONS)
def test_a_string_leaf_holds_any_json_as_text(value: Any) -> None:
    (result, bad), *_ = column_of(pa.list_(pa.string()), [json.dumps([value])])
    assert not bad
    if value is None:
        assert result == [None]
    elif isinstance(value, str):
        assert result == [value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")]
    else:
        assert repr(json.loads(result[0])) == repr(value)


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), max_size=30))
def test_lists_of_integers_are_jsons_own(values: list[int | None]) -> None:
    assert column_of(pa.list_(pa.int64()), [json.dumps(values)]) == [(values, False)]


@given(st.dictionaries(st.text(max_size=5), st.one_of(st.none(), st.floats(allow_nan=False)), max_size=8))
def test_maps_keep_the_order_of_their_keys(pairs: dict[str, float | None]) -> None:
    ((result, bad),) = column_of(pa.map_(pa.string(), pa.float64()), [json.dumps(pairs)])
    keys = [key.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for key in pairs]
    assert (result, bad) == (list(zip(keys, pairs.values(), strict=True)), False) or not json.dumps(pairs).isascii()


def test_of_equal_names_the_last_one_wins() -> None:
    assert column_of(pa.struct([("a", pa.int8())]), ['{"a": 300, "a": 7}', '{"a": 7, "a": 300}']) == [
        ({"a": 7}, False),
        (None, True),
    ]


@pytest.mark.parametrize("depth", [10, 900, 100_000])
def test_deep_nesting_is_a_value_or_a_bad_one_and_no_crash(depth: int) -> None:
    text = '{"a": ' * depth + "1" + "}" * depth
    ((value, bad),) = column_of(pa.struct([("a", pa.string())]), [text])
    assert bad or value["a"] == json.dumps(json.loads(text)["a"], separators=(",", ":"))
    assert bad or depth < 100_000


@pytest.mark.parametrize("type_", [pa.int64(), pa.string(), pa.list_(pa.uint8()), pa.struct([("a", pa.duration("s"))]),
                                   pa.map_(pa.int8(), pa.int8()), pa.list_(pa.timestamp("ns"))], ids=str)  # fmt: skip
def test_types_that_json_does_not_fill_have_no_reader(type_: Any) -> None:
    assert reader(type_) is None
