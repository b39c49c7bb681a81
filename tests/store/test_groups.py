"""Groups and consumers on every kind of store: delivery, acknowledgement, claiming, dead letters."""

from __future__ import annotations

import pytest

from rillet import Store
from rillet.errors import NoGroup, WrongType
from rillet.store.group import Consumer
from rillet.store.info_records import PendingEntry
from rillet.types.stream.id import StreamID


def _filled(store: Store, count: int) -> Consumer:
    stream = store.stream("jobs")
    stream.add_many((n, {"n": n}) for n in range(1, count + 1))
    return stream.group("workers").consumer("one")


def test_each_message_goes_to_one_consumer_and_is_acknowledged(store: Store) -> None:
    one = _filled(store, 5)
    group = one.group
    first, second = one.read(2), group.consumer("two").read(2)
    assert [message["n"] for message in first + second] == ["1", "2", "3", "4"]
    assert group.pending_count() == 4
    assert [message.ack() for message in first] == [True, True]
    assert not first[0].ack()
    assert group.ack(*(message.id for message in second)) == 2
    assert group.pending_count() == 0
    assert group.info().lag == group.lag == 1
    assert group.info().entries_read == 4
    assert [message["n"] for message in one.read(noack=True)] == ["5"]
    assert group.pending_count() == 0
    assert one.read() == []


def test_group_is_created_once_and_begins_where_it_is_told(store: Store) -> None:
    stream = store.stream("s")
    stream.add({"n": 1}, 1)
    assert stream.group("late", start="$").consumer("c").read() == []
    assert stream.group("late").consumer("c").read() == []
    assert len(stream.group("all").consumer("c").read()) == 1
    assert [one.name for one in stream.groups()] == ["all", "late"]
    late = stream.group("late", create=False)
    late.set_id("0")
    assert len(late.consumer("c").read()) == 1
    assert late.delete()
    assert not late.delete()
    with pytest.raises(NoGroup):
        late.consumer("c").read()
    with pytest.raises(KeyError):
        late.info()
    new = store.stream("new").group("g")
    assert new.create()
    assert new.stream.exists()
    assert len(new.stream) == 0


def test_pending_tells_whose_and_how_often(store: Store) -> None:
    one = _filled(store, 3)
    one.read(2)
    one.group.consumer("two").read()
    pending = one.group.pending()
    assert [(found.id, found.consumer, found.deliveries) for found in pending] == [
        (StreamID(1, 0), "one", 1), (StreamID(2, 0), "one", 1), (StreamID(3, 0), "two", 1)
    ]  # fmt: skip
    assert all(isinstance(found, PendingEntry) and found.idle_ms >= 0 for found in pending)
    assert [found.id.ms for found in one.pending()] == [1, 2]
    assert [found.id.ms for found in one.group.pending(start="(1", end=2)] == [2]
    assert one.group.pending(idle=1000) == []
    assert {found.name: found.pending for found in one.group.consumers()} == {"one": 2, "two": 1}
    assert one.group.delete_consumer("two", pending="drop") == 1
    assert one.group.delete_consumer("none") == 0


def test_own_pending_messages_come_again_after_a_restart(store: Store) -> None:
    one = _filled(store, 4)
    one.read(2)
    again = one.group.consumer("one")
    assert [message["n"] for message in again.read(after="0-0")] == ["1", "2"]
    seen = []
    for message in again.messages(stop_when_empty=True):
        seen.append(message["n"])
        message.ack()
    assert seen == ["1", "2", "3", "4"]
    assert one.group.pending_count() == 0


def test_stale_messages_are_claimed(store: Store) -> None:
    one = _filled(store, 3)
    one.read(3)
    two = one.group.consumer("two")
    assert two.claim(idle=60) == (StreamID(0, 0), [])
    cursor, claimed = two.claim(idle=0, count=2)
    assert [message["n"] for message in claimed] == ["1", "2"]
    assert cursor == StreamID(3, 0)
    assert [message["n"] for message in two.claim(0, start=cursor)[1]] == ["3"]
    assert [found.deliveries for found in two.pending()] == [2, 2, 2]
    assert one.pending() == []


def test_a_dead_consumers_messages_are_worked_off_by_another(store: Store) -> None:
    one = _filled(store, 30)
    one.read(10)
    handled = []
    for message in one.group.consumer("two").messages(count=4, claim_idle=0, stop_when_empty=True):
        handled.append(int(message["n"]))
        message.ack()
    assert sorted(handled) == list(range(1, 31))
    assert one.group.pending_count() == 0


def test_a_message_delivered_too_often_becomes_a_dead_letter(store: Store) -> None:
    one = _filled(store, 3)
    assert len(one.read()) == 3
    for name in ("two", "three"):  # never acknowledged, as by a handler that crashes
        assert len(one.group.consumer(name).claim(0)[1]) == 3
    one.group.stream.add({"n": "new"}, 9)
    seen = []
    for message in one.group.consumer("four").messages(
        claim_idle=0, max_deliveries=3, dead_letters="jobs.dead", stop_when_empty=True
    ):
        seen.append(message["n"])
        message.ack()
    assert seen == ["new"]
    assert one.group.pending_count() == 0
    letters = list(store.stream("jobs.dead"))
    assert [letter["n"] for letter in letters] == ["1", "2", "3"]
    assert letters[0]["_stream"] == "jobs"
    assert letters[0]["_group"] == "workers"
    assert letters[0]["_id"] == "1-0"
    assert letters[0]["_deliveries"] == "3"


def test_dead_letters_that_cannot_be_written_stay_pending(store: Store) -> None:
    one = _filled(store, 1)
    one.read()
    store.execute("SET", "dead", "a string")
    for _ in range(2):
        one.read(after="0-0")
    with pytest.raises(WrongType):
        list(one.messages(max_deliveries=1, dead_letters="dead", stop_when_empty=True))
    assert one.group.pending_count() == 1
    assert list(one.messages(max_deliveries=1, on_exhausted="drop", stop_when_empty=True)) == []
    assert one.group.pending_count() == 0


def test_entries_deleted_while_pending_are_not_handed_out(store: Store) -> None:
    one = _filled(store, 3)
    assert len(one.read()) == 3
    one.group.stream.delete(2)
    seen = [message["n"] for message in one.messages(stop_when_empty=True) if message.ack()]
    assert seen == ["1", "3"]
    assert one.group.pending_count() == 0


def test_names_of_any_bytes(store: Store) -> None:
    stream = store.stream(b"\xfe")
    stream.add({"a": 1})
    consumer = stream.group(b"\xff g").consumer("\N{SNOWMAN}")
    assert len(consumer.read()) == 1
    assert [found.consumer for found in consumer.pending()] == ["\N{SNOWMAN}"]
    assert consumer.group.name.encode("utf-8", "surrogateescape") == b"\xff g"


def test_a_consumer_acknowledges_what_it_read(store: Store) -> None:
    stream = store.stream("s")
    stream.add_many([{"n": 1}, {"n": 2}])
    consumer = stream.group("g").consumer("c")
    messages = consumer.read()
    assert consumer.ack(*messages) == 2
    assert consumer.ack(messages[0]) == 0
    assert consumer.pending() == []
