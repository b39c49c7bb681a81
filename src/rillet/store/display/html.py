"""A store, a stream and a group in a notebook: a small table in HTML (`_repr_html_`).

    Store     the first ten streams that a scan of at most 10,000 keys finds, with their lengths
    Stream    length, first and last ID, groups with their lag, the last five entries
    Group     position, lag, consumers, the first five pending messages

**Bounds.** A handful of read-only commands: O(groups of the stream) and O(consumers of the group) at most, of which ten
are shown, and texts are cut at 80 characters. Entries are read as they are stored: a typed stream's `on_invalid`, which
may write, does not apply. **Errors** are shown in place of the table, because a notebook would print a traceback for a
variable that is merely displayed: the store is closed, the server does not answer, the key is not a stream.

Every text is escaped, so names and values of other programs cannot contain markup or scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

from rillet.errors import RilletError
from rillet.store.arguments.encoding import decode, parse_id
from rillet.store.arguments.slots import shards_of
from rillet.store.entry import named
from rillet.store.info_records import groups_of
from rillet.store.transports.transport import raised
from rillet.types.stream.id import StreamID

if TYPE_CHECKING:
    from rillet.store.group import Group
    from rillet.store.store import Store
    from rillet.store.stream import Stream

ROWS, ENTRIES, WIDTH, TITLE = 10, 5, 80, 300
_PAGES, _PAGE = 10, 1000  # replies of SCAN, and keys of each

Row = Sequence[object]


def store_html(store: Store) -> str:
    """Return the streams of a store as HTML. O(10,000 keys)"""
    return _shown(repr(store), partial(_store, store))


def stream_html(stream: Stream[Any]) -> str:
    """Return the state of a stream and its last entries as HTML. O(groups)"""
    return _shown(repr(stream), partial(_stream, stream))


def group_html(group: Group[Any]) -> str:
    """Return the state of a group, its consumers and first pending messages as HTML. O(groups + consumers)"""
    return _shown(repr(group), partial(_group, group))


def _shown(title: str, body: Callable[[], str]) -> str:
    try:
        content = body()
    except (RilletError, OSError, KeyError) as error:
        content = f"<p>{_cell(f'{type(error).__name__}: {error}', TITLE)}</p>"
    return f"<div><p><strong>{_cell(title, TITLE)}</strong></p>{content}</div>"


def _store(store: Store) -> str:
    names, complete = _some_streams(store)
    rows = [(decode(name), f"{store.execute('XLEN', name):,}") for name in names[:ROWS]]
    more = "" if complete and len(names) <= ROWS else "<p>and possibly more: <code>store.streams()</code></p>"
    return _table(("stream", "entries"), rows) + more if rows else "<p>no streams found</p>" + more


def _some_streams(store: Store) -> tuple[list[bytes], bool]:
    """Return the keys of some streams, and whether these are all."""
    found: list[bytes] = []
    pages = 0
    for run in shards_of(store):
        cursor = b"0"
        while True:
            cursor, names = raised(run([b"SCAN", cursor, b"COUNT", b"%d" % _PAGE, b"TYPE", b"stream"]))
            found += names
            pages += 1
            if cursor == b"0":
                break
            if pages >= _PAGES or len(found) > ROWS:
                return sorted(set(found)), False
    return sorted(set(found)), True


def _stream(stream: Stream[Any]) -> str:
    store, key = stream.store, stream.key
    facts = named(store.execute("XINFO", "STREAM", key))
    first, last = facts["first-entry"], facts["last-entry"]
    about = [
        ("entries", f"{facts['length']:,}"), ("first", _id(first.id if first else None)),
        ("last", _id(last.id if last else None)), ("groups", facts["groups"]),
    ]  # fmt: skip
    groups = groups_of(store.execute("XINFO", "GROUPS", key)) if facts["groups"] else []
    rows = [(one.name, "?" if one.lag is None else f"{one.lag:,}", f"{one.pending:,}", one.consumers)
            for one in groups[:ROWS]]  # fmt: skip
    text = _table(("", ""), about) + _table(("group", "lag", "pending", "consumers"), rows, len(groups))
    entries = store.execute("XREVRANGE", key, "+", "-", "COUNT", ENTRIES)
    return text + _table(("last entries", "fields"), [(_id(parse_id(id)), _fields(flat)) for id, flat in entries])


def _group(group: Group[Any]) -> str:
    info, consumers = group.info(), group.consumers()
    about = [
        ("last delivered", _id(info.last_delivered_id)), ("lag", "?" if info.lag is None else f"{info.lag:,}"),
        ("pending", f"{info.pending:,}"),
    ]  # fmt: skip
    rows = [(one.name, f"{one.pending:,}", _seconds(one.idle_ms)) for one in consumers[:ROWS]]
    text = _table(("", ""), about) + _table(("consumer", "pending", "idle"), rows, len(consumers))
    pending = [(_id(one.id), one.consumer, _seconds(one.idle_ms), one.deliveries) for one in group.pending(ENTRIES)]
    return text + _table(("message", "consumer", "idle", "deliveries"), pending, info.pending)


def _table(head: Row, rows: Sequence[Row], total: int = 0) -> str:
    """Return a table; nothing without rows."""
    if not rows:
        return ""
    lines = [_line("th", head)] if any(head) else []
    lines += [_line("td", row) for row in rows]
    more = f"<p>and {total - len(rows):,} more</p>" if total > len(rows) else ""
    return f"<table>{''.join(lines)}</table>{more}"


def _line(tag: str, cells: Iterable[object]) -> str:
    style = ' style="text-align: left"'
    return f"<tr>{''.join(f'<{tag}{style}>{_cell(cell)}</{tag}>' for cell in cells)}</tr>"


def _cell(value: object, width: int = WIDTH) -> str:
    """Return a text without markup and control characters, cut at a number of characters."""
    text = str(value)
    if len(text) > width:
        text = text[: width - 1] + "…"
    return escape("".join(one if one.isprintable() else _escaped(one) for one in text))


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8 (rillet.store.arguments.encoding)
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape", "surrogatepass").decode()


def _fields(flat: Sequence[bytes]) -> str:
    """Return the fields of an entry; only as many as fit into a cell are decoded."""
    text = ""
    for at in range(0, len(flat) - 1, 2):
        if len(text) > WIDTH:
            break
        text += f"{', ' if at else ''}{decode(flat[at][:WIDTH])}={decode(flat[at + 1][:WIDTH])}"
    return text


def _id(id: StreamID | None) -> str:
    """Return an ID with its time; the ID only if its milliseconds are not a time since 2000."""
    if id is None:
        return "-"
    if not 946_684_800_000 <= id.ms < 253_402_300_800_000:
        return str(id)
    return f"{id} ({id.datetime.isoformat(' ', 'seconds').replace('+00:00', 'Z')})"


def _seconds(ms: int) -> str:
    return "-" if ms < 0 else f"{ms / 1000:,.1f} s"
