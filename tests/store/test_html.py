"""`_repr_html_` of a store, a stream and a group: content, escaping, bounds, and no exception."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest

import rillet
from rillet.store.aio import AsyncGroup, AsyncStore, AsyncStream
from tests.cluster import Cluster
from tests.judge import redis_binary, running_redis
from tests.store.conftest import Frontend, only
from tests.store.test_patience import wait

HOSTILE = "<script>alert('x')</script>&\"\n\x1b[2J\u202e"


class Page(HTMLParser):
    """The tags and cells of HTML; any other tag or attribute than those of a table is an error."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ("div", "p", "strong", "code", "table", "tr", "td", "th")
        assert attrs in ([], [("style", "text-align: left")])
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        assert data.isprintable()
        self.cells.append(data)


def cells(shown: Any) -> list[str]:
    return Page(shown._repr_html_()).cells


def fill(store: rillet.Store) -> rillet.Stream:
    orders = store.stream("orders")
    orders.add_many([(f"{1_795_000_000_000 + n}-0", {"n": n}) for n in range(100)])
    orders.group("billing").consumer("one").read(7)
    store.stream("small").add({"a": 1}, id="1-1")
    store.execute("SET", "no stream", "x")
    return orders


def test_a_store(frontend: Frontend) -> None:
    fill(frontend.store)
    assert cells(frontend.store) == [repr(frontend.store), "stream", "entries", "orders", "100", "small", "1"]


def test_a_stream(frontend: Frontend) -> None:
    shown = cells(fill(frontend.store))
    assert shown[:9] == [
        "Stream('orders')", "entries", "100", "first", "1795000000000-0 (2026-11-18 11:06:40Z)",
        "last", "1795000000099-0 (2026-11-18 11:06:40Z)", "groups", "1",
    ]  # fmt: skip
    assert shown[9:17] == ["group", "lag", "pending", "consumers", "billing", "93", "7", "1"]
    assert [text for text in shown if text.startswith("n=")] == [f"n={n}" for n in range(99, 94, -1)]
    assert cells(frontend.store.stream("small"))[-2:] == ["1-1", "a=1"]


def test_a_group(frontend: Frontend) -> None:
    shown = cells(fill(frontend.store).group("billing"))
    assert shown[:7] == [
        "Group('orders', 'billing')", "last delivered", "1795000000006-0 (2026-11-18 11:06:40Z)", "lag", "93",
        "pending", "7",
    ]  # fmt: skip
    assert shown[7:12] == ["consumer", "pending", "idle", "one", "7"]
    assert sum(text.startswith("17950000000") for text in shown[7:]) == 5
    assert shown[-1] == "and 2 more"


def test_everything_is_escaped(frontend: Frontend) -> None:
    store = frontend.store
    stream = store.stream(HOSTILE)
    stream.add({HOSTILE: HOSTILE, b"\xff": b"\x00<b>"})
    group = stream.group(HOSTILE)
    group.consumer(HOSTILE).read()
    for shown in (store, stream, group):
        text = shown._repr_html_()
        assert "<script" not in text
        assert "<b>" not in text
        assert "alert" in "".join(Page(text).cells)


def test_empty_ones(frontend: Frontend) -> None:
    store = frontend.store
    assert cells(store)[1:] == ["no streams found"]
    group = store.stream("s").group("g")
    group.create()
    assert cells(store.stream("s"))[1:7] == ["entries", "0", "first", "-", "last", "-"]
    assert "pending" in cells(group)


def test_an_error_is_shown_instead(frontend: Frontend) -> None:
    store = frontend.store
    store.execute("SET", "k", "v")
    assert "WRONGTYPE" in cells(store.stream("k"))[1]
    assert "no such key" in cells(store.stream("missing"))[1]
    store.stream("s").add({"n": 1})
    missing = "NoGroup: NOGROUP No such key 's' or consumer group 'missing'"
    assert cells(store.stream("s").group("missing"))[1] == missing


def test_a_closed_store(frontend: Frontend) -> None:
    store = frontend.store
    stream = fill(store)
    group = stream.group("billing")
    store.close()
    for shown in (store, stream, group):
        assert "closed" in cells(shown)[1]


@only("memory")
def test_much_of_everything_is_cut(frontend: Frontend) -> None:
    store = frontend.store
    stream = store.stream("s")
    stream.add({f"field {n}": "x" * 10_000 for n in range(1000)})
    for number in range(30):
        stream.group(f"g{number}").create_consumer("c")
        store.stream(f"s{number}").add({"n": 1})
        stream.group("g0").create_consumer(f"c{number}")
    for shown in (store, stream, stream.group("g0")):
        text = shown._repr_html_()
        assert len(text) < 8000
        assert max(map(len, Page(text).cells)) <= 80
    assert "and 20 more" in cells(stream)
    assert "and 21 more" in cells(stream.group("g0"))
    assert any("store.streams()" in text for text in cells(store))


@only("memory")
def test_many_keys_are_not_all_scanned(frontend: Frontend) -> None:
    frontend.store.execute_many([("SET", f"k{n}", n) for n in range(50_000)])
    frontend.store.stream("s").add({"n": 1})
    frontend.store.execute("CONFIG", "RESETSTAT")
    frontend.store._repr_html_()
    calls = frontend.store.execute("INFO", "commandstats").decode()
    assert "cmdstat_scan:calls=10," in calls


@only("memory")
def test_a_typed_stream_with_an_invalid_entry(frontend: Frontend) -> None:
    plain = frontend.store.stream("s")
    plain.add({"value": "no number"})
    typed = frontend.store.stream("s", type=dict[str, int], codec="json", on_invalid=frontend.store.stream("dead"))
    assert "value=no number" in cells(typed)
    assert not frontend.store.stream("dead").exists()


def test_a_server_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    if redis_binary() is None:
        pytest.skip("redis-server is not installed")
    with running_redis() as judge:
        store = rillet.connect(f"redis://127.0.0.1:{judge.port}")
        stream = fill(store)
    wait(monkeypatch, 0.1)
    with store:
        for shown in (store, stream):
            assert cells(shown)[1].startswith(("StoreError", "NotSent", "NoConnection", "OutcomeUnknown"))


def test_a_cluster(cluster: Cluster) -> None:
    with rillet.connect(cluster.url) as store:
        names = sorted(cluster.key_of(share, "s") for share in range(3))
        for name in names:
            store.stream(name).add({"n": 1}, id="1-1")
        assert cells(store)[3:] == [text for name in names for text in (name, "1")]
        assert cells(store.stream(names[0]))[-1] == "n=1"


def test_a_password_is_not_shown() -> None:
    with rillet.connect("redis://user:secret@127.0.0.1:1") as store:
        assert "secret" not in store._repr_html_()


def test_the_asyncio_api_has_none() -> None:
    """IPython does not wait for a coroutine: it would show nothing, and a warning."""
    assert not any(hasattr(cls, "_repr_html_") for cls in (AsyncStore, AsyncStream, AsyncGroup))
