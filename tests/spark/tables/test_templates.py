"""Templates of keys, such as "user:{user_id}"."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from rillet.spark.options import OptionError
from rillet.spark.tables.lookup import template_parts


def test_literals_and_columns() -> None:
    assert template_parts("u:{{{id}}}:{name}", ["id", "name"]) == [
        ("u:{", None), ("", "id"), ("}", None), (":", "name"),
    ]  # fmt: skip


@pytest.mark.parametrize(("template", "problem"), [
    ("user:{id:05d}", "has a format or a conversion for 'id': format it in a column before, and name that one"),
    ("user:{id!r}", "has a format or a conversion for 'id'"),
    ("user:{other}", "names columns that do not exist: 'other'"),
    ("user:", "names no column"),
    ("user:{", "is malformed"),
])  # fmt: skip
def test_other_templates_are_refused(template: str, problem: str) -> None:
    with pytest.raises(OptionError, match=f"^rillet: the template of keys {template!r} {problem}"):
        template_parts(template, ["id"])
