"""The elements of a key, page by page: fields of a hash, members of a set or sorted set, elements of a list, a string.

    hash    HSCAN, with the time until a field expires, where the server knows it      next: a cursor
    set     SSCAN                                                                      next: a cursor
    zset    ZRANGE by rank, either end first; with a pattern ZSCAN                     next: a rank, a cursor
    list    LRANGE                                                                     next: an index
    string  its beginning, as text, hex and JSON

A page has about PAGE_BYTES at most: as MEMORY USAGE of the key says how large an element is on average, fewer of large
ones are read at a time. A text is cut in a page; `element` returns it longer.
"""

from __future__ import annotations

from typing import Any

from rillet.errors import CommandError
from rillet.inspector.json_tree import json_tree
from rillet.inspector.text import shown, to_text
from rillet.store.arguments.encoding import decode
from rillet.store.store import Store

PAGE = 100
MOST_PAGE = 1000
PAGE_BYTES = 4 << 20
_CELL = 1000  # bytes of a text in a page
_WHOLE = 64 << 10
_LENGTHS = {"hash": b"HLEN", "set": b"SCARD", "zset": b"ZCARD", "list": b"LLEN", "string": b"STRLEN",
            "stream": b"XLEN"}  # fmt: skip
_COLUMNS = {"hash": ["Field", "Value"], "set": ["Member"], "zset": ["Rank", "Member", "Score"],
            "list": ["Index", "Element"]}  # fmt: skip


