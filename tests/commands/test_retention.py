"""RILLET.XRETAIN and RILLET.XINFO: their replies, errors and logs, and the steps that apply the policies."""

from __future__ import annotations

from typing import Any

import pytest

from rillet.host.retention import NODES, STREAMS, RetentionSteps
from rillet.runtime.pause import PAUSE_WRITES
from tests.commands.ends import NOW, Bench

pytestmark = pytest.mark.both

POLICY = b"age=0 entries=10 bytes=0 groups=ignore"


@pytest.fixture
def bench() -> Bench:
    return Bench()


def fill(bench: Bench, key: str, count: int, first: int = 1) -> None:
    for number in range(first, first + count):
        bench("XADD", key, f"{number}-0", "n", number)


def facts(bench: Bench, key: str = "s") -> dict[bytes, Any]:
    reply = bench("RILLET.XINFO", key)
    found = dict(zip(reply[::2], reply[1::2], strict=True))
    if isinstance(found[b"retention"], list):
        inner = found[b"retention"]
        found[b"retention"] = dict(zip(inner[::2], inner[1::2], strict=True))
    return found


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("AGE", "ERR syntax error"),
        ("AGE 1 AGE 2", "ERR syntax error"),
        ("AGE x", "ERR value is not an integer or out of range"),
        ("AGE 0", "ERR age must be an integer from 1 to 999999999999999999"),
        ("ENTRIES -1", "ERR entries must be an integer from 1 to 999999999999999999"),
        ("BYTES 1000000000000000000", "ERR bytes must be an integer from 1 to 999999999999999999"),
        ("ENTRIES 1 GROUPS some", "ERR syntax error"),
        ("ENTRIES 1 GROUPS ignore GROUPS ignore", "ERR syntax error"),
        ("SIZE 1", "ERR syntax error"),
    ],
)
def test_arguments_are_checked(bench: Bench, arguments: str, error: str) -> None:
    assert bench.logged("RILLET.XRETAIN", "s", *arguments.split()) == []
    assert bench("RILLET.XRETAIN", "s", *arguments.split()) == error
    assert bench("EXISTS", "rillet:retention") == 0


def test_a_policy_is_a_field_of_a_hash_and_logged_as_such(bench: Bench) -> None:
    assert bench.logged("RILLET.XRETAIN", "s", "entries", 10, "groups", "IGNORE") == [
        [b"HSET", b"rillet:retention", b"s", POLICY]
    ]
    assert bench.logged("RILLET.XRETAIN", "s", "ENTRIES", 10, "GROUPS", "ignore") == []
    assert bench("HGETALL", "rillet:retention") == [b"s", POLICY]
    bench("RILLET.XRETAIN", "t", "AGE", 5)
    assert bench("HGET", "rillet:retention", "t") == b"age=5 entries=0 bytes=0 groups=acknowledged"
    assert bench.logged("RILLET.XRETAIN", "s", "GROUPS", "IGNORE") == [[b"HDEL", b"rillet:retention", b"s"]]
    assert bench.logged("RILLET.XRETAIN", "s") == []
    assert bench.logged("RILLET.XRETAIN", "t") == [[b"HDEL", b"rillet:retention", b"t"]]
    assert bench("EXISTS", "rillet:retention") == 0
    bench("SET", "rillet:retention", "x")
    assert bench("RILLET.XRETAIN", "s", "AGE", 5).startswith("WRONGTYPE")
    assert facts(bench)[b"retention"] == b"-1"


def test_a_step_is_logged_as_xtrim(bench: Bench) -> None:
    retention = RetentionSteps(bench.engine)
    fill(bench, "s", 500)
    bench("RILLET.XRETAIN", "s", "ENTRIES", 10, "GROUPS", "IGNORE")
    bench.log.take()
    assert not retention.step()
    assert bench.log.take() == [[b"XTRIM", b"s", b"MAXLEN", b"=", b"10"]]
    assert bench("XLEN", "s") == 10
    assert not retention.step()
    assert bench.log.take() == []
    fill(bench, "s", 1, 501)
    bench("RILLET.XRETAIN", "s")
    retention.step()
    assert bench("XLEN", "s") == 11


def test_steps_are_small(bench: Bench) -> None:
    bench("CONFIG", "SET", "stream-node-max-entries", 1)
    fill(bench, "s", 5 * NODES)
    bench("RILLET.XRETAIN", "s", "ENTRIES", 1, "GROUPS", "IGNORE")
    retention, lengths = RetentionSteps(bench.engine), []
    while retention.step():
        lengths.append(bench("XLEN", "s"))
    assert lengths == [4 * NODES, 3 * NODES, 2 * NODES, NODES]
    assert bench("XLEN", "s") == 1
    names = [f"t{number}" for number in range(3 * STREAMS + 1)]
    for name in names:
        fill(bench, name, 2)
        bench("RILLET.XRETAIN", name, "ENTRIES", 1, "GROUPS", "IGNORE")
    steps = 0
    while any(bench("XLEN", name) == 2 for name in names):
        retention.step()
        steps += 1
    assert steps == 4


