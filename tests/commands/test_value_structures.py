"""RILLET.SHAPE: the tables of a dict and the levels of a skiplist."""

from __future__ import annotations

from typing import Any

import pytest

import rillet
from rillet.commands.keys import value_structures
from rillet.errors import CommandError


def named(reply: Any) -> dict[str, Any]:
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


def test_the_tables_of_a_dict() -> None:
    with rillet.open() as store:
        store.execute("HSET", "h", *(word for n in range(1000) for word in (f"f{n}", n)))
        found = named(store.execute("RILLET.SHAPE", "h"))
        tables = [named(one) for one in found["tables"]]
        assert sum(one["used"] for one in tables) == 1000
        for one in tables:
            assert sum(one["lengths"]) == one["slots"]
            assert sum(length * count for length, count in enumerate(one["lengths"])) == one["used"]
            assert len(one["lengths"]) == one["longest"] + 1
        assert (found["rehashidx"] >= 0) == (len(tables) == 2)


def test_both_tables_while_it_rehashes() -> None:
    with rillet.open() as store:
        seen = set()
        for n in range(700):
            store.execute("SADD", "s", f"member {n}")
            reply = store.execute("RILLET.SHAPE", "s")
            if reply is not None:
                seen.add(len(named(reply)["tables"]))
        assert seen == {1, 2}


def test_the_levels_of_a_skiplist() -> None:
    with rillet.open() as store:
        store.execute("ZADD", "z", *(word for n in range(5000) for word in (n, f"m{n}")))
        found = named(store.execute("RILLET.SHAPE", "z"))
        levels = [named(one) for one in found["levels"]]
        assert levels[-1]["nodes"] >= 5000 / found["node_members"]
        assert [one["nodes"] for one in levels] == sorted(one["nodes"] for one in levels)
        lowest = set(levels[-1]["firsts"])
        for one in levels:
            assert one["firsts"][0] == 0
            assert one["firsts"] == sorted(one["firsts"])
            assert set(one["firsts"]) <= lowest or one["nodes"] > 100 or levels[-1]["nodes"] > 100


def test_values_without_such_structures(monkeypatch: pytest.MonkeyPatch) -> None:
    with rillet.open() as store:
        store.execute("SET", "text", "x")
        store.execute("HSET", "small", "f", "v")
        store.stream("s").add({"f": "v"})
        for key in ("text", "small", "s"):
            assert store.execute("RILLET.SHAPE", key) is None
        with pytest.raises(CommandError, match="no such key"):
            store.execute("RILLET.SHAPE", "missing")
        monkeypatch.setattr(value_structures, "MOST", 100)
        store.execute("SADD", "large", *(f"m{n}" for n in range(300)))
        with pytest.raises(CommandError, match="more than 100 members"):
            store.execute("RILLET.SHAPE", "large")
