"""SortedSet on every kind of store, and against a sorted dict."""

from __future__ import annotations

import math
import threading
from typing import Any, assert_type

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rillet import SortedSet, Store
from rillet.errors import CommandError, WrongType
from rillet.store.codecs import json_of, text_of
from tests.store.conftest import Frontend
from tests.store.types.models import MODELLED, compare


def test_a_sorted_set_is_a_mapping_in_the_order_of_the_scores(store: Store) -> None:
    scores = store.zset("scores")
    assert (len(scores), list(scores), bool(scores)) == (0, [], False)
    scores["ann"] = 31.5
    scores.update({"bob": 7}, cid=12)
    scores.update([("dan", -math.inf)])
    everything = {"dan": -math.inf, "bob": 7.0, "cid": 12.0, "ann": 31.5}
    assert list(scores) == list(everything)
    assert list(reversed(scores)) == list(reversed(everything))
    assert list(scores.items()) == list(everything.items())
    assert list(scores.values()) == list(everything.values())
    assert scores == everything == scores.get_all()
    assert scores == store.zset("scores")
    assert scores != {"ann": 31.5}
    assert dict(scores.scan()) == everything
    assert (scores["ann"], scores.get("none"), scores.get("none", 0)) == (31.5, None, 0)
    assert ("ann" in scores, "none" in scores, None in scores, 7.0 in scores.values()) == (True, False, False, True)
    assert 8 not in scores.values()
    assert scores.mget(["bob", "none"]) == [7.0, None]
    assert scores.mget([]) == []
    assert (scores.setdefault("bob", 1), scores.setdefault("eve", 1)) == (7.0, 1.0)
    assert (scores.pop("eve"), scores.pop("eve", None)) == (1.0, None)
    assert (scores.incr("bob"), scores.incr("new", 0.5)) == (8.0, 0.5)
    assert scores.remove("new", "none") == 1
    assert scores.remove() == 0
    del scores["dan"]
    for missing in (lambda: scores["dan"], lambda: scores.pop("dan"), lambda: scores.__delitem__("dan")):
        with pytest.raises(KeyError, match="dan"):
            missing()
    assert scores.random() in scores
    assert scores.popitem() == ("ann", 31.5)
    scores.clear()
    assert scores.random() is None
    assert repr(scores) == "SortedSet('scores')"


def test_conditions_of_add(store: Store) -> None:
    scores = store.zset("scores")
    assert scores.add({"a": 1, "b": 2}) == 2
    assert scores.add([]) == 0
    assert scores.add({"a": 5, "c": 3}, nx=True) == 1
    assert scores.add({"a": 5, "d": 3}, xx=True, changed=True) == 1
    assert scores.add({"a": 4, "b": 4}, gt=True, changed=True) == 1
    assert scores.add({"a": 4, "b": 9}, lt=True, changed=True) == 1
    assert scores == {"a": 4, "b": 4, "c": 3}
    with pytest.raises(CommandError, match="^ERR GT, LT, and/or NX options at the same time are not compatible$"):
        scores.add({"a": 1}, nx=True, gt=True)
    with pytest.raises(ValueError, match="^the score of 'a' must be a number, not nan$"):
        scores["a"] = math.nan


def test_ranks_and_ranges(store: Store) -> None:
    scores = store.zset("scores")
    scores.update({letter: number for number, letter in enumerate("abcdef")})
    assert (scores.rank("a"), scores.rank("a", reverse=True), scores.rank("none")) == (0, 5, None)
    assert scores.range(1, 2) == [("b", 1.0), ("c", 2.0)]
    assert scores.range(0, 1, reverse=True) == [("f", 5.0), ("e", 4.0)]
    assert scores.range(-1) == [("f", 5.0)]
    assert scores.range(7) == []
    assert scores.range_by_score(1, "(3") == [("b", 1.0), ("c", 2.0)]
    assert scores.range_by_score("(1", 3, reverse=True) == [("d", 3.0), ("c", 2.0)]
    assert scores.range_by_score(offset=1, count=2) == [("b", 1.0), ("c", 2.0)]
    assert scores.range_by_score(4, offset=1) == [("f", 5.0)]
    assert (scores.count(), scores.count(1, "(3")) == (6, 2)
    assert scores.remove_range(0, 1) == 2
    assert scores.remove_range_by_score("(4") == 1
    assert list(scores) == ["c", "d", "e"]
    words = store.zset("words")
    words.update(dict.fromkeys(["ann", "bob", "cid", "dan"], 0))
    assert words.range_by_lex("[b", "(d") == ["bob", "cid"]
    assert words.range_by_lex(reverse=True, count=2) == ["dan", "cid"]
    assert words.range_by_lex("-", "[bob", reverse=True) == ["bob", "ann"]
    assert words.count_lex("(ann", "+") == 3
    assert words.remove_range_by_lex("-", "[bob") == 2
    assert list(words) == ["cid", "dan"]


