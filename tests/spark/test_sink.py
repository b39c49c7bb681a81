"""The sink without Spark: columns to fields, rows to streams, IDs, trimming, and error replies."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any
from zlib import crc32

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from rillet.client.cluster import slot_of  # noqa: E402
from rillet.client.errors import ConnectorError  # noqa: E402
from rillet.spark.options import OptionError  # noqa: E402
from rillet.spark.write.commits import record_key, tag_of  # noqa: E402
from tests.judge import Judge  # noqa: E402
from tests.spark.writing import batch_writer_of, in_task, interrupted, numbered, table, write, writer_of  # noqa: E402


def entries(judge: Judge, stream: str | bytes) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Return what a stream holds."""
    with judge.client() as client:
        found = client.execute_command("XRANGE", stream, "-", "+")
    return [(key, dict(zip(flat[::2], flat[1::2], strict=True))) for key, flat in found]


def fields(judge: Judge, stream: str | bytes) -> list[dict[bytes, bytes]]:
    return [found for _, found in entries(judge, stream)]


def records(judge: Judge) -> dict[bytes, bytes]:
    """Return all fields of all records."""
    found: dict[bytes, bytes] = {}
    with judge.client() as client:
        for key in client.execute_command("KEYS", "rillet:commits:*"):
            if client.execute_command("TYPE", key) == b"hash":
                flat = client.execute_command("HGETALL", key)
                found.update(zip(flat[::2], flat[1::2], strict=True))
    return found


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred rows are several chunks, so a task's first batch is on its way before the second comes."""
    monkeypatch.setattr("rillet.spark.write.writer.CHUNK", 1000)


# ---- columns to fields -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("once", ["auto", "none"])
def test_columns_become_fields(judge: Judge, url: str, once: str) -> None:
    rows = table(id=["9-9", "9-9"], a=[1, None], b=["x", "y"], timestamp=["t", "u"])
    options = {"url": url, "exactlyOnce": once}
    write(rows, {**options, "stream": "all"})
    write(rows, {**options, "stream": "chosen", "fieldColumns": "timestamp, b"})
    write(rows, {**options, "stream": "named", "fields": '{"b": "letter", "a": "number"}'})
    own = {b"id": b"9-9", b"timestamp": b"t"}  # no source has text in this column, so they are the user's
    assert fields(judge, "all") == [{**own, b"a": b"1", b"b": b"x"}, {**own, b"timestamp": b"u", b"b": b"y"}]
    assert fields(judge, "chosen") == [{b"timestamp": b"t", b"b": b"x"}, {b"timestamp": b"u", b"b": b"y"}]
    assert fields(judge, "named") == [{b"letter": b"x", b"number": b"1"}, {b"letter": b"y"}]
    pairs = pa.array([[("k", "1"), ("l", None)], [("m", "2")]], pa.map_(pa.string(), pa.string()))
    write(table(fields=pairs, other=[1, 2]), {**options, "stream": "map"})
    assert fields(judge, "map") == [{b"k": b"1"}, {b"m": b"2"}]


TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TIME_ID = f"{int(TIME.timestamp()) * 1000}-0"


def test_columns_of_the_user_that_are_named_like_the_sources(judge: Judge, url: str) -> None:
    rows = table(id=[7], timestamp=[TIME], stream=["a"], n=[1])  # a bigint id: not the source's
    write(rows, {"url": url, "stream": "all"})
    assert fields(judge, "all") == [
        {b"id": b"7", b"timestamp": b"2026-01-02T03:04:05.000000Z", b"stream": b"a", b"n": b"1"}
    ]
    with pytest.raises(OptionError, match="the columns stream, timestamp may be .* fieldColumns, or .* drop"):
        writer_of(table(timestamp=[TIME], stream=["a"], n=[1]), {"url": url, "stream": "s"})
    for wrong in ({"id": ["order-7"]}, {"id": ["1-1"], "timestamp": [TIME]}, {"id": pa.array([None], pa.string())}):
        with pytest.raises(ConnectorError, match="the columns id.* are left out .* fieldColumns, or .* drop"):
            write(table(**wrong, n=[1]), {"url": url, "stream": "s"})
    assert fields(judge, "s") == []
    read = table(stream=["x"], id=[TIME_ID], id_ms=[1], id_seq=[0], timestamp=[TIME], n=[1])
    write(read, {"url": url, "stream": "s"})
    assert fields(judge, "s") == [{b"n": b"1"}]
    pairs = pa.array([[("k", "1")]], pa.map_(pa.string(), pa.string()))
    write(table(stream=["x"], id=[TIME_ID], timestamp=[TIME], fields=pairs), {"url": url, "stream": "map"})
    assert fields(judge, "map") == [{b"k": b"1"}]
    with pytest.raises(OptionError, match="no place for id: add them to the map"):
        writer_of(table(id=[7], fields=pairs), {"url": url, "stream": "s"})


