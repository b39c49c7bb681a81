"""The chart: mean delay by hour of the day at each airport, in all weather and in rain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

NAMES = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "LaGuardia"}
COLOURS = {"EWR": "#0b6e99", "JFK": "#c4572e", "LGA": "#5a7d2a"}
FEWEST = 300  # an hour of the day with fewer flights in the year is left out


def draw(rows: list[Any], target: Path) -> None:
    """Draw one panel for each airport (bars: flights, lines: mean delay) and write the PNG."""
    figure, panels = plt.subplots(1, 3, figsize=(12, 4.6), sharey=True, layout="constrained")
    for panel, origin in zip(panels, NAMES, strict=True):
        part = [row for row in rows if row["origin"] == origin and row["flights"] >= FEWEST]
        hours = [row["hour"] for row in part]
        counts = panel.twinx()
        counts.bar(hours, [row["flights"] for row in part], color="#e3e3e0", width=0.85)
        counts.set_yticks([])
        counts.set_ylim(0, 30_000)
        counts.spines[:].set_visible(False)
        panel.set_zorder(counts.get_zorder() + 1)
        panel.patch.set_visible(False)
        colour = COLOURS[origin]
        rain = [row["rain_delay"] for row in part]
        panel.plot(hours, rain, color=colour, lw=1.6, ls=(0, (2, 1.5)), label="hours with rain")
        panel.plot(hours, [row["mean_delay"] for row in part], color=colour, lw=2.6, label="all hours")
        panel.set_title(NAMES[origin], loc="left", fontweight="bold", color=colour)
        panel.set_xticks(range(6, 24, 3), [f"{hour}:00" for hour in range(6, 24, 3)])
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", color="#d9d9d6", lw=0.6)
        panel.legend(frameon=False, loc="upper left", fontsize=9)
    panels[0].set_ylabel("mean departure delay, minutes")
    figure.suptitle(
        "Delays pile up through the day, and rain makes them worse\n"
        "New York departures, 2013; grey bars: flights in that hour of the day",
        x=0.01,
        ha="left",
        fontsize=12,
    )
    figure.savefig(target, dpi=140)
    plt.close(figure)
