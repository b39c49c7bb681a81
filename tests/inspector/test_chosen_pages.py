"""The pages in Chromium on what a user looks for: a stream, a group, a key, a place, a saved filter, a dead letter.

They take minutes, so they have the mark `long`: `pytest -m long tests/inspector/test_chosen_pages.py`.
RILLET_SCREENSHOTS names a folder for the screenshots of docs/inspector.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import rillet
from rillet.inspector.serving import running
from tests.inspector.conftest import fill
from tests.inspector.pages import Pages, has_browser
from tests.judge import redis_binary, running_redis

pytestmark = [
    pytest.mark.long, pytest.mark.timeout(900),
    pytest.mark.skipif(not has_browser(), reason="needs chromium and chromedriver"),
]  # fmt: skip


@pytest.fixture(params=["directory", *(["redis"] if redis_binary() else [])])
def place(request: Any, tmp_path: Path) -> Iterator[tuple[str, rillet.Store]]:
    """Return a place with streams and keys of each type, and a store over it."""
    with ExitStack() as stack:
        where = str(tmp_path / "s.rillet")
        if request.param == "redis":
            where = f"redis://127.0.0.1:{stack.enter_context(running_redis()).port}"
        store = stack.enter_context(rillet.connect(where) if "://" in where else rillet.open(where))
        fill(store)
        yield where, store


def cells(pages: Pages, label: str) -> list[list[str]]:
    """Return the texts of a table."""
    found: list[list[str]] = pages.script(
        "return [...document.querySelectorAll(`[aria-label='${arguments[0]}'] tbody tr`)].map("
        "(row) => [...row.children].map((cell) => cell.innerText.trim()))", label
    )  # fmt: skip
    return found


def test_streams_and_groups_are_listed_by_activity(
    driver: Any, place: tuple[str, rillet.Store], axe: str
) -> None:
    where, store = place
    store.stream("busy").add({"n": 1})  # now; the entries of `orders` are earlier, those of `small` have no time
    store.execute("XGROUP", "CREATE", "busy", "asleep", "0")
    store.execute("XGROUP", "CREATE", "small", "awake", "0")
    store.execute("XREADGROUP", "GROUP", "awake", "c", "STREAMS", "small", ">")
    with running(where) as inspector:
        pages = Pages(driver, inspector)
        pages.open("stream")
        pages.until(lambda: [row[0] for row in cells(pages, "Streams")] == ["busy", "orders", "small"])
        assert pages.faults(axe) == []
        pages.open("groups")
        pages.until(lambda: [row[:2] for row in cells(pages, "Groups of all streams")] == [
            ["small", "awake"], ["orders", "billing"], ["busy", "asleep"]])  # fmt: skip
        assert pages.faults(axe) == []
        pages.click("orders", "main a")
        pages.see("Consumers of billing")
        assert pages.problems() == []


def test_keys_of_each_type_are_browsed(driver: Any, place: tuple[str, rillet.Store], axe: str) -> None:
    where, store = place
    store.execute("HSET", "session", "cart", json.dumps({"items": [1, {"sku": "x"}]}), "user", "ada")
    store.execute("PEXPIRE", "session", 3_600_000)
    with running(where, write=True) as inspector:
        pages = Pages(driver, inspector)
        pages.open("keys")
        pages.see("11 found among 11.", "session", "hash")
        pages.script("const one = document.getElementById('type'); one.value = 'zset';"
                     "one.dispatchEvent(new Event('change'))")  # fmt: skip
        pages.until(lambda: sorted(row[0] for row in cells(pages, "Keys found")) == ["ranks", "scores"])
        pages.click("ranks", "main a")
        pages.until(lambda: cells(pages, "Elements")[:1] == [["0", "member0", "0"]])
        assert len(cells(pages, "Elements")) == 100
        assert pages.faults(axe) == []
        pages.click("More", "button")
        pages.until(lambda: len(cells(pages, "Elements")) == 200)
        pages.click("Highest first", "button")
        pages.until(lambda: cells(pages, "Elements")[:1] == [["0", "member299", "299"]])
        pages.type("#match", "*er77")
        pages.click("Filter", "button")
        pages.until(lambda: cells(pages, "Elements") == [["member77", "77"]])
        pages.open("keys", key="session")
        pages.see("expires in 60 min", "2 elements")
        pages.click("cart", "button")
        pages.until(lambda: "items" in pages.text(".detail .tree"))
        pages.script("const one = document.getElementById('type'); one.value = '';"
                     "one.dispatchEvent(new Event('change'))")  # fmt: skip
        pages.see("11 found among 11.")
        pages.screenshot("inspector-keys", height=620)
        assert pages.faults(axe) == []
        pages.open("keys", key="list")
        pages.until(lambda: cells(pages, "Elements")[39:] == [["39", "39"]])
        pages.open("keys", key="text")
        pages.see("hello", "5 bytes")
        pages.open("keys", key="orders")
        pages.click("The entries", "a")
        pages.see("Throughput")
        pages.open("keys", key="session")
        pages.see("expires in")
        pages.click("Delete", "button")
        pages.until(lambda: "UNLINK session" in pages.text("dialog"))
        pages.click("Delete the key", "dialog button")
        pages.until(lambda: not store.execute("EXISTS", "session"))
        pages.until(lambda: "key=" not in driver.current_url)
        assert pages.problems() == []


def test_several_places_in_one_page(driver: Any, tmp_path: Path, axe: str) -> None:
    paths = [str(tmp_path / name) for name in ("first.rillet", "second.rillet")]
    for path, name in zip(paths, ("apples", "pears"), strict=True):
        with rillet.open(path) as store:
            store.stream(name).add({"n": 1}, id="1795000000000-0")
            store.execute("SET", f"{name}:text", name)
    with running(*paths) as inspector:
        pages = Pages(driver, inspector)
        pages.open("overview")
        pages.see("apples", "Places", "second.rillet")
        assert pages.faults(axe) == []
        pages.script("const one = document.querySelector('.head select'); one.value = '1';"
                     "one.dispatchEvent(new Event('change'))")  # fmt: skip
        pages.until(lambda: "pears" in pages.text() and "apples" not in pages.text())
        # Links and requests stay in the place.
        pages.click("pears", "main a")
        pages.see("1795000000000-0")
        assert "place=1" in driver.current_url
        pages.click("Keys", "nav a")
        pages.see("pears:text")
        pages.click("pears:text", "main a")
        pages.see("5 bytes")
        pages.open("stream", key="apples")
        pages.see("1795000000000-0")
        assert pages.problems() == []


def test_filters_are_saved_under_a_name(driver: Any, place: tuple[str, rillet.Store], axe: str) -> None:
    where, _ = place
    with running(where) as inspector:
        pages = Pages(driver, inspector)
        pages.open("stream", key="orders")
        pages.type("#filter", "customer=c1, n>=100")
        pages.click("Add", "button")
        pages.until(lambda: len(pages.texts(".entries tbody tr")) == 21)
        pages.click("Saved filters", "button")
        pages.type("#filter-name", "big orders of c1")
        pages.click("Save", "dialog button")
        pages.until(lambda: cells(pages, "Saved filters") == [
            ["big orders of c1", "customer=c1, n>=100", "orders", "Delete"]])  # fmt: skip
        assert pages.faults(axe) == []
        pages.click("Close", "dialog button")
        pages.open("stream", key="orders")
        pages.until(lambda: len(pages.texts(".entries tbody tr")) == 100)
        pages.script("location.reload()")
        pages.until(lambda: len(pages.texts(".entries tbody tr")) == 100)
        pages.click("Saved filters", "button")
        pages.click("big orders of c1", "dialog button")
        pages.until(lambda: len(pages.texts(".entries tbody tr")) == 21)
        assert "where=customer" in driver.current_url
        pages.open("search", key="orders")
        pages.click("Saved filters", "button")
        pages.click("big orders of c1", "dialog button")
        pages.click("Search", "form.stack button")
        pages.see("21 found among 248")
        pages.click("Saved filters", "button")
        pages.click("Delete", "dialog button")
        pages.until(lambda: "No filters are saved" in pages.text("dialog"))
        assert pages.problems() == []


def test_dead_letters_are_requeued_and_dropped(driver: Any, place: tuple[str, rillet.Store], axe: str) -> None:
    where, store = place
    mail = store.stream("mail")
    mail.add_many([{"n": n, "to": f"customer {n}"} for n in range(6)])

    def fails(message: rillet.Message) -> None:
        raise ValueError("no address" if int(message["n"]) % 2 else "no text")

    mail.group("send").consumer("w").run(fails, max_deliveries=1, dead_letters="mail.dead", stop_when_empty=True)
    dead = store.stream("mail.dead")
    with running(where, write=True) as inspector:
        pages = Pages(driver, inspector)
        pages.open("letters")
        pages.until(lambda: [row[:2] for row in cells(pages, "Streams of dead letters")] == [["mail.dead", "6"]])
        assert pages.faults(axe) == []
        pages.click("mail.dead", "main a")
        pages.until(lambda: sorted(row[:4] for row in cells(pages, "Dead letters by origin and reason")) == [
            ["ValueError: no address", "mail", "send", "3"], ["ValueError: no text", "mail", "send", "3"]])  # fmt: skip
        pages.until(lambda: len(cells(pages, "Dead letters")) == 6)
        pages.screenshot("inspector-letters", height=760)
        assert pages.faults(axe) == []
        pages.click("As a stream", "a")
        pages.click("By reason, to requeue or drop them", "main a")
        pages.until(lambda: len(cells(pages, "Dead letters")) == 6)
        pages.click("ValueError: no address", "button.link")
        pages.until(lambda: [row[7] for row in cells(pages, "Dead letters")] == [
            f"n={n} to=customer {n}" for n in (5, 3, 1)])  # fmt: skip
        pages.click("Select 3", "button")
        pages.click("Requeue", "button")
        pages.until(lambda: "XADD mail * n 1" in pages.text("dialog"))
        assert pages.text("dialog pre").splitlines()[1::2][:3] == [
            f'XADD mail * n {n} to "customer {n}"' for n in (1, 3, 5)]  # fmt: skip
        assert pages.faults(axe) == []
        assert len(dead) == 6
        pages.click("Requeue", "dialog button")
        pages.see("Requeue: done")
        assert [entry["n"] for entry in list(mail)[6:]] == ["1", "3", "5"]
        pages.click("ValueError: no text", "button.link")
        pages.until(lambda: len(cells(pages, "Dead letters")) == 3)
        pages.click("Select 3", "button")
        pages.click("Drop", "button")
        pages.until(lambda: "XDEL mail.dead" in pages.text("dialog"))
        pages.click("Drop", "dialog button")
        pages.until(lambda: len(dead) == 0)
        assert len(mail) == 9
        assert pages.problems() == []


def test_entries_and_groups_are_changed(driver: Any, place: tuple[str, rillet.Store], axe: str) -> None:
    where, store = place
    small = store.stream("small")
    with running(where, write=True) as inspector:
        pages = Pages(driver, inspector)
        pages.open("stream", key="small")
        pages.click("Add an entry", "button")
        pages.type("#action-field", "customer=42\ntotal=9.90")
        pages.until(lambda: "XADD small * customer 42 total 9.90" in pages.text("dialog"))
        assert pages.faults(axe) == []
        pages.click("Add an entry", "dialog button")
        pages.see("Add an entry: done")
        last = small.last()
        assert last is not None
        assert last.fields == {"customer": "42", "total": "9.90"}
        pages.click(str(last.id))
        pages.click("Add a copy", "button")
        pages.until(lambda: "XADD small * customer 42 total 9.90" in pages.text("dialog"))
        pages.click("Cancel", "dialog button")
        pages.click("Delete", ".detail button")
        pages.until(lambda: f"XDEL small {last.id}" in pages.text("dialog"))
        pages.click("Delete", "dialog button")
        pages.until(lambda: len(small) == 1)
        pages.open("groups", key="small")
        pages.click("Create a group", "button")
        pages.type("#action-field", "late")
        pages.type("#action-field-2", "2026-11-18 10:30")
        pages.until(lambda: "XGROUP CREATE small late 1794997800000-0" in pages.text("dialog"))
        pages.click("Create a group", "dialog button")
        pages.see("Consumers of late")
        pages.click("Delete the group", "button")
        pages.until(lambda: "XGROUP DESTROY small late" in pages.text("dialog"))
        pages.click("Delete the group", "dialog button")
        pages.see("The stream has no consumer groups.")
        assert small.groups() == []
        assert pages.problems() == []


def test_the_steps_of_an_append_play(driver: Any, axe: str) -> None:
    with rillet.open() as store, store.serve() as server, running(server.url) as inspector:
        for n in range(3):
            store.stream("s").add({"sensor": n, "temp": "warm"}, id=f"{1000 + n}-0")
        pages = Pages(driver, inspector)
        pages.open("bytes", key="s")
        pages.see("1. The ID.")
        pages.click("Play", "button")
        pages.see("3. The count.")
        assert pages.texts("del.was") == ["02 01"]  # the count before
        pages.click("Pause", "button")
        pages.click("Play", "button")
        pages.see("4. The entry.")
        assert len(pages.texts("[aria-labelledby=h-steps] .el.changed")) == 8
        pages.until(lambda: "Play" in pages.texts("[aria-labelledby=h-steps] button"))  # it ended
        assert pages.faults(axe) == []
        assert pages.problems() == []
