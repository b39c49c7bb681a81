"""Figures of streams and groups as texts, for the terminal and the report, from the sampler's rows."""

from __future__ import annotations

from typing import Any

from rillet.units import duration, size

_STUCK = 60_000  # ms


def number(value: float | None) -> str:
    """Return a number with separators; "?" for None."""
    return "?" if value is None else f"{value:,.0f}"


def named(text: str) -> str:
    """Return a name as a person reads it: Redis allows an empty one."""
    return text or "(empty name)"


def shortened(text: str, most: int) -> str:
    """Return a text without its middle if it has more than so many characters: names often differ at the end."""
    end = most // 4
    return text if len(text) <= most else f"{text[: most - end - 1]}…{text[len(text) - end :]}"


def known_streams(found: dict[str, Any]) -> str:
    """Return what the sampler does not know about the streams yet, in words; "" if it lists all of them."""
    find, listed = found["find"], len(found["streams"])
    if not find["complete"]:
        return f"searching for streams: {number(find['seen'])} of {number(find['total'])} keys"
    return f"the {number(listed)} longest of {number(find['streams'])} streams" if listed < find["streams"] else ""


def worst_lag(stream: dict[str, Any]) -> int | None:
    """Return the most lag among the groups; None if there is no group with a known lag."""
    return max((group["lag"] for group in stream["groups"] if group["lag"] is not None), default=None)


def oldest_of(stream: dict[str, Any]) -> int | None:
    """Return the longest time since a pending delivery."""
    return max((group["oldest_ms"] for group in stream["groups"] if group["oldest_ms"] is not None), default=None)


def stream_cells(stream: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of a stream's row; "…" for figures that were not read yet."""
    if stream["age"] is None:
        return (named(stream["name"]), number(stream["length"]), *["…"] * 6)
    lag = worst_lag(stream)
    pending = sum(group["pending"] for group in stream["groups"])
    groups = len(stream["groups"])
    return (
        named(stream["name"]), number(stream["length"]), size(stream["bytes"]),
        "-" if stream["rate"] is None else f"{stream['rate']:,.1f}/s", str(groups),
        number(lag) if lag is not None else "?" if groups else "-", number(pending) if groups else "-",
        duration(oldest_of(stream)),
    )  # fmt: skip


def group_cells(group: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the cells of a group's row, and of a row for each of its consumers."""
    lag = "unknown" if group["lag"] is None else ("" if group["lag_exact"] else "<= ") + number(group["lag"])
    deliveries = "-" if group["deliveries"] is None else str(group["deliveries"])
    rows: list[tuple[str, ...]] = [
        (named(group["name"]), lag, number(group["pending"]), duration(group["oldest_ms"]), deliveries,
         str(group["last_delivered_id"]))
    ]  # fmt: skip
    for one in sorted(group["consumers"], key=lambda one: -one["pending"]):
        note = "stuck" if one["pending"] and one["idle_ms"] > _STUCK else ""
        rows.append((f"  {named(one['name'])}", "", number(one["pending"]), duration(one["idle_ms"]), "", note))
    return rows
