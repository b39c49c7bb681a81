"""Long doubles: parsed, rounded and formatted as on x86 and in Redis."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.structs.long_double import LONGEST_TEXT, NotFinite, format_decimal, parse, rounded
from tests.judge import Judge


@pytest.mark.parametrize("text", [b"", b" 1", b"1 ", b"x", b"1x", b"nan", b"--1", b"1e", b".", b"0x", b"1e99999999",
                                  b"1e-99999", b"1" * (LONGEST_TEXT + 1), b"1\x00"])  # fmt: skip
def test_text_that_is_not_a_number_is_rejected(text: bytes) -> None:
    assert parse(text) is None


@pytest.mark.parametrize("text", [b"inf", b"-Infinity", b"+INF"])
def test_infinity_raises_its_own_error(text: bytes) -> None:
    with pytest.raises(NotFinite):
        parse(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [(b"0x1p3", 8), (b"-0x.8", Fraction(-1, 2)), (b"1.5", Fraction(3, 2)), (b"+.5e1", 5), (b"0e999999999", 0),
     (b"5.", 5)],
)  # fmt: skip
def test_texts_parse_to_exact_values(text: bytes, value: Fraction) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [(Fraction(0), b"0"), (Fraction(1, 10**18), b"0"), (Fraction(-1, 4), b"-0.25"),
     (Fraction(10**30), b"1" + b"0" * 30), (Fraction(-1, 10**18), b"0")],
)  # fmt: skip
def test_values_are_formatted_as_in_redis(value: Fraction, text: bytes) -> None:
    assert format_decimal(value) == text


@given(st.fractions())
def test_rounding_is_close_and_idempotent(value: Fraction) -> None:
    near = rounded(value)
    assert abs(near - value) * 2**64 <= abs(value)
    assert rounded(near) == near
    assert near.denominator & (near.denominator - 1) == 0


def test_values_above_the_largest_are_infinite() -> None:
    largest = Fraction((1 << 64) - 1) * (1 << 16320)
    assert rounded(largest) == largest
    with pytest.raises(NotFinite):
        rounded(largest * 2)


@given(st.lists(st.floats(min_value=-1e30, max_value=1e30), min_size=1, max_size=5))
def test_sums_equal_those_of_a_real_server(judge_of_session: Judge, numbers: list[float]) -> None:
    client = judge_of_session.client()
    client.delete("sum")
    ours = b"0"
    for number in numbers:
        text = repr(number).encode()
        ours = format_decimal(rounded((parse(ours) or Fraction(0)) + (parse(text) or Fraction(0))))
        assert client.execute_command("INCRBYFLOAT", "sum", text) == ours
    client.close()
