"""Streams that appear and disappear in a query by pattern: sessions and devices whose keys expire."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from rillet.spark.options import OptionError, parse
from rillet.spark.read.data_loss import DataLoss
from tests.spark.calls import Query, server, stopped  # noqa: F401

pytestmark = [pytest.mark.usefixtures("stopped"), pytest.mark.peer]
MODES: list[dict[str, str]] = [{}, {"group": "g", "groupMode": "deliver"}]


@pytest.fixture(scope="module", params=["7.0", "rillet", "newest", "valkey"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server(request.param, tmp_path_factory.mktemp(request.param)) as url:
        yield url


@pytest.fixture
def client(place: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(place, decode_responses=True) as connected:
        connected.flushall()
        yield connected


def add(client: Any, stream: str, *numbers: int) -> None:
    for n in numbers:
        client.xadd(stream, {"n": n}, id=f"{n}-0")


def sessions(place: str, **options: Any) -> Query:
    given: Any = {"streamPattern": "s:*", **options}
    return Query(place, **given)


def streams(query: Query) -> list[str]:
    return sorted(query.checkpoint["committed"]["streams"])


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_stream_that_was_read_may_expire(place: str, client: Any, mode: Any, restarts: bool) -> None:
    add(client, "s:1", 1, 2)
    add(client, "s:2", 3)
    query = sessions(place, **mode)
    assert sorted(query.batch()) == [1, 2, 3]
    client.pexpire("s:1", 1)
    while client.exists("s:1"):
        pass
    if restarts:
        query = query.restarted()
    assert query.batch() == []
    assert streams(query) == ["s:1", "s:2"]  # an idle query has no new offset
    add(client, "s:2", 4)
    assert query.batch() == [4]
    assert streams(query) == ["s:2"]
    assert not query.unsure
    assert not query.lost


@pytest.mark.parametrize("restarts", [False, True])
def test_the_offset_has_the_living_streams_only(place: str, client: Any, restarts: bool) -> None:
    query = sessions(place)
    assert query.batch() == []
    for n in range(1, 40):
        add(client, f"s:{n}", n)
        assert query.batch() == [n]
        client.delete(f"s:{n}")
        if restarts:
            query = query.restarted()
    add(client, "s:last", 40)
    assert query.batch() == [40]
    assert streams(query) == ["s:last"]
    guard = query.reader.follower.guard
    assert set(guard.last_seen) | set(guard.last_added) | set(guard.current) <= {"s:last", "s:39"}


@pytest.mark.parametrize("restarts", [False, True])
def test_a_stream_with_unread_entries_does_not_end_silently(place: str, client: Any, restarts: bool) -> None:
    add(client, "s:1", 1, 2, 3)
    query = sessions(place, maxEntriesPerTrigger="2")
    assert query.batch() == [1, 2]
    client.delete("s:1")
    add(client, "s:2", 9)
    if restarts:
        query = query.restarted()
    with pytest.raises(DataLoss, match="may have been lost before being read: the stream 's:1' .* is gone"):
        query.batch()
    counting = query.restarted(failOnDataLoss="false")
    assert counting.batch() == [9]
    assert counting.unsure == {"s:1"}
    assert streams(counting) == ["s:2"]


def test_entries_that_were_seen_after_the_offset_count_as_unread(place: str, client: Any) -> None:
    add(client, "s:1", 1)
    query = sessions(place, minEntriesPerTrigger="3")
    query.checkpoint["committed"] = {"streams": {"s:1": "1-0"}, "added": {"s:1": 1}}
    add(client, "s:1", 2)
    follower = query.reader.follower
    from rillet.spark.read.offsets import Offset

    assert follower.next(Offset.parse(query.checkpoint["committed"]), 3, None) is None
    client.delete("s:1")
    with pytest.raises(DataLoss, match="'s:1' .* is gone"):
        follower.next(Offset.parse(query.checkpoint["committed"]), 3, None)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("more", [0, 5])
def test_a_session_that_begins_again_is_read_from_its_start(
    place: str, client: Any, restarts: bool, more: int
) -> None:
    add(client, "s:1", 1, 2, 3)
    query = sessions(place)
    assert query.batch() == [1, 2, 3]
    client.delete("s:1")
    numbers = list(range(10, 11 + more))
    add(client, "s:1", *numbers)
    if restarts:
        query = query.restarted()
    assert query.batch() == numbers
    assert not query.lost
    add(client, "s:1", 50)
    client.xtrim("s:1", maxlen=0, approximate=False)
    with pytest.raises(DataLoss, match="1 entry was lost"):
        query.batch()


def test_a_stream_that_is_older_than_the_offset_is_a_loss(place: str, client: Any) -> None:
    """A master that failed over may have lost the end of a stream; reading it from its start would read twice."""
    add(client, "s:1", 1, 2, 3)
    query = sessions(place)
    query.batch()
    client.delete("s:1")
    add(client, "s:1", 1, 2)
    with pytest.raises(DataLoss, match="is a different one: it ends at 2-0"):
        query.batch()


def test_a_trim_is_still_a_loss(place: str, client: Any) -> None:
    add(client, "s:1", 1, 2)
    query = sessions(place)
    query.batch()
    add(client, "s:1", 3, 4, 5)
    client.xtrim("s:1", minid="5-0", approximate=False)
    with pytest.raises(DataLoss, match="2 entries were lost .* begins at 5-0"):
        query.batch()


def test_the_option_chooses(place: str, client: Any) -> None:
    add(client, "s:1", 1)
    add(client, "s:2", 2)
    query = sessions(place, onStreamEnd="fail")
    query.batch()
    client.delete("s:1")
    with pytest.raises(DataLoss, match="'s:1' .* is gone"):
        query.batch()
    add(client, "s:1", 1)
    named = Query(place, streams="s:1,s:2")
    named.batch()
    client.delete("s:1")
    with pytest.raises(DataLoss, match="'s:1' .* is gone"):
        named.batch()
    with pytest.raises(OptionError, match="onStreamEnd is 'x': expected one of forget, fail"):
        parse({"url": place, "streamPattern": "*", "onStreamEnd": "x"})


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_checkpoint_of_an_earlier_version(place: str, client: Any, mode: Any, tmp_path: Path) -> None:
    """Its offsets do not list streams with unread entries."""
    add(client, "s:2", 7)
    if mode:
        client.xgroup_create("s:2", "g", "0")
    query = sessions(place, **mode)
    query.checkpoint["committed"] = {"streams": {"s:1": "5-0"}, "added": {"s:1": 5}, "plan": []}
    assert query.batch() == [7]
    assert streams(query) == ["s:2"]
    if not mode:
        query = sessions(place)
        query.checkpoint["committed"] = {"streams": {"s:1": "5-0"}, "added": {"s:1": 5}, "removed": {"s:1": 0}}
        with pytest.raises(DataLoss, match="'s:1' .* is gone"):
            query.batch()
