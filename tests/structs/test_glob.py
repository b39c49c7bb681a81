"""Glob patterns: Redis's rules and quirks compared with a real server, and bounded time."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.structs.glob import Glob, matches
from tests.judge import Judge


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (b"*", b"anything", True),
        (b"*", b"", False),
        (b"", b"", True),
        (b"", b"a", False),
        (b"a*", b"a", True),
        (b"*a", b"ba", True),
        (b"h?llo", b"hello", True),
        (b"h?llo", b"hllo", False),
        (b"h[ae]llo", b"hallo", True),
        (b"h[^e]llo", b"hello", False),
        (b"h[a-b]llo", b"hbllo", True),
        (b"h[b-a]llo", b"hallo", True),
        (b"\\*", b"*", True),
        (b"\\*", b"x", False),
        (b"[\\]]", b"]", True),
        (b"[a", b"a", True),
        (b"[", b"[", False),
        (b"[^", b"x", True),
        (b"a\\", b"a\\", True),
        (b"*a*b*", b"xxaxxbxx", True),
        (b"*ab", b"aab", True),
        (b"a*a", b"a", False),
        (b"**", b"x", True),
        (b"[\x80-\x01]", b"\xff", True),
    ],
)
def test_patterns_match_by_redis_s_rules(pattern: bytes, text: bytes, expected: bool) -> None:
    assert matches(pattern, text) is expected


def test_ignoring_case_excludes_escaped_bytes_of_a_class() -> None:
    assert matches(b"FO[A-Z]", b"fox", True)
    assert not matches(b"FO[A-Z]", b"fox")
    assert not matches(b"[\\A]", b"a", True)


def test_many_stars_cost_at_most_the_product_of_the_lengths() -> None:
    # Backtracking over all splits of the text would take practically forever.
    assert not matches(b"a*" * 500 + b"b", b"a" * 20_000)


@given(st.binary(max_size=20), st.binary(max_size=10), st.binary(max_size=10))
def test_a_star_matches_any_bytes(text: bytes, before: bytes, after: bytes) -> None:
    def quote(raw: bytes) -> bytes:
        return b"".join(b"\\" + bytes((byte,)) for byte in raw)

    whole = before + text + after
    assert matches(quote(before) + b"*" + quote(after), whole) is bool(whole)


def test_matches_equal_those_of_a_real_server(judge: Judge) -> None:
    client = judge.client()
    chooser = random.Random(7)
    alphabet = [b"a", b"b", b"c", b"*", b"?", b"[", b"]", b"^", b"-", b"\\", b"\xff"]
    texts = [b"".join(chooser.choices((b"a", b"b", b"c", b"-", b"]", b"\xff", b"^"), k=size))
             for size in (1, 1, 2, 2, 3, 3, 4, 5, 6) for _ in range(12)]  # fmt: skip
    client.flushall()
    client.mset(dict.fromkeys(texts, b"1"))
    for _ in range(600):
        pattern = b"".join(chooser.choices(alphabet, k=chooser.randint(1, 8)))
        expected = sorted(client.execute_command("KEYS", pattern))
        assert sorted({text for text in texts if matches(pattern, text)}) == expected, pattern
    client.flushall()
    client.close()


@pytest.mark.parametrize("stars", [1000, 1001])
@pytest.mark.parametrize("end", [b"", b"*", b"**", b"?"])
def test_a_pattern_with_more_than_a_thousand_stars_matches_nothing(judge: Judge, stars: int, end: bytes) -> None:
    pattern, key = b"*?" * stars + end, b"a" * 3000
    with judge.client() as client:
        client.flushall()
        client.set(key, b"1")
        assert (client.execute_command("KEYS", pattern) == [key]) is (stars == 1000)
        client.flushall()
    assert matches(pattern, key) is (stars == 1000)
    assert Glob(pattern).matching([key]) == [key] * (stars == 1000)


def test_a_pattern_longer_than_every_text_is_not_compiled() -> None:
    """Clients may send patterns of any length, and compiling very long ones takes seconds."""
    glob = Glob(b"[a-z]" * 1000 + b"*" + b"x" * 1000)
    assert not glob.matches(b"a" * 1999)
    assert glob._match is None
    assert glob.matches(b"a" * 1000 + b"x" * 1000)
    assert glob.matches(b"a" * 1500 + b"x" * 1000)
    assert not glob.matches(b"a" * 2000)
    assert glob._match is not None
