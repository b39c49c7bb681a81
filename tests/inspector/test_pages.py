"""The pages in Chromium: each view on the flights of the demo, in a directory and on each server, and what users do.

They take minutes, so they have the mark `long`: `pytest -m long tests/inspector/test_pages.py`. RILLET_SCREENSHOTS
names a folder for the screenshots of docs/inspector.md.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import rillet
from examples.flights import inspected
from rillet.inspector.serving import running
from tests.inspector.pages import Pages, has_browser
from tests.inspector.test_security import hostile
from tests.judge import redis_binary, running_redis
from tests.waiting import until

pytestmark = [
    pytest.mark.long, pytest.mark.timeout(900),
    pytest.mark.skipif(not has_browser(), reason="needs chromium and chromedriver"),
]  # fmt: skip

VALKEY = os.environ.get("RILLET_VALKEY")
PLACES = ["directory", "rillet", *(["redis"] if redis_binary() else []), *(["valkey"] if VALKEY else [])]
FLIGHTS = 20_000
VIEWS = {
    "overview": ("Keys by type and size", "flights:cancelled", "zset"),
    "stream": ("Throughput", "1357035300000-0", "carrier"),
    "groups": ("dispatch", "gate-7", "Pending workbench"),
    "letters": ("By origin and reason", "Letters"),
    "keys": ("Choose a key", "The entries"),
    "bytes": ("Rax", "master entry", "rebuilt"),
    "console": ("commands. Help appears",),
    "search": ("Keys", "Entries of a stream"),
}


@pytest.fixture(params=PLACES, scope="module")
def where(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return a place with the flights."""
    path = tmp_path_factory.mktemp("flights") / "flights.rillet"
    with ExitStack() as stack:
        if request.param in ("redis", "valkey"):
            judge = stack.enter_context(running_redis(binary=VALKEY if request.param == "valkey" else None))
            url = f"redis://127.0.0.1:{judge.port}"
            store = stack.enter_context(rillet.connect(url))
            inspected.fill(store, FLIGHTS)
            yield url
        elif request.param == "rillet":
            store = stack.enter_context(rillet.open(path))
            inspected.fill(store, FLIGHTS)
            yield stack.enter_context(store.serve()).url
        else:
            with rillet.open(path) as store:
                inspected.fill(store, FLIGHTS)
            yield str(path)


def test_each_view_on_each_place(driver: Any, where: str, axe: str, request: Any) -> None:
    with running(where) as inspector:
        pages = Pages(driver, inspector)
        for view, words in VIEWS.items():
            key = {} if view in ("overview", "console", "search") else {"key": "flights"}
            if view == "bytes":
                key = {"key": "flights:cancelled"}
            pages.open(view, **key)
            pages.see(*words)
            assert pages.faults(axe) == [], view
        assert pages.problems() == []


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rillet.Store]:
    with rillet.open(tmp_path_factory.mktemp("demo") / "flights.rillet") as store:
        inspected.fill(store, FLIGHTS)
        yield store


def test_both_schemes_and_phone_width(driver: Any, flights: rillet.Store, axe: str) -> None:
    assert flights.path is not None
    with running(flights.path) as inspector:
        pages = Pages(driver, inspector)
        pages.open("overview")
        pages.see("flights:cancelled", "zset", "default")
        pages.until(lambda: pages.script("return document.querySelector('.chart canvas') !== null"))
        pages.screenshot("inspector-overview")
        pages.open("stream", key="flights")
        pages.see("Exact counts", "1357035300000-0")
        pages.until(lambda: pages.script("return document.querySelector('.chart canvas') !== null"))
        pages.click("1357036800000-0")
        pages.until(lambda: len(pages.texts(".detail dd")) == 9)
        pages.screenshot("inspector-stream")
        pages.click("Dark", "button")
        pages.open("bytes", key="flights:cancelled")
        pages.see("master entry", "tombstone")
        pages.script("document.querySelectorAll('.unit')[2].querySelectorAll('.el')[1].dispatchEvent("
                     "new MouseEvent('mouseover', {bubbles: true}))")  # fmt: skip
        pages.see("The deltas are the ID minus the master ID")
        pages.screenshot("inspector-bytes", height=1180)
        assert pages.faults(axe) == []
        driver.set_window_size(390, 900)
        try:
            for view in VIEWS:
                pages.open(view, **({} if view in ("overview", "console", "search") else {"key": "flights"}))
                pages.see(*VIEWS[view][:1])
                assert pages.script("return document.documentElement.scrollWidth <= innerWidth + 1"), view
                assert pages.faults(axe) == [], view
            pages.open("groups", key="flights")
            pages.see("gate-7")
            pages.screenshot("inspector-phone", 420, 860)
        finally:
            driver.set_window_size(1360, 1043)
            pages.click("Light", "button")
        assert pages.problems() == []


