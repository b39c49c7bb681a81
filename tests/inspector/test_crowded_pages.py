"""The pages in Chromium on places that are not like a demo: many keys, hostile names, users in a hurry.

They take minutes, so they have the mark `long`: `pytest -m long tests/inspector/test_crowded_pages.py`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

import rillet
from rillet.inspector import scanning
from rillet.inspector.serving import running
from tests.inspector.pages import Pages, has_browser
from tests.judge import redis_binary, running_redis

pytestmark = [
    pytest.mark.long, pytest.mark.timeout(900),
    pytest.mark.skipif(not has_browser(), reason="needs chromium and chromedriver"),
]  # fmt: skip

LONG = "tenant:42:" + "long-name-" * 299
KEYS = 6900


@pytest.fixture(params=["directory", *(["redis"] if redis_binary() else [])], scope="module")
def crowded(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return a place with many keys and few streams; one stream has a long name, one has an empty name."""
    with ExitStack() as stack:
        where = str(tmp_path_factory.mktemp("crowded") / "s.rillet")
        if request.param == "redis":
            where = f"redis://127.0.0.1:{stack.enter_context(running_redis()).port}"
        store = stack.enter_context(rillet.connect(where) if "://" in where else rillet.open(where))
        for start in range(0, KEYS, 100):
            store.execute("MSET", *(word for n in range(start, start + 100) for word in (f"key:{n}", n)))
        store.execute("SET", "largest:" + LONG, "x" * 200_000)
        for name in ("", LONG):
            store.stream(name).add({name: name, "n": 1}, id="1795000000000-0")
            store.execute("XGROUP", "CREATE", name, name, "0")
            store.execute("XREADGROUP", "GROUP", name, name, "STREAMS", name, ">")
        store.stream("orders").add_many([
            (f"{1795000000000 + n * 3_600_000}-0", {"carrier": ("UA", "AA")[n % 2], "delay": n, "note": "a, b"})
            for n in range(90)
        ])  # fmt: skip
        store.execute("XGROUP", "CREATE", "orders", "billing", "1795000000000-0")
        store.stream("large").add_many([{"n": n} for n in range(2000)])
        yield where


def test_streams_are_found_among_many_keys(driver: Any, crowded: str) -> None:
    with running(crowded) as inspector:
        pages = Pages(driver, inspector)
        pages.open("overview")

        def rows(card: str) -> list[list[str]]:
            return [row.split("\t") for row in pages.texts(f"section[aria-labelledby={card}] tbody tr")]

        pages.until(lambda: [row[0] for row in rows("h-streams")] == ["large", "orders", "(empty name)", LONG])
        pages.see(f"All {KEYS + 5:,} keys")
        sizes = {row[0]: row[2] for row in rows("h-streams")}
        largest = rows("h-large")
        assert largest[0][0] == "largest:" + LONG
        assert len({row[0] for row in largest}) == len(largest)
        # A stream has the same size in both tables.
        assert {row[0]: row[2] for row in largest if row[1] == "stream"} == sizes
        assert pages.problems() == []


def test_the_search_for_streams_says_how_far_it_is(driver: Any, crowded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "STEP_OF_TYPE", 1)
    with running(crowded) as inspector:
        pages = Pages(driver, inspector)
        pages.open("overview")
        pages.until(lambda: re.search(rf"Searching for streams: [\d,]+ of {KEYS + 5:,} keys", pages.text()))
        pages.until(lambda: "so far" in pages.text(".tiles"))
        for view in ("stream", "groups"):
            pages.script("location.hash = arguments[0]", f"/{view}")
            pages.until(lambda: re.search(rf"Searching for streams: [\d,]+ of {KEYS + 5:,} keys", pages.text()))


