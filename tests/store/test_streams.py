"""Stream and Store on every kind of store: the same calls return the same results, wherever the engine runs."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rillet import Store
from rillet.errors import BusyGroup, CommandError, ExecAbort, InvalidID, NoGroup, StoreClosed, WrongType
from rillet.store.consuming import delivery_options
from rillet.store.entry import Entry
from rillet.store.transports.transport import raised
from rillet.types.stream.id import StreamID
from tests.store.conftest import Frontend

pytestmark = pytest.mark.both


def test_add_gives_rising_ids_and_range_gives_the_entries(store: Store) -> None:
    orders = store.stream("orders")
    first = orders.add({"customer": "42", "total": "99.90"})
    second = orders.add([("a", 1), ("a", 2.5)])
    assert isinstance(first, StreamID)
    assert isinstance(second, StreamID)
    assert second > first > StreamID(0, 0)
    entries = orders.range()
    assert [entry.id for entry in entries] == [first, second]
    assert entries[0].fields == {"customer": "42", "total": "99.90"}
    assert entries[0]["total"] == "99.90"
    assert entries[1].pairs == [(b"a", b"1"), (b"a", b"2.5")]
    assert entries[1].fields == {"a": "2.5"}
    assert len(orders) == 2
    assert orders.first_id == first
    assert orders.last_id == second
    assert orders.get(first) == entries[0]
    assert orders.get("1-1") is None
    assert repr(entries[0]) == f"Entry('{first}', {{'customer': '42', 'total': '99.90'}})"


def test_ids_of_ones_own(store: Store) -> None:
    stream = store.stream("s")
    assert stream.add({"n": 1}, "5-1") == StreamID(5, 1)
    assert stream.add({"n": 2}, id=7) == StreamID(7, 0)
    assert stream.add({"n": 3}, id="7-*") == StreamID(7, 1)
    assert stream.add({"n": 4}, id=StreamID(2**64 - 1, 2**64 - 1)) == StreamID(2**64 - 1, 2**64 - 1)
    with pytest.raises(
        CommandError, match="^ERR The stream has exhausted the last possible ID, unable to add more items$"
    ):
        stream.add({"n": 5})
    assert [entry["n"] for entry in stream] == ["1", "2", "3", "4"]


def test_what_cannot_be_stored_is_a_type_error_before_anything_happens(store: Store) -> None:
    stream = store.stream("s")
    for wrong in (None, True, object(), [1]):
        with pytest.raises(TypeError):
            stream.add({"a": wrong})
    for fields in ("text", b"bytes", None, 5, ["ab"], [("a", "b", "c")]):
        with pytest.raises(TypeError):
            stream.add(fields)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one field"):
        stream.add({})
    with pytest.raises(TypeError, match="id must be an ID.*, not 1.5$"):
        stream.add({"a": 1}, id=1.5)  # type: ignore[call-overload]
    for name in (None, 5, 1.5):
        with pytest.raises(TypeError):
            store.stream(name)  # type: ignore[call-overload]
    assert not stream.exists()


def test_bytes_that_are_no_text_survive(store: Store) -> None:
    stream = store.stream(b"\xff\x00key")
    raw = bytes(range(256))
    stream.add({raw: raw, "ü": "\N{SNOWMAN}", b"empty": b""})
    entry = stream.range()[0]
    assert entry.pairs == [(raw, raw), ("ü".encode(), "\N{SNOWMAN}".encode()), (b"empty", b"")]
    again = store.stream(stream.name)
    assert again.key == stream.key
    again.add(entry.fields)
    assert again.range()[1].pairs == entry.pairs


@pytest.mark.slow
def test_ranges_and_iteration_return_entries_in_order(store: Store) -> None:
    stream = store.stream("s")
    stream.add_many((f"{n}-0", {"n": n}) for n in range(1, 2501))
    assert [entry["n"] for entry in stream] == [str(n) for n in range(1, 2501)]
    assert [entry["n"] for entry in reversed(stream)] == [str(n) for n in range(2500, 0, -1)]
    assert [entry["n"] for entry in stream.range("(10", 12)] == ["11", "12"]
    assert [entry["n"] for entry in stream.range(StreamID(10, 0), "+", count=2)] == ["10", "11"]
    assert [entry["n"] for entry in stream.reverse(3, "(1")] == ["3", "2"]
    assert [entry["n"] for entry in stream.reverse(count=1)] == ["2500"]
    assert stream.range(5, 4) == []
    assert store.stream("none").range() == []
    assert list(store.stream("none")) == []
    assert not store.stream("none")  # like an empty list
    assert len(store.stream("none")) == 0


def test_read_after_an_id(store: Store) -> None:
    stream = store.stream("s")
    assert stream.read() == []
    assert stream.read("$", block=0.001) == []
    ids = [stream.add({"n": n}) for n in range(3)]
    assert [entry.id for entry in stream.read()] == ids
    assert ids[0] is not None
    assert [entry.id for entry in stream.read(ids[0], count=1)] == [ids[1]]
    assert stream.read("$") == []
    assert [entry.id for entry in stream.read(block=5)] == ids


def test_trim_and_delete_return_the_number_of_removed_entries(store: Store) -> None:
    stream = store.stream("s")
    assert stream.add_many((n, {"n": n}) for n in range(1, 11)) == [StreamID(n, 0) for n in range(1, 11)]
    assert stream.trim(maxlen=8) == 2
    assert stream.trim(minid="5-0") == 2
    assert stream.delete("5-0", StreamID(6, 0), 99) == 2
    assert [entry["n"] for entry in stream] == ["7", "8", "9", "10"]
    assert stream.add({"n": 11}, id=11, maxlen=2, approximate=False) == StreamID(11, 0)
    assert [entry["n"] for entry in stream] == ["10", "11"]
    assert stream.add({"n": 12}, id=12, minid=11, approximate=True, limit=100) == StreamID(12, 0)
    assert store.stream("none").add({"a": "b"}, create=False) is None
    assert not store.stream("none").exists()
    assert store.stream("none").trim(maxlen=1) == 0
    with pytest.raises(ValueError, match="pass one of maxlen, minid and max_age: none was passed"):
        stream.trim()
    with pytest.raises(ValueError, match="pass one of maxlen, minid and max_age: maxlen and minid were passed"):
        stream.trim(maxlen=1, minid="1-0")
    info = stream.info()
    assert info["entries-added"] == 12
    assert info["max-deleted-entry-id"] == "6-0"
    assert store.delete("s", "none") == 1


def test_add_many_in_batches_and_refusals(store: Store) -> None:
    stream = store.stream("s")
    assert stream.add_many([]) == []
    ids = stream.add_many(({"n": n} for n in range(25)), batch=10)
    assert ids == [entry.id for entry in stream]
    assert len(ids) == 25
    own = store.stream("own")
    pairs = (("a", "1"), ("b", "2"))
    assert own.add_many([(StreamID(1, 1), {"a": 1}), ("2-2", pairs), (3, [("c", 3)])]) == [(1, 1), (2, 2), (3, 0)]
    assert len(own.add_many([pairs, [("d", 4)]])) == 2
    assert [entry.fields for entry in own] == [
        {"a": "1"},
        {"a": "1", "b": "2"},
        {"c": "3"},
        {"a": "1", "b": "2"},
        {"d": "4"},
    ]
    bad = store.stream("bad")
    with pytest.raises(CommandError, match="^ERR The ID specified in XADD is equal or smaller than the target stream"):
        bad.add_many([(5, {"n": 5}), (4, {"n": 4}), (6, {"n": 6}), (7, {"n": 7})], batch=3)
    assert [entry["n"] for entry in bad] == ["5", "6"]


def test_info_has_the_fields_of_xinfo(store: Store) -> None:
    stream = store.stream("s")
    stream.add({"a": "1"}, "1-1")
    stream.group("g").consumer("c").read()
    info = stream.info()
    assert info["length"] == 1
    assert info["last-generated-id"] == "1-1"
    assert info["groups"] == 1
    assert info["first-entry"] == info["last-entry"] == Entry(b"1-1", [b"a", b"1"])
    full = stream.info(full=True)
    assert full["entries"] == [Entry(b"1-1", [b"a", b"1"])]
    assert full["groups"][0]["name"] == "g"
    assert full["groups"][0]["consumers"][0]["name"] == "c"
    assert stream.groups()[0].pending == 1
    with pytest.raises(CommandError, match="^ERR no such key$"):
        store.stream("none").info()


def test_keys_streams_and_plain_commands_see_the_same_data(store: Store) -> None:
    for name in ("b", "a", "c"):
        store.stream(name).add({"n": 1})
    assert store.execute("SET", "text", 5) == b"OK"
    assert store.execute("INCR", b"text") == 6
    assert store.execute("GET", "text") == b"6"
    assert store.execute("GET", "none") is None
    assert store.execute("EXISTS", "a", "b", "none") == 2
    assert [stream.name for stream in store.streams()] == ["a", "b", "c"]
    assert sorted(store.keys()) == ["a", "b", "c", "text"]
    assert list(store.keys("t*", kind="string")) == ["text"]
    assert store.execute_many([["SET", "x", 1], ["INCR", "x"], ["DEL", "x", "text"]]) == [b"OK", 2, 2]
    assert store.execute_many([]) == []
    assert "redis_version" in store.info()


@pytest.mark.slow
def test_execute_many_returns_all_replies(store: Store) -> None:
    """More than what sockets hold, there and back."""
    texts = [b"%d" % n * 2000 for n in range(2000)]
    assert store.execute_many([["ECHO", text] for text in texts]) == texts
    more = store.execute_many([["MULTI"], *(["INCRBY", "n", "1"] for _ in range(5000)), ["EXEC"]])
    assert more[-1] == [*range(1, 5001)]


def test_errors_are_of_the_class_of_their_prefix(store: Store) -> None:
    store.execute("SET", "text", "x")
    stream = store.stream("text")
    with pytest.raises(
        WrongType, match="^WRONGTYPE Operation against a key holding the wrong kind of value$"
    ) as caught:
        stream.add({"a": 1})
    assert caught.value.prefix == "WRONGTYPE"
    with pytest.raises(
        NoGroup, match="^NOGROUP No such key 'none' or consumer group 'g' in XREADGROUP with GROUP option$"
    ):
        store.stream("none").group("g", create=False).consumer("c").read()
    store.stream("s").group("g").create()
    with pytest.raises(BusyGroup, match="^BUSYGROUP Consumer Group name already exists$"):
        store.execute("XGROUP", "CREATE", "s", "g", "0")
    for wrong, text in (
        (["NOSUCH", "a"], "^ERR unknown command 'NOSUCH', with args beginning with: 'a' $"),
        (["XADD", "s", "*", "a"], "^ERR wrong number of arguments for 'xadd' command$"),
        (["XRANGE", "s", "x", "+"], "^ERR Invalid stream ID specified as stream command argument$"),
        (["SET", "a", "b", "EX", "x"], "^ERR value is not an integer or out of range$"),
    ):
        with pytest.raises(CommandError, match=text) as other:
            store.execute(*wrong)
        assert other.value.prefix == "ERR"
    with pytest.raises(WrongType):
        store.execute_many([["SET", "a", "b"], ["XLEN", "text"], ["SET", "c", "d"]])
    assert store.execute("GET", "c") == b"d"
    replies = store.transport.execute_many([[b"MULTI"], [b"NOSUCH"], [b"EXEC"]])
    with pytest.raises(ExecAbort, match="^EXECABORT Transaction discarded because of previous errors.$"):
        raised(replies[2])


def test_a_transaction_returns_its_replies(store: Store) -> None:
    assert store.execute_many([["MULTI"], ["SET", "a", 1], ["INCR", "a"], ["EXEC"]]) == [
        b"OK",
        b"QUEUED",
        b"QUEUED",
        [b"OK", 2],
    ]


def test_a_command_without_words_is_a_mistake_of_the_caller(store: Store) -> None:
    with pytest.raises(ValueError, match="the command is empty"):
        store.execute()
    with pytest.raises(ValueError, match="the command is empty"):
        store.execute_many([["PING"], []])


def test_a_closed_store_raises_an_error(frontend: Frontend) -> None:
    store = frontend.store
    stream = store.stream("s")
    stream.add({"a": 1})
    group = stream.group("g")
    store.close()
    store.close()
    assert repr(store) == "Store(closed)"
    calls: list[Any] = [
        lambda: stream.add({"a": 1}), lambda: stream.add_many([{"a": 1}]), lambda: len(stream), lambda: list(stream),
        lambda: group.consumer("c").read(block=1), lambda: store.execute("PING"), lambda: store.redis(),
        lambda: store.aio(), lambda: store.path, lambda: store.socket,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(StoreClosed):
            call()


def test_follow_ends_at_stop_and_at_timeout(frontend: Frontend) -> None:
    stream = frontend.store.stream("s")
    stream.add_many((n, {"n": n}) for n in range(1, 4))
    stop = threading.Event()
    found = []
    for entry in stream.follow("0", stop=stop):
        found.append(entry["n"])
        if entry["n"] == "2":
            stop.set()
    assert found == ["1", "2"]
    assert list(stream.follow("0", stop=stop)) == []
    assert [entry["n"] for entry in stream.follow("1", block=60, timeout=0.05)] == ["2", "3"]
    assert list(stream.follow(timeout=0)) == []


def test_a_waiting_follow_notices_stop(frontend: Frontend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_options, "STOP_CHECK", 0.02)
    stream = frontend.store.stream("s")
    asked = []

    def stop() -> bool:
        asked.append(1)
        if len(asked) == 2:  # the first read found nothing
            frontend.another().stream("s").add({"n": 1})
        return len(asked) == 4

    assert [entry["n"] for entry in stream.follow("0", block=60, stop=stop)] == ["1"]
    assert len(asked) == 4


def test_context_manager_closes_also_after_an_error(frontend: Frontend) -> None:
    store = frontend.store
    with pytest.raises(ZeroDivisionError), store:
        _ = len(store.stream("s")) / 0
    with pytest.raises(StoreClosed):
        store.execute("PING")


def test_counts_and_ranks_are_those_of_ranges(store: Store) -> None:
    stream = store.stream("s")
    assert (stream.count(), stream.rank("5-0")) == (0, 0)
    ids = [stream.add({"n": n}, f"{1 + n // 3}-{1 + n % 3}") for n in range(2500)]
    stream.delete(*ids[100:200:7])
    left = [entry.id for entry in stream]
    for start, end in (("-", "+"), (ids[10], ids[2400]), (f"({ids[10]}", f"({ids[99]}"), ("40", "70"), ("900", "+"),
                       (ids[5], ids[4])):  # fmt: skip
        assert stream.count(start, end) == len(stream.range(start, end))
    assert stream.rank(left[0]) == 1
    assert stream.rank(left[-1]) == len(stream) == stream.count()
    assert stream.rank(ids[107]) == sum(one <= ids[107] for one in left)
    with pytest.raises(InvalidID):
        stream.count("x")
    with pytest.raises(InvalidID):
        stream.rank("-")
    store.execute("SET", "text", "x")
    with pytest.raises(WrongType):
        store.stream("text").count()