def test_unwritable_columns_are_reported_before_the_first_row(url: str) -> None:
    rows = table(a=[[1]], b=["x"])
    with pytest.raises(OptionError, match="no column 'c'; there is no column 'k'; column 'a' is array<bigint>"):
        writer_of(rows, {"url": url, "stream": "s", "fieldColumns": "a, c", "idColumn": "k"})
    with pytest.raises(OptionError, match="stream is missing"):
        writer_of(rows, {"url": url})
    with pytest.raises(OptionError, match="txnAppId and txnVersion apply to df.write"):
        writer_of(rows.select(["b"]), {"url": url, "stream": "s", "txnAppId": "a", "txnVersion": "1"})


@pytest.mark.parametrize("once", ["auto", "none"])
def test_a_row_of_nulls_is_an_error_and_nothing_is_written(judge: Judge, url: str, once: str) -> None:
    rows = table(a=pa.array(["x", None], pa.string()))
    with pytest.raises(ConnectorError, match="writing to 's': a row has nothing but nulls"):
        write(rows, {"url": url, "stream": "s", "exactlyOnce": once})
    assert entries(judge, "s") == []


# ---- rows to streams -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("once", ["auto", "none"])
def test_rows_go_to_the_streams_that_they_name(judge: Judge, url: str, once: str) -> None:
    rows = table(stream=["a", "b", "a", "c", "b", "a"] * 100, n=list(range(600)))
    told = write(rows, {"url": url, "exactlyOnce": once})
    assert told.written.rows == {b"a": 300, b"b": 200, b"c": 100}
    writer_of(rows, {"url": url, "exactlyOnce": once}).commit([told], 0)
    for name, places in (("a", (0, 2, 5)), ("b", (1, 4)), ("c", (3,))):
        assert [int(found[b"n"]) for found in fields(judge, name)] == [n for n in range(600) if n % 6 in places]
    odd = table(key=pa.array([b"\xff", b"{}x}"], pa.binary()), n=[1, 2])
    write(odd, {"url": url, "exactlyOnce": once, "streamColumn": "key"}, batch=1)
    assert fields(judge, b"\xff") == [{b"n": b"1"}]
    assert fields(judge, b"{}x}") == [{b"n": b"2"}]
    for wrong, text in (([None], "contains a null"), ([""], "contains an empty text")):
        with pytest.raises(ConnectorError, match=f"the column 'stream' {text}"):
            write(table(stream=pa.array(wrong, pa.string()), n=[1]), {"url": url, "exactlyOnce": once}, batch=1)


@pytest.mark.parametrize("once", ["auto", "none"])
def test_partitioned_streams_take_rows_by_hash_or_by_turns(judge: Judge, url: str, once: str) -> None:
    users = [f"user {n % 50}" for n in range(500)]
    rows = table(user=users, n=list(range(500)))
    options = {"url": url, "exactlyOnce": once, "partitioned": "3"}
    write(rows, {**options, "stream": "hashed", "partitionColumn": "user"}, partition=2)
    for part in range(3):
        expected = [n for n in range(500) if crc32(users[n].encode()) % 3 == part]
        assert [int(found[b"n"]) for found in fields(judge, f"hashed:{part}")] == expected
    write(rows, {**options, "stream": "turns"}, partition=2)
    for part in range(3):
        assert [int(found[b"n"]) for found in fields(judge, f"turns:{part}")] == list(range((part - 2) % 3, 500, 3))


