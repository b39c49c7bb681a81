"""Codecs: every value survives, each type has its text, and the bytes are the same with and without msgspec."""

from __future__ import annotations

import dataclasses
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NewType
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rillet
from rillet.errors import InvalidValue, RilletError
from rillet.store import codecs
from rillet.store.codecs import json_of, msgpack_of, text_of


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Mode(StrEnum):
    FAST = "fast"


class Bits(Flag):
    A = 1
    B = 2


class Ambiguous(Enum):
    NUMBER = 1
    TEXT = "1"


class Tuples(Enum):
    ONE = (1, 2)


@dataclasses.dataclass
class Order:
    customer: int
    total: Decimal
    tags: list[str]


UserID = NewType("UserID", int)
NOON = datetime(2026, 11, 22, 10, 30, tzinfo=UTC)
EAST = timezone(timedelta(hours=1))

# The table in the docstring of rillet.store.codecs.
TEXTS: list[tuple[Any, Any, bytes]] = [
    (str, "Zürich", "Zürich".encode()),
    (str, "\udcff", b"\xff"),
    (str, "", b""),
    (bytes, b"\x00\xff", b"\x00\xff"),
    (int, -42, b"-42"),
    (int, 2**70, b"1180591620717411303424"),
    (UserID, 7, b"7"),
    (float, 99.9, b"99.9"),
    (float, 1e16, b"1e+16"),
    (float, math.inf, b"inf"),
    (bool, True, b"true"),
    (bool, False, b"false"),
    (type(None), None, b""),
    (int | None, None, b""),
    (int | None, 5, b"5"),
    (datetime, NOON, b"2026-11-22T10:30:00Z"),
    (datetime, NOON.astimezone(EAST).replace(microsecond=250000), b"2026-11-22T11:30:00.250000+01:00"),
    (datetime, NOON.replace(tzinfo=None), b"2026-11-22T10:30:00"),
    (date, date(2026, 11, 22), b"2026-11-22"),
    (time, time(10, 30), b"10:30:00"),
    (timedelta, timedelta(hours=1), b"PT3600S"),
    (timedelta, timedelta(days=-401, microseconds=-10), b"-P401DT0.00001S"),
    (timedelta, timedelta(), b"P0D"),
    (timedelta, timedelta(days=2), b"P2D"),
    (timedelta, timedelta.max, b"P999999999DT86399.999999S"),
    (timedelta, timedelta.min, b"-P999999999D"),
    (Decimal, Decimal("99.90"), b"99.90"),
    (Decimal, Decimal("1E+5"), b"1E+5"),
    (UUID, UUID("12345678-1234-5678-1234-567812345678"), b"12345678-1234-5678-1234-567812345678"),
    (Color, Color.RED, b"red"),
    (Color | None, None, b""),
    (Level, Level.HIGH, b"2"),
    (Mode, Mode.FAST, b"fast"),
    (Literal["a", "b"], "b", b"b"),
    (Literal[1, True], True, b"true"),
    (Literal["a", None], None, b"null"),
    (Bits, Bits.A | Bits.B, b"3"),
    (list[int], [1, 2], b"[1,2]"),
    (dict[str, float], {"a": 1.5}, b'{"a":1.5}'),
    (Order, Order(7, Decimal("9.90"), ["x"]), b'{"customer":7,"total":"9.90","tags":["x"]}'),
    (int | str, "5", b'"5"'),
    (Annotated[int, msgspec.Meta(gt=0)], 5, b"5"),
    (Annotated[str, msgspec.Meta(max_length=3)], "abc", b"abc"),
]


@pytest.mark.parametrize(("kind", "value", "stored"), TEXTS, ids=lambda value: str(value)[:30])
def test_each_type_has_one_text(kind: Any, value: object, stored: bytes) -> None:
    codec = text_of(kind)
    assert codec.encode(value) == stored
    assert codec.decode(stored) == value
    assert type(codec.decode(stored)) is type(value)


@pytest.mark.parametrize(
    ("kind", "value", "stored"), [row for row in TEXTS if row[0] not in (bytes, type(None), str, float)], ids=str
)
def test_json_has_the_same_text_between_quotation_marks(kind: Any, value: object, stored: bytes) -> None:
    if value is None:
        stored = b"null"
    written = json_of(kind).encode(value)
    assert written.strip(b'"') == stored.strip(b'"')
    assert json_of(kind).decode(written) == value


