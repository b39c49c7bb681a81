"""Exactly-once writes into streams that a column names: one record for each task."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from rillet.client.errors import ConnectionLost, ConnectorError  # noqa: E402
from rillet.client.transaction import Transaction  # noqa: E402
from rillet.spark.write.many_streams import ManyStreamsSender  # noqa: E402
from tests.judge import Judge  # noqa: E402
from tests.spark.test_exactly_once import Fault, Killed, Place, place, strikes  # noqa: E402
from tests.spark.writing import QUERY, batch_writer_of, in_task, table, write, writer_of  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.peer]

__all__ = ["place"]  # the fixture

ROWS = 240
STREAMS = 12


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a few hundred rows many chunks."""
    monkeypatch.setattr("rillet.spark.write.writer.CHUNK", 1000)


def rows_for(name: str, numbers: range = range(ROWS)) -> Any:
    """Return rows with the column `to`: a few streams whose names begin with `name`."""
    return table(n=pa.array(numbers, pa.int64()), to=[f"{name} {n % STREAMS}" for n in numbers])


def options(place: Place, **more: str) -> dict[str, str]:
    """Return the options that write into the streams of the column `to`, in several transactions."""
    return {**place.options, "streamColumn": "to", "transactionBytes": "4096", "timeout": "20", **more}


def require_once(place: Place, name: str, times: int = 1) -> None:
    """Require that each row of `rows_for` is there once, in the order of the rows of its stream."""
    for number in range(STREAMS):
        assert place.numbers(f"{name} {number}") == times * list(range(number, ROWS, STREAMS))


def records(judge: Judge) -> set[str]:
    """Return the keys of all commit records, without fences."""
    with judge.client() as client:
        return {key.decode() for key in client.keys("rillet:commits:*") if client.type(key) == b"hash"}


