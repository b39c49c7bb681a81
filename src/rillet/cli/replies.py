"""Replies as redis-cli prints them: from RESP bytes to text, without I/O.

    on a terminal            elsewhere, or with --raw      with --json
    "value"                  value                         "value"
    (integer) 3              3                             3
    (nil)                    (an empty line)               null
    1) "a"                   a                             ["a", null]
    2) (nil)                 (an empty line)
    OK                       OK                            "OK"
    (error) ERR ...          ERR ...                       {"error": "ERR ..."}

A Reply keeps what rillet's parser drops because programs do not need it: whether a text is a status or a value, and the
order of a map's pairs. Redis: redis-cli.c, cliFormatReplyTTY and cliFormatReplyRaw.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from rillet.cli.output import safe
from rillet.errors import ProtocolError
from rillet.protocol.reply_parser import ReplyError
from rillet.runtime.settings.setting_types import quoted as quoted_text

_EMPTY = {"*": "(empty array)", "%": "(empty hash)", "~": "(empty set)", ">": "(empty push)"}
_SEPARATORS = {"%": "#", "~": "~"}
# Commands whose reply is a text of several lines for people.
_TEXTS = frozenset((b"info", b"lolwut", b"memory doctor", b"memory malloc-stats", b"cluster nodes", b"cluster info",
                    b"client list", b"client info", b"latency graph", b"latency doctor"))  # fmt: skip


class Reply(NamedTuple):
    """A reply: the first byte of its RESP type, and its text, its elements, or None."""

    kind: str
    value: Any

    @property
    def is_error(self) -> bool:
        """True for an error reply."""
        return self.kind in "-!"


class IncomingReplies:
    """The replies in bytes that arrive in pieces. A piece is read once: `next` continues where it stopped."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._at = 0
        self._open: list[tuple[str, int, list[Reply]]] = []  # the collections that are incomplete, the outer one first

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._data += data

    @property
    def left(self) -> int:
        """The number of bytes behind the last complete reply."""
        return len(self._data)

    def next(self) -> Reply | None:
        """Return the next reply; None if it is incomplete. Raise ProtocolError."""
        data = self._data
        while (end := data.find(b"\r\n", self._at)) >= 0:
            kind, head, at = chr(data[self._at]), bytes(data[self._at + 1 : end]), end + 2
            if kind in "+-:,#_(":
                reply = Reply(kind, None if kind == "_" else head)
            elif kind not in "$=!*%~>|" or not head.lstrip(b"-").isdigit():
                raise ProtocolError(f"the server sent {kind + safe(head.decode('latin-1'))!r}, which is not RESP")
            elif (size := int(head)) < 0:
                reply = Reply("_", None)
            elif kind in "$=!":
                if len(data) < at + size + 2:
                    return None
                reply = Reply(kind, bytes(data[at : at + size])[4 if kind == "=" else 0 :])
                at += size + 2
            else:
                self._at = at
                if size > 0:
                    self._open.append((kind, 2 * size if kind in "%|" else size, []))
                    continue
                if kind == "|":
                    continue
                reply = Reply(kind, [])
            self._at = at
            whole = self._put(reply)
            if whole is not None:
                del data[: self._at]
                self._at = 0
                return whole
        return None

    def _put(self, reply: Reply) -> Reply | None:
        """Put a reply into the innermost collection; return the outermost one if it is complete now."""
        while self._open:
            kind, count, values = self._open[-1]
            values.append(reply)
            if len(values) < count:
                return None
            self._open.pop()
            if kind == "|":  # attributes: the reply follows
                return None
            reply = Reply(kind, values)
        return reply


def quoted(raw: bytes) -> str:
    """Return bytes in quotes, with escapes for what is not printable ASCII. Redis: sds.c, sdscatrepr."""
    return quoted_text(raw.decode("utf-8", "surrogateescape"))


def is_text(argv: list[bytes]) -> bool:
    """Return whether the reply of a command is a text of several lines, which is printed without quotes."""
    words = [word.lower() for word in argv[:2]]
    return words[0] in _TEXTS or b" ".join(words) in _TEXTS


def on_terminal(reply: Reply, prefix: str = "") -> str:
    """Return a reply as a terminal shows it, without the last end of line."""
    kind, value = reply
    if reply.is_error:
        return f"(error) {_plain(value)}"
    if kind == "_":
        return "(nil)"
    if kind in ":(":
        return f"(integer) {_plain(value)}"
    if kind == ",":
        return f"(double) {_plain(value)}"
    if kind == "#":
        return "(true)" if value == b"t" else "(false)"
    if kind == "$":
        return quoted(value)
    if kind in "+=":
        return _plain(value)
    if not value:
        return _EMPTY[kind]
    return "\n".join(_numbered(kind, value, prefix))


def _numbered(kind: str, values: list[Reply], prefix: str) -> list[str]:
    """Return a line for each element, or for each pair of a map; the first one continues the caller's line."""
    step = 2 if kind == "%" else 1
    width = len(str(len(values) // step))
    inner = prefix + " " * (width + 2)
    lines = []
    for number, place in enumerate(range(0, len(values), step), 1):
        text = " => ".join(on_terminal(one, inner) for one in values[place : place + step])
        lines.append(f"{prefix if number > 1 else ''}{number:>{width}}{_SEPARATORS.get(kind, ')')} {text}")
    return lines


def as_lines(text: bytes) -> str:
    """Return a text of several lines for a terminal."""
    return "\n".join(_plain(line) for line in text.splitlines())


def _plain(value: bytes) -> str:
    return safe(value.decode("utf-8", "surrogateescape"))


def raw(reply: Reply) -> bytes:
    """Return a reply for a program: each value on a line, without quotes."""
    kind, value = reply
    if kind == "_":
        return b""
    if kind == "#":
        return b"(true)" if value == b"t" else b"(false)"
    if kind == "%":
        pairs = zip(value[::2], value[1::2], strict=True)
        return b"\n".join(b"%b %b" % (raw(name), raw(one)) for name, one in pairs)
    if isinstance(value, list):
        return b"\n".join(map(raw, value))
    text: bytes = value
    return text + b"\n" if reply.is_error else text


def plain(reply: Reply) -> Any:
    """Return a reply as values of Python, as the client of rillet does; CommandError if it is an error."""
    kind, value = reply
    if reply.is_error:
        raise ReplyError(value.decode("utf-8", "surrogateescape"))
    if kind in ":(":
        return int(value)
    if kind == "#":
        return bool(value == b"t")
    if kind == "%":
        return [plain(one) for one in value]
    return list(map(plain, value)) if isinstance(value, list) else value


def as_json(reply: Reply) -> str:
    """Return a reply as JSON; bytes that are not UTF-8 become surrogates."""
    return json.dumps(_object(reply))


def _object(reply: Reply) -> Any:
    kind, value = reply
    if kind == "#":
        return bool(value == b"t")
    if kind in ":(":
        return int(value)
    if kind == ",":
        number = float(value)
        return number if number - number == 0 else value.decode()  # JSON has no infinity
    if kind == "%":
        pairs = zip(value[::2], value[1::2], strict=True)
        return {_name(name): _object(one) for name, one in pairs}
    if isinstance(value, list):
        return list(map(_object, value))
    text = None if value is None else value.decode("utf-8", "surrogateescape")
    return {"error": text} if reply.is_error else text


def _name(reply: Reply) -> str:
    found = _object(reply)
    return found if isinstance(found, str) else json.dumps(found)