def value_page(store: Store, key: bytes, *, start: str = "", count: int = PAGE, match: bytes = b"",
               reverse: bool = False) -> dict[str, Any]:  # fmt: skip
    """Return facts about a key and a page of its elements; CommandError if there is none. O(elements of the page)

    start: `next` of the page before. match: a glob on fields and members; lists have none. A page examines `count`
    elements, or MOST_PAGE with a pattern, and has those that match. reverse: the highest scores first. rows: cells as
    [text, bytes, flags], or numbers as text; flags "c" if the text is cut, "j" if it may be JSON.
    """
    kind = decode(store.run([b"TYPE", key]))
    if kind == "none":
        raise CommandError(f"no such key: {to_text(key)[:200]}")
    memory = _quiet(store, [b"MEMORY", b"USAGE", key])
    length = _quiet(store, [_LENGTHS[kind], key]) if kind in _LENGTHS else None
    encoding = _quiet(store, [b"OBJECT", b"ENCODING", key])
    found: dict[str, Any] = {
        "key": to_text(key), "type": kind, "encoding": decode(encoding) if encoding is not None else None,
        "memory": memory, "length": length, "ttl": _time_left(store.run([b"PTTL", key])),
        "columns": _COLUMNS.get(kind, []), "rows": [], "next": None, "matches": kind in ("hash", "set", "zset"),
    }  # fmt: skip
    if kind == "string":
        found["text"] = _whole(store.run([b"GETRANGE", key, b"0", b"%d" % (_WHOLE - 1)]), int(length or 0))
    elif kind in _COLUMNS:
        each = max(1, memory // max(1, length or 1)) if memory else PAGE_BYTES // 10
        count = max(1, min(MOST_PAGE if match else count, MOST_PAGE, PAGE_BYTES // each))
        _READERS[kind](store, key, start, count, match, reverse, found)
    return found


def element(store: Store, key: bytes, at: bytes) -> dict[str, Any]:
    """Return one element with its bytes and JSON tree: the value of a field, at an index, or a member; KeyError."""
    kind = decode(store.run([b"TYPE", key]))
    if kind == "hash":
        raw = store.run([b"HGET", key, at])
    elif kind == "list":
        raw = store.run([b"LINDEX", key, at])
    else:
        held = {"set": b"SISMEMBER", "zset": b"ZSCORE"}.get(kind)
        raw = at if held is not None and store.run([held, key, at]) not in (None, 0) else None
    if raw is None:
        raise KeyError("the key has no such element any more")
    return _whole(raw[:_WHOLE], len(raw))


def _whole(raw: bytes, size: int) -> dict[str, Any]:
    text, _ = shown(raw, _WHOLE)
    return {"text": text, "bytes": size, "cut": size > len(raw), "hex": raw[:64].hex(" "), "json": json_tree(raw)}


def _cell(raw: bytes) -> list[Any]:
    text, cut = shown(raw, _CELL)
    return [text, len(raw), ("c" if cut else "") + ("j" if raw[:1] in (b"{", b"[") else "")]


def _hash(store: Store, key: bytes, start: str, count: int, match: bytes, reverse: bool,
          found: dict[str, Any]) -> None:  # fmt: skip
    flat = _scanned(store, b"HSCAN", key, start, count, match, found)
    names = flat[::2]
    times = _quiet(store, [b"HPTTL", key, b"FIELDS", b"%d" % len(names), *names]) if names else None
    left = [_time_left(int(one)) for one in times] if times is not None else []
    found["rows"] = [[_cell(name), _cell(value)] for name, value in zip(names, flat[1::2], strict=True)]
    if any(one is not None for one in left):
        found["columns"] = [*found["columns"], "Expires in (ms)"]
        for row, one in zip(found["rows"], left, strict=True):
            row.append("" if one is None else str(one))


def _set(store: Store, key: bytes, start: str, count: int, match: bytes, reverse: bool,
         found: dict[str, Any]) -> None:  # fmt: skip
    found["rows"] = [[_cell(one)] for one in _scanned(store, b"SSCAN", key, start, count, match, found)]


def _zset(store: Store, key: bytes, start: str, count: int, match: bytes, reverse: bool,
          found: dict[str, Any]) -> None:  # fmt: skip
    if match:
        flat = _scanned(store, b"ZSCAN", key, start, count, match, found)
        found["columns"] = ["Member", "Score"]
        found["rows"] = [[_cell(one), _score(score)] for one, score in zip(flat[::2], flat[1::2], strict=True)]
        return
    first = int(start or 0)
    command = b"ZREVRANGE" if reverse else b"ZRANGE"
    flat = store.run([command, key, b"%d" % first, b"%d" % (first + count - 1), b"WITHSCORES"])
    pairs = flat if flat and isinstance(flat[0], list) else list(zip(flat[::2], flat[1::2], strict=True))
    found["rows"] = [[str(first + n), _cell(one), _score(score)] for n, (one, score) in enumerate(pairs)]
    found["next"] = str(first + count) if len(pairs) == count and first + count < (found["length"] or 0) else None


def _list(store: Store, key: bytes, start: str, count: int, match: bytes, reverse: bool,
          found: dict[str, Any]) -> None:  # fmt: skip
    first = int(start or 0)
    rows = store.run([b"LRANGE", key, b"%d" % first, b"%d" % (first + count - 1)])
    found["rows"] = [[str(first + n), _cell(one)] for n, one in enumerate(rows)]
    found["next"] = str(first + count) if len(rows) == count and first + count < (found["length"] or 0) else None


_READERS = {"hash": _hash, "set": _set, "zset": _zset, "list": _list}


def _scanned(store: Store, command: bytes, key: bytes, start: str, count: int, match: bytes,
             found: dict[str, Any]) -> list[bytes]:  # fmt: skip
    pattern = [b"MATCH", match] if match else []
    cursor, flat = store.run([command, key, b"%d" % int(start or 0), *pattern, b"COUNT", b"%d" % count])
    found["next"] = None if int(cursor) == 0 else decode(cursor)
    return list(flat)


def _score(score: Any) -> str:
    return decode(score) if isinstance(score, bytes) else repr(score)


def _time_left(milliseconds: int) -> int | None:
    return None if milliseconds < 0 else milliseconds


def _quiet(store: Store, argv: list[bytes]) -> Any:
    """Return a reply; None if the server refuses the command: it is older, or the user may not run it."""
    try:
        return store.run(argv)
    except CommandError:
        return None
