"""migrate_keys: keys of every type from server to server, live, and verified by digests; without Spark's JVM."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import rillet
from rillet.client import key_scan
from rillet.client.errors import ConnectorError
from rillet.client.servers import Servers
from rillet.spark.options import OptionError
from rillet.spark.pipelines.cli_common import PipelineError
from rillet.spark.pipelines.migrate_keys import KeyCopy, KeysMigrated, KeysPlan, _planned, checked_sides
from rillet.spark.table_options import parse_table
from tests.cluster import running_cluster
from tests.judge import Judge, redis_binary, running_redis

pytestmark = pytest.mark.slow
N = 120
FAR = 4_000_000_000_000


def call(options: dict[str, str], *words: str | bytes) -> Any:
    packed = [word if isinstance(word, bytes) else word.encode() for word in words]
    with Servers(parse_table({**options, "type": "keys"})) as servers:
        return servers.call(packed[1] if len(packed) > 1 else b"", *packed)


@pytest.fixture(scope="module", params=["redis", "store", "cluster"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The target's options."""
    if redis_binary() is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "redis":
        with running_redis() as server:
            yield {"url": f"redis://127.0.0.1:{server.port}"}
    elif request.param == "store":
        with rillet.open(folder / "copy.rillet"):
            yield {"path": str(folder / "copy.rillet")}
    else:
        with running_cluster() as cluster:
            yield {"url": cluster.url, "timeout": "20"}


