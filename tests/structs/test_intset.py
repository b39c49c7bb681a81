"""The intset compared with Python's set, its bytes with a real server's, and malformed bytes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.errors import Corrupt
from rillet.structs.intset import Intset, width_of
from tests.judge import Judge
from tests.structs.dump_payload import sealed

NUMBERS = st.one_of(
    st.integers(-40, 40), st.integers(-(1 << 63), (1 << 63) - 1),
    st.sampled_from([edge + step for edge in (-(1 << 31), -(1 << 15), 1 << 15, 1 << 31) for step in (-1, 0, 1)]),
)  # fmt: skip


@given(st.lists(st.tuples(st.booleans(), NUMBERS)))
def test_it_behaves_as_a_sorted_set_and_never_narrows(steps: list[tuple[bool, int]]) -> None:
    intset, model, width = Intset(), set[int](), 2
    for add, number in steps:
        if add:
            assert intset.add(number) == (number not in model)
            model.add(number)
            width = max(width, width_of(number))
        else:
            assert intset.remove(number) == (number in model)
            model.discard(number)
        assert (number in intset) == (number in model)
        assert intset.width == width
        intset.check()
    assert list(intset) == sorted(model)
    assert len(intset) == len(model)
    assert [intset[at] for at in range(len(intset))] == list(intset)
    assert len(intset.to_bytes()) == intset.nbytes()
    if model:
        assert Intset.from_bytes(intset.to_bytes()).to_bytes() == intset.copy().to_bytes() == intset.to_bytes()
        assert intset.random() in model


@pytest.mark.parametrize(
    "members", [[1], [5, -1, 3], [32767, -32768], [32768], [1, -32769], [2**31 - 1, 7], [2**31], [0, -(2**63)]]
)
def test_the_bytes_equal_redis_s(judge: Judge, members: list[int]) -> None:
    intset = Intset()
    for member in members:
        intset.add(member)
    with judge.client() as redis:
        redis.execute_command("DEL", "s")
        redis.execute_command("SADD", "s", *members)
        redis.execute_command("CONFIG", "SET", "rdbcompression", "no")
        theirs = redis.execute_command("DUMP", "s")
    assert theirs[2:-10] == intset.to_bytes()


def test_the_width_stays_after_the_widest_member_is_removed(judge: Judge) -> None:
    intset = Intset()
    for number in (1, 2, 70000):
        intset.add(number)
    intset.remove(70000)
    assert intset.width == 4
    with judge.client() as redis:
        redis.execute_command("DEL", "s")
        redis.execute_command("SADD", "s", 1, 2, 70000)
        redis.execute_command("SREM", "s", 70000)
        assert redis.execute_command("DUMP", "s")[2:-10] == intset.to_bytes()


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\2\0\0\0", struct.pack("<II", 2, 0), struct.pack("<IIh", 2, 2, 1), struct.pack("<IIhb", 2, 1, 1, 0),
        struct.pack("<IIh", 3, 1, 1), struct.pack("<IIhh", 2, 2, 1, 1), struct.pack("<IIhh", 2, 2, 2, 1),
        struct.pack("<IIq", 8, 2**32 - 1, 1),
    ],
)  # fmt: skip
def test_malformed_bytes_are_rejected_as_in_redis(judge: Judge, data: bytes) -> None:
    with pytest.raises(Corrupt):
        Intset.from_bytes(data)
    payload = sealed(bytes((11, len(data))) + data)
    with judge.client() as redis:
        redis.execute_command("CONFIG", "SET", "sanitize-dump-payload", "yes")
        with pytest.raises(Exception, match="Bad data format"):
            redis.execute_command("RESTORE", "bad", 0, payload)


def test_a_shallow_check_ignores_the_order() -> None:
    assert list(Intset.from_bytes(struct.pack("<IIhh", 2, 2, 2, 1), deep=False)) == [2, 1]
