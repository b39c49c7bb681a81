"""List on every kind of store, and against a deque and a Python list."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, assert_type

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rillet import List, Store
from rillet.errors import WrongType
from rillet.store import codecs
from rillet.store.codecs import text_of
from tests.store.conftest import Frontend
from tests.store.types.models import MODELLED, compare, outcome


def test_a_list_is_a_sequence_and_a_deque(store: Store) -> None:
    jobs = store.list("jobs")
    assert (len(jobs), list(jobs), bool(jobs), jobs[:], list(reversed(jobs))) == (0, [], False, [], [])
    assert (jobs.append("b"), jobs.appendleft("a")) == (1, 2)
    jobs.extend(["c", "d"])
    jobs.extendleft(["y", "x"])
    jobs.extend([])
    assert list(jobs) == jobs.get_all() == ["x", "y", "a", "b", "c", "d"]
    assert jobs == ["x", "y", "a", "b", "c", "d"]
    assert jobs == store.list("jobs")
    assert jobs != ["x"]
    assert (jobs == ("x",)) is False
    assert list(reversed(jobs)) == ["d", "c", "b", "a", "y", "x"]
    assert (jobs[0], jobs[-1]) == ("x", "d")
    assert (jobs[1:3], jobs[-2:], jobs[:-4], jobs[3:1]) == (["y", "a"], ["c", "d"], ["x", "y"], [])
    jobs[1] = "z"
    assert jobs.range(0, 1) == ["x", "z"]
    for index in (6, -7):
        with pytest.raises(IndexError, match=f"the list 'jobs' has no index {index}"):
            _ = jobs[index]
        with pytest.raises(IndexError, match=f"the list 'jobs' has no index {index}"):
            jobs[index] = "n"
    with pytest.raises(IndexError):
        store.list("none")[0] = "n"
    with pytest.raises(ValueError, match=r"must have step 1, got 2: use get_all\(\)\[...\]"):
        _ = jobs[::2]
    assert ("a" in jobs, "none" in jobs, None in jobs) == (True, False, False)
    assert (jobs.index("a"), jobs.index("d", 2), jobs.count("a"), jobs.count("none")) == (2, 5, 1, 0)
    for missing in (lambda: jobs.index("none"), lambda: jobs.index("x", 1), lambda: jobs.index("d", 0, 3)):
        with pytest.raises(ValueError, match="the list 'jobs' does not contain"):
            missing()
    assert (jobs.insert_before("a", "1"), jobs.insert_after("a", "2")) == (7, 8)
    assert list(jobs) == ["x", "z", "1", "a", "2", "b", "c", "d"]
    for target in (jobs, store.list("none")):
        with pytest.raises(ValueError, match="does not contain 'none'"):
            target.insert_before("none", "n")
    jobs.trim(1, -2)
    assert jobs.remove("1") == 1
    assert jobs.remove("none") == 0
    assert list(jobs) == ["z", "a", "2", "b", "c"]
    jobs.extend("aa")
    assert (jobs.remove("a", -1), jobs.remove("a", 0)) == (1, 2)
    jobs.clear()
    assert not jobs.exists()
    assert repr(jobs) == "List('jobs')"


def test_popping(store: Store) -> None:
    jobs = store.list("{jobs}")
    for pop in (jobs.pop, jobs.popleft):
        with pytest.raises(IndexError, match="the list '{jobs}' is empty"):
            pop()
        with pytest.raises(IndexError):
            pop(block=0.001)
        assert pop(default=None) is None
        assert pop(default=7, block=1e-6) == 7
    with pytest.raises(TypeError):
        jobs.pop(0)  # type: ignore[call-overload]
    assert (jobs.pop_many(2), jobs.popleft_many(2)) == ([], [])
    jobs.extend("abcdefgh")
    assert (jobs.pop(), jobs.popleft(), jobs.pop(block=5), jobs.popleft(block=5)) == ("h", "a", "g", "b")
    assert (jobs.pop_many(2), jobs.popleft_many(1)) == (["f", "e"], ["c"])
    done = store.list("{jobs}:done")
    assert jobs.move(done) == "d"
    assert jobs.move(done) is None
    assert jobs.move(done, block=0.001) is None
    done.append("e")
    assert done.move(jobs, "right", "left") == "e"
    assert done.move(jobs, block=5) == "d"
    assert list(jobs) == ["e", "d"]


def test_a_pop_waits_for_a_value(frontend: Frontend) -> None:
    popped: list[str] = []
    thread = threading.Thread(target=lambda: popped.append(frontend.store.list("jobs").popleft(block=60)))
    thread.start()
    frontend.another().list("jobs").append("job")
    thread.join(60)
    assert popped == ["job"]


def test_codecs(store: Store) -> None:
    numbers = store.list("numbers", codec=text_of(int))
    numbers.extend([3, 1])
    assert numbers[0] + numbers.pop() == 4
    assert not numbers.contains("x")
    assert_type(numbers, List[int])
    assert_type(numbers.pop(default=None), int | None)
    anything = store.list("json", codec=codecs.json)
    anything.extend([None, True, {"a": 1}])
    assert anything[:] == [None, True, {"a": 1}]
    assert anything.popleft(default="empty") is None
    assert anything.index({"a": 1}) == 1


def test_iteration_reads_pages(store: Store) -> None:
    many = store.list("many", codec=text_of(int))
    many.extend(range(3500))
    assert list(many) == list(range(3500))
    assert list(reversed(many)) == list(reversed(range(3500)))


def test_a_key_of_another_type(store: Store) -> None:
    store.hash("hash")["f"] = "v"
    wrong = store.list("hash")
    for call in (lambda: wrong.append("x"), lambda: list(wrong), lambda: wrong.pop(), lambda: wrong.set_value(0, "x")):
        with pytest.raises(WrongType):
            call()


VALUES = st.sampled_from(["1", "2", "x", "ü", ""])
INDEXES = st.integers(-6, 6)
ENDS = st.none() | INDEXES
ACTIONS = st.one_of(
    st.tuples(st.sampled_from(["append", "appendleft"]), VALUES),
    st.tuples(st.sampled_from(["extend", "extendleft"]), st.lists(VALUES)),
    st.tuples(st.sampled_from(["pop", "popleft", "__len__", "clear"])),
    st.tuples(st.just("__getitem__"), INDEXES),
    st.tuples(st.just("__setitem__"), INDEXES, VALUES),
    st.tuples(st.sampled_from(["__contains__", "count", "index"]), VALUES),
    st.tuples(st.just("index"), VALUES, st.integers(-6, 6), st.integers(-6, 6)),
)
NO_REPLY = ("append", "appendleft")  # a deque returns None, a stored list its length


@MODELLED
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=st.lists(ACTIONS, max_size=20), slices=st.lists(st.builds(slice, ENDS, ENDS), max_size=5))
def test_like_a_deque(store: Store, actions: list[tuple[Any, ...]], slices: list[slice]) -> None:
    store.delete("key")
    stored, model = store.list("key"), deque[str]()
    for action in actions:
        if action[0] in NO_REPLY:
            outcome(model, action)
            assert outcome(stored, action) == len(model)
        else:
            compare(stored, model, action)
    assert stored == list(model)
    assert list(stored) == list(model)
    assert list(reversed(stored)) == list(reversed(model))
    for part in slices:
        assert stored[part] == list(model)[part]