# ---- killed, lost, and side by side ----------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True])
def test_an_attempt_killed_at_any_send_is_completed_by_the_next(
    place: Place, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    fault = Fault(monkeypatch, Killed, place)
    for number in strikes(fault, after, place.step + 2):
        rows = rows_for(f"killed {after} {number}")
        query = f"{after} {number}"
        with contextlib.suppress(Killed):
            write_as(query, rows, options(place))
        with fault.pausing():
            write_as(query, rows, options(place))
            require_once(place, f"killed {after} {number}")


def test_an_attempt_outlives_a_connection_lost_at_any_send(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = Fault(monkeypatch, ConnectionLost, place)
    for number in strikes(fault, True, place.step + 2):
        write_as(f"lost {number}", rows_for(f"lost {number}"), options(place))
        with fault.pausing():
            require_once(place, f"lost {number}")


def write_as(query: str, rows: Any, chosen: dict[str, str], batch: int = 0) -> Any:
    """Write rows as the first task of a batch of a query."""
    writer = writer_of(rows, chosen)
    in_task(0, batch, query)
    return writer.write(iter(rows.to_batches(max_chunksize=100)))


@pytest.mark.parametrize("size", ["4096", "1000000"])
def test_two_attempts_at_once_write_every_row_once(place: Place, size: str) -> None:
    rows = rows_for(f"two {size}")
    together = threading.Barrier(2)
    told: list[Any] = []

    def attempt() -> None:
        def batches() -> Iterator[Any]:
            for batch in rows.to_batches(max_chunksize=20):
                together.wait(60)
                yield batch

        told.append(writer_of(rows, options(place, transactionBytes=size)).write(batches()))

    in_task(query=f"two {size}")
    threads = [threading.Thread(target=attempt) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 2
    assert told[0].written == told[1].written
    require_once(place, f"two {size}")


# ---- records ---------------------------------------------------------------------------------------------------


def test_a_task_has_one_record_for_all_streams(judge: Judge, url: str) -> None:
    chosen = {"url": url, "streamColumn": "to"}
    for batch in range(2):
        for _ in range(2):  # the second is repeated as after a lost commit log
            told = [write(rows_for("s", range(part, ROWS, 3)), chosen, part, batch) for part in range(3)]
            assert records(judge) - {f"rillet:commits::{QUERY}"} == {
                f"rillet:commits:{{0}}:rillet:streams{{0}}.:{QUERY}"
            }
            writer_of(rows_for("s"), chosen).commit(list(told), batch)
    with judge.client() as client:
        assert sum(client.xlen(f"s {number}") for number in range(STREAMS)) == 2 * ROWS
        for key in records(judge):
            assert client.execute_command("HGETALL", key) == [b"done", b"1"]


def test_lost_rows_of_a_task_fail_its_commit(judge: Judge, url: str) -> None:
    chosen = {"url": url, "streamColumn": "to"}
    told = write(rows_for("s"), chosen)
    with judge.client() as client:
        client.flushall()
    with pytest.raises(ConnectorError, match="lost rows of its streams that task 0 of batch 0 had written"):
        writer_of(rows_for("s"), chosen).commit([told], 0)


def test_another_order_is_allowed_in_one_transaction_and_rejected_in_several(
    judge: Judge, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_for("s")
    backwards = rows.take(list(range(ROWS - 1, -1, -1)))
    one = {"url": url, "streamColumn": "to"}
    for written in (rows, backwards):
        told = write(written, one)
    writer_of(rows, one).commit([told], 0)
    several = {**one, "transactionBytes": "4096"}
    other, back = rows_for("t"), rows_for("t").take(list(range(ROWS - 1, -1, -1)))
    executed = ManyStreamsSender.execute

    def killed(*args: Any) -> None:
        executed(*args)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(ManyStreamsSender, "execute", killed)
        with pytest.raises(Killed):
            write(other, several, batch=1)
    with pytest.raises(ConnectorError, match="rows to its streams before it failed, and now .* in another order"):
        write(back, several, batch=1)
    write(other, several, batch=1)
    with judge.client() as client:
        assert [client.xlen(f"{name} {n}") for name in "st" for n in range(STREAMS)] == 2 * STREAMS * [ROWS // STREAMS]


@pytest.mark.parametrize("share", [1, 3])
def test_a_stream_that_becomes_another_type_is_named(
    judge: Judge, url: str, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at its type and EXEC: the record is reset if no row was written, and torn otherwise."""
    execute = Transaction.execute_lines
    rows = table(n=pa.array(range(30), pa.int64()), to=[f"s{n % share}" for n in range(30)])
    with judge.client() as client:

        def replacing(transaction: Any, lines: int, before: Any) -> Any:
            client.set(f"s{share - 1}", "x")
            return execute(transaction, lines, before)

        with monkeypatch.context() as patch:
            patch.setattr(Transaction, "execute_lines", replacing)
            with pytest.raises(ConnectorError, match=f"refused to append to 's{share - 1}': WRONGTYPE"):
                write(rows, {"url": url, "streamColumn": "to"})
        with pytest.raises(ConnectorError, match=f"'s{share - 1}' at .* is a string, not a stream"):
            write(rows, {"url": url, "streamColumn": "to"}, partition=1)
        client.delete(f"s{share - 1}")
        if share == 1:
            write(rows, {"url": url, "streamColumn": "to"})
            assert client.xlen("s0") == 30
        else:
            with pytest.raises(ConnectorError, match="only some of its rows are in its streams"):
                write(rows, {"url": url, "streamColumn": "to"})


def test_an_aborted_write_blocks_late_attempts(judge: Judge, url: str, caplog: Any) -> None:
    rows = table(n=pa.array(range(60), pa.int64()), to=[f"s{n % 30}" for n in range(60)])
    writer = batch_writer_of(rows, {"url": url, "streamColumn": "to"})
    in_task()
    message = writer.write(iter(rows.to_batches()))
    in_task(1)
    writer.abort([message, None])
    assert "60 rows in 30 streams" in caplog.text
    writer.write(iter(rows.to_batches()))
    with judge.client() as client:
        assert [client.xlen(f"s{n}") for n in range(30)] == 30 * [2]
