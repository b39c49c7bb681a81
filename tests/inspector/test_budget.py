"""The bound on the cost at rest, with a clock that the test moves; honest estimates of sizes."""

from __future__ import annotations

import random
import statistics
from pathlib import Path

import pytest

import rillet
from rillet.inspector import budget
from rillet.inspector.budget import SHARE, Budget, pause_after
from rillet.inspector.place import InspectedPlace
from rillet.inspector.sampling import Sampler, TypeSample
from rillet.inspector.search import search_entries, search_keys

pytestmark = pytest.mark.once


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
        with account.resting():
            clock.now += seconds
        busy += seconds
        assert account.figures()["rest"] <= SHARE
        clock.now += account.pause()
        assert busy / (clock.now - began) <= SHARE
    with account.asking():
        clock.now += 1.0
    figures = account.figures()
    assert figures["requests"] == 1
    assert figures["asked"] > 0
    assert figures["rest"] <= SHARE


def test_the_pause_of_a_search() -> None:
    assert pause_after(0.1, 0.25) == pytest.approx(0.3)


def test_an_estimate_and_its_interval() -> None:
    """The interval of 95 % contains the true total about as often as it says."""
    chance = random.Random(2)
    sizes = [chance.randint(50, 5000) for _ in range(2000)]
    hits = 0
    for _ in range(200):
        sample = TypeSample(keys=len(sizes))
        for size in chance.sample(sizes, 100):
            sample.add(size)
        found = sample.as_dict()
        hits += abs(found["bytes"] - sum(sizes)) <= found["error"]
    assert hits >= 180
    whole = TypeSample(keys=3)
    for size in (10, 20, 30):
        whole.add(size)
    assert whole.as_dict() == {"keys": 3, "measured": 3, "bytes": 60, "error": 0}
    assert TypeSample(keys=5).as_dict() == {"keys": 5, "measured": 0, "bytes": None, "error": None}
    one = TypeSample(keys=5)
    one.add(7)
    assert one.as_dict()["error"] is None
    assert statistics.mean(sizes) > 0


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
                sampler.version += 1
            found = sampler.snapshot()
            assert found["keys"]["types"]["string"]["keys"] == 3000
            assert found["keys"]["types"]["string"]["error"] > 0
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
