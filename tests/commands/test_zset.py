"""Sorted set commands: what only shows over several of them, what they leave behind, and what chance decides."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rillet.persistence.rdb.reader import load_rdb
from rillet.persistence.rdb.writer import write_rdb
from tests.commands.ends import Bench
from tests.commands.test_pubsub import compare
from tests.judge import Judge, redis_binary, running_redis
from tests.persistence.state import Opened, rewrite

pytestmark = pytest.mark.both

EVENTS = """
ZADD z 1 a 2 b 3 c|ZADD z 1 a|ZADD z NX 5 a|ZADD z XX 5 nobody|ZADD z GT CH 9 a|ZADD z INCR 1 a|ZINCRBY z 0 a
ZINCRBY z 1 new|ZADD nothing XX 1 a|ZREM z nobody|ZREM z a new|ZRANGESTORE y z 0 -1|ZRANGESTORE y z 5 9
ZRANGESTORE y nothing 0 1|ZUNIONSTORE u 2 z nothing|ZINTERSTORE u 2 z nothing|ZINTERSTORE u 2 z nothing
ZDIFFSTORE u 1 z|ZDIFFSTORE u 2 z z|SADD s b c|ZINTERSTORE s 2 s z|ZPOPMIN z 0|ZPOPMIN z|ZPOPMAX z 5|ZPOPMAX z
ZADD z 1 a 2 b 3 c 4 d|ZREMRANGEBYRANK z 9 9|ZREMRANGEBYRANK z 0 0|ZREMRANGEBYSCORE z 2 2|ZREMRANGEBYLEX z - +
ZADD z 1 a 2 b 3 c|ZMPOP 2 nothing z MAX COUNT 2|BZPOPMIN nothing z 0|ZADD z 1 a|BZMPOP 0 1 z MIN COUNT 9
ZADD z 1 a|COPY z w|RENAME w v|PEXPIRE v 0|ZADD z inf a|ZADD z INCR -inf a|DEL z
"""
ENCODED = {"few": 20, "many": 300}


@pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")
@pytest.mark.parametrize("compat", ["7.0", "newest"])
def test_keyspace_events_equal_those_of_the_server(peer_of: Callable[[str], Judge], compat: str) -> None:
    steps = [(0, "PSUBSCRIBE __key*__:*")]
    steps += [(1, line) for line in EVENTS.replace("\n", "|").split("|") if line]
    compare(peer_of(compat), steps, compat=compat)


def test_a_command_without_effect_is_not_logged() -> None:
    bench = Bench()
    bench("ZADD", "z", 1, "a", 2, "b")
    lines = """ZADD z 1 a|ZADD z NX 9 a|ZADD z XX 1 c|ZADD z GT 0 a|ZADD z LT 5 a|ZINCRBY z 0 a|ZREM z c|ZPOPMIN z 0|
        ZPOPMAX nothing|ZREMRANGEBYRANK z 5 9|ZREMRANGEBYSCORE z 5 9|ZREMRANGEBYLEX z [x [y|ZINTERSTORE nothing 2 z no|
        ZRANGESTORE nothing z 5 9|ZMPOP 1 nothing MIN|ZADD z INCR nan a|ZADD z 1 a x b"""
    for line in lines.split("|"):
        assert bench.logged(*line.split()) == [], line


def test_a_pop_from_several_keys_is_logged_with_its_key_and_count() -> None:
    bench = Bench()
    bench("ZADD", "z", 1, "a", 2, "b", 3, "c", 4, "d", 5, "e")
    logged = {
        "ZMPOP 2 no z MIN": [b"ZPOPMIN", b"z", b"1"],
        "BZPOPMAX no z 0": [b"ZPOPMAX", b"z"],
        "BZMPOP 0 1 z MAX COUNT 2": [b"ZPOPMAX", b"z", b"2"],
        "ZPOPMIN z 10": [b"ZPOPMIN", b"z", b"10"],
    }
    for line, words in logged.items():
        assert bench.logged(*line.split()) == [words]


def fill(run: Callable[..., object], seed: int = 1) -> None:
    """Make a sorted set of each encoding, with scores of every kind."""
    source = random.Random(seed)
    scores = ["inf", "-inf", "0.1", "-2.5", "1e17", "3", "100000000000000000", "5e-324"]
    for key, count in ENCODED.items():
        for number in range(count):
            run("ZADD", key, scores[number] if number < len(scores) else repr(source.uniform(-9, 9)), f"m{number}")
    run("PEXPIREAT", "few", 9_000_000_000_000)


def values_of(run: Callable[..., object]) -> list[object]:
    return [run("DEBUG", "DIGEST-VALUE", *ENCODED), *(run("OBJECT", "ENCODING", key) for key in ENCODED)]


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
    assert compat != "7.0" or values_of(bench) == theirs


def test_debug_reload_keeps_encodings_and_digests() -> None:
    bench = Bench(compat="newest")
    fill(bench)
    before = values_of(bench)
    assert bench("DEBUG", "RELOAD") == b"OK"
    assert values_of(bench) == before
    assert len(set(before[1:])) == 2


@pytest.mark.parametrize("compat", ["7.0", "newest"])
@pytest.mark.parametrize("key", ENCODED)
def test_a_scan_in_steps_returns_all_members(compat: str, key: str) -> None:
    bench = Bench(compat=compat)
    fill(bench)
    met, cursor = dict[bytes, bytes](), b"0"
    while True:
        cursor, found = bench("ZSCAN", key, cursor, "COUNT", 7)
        met.update(zip(found[::2], found[1::2], strict=True))
        if cursor == b"0":
            break
    assert {member: float(score) for member, score in met.items()} == {
        member: float(score) for member, score in _pairs(bench("ZRANGE", key, 0, -1, "WITHSCORES"))
    }
    # A skiplist's scores have 17 digits here, whatever the server.
    assert met[b"m2"] == (b"0.10000000000000001" if compat == "7.0" or key == "many" else b"0.1")


def test_valkey_scans_without_scores() -> None:
    bench = Bench(compat="valkey")
    bench("ZADD", "z", 1, "a", 2, "b")
    assert bench("ZSCAN", "z", 0, "NOSCORES", "MATCH", "a") == [b"0", [b"a"]]
    bench.engine.settings.set_text("compat", "newest")
    assert bench("ZSCAN", "z", 0, "NOSCORES") == "ERR syntax error"


def _pairs(flat: list[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("key", ENCODED)
def test_random_members_are_distinct_unless_the_count_is_negative(key: str) -> None:
    random.seed(4)
    bench = Bench(compat="newest")
    fill(bench)
    count = ENCODED[key]
    scores = dict(_pairs(bench("ZRANGE", key, 0, -1, "WITHSCORES")))
    for asked in (1, 3, count - 1, count, count + 5):
        pairs = _pairs(bench("ZRANDMEMBER", key, asked, "WITHSCORES"))
        assert len(dict(pairs)) == min(asked, count)
        assert all(scores[member] == score for member, score in pairs)
    assert set(bench("ZRANDMEMBER", key, count)) == set(scores)
    often = Counter(bench("ZRANDMEMBER", key, -50 * count))
    assert sum(often.values()) == 50 * count
    assert set(often) == set(scores)
    assert max(often.values()) < 130
    assert len(bench("ZRANDMEMBER", key, -3, "WITHSCORES")) == 6
    assert bench("ZRANDMEMBER", key) in scores


def test_pairs_are_nested_in_resp3() -> None:
    bench = Bench(compat="newest")
    bench("ZADD", "z", 1, "a", "2.5", "b")
    replies = {
        "ZRANGE z 0 -1 WITHSCORES": b"*2\r\n*2\r\n$1\r\na\r\n,1\r\n*2\r\n$1\r\nb\r\n,2.5\r\n",
        "ZUNION 1 z WITHSCORES": b"*2\r\n*2\r\n$1\r\na\r\n,1\r\n*2\r\n$1\r\nb\r\n,2.5\r\n",
        "ZSCORE z b": b",2.5\r\n",
        "ZMSCORE z b no": b"*2\r\n,2.5\r\n_\r\n",
        "ZRANK z b WITHSCORE": b"*2\r\n:1\r\n,2.5\r\n",
        "ZRANK z no WITHSCORE": b"_\r\n",
        "ZINCRBY z inf c": b",inf\r\n",
        "ZPOPMAX z": b"*2\r\n$1\r\nc\r\n,inf\r\n",
        "ZPOPMAX z 1": b"*1\r\n*2\r\n$1\r\nb\r\n,2.5\r\n",
        "BZPOPMIN z 0": b"*3\r\n$1\r\nz\r\n$1\r\na\r\n,1\r\n",
        "ZMPOP 1 z MIN": b"_\r\n",
    }
    bench.session.out.resp = 3
    for line, reply in replies.items():
        assert bench.run(line.encode().split()) == reply, line


def test_newer_options_are_rejected_at_an_older_level() -> None:
    """A newer option gives the error of the older server."""
    bench = Bench(compat="7.0")
    bench("ZADD", "z", 1, "a")
    assert bench("ZRANK", "z", "a", "WITHSCORE") == "ERR wrong number of arguments for 'zrank' command"
    assert bench("ZUNION", 1, "z", "AGGREGATE", "COUNT") == "ERR syntax error"
    bench.engine.settings.set_text("compat", "newest")
    assert bench("ZRANK", "z", "a", "WITHSCORE") == [0, b"1"]
    assert bench("ZUNION", 2, "z", "z", "WEIGHTS", 2, 3, "AGGREGATE", "COUNT", "WITHSCORES") == [b"a", b"5"]


def test_memory_usage_and_object_encoding_follow_the_members() -> None:
    bench = Bench()
    fill(bench)
    assert bench("MEMORY", "USAGE", "many", "SAMPLES", 0) > 10 * bench("MEMORY", "USAGE", "few") > 1000
    assert b" encoding:skiplist " in bench("DEBUG", "OBJECT", "many")
    assert bench("TYPE", "few") == b"zset"
    assert sorted(bench("SCAN", 0, "TYPE", "zset", "COUNT", 100)[1]) == [b"few", b"many"]