@pytest.mark.parametrize("width", [1360, 420])
def test_long_and_empty_names_in_each_view(driver: Any, crowded: str, width: int, axe: str) -> None:
    driver.set_window_size(width, 1043)
    try:
        with running(crowded, write=True) as inspector:
            pages = Pages(driver, inspector)
            empty = '""'

            def whole() -> bool:
                """Return whether nothing is beside the page, and each long name has itself as its tooltip."""
                return bool(pages.script(
                    "return document.documentElement.scrollWidth <= innerWidth + 1 && "
                    "[...document.querySelectorAll('main .cut')].every((one) => one.title === one.textContent"
                    " && one.getBoundingClientRect().width < 500)"))  # fmt: skip

            pages.open("overview")
            pages.see("(empty name)", "tenant:42:", "Largest keys")
            assert whole()
            if width > 1000:  # the figures are in sight
                edges = pages.script("return [...document.querySelectorAll('section[aria-labelledby=h-streams] td')]"
                                     ".map((one) => one.getBoundingClientRect().right)")  # fmt: skip
                assert max(edges) < width
            pages.click("(empty name)", "section[aria-labelledby=h-streams] a")
            pages.see("1795000000000-0")
            assert driver.title.startswith("(empty name)")
            for key in ("", LONG):
                for view, word in {"stream": "Exact counts" if "://" not in crowded else "Entries",
                                   "groups": "Pending workbench", "bytes": "master entry",
                                   "keys": "The entries", "letters": "By origin and reason"}.items():  # fmt: skip
                    pages.open(view, key=key)
                    pages.see(word)
                    assert whole(), (view, key)
                    assert pages.faults(axe) == [], (view, key)
                pages.open("groups", key=key, group=key, consumer=key)
                pages.until(lambda: len(pages.texts("table input[type=checkbox]")) == 1)
                pages.click("Delete", "button")
                words = f"XGROUP DELCONSUMER {key[:100] or empty}"
                pages.until(lambda words=words: words in pages.text("dialog"))  # type: ignore[misc]
                pages.click("Cancel", "dialog button")
            pages.open("search")
            pages.type("#pattern", "*long-name*")
            pages.click("Search", "form.row button")
            pages.see("2 found among")
            assert whole()
            assert pages.problems() == []
    finally:
        driver.set_window_size(1360, 1043)


def test_a_stream_is_chosen_from_a_list(driver: Any, crowded: str, axe: str) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    names = ["large", "orders", "", LONG]
    options = ("return [...document.querySelectorAll('[role=option]')].map("
               "(one) => one.querySelector('.cut')?.title ?? '')")  # fmt: skip
    with running(crowded) as inspector:
        pages = Pages(driver, inspector)
        for view in ("stream", "groups", "bytes"):
            pages.script("location.hash = arguments[0]", f"/{view}")
            pages.until(lambda: len(pages.texts("section[aria-labelledby=h-choose] tbody a")) == 4)
            field = driver.find_element(By.ID, "key")
            field.click()
            assert pages.until(lambda: pages.script(options))[:4] == names
            assert pages.faults(axe) == []
            field.send_keys("ord")
            pages.until(lambda: pages.script(options) == ["orders"])
            field.send_keys(Keys.ARROW_DOWN, Keys.ENTER)
            pages.until(lambda: "key=orders" in driver.current_url)
            # The list has all streams again, although the field has a name.
            pages.script("document.activeElement.blur()")
            field.click()
            assert pages.until(lambda: pages.script(options))[:4] == names
            field.send_keys(Keys.ESCAPE)
        pages.open("stream")
        pages.see("Choose a stream")
        pages.click("(empty name)", "main a")
        pages.see("1795000000000-0")
        assert pages.problems() == []


def test_filters_with_a_comma_and_their_export(driver: Any, crowded: str) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    with running(crowded) as inspector:
        pages = Pages(driver, inspector)
        pages.open("stream", key="orders")
        pages.type("#filter", "delay>x")
        pages.click("Add", "button")
        pages.see("not a number")
        pages.type("#filter", "carrier=UA, delay>30")
        pages.click("Add", "button")
        pages.until(lambda: len(pages.texts(".entries tbody tr")) == 29)
        pages.type("#filter", 'note="a, b", delay<50')
        pages.click("Add", "button")
        pages.until(lambda: len(pages.texts(".entries tbody tr")) == 9)
        for form in ("CSV", "JSON lines", "Parquet"):
            link = pages.script("return [...document.querySelectorAll('a')].find("
                                "(one) => one.innerText === arguments[0]).href", form)  # fmt: skip
            headers = {"authorization": f"Bearer {inspector.token}"}
            answer = httpx.get(link, headers=headers, trust_env=False, timeout=60)
            if form == "Parquet":
                table = parquet.read_table(io.BytesIO(answer.content))
                assert table["delay"].to_pylist() == list(range(32, 50, 2))
            else:
                assert len(answer.text.splitlines()) == 9 + (form == "CSV")
        pages.open("search", key="orders")
        pages.type("#where", "carrier=UA, delay>30")
        pages.click("Search", "form.stack button")
        pages.see("29 found among 90")
        assert pages.problems() == []


