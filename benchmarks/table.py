"""`python -m benchmarks.table`: the figures of the last `make bench` as tables, between markers.

docs/measured.md has every row. README.md has those in which both sides were given a ratio to reach, as rates; what a
request costs the server's CPU is beside them, since with one request at a time the rate is the client's.
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.harness import ROOT

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


CPU = ": server's CPU"


def markdown(measured: dict[str, Any], whole: bool) -> str:
    """Return a table: a row for each case of the compiled build, its interpreted ratio beside it."""
    rows = measured["figures"]
    slow = {(row["what"], row["peer_name"]): row for row in rows if row["mode"] == "interpreted"}
    cpu = {row["what"].removesuffix(CPU): row["ratio"] for row in rows
           if row["what"].endswith(CPU) and row["mode"] == "compiled"}  # fmt: skip
    lines = [
        "| what | against | peer | rillet | ratio | by CPU | at least | interpreted |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row["mode"] != "compiled" or (not whole and (row["target"] is None or "-P 16" in row["what"])):
            continue
        if not whole and row["what"].endswith(CPU):
            continue
        beside = slow.get((row["what"], row["peer_name"]))
        unit = {"bytes": "", "µs": " µs", "ms": " ms", "s": " s"}.get(row["unit"], "/s")
        cells = (
            row["what"],
            row["peer_name"],
            _number(row["peer"]) + unit,
            _number(row["ours"]) + unit,
            f"**{row['ratio']:.2f}**",
            f"{cpu[row['what']]:.2f}" if row["what"] in cpu else "",
            "" if row["target"] is None else f"{row['target']:g}",
            "" if beside is None else f"{beside['ratio']:.2f}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    machine = measured["machine"]
    told = (
        f"Medians of three rounds in which the two sides alternate, on {machine['cores']} cores of a shared "
        f"{machine['machine']} machine, Python {machine['python']}; a ratio above 1 is rillet ahead. By CPU: the "
        "same, of the server's processor time for a request; with -P 1 the rate is that of redis-benchmark, which has "
        "one thread. The last column is the ratio uncompiled. Measure yours: `make bench`."
    )
    return "\n".join([*lines, "", told])


def _number(value: float) -> str:
    if value < 10:
        return f"{value:.2f}"
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def main() -> None:
    """Put the tables where README.md and docs/measured.md have the old ones."""
    measured = json.loads((ROOT / "build" / "benchmarks.json").read_text())
    for page, whole in ((ROOT / "README.md", False), (ROOT / "docs" / "measured.md", True)):
        head, _, rest = page.read_text().partition(BEGIN)
        _, _, tail = rest.partition(END)
        page.write_text(f"{head}{BEGIN}\n{markdown(measured, whole)}\n{END}{tail}")


if __name__ == "__main__":
    main()
