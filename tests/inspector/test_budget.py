"""The bound on the cost at rest, with a clock that the test moves; what the sampler finds, and in which order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import rillet
from rillet.inspector import budget, scanning
from rillet.inspector.budget import SEARCH_SHARE, SHARE, Budget, pause_after
from rillet.inspector.place import InspectedPlace
from rillet.inspector.sampling import Sampler
from rillet.inspector.search import search_entries, search_keys
from rillet.inspector.stats_texts import known_streams, stream_cells


class Time:
    """A clock in place of `monotonic`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_steps_at_rest_keep_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Time()
    monkeypatch.setattr(budget, "monotonic", clock)
    account = Budget()
    chance = random.Random(1)
    began, busy = clock.now, 0.0
    for _ in range(400):
        seconds = chance.choice((0.0005, 0.002, 0.05, 0.4))
        with account.asking(at_rest=True):
            clock.now += seconds
        busy += seconds
        assert account.stats()["rest"] <= SHARE
        clock.now += account.pause()
        assert busy / (clock.now - began) <= SHARE
    with account.asking():
        clock.now += 1.0
    stats = account.stats()
    assert stats["requests"] == 1
    assert stats["asked"] > 0
    assert stats["rest"] <= SHARE


def test_the_pause_of_a_search() -> None:
    assert pause_after(0.1, 0.25) == pytest.approx(0.3)


@contextmanager
def sampling(store: rillet.Store) -> Iterator[Sampler]:
    """Yield a sampler of a store that does a step when the test says so."""
    place = InspectedPlace(store.path or "")
    try:
        yield Sampler(place)
    finally:
        place.close()


def test_streams_are_found_before_the_keys_are_counted(tmp_path: Path) -> None:
    """Two streams among many keys are listed at once; until then the figures say how many keys were searched."""
    with rillet.open(tmp_path / "s.rillet") as store:
        store.execute("MSET", *(word for n in range(6900) for word in (f"key:{n}", n)))
        store.stream("short").add({"f": "v"})
        store.stream("long").add_many([{"n": n} for n in range(50)])
        with sampling(store) as sampler:
            steps, shares = 0, []
            while not sampler.has_streams():
                sampler.step()
                found = sampler.snapshot()
                shares.append(found["find"]["seen"])
                steps += 1
            assert steps <= 40
            assert shares == sorted(shares)
            assert 0 < shares[len(shares) // 2] < 6902 == shares[-1]
            assert [(row["name"], row["length"]) for row in found["streams"]] == [("long", 50), ("short", 1)]
            assert all(row["age"] is not None for row in found["streams"])
            assert not found["keys"]["complete"]
            # A new stream is found, and a deleted one disappears, while the pass over the keys goes on.
            store.stream("new").add({"f": "v"})
            store.execute("DEL", "long")
            sampler._next_find = 0.0
            while {row["name"] for row in sampler.snapshot()["streams"]} != {"new", "short"}:
                sampler.step()


def test_a_stream_that_was_found_is_listed_before_its_figures_are_read(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s.rillet") as store:
        for n in range(9):
            store.stream(f"s{n}").add_many([{"n": n}] * (n + 1))
        with sampling(store) as sampler:
            while not (found := sampler.snapshot())["streams"]:
                sampler.step()
            rows = [(row["name"], row["length"]) for row in found["streams"]]
            assert rows == [(f"s{n}", n + 1) for n in range(8, -1, -1)]
            unread = [row for row in found["streams"] if row["age"] is None]
            assert len(unread) == 5
            assert stream_cells(unread[0]) == (unread[0]["name"], f"{unread[0]['length']}", *["…"] * 6)
            while len(unread) == 5:
                sampler.step()
                found = sampler.snapshot()
                unread, before = [row for row in found["streams"] if row["age"] is None], unread
            assert [row["name"] for row in unread] == [before[-1]["name"]]  # the longest are read first


def test_of_very_many_streams_the_longest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "STREAMS", 5)
    with rillet.open(tmp_path / "s.rillet") as store:
        for n in range(30):
            store.stream(f"s{n:02}").add_many([{"n": n}] * (n + 1))
        with sampling(store) as sampler:
            while not sampler.has_streams():
                sampler.step()
            found = sampler.snapshot()
            assert [row["name"] for row in found["streams"]] == ["s29", "s28", "s27", "s26", "s25"]
            assert known_streams(found) == "the 5 longest of 30 streams"


def test_every_key_is_measured_and_has_one_size(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s.rillet") as store:
        store.execute("MSET", *(word for n in range(500) for word in (f"key:{n}", "x" * (n % 50))))
        store.execute("SET", "largest", "x" * 300_000)
        store.stream("s").add_many([{"n": n, "text": "t" * 20} for n in range(3000)])
        with sampling(store) as sampler:
            while not (sampler.snapshot()["keys"]["complete"] and sampler.has_streams()):
                sampler.step()
            found = sampler.snapshot()
            keys = found["keys"]
            assert keys["types"]["string"]["keys"] == keys["types"]["string"]["measured"] == 501
            sizes = [store.execute("MEMORY", "USAGE", key) for key in store.keys(kind="string")]
            assert keys["types"]["string"]["bytes"] == sum(sizes)
            largest = [(row["key"], row["bytes"]) for row in keys["largest"]]
            assert largest[:2] == [("largest", max(sizes)), ("s", found["streams"][0]["bytes"])]
            assert len({key for key, _ in largest}) == len(largest) == 20


def test_the_first_pass_ends_and_then_the_sampler_is_at_rest(tmp_path: Path) -> None:
    with rillet.open(tmp_path / "s.rillet") as store:
        store.execute("MSET", *(word for n in range(1500) for word in (f"key:{n}", n)))
        store.stream("s").add({"f": "v"})
        with sampling(store) as sampler:
            with sampler.watch():
                version = 0
                while not sampler.snapshot()["budget"]["steps"]:  # a step at rest
                    version = sampler.wait(version, 60)
            found = sampler.snapshot()
            assert found["keys"]["complete"]
            assert found["find"]["complete"]
            assert found["budget"]["asked"] <= SEARCH_SHARE
            sampler.close()


def test_steps_are_small(tmp_path: Path) -> None:
    """No step of the sampler or of a search sends a command whose reply grows with the number of keys or entries."""
    with rillet.open(tmp_path / "s.rillet") as store:
        store.execute("MSET", *(word for n in range(3000) for word in (f"key:{n}", n)))
        store.stream("s").add_many([{"n": n} for n in range(3000)])
        place = InspectedPlace(store.path or "")
        try:
            counted: list[int] = []
            inner = place.store()
            run = inner.run
            inner.run = lambda argv, *more: _counted(run(argv, *more), counted)  # type: ignore[method-assign]
            sampler = Sampler(place)
            while not sampler.snapshot()["keys"]["complete"]:
                sampler.step()
            found = sampler.snapshot()
            assert found["keys"]["types"]["string"]["keys"] == 3000
            assert max(counted) <= 250
            counted.clear()
            pauses: list[float] = []
            assert sum("found" in one for one in search_keys(place, b"key:12*", None, pauses.append)) == 111
            assert len(pauses) > 20
            assert max(counted) <= 250
            list(search_entries(place, b"s", [], "-", "+", pauses.append))
            assert max(counted) <= 1000
        finally:
            place.close()


def _counted(reply: object, counts: list[int]) -> object:
    rows = reply[1] if isinstance(reply, list) and len(reply) == 2 and isinstance(reply[1], list) else reply
    counts.append(len(rows) if isinstance(rows, list) else 1)
    return reply
