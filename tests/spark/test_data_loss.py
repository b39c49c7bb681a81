"""Entries that a stream loses before they are read are noticed, and raised or counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
import redis

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from rillet.client.errors import ConnectorError
from rillet.spark.errors import plainly, reason
from rillet.spark.read.data_loss import DataLoss
from tests.spark.calls import Query, server, stopped  # noqa: F401

pytestmark = [pytest.mark.usefixtures("stopped"), pytest.mark.peer]


@pytest.fixture(scope="module", params=["7.0", "rillet", "newest", "valkey"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Servers of each kind, one after the other."""
    with server(request.param, tmp_path_factory.mktemp(request.param)) as url:
        yield url


@pytest.fixture
def client(place: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(place) as connected:
        connected.flushall()
        yield connected


def add(client: redis.Redis, numbers: range) -> None:
    for n in numbers:
        client.xadd("events", {"n": n}, id=f"{n}-0")


class Case(NamedTuple):
    """What is done to a stream of which 1 to 10 were read and 11 to 20 were not, and what follows."""

    happens: Callable[[redis.Redis], object]
    says: str
    lost: int
    unsure: bool
    read: list[int]


def another(*ranges: range) -> Callable[[redis.Redis], None]:
    def happen(client: redis.Redis) -> None:
        client.delete("events")
        for numbers in ranges:
            add(client, numbers)

    return happen


CASES = {
    "trimmed": Case(
        lambda c: c.xtrim("events", minid="16-0", approximate=False),
        "5 entries were lost .* begins at 16-0 and has 5 entries", 5, False, [16, 17, 18, 19, 20],
    ),
    "deleted": Case(
        lambda c: c.xdel("events", "12-0", "13-0"),
        "2 entries were lost", 2, False, [11, *range(14, 21)],
    ),
    "the last one deleted": Case(
        lambda c: c.xdel("events", "20-0"), "1 entry was lost", 1, False, list(range(11, 20))
    ),
    "deleted and trimmed": Case(
        lambda c: (c.xdel("events", "18-0"), c.xtrim("events", minid="16-0", approximate=False)),
        "6 entries were lost", 6, False, [16, 17, 19, 20],
    ),
    "emptied": Case(lambda c: c.xtrim("events", maxlen=0, approximate=False), "10 entries .* is empty", 10, False, []),
    "gone": Case(lambda c: c.delete("events"), "may have been lost.* is gone", 0, True, []),
    "made anew with lower IDs": Case(
        another(range(1, 4)), "may have been lost.* a different one: it ends at 3-0", 0, True, [1, 2, 3]
    ),
    "made anew with larger IDs": Case(
        another(range(100, 104)), "a different one: it has had 4 entries, not 10", 0, True, [100, 101, 102, 103]
    ),
    "made anew with larger IDs and more entries": Case(
        another(range(100, 130)), "a different one: it has 30 entries, but only 20 were added", 0, True,
        list(range(100, 130)),
    ),
    "the server's data": Case(lambda c: c.flushall(), "is gone", 0, True, []),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_losses_are_raised_or_counted(place: str, client: redis.Redis, name: str) -> None:
    case = CASES[name]
    add(client, range(1, 11))
    query = Query(place)
    assert query.batch() == list(range(1, 11))
    add(client, range(11, 21))
    case.happens(client)
    with pytest.raises(DataLoss, match=f"^rillet: .*{case.says}") as told:
        query.restarted().batch()
    text = str(told.value)
    for part in ("'events'", "127.0.0.1:", "read up to 10-0", "failOnDataLoss=false", "new checkpointLocation"):
        assert part in text
    assert "\n" not in text

    counting = query.restarted(failOnDataLoss="false")
    assert counting.batch() == case.read
    assert (counting.lost.get("events", 0), "events" in counting.unsure) == (case.lost, case.unsure)
    counting.batch()  # nothing is counted twice
    assert counting.lost.get("events", 0) == case.lost
    last = (
        max([20, *case.read])
        if case.says.find("another") < 0 and name != "the server's data"
        else max(case.read, default=0)
    )
    if not (case.unsure and not case.read):
        add(client, range(last + 1, last + 3))
        assert counting.batch() == [last + 1, last + 2]
        assert counting.lost.get("events", 0) == case.lost


def test_a_stream_that_returns_unchanged_has_lost_nothing(place: str, client: redis.Redis) -> None:
    add(client, range(1, 11))
    query = Query(place, failOnDataLoss="false")
    query.batch()
    client.rename("events", "aside")
    assert query.batch() == []
    client.rename("aside", "events")
    add(client, range(11, 13))
    assert query.batch() == [11, 12]
    assert query.lost == {}


def test_removing_only_read_entries_is_no_loss(place: str, client: redis.Redis) -> None:
    add(client, range(1, 11))
    query = Query(place)
    query.batch()
    client.xdel("events", "3-0", "10-0")
    client.xtrim("events", maxlen=0, approximate=False)
    add(client, range(11, 21))
    assert query.batch() == list(range(11, 21))
    client.xtrim("events", minid="20-0", approximate=False)
    add(client, range(21, 23))
    assert query.batch() == [21, 22]


def test_with_a_cap_a_trim_at_the_offset_is_no_loss_while_its_entry_is_kept(place: str, client: redis.Redis) -> None:
    add(client, range(1, 21))
    query = Query(place, maxEntriesPerTrigger="5", exactTriggers="true")
    for first in (1, 6, 11, 16):
        assert query.batch() == list(range(first, first + 5))
        client.xtrim("events", minid=f"{first + 4}-0", approximate=False)


def test_losses_of_several_triggers_add_up(place: str, client: redis.Redis) -> None:
    query = Query(place, failOnDataLoss="false")
    add(client, range(1, 11))
    query.batch()
    for first in (11, 21, 31):
        add(client, range(first, first + 10))
        client.xtrim("events", minid=f"{first + 5}-0", approximate=False)
        assert query.batch() == list(range(first + 5, first + 10))
    assert query.lost == {"events": 15}


def test_a_batch_that_was_planned_and_trimmed_before_it_is_repeated(place: str, client: redis.Redis) -> None:
    add(client, range(1, 11))
    query = Query(place)
    query.batch()
    add(client, range(11, 21))
    assert query.plan()  # and here the driver ended
    client.xtrim("events", minid="14-0", approximate=False)
    with pytest.raises(DataLoss, match="3 entries were lost .* begins at 14-0"):
        query.restarted().read()
    counting = query.restarted(failOnDataLoss="false")
    assert counting.read() == list(range(14, 21))
    assert counting.lost == {"events": 3}


def test_a_task_raises_if_its_entries_were_trimmed(place: str, client: redis.Redis) -> None:
    add(client, range(1, 11))
    query = Query(place)
    query.batch()
    add(client, range(11, 21))
    assert query.plan()
    client.xtrim("events", minid="14-0", approximate=False)
    with pytest.raises(
        DataLoss, match="may have been lost .* trimmed after its entries from 10-0 to 20-0 were planned"
    ):
        query.read()


def test_a_key_of_another_type_is_an_error_with_any_failOnDataLoss(place: str, client: redis.Redis) -> None:
    add(client, range(1, 3))
    query = Query(place, failOnDataLoss="false")
    query.batch()
    client.delete("events")
    client.set("events", "text")
    with pytest.raises(ConnectorError, match="127.0.0.1:.*WRONGTYPE.*stream 'events'"):
        query.batch()


def test_without_counters_a_gap_may_be_a_loss(place: str, client: redis.Redis) -> None:
    add(client, range(1, 11))
    query = Query(place)
    query.batch()
    del query.checkpoint["committed"]["added"]  # as a server before 7.0, or an estimated cap, leaves it
    add(client, range(11, 13))
    assert query.restarted().batch() == [11, 12]
    query = query.restarted()
    query.checkpoint["committed"].pop("added")
    add(client, range(13, 16))
    client.xtrim("events", minid="14-0", approximate=False)
    with pytest.raises(DataLoss, match="^rillet: entries may have been lost"):
        query.batch()
    counting = query.restarted(failOnDataLoss="false")
    assert counting.batch() == [14, 15]
    assert (counting.lost, counting.unsure) == ({}, {"events"})


def test_a_new_query_starts_at_its_bound_although_entries_were_trimmed_before(place: str, client: redis.Redis) -> None:
    add(client, range(1, 21))
    client.xtrim("events", minid="9-0", approximate=False)
    assert Query(place, startingOffsets="3-0").batch() == list(range(9, 21))


def write(client: redis.Redis, stream: str, *ids: int) -> None:
    for n in ids:
        client.xadd(stream, {"n": n}, id=f"{n}-0")


@pytest.mark.parametrize(("option", "text"), [("startingTimestamp", "50"), ("startingOffsets", "50-0")])
def test_a_quiet_stream_that_ends_before_the_start_has_lost_nothing(
    place: str, client: redis.Redis, option: str, text: str
) -> None:
    write(client, "busy", 100)
    write(client, "quiet", 5)
    query = Query(place, None, streams="busy,quiet", **{option: text})
    assert query.batch() == [100]
    write(client, "busy", 101)
    write(client, "quiet", 49)
    query = query.restarted()
    assert query.batch() == [101]
    write(client, "quiet", 50)
    assert query.batch() == [50]
    client.delete("quiet")
    write(client, "quiet", 7)
    with pytest.raises(DataLoss, match="'quiet'.* was read up to 50-0"):
        query.batch()


def test_entries_deleted_before_a_query_started_are_no_loss(place: str, client: redis.Redis) -> None:
    write(client, "busy", 1)
    write(client, "done", 4, 5)
    client.xdel("done", "4-0", "5-0")
    query = Query(place, streams="busy,done")
    assert query.batch() == [1]
    write(client, "busy", 2)
    assert query.batch() == [2]
    write(client, "done", 6, 7)
    client.xdel("done", "6-0")
    with pytest.raises(DataLoss, match="1 entry was lost.*'done'"):
        query.batch()


def test_an_old_deletion_after_a_capped_offset_is_no_new_loss(place: str, client: redis.Redis) -> None:
    add(client, range(1, 31))
    client.xdel("events", "25-0")
    query = Query(place, maxEntriesPerTrigger="5")
    assert query.batch() == list(range(1, 6))
    query = query.restarted()
    assert query.batch() == list(range(6, 11))
    client.xdel("events", "28-0")
    with pytest.raises(DataLoss, match="rillet: 1 entry was lost.* begins at 1-0"):
        query.batch()
    counting = query.restarted(failOnDataLoss="false")
    assert counting.batch() == list(range(11, 16))
    assert counting.batch() == list(range(16, 21))
    assert counting.lost == {"events": 1}


def test_entries_deleted_before_a_stream_appeared_are_no_loss_in_a_later_batch(place: str, client: redis.Redis) -> None:
    write(client, "log:0", 1)
    query = Query(place, streamPattern="log:*", maxEntriesPerTrigger="1")
    assert query.batch() == [1]
    for stream in ("log:a", "log:b"):
        write(client, stream, 5, 6, 7)
        client.xdel(stream, "5-0", "7-0")
    assert query.batch() + query.batch() == [6, 6]


def test_a_trim_up_to_a_planned_batch_is_no_loss(place: str, client: redis.Redis) -> None:
    add(client, range(1, 11))
    query = Query(place)
    query.batch()
    add(client, range(11, 21))
    assert query.plan()
    client.xtrim("events", minid="11-0", approximate=False)
    assert query.read() == list(range(11, 21))
    assert query.restarted().read() == list(range(11, 21))
    client.xtrim("events", minid="12-0", approximate=False)
    with pytest.raises(DataLoss, match="may have been lost .* begins at 12-0"):
        query.read()


def test_reason_returns_only_the_sentence() -> None:
    spark = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: [X] Failed: Traceback (most recent call last):\n"
        '  File "x.py", line 1\nrillet.spark.guard.DataLoss: rillet: 5 entries were lost\n SQLSTATE: 38000\n== more =='
    )
    assert reason(RuntimeError(spark)) == "rillet: 5 entries were lost"
    assert (
        reason(RuntimeError("[X] Failed: rillet.spark.read.data_loss.DataLoss: rillet: gone SQLSTATE: 38000"))
        == "rillet: gone"
    )
    assert reason(RuntimeError("something else\nat all")) == "something else"
    with pytest.raises(DataLoss), plainly():  # outside of Spark's workers it changes nothing
        raise DataLoss("rillet: x")