@pytest.mark.parametrize("condition", ["paused", "refusal", "loading", "follows", "importing"])
def test_nothing_goes_while_the_data_must_not_change(bench: Bench, condition: str) -> None:
    fill(bench, "s", 5)
    bench("RILLET.XRETAIN", "s", "ENTRIES", 1, "GROUPS", "IGNORE")
    engine, retention = bench.engine, RetentionSteps(bench.engine)
    if condition == "follows":
        bench("REPLICAOF", "127.0.0.1", 1)
    elif condition == "importing":
        bench = Bench(compat="valkey", import_mode="yes")
        fill(bench, "s", 5)
        bench("RILLET.XRETAIN", "s", "ENTRIES", 1, "GROUPS", "IGNORE")
        engine, retention = bench.engine, RetentionSteps(bench.engine)
    else:
        setattr(engine, condition, {"paused": PAUSE_WRITES, "refusal": "MISCONF no", "loading": True}[condition])
    if condition != "follows" or engine.follows:
        retention.step()
        retention.run()
        assert engine.databases[0].peek(b"s").length == 5


def test_groups_hold_back(bench: Bench) -> None:
    fill(bench, "s", 500)
    bench("RILLET.XRETAIN", "s", "ENTRIES", 100)
    found = facts(bench)[b"retention"]
    assert found[b"note"].startswith(b"no group")
    assert (found[b"drops-entries"], found[b"keeps-from"], found[b"held"]) == (0, b"-1", [])
    retention = RetentionSteps(bench.engine)
    retention.run()
    assert bench("XLEN", "s") == 500
    bench("XGROUP", "CREATE", "s", "behind", "150-0")
    bench("XGROUP", "CREATE", "s", "far", "$")
    bench("XGROUP", "CREATE", "s", "pending", "0")
    bench("XREADGROUP", "GROUP", "pending", "c", "COUNT", 450, "STREAMS", "s", ">")
    bench("XACK", "s", "pending", *[f"{number}-0" for number in range(1, 451) if number != 300])
    found = facts(bench)[b"retention"]
    assert (found[b"drops-entries"], found[b"keeps-from"], found[b"note"]) == (150, b"150-1", b"")
    assert [[name, entries, first] for name, entries, _, first in found[b"held"]] == [
        [b"behind", 250, b"150-1"], [b"pending", 101, b"300-0"],
    ]  # fmt: skip
    assert found[b"held"][0][2] > found[b"held"][1][2] > 0
    retention.run()
    assert bench("XLEN", "s") == 350
    assert facts(bench)[b"retention"][b"drops-entries"] == 0
    bench("XGROUP", "SETID", "s", "behind", "$")
    retention.run()
    assert bench("XRANGE", "s", "-", "+", "COUNT", 1)[0][0] == b"300-0"
    bench("XGROUP", "DESTROY", "s", "pending")
    retention.run()
    assert bench("XLEN", "s") == 100
    assert facts(bench)[b"retention"][b"held"] == []


def test_the_age_counts_from_the_time_in_the_id(bench: Bench) -> None:
    fill(bench, "s", 10, NOW - 9)
    bench("XADD", "s", f"{NOW + 1000}-0", "n", 1)
    bench("RILLET.XRETAIN", "s", "AGE", 5, "GROUPS", "IGNORE")
    found = facts(bench)[b"retention"]
    assert (found[b"age"], found[b"due-at"], found[b"drops-entries"]) == (5, NOW - 3, 4)
    retention = RetentionSteps(bench.engine)
    retention.run()
    assert bench("XRANGE", "s", "-", "+", "COUNT", 1)[0][0] == b"%d-0" % (NOW - 5)
    assert facts(bench)[b"retention"][b"due-at"] == NOW + 1
    bench.clock.advance(1)
    retention.run()
    assert bench("XRANGE", "s", "-", "+", "COUNT", 1)[0][0] == b"%d-0" % (NOW - 4)
    bench.clock.advance(10_000)
    retention.run()
    assert (bench("XLEN", "s"), bench("EXISTS", "s")) == (0, 1)
    assert facts(bench)[b"retention"][b"due-at"] == b"-1"


def test_a_malformed_policy_removes_nothing(bench: Bench) -> None:
    fill(bench, "s", 5)
    bench("HSET", "rillet:retention", "s", "age=-1", "missing", POLICY.decode(), "string", POLICY.decode())
    bench("SET", "string", "x")
    retention = RetentionSteps(bench.engine)
    retention.run()
    retention.step()
    assert bench("XLEN", "s") == 5
    assert b"malformed" in facts(bench)[b"retention"][b"note"]
    assert facts(bench, "missing")[b"retention"][b"entries"] == 10
    assert facts(bench, "missing")[b"entries-in-memory"] == 0
    assert bench("RILLET.XINFO", "string").startswith("WRONGTYPE")


def test_watchers_and_events_see_it(bench: Bench) -> None:
    fill(bench, "s", 5)
    bench("RILLET.XRETAIN", "s", "ENTRIES", 1, "GROUPS", "IGNORE")
    other = bench.beside()
    other("WATCH", "s")
    other("MULTI")
    other("PING")
    RetentionSteps(bench.engine).run()
    assert other("EXEC") in (None, b"-1")
