"""Arguments of add, add_many, delete, trim and ack, single entries by ID, and times as positions, on every store."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import pytest

from rillet import Store, Stream
from rillet.errors import CommandError, InvalidID
from rillet.store.arguments.policies import IDS_PER_COMMAND
from rillet.types.stream.id import StreamID
from tests.store.conftest import RILLET, only


def _at(ms: int) -> datetime:
    return StreamID(ms, 0).datetime


def _ids(stream: Stream) -> list[str]:
    return [str(entry.id) for entry in stream]


def test_one_entry_by_its_id(store: Store) -> None:
    stream = store.stream("s")
    stream.add({"n": 1}, "5-1")
    entry = stream["5-1"]
    assert entry["n"] == "1"
    assert stream[StreamID(5, 1)] == stream[b"5-1"] == entry
    assert "5-1" in stream
    assert entry.id in stream
    assert entry in stream
    stream.add({"n": 2}, "6")
    assert 6 in stream
    assert stream[6]["n"] == "2"
    for missing in (5, "5", "5-0", "5-2", StreamID(7, 0)):
        assert missing not in stream
        assert stream.get(missing) is None
        with pytest.raises(KeyError):
            stream[missing]
    stream.delete(6)
    assert 6 not in stream
    assert entry not in store.stream("none")
    with pytest.raises(InvalidID, match="id must be an ID: .*, not 'word'$"):
        assert "word" in stream
    with pytest.raises(TypeError, match="use range"):
        stream["1":"2"]  # type: ignore[index]


def test_times_as_positions(store: Store) -> None:
    stream = store.stream("s")
    stream.add_many((text, {"n": text}) for text in ("999-9", "1000-0", "1000-5", "1001-0", "1002-1"))
    assert [str(entry.id) for entry in stream.range(_at(1000), _at(1001))] == ["1000-0", "1000-5", "1001-0"]
    assert [str(entry.id) for entry in stream.reverse(_at(1000), _at(999))] == ["1000-5", "1000-0", "999-9"]
    assert [str(entry.id) for entry in stream.read(_at(1000), count=2)] == ["1000-0", "1000-5"]
    assert stream.add({"n": 1}, _at(1002)) == StreamID(1002, 2)
    assert stream.add_many([(_at(1002), {"n": 1})]) == [StreamID(1002, 3)]
    assert stream.range(_at(1002))[0].id.datetime == _at(1002)
    group = stream.group("g", _at(1001))
    consumer = group.consumer("c")
    assert [str(message.id) for message in consumer.read()] == ["1001-0", "1002-1", "1002-2", "1002-3"]
    assert [found.id.ms for found in group.pending(start=_at(1001), end=_at(1001))] == [1001]
    assert len(consumer.read(after=_at(1002))) == 3
    group.set_id(_at(1002))
    assert len(consumer.read()) == 3
    assert stream.trim(minid=_at(1001)) == 3
    with pytest.raises(TypeError, match="not the ID of one"):
        stream.delete(_at(1001))  # type: ignore[arg-type]


def test_a_range_is_scanned_in_pages(store: Store) -> None:
    stream = store.stream("s")
    stream.add_many((n, {"n": n}) for n in range(1, 12))
    for page in (1, 3, 10, 11, 100):
        assert [entry.id.ms for entry in stream.scan(2, "(11-0", page=page)] == list(range(2, 11))
        assert [entry.id.ms for entry in stream.scan(_at(3), 9, reverse=True, page=page)] == list(range(9, 2, -1))
    edge = store.stream("edge")
    edge.add({"n": 1}, "18446744073709551615-18446744073709551615")
    assert len(list(edge.scan(page=1))) == len(list(edge.scan(page=1, reverse=True))) == 1
    assert stream.length() == len(stream) == 11
    assert stream.contains(5)
    assert not stream.contains("5-1")


def test_trim_by_age(store: Store) -> None:
    stream = store.stream("s")
    now = store.stream("clock").add({"a": 1}).ms
    stream.add_many((now - age, {"age": age}) for age in (7_200_000, 3_700_000, 3_000_000, 1000))
    assert stream.trim(max_age=timedelta(hours=1)) == 2
    assert [entry["age"] for entry in stream] == ["3000000", "1000"]
    assert stream.trim(max_age=3_100.0) == 0
    assert stream.trim(max_age=2_900) == 1
    assert stream.trim(max_age=timedelta(days=100_000)) == 0
    assert stream.trim(max_age=0, limit=None) == 1
    with pytest.raises(ValueError, match="pass one of maxlen, minid and max_age"):
        stream.trim(max_age=5, maxlen=1)


def test_add_many_trims(store: Store) -> None:
    stream = store.stream("s")
    ids = stream.add_many(((n, {"n": n}) for n in range(1, 26)), batch=10, maxlen=3, approximate=False)
    assert len(ids) == 25
    assert _ids(stream) == ["23-0", "24-0", "25-0"]
    assert stream.add_many([(26, {"n": 1})], minid=25, approximate=False) == [StreamID(26, 0)]
    assert _ids(stream) == ["25-0", "26-0"]
    assert store.stream("none").add_many([{"n": 1}, {"n": 2}], create=False) == [None, None]
    assert not store.stream("none").exists()
    for call in (lambda: stream.add_many([{"a": 1}], limit=5), lambda: stream.add({"a": 1}, limit=5)):
        with pytest.raises(ValueError, match="pass maxlen or minid too"):
            call()
    with pytest.raises(ValueError, match="both were passed"):
        stream.add_many([{"a": 1}], maxlen=1, minid=1)


def test_nothing_to_delete_or_acknowledge_is_no_command(store: Store) -> None:
    stream = store.stream("s")
    group = stream.group("g")
    assert stream.delete() == 0
    assert group.ack() == 0
    assert group.nack() == 0
    assert group.consumer("c").ack() == 0
    assert group.consumer("c").claim_ids() == []
    store.execute("SET", "text", "x")  # XDEL of this key would be an error
    assert store.stream("text").delete() == 0


def test_long_lists_of_ids_are_several_commands(store: Store) -> None:
    stream = store.stream("s")
    count = 2 * IDS_PER_COMMAND + 1
    ids = stream.add_many({"n": n} for n in range(count))
    group = stream.group("g")
    assert len(group.consumer("c").read(count)) == count
    assert group.ack(*ids, "1-1") == count
    assert group.pending_count() == 0
    assert stream.delete(*ids, "1-1") == count
    assert len(stream) == 0


@RILLET
def test_policies_for_the_references_of_groups(store: Store) -> None:
    stream = store.stream("s")
    groups = [stream.group(name, create=False) for name in ("g", "h")]

    def fill() -> None:
        store.delete("s")
        stream.add_many((n, {"n": n}) for n in range(1, 5))
        for group in groups:
            group.create()
            group.consumer("c").read()

    fill()
    assert groups[0].ack(1, 2) == 2
    assert stream.delete(1, 2, 3, ref_policy="ACKED") == 0
    assert groups[1].ack(1) == 1
    assert stream.delete(1, 2, 9, ref_policy="ACKED") == 1
    assert stream.delete(2, ref_policy="KEEPREF") == 1
    assert [found.id.ms for found in groups[1].pending()] == [2, 3, 4]
    assert stream.delete(3, ref_policy="DELREF") == 1
    assert [found.id.ms for found in groups[1].pending()] == [2, 4]
    fill()
    assert groups[0].ack(1, 2, 9, delete="ACKED") == 2
    assert len(stream) == 4
    assert groups[1].ack(1, delete="ACKED") == 1
    assert _ids(stream) == ["2-0", "3-0", "4-0"]
    message = groups[1].consumer("c").read(after="2")[0]
    assert message.ack(delete="DELREF")
    assert not message.ack(delete="DELREF")
    assert _ids(stream) == ["2-0", "4-0"]
    assert [found.id.ms for found in groups[0].pending()] == [4]
    assert stream.trim(maxlen=0, ref_policy="ACKED") == 0
    stream.add({"n": 5}, 5, maxlen=1, approximate=False, ref_policy="ACKED")
    assert len(stream) == 3
    stream.add({"n": 6}, 6, maxlen=1, approximate=False, ref_policy="DELREF")
    assert _ids(stream) == ["6-0"]
    assert groups[0].pending() == groups[1].pending() == []
    with pytest.raises(ValueError, match="must be 'KEEPREF', 'DELREF' or 'ACKED', not 'keep'"):
        stream.delete(1, ref_policy="keep")  # type: ignore[arg-type]


def test_an_argument_of_another_shape_is_refused(store: Store) -> None:
    stream = store.stream("s")
    wrong: list[Any] = ["p", "ab", ("a", "bc"), 7, ("a", "b", "c")]
    for idmp in wrong[:2] + wrong[3:]:
        with pytest.raises(TypeError, match=r"^pass idmp=\(producer, message ID\), not "):
            stream.add({"n": 1}, idmp=idmp)
    for idmp in wrong:
        with pytest.raises(TypeError, match=r"^pass idmp=\(producer, the message IDs of the entries\), not "):
            stream.add_many([{"n": 1}], idmp=idmp)
    reads: list[Any] = [stream.range, stream.read, stream.get]
    for read in reads:
        with pytest.raises(TypeError, match=r"pass an aware datetime, such as datetime\(2026, 11, 2, tzinfo=UTC\)"):
            read(date(2026, 11, 2))
    assert not stream.exists()


@RILLET
def test_a_repeated_message_of_a_producer_is_added_once(store: Store) -> None:
    stream = store.stream("s")
    first = stream.add({"n": 1}, idmp=("p", "m-1"))
    assert stream.add({"n": 1}, idmp=("p", "m-1")) == first
    assert stream.add({"n": 1}, idmp=("q", "m-1")) > first
    auto = stream.add({"n": 2}, idmpauto="p")
    assert stream.add({"n": 2}, idmpauto="p") == auto
    assert stream.add({"n": 3}, idmpauto="p") > auto
    assert len(stream) == 4
    entries = [{"n": n} for n in range(10, 15)]
    ids = stream.add_many(entries, idmpauto="batch", batch=2)
    assert stream.add_many(entries, idmpauto="batch") == ids
    named = stream.add_many(entries, idmp=("b", range(5)))
    assert stream.add_many(entries, idmp=("b", range(5)), maxlen=100) == named
    assert len(stream) == 14
    with pytest.raises(ValueError, match="fewer message IDs than there are entries"):
        stream.add_many(entries, idmp=("b", range(4)))
    for call in (
        lambda: stream.add({"n": 1}, idmp=("p", 1), idmpauto="p"),
        lambda: stream.add_many([{"n": 1}], idmp=("p", [1]), idmpauto="p"),
    ):
        with pytest.raises(ValueError, match="both were passed"):
            call()
    stream.configure_idmp(duration=timedelta(minutes=5), max_entries=2)
    info = stream.info()
    assert (info["idmp-duration"], info["idmp-maxsize"]) == (300, 2)
    limited = [stream.add({"n": 1}, idmp=("limited", n)) for n in range(3)]
    assert stream.add({"n": 1}, idmp=("limited", 2)) == limited[2]
    assert stream.add({"n": 1}, idmp=("limited", 0)) > limited[2]
    stream.configure_idmp(duration=60.4)
    assert (stream.info()["idmp-duration"], stream.info()["idmp-maxsize"]) == (60, 2)
    with pytest.raises(CommandError, match="IDMP-DURATION must be between 1 and 86400 seconds"):
        stream.configure_idmp(duration=0)
    with pytest.raises(CommandError, match="only with auto-generated IDs"):
        stream.add({"n": 1}, "99999999999999-1", idmpauto="p")


@only("redis")
def test_an_old_server_rejects_newer_arguments(store: Store) -> None:
    stream = store.stream("s")
    stream.add({"n": 1}, 1)
    group = stream.group("g")
    for call in (
        lambda: stream.add({"n": 1}, ref_policy="ACKED", maxlen=1), lambda: stream.add({"n": 1}, idmpauto="p"),
        lambda: stream.delete(1, ref_policy="ACKED"), lambda: group.ack(1, delete="ACKED"),
    ):  # fmt: skip
        with pytest.raises(CommandError):
            call()
    assert _ids(stream) == ["1-0"]