def test_enter_twice_confirms_nothing(driver: Any, tmp_path: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    def keys(*words: str) -> None:
        driver.switch_to.active_element.send_keys(*words)

    with rillet.open(tmp_path / "s.rillet") as store:
        orders = store.stream("orders")
        orders.add_many([{"n": n} for n in range(9)])
        group = orders.group("billing")
        group.consumer("c").read(5)
        before = group.info()
        assert store.path is not None
        with running(store.path, write=True) as inspector:
            pages = Pages(driver, inspector)
            pages.open("console")
            pages.see("commands. Help appears")
            for line in ("FLUSHALL", "DEL orders"):
                driver.find_element(By.ID, "line").send_keys(line, Keys.ENTER)
                pages.until(lambda line=line: line in pages.text("dialog"))  # type: ignore[misc]
                keys(Keys.ENTER)
                pages.until(lambda: not pages.text("dialog"))
                assert len(orders) == 9
            pages.open("groups", key="orders", group="billing")
            pages.until(lambda: len(pages.texts("table input[type=checkbox]")) == 5)
            pages.click("Select 5", "button")
            for button in ("Acknowledge", "Dead-letter", "Requeue", "Release (nack)", "Move the group", "Delete"):
                pages.click(button, "button")
                pages.until(lambda: "Runs exactly" in pages.text("dialog"))
                keys(Keys.ENTER)
                pages.until(lambda: not pages.text("dialog"))
            # Nor does Enter in a field.
            pages.click("Claim", "button")
            pages.type("#action-field", "thief")
            pages.until(lambda: "XCLAIM orders billing thief" in pages.text("dialog"))
            keys(Keys.ENTER, Keys.ENTER)
            keys(Keys.ESCAPE)
            pages.until(lambda: not pages.text("dialog"))
            assert group.info() == before
            assert len(orders) == 9
            # What the server lists as dangerous runs when its name was typed, and the button was pressed.
            pages.open("console")
            driver.find_element(By.ID, "line").send_keys("flushall", Keys.ENTER)
            pages.type("#typed", "flushall")
            keys(Keys.ENTER)
            assert len(orders) == 9
            pages.click("Run", "dialog button")
            pages.see("OK")
            assert list(store.keys()) == []


def test_all_times_are_iso(driver: Any, crowded: str) -> None:
    """The texts of the charts, too: no US dates, no am and pm, no local time."""
    script = driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source":
        "window.drawn = new Set(); const draw = CanvasRenderingContext2D.prototype.fillText;"
        "CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {"
        " window.drawn.add(text); return draw.call(this, text, ...rest); };"})["identifier"]  # fmt: skip
    driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "America/New_York"})
    try:
        with running(crowded) as inspector:
            pages = Pages(driver, inspector)
            pages.open("stream", key="orders")
            pages.until(lambda: "2026-11-18" in pages.script("return [...window.drawn]"))
            pages.click("1795000000000-0")
            pages.see("2026-11-18 11:06:40.000 UTC")
            pages.open("overview")
            pages.see("All 6,905 keys")
            pages.until(lambda: any(re.fullmatch(r"[\d:]{8}", one) for one in pages.script("return [...window.drawn]")))
            drawn = pages.script("return [...window.drawn]") + pages.texts("main")
            assert [one for one in drawn if re.search(r"\d/\d|\d ?[ap]m\b|Nov", one)] == []
            times = [one for one in pages.script("return [...window.drawn]") if one.count("-") > 1 or ":" in one]
            iso = re.compile(r"\d{4}-\d\d-\d\d|\d\d:\d\d(:\d\d(\.\d{3})?)?")
            assert [one for one in times if not iso.fullmatch(one)] == []
    finally:
        driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})
        driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", {"identifier": script})


def test_a_page_whose_inspector_ended_says_so(driver: Any, tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s.rillet") as store:
        store.stream("s").add({"f": "v"})
        assert store.path is not None
        with running(store.path) as inspector:
            pages = Pages(driver, inspector)
            pages.open("overview")
            pages.see("All 1 keys")
            assert "does not answer" not in pages.text()
        pages.see("The inspector does not answer. The figures on this page are those of 20")
