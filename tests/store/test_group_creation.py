"""A group is created by its first read or by create(); its figures, and a read-only store, change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet import Store
from rillet.errors import NoGroup, ReadOnly
from rillet.store.group import Group
from rillet.types.stream.id import StreamID
from tests.store.conftest import Frontend

MISSING = r"^NOGROUP No such key 'typo' or consumer group 'nope'"

FIGURES: list[Callable[[Group], Any]] = [
    lambda group: group.lag,
    lambda group: group.info(),
    lambda group: group.consumers(),
    lambda group: group.pending(),
    lambda group: group.pending_count(),
    lambda group: group.pending_summary(),
    lambda group: group.consumer("c").pending(),
    lambda group: group.consumer("c").info(),
    lambda group: group.set_id("0"),
    lambda group: group.delete_consumer("c"),
]
SILENT: list[Callable[[Group], Any]] = [
    lambda group: group.ack("1-0"),
    lambda group: group.consumer("c").ack(),
    lambda group: group.consumer("c").claim_ids(),
    lambda group: group.delete(),
    lambda group: list(group.consumer("c").messages(stop=lambda: True)),
]

READS: list[Callable[[Group], Any]] = [
    lambda group: group.consumer("c").read(),
    lambda group: group.consumer("c").read(after="0"),
    lambda group: group.consumer("c").read(block=0.001),
    lambda group: group.consumer("c").claim(0),
    lambda group: list(group.consumer("c").claim_all(0)),
    lambda group: group.consumer("c").claim_ids("1-0"),
    lambda group: list(group.consumer("c").messages(stop_when_empty=True)),
    lambda group: list(group.consumer("c").messages(batch=2, claim_idle=1, stop_when_empty=True)),
    lambda group: list(group.consumer("c").messages(timeout=0.01)),
    lambda group: group.create_consumer("c"),
    lambda group: group.create(),
]


def _state(store: Store) -> list[tuple[str, list[str]]]:
    return [(name, [group.name for group in store.stream(name).groups()]) for name in sorted(store.keys())]


@pytest.mark.parametrize("stream_exists", [False, True])
def test_figures_of_a_missing_group_change_nothing(store: Store, stream_exists: bool) -> None:
    stream = store.stream("typo")
    if stream_exists:
        stream.add({"n": 1}, 1)
    before = _state(store)
    for create in (True, False):
        for figure in FIGURES:
            group = stream.group("nope", create=create)
            with pytest.raises(rillet.CommandError, match="NOGROUP|requires the key to exist") as raised:
                figure(group)
            assert "nope" in str(raised.value) or not stream_exists
        for silent in SILENT:
            assert not silent(stream.group("nope", create=create))
    for name in ("nope", "$"):
        stream.group(name, "$")
        store.consumer(name, "c", ["typo", "other"], start="$")
    assert _state(store) == before


def test_the_error_of_a_missing_group_has_the_words_of_redis(store: Store) -> None:
    group = store.stream("typo").group("nope")
    with pytest.raises(NoGroup, match=MISSING):
        _ = group.lag
    with pytest.raises(KeyError, match=MISSING):
        group.info()
    with pytest.raises(NoGroup, match=MISSING):
        group.consumers()
    with pytest.raises(NoGroup, match=MISSING):
        group.pending_count()
    assert "NoGroup: NOGROUP No such key" in group._repr_html_()


@pytest.mark.parametrize("read", READS)
def test_the_first_read_creates_the_group(store: Store, read: Callable[[Group], Any]) -> None:
    stream = store.stream("s")
    group = stream.group("g")
    assert _state(store) == []
    read(group)
    assert _state(store) == [("s", ["g"])]
    stream.add({"n": 1}, 1)
    assert [message["n"] for message in group.consumer("c").read()] == ["1"]


def test_a_consumer_of_several_streams_creates_its_groups_when_it_reads(store: Store) -> None:
    def made() -> Any:
        return store.consumer("g", "c", ["{s}1", "{s}2"])

    store.stream("{s}1").group("g").create()
    consumer = made()
    assert _state(store) == [("{s}1", ["g"])]
    assert consumer.read() == []
    assert _state(store) == [("{s}1", ["g"]), ("{s}2", ["g"])]
    store.delete("{s}1")
    store.stream("{s}2").add({"n": 1}, 1)
    assert [message["n"] for message in made().messages(stop_when_empty=True)] == ["1"]
    assert _state(store) == [("{s}1", ["g"]), ("{s}2", ["g"])]


def test_a_group_that_is_created_later_begins_where_it_was_told(store: Store) -> None:
    stream = store.stream("s")
    groups = {start: stream.group(f"g{start}", start) for start in ("0", "1", "$")}
    stream.add_many((n, {"n": n}) for n in (1, 2))
    later = stream.group("later", "$")
    assert stream.last_id == StreamID(2, 0)
    stream.add({"n": 3}, 3)
    read = {start: [message["n"] for message in group.consumer("c").read()] for start, group in groups.items()}
    assert read == {"0": ["1", "2", "3"], "1": ["2", "3"], "$": ["1", "2", "3"]}
    assert [message["n"] for message in later.consumer("c").read()] == ["3"]
    counted = stream.group("counted", "2", entries_read=2)
    counted.consumer("c").read(1)
    assert (counted.info().entries_read, counted.lag) == (3, 0)
    created = stream.group("created", "1")
    assert created.create()
    assert created.info().last_delivered_id == StreamID(1, 0)
    assert stream.group("explicit", "1").create("2")
    assert stream.group("explicit").info().last_delivered_id == StreamID(2, 0)


def test_an_existing_group_keeps_its_position(store: Store) -> None:
    stream = store.stream("s")
    stream.add_many((n, {"n": n}) for n in (1, 2, 3))
    stream.group("g").consumer("c").read(2)
    assert stream.group("g", "0").info().last_delivered_id == StreamID(2, 0)
    assert [message["n"] for message in stream.group("g", "0").consumer("c").read()] == ["3"]


def test_a_group_that_was_deleted_stays_deleted(store: Store) -> None:
    stream = store.stream("s")
    stream.add({"n": 1}, 1)
    group = stream.group("g")
    assert len(group.consumer("c").read()) == 1
    stream.group("g").delete()
    for read in READS[:9]:
        with pytest.raises(NoGroup):
            read(group)
    assert stream.groups() == []
    with pytest.raises(NoGroup):
        stream.group("new", create=False).consumer("c").read()
    assert [message["n"] for message in stream.group("g").consumer("c").read()] == ["1"]


def test_the_same_in_asyncio(frontend: Frontend) -> None:
    async def body() -> None:
        store = frontend.store.aio()
        stream = store.stream("typo")
        group = await stream.group("nope")
        for figure in (group.lag, group.info, group.consumers, group.pending, group.pending_count):
            with pytest.raises(NoGroup, match=MISSING):
                await figure()
        consumer = await store.consumer("nope", "c", ["typo"], start="$")
        assert not await stream.exists()
        await stream.add({"n": 1}, 1)
        late = await stream.group("late", "$")
        await stream.add({"n": 2}, 2)
        reads: list[Callable[[], Awaitable[Any]]] = [consumer.read, group.consumer("c").read]
        assert [message["n"] for read in reads for message in await read()] == ["1", "2"]
        assert [message["n"] async for message in late.consumer("c").messages(stop_when_empty=True)] == ["2"]
        assert await group.lag() == 0
        await group.delete()
        with pytest.raises(NoGroup):
            await group.consumer("c").read()

    asyncio.run(body())


def test_a_read_only_store_reads_existing_groups(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with rillet.open(path) as store:
        stream = store.stream("s")
        stream.add_many((n, {"n": n}) for n in (1, 2, 3))
        stream.group("g").consumer("c").read(2)
    with rillet.open(path, readonly=True) as store:
        group = store.stream("s").group("g")
        assert group.lag == 1
        assert group.pending_count() == 2
        assert group.pending_summary().consumers == {"c": 2}
        assert [found.name for found in group.consumers()] == ["c"]
        assert [found.id.ms for found in group.consumer("c").pending()] == [1, 2]
        assert group.consumer("c").info().pending == 2
        assert store.stream("s").group("late", "$").name == "late"
        for read in READS[:9]:
            with pytest.raises(ReadOnly):
                read(group)
        with pytest.raises(NoGroup):
            store.stream("s").group("nope").info()
