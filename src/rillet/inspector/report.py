"""A report of the streams of a place as one page of HTML: charts as SVG, no script, no other file, no network.

The numbers are those of the inspector: `Store.stats` and `timeline`. Names and values are escaped, control characters
are shown as escape sequences, and the page has a policy that allows nothing but its own style.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from html import escape
from typing import Any

from rillet.errors import CommandError
from rillet.inspector.groups import pending_page
from rillet.inspector.place import InspectedPlace
from rillet.inspector.sampling import stream_row
from rillet.inspector.stats_texts import named, number, oldest_of, shortened, worst_lag
from rillet.inspector.text import from_text
from rillet.store.display.timeline import Timeline, timeline
from rillet.store.store import Store
from rillet.units import duration, size

STREAMS = 50
"""The most streams of a report; the longest ones."""
_OLDEST = 10
_NAME = 60  # characters of a name
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 960, 150, 62, 22
_STYLE = """
:root { color-scheme: light dark; --ink: #1c2426; --muted: #566166; --line: #dde1de; --card: #fff; --bg: #f5f6f4;
  --accent: #0d665e; --soft: #dff0ed; --warn: #fdf0dc; --bad: #a3231c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e9e8; --muted: #9fadaf; --line: #2d373a; --card: #1a2124;
  --bg: #12171a; --accent: #62cbbb; --soft: #17393a; --warn: #3a2b16; --bad: #f29489; } }
body { margin: 0 auto; max-width: 1060px; padding: 32px 20px 60px; background: var(--bg); color: var(--ink);
  font: 14px/1.5 system-ui, sans-serif; }
h1 { font-size: 22px; margin: 0; } h2 { font-size: 16px; margin: 0; overflow-wrap: anywhere; } h3 { font-size: 13px; }
p { margin: 4px 0; } .muted { color: var(--muted); } .bad { color: var(--bad); } .right { text-align: right; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 20px;
  margin-top: 18px; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; color: var(--muted); font-weight: 550; font-size: 12.5px; }
th, td { padding: 5px 10px 5px 0; border-bottom: 1px solid var(--line); } td { overflow-wrap: anywhere; }
code { font-family: ui-monospace, monospace; font-size: 12.5px; }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--muted); font-size: 11px; }
.area { fill: var(--soft); } .edge { fill: none; stroke: var(--accent); stroke-width: 1.4; }
.hole { fill: var(--warn); } .grid { stroke: var(--line); } .trim { stroke: var(--bad); stroke-width: 2; }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def report(place: InspectedPlace, now: datetime | None = None) -> str:
    """Return the report of a place as HTML. O(keys + pending entries + nodes of the streams)"""
    return place.call(lambda store: "".join(_page(place, store, now or datetime.now(timezone.utc))))


def _page(place: InspectedPlace, store: Store, now: datetime) -> Iterator[str]:
    stats = store.stats(pending=10_000)
    rows = sorted((stream_row(one) for one in stats.streams), key=lambda one: (-one["length"], one["name"]))
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>Streams of {escape(place.name)}</title><style>{_STYLE}</style></head><body><main>"
    yield f"<h1>Streams of {escape(place.name)}</h1>"
    yield f'<p class="muted">{escape(stats.server)}, {escape(place.kind)}, {now:%Y-%m-%d %H:%M:%S} UTC. '
    yield f"{len(rows)} {'stream' if len(rows) == 1 else 'streams'}, {number(sum(one['length'] for one in rows))} "
    yield "entries.</p>"
    yield f"<section>{_table(_STREAM_HEAD, [_stream_cells(one) for one in rows])}</section>"
    for row in rows[:STREAMS]:
        yield from _stream(store, row)
    if len(rows) > STREAMS:
        yield f'<p class="muted">The other {len(rows) - STREAMS} streams have a line in the first table only.</p>'
    yield "</main></body></html>\n"


_STREAM_HEAD = ("Stream", "Entries", "Memory", "Groups", "Most lag", "Pending", "Oldest pending", "Last entry")


def _stream_cells(row: dict[str, Any]) -> list[str]:
    groups = row["groups"]
    return [_name(row["name"]), number(row["length"]), size(row["bytes"]), str(len(groups)),
            number(worst_lag(row)) if groups else "-", number(sum(one["pending"] for one in groups)),
            duration(oldest_of(row)), f"<code>{escape(str(row['last_id'] or '-'))}</code>"]  # fmt: skip


def _name(text: str) -> str:
    """Return a name as HTML: a long one without its middle, with the whole name in the tooltip."""
    return f'<code title="{escape(text)}">{escape(shortened(named(text), _NAME))}</code>'


