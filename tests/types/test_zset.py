"""Sorted sets compared with a sorted dict: every encoding, change, read and copy."""

from __future__ import annotations

import random
from collections.abc import Iterable
from math import copysign, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.types.compat import COMPATS
from rillet.types.encoding_limits import Defaults
from rillet.types.zset import GREATEST, LEAST, MemberRange, ScoreRange, Zset

SCORES = st.sampled_from([-inf, -1.5, 0.0, 1.0, 1.5, 1e17, 5e18, inf]) | st.integers(-2, 3).map(float)
MEMBERS = st.sampled_from([b"", b"1", b"2", b"10", b"-7", b"a", b"b", b"ab", b"x" * 9])


def limits(entries: int = 128, value: int = 64, compat: str = "newest") -> Defaults:
    made = Defaults()
    made.zset_max_listpack_entries, made.zset_max_listpack_value = entries, value
    made.compat = COMPATS[compat]
    return made


def ordered(model: dict[bytes, float]) -> list[tuple[bytes, float]]:
    return sorted(model.items(), key=lambda pair: (pair[1], pair[0]))


def filled(pairs: Iterable[tuple[bytes, float]], entries: int = 128) -> Zset:
    value = Zset.for_size(1, 0, limits(entries))
    for member, score in pairs:
        value.add(member, score, limits(entries))
    return value


@given(st.data(), st.sampled_from([0, 3, 128]), st.sampled_from(["7.0", "newest"]))
def test_it_behaves_as_a_sorted_dict(data: st.DataObject, entries: int, compat: str) -> None:
    rules = limits(entries, 8, compat)
    value, model = Zset.for_size(1, 0, rules), dict[bytes, float]()
    for _ in range(data.draw(st.integers(0, 25))):
        member, score = data.draw(MEMBERS), data.draw(SCORES)
        assert value.score(member) == model.get(member)
        assert (member in value) == (member in model)
        action = data.draw(st.integers(0, 6))
        if action == 6 and model:
            start = data.draw(st.integers(0, len(model) - 1))
            count = data.draw(st.integers(0, len(model) - start))
            value.delete(start, count)
            model = dict(ordered(model)[:start] + ordered(model)[start + count :])
        elif action > 3:
            assert value.remove(member) == (member in model)
            model.pop(member, None)
        else:
            value.add(member, score, rules)
            model[member] = score
        assert list(value) == ordered(model)
        assert len(value) == len(model)
        if model:
            value.check()
    assert [value.rank(member) for member, _ in ordered(model)] == list(range(len(model)))
    assert value.rank(b"nobody") is None
    for start in range(len(model) + 1):
        for count in range(len(model) - start + 1):
            window = ordered(model)[start : start + count]
            assert value.slice(start, count) == window
            assert value.slice(start, count, True) == window[::-1]


@given(st.dictionaries(MEMBERS, SCORES), SCORES, SCORES, st.booleans(), st.booleans())
def test_a_range_of_scores_is_a_window(
    model: dict[bytes, float], low: float, high: float, low_open: bool, high_open: bool
) -> None:
    wanted = ScoreRange(low, high, low_open, high_open)
    above = [pair for pair in ordered(model) if low < pair[1] or (low == pair[1] and not low_open)]
    found = [pair for pair in above if pair[1] < high or (pair[1] == high and not high_open)]
    for entries in (0, 128):
        value = filled(model.items(), entries)
        start, count = value.window_of_scores(wanted)
        assert value.slice(start, count) == found


ENDS = MEMBERS.map(lambda member: (1, member)) | st.sampled_from([LEAST, GREATEST])


