"""Write figures into the pages, between markers.

    python -m benchmarks.table                  those of the last `make bench`, and no others
    python -m benchmarks.table a.json b.json    those of these runs (`--json`); the other rows stay

docs/measured.md gets every row, and the cells of `situations` as tables. README.md gets ten rows: the most common
cases, whether rillet leads or not.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, loaded
from benchmarks.situations import is_cell, tables

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
CELLS_BEGIN, CELLS_END = "<!-- situations: begin -->", "<!-- situations: end -->"
CPU = ": server's CPU"
HEADLINES = (
    ("XADD 5 fields, -c 50 -P 64", "redis-server"),
    ("XADD 5 fields, -c 50 -P 1", "redis-server"),
    ("MULTI XADD, ordinary: CPU of a command", "redis-server"),
    ("GET, -c 50 -P 64", "redis-server"),
    ("XRANGE of 100, -c 50 -P 1", "redis-server"),
    ("XREADGROUP COUNT 100 and XACK of them, 8 consumers", "redis-server"),
    ("bytes per pending entry, process growth", "redis-server"),
    ("XADD 5 fields, appendfsync everysec, -c 50 -P 64", "redis-server"),
    ("Stream.add, 5 fields, in process, one at a time", "redis-py + hiredis"),
    ("Spark batch read of 5,000,000, typed, local[2]", "redis-py rows"),
)
"""The rows of README.md: the name of the figure, and the peer."""


def headlines(measured: dict[str, Any]) -> str:
    """Return README.md's table."""
    rows = {(row["what"], row["peer_name"]): row for row in measured["figures"] if row["mode"] == "compiled"}
    lines = ["| what | against | peer | rillet | ratio |", "|---|---|---|---|---|"]
    lines += ["| " + " | ".join(_cells(rows[name])) + " |" for name in HEADLINES if name in rows]
    return "\n".join(lines)


def all_rows(measured: dict[str, Any]) -> str:
    """Return the table of docs/measured.md: a row per case of the compiled build, with the interpreted ratio."""
    rows = measured["figures"]
    slow = {(row["what"], row["peer_name"]): row for row in rows if row["mode"] == "interpreted"}
    cpu = {row["what"].removesuffix(CPU): row["ratio"] for row in rows
           if row["what"].endswith(CPU) and row["mode"] == "compiled"}  # fmt: skip
    lines = [
        "| what | against | peer | rillet | ratio | by CPU | at least | interpreted |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row["mode"] != "compiled" or (is_cell(row["what"]) and (row["what"], row["peer_name"]) not in HEADLINES):
            continue
        beside = slow.get((row["what"], row["peer_name"]))
        cells = (
            *_cells(row),
            f"{cpu[row['what']]:.2f}" if row["what"] in cpu else "",
            "" if row["target"] is None else f"{row['target']:g}",
            "" if beside is None else f"{beside['ratio']:.2f}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    machine = measured["machine"]
    note = (
        f"Medians of three rounds in which the two sides alternate, on {machine['cores']} cores of a shared "
        f"{machine['machine']} machine, Python {machine['python']}. A ratio above 1 means that rillet is ahead. By "
        "CPU: the ratio of the servers' processor times for a request. With -P 1 redis-benchmark limits the rate, "
        "because it has one thread. The last column is the ratio of the interpreted build. Run your own: `make bench`."
    )
    return "\n".join([*lines, "", note])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    named = row["unit"]  # a rate such as entries/s, a time, or bytes
    unit = "/s" if named.endswith("/s") else "" if named == "bytes" else f" {named}"
    sides = (_number(row["peer"]) + unit, _number(row["ours"]) + unit)
    return row["what"], row["peer_name"], *sides, f"**{row['ratio']:.2f}**"


def _number(value: float) -> str:
    if value < 10:
        return f"{value:.2f}"
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def _key(line: str) -> str:
    """Return the two cells that name a row."""
    return "|".join(line.split("|")[1:3])


def merged(old: str, new: str) -> str:
    """Return a table in which the rows of another one replace those of the same name, or follow the last row."""
    rows = {_key(line): line for line in new.splitlines() if line.startswith("| ")}
    lines = old.splitlines()
    for place, line in enumerate(lines):
        if line.startswith("| ") and _key(line) in rows:
            lines[place] = rows.pop(_key(line))
    last = max(place for place, line in enumerate(lines) if line.startswith("|"))
    return "\n".join([*lines[: last + 1], *rows.values(), *lines[last + 1 :]])


def main(files: list[str]) -> None:
    """Replace the tables of README.md and docs/measured.md, or only the rows of these files."""
    runs = [json.loads(Path(name).read_text()) for name in files or [str(ROOT / "build" / "benchmarks.json")]]
    for page, table in ((ROOT / "README.md", headlines), (ROOT / "docs" / "measured.md", all_rows)):
        text = page.read_text()
        body = between(text, BEGIN, END)
        for run in runs:
            body = merged(body, table(run)) if files else table(run)
        page.write_text(replaced(text, BEGIN, END, body))
    for run in runs:
        if any(is_cell(row["what"]) for row in run["figures"]):
            cells = "\n\n".join(tables(loaded(run["figures"])))
            page.write_text(replaced(page.read_text(), CELLS_BEGIN, CELLS_END, cells))


def between(text: str, begin: str, end: str) -> str:
    """Return the part of a page between two markers."""
    return text.partition(begin)[2].partition(end)[0].strip("\n")


def replaced(text: str, begin: str, end: str, body: str) -> str:
    """Return a page with another part between two markers."""
    head, _, rest = text.partition(begin)
    return f"{head}{begin}\n{body}\n{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    main(sys.argv[1:])