@pytest.fixture
def target(place: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The target, empty."""
    monkeypatch.setattr(key_scan, "KEYS_PER_POSITION", 64)
    monkeypatch.setattr(key_scan, "FEWEST", 4)
    with Servers(parse_table({**place, "type": "keys"})) as servers:
        for connection in servers.masters():
            connection.call(b"FLUSHALL")
    return place


@pytest.fixture
def source(judge: Judge) -> dict[str, str]:
    """The source with keys of every type, some of which expire, and a stream."""
    with judge.client() as client:
        client.flushall()
        pipe = client.pipeline(transaction=False)
        for n in range(N):
            pipe.execute_command("HSET", f"h:{n}", "a", n, "b", f"é{n}")
            pipe.execute_command("RPUSH", f"l:{n}", *range(n % 9 + 1))
            pipe.execute_command("SADD", f"s:{n}", *range(n % 7 + 1))
            pipe.execute_command("ZADD", f"z:{n}", n / 3, "m", "inf", "x")
        for n in range(3000):
            pipe.execute_command("HSET", "big:h", f"f{n}", n)
            pipe.execute_command("ZADD", "big:z", n, f"m{n}")
        pipe.execute_command("SET", b"bytes\xff", b"\xfe")
        pipe.execute_command("SET", "soon", "v", "EX", 1000)
        pipe.execute_command("XADD", "stream", "1-1", "f", "v")
        pipe.execute()
    return {"url": f"redis://127.0.0.1:{judge.port}"}


def migrated(source: dict[str, str], target: dict[str, str], *, pattern: str = "*", policy: str = "refuse",
             follow: bool = False, prefix: str = "", parts: int = 3) -> list[KeysMigrated]:  # fmt: skip
    """Migrate as migrate_keys does, one task after the other."""
    plan = KeysPlan(*checked_sides(source, target, policy, pattern), pattern, prefix, policy, follow, 20.0)
    planned = _planned(plan, parts)
    return [KeyCopy(plan, number, len(planned), part).run() for number, part in enumerate(planned)]


def total(results: list[KeysMigrated]) -> KeysMigrated:
    summed = KeysMigrated(0, equal=all(one.equal for one in results))
    for one in results:
        summed.keys += one.keys
        summed.copied += one.copied
        summed.rebuilt += one.rebuilt
        summed.deleted += one.deleted
        assert (one.source_digest == one.target_digest) is one.equal
    return summed


KEYS = 4 * N + 4


def test_every_type_arrives_and_is_verified(source: dict[str, str], target: dict[str, str]) -> None:
    results = migrated(source, target)
    assert len(results) == 3
    done = total(results)
    assert (done.keys, done.copied, done.equal, done.deleted) == (KEYS, KEYS, True, 0)
    assert 900 < call(target, "TTL", "soon") <= 1000
    assert call(target, "GET", b"bytes\xff") == b"\xfe"
    assert call(target, "EXISTS", "stream") == 0
    assert call(target, "ZRANGE", "z:9", "0", "-1", "WITHSCORES") == [b"m", b"3", b"x", b"inf"]
    with pytest.raises(PipelineError, match="^rillet: '.*' already exists at .*: continue with resume"):
        migrated(source, target)
    # What differs is copied again, and what the source no longer has is deleted.
    call(target, "HSET", "h:1", "a", "other")
    call(target, "DEL", "l:2")
    call(target, "PERSIST", "soon")
    call(target, "SET", "only:there", "1")
    call(target, "XADD", "mine", "1-1", "f", "v")
    done = total(migrated(source, target, policy="resume"))
    assert (done.keys, done.copied, done.deleted, done.equal) == (KEYS, 3, 1, True)
    assert call(target, "EXISTS", "mine") == 1


@pytest.mark.parametrize("place", ["redis"], indirect=True)
def test_a_stream_at_the_target_is_never_replaced(source: dict[str, str], target: dict[str, str]) -> None:
    call(target, "XADD", "h:1", "1-1", "f", "v")
    with pytest.raises(PipelineError, match="^rillet: 'h:1' already exists at .*: it is a stream"):
        migrated(source, target)
    for policy in ("resume", "replace"):
        with pytest.raises(PipelineError, match="^rillet: 'h:1' is a stream at .*, and a hash at the source"):
            migrated(source, target, policy=policy)
    assert call(target, "XLEN", "h:1") == 1
    call(target, "FLUSHALL")
    call(target, "XADD", "stream", "1-1", "f", "v")  # the copy of a stream, made by migrate, is not in the way
    assert total(migrated(source, target)).equal
    assert call(target, "XLEN", "stream") == 1


@pytest.mark.parametrize("place", ["redis"], indirect=True)
def test_a_refused_command_ends_the_migration(source: dict[str, str], target: dict[str, str], judge: Judge) -> None:
    """A key that may not be read is not a key that is missing."""
    call(target, "SET", "only:there", "1")
    with judge.client() as client:
        for refused in ("hgetall", "type", "pttl", "dump", "exists"):
            client.execute_command("ACL", "SETUSER", "reader", "reset", "on", ">pw", "~*", "+@all", f"-{refused}")
            limited = {"url": source["url"].replace("//", "//reader:pw@")}
            with pytest.raises(ConnectorError, match=f"^rillet: .* rejected {refused.upper()} of '.*': NOPERM [^\n]*$"):
                migrated(limited, target, policy="resume")
            assert call(target, "EXISTS", "only:there") == 1
        client.execute_command("ACL", "SETUSER", "reader", "reset", "on", ">pw", "~h:*", "+@all")
        with pytest.raises(ConnectorError, match="NOPERM"):
            migrated(limited, target, policy="resume")
        client.execute_command("ACL", "DELUSER", "reader")
    call(target, "ACL", "SETUSER", "writer", "reset", "on", ">pw", "~*", "+@all", "-unlink")
    with pytest.raises(ConnectorError, match="^rillet: .* rejected UNLINK of 'only:there': NOPERM [^\n]*$"):
        migrated(source, {"url": target["url"].replace("//", "//writer:pw@")}, policy="resume")
    call(target, "ACL", "DELUSER", "writer")


@pytest.mark.parametrize("place", ["redis"], indirect=True)
def test_a_key_in_its_last_millisecond_does_not_live_forever(
    source: dict[str, str], target: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PTTL replies 0 for a key that expires within the millisecond; RESTORE takes 0 as no expiry."""
    module = sys.modules[KeyCopy.__module__]  # its name is also a function's
    each = module._each

    def last_millisecond(servers: Any, requests: Any, *allowed: Any) -> list[Any]:
        replies = each(servers, requests, *allowed)
        return [0 if words[0] == b"PTTL" and reply > 0 else reply
                for (_, words), reply in zip(requests, replies, strict=True)]  # fmt: skip

    monkeypatch.setattr(module, "_each", last_millisecond)
    migrated(source, target, pattern="soon")
    assert call(target, "TTL", "soon") != -1


def test_a_pattern_and_a_prefix(source: dict[str, str], target: dict[str, str]) -> None:
    call(target, "SET", "copy:h:77", "in the way of nothing: another prefix")
    done = total(migrated(source, target, pattern="s:*", prefix="copy:"))
    assert (done.keys, done.copied, done.equal) == (N, N, True)
    assert sorted(call(target, "SMEMBERS", "copy:s:1")) == [b"0", b"1"]
    assert call(target, "EXISTS", "copy:h:1") == 0
    with pytest.raises(PipelineError, match="^rillet: source and target are the same server"):
        migrated(source, source)
    with pytest.raises(OptionError, match="^rillet: policy is 'x': expected one of .*; of the target: give one of url"):
        migrated(source, {}, policy="x")


def test_values_are_built_again_where_the_payload_is_refused(
    source: dict[str, str], target: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_restore(replies: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        def sent(self: Servers, key: bytes, commands: Any) -> list[Any]:
            damaged = []
            for words in commands:
                if words[0] == b"RESTORE":
                    payload = words[3][:-1] + bytes((words[3][-1] ^ 1,))
                    words = (*words[:3], payload, *words[4:])
                damaged.append(words)
            return replies(self, key, damaged)

        return sent

    monkeypatch.setattr(Servers, "replies", without_restore(Servers.replies))
    results = migrated(source, target)
    done = total(results)
    assert (done.keys, done.rebuilt, done.equal) == (KEYS, KEYS, True)
    assert 900 < call(target, "TTL", "soon") <= 1000


def test_a_source_that_changes_is_followed(
    source: dict[str, str], target: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[int] = []
    original = KeyCopy._round

    def changing(self: KeyCopy) -> int:
        changed = original(self)
        if len(rounds) < 4:
            n = len(rounds)
            call(source, "HSET", f"h:{n}", "a", "changed")
            call(source, "DEL", f"l:{n}", f"z:{n}")
            call(source, "SET", f"new:{n}", "1")
            changed += 1
        rounds.append(changed)
        return changed

    monkeypatch.setattr(KeyCopy, "_round", changing)
    done = total(migrated(source, target, follow=True, parts=1))
    assert len(rounds) > 4
    assert (done.keys, done.equal, done.deleted) == (KEYS - 4, True, 8)
    assert call(target, "HGET", "h:3", "a") == b"changed"


@pytest.mark.spark
@pytest.mark.parametrize("place", ["redis"], indirect=True)
def test_the_command_copies_streams_and_all_other_keys(
    spark: Any, source: dict[str, str], target: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    from rillet.cli import main

    command = ["pipeline", "migrate", "--url", source["url"], "--to-url", target["url"], "--keys", "*"]
    assert main([*command, "--master", "local[2]"]) == 0
    printed = capsys.readouterr().out
    assert "1 stream, 1 entry" in printed
    assert f"{KEYS:,} keys: {KEYS:,} copied (0 rebuilt), 0 deleted, digest " in printed
    assert printed.rstrip().endswith(": all equal")
    assert call(target, "XLEN", "stream") == 1


@pytest.mark.parametrize(("one", "other"), [("newest", "valkey"), ("valkey", "newest"), ("newest", "store")])
def test_fields_keep_their_expiry(
    one: str, other: str, peer_of: Callable[[str], Judge], tmp_path: Path
) -> None:
    """By DUMP, or by commands between the forks; a field that expires at another time is copied again."""
    with peer_of(one).client() as client:
        client.flushall()
        client.execute_command("HSET", "h", "a", 1, "b", 2, "c", 3)
        client.execute_command("HPEXPIREAT", "h", FAR, "FIELDS", 2, "a", "b")
    source = {"url": f"redis://127.0.0.1:{peer_of(one).port}"}
    with ExitStack() as stack:
        if other == "store":
            stack.enter_context(rillet.open(tmp_path / "copy.rillet"))
            target = {"path": str(tmp_path / "copy.rillet")}
        else:
            target = {"url": f"redis://127.0.0.1:{peer_of(other).port}"}
            call(target, "FLUSHALL")
        times = ("HPEXPIRETIME", "h", "FIELDS", "3", "a", "b", "c")
        assert total(migrated(source, target)).rebuilt == (other != "store")
        assert call(target, *times) == [FAR, FAR, -1]
        call(target, "HPEXPIREAT", "h", str(FAR + 1), "FIELDS", "1", "a")
        done = total(migrated(source, target, policy="resume"))
        assert (done.copied, done.equal) == (1, True)
        assert call(target, *times) == [FAR, FAR, -1]


def test_an_older_server_loses_the_expiry_of_fields(peer_of: Callable[[str], Judge], judge: Judge) -> None:
    with peer_of("newest").client() as client:
        client.flushall()
        client.execute_command("HSETEX", "h", "PXAT", FAR, "FIELDS", 1, "a", 1)
    target = {"url": f"redis://127.0.0.1:{judge.port}"}
    call(target, "FLUSHALL")
    (result,) = [one for one in migrated({"url": f"redis://127.0.0.1:{peer_of('newest').port}"}, target) if one.keys]
    assert "'h' loses the expiry of its fields" in result.differences[0]
    assert call(target, "HGETALL", "h") == [b"a", b"1"]
