"""`behind` and `lost` in a query's progress, compared with the true numbers of entries, on four kinds of servers."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import rillet
from rillet.spark.read.entry_counts import Counted, CountInterval
from rillet.spark.read.stream_info import StreamInfo
from rillet.types.stream.id import StreamID
from tests.spark.calls import Query, server, stopped  # noqa: F401
from tests.variants import by_speed, long

pytestmark = [pytest.mark.usefixtures("stopped"), pytest.mark.peer]

DAY = 86_400_000
NOW = 1_700_000_000_000
RANKS = ("rillet",)  # the servers that return the rank of an ID
ID = tuple[int, int]


KINDS = ("7.0", "rillet", "newest", "valkey")


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def place(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Servers of each kind, one after the other."""
    with server(kind, tmp_path_factory.mktemp(kind)) as url:
        yield url


@pytest.fixture
def client(place: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(place) as connected:
        connected.response_callbacks.pop("XRANGE")  # redis-py makes a dictionary of each entry
        connected.flushall()
        yield connected


# One reply for thousands of entries: a pipeline of redis-py takes ten times as long.
ADD = "for i = 2, #ARGV do redis.call('XADD', KEYS[1], ARGV[i], 'n', ARGV[1] + i - 2) end"


def add(client: redis.Redis, ids: Sequence[ID]) -> None:
    for start in range(0, len(ids), 5000):
        client.eval(ADD, 1, "events", start, *(f"{ms}-{seq}" for ms, seq in ids[start : start + 5000]))


def after(client: redis.Redis, offset: str) -> int:
    """Return how many entries of the stream follow an ID."""
    return len(client.execute_command("XRANGE", "events", f"({offset}", "+"))


def bounds(report: dict[str, Any]) -> tuple[int, int]:
    """Return the interval that a report states for `behind`; check that its marks agree with it."""
    behind = report["behind"].get("events", 0)
    least, most = report.get("behindBetween", {}).get("events", (behind, behind))
    assert least <= behind <= most
    assert (least < most) == ("events" in report.get("estimated", ()))
    return least, most


def lost_bounds(query: Query) -> tuple[int, int | None]:
    """Return the bounds of the lost entries; check that a stream is unsure exactly if they differ."""
    guard = query.reader.follower.guard
    lost = guard.lost.get("events", 0)
    if "events" not in guard.unsure:
        return lost, lost
    assert "events" in guard.unbounded or guard.lost_at_most["events"] > lost
    return lost, guard.lost_at_most.get("events")


def behind_of_each_batch(client: redis.Redis, query: Query) -> list[tuple[int, int, int]]:
    """Run a query to the end; return the true number and the reported bounds after each batch."""
    found = []
    while query.plan():
        report = query.reader.reportLatestOffset()
        found.append((after(client, query.checkpoint["planned"]["streams"]["events"]), *bounds(report)))
        query.read()
        query.commit()
    return found


def test_a_capped_batch_far_from_the_end(kind: str, place: str, client: redis.Redis) -> None:
    """50,000 evenly spaced entries, and one a month later."""
    add(client, [(NOW + 10 * n, 0) for n in range(50_000)] + [(NOW + 30 * DAY, 0)])
    found = behind_of_each_batch(client, Query(place, maxEntriesPerTrigger="10000"))
    if kind in RANKS:
        assert found == [(n, n, n) for n in (40_001, 30_001, 20_001, 10_001, 1, 0)]
    assert len(found) >= 5
    assert found[-1] == (0, 0, 0)
    assert all(least <= true <= most for true, least, most in found)


def test_the_estimate_after_an_estimated_cap_is_near(place: str, client: redis.Redis) -> None:
    add(client, [(NOW + 10 * n, 0) for n in range(50_000)] + [(NOW + 30 * DAY, 0)])
    query = Query(place, maxEntriesPerTrigger="10000")
    for _ in range(4):
        assert query.plan()
        true = after(client, query.checkpoint["planned"]["streams"]["events"])
        assert abs(query.reader.reportLatestOffset()["behind"]["events"] - true) <= 2500
        query.commit()


def test_a_counted_batch_keeps_its_count(place: str, client: redis.Redis) -> None:
    """Two bursts of 5,000 entries, two days apart, read by 2,000."""
    bursts = [(NOW + n // 50, n % 50) for n in range(5000)]
    add(client, bursts + [(ms + 2 * DAY, seq) for ms, seq in bursts])
    query = Query(place, maxEntriesPerTrigger="2000")
    assert behind_of_each_batch(client, query) == [(n, n, n) for n in (8000, 6000, 4000, 2000, 0)]


def test_counts_of_exact_triggers_are_exact(place: str, client: redis.Redis) -> None:
    add(client, [(NOW + n * n, 0) for n in range(20_000)])
    query = Query(place, maxEntriesPerTrigger="7000", exactTriggers="true")
    assert behind_of_each_batch(client, query) == [(n, n, n) for n in (13_000, 6000, 0)]


def test_a_count_survives_a_restart_and_old_deletions(place: str, client: redis.Redis) -> None:
    add(client, [(NOW + n, 0) for n in range(3000)])
    client.xdel("events", *(f"{NOW + n}-0" for n in range(500, 3000, 100)))
    query = Query(place, maxEntriesPerTrigger="1000")
    query.batch()
    query = query.restarted()
    left = after(client, query.checkpoint["committed"]["streams"]["events"])
    query.reader.initialOffset()
    assert query.plan()
    assert bounds(query.reader.reportLatestOffset()) == (left - 1000, left - 1000)


# ---- a model ----------------------------------------------------------------------------------------------------

CAPS = ("700", "6000", "")
SHAPES = {
    "even": lambda rng, n: [(NOW + 7 * i, 0) for i in range(n)],
    "one millisecond": lambda rng, n: [(NOW, i) for i in range(n)],
    "skewed": lambda rng, n: sorted({(NOW + int(1e6 * rng.random() ** 8), rng.randrange(50)) for _ in range(n)}),
    "bursty": lambda rng, n: sorted({
        (NOW + burst * rng.randrange(1, 10**6), rng.randrange(5000)) for burst in range(1, 40) for _ in range(n // 40)
    }),
    "two bursts": lambda rng, n: [(NOW + 2 * DAY * (2 * i // n) + i // 20, i) for i in range(n)],
}  # fmt: skip


class Model:
    """A stream, the IDs that it holds, and what a query has missed; `change` does something at random to it."""

    def __init__(self, client: redis.Redis, rng: random.Random, ids: list[ID]) -> None:
        self.client, self.rng = client, rng
        add(client, ids)
        self.ids = ids
        self.top = ids[-1]

    def change(self) -> None:
        """Append, delete or trim some entries."""
        rng = self.rng
        what = rng.choice(["append", "burst", "delete", "delete the last", "trim", "trim about", "nothing"])
        if what in ("append", "burst"):
            step = 0 if what == "burst" else rng.choice([1, 1000, DAY])
            new = [(self.top[0] + step * n, self.top[1] + n + 1) for n in range(rng.randrange(1, 800))]
            add(self.client, new)
            self.ids += new
            self.top = new[-1]
        elif what == "delete" and self.ids:
            chosen = rng.sample(self.ids, min(len(self.ids), rng.randrange(1, 60)))
            self.client.xdel("events", *(f"{ms}-{seq}" for ms, seq in chosen))
        elif what == "delete the last" and self.ids:
            self.client.xdel("events", "{}-{}".format(*self.ids[-1]))
        elif what.startswith("trim") and self.ids:
            keep = rng.randrange(len(self.ids) // 2, len(self.ids) + 1)
            self.client.xtrim("events", maxlen=keep, approximate=what == "trim about")
        self.look()

    def look(self) -> None:
        """Read which entries the stream holds."""
        found = [entry[0].decode().split("-") for entry in self.client.execute_command("XRANGE", "events", "-", "+")]
        self.ids = [(int(ms), int(seq)) for ms, seq in found]


def ids_read(query: Query) -> list[ID]:
    parts = query.reader.partitions(query.checkpoint["committed"], query.checkpoint["planned"])
    found = [text for part in parts for batch in query.reader.read(part) for text in batch.column("id").to_pylist()]
    return [(int(text.split("-")[0]), int(text.split("-")[1])) for text in found]


def capped(url: str, cap: str) -> Query:
    """Return a query that counts lost entries; an empty cap is none."""
    if cap:
        return Query(url, failOnDataLoss="false", maxEntriesPerTrigger=cap)
    return Query(url, failOnDataLoss="false")


def pair(text: str) -> ID:
    ms, _, seq = text.partition("-")
    return int(ms), int(seq)


def _walks() -> list[Any]:
    """Return kinds, shapes, caps and seeds; `make test` takes one cap and two kinds of each shape."""
    every = [(kind, shape, cap, seed) for kind in KINDS for shape in SHAPES for cap in CAPS for seed in range(6)]
    short = [
        (kind, shape, CAPS[at % len(CAPS)], 0)
        for number, kind in enumerate(KINDS) for at, shape in enumerate(SHAPES) if (number + at) % 2
    ]  # fmt: skip
    return short + long(*(one for one in every if one not in short))


@pytest.mark.parametrize(("kind", "shape", "cap", "seed"), _walks(), indirect=["kind"])
def test_intervals_contain_the_true_numbers(
    kind: str, place: str, client: redis.Redis, shape: str, cap: str, seed: int
) -> None:
    """A query falls behind a stream that changes at random; each entry is read or lost or still ahead."""
    rng = random.Random(f"{shape} {cap} {seed}")
    client.flushall()
    model = Model(client, rng, SHAPES[shape](rng, rng.choice([3000, 9000])))
    query = capped(place, cap)
    appended, seen = set(model.ids), set()
    started = False
    for step in range(7):
        if started and rng.random() < 0.8:
            model.change()
            appended |= set(model.ids)
        if rng.random() < 0.15 and "committed" in query.checkpoint:
            seen |= {one for one in appended if one <= pair(query.checkpoint["committed"]["streams"]["events"])}
            query = query.restarted()
        if not query.plan():
            continue
        started = True
        end = pair(query.checkpoint["planned"]["streams"]["events"])
        true = sum(one > end for one in model.ids)
        least, most = bounds(query.reader.reportLatestOffset())
        where = f"{shape}, cap {cap}, seed {seed}, step {step}"
        assert least <= true <= most, where
        if kind in RANKS:
            assert least == most, where
        if rng.random() < 0.3:
            model.change()  # while the batch runs
            appended |= set(model.ids)
        seen |= set(ids_read(query))
        query.commit()
        start = pair(query.checkpoint["committed"]["streams"]["events"])
        least, most = bounds(query.reader.reportLatestOffset())
        true = sum(one > start for one in model.ids)
        assert least <= true <= most, f"{where}, later"


def _losses() -> list[Any]:
    """Return kinds, caps and seeds; `make test` takes each cap on two kinds."""
    every = [(kind, cap, seed) for kind in KINDS for cap in CAPS for seed in range(8)]
    short = [(kind, cap, 0) for number, kind in enumerate(KINDS) for at, cap in enumerate(CAPS) if (number + at) % 2]
    return short + long(*(one for one in every if one not in short))


@pytest.mark.parametrize(("kind", "cap", "seed"), _losses(), indirect=["kind"])
def test_bounds_of_lost_entries_contain_the_true_number(place: str, client: redis.Redis, cap: str, seed: int) -> None:
    rng = random.Random(f"{cap} {seed}")
    model = Model(client, rng, SHAPES[rng.choice(sorted(SHAPES))](rng, 9000))
    appended, read = set(model.ids), set()
    query = capped(place, cap)
    for _ in range(by_speed(9, 9, 12)):
        if query.plan():
            if rng.random() < 0.4:
                model.change()  # after the planning, before the tasks read
                appended |= set(model.ids)
            read |= set(ids_read(query))
            query.commit()
            if rng.random() < 0.7:
                model.change()
                appended |= set(model.ids)
    query.plan()
    query.checkpoint.pop("planned", None)
    missing = len({one for one in appended if one <= model.top} - read - set(model.ids))
    least, most = lost_bounds(query)
    assert most is not None
    assert least <= missing <= most


def test_bounds_under_a_live_trimming_writer(place: str, client: redis.Redis) -> None:
    """A writer keeps about 4,000 entries and is faster than the query."""
    total, stop = [0], threading.Event()

    def write() -> None:
        with redis.Redis.from_url(place) as writing:
            while not stop.is_set():
                pipe = writing.pipeline(transaction=False)
                for n in range(500):
                    pipe.xadd("events", {"n": total[0] + n}, maxlen=4000, approximate=True)
                pipe.execute()
                total[0] += 500

    thread = threading.Thread(target=write)
    thread.start()
    read = batches = 0
    query = Query(place, failOnDataLoss="false", maxEntriesPerTrigger="3000")
    try:
        while batches < 40 or (query.lost.get("events", 0) == 0 and batches < 400):
            if client.exists("events") and query.plan():
                while batches % 3 == 0 and total[0] < 20_000 * (batches + 1) // 10:
                    stop.wait(0.001)  # the batch waits for a free core
                read += len(query.read())
                query.commit()
                batches += 1
    finally:
        stop.set()
        thread.join()
    while query.plan():
        read += len(query.read())
        query.commit()
    missing = total[0] - read
    least, most = lost_bounds(query)
    assert most is not None
    assert 0 < least <= missing <= most


def test_an_embedded_store_counts_exactly(tmp_path: Path) -> None:
    path = str(tmp_path / "events.rillet")
    with rillet.open(path) as store:
        events = store.stream("events")
        for n in range(6000):
            events.add({"n": str(n)}, id=f"{NOW + n * n}-0")
        query = Query("", path=path, maxEntriesPerTrigger="1000")
        found = []
        while query.plan():
            found.append(bounds(query.reader.reportLatestOffset()))
            query.commit()
        assert found == [(n, n) for n in (5000, 4000, 3000, 2000, 1000, 0)]
        query.reader.stop()


# ---- the arithmetic ---------------------------------------------------------------------------------------------


class Ledger:
    """A stream by its definition: every entry ever added, and the entries that it holds."""

    def __init__(self) -> None:
        self.every: list[int] = []
        self.held: list[int] = []
        self.deleted = 0

    def info(self) -> StreamInfo:
        held, every = self.held, self.every
        return StreamInfo(
            len(held), StreamID(held[0], 0) if held else None, StreamID(every[-1] if every else 0, 0), len(every),
            StreamID(self.deleted, 0), False, StreamID(held[-1], 0) if held else None,
        )  # fmt: skip

    def apply(self, step: tuple[str, int]) -> None:
        what, n = step
        if what == "add":
            new = range(len(self.every) + 1, len(self.every) + n + 1)
            self.every += new
            self.held += new
        elif what == "trim":
            self.held = self.held[n:]
        elif self.held:
            chosen = self.held.pop(n % len(self.held))
            self.deleted = max(self.deleted, chosen)


STEPS = st.lists(st.tuples(st.sampled_from(["add", "trim", "delete"]), st.integers(1, 6)), max_size=12)


@given(STEPS, st.integers(0, 40), STEPS, st.booleans(), st.tuples(st.integers(0, 3), st.integers(0, 3)))
def test_counters_bound_what_follows_and_what_was_lost(before, at, later, remembers: bool, slack) -> None:
    ledger = Ledger()
    for step in before:
        ledger.apply(step)
    then = ledger.info()
    at = min(at, len(ledger.every))
    followed = [n for n in ledger.held if n > at]
    added = len(ledger.every) - len(followed)
    counted = Counted(
        StreamID(at, 0), CountInterval(added - slack[0], added + slack[1]),
        then.removed if remembers else None, then.deleted,
    )  # fmt: skip
    for step in later:
        ledger.apply(step)
    now = ledger.info()
    behind = [n for n in ledger.held if n > at]
    assert then.added is not None
    lost = len(followed) + len(ledger.every) - then.added - len(behind)
    interval = counted.behind(now)
    assert interval.least <= len(behind) <= interval.most
    bounds = counted.lost(now)
    assert bounds is not None
    assert bounds.least <= lost <= bounds.most
    if slack == (0, 0) and (now.all_after(counted.after) or ledger.deleted <= at):
        assert interval.exact
        assert bounds.exact
    unknown = Counted(StreamID(at, 0))
    assert unknown.behind(now).least <= len(behind) <= unknown.behind(now).most