def test_popping(store: Store) -> None:
    scores = store.zset("scores")
    with pytest.raises(KeyError, match="the sorted set 'scores' is empty"):
        scores.pop_min()
    with pytest.raises(KeyError):
        scores.pop_max(block=0.001)
    assert scores.pop_min(default=None) is None
    assert scores.pop_min(default=None, block=0.001) is None
    assert scores.pop_min_many(2) == []
    scores.update({letter: number for number, letter in enumerate("abcdefgh")})
    assert (scores.pop_min(), scores.pop_max()) == (("a", 0.0), ("h", 7.0))
    assert (scores.pop_min(block=5), scores.pop_max(block=5)) == (("b", 1.0), ("g", 6.0))
    assert scores.pop_min_many(2) == [("c", 2.0), ("d", 3.0)]
    assert scores.pop_max_many(1) == [("f", 5.0)]
    assert scores.pop_max_many(9) == [("e", 4.0)]


def test_a_pop_waits_for_a_member(frontend: Frontend) -> None:
    popped: list[object] = []
    thread = threading.Thread(target=lambda: popped.append(frontend.store.zset("jobs").pop_min(block=60)))
    thread.start()
    frontend.another().zset("jobs")["job"] = 1
    thread.join(60)
    assert popped == [("job", 1.0)]


def test_codecs_of_members(store: Store) -> None:
    queue = store.zset("queue", codec=text_of(int))
    queue[7] = 1
    assert queue == {7: 1.0}
    assert not queue.contains("x")
    assert_type(queue, SortedSet[int])
    assert_type(queue.pop_min(default=None), tuple[int, float] | None)
    pairs = store.zset("pairs", codec=json_of(tuple[int, str]))
    pairs[(1, "a")] = 2
    assert pairs.range() == [((1, "a"), 2.0)]
    assert pairs.pop_max() == ((1, "a"), 2.0)


def test_iteration_reads_pages(store: Store) -> None:
    many = store.zset("many")
    many.update({f"member-{n}": n for n in range(3000)})
    assert list(many) == [f"member-{n}" for n in range(3000)]
    assert list(reversed(many)) == [f"member-{n}" for n in reversed(range(3000))]
    assert dict(many.scan("member-1?")) == {f"member-1{n}": 10.0 + n for n in range(10)}


def test_a_key_of_another_type(store: Store) -> None:
    store.hash("hash")["f"] = "v"
    wrong = store.zset("hash")
    for call in (lambda: wrong.add({"x": 1}), lambda: list(wrong), wrong.pop_min, lambda: wrong.pop("x", None)):
        with pytest.raises(WrongType):
            call()


MEMBERS = st.sampled_from(["a", "b", "c", "7", "ü", ""])
SCORES = st.sampled_from([0.0, 1.0, -2.5, 1e300, math.inf, 1 / 3])
ACTIONS = st.one_of(
    st.tuples(st.sampled_from(["__getitem__", "__delitem__", "__contains__", "get", "pop"]), MEMBERS),
    st.tuples(st.sampled_from(["__setitem__", "setdefault", "pop"]), MEMBERS, SCORES),
    st.tuples(st.just("update"), st.dictionaries(MEMBERS, SCORES)),
    st.tuples(st.sampled_from(["__len__", "clear"])),
)


@MODELLED
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=st.lists(ACTIONS, max_size=20))
def test_like_a_dict_sorted_by_value(store: Store, actions: list[tuple[Any, ...]]) -> None:
    store.delete("key")
    stored, model = store.zset("key"), dict[str, float]()
    for action in actions:
        compare(stored, model, action)
    ordered = sorted(model.items(), key=lambda item: (item[1], item[0].encode()))
    assert list(stored.items()) == stored.range() == ordered
    assert stored.range(1, 2) == ordered[1:3]
    assert stored.range(1, 2, reverse=True) == ordered[::-1][1:3]
    assert stored.range_by_score("(0", 1) == [item for item in ordered if 0 < item[1] <= 1]
    assert stored.count(-10, 1) == len([item for item in ordered if -10 <= item[1] <= 1])
    for rank, (member, _) in enumerate(ordered):
        assert stored.rank(member) == rank
    assert stored.pop_min_many(2) == ordered[:2]
    assert dict(stored.scan()) == dict(ordered[2:])
