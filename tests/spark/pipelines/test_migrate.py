"""Streams are copied from server to server with all their state, and differences are reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rillet
from rillet.client.errors import ConnectionLost, ConnectorError
from rillet.client.servers import Servers
from rillet.spark.options import OptionError, Options, parse
from rillet.spark.pipelines import copying as forward
from rillet.spark.pipelines import migrate_stream
from rillet.spark.pipelines.cli_common import PipelineError
from rillet.spark.pipelines.copying import RawPages
from rillet.spark.pipelines.group_info import streams_of
from rillet.spark.pipelines.lag_sampling import sample
from rillet.spark.pipelines.migrate import _planned as planned
from rillet.spark.pipelines.migrate import checked, migrate
from rillet.spark.pipelines.migrate_compare import REPLACE, RESUME, SMALL, Plan
from rillet.spark.pipelines.migrate_stream import copy_stream
from rillet.types.stream.id import StreamID
from tests.cluster import Cluster
from tests.judge import Judge, running_redis

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = 1_700_000_000_000
CONSUMERS_NOTE = "commands cannot copy the times when consumers were last seen and active"


@pytest.fixture(scope="module")
def other() -> Iterator[Judge]:
    """A second server."""
    with running_redis() as server:
        yield server


def test_a_server_under_another_name_is_rejected_as_its_own_target(judge: Judge, other: Judge, tmp_path: Path) -> None:
    """Otherwise `replace` would delete the streams that it is about to read."""
    here, there = options(judge), parse({"url": f"redis://localhost:{judge.port}", "streamPattern": "*"})
    with judge.client() as client, other.client() as replica:
        client.execute_command("XADD", "s", "1-1", "a", "1")
        with pytest.raises(PipelineError, match="source and target are the same"):
            planned(Plan(here, there, policy=REPLACE), "")
        assert (b"s", b"p:s") in planned(Plan(here, there, policy=REPLACE), "p:")[0]
        assert planned(Plan(here, replace(there, url=f"{there.url}/1"), policy=REPLACE), "")[0]
        client.execute_command("CONFIG", "SET", "repl-diskless-sync-delay", "0")
        replica.execute_command("REPLICAOF", "127.0.0.1", judge.port)
        while b"master_link_status:up" not in replica.execute_command("INFO", "replication"):
            pass
        try:
            with pytest.raises(PipelineError, match="source and target are the same"):
                planned(Plan(options(other), here, policy=REPLACE), "")
        finally:
            replica.execute_command("REPLICAOF", "NO", "ONE")
    (tmp_path / "link").symlink_to(tmp_path / "store")
    with rillet.open(tmp_path / "store"):
        here, there = (parse({"path": str(tmp_path / name), "streamPattern": "*"}) for name in ("store", "link"))
        with pytest.raises(PipelineError, match="source and target are the same"):
            planned(Plan(here, there), "")


def options(server: Judge) -> Options:
    return parse({"url": f"redis://127.0.0.1:{server.port}", "streamPattern": "*"})


def identifier(i: int) -> str:
    return f"{START + i}-{i % 3}"


def fill(client: Any, count: int = 600, key: str = "s") -> None:
    """Create a stream with two groups, deleted entries (also pending ones), and names and values of arbitrary bytes."""
    pipe = client.pipeline(transaction=False)
    run = pipe.execute_command
    run("DEL", key)
    for i in range(count):
        run(
            "XADD",
            key,
            identifier(i),
            "n",
            i,
            "n",
            b"v\xff%d" % i,
            b"\xff\r\n",
            b"*2\r\n$3\r\n\r\n",
            "long",
            "x" * (i % 90),
        )
    run("XGROUP", "CREATE", key, "g", "0")
    run("XGROUP", "CREATE", key, b"h\xfe", identifier(100))
    run("XREADGROUP", "GROUP", "g", "c1", "COUNT", count // 2, "STREAMS", key, ">")
    run("XREADGROUP", "GROUP", "g", b"c\xff", "COUNT", 50, "STREAMS", key, ">")
    run("XREADGROUP", "GROUP", b"h\xfe", "c1", "COUNT", 30, "STREAMS", key, ">")
    run("XREADGROUP", "GROUP", "g", "c1", "COUNT", 10, "STREAMS", key, "0")
    run("XGROUP", "CREATECONSUMER", key, "g", "idle")
    run("XDEL", key, *map(identifier, (0, 7, 200, 201, 320, count - 1)))
    run("XTRIM", key, "MINID", "=", START + 3)
    run("PEXPIRE", key, 100_000_000)
    pipe.execute()


def facts(client: Any, key: str) -> Any:
    """Return XINFO STREAM FULL without the parts that commands cannot copy and those that depend on the rax."""

    def as_dict(flat: list[Any], *without: bytes) -> dict[bytes, Any]:
        return {name: value for name, value in zip(flat[::2], flat[1::2], strict=True) if name not in without}

    full = as_dict(client.execute_command("XINFO", "STREAM", key, "FULL", "COUNT", 0), b"radix-tree-keys",
                b"radix-tree-nodes", b"idmp-duration", b"idmp-maxsize", b"pids-tracked", b"iids-tracked", b"iids-added",
                b"iids-duplicates")  # fmt: skip
    groups = []
    for flat in full[b"groups"]:
        group = as_dict(flat)
        group[b"consumers"] = [as_dict(one, b"seen-time", b"active-time") for one in group[b"consumers"]]
        group.pop(b"nacked-count", None)
        group[b"pending"] = group.pop(b"pending", group.pop(b"pel", None))
        groups.append(group)
    return {**full, b"groups": groups, "expires": client.execute_command("PTTL", key) > 90_000_000}


def test_a_small_stream_is_restored_and_a_large_one_is_rebuilt(judge: Judge, other: Judge) -> None:
    with judge.client() as here, other.client() as there:
        there.flushall()
        fill(here)
        plan = Plan(options(judge), options(other))
        whole = copy_stream(plan, b"s", b"whole")
        rebuilt = copy_stream(Plan(plan.source, plan.target, small=0), b"s", b"rebuilt")
        assert (whole.how, whole.equal, whole.notes, whole.differences) == ("restored", True, [], [])
        assert (rebuilt.how, rebuilt.equal, rebuilt.differences) == ("rebuilt", True, [])
        assert rebuilt.notes == [CONSUMERS_NOTE]
        assert whole.digest == rebuilt.digest
        assert whole.entries == rebuilt.entries == here.execute_command("XLEN", "s")
        assert rebuilt.groups == 2
        assert rebuilt.pending == 380
        assert facts(there, "whole") == facts(there, "rebuilt") == facts(here, "s")
        # The deleted entry of a pending one is missing on both sides, and so is its placeholder.
        assert there.execute_command("XRANGE", "rebuilt", identifier(200), identifier(201)) == []
        assert there.execute_command("XPENDING", "rebuilt", "g", identifier(200), identifier(201), 9) != []


@pytest.mark.parametrize(
    "pair", [("8.6", "7.0"), ("7.0", "8.6"), ("valkey", "7.0"), ("newest", "valkey"), ("7.0", "valkey")]
)
def test_a_stream_is_copied_between_servers_of_any_version(
    pair: tuple[str, str], peer_of: Callable[[str], Judge]
) -> None:
    source, target = map(peer_of, pair)
    with source.client() as here, target.client() as there:
        here.flushall()
        there.flushall()
        fill(here)
        done = copy_stream(Plan(options(source), options(target)), b"s", b"s")
        assert done.equal, done
        assert done.how == ("restored" if pair[0] == "7.0" else "rebuilt"), done
        mine, theirs = facts(here, "s"), facts(there, "s")
        assert mine == theirs


def test_data_that_the_target_does_not_support_is_reported(peer_of: Callable[[str], Judge], other: Judge) -> None:
    newest = peer_of("newest")
    with newest.client() as here, other.client() as there:
        here.flushall()
        there.flushall()
        fill(here)
        here.execute_command("XNACK", "s", "g", "FAIL", "IDS", 1, identifier(50))
        done = copy_stream(Plan(options(newest), options(other)), b"s", b"s")
        assert not done.equal
        assert "1 pending entries of the group 'g' are missing" in done.differences
        assert any(note.startswith("released entries (XNACK) were not copied") for note in done.notes)
        # Following ends if the difference cannot disappear.
        again = copy_stream(Plan(options(newest), options(other), RESUME, follow=True), b"s", b"s")
        assert not again.equal
        assert again.rounds == 2
        again = copy_stream(Plan(options(newest), options(newest), small=0), b"s", b"copy")
        assert again.equal, again
        assert here.execute_command("XPENDING", "copy", "g", identifier(50), identifier(50), 1)[0][1:3] == [b"", -1]


def test_empty_streams_are_copied_and_missing_ones_are_reported(judge: Judge, other: Judge) -> None:
    with judge.client() as here, other.client() as there:
        here.flushall()
        there.flushall()
        here.execute_command("XGROUP", "CREATE", "empty", "g", "$", "MKSTREAM")
        here.execute_command("XADD", "emptied", "5-5", "a", "b")
        here.execute_command("XDEL", "emptied", "5-5")
        here.execute_command("SET", "text", "x")
        plan = Plan(options(judge), options(other), small=0)
        for key in (b"empty", b"emptied"):
            assert copy_stream(plan, key, key).equal
            mine, theirs = facts(here, key.decode()), facts(there, key.decode())
            assert mine == theirs
        (gone,) = copy_stream(plan, b"gone", b"gone").differences
        assert gone == f"the stream 'gone' does not exist at 127.0.0.1:{judge.port}"
        (wrong,) = copy_stream(plan, b"text", b"text").differences
        assert "WRONGTYPE" in wrong
        assert "'text'" in wrong
        (full,) = copy_stream(plan, b"empty", b"empty").differences
        assert full == f"the stream 'empty' already exists at 127.0.0.1:{other.port}"
        assert copy_stream(Plan(plan.source, plan.target, REPLACE), b"empty", b"empty").equal


def test_an_interrupted_copy_resumes(judge: Judge, other: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    with judge.client() as here, other.client() as there:
        there.flushall()
        fill(here)
        monkeypatch.setattr(forward, "PAGE", 50)
        plan = Plan(options(judge), options(other), small=0)
        add, calls = forward.RawEntryWriter.add, 0

        def stopping(self: forward.RawEntryWriter, entries: Any) -> None:
            nonlocal calls
            calls += 1
            if calls in (1, 2):
                add(self, list(entries)[:37])
                self.finish()
                raise ConnectionLost("rillet: the network is gone")
            add(self, entries)

        monkeypatch.setattr(forward.RawEntryWriter, "add", stopping)
        done = copy_stream(plan, b"s", b"s")  # resumes by itself, twice
        assert calls > 2
        assert done.equal
        assert done.how == "rebuilt"
        assert facts(there, "s") == facts(here, "s")
        calls = 0
        monkeypatch.setattr(migrate_stream, "_ATTEMPTS", 1)
        there.flushall()
        assert copy_stream(plan, b"s", b"s").differences == ["the network is gone"]
        calls = 9
        done = copy_stream(Plan(plan.source, plan.target, RESUME, small=0), b"s", b"s")
        assert done.equal
        assert done.how == "resumed"
        assert facts(there, "s") == facts(here, "s")


def test_following_copies_later_changes_of_the_source(judge: Judge, other: Judge) -> None:
    with judge.client() as here, other.client() as there:
        there.flushall()
        fill(here)
        assert copy_stream(Plan(options(judge), options(other), small=0), b"s", b"s").equal
        for i in range(40):
            here.execute_command("XADD", "s", identifier(2000 + i), "new", i)
        here.execute_command("XREADGROUP", "GROUP", "g", "c3", "COUNT", 400, "STREAMS", "s", ">")
        here.execute_command("XACK", "s", "g", identifier(20), identifier(21))
        here.execute_command("XCLAIM", "s", "g", "c4", 0, identifier(30))
        here.execute_command("XDEL", "s", identifier(400))
        here.execute_command("XTRIM", "s", "MINID", "=", START + 40)
        here.execute_command("XGROUP", "DESTROY", "s", b"h\xfe")
        here.execute_command("XGROUP", "DELCONSUMER", "s", "g", "idle")
        here.execute_command("XGROUP", "CREATE", "s", "late", "$")
        here.execute_command("PERSIST", "s")
        plan = Plan(options(judge), options(other), RESUME, follow=True, follow_for=60, small=0)
        done = copy_stream(plan, b"s", b"s")
        assert done.equal, done
        assert done.rounds == 2, done  # the second round finds the deletions in the middle
        assert facts(there, "s") == facts(here, "s")
        there.execute_command("XADD", "s", "*", "from", "another client")
        (error,) = copy_stream(plan, b"s", b"s").differences
        assert "after the source's" in error
        assert "another client writes to it" in error


def test_verification_reports_every_difference(judge: Judge, other: Judge) -> None:
    with judge.client() as here, other.client() as there:
        there.flushall()
        fill(here)
        plan = Plan(options(judge), options(other))
        assert copy_stream(plan, b"s", b"s").equal
        there.execute_command("XDEL", "s", identifier(10), identifier(11))
        there.execute_command("XCLAIM", "s", "g", "thief", 0, identifier(20))
        done = copy_stream(Plan(plan.source, plan.target, RESUME), b"s", b"s")
        assert not done.equal
        assert done.differences[0] == f"2 entries are missing, the first is {identifier(10)}"
        assert not any("group" in text for text in done.differences)  # the claim was undone
        assert f"length is {here.xlen('s')} at the source, {there.xlen('s')} at the target" in done.differences


def test_pages_return_a_range_of_entries_with_any_bytes(judge: Judge) -> None:
    with judge.client() as here:
        fill(here, 300)
        here.execute_command("XADD", "s", identifier(5000), "big", b"\r\n" * 400_000)
        entries = here.execute_command("XRANGE", "s", "-", "+")
        for page in (1, 7, 1000):
            with RawPages(options(judge), b"s", StreamID(0, 0), StreamID(2**64 - 1, 2**64 - 1), page) as pages:
                found = [one for part in pages for one in part]
            assert [one.id for one in found] == [raw for raw, _ in entries]
            assert [one.words for one in found] == [len(flat) for _, flat in entries]
        bodies = [b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in flat) for _, flat in entries]
        assert [one.body for one in found] == bodies
        with RawPages(options(judge), b"s", StreamID(START + 10, 1), StreamID(START + 20, 0)) as pages:
            assert sum(map(len, pages)) == 9
        here.execute_command("SET", "text", "x")
        with (
            RawPages(options(judge), b"text", StreamID(0, 0), StreamID(9, 9)) as pages,
            pytest.raises(ConnectorError, match="rejected XRANGE of 'text': WRONGTYPE"),
        ):
            list(pages)


@pytest.mark.parametrize("piece", [1, 13, 65_536, 1 << 20])
def test_entries_are_split_correctly_wherever_the_reply_is_cut(piece: int) -> None:
    words = (b"a", b"", b"\xff\r\n*2\r\n$3\r\n", b"x" * 300, b"\r\n" * 3000)
    wanted = [(b"%d-%d" % (i, 7 * i), [words[(i * k) % 5] for k in range(2 * (i % 4) + 2)]) for i in range(12)]

    def bulk(word: bytes) -> bytes:
        return b"$%d\r\n%b\r\n" % (len(word), word)

    bodies = [b"".join(map(bulk, flat)) for _, flat in wanted]
    raw = b"*12\r\n" + b"".join(
        b"*2\r\n%b*%d\r\n%b" % (bulk(one), len(flat), body) for (one, flat), body in zip(wanted, bodies, strict=True)
    )
    reply, found, at = forward._Reply(), [], 0
    while not reply.whole:
        part = raw[at : at + piece]
        at += len(part)
        assert part
        with reply.space(len(part)) as room:
            room[: len(part)] = part
        reply.filled(len(part))
        found += reply.entries()
    assert at == len(raw)
    assert [one.id for one in found] == [one for one, _ in wanted]
    assert [(one.words, one.body) for one in found] == [
        (len(flat), body) for (_, flat), body in zip(wanted, bodies, strict=True)
    ]


def test_all_wrong_options_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(OptionError) as caught:
        checked({"url": "redis://h", "foo": "1"}, {"stream": "x", "path": "a", "url": "redis://h"}, "nonsense")
    for part in ("policy is 'nonsense'", "the target does not accept stream", "of the source: unknown option foo",
                 "of the target: give one of url"):  # fmt: skip
        assert part in str(caught.value)


@pytest.mark.spark
@pytest.mark.slow
def test_each_stream_is_a_task_and_a_store_can_be_the_target(spark: SparkSession, judge: Judge, tmp_path: Path) -> None:
    with judge.client() as here:
        here.flushall()
        for name, count in (("a", 400), ("b", 700), ("c", 400)):
            fill(here, count, name)
        source = {"url": f"redis://127.0.0.1:{judge.port}"}
        store = {"path": str(tmp_path / "copy.rillet")}
        rows = {row["stream"]: row for row in migrate(spark, source, store, prefix="from:").collect()}
        assert {name: (row["target"], row["equal"], row["groups"]) for name, row in rows.items()} == {
            name: (f"from:{name}", True, 2) for name in "abc"
        }
        assert rows["a"]["digest"] == rows["c"]["digest"] != rows["b"]["digest"]
        with pytest.raises(
            PipelineError, match="already exist at .*: from:a, from:b, from:c. Continue them with resume"
        ):
            migrate(spark, source, store, prefix="from:")
        back = migrate(spark, {**store, "stream": "from:b"}, source, prefix="back:").collect()
        assert [(row["equal"], row["entries"], row["pending"]) for row in back] == [(True, rows["b"]["entries"], 430)]
        assert facts(here, "back:from:b") == facts(here, "b")
        with pytest.raises(PipelineError, match="source and target are the same"):
            migrate(spark, source, source)


@pytest.mark.slow
def test_streams_are_copied_into_a_cluster_and_out_of_it(judge: Judge, other: Judge, cluster: Cluster) -> None:
    there = parse({"url": cluster.url, "streamPattern": "*"})
    with judge.client() as here, other.client() as back:
        here.flushall()
        back.flushall()
        keys = [cluster.key_of(node, "s") for node in range(3)]
        for key in keys:
            fill(here, 300, key)
        with Servers(options(judge)) as source:
            assert sorted(keys) == [key.decode() for key in streams_of(source, options(judge))]
        for small in (0, SMALL):
            for name in map(str.encode, keys):
                assert copy_stream(Plan(options(judge), there, REPLACE, small=small), name, name).equal
        with Servers(there) as servers:
            rows = sample(servers, streams_of(servers, there))
        assert [(row["stream"], row["pending"]) for row in rows if row["group"] == "g"] == [
            (key, 200) for key in sorted(keys)
        ]
        for key in keys:
            assert copy_stream(Plan(there, options(other), small=0), key.encode(), key.encode()).equal
            mine, theirs = facts(here, key), facts(back, key)
            assert mine == theirs


def test_a_rillet_server_can_be_the_target_and_the_source(judge: Judge, tmp_path: Path) -> None:
    with judge.client() as here, rillet.open(tmp_path / "store.rillet") as store:
        here.flushall()
        fill(here)
        place = parse({"url": f"unix://{store.socket}", "streamPattern": "*"})
        assert copy_stream(Plan(options(judge), place, small=0), b"s", b"s").equal
        assert copy_stream(Plan(place, options(judge), small=0), b"s", b"back").equal
        assert facts(here, "back") == facts(here, "s")
