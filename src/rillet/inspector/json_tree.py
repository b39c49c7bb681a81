"""JSON and MessagePack values as trees that a page can expand: bounded in depth and size, numbers as they were written.

    {"a": [1, 1.50]}   ->   ["object", [["a", ["array", [["number", "1"], ["number", "1.50"]]]]]]

A browser would read 12345678901234567890 as 12345678901234567000. So numbers stay text. MessagePack is read if msgspec
is installed, as the codec `msgpack` of streams needs it; a map or an array of it does not begin as text in UTF-8 does.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

from rillet.inspector.text import shown

MOST = 256 << 10
"""The most bytes of a value that is parsed."""
_DEPTH, _ITEMS, _TEXT = 40, 1000, 4000


class _NumberText(str):
    __slots__ = ()


class _Constant(str):
    __slots__ = ()


def json_tree(raw: bytes) -> list[Any] | None:
    """Return the tree of an object or array in JSON or MessagePack; None for other bytes, and for values over MOST.

    O(bytes)
    """
    if len(raw) > MOST:
        return None
    if raw.lstrip()[:1] not in (b"{", b"["):
        return _msgpack_tree(raw)
    try:
        value = json.loads(raw.decode("utf-8"), parse_int=_NumberText, parse_float=_NumberText,
                           parse_constant=_Constant, object_pairs_hook=lambda pairs: dict(pairs))  # fmt: skip
    except (ValueError, RecursionError):
        return None
    return _tree(value, 0)


def _msgpack_tree(raw: bytes) -> list[Any] | None:
    if not raw or not (0x80 <= raw[0] <= 0x9F or 0xDC <= raw[0] <= 0xDF) or _is_text(raw) or not find_spec("msgspec"):
        return None
    import msgspec

    try:
        return _tree(msgspec.msgpack.decode(raw), 0)
    except (ValueError, RecursionError):  # msgspec.DecodeError is a ValueError
        return None


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _tree(value: Any, depth: int) -> list[Any]:
    if depth > _DEPTH:
        return ["cut", "deeper"]
    if isinstance(value, dict):
        pairs = [[_text(str(key)), _tree(one, depth + 1)] for key, one in list(value.items())[:_ITEMS]]
        return ["object", pairs, *([len(value)] if len(value) > _ITEMS else [])]
    if isinstance(value, list):
        items = [_tree(one, depth + 1) for one in value[:_ITEMS]]
        return ["array", items, *([len(value)] if len(value) > _ITEMS else [])]
    if isinstance(value, (_NumberText, _Constant, float)) or type(value) is int:
        return ["number", str(value)[:_TEXT]]
    if isinstance(value, str):
        return ["string", _text(value)]
    if isinstance(value, bytes):
        return ["string", shown(value, _TEXT)[0]]
    if not isinstance(value, (bool, type(None))):  # a time or an extension of MessagePack
        return ["constant", str(value)[:_TEXT]]
    return ["constant", {True: "true", False: "false", None: "null"}[value]]


def _text(text: str) -> str:
    found, cut = shown(text.encode("utf-8", "surrogatepass"), _TEXT)
    return found + ("..." if cut else "")
