"""Effects of list and set commands: keyspace events, the log, and what a log or a file restores."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rillet.persistence.rdb.reader import load_rdb
from rillet.persistence.rdb.writer import write_rdb
from tests.commands.ends import Bench
from tests.commands.test_pubsub import compare, steps_of
from tests.judge import Judge, redis_binary, running_redis
from tests.persistence.state import Opened, rewrite, state_of

EVENTS = """
RPUSH l a b c a|LPUSH l x|LPUSHX l y|RPUSHX nothing z|LSET l 0 b|LSET l 99 b|LINSERT l BEFORE a q
LINSERT l AFTER no q|LREM l 0 a|LREM l 0 nothing|LTRIM l 0 -1|LTRIM l 1 2|LPOP l|RPOP l 9|LPOP l 3
RPUSH l 1 2 3|LMOVE l m LEFT RIGHT|RPOPLPUSH l l|LMOVE m l LEFT LEFT|LMPOP 2 m l LEFT COUNT 9|RPUSH l 1 2
BRPOP l 0|BLMOVE l l LEFT LEFT 0|BRPOPLPUSH l m 0|LTRIM m 5 1|RPUSH l 1 1|LREM l 0 1|SADD s 1 2 3 a|SADD s 1
SREM s 1 99|SREM s 99|SMOVE s t 2|SMOVE s t 99|SMOVE s s 3|SADD s 2|SMOVE s t 2|SPOP s 0|SREM s a|SPOP s 99
SPOP t|SADD s 1 2 3|SADD t 2 3 4|SINTERSTORE u s t|SUNIONSTORE u s t|SDIFFSTORE u s t|SINTERSTORE u s nothing
SINTERSTORE u s nothing|SDIFFSTORE u s s|SUNIONSTORE u nothing|SREM s 1 2 3|RPUSH l a|COPY l k|RENAME k j
DEL j l t
"""


@pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")
@pytest.mark.parametrize("compat", ["7.0", "newest"])
def test_keyspace_events_equal_those_of_the_server(peer_of: Callable[[str], Judge], compat: str) -> None:
    steps = [(0, "PSUBSCRIBE __key*__:*")]
    steps += [(1, line) for line in EVENTS.replace("\n", "|").split("|") if line]
    compare(peer_of(compat), steps, compat=compat)
    assert steps_of("1 PING") == [(1, "PING")]


@pytest.mark.parametrize("members", ["numbers", "texts", "large"])
@pytest.mark.parametrize("compat", ["7.0", "newest"])
def test_randomly_removed_members_are_logged_by_name(members: str, compat: str) -> None:
    """A replayed log of SPOPs gives the same set; the count selects one of two algorithms."""
    bench, replica = Bench(compat=compat), Bench(compat=compat)
    texts = {"numbers": map(str, range(60)), "texts": map("m{}".format, range(60)),
             "large": map("m{}".format, range(1500))}  # fmt: skip
    for argv in bench.logged("SADD", "s", *texts[members]):
        replica.run(argv)
    for count in (0, 1, 3, 40, 2, None, 1, 1000, 399, 99999):
        logged = bench.logged("SPOP", "s", *([] if count is None else [count]))
        assert {argv[0] for argv in logged} <= {b"SREM", b"DEL", b"MULTI", b"EXEC"}
        for argv in logged:
            replica.run(argv)
        assert sorted(replica("SMEMBERS", "s")) == sorted(bench("SMEMBERS", "s"))
        bench.engine.check()
    assert bench("EXISTS", "s") == replica("EXISTS", "s") == 0


def test_a_pop_of_many_is_one_change_in_the_log() -> None:
    bench = Bench()
    bench("SADD", "s", *range(10))
    logged = bench.logged("SPOP", "s", 3)
    assert [argv[0] for argv in logged] == [b"MULTI", b"SREM", b"SREM", b"SREM", b"EXEC"]
    bench.engine.settings.set_text("compat", "newest")
    bench.engine.take_settings()
    assert [len(argv) for argv in bench.logged("SPOP", "s", 3)] == [5]


def test_a_command_without_effect_is_not_logged() -> None:
    bench = Bench()
    bench("RPUSH", "l", "a")
    bench("SADD", "s", 1)
    lines = """LTRIM l 0 -1|LPOP nothing|LREM l 0 x|LINSERT l BEFORE x y|SADD s 1|SREM s 2|SPOP s 0|SMOVE s t 2|
        SINTERSTORE nothing s t|LPOP l 0|LMOVE nothing l LEFT LEFT"""
    for line in lines.split("|"):
        assert bench.logged(*line.split()) == [], line


def fill(run: Callable[..., object], seed: int = 1) -> None:
    """Make lists and sets of every encoding."""
    source = random.Random(seed)
    run("RPUSH", "short", "a", 1, -70000)
    run("RPUSH", "long", *(source.choice(("x" * 50, number)) for number in range(2000)))
    run("RPUSH", "large", "a", "x" * 9000, "b")
    run("SADD", "numbers", *range(100))
    run("SADD", "few", "a", "b", 1, 2)
    run("SADD", "many", *(f"m{number}" for number in range(300)))
    run("SADD", "wide", *range(-5, 600))
    run("PEXPIREAT", "few", 9_000_000_000_000)


def values_of(run: Callable[..., object]) -> list[object]:
    keys = ("short", "long", "large", "numbers", "few", "many", "wide")
    return [run("DEBUG", "DIGEST-VALUE", *keys), *(run("OBJECT", "ENCODING", key) for key in keys)]


@pytest.mark.parametrize("rewritten", [False, True])
def test_a_log_restores_the_values(tmp_path: Path, rewritten: bool) -> None:
    with Opened(tmp_path) as opened:
        opened.engine.settings.set_text("enable-debug-command", "yes")
        fill(opened)
        before = values_of(opened)
    if rewritten:
        rewrite(tmp_path, opened.engine)
    with Opened(tmp_path) as opened:
        opened.engine.settings.set_text("enable-debug-command", "yes")
        assert values_of(opened) == before
        opened.engine.check()


@pytest.mark.parametrize("compat", ["7.0", "newest"])
def test_an_rdb_file_restores_the_values(tmp_path: Path, compat: str) -> None:
    one, two = Bench(compat=compat), Bench(compat=compat)
    fill(one)
    assert write_rdb(tmp_path / "dump.rdb", one.engine) == 7
    load_rdb(tmp_path / "dump.rdb", two.engine)
    assert values_of(one) == values_of(two)
    two.engine.check()


@pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")
@pytest.mark.parametrize("compat", ["7.0", "newest"])
def test_redis_and_rillet_load_each_other_s_rdb_files(tmp_path: Path, compat: str) -> None:
    bench = Bench(compat=compat)
    fill(bench)
    write_rdb(tmp_path / "dump.rdb", bench.engine)
    with running_redis("--dir", str(tmp_path)) as server, server.client() as client:
        theirs = values_of(client.execute_command)
        client.execute_command("SAVE")
    ours = Bench()
    load_rdb(tmp_path / "dump.rdb", ours.engine)
    assert values_of(ours) == theirs
    if compat == "7.0":
        assert values_of(bench) == theirs


def test_a_copy_is_equal_and_independent() -> None:
    bench = Bench(compat="newest", list_max_listpack_size=3)
    bench("RPUSH", "l", *range(10))
    bench("SADD", "s", "a", "b")
    for key, change in (("l", ("LSET", "l", 0, "other")), ("s", ("SADD", "s", "c"))):
        bench("COPY", key, "twin")
        assert bench("DUMP", "twin") == bench("DUMP", key)
        kept = bench("DUMP", "twin")
        bench(*change)
        assert bench("DUMP", "twin") == kept != bench("DUMP", key)
        bench("DEL", "twin")


def test_debug_reload_keeps_encodings_and_digests() -> None:
    bench = Bench(compat="newest")
    fill(bench)
    before = values_of(bench)
    assert bench("DEBUG", "RELOAD") == b"OK"
    assert values_of(bench) == before


def test_memory_usage_and_debug_object_show_the_value() -> None:
    """MEMORY USAGE grows with the value; DEBUG OBJECT shows the nodes."""
    bench = Bench()
    sizes: list[tuple[int, int]] = []
    for _ in range(3):
        bench("RPUSH", "l", *["x" * 100] * 200)
        bench("SADD", "s", *(f"{len(sizes)}-{number}" for number in range(200)))
        sizes.append((bench("MEMORY", "USAGE", "l", "SAMPLES", 0), bench("MEMORY", "USAGE", "s")))
    assert sizes == sorted(sizes)
    assert sizes[0][0] > 20_000
    assert b" ql_nodes:8 ql_avg_node:75.00 ql_listpack_max:-2 ql_compressed:0 " in bench("DEBUG", "OBJECT", "l")
    assert set(state_of(bench)) == {(0, b"l"), (0, b"s")}


def test_debug_object_fast_leaves_out_the_sums_over_the_value() -> None:
    bench = Bench(compat="valkey")
    bench("RPUSH", "l", *["x" * 100] * 600)
    whole = bench("DEBUG", "OBJECT", "l", "other")
    assert b" serializedlength:" in whole
    assert b" ql_uncompressed_size:" in whole
    fast = bench("DEBUG", "OBJECT", "l", "FAST")
    assert re.sub(rb" (serializedlength|ql_uncompressed_size):\d+", b"", whole) == fast
    assert "wrong number of arguments for 'OBJECT'" in str(Bench()("DEBUG", "OBJECT", "l", "fast"))