@given(st.sets(MEMBERS), ENDS, ENDS, st.booleans(), st.booleans())
def test_a_range_of_members_is_a_window(
    members: set[bytes], low: tuple[int, bytes], high: tuple[int, bytes], low_open: bool, high_open: bool
) -> None:
    wanted = MemberRange(low, high, low_open, high_open)
    found = [(member, 5.0) for member in sorted(members) if wanted.above_low(member) and wanted.below_high(member)]
    for entries in (0, 128):
        value = filled([(member, 5.0) for member in members], entries)
        for backwards in (False, True):
            start, count = value.window_of_members(wanted, backwards)
            assert value.slice(start, count) == found


def test_a_listpack_becomes_a_skiplist_and_stays_one() -> None:
    value = filled([(b"%d" % number, float(number)) for number in range(128)])
    assert value.encoding() == "listpack"
    value.add(b"one more", -1.0)
    assert value.encoding() == "skiplist"
    assert value.rank(b"one more") == 0
    value.delete(1, 128)
    value.check()
    assert list(value) == [(b"one more", -1.0)]
    assert value.encoding() == "skiplist"
    wide = filled([(b"a", 1.0)])
    wide.add(b"x" * 64, 0.0)
    assert wide.encoding() == "listpack"
    wide.add(b"x" * 65, 0.0)
    assert wide.encoding() == "skiplist"
    wide.check()


def test_a_new_sorted_set_has_the_encoding_that_its_members_allow() -> None:
    pairs = [(b"m%d" % number, float(number % 5)) for number in range(128)]
    assert Zset.from_pairs(pairs, limits()).encoding() == "listpack"
    assert Zset.from_pairs([*pairs, (b"a", 1.0)], limits()).encoding() == "skiplist"
    assert Zset.from_pairs([(b"x" * 65, 1.0)], limits()).encoding() == "skiplist"
    assert list(Zset.from_pairs(pairs, limits())) == list(Zset.from_pairs(pairs, limits(0))) == ordered(dict(pairs))


def test_only_a_skiplist_keeps_negative_zero() -> None:
    for entries, sign in ((128, 1.0), (0, -1.0)):
        score = filled([(b"a", -0.0)], entries).score(b"a")
        assert score == 0
        assert copysign(1, score) == sign


@pytest.mark.parametrize("compat", ["7.0", "newest"])
def test_a_listpack_stores_scores_as_integers_or_text(compat: str) -> None:
    value = Zset()
    for member, score in ((b"a", 3.0), (b"b", 0.1), (b"c", inf), (b"d", 1e17)):
        value.add(member, score, limits(compat=compat))
    assert value.listpack is not None
    text = b"0.10000000000000001" if compat == "7.0" else b"0.1"
    assert value.listpack.values() == [b"b", text, b"a", 3, b"d", 10**17, b"c", b"inf"]


@pytest.mark.parametrize("entries", [0, 128])
def test_a_copy_is_equal_and_independent(entries: int) -> None:
    value = filled([(b"%d" % number, float(-number)) for number in range(50)], entries)
    twin = value.copy()
    assert list(twin) == list(value)
    assert twin.encoding() == value.encoding()
    twin.add(b"7", 99.0)
    twin.remove(b"8")
    twin.check()
    assert value.score(b"7") == -7.0
    assert b"8" in value
    assert len(twin) == 49


@pytest.mark.parametrize("entries", [0, 128])
def test_a_scan_returns_every_permanent_member_and_random_draws_reach_all(entries: int) -> None:
    random.seed(3)
    value = filled([(b"m%d" % number, float(number)) for number in range(100)], entries)
    met, cursor = set[bytes](), 0
    while True:
        cursor, pairs = value.scan(cursor, 7)
        met |= {member for member, _ in pairs}
        value.remove(b"m%d" % random.randrange(50))
        value.add(b"new%d" % len(met), 1.0, limits(entries)) if b"new%d" % len(met) not in value else None
        value.check()
        if not cursor:
            break
    assert {b"m%d" % number for number in range(50, 100)} <= met
    assert {value.random() for _ in range(3000)} >= set(value.slice(0, len(value)))
    sample = value.sample(20)
    assert len(set(sample)) == 20
    assert all(value.score(member) == score for member, score in sample)
