"""DueTimes compared with a dict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.structs.due_times import DueTimes

names = st.sampled_from([b"", b"n", b"m", *(b"n%d" % n for n in range(7))])
times = st.sampled_from(
    [1, 2, 3, 1 << 40, (1 << 46) - 1, 1 << 46, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, (1 << 63) - 1]
)
steps = st.lists(st.tuples(st.sampled_from(["set", "set", "set", "remove"]), names, times), max_size=40)


@given(steps, times)
def test_it_behaves_as_a_dict(steps: list[tuple[str, bytes, int]], now: int) -> None:
    """Times above 2^53 stay exact, although their order among each other is that of rounded numbers."""
    due, model = DueTimes(), dict[bytes, int]()
    for what, name, when in steps:
        if what == "set":
            due.set(name, when)
            model[name] = when
        else:
            assert due.remove(name) is (model.pop(name, None) is not None)
        assert due.get(name) == model.get(name, 0)
        assert len(due) == len(model)
    due.check()
    assert dict(due.items()) == model
    near = {name: when for name, when in model.items() if when < 1 << 53}
    assert due.earliest() == (min(near.values()) if near else due.items()[0][1] if model else 0)
    if now < 1 << 53:
        assert due.count_before(now) == sum(when < now for when in model.values())
        found = due.due(now, 100)
        assert set(found) == {name for name, when in model.items() if when <= now}
        assert [model[name] for name in found] == sorted(model[name] for name in found)
        assert due.due(now, 1) == found[:1]
    twin = due.copy()
    twin.set(b"another", 5)
    assert dict(due.items()) == model
    twin.check()


def test_names_with_one_time_are_found_together() -> None:
    due = DueTimes()
    for at in range(1000):
        due.set(b"%d" % at, 1000 + at % 2)
    due.check()
    assert due.count_before(1000) == 0
    assert due.count_before(1001) == len(due.due(1000, 1000)) == 500
    assert due.count_before(1002) == len(due.due(1001, 2000)) == 1000
    assert due.earliest() == 1000
    assert {when for _, when in due.items()[:500]} == {1000}


@pytest.mark.slow
def test_many_names_leave_in_the_order_of_their_times() -> None:
    due = DueTimes()
    for at in range(2000):
        due.set(b"%d" % at, 1 + at * 7919 % 2003)
    left = []
    while due:
        name = due.due(1 << 50, 1)[0]
        left.append(due.get(name))
        due.remove(name)
    assert left == sorted(left)
    due.check()