def test_one_task_writes_a_thousand_streams(judge: Judge, url: str) -> None:
    rows = table(stream=[f"s{n % 1000}" for n in range(3000)], n=list(range(3000)))
    options = {"url": url, "transactionBytes": "65536"}
    write(rows, options, at_once=2000)
    write(rows, options, at_once=2000)
    assert Counter(int(found[b"n"]) for n in range(0, 1000, 111) for found in fields(judge, f"s{n}")) == Counter(
        n + more for n in range(0, 1000, 111) for more in (0, 1000, 2000)
    )


@pytest.mark.parametrize("stream", [b"events", b"{user}:1", b"a{b}c{d}", b"{}x", b"a}b", b"}", b"{", b"{}", b"\xff{"])
def test_a_record_lives_in_its_streams_slot(stream: bytes) -> None:
    assert slot_of(record_key(stream, "query")) == slot_of(stream)
    assert record_key(stream, "query") != record_key(b"other", "query")


def test_every_slot_has_a_tag() -> None:
    assert all(slot_of(tag_of(slot)) == slot for slot in (0, 1, 8191, 16383))


# ---- trimming and IDs ------------------------------------------------------------------------------------------


def test_trimming_is_about_or_exact(judge: Judge, url: str) -> None:
    rows = numbered(range(1000))
    write(rows, {"url": url, "stream": "exact", "maxlen": "70", "trimExactly": "true"})
    write(rows, {"url": url, "stream": "about", "maxlen": "70"})
    with_ids = rows.append_column("key", pa.array([f"5-{n + 1}" for n in range(1000)]))
    write(with_ids, {"url": url, "stream": "minid", "idColumn": "key", "minid": "5-991", "trimExactly": "true"})
    assert len(entries(judge, "exact")) == 70
    assert 70 <= len(entries(judge, "about")) < 270
    assert [key for key, _ in entries(judge, "minid")] == [b"5-%d" % n for n in range(991, 1001)]


@pytest.mark.parametrize("once", ["auto", "none"])
def test_ids_from_a_column_must_rise(judge: Judge, url: str, once: str) -> None:
    options = {"url": url, "stream": "s", "idColumn": "key", "exactlyOnce": once}
    rows = table(key=["5-1", "5-2", "6"], n=[1, 2, 3])
    writer_of(rows, options).commit([write(rows, options)], 0)
    assert [key for key, _ in entries(judge, "s")] == [b"5-1", b"5-2", b"6-0"]
    with pytest.raises(
        ConnectorError, match=r"refused to append to 's': ERR The ID .*smaller.*\(the row with ID 6-0\)"
    ):
        write(table(key=["6-0", "7-0"], n=[4, 5]), options, batch=1)
    falling = "'key' 8-1 follows 9-0" if once == "auto" else "the row with ID 8-1"
    with pytest.raises(ConnectorError, match=falling):
        write(table(key=["9-0", "8-1"], n=[4, 5]), {**options, "stream": "t"}, batch=1)
    for wrong, text in (("x-1", "an invalid ID"), ("5-*", "an invalid ID"), (None, "a null")):
        if once == "auto":
            with pytest.raises(ConnectorError, match=f"(the idColumn 'key'|the ID column) (contains|holds) {text}"):
                write(table(key=pa.array([wrong], pa.string()), n=[4]), {**options, "stream": "t"}, batch=1)
    if once == "auto":
        assert len(entries(judge, "s")) == 3
        assert entries(judge, "t") == []


@pytest.mark.usefixtures("small_chunks")
def test_an_entry_of_another_client_is_noticed_with_an_id_column(judge: Judge, url: str) -> None:
    rows = table(key=[f"5-{n}" for n in range(1, 301)], n=list(range(300)))
    writer = writer_of(rows, {"url": url, "stream": "s", "idColumn": "key"})
    in_task()

    def add() -> None:
        with judge.client() as client:
            client.execute_command("XADD", "s", "5-150", "n", "other")

    with pytest.raises(ConnectorError, match="another client appended to 's' during the write"):
        writer.write(interrupted(rows, add))
    assert len(entries(judge, "s")) == 1
    assert not records(judge)


