"""The file that declares an aggregation: TOML, read as a whole, and everything wrong with it said at once.

    [source]                                      the options of the source; or  parquet = "folder"
    url = "redis://localhost"
    stream = "flights"
    schema = "carrier string, dep_delay double"   the fields that are used, with their types

    [window]
    size = "1 hour"
    slide = "15 minutes"                          windows that overlap; without it they do not
    watermark = "2 hours"                         how late an entry may come; default: not at all
    time = "timestamp"                            the column that says when; default: the ID's time

    [rows]
    where = "dep_delay is not null"               which rows count
    group_by = ["origin", "carrier"]              columns, or name = expression in [rows.group_by]

    [measures]
    flights = { kind = "count" }
    late    = { kind = "count", where = "dep_delay > 15" }
    a_minute = { kind = "rate", per = "1 minute" }
    delay   = { kind = "mean", of = "dep_delay" }
    p95     = { kind = "quantile", of = "dep_delay", at = 0.95 }

    [[output]]
    parquet = "delays"
    [[output]]
    stream = "delays"                             and a url or path, else the source's

A complaint names its place as the file has it: measures.p95.at. What only Spark can tell (a column that is not there)
is said by `aggregate.py`, again for all expressions at once.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rillet.errors import RilletError
from rillet.spark.options import OptionError, parse

_UNITS = {
    "ms": 1, "millisecond": 1, "s": 1000, "second": 1000, "m": 60_000, "minute": 60_000, "h": 3_600_000,
    "hour": 3_600_000, "d": 86_400_000, "day": 86_400_000, "week": 604_800_000,
}  # fmt: skip
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OF_A_COLUMN = ("sum", "mean", "min", "max", "stddev", "distinct", "quantile")
KINDS = ("count", "rate", *OF_A_COLUMN)
WINDOW_COLUMNS = ("window_start", "window_end")


class DeclarationError(RilletError):
    """A file of declarations cannot be used; the text names everything that is wrong, with its place."""


@dataclass(frozen=True)
class Measure:
    """A column of the result."""

    name: str
    kind: str
    of: str = ""
    where: str | None = None
    at: float = 0.5
    accuracy: int = 10_000
    per_ms: int = 1000


@dataclass(frozen=True)
class Output:
    """Where the result goes: a folder of Parquet files, or a stream with the sink's options."""

    parquet: str | None
    options: dict[str, str]


@dataclass(frozen=True)
class Declared:
    """An aggregation, checked as far as that goes without its data."""

    place: str
    source: dict[str, str]
    parquet: str | None
    schema: str | None
    time: str
    size_ms: int
    slide_ms: int | None
    watermark_ms: int
    where: str | None
    groups: dict[str, str]  # name -> expression
    measures: tuple[Measure, ...]
    outputs: tuple[Output, ...]


