"""The hash commands: replies in both protocols and at each level, events, log and files.

Replies, logs and payloads are held against servers by tests/differential/test_values_differential.py; here are the
forms that chance decides, keyspace events as clients see them, and what a log and a file bring back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis import ResponseError

from rillet.persistence.rdb.reader import load_rdb
from rillet.persistence.rdb.writer import write_rdb
from tests.commands.ends import Bench
from tests.commands.test_pubsub import compare
from tests.differential.wire import Redis, tree
from tests.judge import Judge, redis_binary, running_redis
from tests.persistence.state import Opened

pytestmark = pytest.mark.both

needs_redis = pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")


def filled(**settings: Any) -> Bench:
    """Return an engine with a hash of each encoding: ten fields in `small`, a hundred in `large`."""
    bench = Bench(hash_max_listpack_entries=50, **settings)
    for key, count in (("small", 10), ("large", 100)):
        bench("HSET", key, *(word for at in range(count) for word in (f"f{at}", at)))
    assert [bench("OBJECT", "ENCODING", key) for key in ("small", "large")] == [b"listpack", b"hashtable"]
    return bench


@pytest.mark.parametrize(
    ("compat", "encoding"), [("7.0", b"listpack"), ("7.2", b"hashtable"), ("valkey", b"hashtable")]
)
@pytest.mark.parametrize("width", [1, 40])  # a packed hash, and an object
def test_many_arguments_create_a_hashtable_at_once_since_7_2(compat: str, encoding: bytes, width: int) -> None:
    bench = Bench(hash_max_listpack_entries=20, compat=compat)
    bench("HSET", "h", *["same", "v" * width] * 30)
    assert bench("OBJECT", "ENCODING", "h") == encoding
    assert bench("HLEN", "h") == 1


# -- replies ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("resp", [2, 3])
@pytest.mark.parametrize("key", ["small", "large", "nothing"])
@pytest.mark.parametrize("count", [None, 0, 1, 4, 9, 70, 1000, -1, -7, -2500])
def test_random_fields_are_distinct_unless_the_count_is_negative(resp: int, key: str, count: int | None) -> None:
    """The number of fields is the count; they are distinct unless it is negative; each has its own value."""
    bench = filled(compat="newest")
    bench.session.out.resp = resp
    size = {"small": 10, "large": 100, "nothing": 0}[key]
    if count is None:
        kind, field = tree(bench.run([b"HRANDFIELD", key.encode()]))
        assert kind == (b"$" if size or resp == 2 else b"_")
        assert not size or field[:1] == b"f"
        return
    wanted = (min(count, size) if count >= 0 else -count) if size else 0
    for option in ((), ("WITHVALUES",), ("withvalues",)):
        reply = bench("HRANDFIELD", key, count, *option)
        if option and resp == 2:
            reply = [list(pair) for pair in zip(reply[::2], reply[1::2], strict=True)]
        fields = [pair[0] for pair in reply] if option else reply
        assert len(fields) == wanted
        assert all(field[:1] == b"f" for field in fields)
        assert count < 0 or len(set(fields)) == wanted
        assert not option or all(pair[0] == b"f" + pair[1] for pair in reply)
    bench.engine.check()


@needs_redis
@pytest.mark.parametrize("key", ["small", "large"])
@pytest.mark.parametrize("resp", [2, 3])
def test_random_fields_have_the_reply_form_of_redis(judge: Judge, key: str, resp: int) -> None:
    """Compares lengths and nesting of random and empty replies."""
    bench = filled()
    bench.session.out.resp = resp
    counts = [[b"%d" % count, *option] for count in (3, -3, 1, 0) for option in ((), (b"WITHVALUES",))]
    asked = [[b"HRANDFIELD", key.encode(), *words] for words in ([], *counts)]
    asked += [[name, b"nothing"] for name in (b"HGETALL", b"HKEYS", b"HVALS", b"HLEN", b"HRANDFIELD")]
    asked += [[b"HSCAN", b"nothing", b"0"], [b"HRANDFIELD", b"nothing", b"3"], [b"HGET", b"nothing", b"f"]]
    asked += [[b"HMGET", b"nothing", b"f", b"g"], [b"HSCAN", key.encode(), b"0", b"COUNT", b"1000"]]
    with Redis(judge.port) as redis:
        redis.run([b"FLUSHALL"], [b"HELLO", b"%d" % resp], [b"CONFIG", b"SET", b"hash-max-listpack-entries", b"50"])
        redis.run(*([b"HSET", name, *(word for at in range(count) for word in (b"f%d" % at, b"%d" % at))]
                    for name, count in ((b"small", 10), (b"large", 100))))  # fmt: skip
        for argv in asked:
            assert form(tree(bench.run(argv))) == form(tree(redis.run(argv)[0])), argv
        redis.run([b"CONFIG", b"SET", b"hash-max-listpack-entries", b"512"])


def form(node: Any) -> object:
    """Return the types and lengths of a reply, without its strings."""
    kind, value = node
    if isinstance(value, list):
        return kind, [form(child) for child in value]
    return (kind, value) if kind != b"$" or value == b"-1" else kind


@pytest.mark.parametrize("count", [1, 7, 30])
@pytest.mark.parametrize("bare", [False, True])
def test_a_scan_returns_every_field_once(count: int, bare: bool) -> None:
    bench = filled(compat="newest")
    met, cursor = Counter[bytes](), b"0"
    while True:
        cursor, words = bench("HSCAN", "large", cursor, "COUNT", count, *(["NOVALUES"] if bare else []))
        met.update(words if bare else words[::2])
        assert bare or all(words[at] == b"f" + words[at + 1] for at in range(0, len(words), 2))
        if cursor == b"0":
            break
    assert met == Counter(b"f%d" % at for at in range(100))
    found = bench("HSCAN", "large", 0, "MATCH", "f1?", "COUNT", 1000)[1][::2]
    assert sorted(found) == [b"f%d" % at for at in range(10, 20)]


@pytest.mark.parametrize(("compat", "known"), [("7.0", False), ("7.2", False), ("7.4", True), ("valkey", True)])
def test_novalues_exists_since_7_4(compat: str, known: bool) -> None:
    bench = filled(compat=compat)
    replies = [bench("HSCAN", "small", 0, "NOVALUES"), bench("SSCAN", "s", 0, "NOVALUES")]
    bench("SADD", "s", "a")
    replies += [bench("SSCAN", "s", 0, "NOVALUES"), bench("SCAN", 0, "COUNT", 1, "NOVALUES")]
    if known:
        assert replies[0][1] == [b"f%d" % at for at in range(10)]
        assert replies[1:] == [[b"0", []], *["ERR NOVALUES option can only be used in HSCAN"] * 2]
    else:
        assert replies == ["ERR syntax error", [b"0", []], *["ERR syntax error"] * 2]


@pytest.mark.parametrize(("compat", "known"), [("7.4", False), ("8.0", True), ("newest", True)])
def test_hgetdel_exists_since_8_0(compat: str, known: bool) -> None:
    bench = filled(compat=compat)
    reply = bench("HGETDEL", "small", "FIELDS", 3, "f1", "none", "f1")
    if known:
        assert reply == [b"1", b"", b""] or reply == [b"1", b"-1", b"-1"]
        assert bench("HLEN", "small") == 9
        assert bench.logged("HGETDEL", "small", "FIELDS", 1, "f2") == [[b"HDEL", b"small", b"f2"]]
    else:
        assert reply.startswith("ERR unknown command 'HGETDEL'")


def test_an_increment_by_float_is_logged_as_its_result() -> None:
    bench = Bench(compat="newest")
    for step, result in ((b"0.1", b"0.1"), (b"0.2", b"0.3"), (b"1e20", b"100000000000000000000.29999999999999999")):
        reply = bench("HINCRBYFLOAT", "h", "f", step)
        assert reply[:20] == result[:20]
    assert bench.logged("HINCRBYFLOAT", "h", "g", "5e-1") == [[b"HSET", b"h", b"g", b"0.5"]]
    assert bench.logged("HINCRBY", "h", "n", 5) == [[b"HINCRBY", b"h", b"n", b"5"]]


def test_a_command_without_effect_is_not_logged() -> None:
    bench = filled(compat="newest")
    for line in ("HSETNX small f1 x", "HDEL small none", "HDEL nothing f", "HGETDEL small FIELDS 1 none",
                 "HGETDEL nothing FIELDS 1 f", "HINCRBY small f1 x", "HINCRBYFLOAT small f1 inf", "HSCAN large 0",
                 "HRANDFIELD large 5"):  # fmt: skip
        assert bench.logged(*line.split()) == [], line
    assert bench("EXISTS", "nothing") == 0


def test_a_refused_command_creates_no_key() -> None:
    bench = Bench()
    for line in ("HSET h f", "HMSET h f v g", "HINCRBY h f x", "HINCRBYFLOAT h f inf", "HINCRBYFLOAT h f nan"):
        assert bench(*line.split()).startswith("ERR "), line
        assert bench("EXISTS", "h") == 0
    bench("SET", "text", "x")
    for line in ("HSET text f v", "HGET text f", "HDEL text f", "HSCAN text 0", "HRANDFIELD text", "HGETALL text"):
        assert bench(*line.split()).startswith("WRONGTYPE "), line


# -- what is left behind ---------------------------------------------------------------------------------

EVENTS = """
HSET h a 1 b 2|HSET h a 1|HMSET h c 3|HSETNX h a x|HSETNX h d 4|HSETNX n a 1|HINCRBY h a 5|HINCRBY h b x
HINCRBYFLOAT h b 1.5|HINCRBYFLOAT h z nan|HDEL h none|HDEL h a none|HDEL h b c d e|HDEL h a|HSET h a 1|COPY h k
RENAME k j|HDEL n a b|DEL h j|HINCRBY i f 1|HINCRBYFLOAT i f 1|HGET i f|HDEL i f|HSET i f 1|EXPIRE i 100|HSET i g 1
PERSIST i|SET i x
"""
LATER = "HSET h a 1 b 2 c 3|HGETDEL h FIELDS 2 a z|HGETDEL h FIELDS 1 z|HGETDEL h FIELDS 2 b c|HGETDEL h FIELDS 1 c"


@needs_redis
@pytest.mark.parametrize("compat", ["7.0", "newest"])
def test_keyspace_events_equal_those_of_the_server(peer_of: Callable[[str], Judge], compat: str) -> None:
    lines = EVENTS.replace("\n", "|") + (LATER if compat == "newest" else "")
    steps = [(0, "PSUBSCRIBE __key*__:*"), *((1, line) for line in lines.split("|") if line)]
    compare(peer_of(compat), steps, compat=compat)


def fill(run: Callable[..., object]) -> None:
    """Make hashes of every encoding."""
    run("HSET", "few", "a", 1, "b", -70000, "", "", "f", "3.0", "007", "x" * 64)
    run("HSET", "long", "a", "x" * 65, "b", 2)
    run("HSET", "many", *(word for at in range(900) for word in (at, f"v{at}")))
    run("HDEL", "many", *range(0, 400, 3))
    run("PEXPIREAT", "few", 9_000_000_000_000)


def values_of(run: Callable[..., object]) -> list[object]:
    keys = ("few", "long", "many")
    return [run("DEBUG", "DIGEST-VALUE", *keys), *(run("OBJECT", "ENCODING", key) for key in keys)]


@pytest.mark.slow
def test_a_log_restores_the_values(tmp_path: Path) -> None:
    with Opened(tmp_path) as opened:
        opened.engine.settings.set_text("enable-debug-command", "yes")
        fill(opened)
        before = values_of(opened)
    with Opened(tmp_path) as opened:
        opened.engine.settings.set_text("enable-debug-command", "yes")
        assert values_of(opened) == before
        opened.engine.check()


@pytest.mark.slow
@needs_redis
@pytest.mark.parametrize("compat", ["7.0", "newest"])
def test_files_go_to_redis_and_back(tmp_path: Path, compat: str) -> None:
    bench, ours, same = Bench(compat=compat), Bench(), Bench(compat=compat)
    fill(bench)
    write_rdb(tmp_path / "dump.rdb", bench.engine)
    load_rdb(tmp_path / "dump.rdb", same.engine)
    assert values_of(same) == values_of(bench)
    with running_redis("--dir", str(tmp_path)) as server, server.client() as client:
        theirs = values_of(client.execute_command)
        client.execute_command("SAVE")
        with pytest.raises(ResponseError, match="WRONGTYPE"):
            client.execute_command("GET", "few")
    load_rdb(tmp_path / "dump.rdb", ours.engine)
    assert values_of(ours) == values_of(bench) == theirs
    ours.engine.check()


def test_a_copy_is_equal_and_independent() -> None:
    bench = filled(compat="newest")
    for key in ("small", "large"):
        bench("COPY", key, "twin")
        assert bench("DUMP", "twin") == bench("DUMP", key)
        kept = bench("DUMP", "twin")
        bench("HSET", key, "f1", "other")
        assert bench("DUMP", "twin") == kept != bench("DUMP", key)
        bench("DEL", "twin")


def test_debug_reload_keeps_encodings_and_digests() -> None:
    bench = Bench(compat="newest")
    fill(bench)
    before = values_of(bench)
    assert bench("DEBUG", "RELOAD") == b"OK"
    assert values_of(bench) == before


def test_memory_usage_and_object_encoding_follow_the_fields() -> None:
    bench = filled()
    sizes = [bench("MEMORY", "USAGE", key) for key in ("small", "large")]
    bench("HSET", "large", *(word for at in range(1000) for word in (f"more{at}", "x" * 50)))
    sizes.append(bench("MEMORY", "USAGE", "large", "SAMPLES", 0))
    assert sizes == sorted(sizes)
    assert sizes[2] > 100_000
    assert b" encoding:listpack serializedlength:" in bench("DEBUG", "OBJECT", "small")
    assert bench("TYPE", "small") == b"hash"
    assert sorted(bench("SCAN", 0, "TYPE", "HASH")[1]) == [b"large", b"small"]