def test_an_id_column_tolerates_concurrent_deletions(judge: Judge, url: str) -> None:
    rows = table(key=[f"5-{n}" for n in range(1, 301)], n=list(range(300)))
    with judge.client() as client:
        client.execute_command("XADD", "s", "1-1", "n", "old")
        writer = writer_of(rows, {"url": url, "stream": "s", "idColumn": "key"})
        in_task()
        writer.write(interrupted(rows, lambda: client.execute_command("XDEL", "s", "1-1")))
    assert [key for key, _ in entries(judge, "s")] == [b"5-%d" % n for n in range(1, 301)]


# ---- what a server refuses -------------------------------------------------------------------------------------


def test_a_key_of_another_type_is_named(judge: Judge, url: str) -> None:
    with judge.client() as client:
        client.execute_command("SET", "s", "x")
    for once in ("auto", "none"):
        with pytest.raises(ConnectorError, match="'s' at .* is a string, not a stream"):
            write(numbered(range(3)), {"url": url, "stream": "s", "exactlyOnce": once})


@pytest.mark.parametrize(
    ("setting", "back", "text"),
    [
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0"), "OOM"),
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE"), "READONLY"),
    ],
)
@pytest.mark.usefixtures("small_chunks")
def test_a_rejected_task_leaves_no_rows(
    judge: Judge, url: str, setting: tuple[str, ...], back: tuple[str, ...], text: str
) -> None:
    rows = numbered(range(500))
    writer = writer_of(rows, {"url": url, "stream": "s"})
    in_task()
    with judge.client() as client:
        try:
            with pytest.raises(ConnectorError, match=f"refused to append to 's': {text}"):
                writer.write(interrupted(rows, lambda: client.execute_command(*setting)))
        finally:
            client.execute_command(*back)
    assert entries(judge, "s") == []
    assert not records(judge)
    write(rows, {"url": url, "stream": "s"})
    assert [int(found[b"n"]) for found in fields(judge, "s")] == list(range(500))


@pytest.mark.usefixtures("small_chunks")
def test_an_error_inside_exec_resets_the_record(judge: Judge, url: str) -> None:
    rows = numbered(range(300))
    writer = writer_of(rows, {"url": url, "stream": "s"})
    in_task()
    with judge.client() as client:
        with pytest.raises(ConnectorError, match="refused to append to 's': WRONGTYPE"):
            writer.write(interrupted(rows, lambda: client.execute_command("SET", "s", "x")))
        client.execute_command("DEL", "s")
    assert write(rows, {"url": url, "stream": "s"}).written.rows == {b"s": 300}
    assert len(entries(judge, "s")) == 300


def test_a_task_rejected_in_the_middle_never_counts_as_complete(judge: Judge, url: str) -> None:
    with judge.client() as client:
        client.execute_command("XADD", "s", f"{2**64 - 1}-{2**64 - 101}", "n", "-1")
    rows = numbered(range(300))
    with pytest.raises(ConnectorError, match="refused to append to 's': ERR The stream has exhausted"):
        write(rows, {"url": url, "stream": "s"})
    torn = "an earlier attempt of task 0 of batch 0 was rejected in the middle of a transaction"
    with pytest.raises(ConnectorError, match=torn):
        write(rows, {"url": url, "stream": "s"})
    assert len(entries(judge, "s")) == 101


def test_an_aborted_write_blocks_late_attempts(judge: Judge, url: str, caplog: Any) -> None:
    rows = numbered(range(300))
    writer = batch_writer_of(rows, {"url": url, "stream": "s"})
    in_task()
    message = writer.write(iter(rows.to_batches()))
    in_task(1)
    writer.abort([message, None])
    writer.write(iter(rows.to_batches()))
    assert len(entries(judge, "s")) == 300
    assert "300 rows in 's'" in caplog.text
    with judge.client() as client:
        assert all(client.execute_command("TTL", key) > 0 for key in client.execute_command("KEYS", "rillet:*"))
