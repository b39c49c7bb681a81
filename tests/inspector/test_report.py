"""`rillet report` and `Stream.plot`: the numbers of the inspector, in a page and in a figure."""

from __future__ import annotations

import asyncio
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet.inspector.place import InspectedPlace
from rillet.inspector.report import report as report_of
from rillet.store.display.timeline import EXACT, timeline
from tests.forked import ended
from tests.inspector.conftest import fill
from tests.inspector.test_security import hostile
from tests.judge import redis_binary, running_redis


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("meta", "br", "rect", "line", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("rect", "line", "path"):
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(text: str) -> _Tags:
    found = _Tags()
    found.feed(text)
    assert found.open == []
    return found


def report(where: Path | str, target: Path) -> _Tags:
    status, output, errors = ended("report", where, "-o", target)
    assert status == 0, errors
    assert "report is in" in output
    return parsed(target.read_text())


def test_a_report_of_a_directory(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s.rillet") as store:
        fill(store)
    found = report(tmp_path / "s.rillet", tmp_path / "out.html")
    assert "2 streams, 249 entries" in found.text
    assert "billing" in found.text
    assert "stuck (20, idle" in found.text
    assert "n=0 customer=c0" in found.text
    assert "exact counts" in found.text
    assert found.tags.count("svg") == 2


def test_a_report_is_safe_and_needs_nothing_else(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s.rillet") as store:
        hostile(store)
        found = report(tmp_path / "s.rillet", tmp_path / "out.html")
    assert not {"script", "img", "link", "iframe", "object"} & set(found.tags)
    assert not {"src", "href", "onerror", "style"} & found.attributes
    assert "<script>window.harmed" in found.text
    assert "\x1b" not in found.text
    assert "\u202e" not in found.text


def test_a_report_that_cannot_be_written(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s.rillet") as store:
        fill(store)
    status, _, errors = ended("report", tmp_path / "s.rillet", "-o", tmp_path / "missing/out.html")
    assert status == 2
    assert "cannot be written" in errors


def test_a_plot_has_the_numbers_of_the_timeline() -> None:
    pytest.importorskip("matplotlib")
    with rillet.open() as store:
        fill(store)
        stream = store.stream("orders")
        figure = stream.plot(buckets=50)
        first, lag, ages = figure.axes
        assert "248 entries, exact, 2 removed" in first.get_title(loc="left")
        heights = first.patches[0].get_data().values
        assert list(heights) == timeline(stream, 50).rates()
        assert [bar.get_width() for bar in lag.patches] == [223]
        assert [bar.get_width() for bar in ages.patches] == [25]
        assert figure._repr_png_().startswith(b"\x89PNG")
        store.stream("$x$\x00").add({"f": 1}, id="1-1")
        assert store.stream("$x$\x00").plot()._repr_png_().startswith(b"\x89PNG")
        assert len(store.stream("small").plot().axes) == 1


@pytest.mark.skipif(redis_binary() is None, reason="needs redis-server")
def test_the_timeline_of_a_server_without_ranks() -> None:
    with running_redis() as judge, rillet.connect(f"redis://127.0.0.1:{judge.port}") as store, rillet.open() as own:
        ids = [f"{n * 10}-0" for n in range(1, 3000)] + [f"{n * 10}-0" for n in range(9000, 9500)]
        for one in (store, own):
            one.stream("s").add_many([(id, {"n": 1}) for id in ids])
            one.stream("s").delete("10-0")
        assert timeline(store.stream("s"), 37) == timeline(own.stream("s"), 37)
        # A longer stream is estimated from samples: the sum is right, and a hole is a hole.
        large = store.stream("large")
        large.add_many([(f"{n}-0", {"n": 1}) for n in range(1, EXACT)] + [(f"{n}-0", {"n": 1})
                                                                         for n in range(100_000, 101_000)])  # fmt: skip
        found = timeline(large, 50)
        assert not found.exact
        assert abs(sum(found.counts) - len(large)) <= 50
        assert found.holes == [(found.edges[10], found.edges[49])]


def test_names_of_any_length_in_a_report(tmp_path: Path) -> None:
    """A long name is cut, with the whole name in the tooltip; an empty one is shown in words."""
    long = "tenant:42:" + "long-name-" * 299
    with rillet.open(tmp_path / "s.rillet") as store:
        for name in ("", long):
            store.stream(name).add({"f": "v"})
            store.execute("XGROUP", "CREATE", name, name, "0")
            store.execute("XREADGROUP", "GROUP", name, name, "STREAMS", name, ">")
        place = InspectedPlace(store.path or "")
        try:
            text = report_of(place)
        finally:
            place.close()
    found = parsed(text)
    assert found.text.count("(empty name)") == 5  # both tables, the heading, the consumer, the pending entries
    assert "long-name-long-name-long" in found.text
    assert max(len(word) for word in found.text.split()) < 500
    assert text.count(f'title="{long}"') >= 5


@pytest.mark.parametrize("kind", ["closed", "owned", "server"])
def test_another_database(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s.rillet"
    with rillet.open(path) as store:
        store.stream("zero").add({"f": "v"})
        store.execute("SELECT", 3)
        store.stream("three").add({"f": "v"})
        if kind == "owned":
            shown = _text(path, 3), _text(path, None)
        elif kind == "server":
            shown = _text(store.serve().url, 3), _text(store.serve().url.replace("/0", "/3"), 0)
    if kind == "closed":
        shown = _text(path, 3), _text(path, None)
    assert "three" in shown[0]
    assert "zero" not in shown[0]
    assert "zero" in shown[1]
    assert "three" not in shown[1]


def _text(where: Path | str, db: int | None) -> str:
    """Return the report of a database, and the keys that each thread of the inspector sees."""
    place = InspectedPlace(where, db=db)

    async def keys() -> list[list[str]]:
        return await asyncio.gather(*(place.ask(lambda store: list(store.keys())) for _ in range(20)))

    try:
        assert len({tuple(found) for found in asyncio.run(keys())}) == 1
        return parsed(report_of(place)).text
    finally:
        place.close()


def test_the_option_for_the_database(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s.rillet") as store:
        store.execute("SELECT", 3)
        store.stream("three").add({"f": "v"})
    target = tmp_path / "report.html"
    assert ended("report", tmp_path / "s.rillet", "--db", "3", "-o", target)[0] == 0
    assert "three" in target.read_text(encoding="utf-8")
    for command in ("top", "inspect"):
        assert "--db N" in ended(command, "--help")[1]
