"""The terminal view of `rillet top`: streams, and the groups and consumers of one stream (textual).

    Streams   entries, memory, rate, groups, most lag, pending, oldest pending        Enter: its groups
    Groups    lag or the reason why it is unknown, pending, ages, consumers           Escape: back

The streams that were found so far are listed at once; the last line says how many keys were searched. A long name is
shown without its middle, and whole in the line below the table when its row is chosen.

The rows are made by `rillet.inspector.stats_texts` from the sampler's figures, which the page shows, too. Texts are
printable (rillet.inspector.text) and never markup.
"""

from __future__ import annotations

from typing import Any, ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Header, Static

from rillet.inspector.place import InspectedPlace
from rillet.inspector.sampling import Sampler
from rillet.inspector.stats_texts import (
    group_cells,
    known_streams,
    named,
    number,
    oldest_of,
    shortened,
    stream_cells,
    worst_lag,
)
from rillet.inspector.text import from_text
from rillet.units import size

STREAM_HEAD = ("stream", "entries", "memory", "rate", "groups", "most lag", "pending", "oldest")
GROUP_HEAD = ("group / consumer", "lag", "pending", "oldest or idle", "deliveries", "last delivered")
_ORDERS = ("entries", "most lag", "pending", "stream")
_PERIOD = 1.0
_FIRST = 0.25  # seconds between two refreshes while the streams are searched for
_FIGURES = 80  # columns of the terminal beside the names
_NAME = 16  # columns of a name at least
_OLD, _VERY_OLD = 60_000, 3_600_000


def _colour(text: str, ms: int | None) -> Text:
    style = "" if ms is None or ms < _OLD else "yellow" if ms < _VERY_OLD else "bold red"
    return Text(text, style=style)


def _fitting(name: str, columns: int) -> str:
    """Return a name that takes at most so many columns; some characters take two."""
    most = columns
    while cell_len(found := shortened(name, most)) > columns:
        most -= 1
    return found


class Top(App[None]):
    """Streams, groups and lag of a place, live."""

    TITLE = "rillet top"
    CSS = "DataTable { height: 1fr; } #status, #name { height: auto; max-height: 4; padding: 0 1; color: $text-muted; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Groups"), Binding("escape", "streams", "Back"), Binding("s", "order", "Order"),
        Binding("q", "quit", "Quit"),
    ]  # fmt: skip

    def __init__(self, place: InspectedPlace) -> None:
        super().__init__()
        self.place = place
        self.sampler = Sampler(place)
        self._watch = self.sampler.watch()
        self._order = 0
        self.opened: str | None = None
        self._keys: list[str] = []  # of the rows
        self._names: list[str] = []
        self._left: str | None = None  # the stream whose groups were shown: the cursor returns to it

    def compose(self) -> ComposeResult:
        """Yield the widgets."""
        yield Header()
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Static(id="name")
        yield Static(id="status")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to collect and to show."""
        self.sub_title = f"{self.place.name} ({self.place.server})"
        self._watch.__enter__()
        self._head()
        self.set_interval(_PERIOD, self.refresh_figures)
        self._first = self.set_interval(_FIRST, self.refresh_figures)
        self.refresh_figures()

    def on_unmount(self) -> None:
        """Stop to collect."""
        self._watch.__exit__(None, None, None)
        self.sampler.close()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the stream of the row."""
        if self.opened is None and event.row_key.value is not None:
            self.opened = event.row_key.value
            self._head()
            self.refresh_figures()

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Show the whole name of the row."""
        self._show_name()

    def action_streams(self) -> None:
        """Show the streams again."""
        before, self.opened = self.opened, None
        self._head()
        self._left = before
        self.refresh_figures()

    def action_order(self) -> None:
        """Use the next order of the streams."""
        self._order = (self._order + 1) % len(_ORDERS)
        self.refresh_figures()

    def _head(self) -> None:
        table = self.query_one(DataTable)
        table.clear(columns=True)
        self._keys = []
        for title in STREAM_HEAD if self.opened is None else GROUP_HEAD:
            table.add_column(title, key=title)

    def refresh_figures(self) -> None:
        """Show the present figures."""
        if not self.query(DataTable):  # a timer that comes while the screen closes
            return
        if self.sampler.has_streams():
            self._first.stop()
        found = self.sampler.snapshot()
        if self.opened is None:
            self._show([(row["name"], row) for row in self._ordered(found["streams"])], self._stream_row)
        else:
            self.sampler.focus(from_text(self.opened))
            stream = next((row for row in found["streams"] if row["name"] == self.opened), None)
            cells = [row for group in (stream or {"groups": []})["groups"] for row in group_cells(group)]
            self._show([(str(number), row) for number, row in enumerate(cells)], lambda row: [Text(one) for one in row])
        self._show_name()
        self.query_one("#status", Static).update(Text(self._status(found)))

    def _ordered(self, streams: list[dict[str, Any]]) -> list[dict[str, Any]]:
        order = _ORDERS[self._order]
        if order == "stream":
            return sorted(streams, key=lambda row: str(row["name"]))
        if order == "most lag":
            return sorted(streams, key=lambda row: -(worst_lag(row) or 0))
        if order == "pending":
            return sorted(streams, key=lambda row: -sum(group["pending"] for group in row["groups"]))
        return streams

    def _stream_row(self, row: dict[str, Any]) -> list[Text]:
        cells = [Text(cell) for cell in stream_cells(row)]
        cells[-1] = _colour(cells[-1].plain, oldest_of(row))
        return cells

    def _show(self, rows: list[tuple[str, Any]], cells: Any) -> None:
        """Fill the table. The cursor stays at its stream, wherever the row is now, or at the top if it is there."""
        table = self.query_one(DataTable)
        at = table.cursor_row
        key = self._keys[at] if 0 < at < len(self._keys) else self._left
        self._left = None
        self._keys = [one for one, _ in rows]
        self._names = []
        table.clear()
        for one, row in rows:
            name, *rest = cells(row)
            self._names.append(name.plain)
            table.add_row(Text(_fitting(name.plain, max(_NAME, self.size.width - _FIGURES))), *rest, key=one)
        if rows:
            table.move_cursor(row=self._keys.index(key) if key in self._keys else min(at, len(rows) - 1))

    def _show_name(self) -> None:
        """Show the whole name of the chosen row, if the table shows a part of it."""
        at = self.query_one(DataTable).cursor_row
        name = self._names[at] if at < len(self._names) else ""
        cut = _fitting(name, max(_NAME, self.size.width - _FIGURES)) != name
        self.query_one("#name", Static).update(Text(name.strip() if cut else ""))

    def _status(self, found: dict[str, Any]) -> str:
        if found["problem"]:
            return str(found["problem"])
        keys, budget = found["keys"], found["budget"]
        about = found["history"][-1] if found["history"] else {}
        reason = ""
        if self.opened is not None:
            stream = next((row for row in found["streams"] if row["name"] == self.opened), None)
            groups = [] if stream is None else stream["groups"]
            notes = [f"lag of {shortened(named(group['name']), 40)}: {group['lag_note']}" for group in groups
                     if group["lag_note"]]  # fmt: skip
            reason = "; ".join(notes)
        known = known_streams(found) if self.opened is None else ""
        return reason or (f"{known}; " if known else "") + (
            f"{number(keys['total'])} keys, {size(int(about.get('memory', 0)))}, {number(about.get('ops', 0))} "
            f"commands/s, {number(about.get('clients', 0))} clients; order: {_ORDERS[self._order]}; "
            f"cost at rest {budget['rest']:.2%} of a core"
        )