def test_the_partitions_of_a_stream(driver: Any, flights: rillet.Store) -> None:
    orders = flights.partitioned("parts", 3, "n")
    orders.add_many({"n": n} for n in range(30))
    loop: Any = orders.group("billing").consumer("worker-7").messages(claim_idle=600)
    next(loop)
    first, second, _ = (stream.name for stream in orders.partitions())
    assert flights.path is not None
    with running(flights.path) as inspector:
        pages = Pages(driver, inspector)
        pages.open("groups", key=first)
        pages.see("Partitions of parts", "worker-7", "lease", "Partition 0 of parts, epoch 1")
        pages.click("1", "button.link")
        pages.see("Partition 1 of parts, epoch 1")
        loop.close()
        pages.open("groups", key=second)
        pages.see("no consumer")
        assert pages.problems() == []
    orders.delete()


def test_what_waits_in_a_stream(driver: Any, flights: rillet.Store) -> None:
    jobs = flights.stream("waiting")
    jobs.add({"n": 1, "customer": "ada"})
    jobs.add({"n": 2, "customer": "ada"}, delay=3600)
    jobs.add({"n": 3, "customer": "ada"})
    retried: Any = jobs.group("retries").consumer("w").messages(claim_idle=60)
    next(retried).retry(3600)
    ordered: Any = jobs.group("in order").consumer("w").messages(claim_idle=60, order_by="customer")
    next(ordered)
    assert flights.path is not None
    with running(flights.path) as inspector:
        pages = Pages(driver, inspector)
        pages.open("groups", key="waiting")
        pages.see("1 delayed entry waits. The next one is due", "and was added", "Retries")
        pages.click("in order", "button.link")
        pages.see("is in order by customer: 1 key has pending messages")
        assert pages.problems() == []
    retried.close()
    ordered.close()


def test_the_retention_of_a_stream(driver: Any, tmp_path: Path, axe: str) -> None:
    with rillet.open(tmp_path / "s.rillet", stream_memory="64kb") as store:
        events = store.stream("events")
        events.add_many((f"{n}-0", {"n": n, "text": "x" * 60}) for n in range(1, 3001))
        events.group("slow", "0").create()
        events.retain(entries=10, age=60)
        until(lambda: int(store.info()["stream_memory_used"]) <= 64 * 1024)
        with running(str(tmp_path / "s.rillet")) as inspector:
            pages = Pages(driver, inspector)
            pages.open("stream", key="events")
            pages.see("in segments on disk", "Kept for", "up to 10 entries", "what a group has not acknowledged",
                      "slow holds back 3,000 entries", "from 0-1 on")  # fmt: skip
            assert pages.faults(axe) == []
            assert pages.problems() == []


def test_a_live_tail_while_a_producer_writes(driver: Any, flights: rillet.Store) -> None:
    stream = flights.stream("live")
    stream.add({"n": "first"})
    stop = threading.Event()

    def produce() -> None:
        n = 0
        while not stop.wait(0.02):
            stream.add({"n": n, "parity": "even" if n % 2 == 0 else "odd"})
            n += 1

    assert flights.path is not None
    with running(flights.path) as inspector:
        pages = Pages(driver, inspector)
        pages.open("stream", key="live", live="1", where="parity=even")
        producer = threading.Thread(target=produce)
        producer.start()
        try:
            pages.until(lambda: len(pages.texts(".entries tbody tr")) >= 20)
            assert set(pages.script("return [...document.querySelectorAll('.entries tbody tr')].map("
                                    "(one) => one.children[3].innerText)")) == {"even"}  # fmt: skip
            pages.click("Pause", "button")
            before = pages.texts(".entries tbody tr")
            pages.until(lambda: any("held" in text for text in pages.texts("button")))
            assert pages.texts(".entries tbody tr") == before
            pages.script("[...document.querySelectorAll('button')].find("
                         "(one) => one.innerText.startsWith('Resume')).click()")  # fmt: skip
            pages.until(lambda: len(pages.texts(".entries tbody tr")) > len(before))
            pages.screenshot("inspector-live")
        finally:
            stop.set()
            producer.join()
        assert pages.problems() == []