def test_the_durations_of_iso_8601_are_read() -> None:
    expected = {
        "P1W": timedelta(weeks=1), "P1DT2H3M4.5S": timedelta(1, 7384, 500_000), "-PT1H": timedelta(hours=-1),
        "+PT0.000001S": timedelta(microseconds=1), "PT90M": timedelta(minutes=90),
    }  # fmt: skip
    assert {text: text_of(timedelta).decode(text.encode()) for text in expected} == expected
    for wrong in ("", "P", "PT", "P1", "1H", "P1Y", "P1M", "P1DT", "PT1.0000001S", "P9999999999D", '"PT1S"', "PT١S"):
        with pytest.raises(InvalidValue, match="expected timedelta, got"):
            text_of(timedelta).decode(wrong.encode())


def test_nan_and_a_time_with_an_offset_of_seconds() -> None:
    assert math.isnan(text_of(float).decode(text_of(float).encode(math.nan)))
    odd = NOON.replace(tzinfo=timezone(timedelta(seconds=30)))
    assert text_of(datetime).encode(odd) == b"2026-11-22T10:30:00+00:00:30"
    assert text_of(datetime).decode(text_of(datetime).encode(odd)) == odd
    assert text_of(float).encode(3) == b"3.0"


WRONG_VALUES: list[tuple[Any, Any]] = [
    (str, 5), (int, True), (int, "5"), (int, 5.0), (float, "5"), (float, True), (bool, 1), (datetime, date(2026, 1, 1)),
    (date, NOON), (Decimal, 5), (UUID, "x"), (Color, "red"), (Literal["a", 1], "b"),
    (Literal["a", 1], True), (type(None), ""), (int | None, ""), (bytes, "text"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value"), WRONG_VALUES, ids=str)
def test_a_value_of_another_type_is_rejected_on_write(kind: Any, value: object) -> None:
    with pytest.raises(TypeError):
        text_of(kind).encode(value)


WRONG_TEXTS: list[tuple[Any, bytes]] = [
    (int, b""), (int, b"1_0"), (int, b" 1"), (int, b"1.0"), (int, b"x"), (int, b"\xff"), (float, b"1_0"),
    (float, b" 1"), (float, b"x"), (bool, b"True"), (bool, b"1"), (datetime, b"yesterday"), (date, b"2026-13-01"),
    (time, b"25:00"),
    (Decimal, b"x"), (UUID, b"x"), (Color, b"green"), (Literal["a"], b"b"), (Decimal, b"1_0"), (int, b"9" * 5000),
    (Level, b"3"), (Bits, b"x"), (type(None), b"null"),
    (int | None, b"null"), (list[int], b"[1,"), (list[int], b'["x"]'), (Order, b"{}"), (int | str, b"5.5"),
    (Annotated[int, msgspec.Meta(gt=0)], b"-5"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "stored"), WRONG_TEXTS, ids=str)
def test_bytes_of_another_type_are_rejected_on_read(kind: Any, stored: bytes) -> None:
    with pytest.raises(InvalidValue, match="got"):
        text_of(kind).decode(stored)


def test_a_constraint_that_does_not_exist_for_a_type_is_rejected_at_once() -> None:
    with pytest.raises(TypeError, match=r"^text_of\(.*Decimal.*\): Can only set `ge` on a numeric type"):
        text_of(Annotated[Decimal, msgspec.Meta(ge=0)])


def test_the_text_of_an_error() -> None:
    with pytest.raises(InvalidValue, match="^expected int, got 'abc'$") as caught:
        text_of(int).decode(b"abc")
    assert isinstance(caught.value, RilletError)
    assert isinstance(caught.value, ValueError)
    with pytest.raises(InvalidValue, match=r"^Expected `int`, got `str`; got b'\"x\"'$"):
        json_of(int).decode(b'"x"')
    with pytest.raises(TypeError, match=r"^text_of\(int\) stores int, not str$"):
        text_of(int).encode("5")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [str | None, bytes | None, Ambiguous, Tuples])
def test_a_type_without_a_unique_text_is_rejected(kind: Any) -> None:
    with pytest.raises(TypeError, match="text"):
        text_of(kind)


def test_raw_and_text() -> None:
    assert codecs.raw.encode(bytearray(b"\xff")) == codecs.raw.decode(b"\xff") == b"\xff"  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the codec raw stores bytes, not str"):
        codecs.raw.encode("text")  # type: ignore[arg-type]
    assert codecs.text.encode(5) == b"5"  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="True has no standard text form"):
        codecs.text.encode(True)  # type: ignore[arg-type]


