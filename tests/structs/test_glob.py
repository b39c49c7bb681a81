"""Glob patterns: Redis's rules and quirks compared with a real server, and bounded time."""

from __future__ import annotations

import random
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rillet
from rillet.structs.glob import matches, matching
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
    assert matching(pattern, [key]) == [key] * (stars == 1000)


def steps(pattern: bytes, text: bytes) -> int:
    """Return the lines of Python that a match executes."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        matches(pattern, text)
    finally:
        sys.settrace(None)
    return count


@pytest.mark.skipif(rillet.compiled(), reason="compiled functions execute no lines of Python")
@pytest.mark.parametrize("part", [b"[^b-z]", b"[a-z]", b"?", b"a", b"\\a", b"*", b"*a", b"*[^b-z]", b"*?"])
def test_the_cost_of_a_long_pattern_depends_on_the_text(part: bytes) -> None:
    """Clients may send patterns of any length: nothing but the elements that meet a byte of the text may cost time."""
    text = b"a" * 50
    assert steps(part * 10_000, text) == steps(part * 1100, text) or part == b"*"
    assert steps(part * 10_000, text) <= 20 * 10_000


@pytest.mark.skipif(rillet.compiled(), reason="compiled functions execute no lines of Python")
@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (b"a*" * 500 + b"b", b"a" * 600),
        (b"*" + b"a" * 150 + b"b", b"a" * 600),
        (b"*a" * 500 + b"*b", b"a" * 600),
        (b"*[a-b]?" * 300 + b"[^a]", b"a" * 600),
        (b"[^b-z]*" * 900 + b"x*", b"a" * 600),
        (b"*?*[" + b"a-z" * 100, b"1" * 300),
        (b"*\\a\\b" * 200, b"ab" * 199 + b"a" * 1000),
    ],
)
def test_hostile_patterns_and_texts_cost_at_most_the_product_of_their_lengths(pattern: bytes, text: bytes) -> None:
    assert steps(pattern, text) <= 12 * len(pattern) * len(text)


def segments(chance: random.Random) -> bytes:
    """Return a random pattern: stars, literal bytes, classes, escapes, also unfinished ones."""

    def byte() -> bytes:
        return chance.choice((b"a", b"b", b"B", b"c", b"-", b"]", b"^", b"\xff", b"\x00", b"*", b"?", b"[", b"\\"))

    def element() -> bytes:
        match chance.randrange(7):
            case 0:
                return b"*" * chance.randint(1, 2)
            case 1:
                return b"?"
            case 2:
                inner = (chance.choice((byte(), byte() + b"-" + byte(), b"\\" + byte())) for _ in range(3))
                return b"[" + chance.choice((b"", b"^")) + b"".join(inner) + chance.choice((b"]", b"]", b"]", b""))
            case 3:
                return b"\\" + byte()
        return chance.choice((b"a", b"b", b"A"))

    return b"".join(element() for _ in range(chance.randint(1, 9)))


@pytest.mark.slow
def test_random_patterns_select_the_keys_channels_and_settings_of_a_real_server(judge: Judge) -> None:
    chance = random.Random(11)
    names = sorted({bytes(chance.choices(b"aabbABc-]^\xff\x00*?[\\", k=chance.randint(1, 9))) for _ in range(300)})
    with judge.client() as client:
        client.flushall()
        client.mset(dict.fromkeys(names, b"1"))
        settings = [name for name in client.execute_command("CONFIG", "GET", "*")[::2] if name.isascii()]
        listener = client.pubsub()
        listener.subscribe(*names)
        for _ in names:
            assert listener.get_message(timeout=10) is not None
        for _ in range(800):
            pattern = segments(chance)
            chosen = [name for name in names if matches(pattern, name)]
            assert matching(pattern, names) == chosen
            assert sorted(client.execute_command("KEYS", pattern)) == chosen, pattern
            assert sorted(client.execute_command("PUBSUB", "CHANNELS", pattern)) == chosen, pattern
        for _ in range(300):
            name = chance.choice(settings)
            at = chance.randrange(len(name))
            pattern = chance.choice((b"*", b"?*", b"[a-m]*", b"*[^A-Z]*", name[:at])) + name[at:].upper()
            if any(mark in pattern for mark in b"*?["):
                chosen = [setting for setting in settings if matches(pattern, setting, True)]
                assert sorted(client.execute_command("CONFIG", "GET", pattern)[::2]) == sorted(chosen), pattern
        listener.close()
        client.flushall()


@pytest.mark.parametrize(
    "pattern", [b"[^b-z]" * 10_000, b"*[^b-z]" * 900, b"*" + b"[^b-z]" * 10_000, b"[" + b"a-b" * 20_000]
)
@pytest.mark.parametrize("size", [1, 900, 9_999, 10_000, 10_001])
def test_patterns_of_60_000_bytes_match_as_in_a_real_server(judge: Judge, pattern: bytes, size: int) -> None:
    with judge.client() as client:
        client.flushall()
        client.set(b"a" * size, b"1")
        assert client.execute_command("KEYS", pattern) == [b"a" * size] * matches(pattern, b"a" * size)
        client.flushall()
