"""The orders of SORT: by scores, by bytes, and by the partial quicksort, which sorts a window only."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.structs.sorting import (
    FAST_FLOAT,
    STRING2D,
    STRTOD,
    VALKEY,
    first_by_scores,
    number_of,
    order_by_scores,
    partial_order,
    picked,
    scores_of,
    sorted_by_keys,
)

STYLES = (STRTOD, FAST_FLOAT, STRING2D, VALKEY)
WORDS = st.lists(st.sampled_from([b"%d" % number for number in range(-5, 30)]), max_size=120)
KEYS = st.lists(st.sampled_from([b"", b"a", b"b", b"ab", b"c"]), max_size=90)


@given(WORDS, st.booleans())
def test_elements_are_in_the_order_of_their_numbers_and_bytes(words: list[bytes], descending: bool) -> None:
    order = order_by_scores(words, scores_of(words, STRTOD), descending)
    expected = sorted(words, key=lambda one: (int(one), one), reverse=descending)
    assert picked(words, order, 0, len(words)) == expected
    integers: list[bytes | int] = [int(word) if at % 3 else word for at, word in enumerate(words)]
    order = order_by_scores(integers, scores_of(integers, STRTOD), descending)
    assert [int(one) for one in picked(integers, order, 0, len(words))] == list(map(int, expected))
    for count in range(1, min(len(words), 9)):
        assert first_by_scores(words, scores_of(words, STRTOD), descending, count) == expected[:count]


@given(WORDS, st.booleans())
def test_elements_of_one_score_are_in_the_order_of_their_bytes(words: list[bytes], descending: bool) -> None:
    order = order_by_scores(words, bytearray(8 * len(words)), descending)
    assert picked(words, order, 0, len(words)) == sorted(words, reverse=descending)


@given(KEYS, st.booleans())
def test_elements_with_equal_keys_keep_their_order(keys: list[bytes], descending: bool) -> None:
    pairs = list(enumerate(keys))
    assert sorted_by_keys(pairs, keys, descending) == sorted(pairs, key=lambda pair: pair[1], reverse=descending)


@given(KEYS, st.integers(0, 90), st.integers(0, 90), st.booleans())
def test_the_partial_quicksort_sorts_the_window(keys: list[bytes], first: int, last: int, descending: bool) -> None:
    last = min(last, len(keys) - 1)
    found = partial_order(list(range(len(keys))), keys, first, last, descending)
    assert sorted(found) == list(range(len(keys)))
    whole = sorted(keys, reverse=descending)
    assert [keys[at] for at in found[first : last + 1]] == whole[first : last + 1]


def test_the_partial_quicksort_exchanges_elements_as_redis_does() -> None:
    """SORT l BY w_* ALPHA LIMIT 0 20 of the elements 0 to 49 with five weights: the reply of redis-server."""
    keys = [b"w%d" % (number % 5) for number in range(50)]
    assert partial_order(list(range(50)), keys, 0, 19, False)[:20] == PARTIAL


# The reply of redis-server 7.0.15 and of the newest; a stable sort would begin with 0, 5, 10.
PARTIAL = [20, 45, 15, 40, 35, 5, 0, 30, 25, 10, 6, 1, 11, 16, 21, 26, 31, 36, 41, 46]


@pytest.mark.parametrize(("text", "numbers"), [
    (b"", (0.0, 0.0, None, None)), (b" 7", (7.0, None, None, None)), (b"7 ", (None,) * 4), (b"+5", (5.0,) * 4),
    (b"0x10", (16.0, None, 16.0, None)), (b"1\0x", (1.0, 1.0, None, 1.0)), (b"\0", (0.0, 0.0, None, None)),
    (b"inf", (float("inf"),) * 4), (b"nan", (None,) * 4), (b"2e308", (None, float("inf"), float("inf"), None)),
    (b"1e-310", (None, 1e-310, 1e-310, 1e-310)), (b"12345678901234567890", (12345678901234567890.0,) * 4),
    (b"5.", (5.0,) * 4), (b".5", (0.5,) * 4), (b".", (None,) * 4), (b"1e", (None,) * 4), (b"-0", (-0.0,) * 4),
])  # fmt: skip
def test_each_server_parses_numbers_in_its_way(text: bytes, numbers: tuple[float | None, ...]) -> None:
    assert tuple(number_of(text, style) for style in STYLES) == numbers


def test_scores_are_doubles_and_missing_texts_count_as_0() -> None:
    assert struct.unpack("3d", scores_of([b"9223372036854775807", None, b"-1.5"], STRTOD)) == (2.0**63, 0.0, -1.5)
    assert scores_of([b"1", b"x", None], STRTOD) is None
