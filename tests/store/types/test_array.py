"""Array on the stores that have arrays: those of rillet, and a Redis of 8.8 or newer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, assert_type

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rillet
from rillet import Array, Store
from rillet.errors import CommandError, WrongType
from rillet.store import codecs
from rillet.store.codecs import text_of
from rillet.store.types.array import LAST
from tests.judge import Judge
from tests.store.conftest import KINDS, Frontend
from tests.store.types.conftest import only

OURS = only(*KINDS[:-1])


@pytest.fixture(params=[2, 3])
def newest(request: pytest.FixtureRequest, peer_of: Callable[[str], Judge]) -> Iterator[Store]:
    """A store over the newest Redis, in both versions of the protocol."""
    with rillet.connect(f"redis://127.0.0.1:{peer_of('newest').port}/0?protocol={request.param}") as store:
        store.execute("FLUSHALL")
        yield store


def use(store: Store) -> None:
    log = store.array("log")
    assert (len(log), list(log), log[:], log.get_all(), log.info()) == (0, [], [], {}, {})
    log[2] = "c"
    assert log.set_value(2, "C") is False
    assert (log.append("a"), log.append("b"), log.next_index()) == (0, 1, 2)
    assert log[:] == ["a", "b", "C"] == list(log)
    assert (log[0], log[-1], log[1:9], log[5:3], log[-2:]) == ("a", "C", ["b", "C", *[None] * 6], [], ["b", "C"])
    for index in (3, -4):
        with pytest.raises(IndexError, match=f"the array 'log' has no (value at|index) {index}"):
            _ = log[index]
    with pytest.raises(ValueError, match=r"must have step 1, got 2: use range"):
        _ = log[::2]
    assert (log.get(1), log.get(9), log.get(9, "none")) == ("b", None, "none")
    assert log.update({100: "x", 10**18: "far"}) == 2
    assert log.update([(2**63, "farther")]) == 1
    assert log.size() == 2**63 + 1
    assert log.mget([0, 50, 2**63]) == ["a", None, "farther"]
    assert log.set_range(7, ["7", "8"]) == 2
    assert log.range(8, 6) == ["8", "7", None]
    assert list(log.items()) == list(log.get_all().items()) == list(log.scan(0, LAST))
    assert [index for index, _ in log.scan(2**63, 5)] == [2**63, 10**18, 100, 8, 7]
    del log[100]
    with pytest.raises(IndexError):
        del log[100]
    del log[7:9]
    assert (log.remove(10**18, 5), log.remove_range(3)) == (1, 1)
    assert log == {0: "a", 1: "b", 2: "C"}
    assert log == store.array("log")
    assert log != {0: "a"}
    assert (log == ["a"]) is False
    assert ("b" in log, "none" in log, None in log) == (True, False, False)
    assert (log.index("b"), log.count("b"), log.used(), log.used(1, 9)) == (1, 1, 3, 2)
    with pytest.raises(ValueError, match="the array 'log' does not contain 'none'"):
        log.index("none")
    assert log.seek(9)
    assert log.append("j") == 9
    assert log.last(2) == [None, "j"]
    assert log.last(2, newest_first=True) == ["j", None]
    assert log.info()["count"] == 4
    assert log.info(full=True)["avg-sparse-size"] == 8.0
    log.clear()
    assert not log.exists()
    assert not log.seek(1)
    assert repr(log) == "Array('log')"


def search(store: Store) -> None:
    log = store.array("log")
    log.extend(["info start", "ERROR disk", "error net", "stop 404"])
    log.extend([])
    assert log.find(contains="error") == [2]
    assert log.find(contains="error", ignore_case=True) == [1, 2]
    assert log.find(contains=["info", "stop"]) == [0, 3]
    assert log.find(glob="*o*", regex="t$", match_all=True) == [0, 2]
    assert log.find(regex="[0-9]+$", start=3, end=0) == [3]
    assert log.find_items(equals=b"error net", contains="start", limit=1) == {0: "info start"}
    with pytest.raises(ValueError, match="pass a condition"):
        log.find()
    with pytest.raises(CommandError, match="invalid regular expression"):
        log.find(regex="(")
    numbers = store.array("numbers", codec=text_of(float))
    numbers.set_range(0, [3, 0.5, -2])
    assert (numbers.sum(), numbers.min(), numbers.max(), numbers.sum(5, 9)) == (1.5, -2, 3, None)
    assert (numbers.combine_bits("and"), numbers.combine_bits("xor", 9, 9)) == (0, None)
    assert_type(numbers[0], float)
    assert_type(numbers[:2], list[float | None])
    ring = store.array("ring")
    assert [ring.push(*"abcde", size=3), ring.push("f", size=3)] == [1, 2]
    assert ring.last(3) == ["d", "e", "f"]
    with pytest.raises(ValueError, match="push at least one value"):
        ring.push(size=3)
    with pytest.raises(CommandError, match="maximum of 1000000"):
        ring.range(0, 10**6)


@OURS
def test_an_array_is_a_sparse_list(store: Store) -> None:
    use(store)


@OURS
def test_search_sums_and_rings(store: Store) -> None:
    search(store)


@pytest.mark.peer
def test_over_the_newest_redis(newest: Store) -> None:
    use(newest)
    newest.execute("FLUSHALL")
    search(newest)


@only("memory")
def test_pages_codecs_types_and_objects(store: Store) -> None:
    many = store.array("many", codec=text_of(int))
    many.update((at * 3, at) for at in range(3500))
    assert list(many) == list(range(3500))
    assert [value for _, value in many.scan(3 * 3499, 0)] == list(range(3499, -1, -1))
    assert [len(page) for page in many.pages(0, 5999)] == [1000, 1000, 0]
    anything = store.array("json", codec=codecs.json)
    anything.extend([None, {"a": 1}])
    assert anything[:] == [None, {"a": 1}]
    assert anything.index({"a": 1}) == 1
    assert isinstance(store["many"], Array)
    assert store.type("many") == "array"
    store.hash("hash")["f"] = "v"
    wrong = store.array("hash")
    for call in (lambda: wrong.append("x"), lambda: wrong[0], lambda: store.hash("many")["x"]):
        with pytest.raises(WrongType):
            call()


@only("memory")
def test_asyncio(frontend: Frontend) -> None:
    async def run() -> None:
        log = frontend.store.aio().array("log")
        await log.extend("abc")
        assert [value async for value in log] == ["a", "b", "c"]
        assert [item async for item in log.scan(2, 1)] == [(2, "c"), (1, "b")]
        assert await log.get_value(-1) == "c"
        assert await log.find(regex="[ac]") == [0, 2]

    asyncio.run(run())


INDEX = st.integers(0, 60)
ACTIONS = st.one_of(
    st.tuples(st.just("set_value"), INDEX, st.sampled_from("abc")),
    st.tuples(st.just("get"), INDEX),
    st.tuples(st.just("remove"), INDEX),
    st.tuples(st.just("remove_range"), INDEX, INDEX),
    st.tuples(st.just("set_range"), INDEX, st.lists(st.sampled_from("abc"), max_size=20)),
)


@only("memory")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=st.lists(ACTIONS, max_size=20), part=st.builds(slice, st.none() | st.integers(-9, 70)))
def test_like_a_dict(store: Store, actions: list[tuple[Any, ...]], part: slice) -> None:
    store.delete("key")
    stored, model = store.array("key"), dict[int, str]()
    for name, *arguments in actions:
        getattr(stored, name)(*arguments)
        if name == "set_value":
            model[arguments[0]] = arguments[1]
        elif name == "set_range":
            model.update(enumerate(arguments[1], arguments[0]))
        elif name == "remove":
            model.pop(arguments[0], None)
        elif name == "remove_range":
            low, high = sorted(arguments)
            model = {index: value for index, value in model.items() if not low <= index <= high}
        assert stored == model
    full = [model.get(index) for index in range(max(model, default=-1) + 1)]
    start = part.indices(len(full))[0] if part.start is None or part.start < 0 else part.start
    assert stored[part.start :] == full[start:]
    assert len(stored) == len(full)
