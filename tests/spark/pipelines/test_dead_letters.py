"""Dead letters and pending entries form a table and are requeued exactly once, wherever a run stops."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rillet
from rillet.client.errors import ConnectionLost, ConnectorError
from rillet.client.servers import Servers
from rillet.spark.options import OptionError, parse
from rillet.spark.pipelines import dead_letters as package_function
from rillet.spark.pipelines.cli_arguments import PipelineParser
from rillet.spark.pipelines.cli_common import PipelineError, foreign_files
from rillet.spark.pipelines.dead_letters import pending, report
from rillet.spark.pipelines.requeue import (
    CONSUMER,
    RequeueSummary,
    put_back,
    reprocess,
    requeue,
    requeue_task,
)
from rillet.store.consuming.dead_letters import own_fields
from tests.cluster import Cluster
from tests.judge import Judge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# In the package, the function hides the module of the same name.
MODULE = sys.modules["rillet.spark.pipelines.dead_letters"]


def servers(judge: Judge) -> Servers:
    return Servers(parse({"url": f"redis://127.0.0.1:{judge.port}", "streamPattern": "*"}))


def bury(judge: Judge, count: int, stream: str = "events", letters: str = "billing.dead") -> list[bytes]:
    """Let a consumer of rillet give up entries; return the IDs of the letters."""
    with judge.client() as client:
        client.flushall()
        for i in range(count):
            client.execute_command(
                "XADD", stream, f"{1_700_000_000_000 + i}-0", "n", i, b"\xff", b"\xfe\r\n", "_id", "mine"
            )
        client.execute_command("XGROUP", "CREATE", stream, "billing", "0")
    with rillet.connect(f"redis://127.0.0.1:{judge.port}") as store:
        worker = store.stream(stream).group("billing").consumer("w")
        assert len(worker.read(count)) == count
        assert list(worker.messages(max_deliveries=1, dead_letters=letters, stop_when_empty=True)) == []
    with judge.client() as client:
        return [raw for raw, _ in client.execute_command("XRANGE", letters, "-", "+")]


def test_letters_are_requeued_with_their_own_fields(judge: Judge) -> None:
    ids = bury(judge, 5)
    with servers(judge) as there, judge.client() as client:
        assert put_back(there, b"billing.dead", [*ids[:3], b"9-9", ids[0]], b"events") == RequeueSummary(
            moved=3, gone=1
        )
        entries = client.execute_command("XRANGE", "events", "-", "+")
        assert [flat for _, flat in entries[5:]] == [flat for _, flat in entries[:3]]
        assert client.execute_command("XLEN", "billing.dead") == 2
        assert client.execute_command("KEYS", "*commits*") == []
        assert put_back(there, b"billing.dead", ids[:3], b"events") == RequeueSummary(gone=3)


def test_only_the_metadata_of_a_letter_is_removed() -> None:
    tail = [b"_stream", b"s", b"_group", b"g", b"_id", b"1-1", b"_deliveries", b"4"]
    assert own_fields([b"_id", b"own", b"a", b"1", *tail]) == [b"_id", b"own", b"a", b"1"]
    assert own_fields([b"a", b"1", *tail, b"_reason", b"x"]) == [b"a", b"1"]
    old = [b"dead-letter-of", b"s", b"dead-letter-id", b"1-1", b"dead-letter-group", b"g"]  # of earlier inspectors
    assert own_fields([b"dead-letter-id", b"own", *old]) == [b"dead-letter-id", b"own"]
    assert own_fields([b"a", b"1", *old, *tail]) == [b"a", b"1", *old]
    for kept in ([b"a", b"1"], [b"a", b"1", b"_reason", b"x"], tail):  # an entry has at least one field
        assert own_fields(kept) == kept


@pytest.mark.parametrize("lost", [b"EXEC", b"XDEL", b"HDEL"])
@pytest.mark.parametrize("after", [False, True])
def test_a_run_completes_the_work_of_one_that_stopped_anywhere(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, lost: bytes, after: bool
) -> None:
    ids = bury(judge, 4)
    send = Servers.replies

    def failing(self: Servers, key: bytes, commands: Any) -> Any:
        here = any(words[0] == lost for words in commands)
        if here and not after:
            raise ConnectionLost("rillet: lost before")
        replies = send(self, key, commands)
        if here:
            raise ConnectionLost("rillet: lost after")
        return replies

    monkeypatch.setattr(Servers, "replies", failing)
    with servers(judge) as there, pytest.raises(ConnectionLost):
        put_back(there, b"billing.dead", ids, b"events")
    monkeypatch.setattr(Servers, "replies", send)
    with servers(judge) as there, judge.client() as client:
        put_back(there, b"billing.dead", ids, b"events")
        numbers = [flat[1] for _, flat in client.execute_command("XRANGE", "events", "-", "+")]
        assert numbers == [b"0", b"1", b"2", b"3"] * 2
        assert client.execute_command("XLEN", "billing.dead") == 0


def test_two_runs_at_once_move_a_letter_once(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = bury(judge, 4)
    send = Servers.replies
    once = [True]

    def other_first(self: Servers, key: bytes, commands: Any) -> Any:
        if commands[0] == (b"MULTI",) and once.pop():
            once.append(False)
            with servers(judge) as other:  # another run completes before this run's EXEC
                monkeypatch.setattr(Servers, "replies", send)
                assert put_back(other, b"billing.dead", ids, b"events").moved == 4
        return send(self, key, commands)

    monkeypatch.setattr(Servers, "replies", other_first)
    with servers(judge) as there, judge.client() as client:
        assert put_back(there, b"billing.dead", ids, b"events") == RequeueSummary(gone=4)
        assert client.execute_command("XLEN", "events") == 8


def test_pending_entries_are_claimed_appended_and_acknowledged(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    with judge.client() as client:
        client.flushall()
        for i in range(6):
            client.execute_command("XADD", "events", f"{i + 1}-0", "n", i)
        client.execute_command("XGROUP", "CREATE", "events", "g", "0")
        client.execute_command("XREADGROUP", "GROUP", "g", "c", "STREAMS", "events", ">")
        client.execute_command("XCLAIM", "events", "g", "c", 0, "1-0", "2-0", "3-0", "IDLE", 60_000, "RETRYCOUNT", 7)
        client.execute_command("XDEL", "events", "3-0")
        ids = [b"%d-0" % (i + 1) for i in range(6)]
        with servers(judge) as there:
            done = requeue(there, b"events", b"g", ids, b"events", 30_000)
            assert done == RequeueSummary(moved=2, gone=4)  # one was deleted, three have less idle time
            assert [flat[1] for _, flat in client.execute_command("XRANGE", "events", "-", "+")][-2:] == [b"0", b"1"]
            left = [(raw, who) for raw, who, _, _ in client.execute_command("XPENDING", "events", "g", "-", "+", 9)]
            assert left == [(b"4-0", b"c"), (b"5-0", b"c"), (b"6-0", b"c")]
            assert requeue(there, b"events", b"g", ids[:2], b"events", 30_000) == RequeueSummary(gone=2)
            # A run stops after its claim: the next run can claim the entries at once.
            send = Servers.replies

            def stopped(self: Servers, key: bytes, commands: Any) -> Any:
                if commands[0] == (b"MULTI",):
                    raise KeyError
                return send(self, key, commands)

            monkeypatch.setattr(Servers, "replies", stopped)
            with pytest.raises(KeyError):
                requeue(there, b"events", b"g", ids[3:], b"events", 0)
            monkeypatch.undo()
        with servers(judge) as there:
            assert client.execute_command("XPENDING", "events", "g", "-", "+", 9)[0][1] == CONSUMER
            assert requeue(there, b"events", b"g", ids[3:], b"events", 0).moved == 3
            with pytest.raises(PipelineError, match="can only be requeued into their own stream"):
                requeue(there, b"events", b"g", ids, b"elsewhere")


def test_a_rejected_requeue_raises_one_line_and_keeps_the_letters(judge: Judge) -> None:
    ids = bury(judge, 2)
    with servers(judge) as there, judge.client() as client:
        client.execute_command("SET", "text", "x")
        with pytest.raises(ConnectorError, match=r"127.0.0.1:\d+: entries cannot go to 'text', which is a string"):
            put_back(there, b"billing.dead", ids, b"text")
        assert client.execute_command("XLEN", "billing.dead") == 2


@pytest.mark.slow
def test_letters_move_to_a_stream_on_another_node_of_the_cluster(cluster: Cluster) -> None:
    letters, stream = (cluster.key_of(node, "s").encode() for node in (0, 1))
    with Servers(parse({"url": cluster.url, "streamPattern": "*"})) as there:
        ids = [there.call(letters, b"XADD", letters, b"*", b"n", b"%d" % i, b"_stream", stream) for i in range(5)]
        assert put_back(there, letters, ids, stream).moved == 5
        assert there.call(letters, b"XLEN", letters) == 0
        entries = there.call(stream, b"XRANGE", stream, b"-", b"+")
        assert [flat for _, flat in entries] == [[b"n", b"%d" % i] for i in range(5)]


def test_all_wrong_arguments_are_reported_at_once() -> None:
    def read(*words: str) -> None:
        parser = PipelineParser(prog="x")
        MODULE.add_arguments(parser)
        parser.read(words, MODULE)

    with pytest.raises(OptionError) as caught:
        read("--min-deliveries", "0", "--min-idle", "1h", "--to", "x", "--foo")
    for part in ("--min-deliveries is '0'", "need --pending", "--to needs --requeue", "unknown argument --foo",
                 "stream is missing"):  # fmt: skip
        assert part in str(caught.value)
    with pytest.raises(OptionError, match="needs --min-idle"):
        read("--url", "redis://h", "--stream", "s", "--pending", "--reprocess")


def test_only_a_folder_of_parquet_files_is_overwritten(tmp_path: Path) -> None:
    """`--out .` must not delete the files of the current folder."""
    (tmp_path / "batch=0").mkdir()
    for name in ("_SUCCESS", "batch=0/part-0.zstd.parquet", "batch=0/.part-0.zstd.parquet.crc"):
        (tmp_path / name).touch()
    assert not foreign_files(tmp_path)
    assert not foreign_files(tmp_path / "none")
    (tmp_path / "batch=0" / "thesis.txt").touch()
    (error,) = foreign_files(tmp_path)
    assert error.endswith("would be overwritten, but it holds batch=0/thesis.txt, which is not a Parquet file")


@pytest.mark.spark
@pytest.mark.slow
def test_both_tables_report_and_a_selection_is_requeued(spark: SparkSession, judge: Judge, tmp_path: Path) -> None:
    bury(judge, 6)
    url = f"redis://127.0.0.1:{judge.port}"
    with judge.client() as client:
        client.execute_command("XADD", "billing.dead", "*", "a", "1", "_reason", "timeout", "_stream", "other")
        client.execute_command("XADD", "billing.dead", "*", "a", "2", "error", "no origin")
        client.execute_command("XADD", "billing.dead", "*", "a", "3", "dead-letter-of", "third", "dead-letter-id",
                               "1700000000000-0", "dead-letter-group", "g")  # fmt: skip
        client.execute_command("XREADGROUP", "GROUP", "billing", "w", "STREAMS", "events", ">")
        letters = package_function(spark, stream="billing.dead", url=url).persist()
        first = letters.orderBy("letter_id").first()
        assert first is not None
        assert (first["stream"], first["group"], first["id"], first["deliveries"]) == (
            "events", "billing", "1700000000000-0", 1,
        )  # fmt: skip
        assert first["added"].timestamp() == 1_700_000_000
        assert first["age"] == "under a minute"
        groups = {(row["stream"], row["reason"]): row["entries"] for row in report(letters).collect()}
        assert groups == {
            ("events", "delivered too often"): 6, ("other", "timeout"): 1, (None, "no origin"): 1,
            ("third", "moved in the inspector"): 1,
        }  # fmt: skip
        (old,) = letters.where("stream = 'third'").collect()
        assert (old["group"], old["id"], old["fields"]) == ("g", "1700000000000-0", {"a": "3"})
        assert old["added"].timestamp() == 1_700_000_000
        chosen = letters.where("fields['n'] < 2 OR stream IS NULL OR reason = 'timeout' OR stream = 'third'")
        assert reprocess(spark, chosen, url=url) == RequeueSummary(moved=4, nowhere=1)
        assert client.execute_command("XRANGE", "third", "-", "+")[0][1] == [b"a", b"3"]
        assert (client.xlen("events"), client.xlen("other"), client.xlen("billing.dead")) == (8, 1, 5)
        letters.unpersist()
        client.execute_command("XREADGROUP", "GROUP", "billing", "w", "STREAMS", "events", ">")
        client.execute_command(
            "XDEL", "events", client.execute_command("XREVRANGE", "events", "+", "-", "COUNT", 1)[0][0]
        )
        stuck = pending(spark, stream="events", url=url)
        assert reprocess(spark, stuck.where("reason = 'not acknowledged'"), url=url) == RequeueSummary(moved=1)


@pytest.mark.spark
@pytest.mark.slow
def test_requeued_entries_keep_their_order(spark: SparkSession, judge: Judge) -> None:
    """Letters of several groups, with IDs whose text has another order, are one sequence; so are pending entries."""
    url = f"redis://127.0.0.1:{judge.port}"
    with judge.client() as client:
        client.flushall()
        for n in range(300):
            meta = ("_stream", "events", "_group", f"g{n % 3}", "_id", f"{1000 - n}-0", "_deliveries", "2")
            client.execute_command("XADD", "dead", f"{90 + n // 7}-{n % 7 * 5}", "n", n, *meta)
        letters = package_function(spark, stream="dead", url=url).repartition(3)
        assert reprocess(spark, letters, url=url) == RequeueSummary(moved=300)
        order = [int(flat[1]) for _, flat in client.execute_command("XRANGE", "events", "-", "+")]
        assert order == list(range(300))
        client.execute_command("XGROUP", "CREATE", "events", "g", "0")
        client.execute_command("XREADGROUP", "GROUP", "g", "c", "STREAMS", "events", ">")
        stuck = pending(spark, stream="events", url=url).repartition(3)
        assert reprocess(spark, stuck, url=url) == RequeueSummary(moved=300)
        order = [int(flat[1]) for _, flat in client.execute_command("XRANGE", "events", "-", "+")]
        assert order == [*range(300), *range(300)]


def test_a_task_requeues_letters_and_lists_pending_entries(judge: Judge) -> None:
    ids = bury(judge, 3)
    options = parse({"url": f"redis://127.0.0.1:{judge.port}", "streamPattern": "*"})
    rows = [(None, None, None, "billing.dead", raw.decode()) for raw in ids]
    assert list(requeue_task(options, None, 0, rows)) == [RequeueSummary(nowhere=3)]
    assert list(requeue_task(options, "collected", 0, rows)) == [RequeueSummary(moved=3)]
    with judge.client() as client:
        assert (client.xlen("collected"), client.xlen("billing.dead")) == (3, 0)
        client.execute_command("XGROUP", "CREATE", "collected", "g", "0")
        client.execute_command("XREADGROUP", "GROUP", "g", "c", "STREAMS", "collected", ">")
        client.execute_command("XDEL", "collected", client.execute_command("XRANGE", "collected", "-", "+")[0][0])
    listed = list(MODULE._pending_rows(options, 1, 0, (b"collected", b"g")))
    assert [row[4] for row in listed] == ["the entry was deleted", "not acknowledged", "not acknowledged"]
    assert listed[0][8] is None
    assert listed[1][8] == {"n": "1", "\ufffd": "\ufffd\r\n", "_id": "mine"}
    assert list(MODULE._pending_rows(options, 2, 0, (b"collected", b"g"))) == []
    assert list(MODULE._pending_rows(options, 1, 60_000, (b"collected", b"g"))) == []