def test_equal_codecs() -> None:
    assert json_of(int) == json_of(int)
    assert hash(json_of(int)) == hash(json_of(int))
    assert json_of(int) != json_of(str)  # type: ignore[comparison-overlap]
    assert json_of(int) != text_of(int)
    assert codecs.json is codecs.json
    assert [repr(codec) for codec in (codecs.raw, codecs.text, codecs.json, json_of(int), text_of(list[int]))] == [
        "raw", "text", "json", "json_of(int)", "json_of(list[int])",
    ]  # fmt: skip
    with pytest.raises(AttributeError, match="has no attribute 'yaml'"):
        _ = codecs.yaml
    assert rillet.codecs is codecs


FINITE = st.floats(allow_nan=False, allow_infinity=False)
PICKLED: list[tuple[Any, object]] = [
    (codecs.raw, b"\xff"), (codecs.text, "x"), (codecs.json, [None]), (codecs.msgpack, [b"x"]),
    (text_of(Color), Color.RED), (text_of(int | None), None), (json_of(list[int]), [1]), (msgpack_of(int), 5),
]  # fmt: skip


@pytest.mark.parametrize(("codec", "value"), PICKLED, ids=repr)
def test_a_codec_survives_pickling(codec: Any, value: object) -> None:
    again = pickle.loads(pickle.dumps(codec))
    assert again == codec
    assert again.decode(again.encode(value)) == value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | FINITE | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(value=JSON, codec=st.sampled_from([codecs.json, codecs.msgpack]))
def test_json_and_msgpack_round_trip(value: object, codec: codecs.Codec[Any]) -> None:
    assert codec.decode(codec.encode(value)) == value


TIMES = st.datetimes() | st.dates() | st.times()
MEMBERS = st.sampled_from([*Color, *Level, *Mode])


@given(value=JSON | TIMES | MEMBERS | st.decimals(allow_nan=False) | st.uuids() | st.binary()
       | st.just(Order(1, Decimal(2), [])))  # fmt: skip
def test_the_standard_library_writes_the_same_json(value: object) -> None:
    assert _normal(codecs._standard_encode(value)) == _normal(codecs.json.encode(value))


def _normal(written: bytes) -> object:
    """Floats may differ in their digits: 1e16 and 1e+16. Everything else must be equal, byte for byte."""
    return msgspec.json.decode(written) if b"e" in written or b"\\u" in written or b"\x7f" in written else written


def test_msgpack_checks_the_type() -> None:
    codec = msgpack_of(Order)
    order = Order(7, Decimal("9.90"), ["x"])
    assert codec.decode(codec.encode(order)) == order
    with pytest.raises(InvalidValue, match="Object missing required field `customer`"):
        codec.decode(codecs.msgpack.encode({}))
    assert codecs.msgpack.decode(codecs.msgpack.encode([b"\xff", NOON])) == [b"\xff", NOON]


_WITHOUT = """
import sys
sys.modules["msgspec"] = None
import rillet
from rillet.store import codecs
from rillet.store.codecs import json_of, msgpack_of, text_of
from rillet.errors import InvalidValue

def error(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

with rillet.open() as store:
    store.hash("k", codec=codecs.json)["f"] = {"a": [1, None, "ü"]}
    print(store.hash("k")["f"])
    print(store.hash("k", codec=codecs.json)["f"])
print(json_of(float).decode(b"5"), json_of(int).decode(b"5"), text_of(int | None).decode(b""))
print(error(lambda: json_of(int).decode(b"true")))
print(error(lambda: json_of(list[int])))
print(error(lambda: codecs.msgpack))
print(error(lambda: codecs.json.encode(object())))
"""


def test_without_msgspec() -> None:
    folder = str(Path(rillet.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT], env={"PYTHONPATH": folder, "PYTHONIOENCODING": "utf-8"}, text=True,
        capture_output=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        '{"a":[1,null,"ü"]}',
        "{'a': [1, None, 'ü']}",
        "5.0 5 None",
        "InvalidValue: Expected int; got b'true'",
        "MissingExtra: json_of(list[int]) needs msgspec: pip install 'rillet[codecs]'",
        "MissingExtra: MessagePack needs msgspec: pip install 'rillet[codecs]'",
        "TypeError: object has no JSON form without msgspec: pip install 'rillet[codecs]'",
    ]


_: Callable[[bytes], int] = text_of(int).decode  # mypy knows the type of the value