def test_find_a_stuck_consumer_and_claim_its_entries(driver: Any, flights: rillet.Store, axe: str) -> None:
    stream = flights.stream("orders")
    stream.add_many([{"order": n} for n in range(40)])
    group = stream.group("billing")
    messages = group.consumer("stuck").read(30)
    group.consumer("fine").read(5)
    # As if the deliveries were two hours ago; XCLAIM with IDLE is what a test can do about time.
    flights.execute("XCLAIM", "orders", "billing", "stuck", 0, *(str(one.id) for one in messages),
                    "IDLE", 7_200_000, "JUSTID")  # fmt: skip
    assert flights.path is not None
    with running(flights.path, write=True) as inspector:
        pages = Pages(driver, inspector)
        pages.open("overview")
        pages.see("orders", "2.0 h")  # the overview shows the age of the oldest pending entry
        pages.open("groups", key="orders")
        pages.see("billing", "stuck", "2.0 h")
        pages.screenshot("inspector-groups", height=1000)
        pages.click("stuck", "button.link")
        pages.until(lambda: len(pages.texts("table input[type=checkbox]")) == 30)
        pages.click("Select 30", "button")
        pages.click("Claim", "button")
        pages.until(lambda: pages.script("return document.querySelector('dialog[open]') !== null"))
        pages.type("#action-field", "rescue")
        pages.until(lambda: "XCLAIM orders billing rescue 0 " in pages.text("dialog"))
        assert pages.faults(axe) == []
        pages.screenshot("inspector-claim")
        assert group.pending(consumer="rescue") == []  # a preview changes nothing
        pages.click("Claim", "dialog button")
        pages.see("Claim: done")
        assert len(group.pending(consumer="rescue")) == 30
        assert pages.problems() == []


def test_the_bytes_equal_those_of_dump(driver: Any) -> None:
    if not redis_binary():
        pytest.skip("needs redis-server")
    with running_redis() as judge:
        client = judge.client()
        for n in range(30):
            client.execute_command("XADD", "s", f"{1000 + n}-{n % 3}", "n", n, "text", "t" * n)
        client.execute_command("XDEL", "s", "1003-0")
        payload = client.execute_command("DUMP", "s")
        with running(f"redis://127.0.0.1:{judge.port}") as inspector:
            pages = Pages(driver, inspector)
            pages.open("bytes", key="s")
            pages.see("master entry")
            shown = bytes.fromhex("".join(pages.texts(".bytes .by")).replace(" ", ""))
    assert int.from_bytes(shown[:4], "little") == len(shown)
    from rillet.inspector.layout.payload import read_payload

    (block,) = read_payload(payload).blocks
    assert shown == block.data


