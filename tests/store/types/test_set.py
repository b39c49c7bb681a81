"""Set on every kind of store, and against a Python set."""

from __future__ import annotations

from typing import Any, assert_type
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rillet
from rillet import Set, Store
from rillet.errors import CommandError, WrongType
from rillet.store import codecs
from rillet.store.codecs import json_of, text_of
from tests.store.conftest import Frontend
from tests.store.types.models import MODELLED, compare


def test_a_set_is_a_set(store: Store) -> None:
    tags = store.set("tags")
    assert (len(tags), list(tags), bool(tags)) == (0, [], False)
    assert (tags.add("red"), tags.add("red"), tags.add("blue")) == (True, False, True)
    assert tags == {"red", "blue"} == tags.members()
    assert tags == store.set("tags")
    assert tags != {"red"}
    assert (tags == ["red", "blue"]) is False
    assert ("red" in tags, "none" in tags, None in tags) == (True, False, False)
    assert tags.contains_many(["red", "none"]) == [True, False]
    assert tags.contains_many([]) == []
    assert (tags.discard("blue"), tags.discard("blue")) == (True, False)
    tags.remove("red")
    with pytest.raises(KeyError, match="red"):
        tags.remove("red")
    with pytest.raises(KeyError, match="the set 'tags' is empty"):
        tags.pop()
    assert (tags.random(), tags.random_many(3), tags.pop_many(3)) == (None, [], set())
    tags.update(["a", "b"], {"c"})
    tags.update()
    assert tags.random() in tags
    assert sorted(tags.random_many(9)) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="count must be an int of at least 0, not -2"):
        tags.random_many(-2)
    assert {tags.pop(), *tags.pop_many(2)} == {"a", "b", "c"}
    assert not tags.exists()
    tags.add("x")
    tags.clear()
    assert not tags.exists()
    assert repr(tags) == "Set('tags')"


def test_the_operators_run_on_the_server(store: Store) -> None:
    one, two = store.set("{user}:one"), store.set("{user}:two")
    one.update("abcd")
    two.update("cdef")
    assert one | two == set("abcdef")
    assert one & two == set("cd")
    assert one - two == set("ab")
    assert two - one == set("ef")
    assert one ^ two == set("abef")
    assert one.union(two, two) == set("abcdef")
    assert not one.isdisjoint(two)
    assert one.isdisjoint(store.set("{user}:three"))
    assert one.move("a", two)
    assert not one.move("a", two)
    assert (one <= two, one < two, one >= two, one > two) == (False, False, False, False)
    one &= two
    assert one == set("cd")
    assert (one <= two, one < two, two >= one, two > one) == (True, True, True, True)
    one |= two
    assert one == set("acdef")
    one -= two
    assert one == set()
    one |= {"x", "a"}
    one ^= two
    assert one == set("xcdef")
    assert one.name == "{user}:one"


def test_the_operators_with_other_sets(frontend: Frontend) -> None:
    store = frontend.store
    tags = store.set("tags")
    tags.update("abc")
    with rillet.open() as elsewhere:
        far = elsewhere.set("tags")
        far.update("cd")
        assert tags | far == tags | {"c", "d"} == {"c", "d"} | tags == set("abcd")
        assert tags & far == tags & {"c", "d"} == {"c", "d"} & tags == {"c"}
        assert tags - far == tags - {"c", "d"} == set("ab")
        assert {"c", "d"} - tags == {"d"}
        assert tags ^ far == tags ^ {"c", "d"} == {"c", "d"} ^ tags == set("abd")
        assert not tags.isdisjoint(far)
        assert tags.isdisjoint({"x"})
        assert {"a"} < tags <= {"a", "b", "c"} != {"c"}
        tags &= far
        assert tags == {"c"}
        tags |= far
        tags -= {"c"}
        assert tags == {"d"}
        tags ^= {"d", "e"}
        assert tags == {"e"}
    for wrong in (lambda: tags | ["a"], lambda: tags & 5, lambda: tags < ["a"]):  # type: ignore[operator]
        with pytest.raises(TypeError):
            wrong()


def test_codecs_of_members(store: Store) -> None:
    users = store.set("users", codec=text_of(UUID))
    users.add(UUID(int=7))
    assert users == {UUID(int=7)}
    assert UUID(int=7) in users
    assert "text" not in users
    assert_type(users, Set[UUID])
    assert_type(users.random(), UUID | None)
    numbers, same = store.set("{n}", codec=json_of(int)), store.set("{n}b", codec=json_of(int))
    numbers.update([1, 2])
    same.update([2, 3])
    assert numbers & same == {2}
    # Another codec: the values are compared, not the bytes.
    texts = store.set("{n}c", codec=codecs.json)
    texts.update(["1", 2])
    assert numbers & texts == {2}
    with pytest.raises(TypeError, match="True has no standard text form"):
        store.set("tags").add(True)  # type: ignore[arg-type]


def test_a_cluster_rejects_sets_of_two_slots(frontend: Frontend) -> None:
    one, two = frontend.store.set("one"), frontend.store.set("two")
    one.add("a")
    two.add("b")
    if frontend.kind != "cluster":
        assert one | two == {"a", "b"}
        return
    with pytest.raises(CommandError, match="^CROSSSLOT Keys in request don't hash to the same slot"):
        _ = one | two


def test_iteration_reads_pages(store: Store) -> None:
    many = store.set("many")
    many.update(f"member-{n}" for n in range(5000))
    assert set(many) == {f"member-{n}" for n in range(5000)}
    assert set(many.scan("member-1?")) == {f"member-1{n}" for n in range(10)}


def test_a_key_of_another_type(store: Store) -> None:
    store.hash("hash")["f"] = "v"
    for call in (lambda: store.set("hash").add("x"), lambda: list(store.set("hash")), store.set("hash").pop):
        with pytest.raises(WrongType):
            call()


MEMBERS = st.sampled_from(["1", "2", "300", "x", "ü", ""])
MANY = st.sets(MEMBERS)
ACTIONS = st.one_of(
    st.tuples(st.sampled_from(["remove", "__contains__"]), MEMBERS),
    st.tuples(st.sampled_from(["update", "difference_update", "intersection_update"]), MANY),
    st.tuples(st.sampled_from(["symmetric_difference_update"]), MANY),
    st.tuples(st.sampled_from(["union", "difference", "intersection", "symmetric_difference", "isdisjoint"]), MANY),
    st.tuples(st.sampled_from(["__le__", "__lt__", "__ge__", "__gt__", "__eq__", "__ne__", "__rsub__"]), MANY),
    st.tuples(st.sampled_from(["__len__", "clear"])),
)


@MODELLED
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=st.lists(st.tuples(ACTIONS, st.booleans()), max_size=15))
def test_like_a_python_set(store: Store, actions: list[tuple[tuple[Any, ...], bool]]) -> None:
    """The second operand is a Python set, or another stored set."""
    store.delete("key", "other")
    stored, model = store.set("key"), set[str]()
    for action, on_server in actions:
        name, *operand = action
        if on_server and operand and isinstance(operand[0], set):
            other = store.set("other")
            other.clear()
            other.update(operand[0])
            assert getattr(stored, name)(other) == getattr(model, name)(operand[0]), action
        else:
            compare(stored, model, action)
        assert stored.members() == model
    assert set(stored) == model
