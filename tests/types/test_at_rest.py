"""Values at rest: the object that is woken equals the one that went to rest, in each respect that a client can see."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.errors import Corrupt
from rillet.types import at_rest
from rillet.types.at_rest import awaken, string_at_rest, to_rest, type_at_rest
from rillet.types.encoding_limits import DEFAULTS
from rillet.types.hash import Hash
from rillet.types.list import List
from rillet.types.rdb import value as rdb
from rillet.types.set import Set
from rillet.types.stream.stream import Stream
from rillet.types.string import PLAIN, RAW, TEXT, String, new_string
from rillet.types.zset import Zset

WORDS = st.one_of(st.binary(max_size=70), st.integers(-(2**63), 2**63 - 1).map(lambda number: b"%d" % number))


def a_hash(*words: bytes) -> Hash:
    made = Hash()
    for field, value in zip(words[::2], words[1::2], strict=False):
        made.set(field, value)
    return made


def a_list(*words: bytes, classic: bool = False) -> List:
    made = List()
    made.elements.single, made.elements.classic = not classic, classic
    for word in words:
        made.elements.push(word, False)
    return made


def a_set(*members: bytes) -> Set:
    made = Set()
    for member in members:
        made.add(member)
    return made


def same_again(value: Any) -> None:
    """Assert that a value survives rest."""
    rest = to_rest(value)
    assert rest is not None
    twin: Any = awaken(rest)
    assert {type(twin), type(value)} == {type_at_rest(rest[0])}
    assert twin.encoding() == value.encoding()
    assert rdb.dump(twin, False) == rdb.dump(value, False)
    assert to_rest(twin) == rest
    twin.check()


@given(data=st.one_of(st.binary(max_size=100), WORDS), form=st.sampled_from((PLAIN, TEXT, RAW)))
def test_a_string_keeps_its_encoding(data: bytes, form: int) -> None:
    same_again(new_string(data, form))
    assert to_rest(new_string(data, form)) == string_at_rest(data, form)


@pytest.mark.parametrize("change", [lambda one: one.append(b"x"), lambda one: one.set_range(3, b"y")])
def test_a_string_that_was_changed_in_place_is_raw(change: Any) -> None:
    string = new_string(b"12")
    change(string)
    same_again(string)
    rest = to_rest(string)
    assert rest is not None
    assert awaken(rest).encoding() == "raw"


@given(words=st.lists(WORDS, min_size=2, max_size=8))
def test_small_collections_rest(words: list[bytes]) -> None:
    words = [word for word in words if word] or [b"x", b"y"]
    same_again(a_hash(*words, *words))
    same_again(a_set(*words))
    same_again(a_list(*words))
    same_again(a_list(*words, classic=True))
    same_again(Zset.from_pairs([(word, float(number)) for number, word in enumerate(dict.fromkeys(words))], DEFAULTS))


@pytest.mark.parametrize("members", [[b"1"], [b"1", b"70000"], [b"-1", b"9223372036854775807"]])
def test_an_intset_keeps_its_width(members: list[bytes]) -> None:
    value = a_set(*members)
    value.remove(members[-1]) if len(members) > 1 else None
    same_again(value)


@pytest.mark.parametrize(("fill", "depth"), [(-2, 0), (-5, 1), (32767, 65535), (0, 2)])
def test_a_list_keeps_its_limits(fill: int, depth: int) -> None:
    value = a_list(b"a", classic=True)
    value.elements.set_limits(fill, depth)
    rest = to_rest(value)
    assert rest is not None
    elements = awaken(rest).elements
    assert (elements.fill, elements.depth, elements.classic, elements.single) == (fill, depth, True, False)


def test_large_values_and_streams_stay_awake() -> None:
    limit = at_rest.LIMIT
    assert to_rest(new_string(bytes(limit))) is not None
    assert to_rest(new_string(bytes(limit + 1))) is None
    assert string_at_rest(bytes(limit + 1), PLAIN) is None
    big = [b"%d" % number * 20 for number in range(100)]
    for value in (a_hash(*big), a_set(*big), a_set(*map(b"%d".__mod__, range(600))),
                  a_list(*big), Zset.from_pairs([(word, 1.0) for word in big], DEFAULTS), Stream(),
                  object()):  # fmt: skip
        assert to_rest(value) is None
    several = a_list(b"a", classic=True)
    several.elements.append_node(several.elements.head.packed.copy())  # type: ignore[union-attr]
    assert to_rest(several) is None
    grown = String(b"")
    grown.append(bytes(limit + 1))
    assert to_rest(grown) is None


def test_an_unknown_tag_is_corrupt() -> None:
    with pytest.raises(Corrupt):
        awaken(b"\xff")


def a_table(*members: bytes) -> Set:
    made = Set.empty("hashtable")
    for member in members:
        made.add(member)
    return made


@given(members=st.lists(WORDS, min_size=1, max_size=12, unique=True))
def test_small_hashtables_rest_in_their_order(members: list[bytes]) -> None:
    made = a_table(*members)
    same_again(made)
    fields = Hash()
    fields.set(b"long", bytes(70))
    for member in members:
        fields.set(member, member)
    assert fields.encoding() == "hashtable"
    same_again(fields)
    if len(members) > 1:
        made.remove(members[0])
        fields.remove(members[0])
        same_again(made)
        same_again(fields)


def test_large_hashtables_stay_awake() -> None:
    limit = at_rest.TABLE_LIMIT
    members = [b"%d" % number for number in range(limit + 1)]
    assert to_rest(a_table(*members[:limit])) is not None
    assert to_rest(a_table(*members)) is None
    assert to_rest(a_table(bytes(600), bytes(500))) is None
