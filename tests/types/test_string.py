"""The string value: encodings, growth in place, integers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.types.string import RAW, TEXT, String, new_string, string2ll


@pytest.mark.parametrize(
    ("data", "encoding"),
    [(b"", "embstr"), (b"12", "int"), (b"-9223372036854775808", "int"), (b"9223372036854775808", "embstr"),
     (b"01", "embstr"), (b"x" * 44, "embstr"), (b"x" * 45, "raw")],
)  # fmt: skip
def test_the_encoding_follows_from_the_text(data: bytes, encoding: str) -> None:
    assert new_string(data).encoding() == encoding


def test_the_encoding_depends_on_how_the_value_was_created() -> None:
    assert String(b"12", TEXT).encoding() == "embstr"
    assert String(b"12", RAW).encoding() == "raw"
    grown = new_string(b"1")
    grown.append(b"2")
    assert grown.encoding() == "raw"
    assert grown.value() == b"12"


@given(st.integers(), st.sampled_from([b"%d", b"+%d", b"0%d", b" %d", b"%d "]))
def test_only_canonical_64_bit_integers_are_parsed(number: int, form: bytes) -> None:
    text = form % number
    wanted = number if form == b"%d" and -(2**63) <= number < 2**63 else None
    assert string2ll(text) == wanted


@pytest.mark.parametrize(
    "text", [b"", b"-", b"-0", b"00", b"1a", b"1" * 25, b"\xff", b"9" * 20, b"-" + b"1" * 19 + b"x", b"1" * 19 + b" "]
)
def test_text_that_is_not_an_integer_returns_none(text: bytes) -> None:
    assert string2ll(text) is None


STEPS = st.one_of(st.binary(max_size=20), st.tuples(st.integers(0, 80), st.binary(min_size=1, max_size=20)))


@given(st.binary(max_size=60), st.lists(STEPS))
def test_growing_behaves_as_a_bytearray(data: bytes, steps: list[bytes | tuple[int, bytes]]) -> None:
    string, model = new_string(data), bytearray(data)
    for step in steps:
        if isinstance(step, bytes):
            model += step
            assert string.append(step) == len(model)
        else:
            offset, part = step
            model.extend(bytes(max(offset - len(model), 0)))
            model[offset : offset + len(part)] = part
            assert string.set_range(offset, part) == len(model)
        string.check()
    assert string.value() == model
    assert len(string) == len(model)
    assert string.get_range(3, 9) == model[3:9]
    twin = string.copy()
    string.append(b"!")
    assert twin.value() == model
    assert twin.encoding() in ("raw", new_string(data).encoding())
