"""The samples that `make test` takes of the combinations of parameters."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import pytest

from tests.variants import covering

AXES: list[list[list[Any]]] = [
    [["a", "b", "c"], [1, 2]], [["a", "b"], [1, 2, 3, 4, 5]], [[0, 1, 2, 3], ["a", "b", "c"], [{}, {"x": 1}]],
    [[True, False]] * 4,
]  # fmt: skip


@pytest.mark.parametrize("axes", AXES)
def test_a_sample_has_each_value_of_two_axes_and_each_pair_of_more(axes: list[list[Any]]) -> None:
    rows = covering(*axes)
    short = [row for row in rows if isinstance(row, tuple) and not hasattr(row, "marks")]
    rest = [row.values for row in rows if hasattr(row, "marks")]
    assert sorted(map(repr, [*short, *rest])) == sorted(map(repr, product(*axes)))
    width = 1 if len(axes) < 3 else 2
    for places in combinations(range(len(axes)), width):
        found = [tuple(row[at] for at in places) for row in short]
        assert all(one in found for one in product(*(axes[at] for at in places)))
    assert [mark.name for row in rows[len(short) :] for mark in row.marks] == ["long"] * len(rest)