def load(path: str | Path) -> Declared:
    """Read a file of declarations."""
    try:
        return read(Path(path).read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise DeclarationError(f"rillet: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DeclarationError(f"rillet: {path} is no UTF-8") from None


def read(text: str, place: str = "the declaration") -> Declared:
    """Read declarations; DeclarationError names all that is wrong with them."""
    try:
        told = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DeclarationError(f"rillet: {place} is no TOML: {error}") from None
    reader = _Reader(place)
    found = reader.everything(told)
    if reader.wrong:
        raise DeclarationError(f"rillet: {place}: " + "; ".join(reader.wrong))
    return found


def duration(text: str) -> int:
    """Return milliseconds, of "500 ms", "1 hour", "15 minutes", "1d"."""
    found = _DURATION.fullmatch(text.strip().lower())
    unit = None if found is None else _UNITS.get(found[2], _UNITS.get(found[2].removesuffix("s")))
    if found is None or unit is None:
        raise ValueError('no duration like "30 seconds", "15 minutes", "1 hour", "1 day"')
    return round(float(found[1]) * unit)


class _Reader:
    """Takes the tables of a file apart, and notes what is wrong where."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.wrong: list[str] = []

    def complain(self, where: str, what: str) -> None:
        self.wrong.append(f"{where}: {what}")

    def everything(self, told: Mapping[str, Any]) -> Declared:
        self.known("", told, ("source", "window", "rows", "measures", "output"))
        source, parquet, schema = self.source(told)
        window = self.table("", told, "window", required=True)
        self.known("window", window, ("size", "slide", "watermark", "time"))
        size = self.milliseconds("window", window, "size", required=True)
        slide = self.milliseconds("window", window, "slide")
        if slide is not None and size is not None and slide > size:
            self.complain("window.slide", "longer than window.size, so that entries between windows would be lost")
        watermark = self.milliseconds("window", window, "watermark", least=0)
        rows = self.table("", told, "rows")
        self.known("rows", rows, ("where", "group_by"))
        groups = self.groups(rows)
        measures = self.measures(self.table("", told, "measures", required=True), groups)
        return Declared(
            self.place, source, parquet, schema, self.text("window", window, "time") or "timestamp", size or 1, slide,
            watermark or 0, self.text("rows", rows, "where"), groups, measures, self.outputs(told, source),
        )  # fmt: skip

    # ---- the parts ---------------------------------------------------------------------------------------------

    def source(self, told: Mapping[str, Any]) -> tuple[dict[str, str], str | None, str | None]:
        table = self.table("", told, "source", required=True)
        options = {name: self.option(f"source.{name}", value) for name, value in table.items()}
        schema, parquet = options.pop("schema", None), options.pop("parquet", None)
        if parquet is not None:
            for name in options:
                self.complain(f"source.{name}", "is for a stream, and source.parquet names files")
        elif table:
            self.checked("source", options)
        return options, parquet, schema

    def groups(self, rows: Mapping[str, Any]) -> dict[str, str]:
        told = rows.get("group_by", [])
        if isinstance(told, list):
            told = {str(name): name for name in told}
        if not isinstance(told, Mapping):
            self.complain("rows.group_by", "neither a list of columns nor a table of name = expression")
            return {}
        for name, expression in told.items():
            where = f"rows.group_by.{name}"
            if not isinstance(expression, str):
                self.complain(where, f"{expression!r} is no text")
            elif not _NAME.fullmatch(name) or name in WINDOW_COLUMNS:
                self.complain(where, "this name cannot be a column of the result")
        return {name: expression for name, expression in told.items() if isinstance(expression, str)}

    def measures(self, told: Mapping[str, Any], groups: Mapping[str, str]) -> tuple[Measure, ...]:
        if not told:
            self.complain("measures", "nothing is measured")
        found = []
        for name, table in told.items():
            where = f"measures.{name}"
            if not _NAME.fullmatch(name) or name in WINDOW_COLUMNS or name in groups:
                self.complain(where, "this name cannot be a column of the result, or is one already")
            if not isinstance(table, Mapping):
                self.complain(where, 'no table like { kind = "count" }')
                continue
            found.append(self.measure(where, name, table))
        return tuple(found)

    def measure(self, where: str, name: str, table: Mapping[str, Any]) -> Measure:
        kind = self.text(where, table, "kind", required=True) or "count"
        if kind not in KINDS:
            near = difflib.get_close_matches(kind, KINDS, 1)
            self.complain(f"{where}.kind", f"{kind!r} is none of {', '.join(KINDS)}"
                          + (f" (did you mean {near[0]}?)" if near else ""))  # fmt: skip
            kind = "count"
        extra = {"quantile": ("at", "accuracy"), "rate": ("per",)}.get(kind, ())
        of = ("of",) if kind in OF_A_COLUMN else ()
        self.known(where, table, ("kind", "where", *of, *extra), f"a {kind}" if "kind" in table else "")
        at = self.number(where, table, "at", 0.5)
        if not 0 <= at <= 1:
            self.complain(f"{where}.at", f"{at} is not between 0 and 1")
        accuracy = self.number(where, table, "accuracy", 10_000)
        if accuracy < 1 or accuracy != int(accuracy):
            self.complain(f"{where}.accuracy", f"{accuracy} is not a whole number from 1 up")
        return Measure(
            name, kind, self.text(where, table, "of", required=bool(of)) or "", self.text(where, table, "where"), at,
            int(accuracy), self.milliseconds(where, table, "per") or 1000,
        )  # fmt: skip

    def outputs(self, told: Mapping[str, Any], source: Mapping[str, str]) -> tuple[Output, ...]:
        given = told.get("output", [])
        given = [given] if isinstance(given, Mapping) else given
        if not isinstance(given, list) or not given:
            self.complain("output", "missing: a [[output]] with parquet = a folder, or stream = a key")
            return ()
        found = []
        for number, table in enumerate(given, 1):
            where = f"output {number}" if len(given) > 1 else "output"
            if not isinstance(table, Mapping) or ("parquet" in table) == ("stream" in table):
                self.complain(where, "give one of parquet and stream")
                continue
            options = {name: self.option(f"{where}.{name}", value) for name, value in table.items()}
            parquet = options.pop("parquet", None)
            if parquet is not None:
                self.known(where, options, (), "Parquet files")
            else:
                if "url" not in options and "path" not in options:
                    options.update({name: source[name] for name in ("url", "path") if name in source})
                self.checked(where, options)
            found.append(Output(parquet, options))
        return tuple(found)

    # ---- values ------------------------------------------------------------------------------------------------

    def checked(self, where: str, options: Mapping[str, str]) -> None:
        """Let the connector look at its options."""
        try:
            parse(options).require_stream()
        except OptionError as error:
            self.complain(where, str(error).removeprefix("rillet: "))

    def known(self, where: str, table: Mapping[str, Any], names: tuple[str, ...], of: str = "") -> None:
        for name in table:
            if name not in names:
                near = difflib.get_close_matches(name, names, 1)
                hint = f" (did you mean {near[0]}?)" if near else f" (possible: {', '.join(names)})" if names else ""
                self.complain(f"{where}.{name}" if where else name, f"unknown{' for ' + of if of else ''}{hint}")

    def table(self, where: str, told: Mapping[str, Any], name: str, required: bool = False) -> Mapping[str, Any]:
        found = told.get(name, {})
        if not isinstance(found, Mapping):
            self.complain(name, f"no table: write [{name}]")
            return {}
        if required and name not in told:
            self.complain(name, f"the table [{name}] is missing")
        return found

    def text(self, where: str, table: Mapping[str, Any], name: str, required: bool = False) -> str | None:
        found = table.get(name)
        if found is None and required and (table or where.startswith("measures")):
            self.complain(f"{where}.{name}", "missing")
        if found is not None and (not isinstance(found, str) or not found.strip()):
            self.complain(f"{where}.{name}", f"{found!r} is no text")
            return None
        return found

    def option(self, where: str, value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if not isinstance(value, (str, int, float)):
            self.complain(where, f"{value!r} is neither text nor a number")
        return str(value)

    def number(self, where: str, table: Mapping[str, Any], name: str, default: float) -> float:
        found = table.get(name, default)
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            self.complain(f"{where}.{name}", f"{found!r} is no number")
            return default
        return found

    def milliseconds(
        self, where: str, table: Mapping[str, Any], name: str, required: bool = False, least: int = 1
    ) -> int | None:
        found = self.text(where, table, name, required)
        if found is None:
            return None
        try:
            told = duration(found)
        except ValueError as error:
            self.complain(f"{where}.{name}", f"{found!r} is {error}")
            return None
        if told < least:
            self.complain(f"{where}.{name}", f"{found!r} is too short")
        return told
