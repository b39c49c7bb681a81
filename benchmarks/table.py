"""`python -m benchmarks.table`: the figures of the last `make bench` as the table in README.md, between its markers."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.harness import ROOT

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def markdown(measured: dict[str, Any]) -> str:
    """Return the table: a row for each case of the compiled build, its interpreted ratio beside it."""
    rows = measured["figures"]
    slow = {(row["what"], row["peer_name"]): row for row in rows if row["mode"] == "interpreted"}
    lines = ["| what | against | peer | rillet | ratio | at least | interpreted |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        if row["mode"] != "compiled":
            continue
        beside = slow.get((row["what"], row["peer_name"]))
        unit = {"bytes": "", "µs": " µs"}.get(row["unit"], "/s")
        cells = (
            row["what"],
            row["peer_name"],
            _number(row["peer"]) + unit,
            _number(row["ours"]) + unit,
            f"**{row['ratio']:.2f}**",
            "" if row["target"] is None else f"{row['target']:g}",
            "" if beside is None else f"{beside['ratio']:.2f}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    machine = measured["machine"]
    told = (
        f"Medians of three rounds in which the two sides alternate, on {machine['cores']} cores of a shared "
        f"{machine['machine']} machine, Python {machine['python']}; a ratio above 1 is rillet ahead. The last column "
        "is the same, uncompiled. Measure yours: `make bench`."
    )
    return "\n".join([*lines, "", told])


def _number(value: float) -> str:
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def main() -> None:
    """Put the table where README.md has the old one."""
    measured = json.loads((ROOT / "build" / "benchmarks.json").read_text())
    page = ROOT / "README.md"
    head, _, rest = page.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    page.write_text(f"{head}{BEGIN}\n{markdown(measured)}\n{END}{tail}")


if __name__ == "__main__":
    main()