def _table(head: Iterable[str], rows: Iterable[list[str]]) -> str:
    titles = "".join(f'<th scope="col">{escape(title)}</th>' for title in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"


def _stream(store: Store, row: dict[str, Any]) -> Iterator[str]:
    key = from_text(row["name"])
    yield f"<section><h2>{_name(row['name'])}</h2>"
    try:
        yield _chart(timeline(store.stream(key)))
    except CommandError as error:  # it was deleted meanwhile
        yield f'<p class="bad">{escape(str(error))}</p></section>'
        return
    if row["groups"]:
        yield "<h3>Groups</h3>"
        yield _table(("Group", "Lag", "Pending", "Oldest", "Deliveries", "Last delivered", "Consumers"),
                     [_group_cells(one) for one in row["groups"]])  # fmt: skip
    for group in row["groups"]:
        if group["pending"]:
            yield _oldest(store, key, group)
    yield "</section>"


def _group_cells(group: dict[str, Any]) -> list[str]:
    lag = "unknown" if group["lag"] is None else ("" if group["lag_exact"] else "&le; ") + number(group["lag"])
    note = f'<br><span class="muted">{escape(group["lag_note"])}</span>' if group["lag_note"] else ""
    consumers = ", ".join(f"{_name(one['name'])} ({one['pending']}, idle {duration(one['idle_ms'])})"
                          for one in group["consumers"][:20])  # fmt: skip
    more = f" and {len(group['consumers']) - 20} more" if len(group["consumers"]) > 20 else ""
    return [_name(group["name"]), lag + note, number(group["pending"]), duration(group["oldest_ms"]),
            str(group["deliveries"] or "-"), f"<code>{escape(group['last_delivered_id'])}</code>",
            consumers + more]  # fmt: skip


def _oldest(store: Store, key: bytes, group: dict[str, Any]) -> str:
    ages = ", ".join(f"{escape(name)}: {number(count)}" for name, count in group["ages"].items() if count)
    try:
        page = pending_page(store, key, from_text(group["name"]), count=200)["pending"]
    except CommandError:
        return ""
    rows = []
    for one in sorted(page, key=lambda one: -one["idle"])[:_OLDEST]:
        fields = "no longer in the stream" if one["gone"] else " ".join(
            f"{name[:40]}={value[:40]}" for name, value, _, _ in (one["fields"] or [])[:6])  # fmt: skip
        rows.append([f"<code>{escape(one['id'])}</code>", f"{_name(one['consumer'] or 'released')}",
                     duration(one["idle"]), str(one["deliveries"]), f"<code>{escape(fields)}</code>"])  # fmt: skip
    return (f"<h3>Pending of {_name(group['name'])} by age: {ages}</h3>"
            + _table(("Entry", "Held by", "For", "Deliveries", "Fields"), rows))  # fmt: skip


def _chart(found: Timeline) -> str:
    """Return the throughput as SVG: steps, shaded holes, the end of a trim."""
    if not found.length:
        return '<p class="muted">The stream has no entries.</p>'
    rates = found.rates()
    most = max(rates) or 1.0
    low, high = found.edges[0], found.edges[-1]

    def x(ms: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT) * (ms - low) / max(1, high - low), 1)

    def y(rate: float) -> float:
        return round((_HEIGHT - _BOTTOM) * (1 - rate / (most * 1.05)), 1)

    steps = zip(found.edges, found.edges[1:], rates, strict=False)
    line = " ".join(f"L{x(start)},{y(rate)} L{x(end)},{y(rate)}" for start, end, rate in steps)
    base = _HEIGHT - _BOTTOM
    holes = "".join(f'<rect class="hole" x="{x(start)}" y="0" width="{max(1, x(end) - x(start))}" height="{base}"/>'
                    for start, end in found.holes)  # fmt: skip
    trim = f'<line class="trim" x1="{_LEFT}" x2="{_LEFT}" y1="0" y2="{base}"/>' if found.removed else ""
    marks = "".join(
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH}" y1="{y(most * part)}" y2="{y(most * part)}"/>'
        f'<text x="{_LEFT - 6}" y="{y(most * part) + 4}" text-anchor="end">{_rate(most * part)}</text>'
        for part in (0, 0.5, 1)
    )
    ends = (f'<text x="{_LEFT}" y="{_HEIGHT - 4}">{_time(low)}</text>'
            f'<text x="{_WIDTH}" y="{_HEIGHT - 4}" text-anchor="end">{_time(high)}</text>')  # fmt: skip
    facts = [f"{number(found.length)} entries", "exact counts" if found.exact else "estimates from samples",
             f"{len(found.holes)} holes", f"{number(found.removed)} removed"]  # fmt: skip
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Entries per second: {", ".join(facts)}">'
        f"{holes}{marks}<path class=\"area\" d=\"M{_LEFT},{base} {line} L{_WIDTH},{base} Z\"/>"
        f'<path class="edge" d="M{line[1:]}"/>{trim}{ends}</svg><p class="muted">{", ".join(facts)}.</p>'
    )


def _rate(value: float) -> str:
    if value == 0 or value >= 0.1:
        return f"{value:,.1f}/s" if value < 100 else f"{value:,.0f}/s"
    return f"{value * 3600:,.1f}/h"


def _time(ms: int) -> str:
    if not 946_684_800_000 <= ms < 253_402_300_800_000:
        return str(ms)
    return datetime.fromtimestamp(ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
