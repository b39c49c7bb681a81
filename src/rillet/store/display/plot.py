"""Stream.plot: throughput, lag and ages of a stream as one figure (matplotlib), for notebooks and files.

    entries per second   steps over time; holes shaded, the end of a trim as a line
    lag                  one bar for each group; hatched if the number is not exact, "unknown" if there is none
    ages                 pending entries of each group by the time since their delivery

The numbers are those of `timeline` and `Store.stats`, which the inspector shows, too. The figure needs no display and
no pyplot: `stream.plot().savefig("stream.png")`; a notebook shows it.
"""

from __future__ import annotations

import io
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from rillet.extras import require
from rillet.store.arguments.positions import Position, milliseconds_of
from rillet.store.display.timeline import Timeline, timeline
from rillet.store.stats import GroupStats
from rillet.types.stream.id import MAX, StreamID

if TYPE_CHECKING:
    from rillet.store.stream import Stream

_INK, _LINE, _SOFT, _ACCENT, _WARN, _BAD = "#1c2426", "#dde1de", "#dff0ed", "#0d665e", "#f6dfba", "#a3231c"
_AGES = ("#bfe3dd", "#7fc4ba", "#3f9c90", "#d9a24b", "#c56a3a", "#a3231c", "#b9c0bd")
_TIMES = range(946_684_800_000, 253_402_300_800_000)  # ms that are times since 2000


def plot(stream: Stream[Any], start: Position | None = None, end: Position | None = None, buckets: int = 120) -> Any:
    """Return the figure; MissingExtra without matplotlib. start, end: the part of the throughput, by default all."""
    require("pipelines", "a plot")
    from matplotlib.figure import Figure

    class StreamFigure(Figure):
        """A figure that a notebook shows."""

        def _repr_png_(self) -> bytes:
            out = io.BytesIO()
            self.savefig(out, format="png", dpi=110)
            return out.getvalue()

    found = timeline(stream, buckets, _ms(start), _ms(end))
    groups = stream.store.stats(stream.key, memory=False).streams[0].groups
    figure = StreamFigure(figsize=(10, 3.2 + (2.2 + 0.3 * len(groups) if groups else 0)), layout="constrained")
    ratios = [3.0, 1.2 + 0.35 * len(groups)] if groups else [1.0]
    grid = figure.add_gridspec(len(ratios), 2, height_ratios=ratios)
    _throughput(figure.add_subplot(grid[0, :]), found, stream.name)
    if groups:
        _lag(figure.add_subplot(grid[1, 0]), groups)
        _ages(figure.add_subplot(grid[1, 1]), groups)
    return figure


def _ms(position: Position | None) -> int | None:
    if position is None or position in ("-", "+"):
        return {"-": 0, "+": MAX}.get(str(position))
    return milliseconds_of(position) if isinstance(position, datetime) else StreamID.parse(str(position)).ms


def _title(panel: Any, text: str) -> None:
    # A name may contain "$", which would begin a formula.
    panel.set_title(text.replace("$", r"\$"), loc="left", fontsize=10, color=_INK)
    panel.spines[["top", "right"]].set_visible(False)
    panel.spines[["left", "bottom"]].set_color(_LINE)
    panel.tick_params(colors=_INK, labelsize=8, length=3)


def _throughput(panel: Any, found: Timeline, name: str) -> None:
    times = found.edges[0] in _TIMES
    edges: list[Any] = [datetime.fromtimestamp(ms / 1000, timezone.utc) if times else ms for ms in found.edges]
    rates = found.rates()
    panel.stairs(rates, edges, fill=True, color=_SOFT)
    panel.stairs(rates, edges, color=_ACCENT, linewidth=1.3)
    place = dict(zip(found.edges, edges, strict=True))
    for begin, stop in found.holes:
        panel.axvspan(place[begin], place[stop], color=_WARN, linewidth=0, zorder=0)
    if found.removed and found.first_id is not None and found.first_id.ms >= found.edges[0]:
        panel.axvline(edges[0], color=_BAD, linewidth=1.5)
    panel.set_ylim(bottom=0)
    panel.grid(axis="y", color=_LINE, linewidth=0.6)
    facts = [f"{found.length:,} entries", "exact" if found.exact else "estimated from samples"]
    facts += [f"{found.removed:,} removed"] if found.removed else []
    _title(panel, f"{_short(name)}: entries per second ({', '.join(facts)})")


def _short(name: str) -> str:
    text = "".join(one if one.isprintable() else "?" for one in name)
    return text if len(text) <= 40 else text[:37] + "..."


def _lag(panel: Any, groups: list[GroupStats]) -> None:
    names = [_short(one.name).replace("$", r"\$") for one in groups]
    bars = panel.barh(range(len(groups)), [one.lag or 0 for one in groups], color=_ACCENT, height=0.55)
    for at, (bar, one) in enumerate(zip(bars, groups, strict=True)):
        if not one.lag_exact and one.lag is not None:
            bar.set_hatch("///")
            bar.set_facecolor(_SOFT)
        text = "unknown" if one.lag is None else f"{'' if one.lag_exact else '≤ '}{one.lag:,}"
        panel.annotate(text, (one.lag or 0, at), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    panel.set_yticks(range(len(groups)), names)
    panel.invert_yaxis()
    panel.margins(x=0.2)
    _title(panel, "lag of each group, entries")


def _ages(panel: Any, groups: list[GroupStats]) -> None:
    left = [0] * len(groups)
    for colour, age in zip(_AGES, groups[0].ages, strict=True):
        counts = [one.ages[age] for one in groups]
        if any(counts):
            panel.barh(range(len(groups)), counts, left=left, color=colour, height=0.55, label=age)
            left = [one + two for one, two in zip(left, counts, strict=True)]
    panel.set_yticks(range(len(groups)), [""] * len(groups))
    panel.invert_yaxis()
    if any(left):
        panel.legend(frameon=False, fontsize=8, ncols=4, loc="upper right", bbox_to_anchor=(1, 1.25))
    _title(panel, "pending entries by age")