def test_the_steps_of_an_append_over_the_bytes(driver: Any, axe: str) -> None:
    with rillet.open() as store, store.serve() as server, running(server.url) as inspector:
        for n in range(3):
            store.stream("s").add({"sensor": n, "temp": "warm"}, id=f"{1000 + n}-0")
        pages = Pages(driver, inspector)
        pages.open("bytes", key="s")
        pages.see("How an entry was added", "1. The ID.", "It follows 1001-0")
        lengths = []
        for name in ("2. The node.", "3. The count.", "4. The entry."):
            pages.click("Next step", "button")
            pages.see(name)
            shown = "".join(pages.texts("[aria-labelledby=h-steps] .bytes .by")).replace(" ", "")
            lengths.append(len(shown) // 2)
        whole = "".join(pages.texts("[aria-labelledby=h-bytes] .bytes .by")).replace(" ", "")
        assert shown == whole
        assert lengths[0] == lengths[1] < lengths[2]
        assert pages.texts("[aria-labelledby=h-steps] .el.changed")
        assert pages.faults(axe) == []
        assert pages.problems() == []


def test_scrolling_a_million_entries(driver: Any, tmp_path: Path) -> None:
    with rillet.open(tmp_path / "large.rillet") as store:
        stream = store.stream("large")
        for start in range(0, 1_000_000, 50_000):
            some = range(start, start + 50_000)
            stream.add_many([(f"{1_700_000_000_000 + n}-0", {"n": n}) for n in some], batch=10_000)
        assert store.path is not None
        with running(store.path) as inspector:
            pages = Pages(driver, inspector)
            pages.open("stream", key="large")
            pages.see("1,000,000 entries", "1700000000000-0")
            box = "const box = document.querySelector('.entries');"
            last = 0
            for _ in range(15):
                pages.script(f"{box} box.scrollTop = box.scrollHeight")

                def further(last: int = last) -> Any:
                    ids = pages.texts(".entries tbody tr:last-child button")
                    now = int(ids[0].split("-")[0]) - 1_700_000_000_000 if ids else 0
                    return now if now > last else 0

                last = pages.until(further)
            assert last >= 1000
            assert len(pages.texts(".entries tbody tr")) <= 400
            # Back up again, beyond what is kept.
            pages.until(lambda: pages.script(f"{box} box.scrollTop = 0; return true")
                        and pages.texts(".entries tbody tr:first-child button") == ["1700000000000-0"])  # fmt: skip
            pages.click("Last", "button")
            pages.until(lambda: pages.texts(".entries tbody tr:last-child button") == ["1700000999999-0"])
            pages.type("#jump", "1700000500000")
            pages.click("Go", "button")
            pages.see("1700000500000-0 to ", "entry 500,001 of 1,000,000")
            assert pages.problems() == []


def test_hostile_names_and_values_harm_nothing(driver: Any, tmp_path: Path) -> None:
    with rillet.open(tmp_path / "hostile.rillet") as store:
        hostile(store)
        names = [one.name for one in store.streams()]
        assert store.path is not None
        with running(store.path) as inspector:
            pages = Pages(driver, inspector)
            pages.open("overview")
            pages.see("Streams", "<script>")
            for name in names:
                from rillet.inspector.text import to_text

                key = to_text(name.encode("utf-8", "surrogateescape"))
                words = {"groups": "Pending workbench", "bytes": "master entry", "keys": "The entries",
                         "letters": "By origin and reason", "stream": "1795000000000-0"}  # fmt: skip
                for view, word in words.items():
                    pages.open(view, key=key)
                    pages.see(word)
                pages.click("1795000000000-0")
                pages.until(lambda: pages.script("return document.querySelectorAll('.detail dd').length === 2"))
                assert pages.script("return window.harmed") is None
            assert pages.problems() == []


def test_console_and_search(driver: Any, flights: rillet.Store) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    assert flights.path is not None
    with running(flights.path) as inspector:
        pages = Pages(driver, inspector)
        pages.open("console")
        pages.see("commands. Help appears")
        field = driver.find_element(By.ID, "line")
        field.send_keys("xinfo st")
        pages.until(lambda: "xinfo stream" in pages.texts("#options li"))
        field.send_keys(Keys.TAB)
        field.send_keys("flights")
        pages.see("XINFO STREAM key")
        field.send_keys(Keys.ENTER)
        pages.see("radix-tree-keys")
        field.send_keys("set a b", Keys.ENTER)
        pages.see("start the inspector with --write")
        field.send_keys(Keys.ARROW_UP, Keys.ARROW_UP)
        assert field.get_attribute("value") == "xinfo stream flights"
        pages.screenshot("inspector-console")
        pages.open("search", key="flights")
        pages.type("#where", "dest=HNL, dep_delay>60")
        pages.click("Search", "form.stack button")
        pages.see("found among 20,000")
        pages.screenshot("inspector-search")
        assert pages.problems() == []


def test_the_first_paint_is_early(driver: Any, flights: rillet.Store) -> None:
    """The browser's own figures, for the report: the page has its frame with the first paint, before any data."""
    assert flights.path is not None
    with running(flights.path) as inspector:
        pages = Pages(driver, inspector)
        driver.get(inspector.base + "/#/overview")
        pages.until(lambda: pages.script("return performance.getEntriesByName('first-contentful-paint').length"))
        paint = pages.script("return performance.getEntriesByName('first-contentful-paint')[0].startTime")
        print(f"first contentful paint: {paint:.0f} ms")
        resources = pages.script("return performance.getEntriesByType('resource').map((one) => one.name)")
        assert all(name.startswith(inspector.base) for name in resources)
