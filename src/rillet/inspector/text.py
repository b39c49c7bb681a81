r"""Hostile bytes as printable text, and back: keys, fields and values in JSON, in addresses and on the page.

    b"orders"            orders
    b"na\xc3\xafve"       naïve
    b"\xff\x00"          \xff\x00         bytes that are not UTF-8, and control characters
    "\u202e" in UTF-8    \u202e           characters that are not printable: they could reorder or hide text
    b"a\\b"              a\\b             so that each text stands for one value

The notation is reversible (`from_text`), so a name from one answer can be used in the next request.
"""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(\\))")


def to_text(raw: bytes) -> str:
    """Return bytes as printable text, in the notation of this module. O(bytes)"""
    text = raw.decode("utf-8", "surrogateescape")
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(one if one.isprintable() and one != "\\" else _escaped(one) for one in text)


def _escaped(character: str) -> str:
    code = ord(character)
    if character == "\\":
        return "\\\\"
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def from_text(text: str) -> bytes:
    """Return the bytes of a text in the notation of this module; ValueError for an unknown escape sequence."""
    if "\\" not in text:
        return text.encode("utf-8", "surrogateescape")
    out = bytearray()
    at = 0
    while at < len(text):
        if text[at] != "\\":
            end = text.find("\\", at)
            end = len(text) if end < 0 else end
            out += text[at:end].encode("utf-8", "surrogateescape")
            at = end
            continue
        match = _ESCAPE.match(text, at)
        if match is None:
            raise ValueError(f"{text[at : at + 4]!r} is not an escape sequence: write a backslash as \\\\")
        byte, short, long, backslash = match.groups()
        if byte:
            out.append(int(byte, 16))
        else:
            out += (backslash or chr(int(short or long, 16))).encode("utf-8", "surrogatepass")
        at = match.end()
    return bytes(out)


def shown(raw: bytes, most: int) -> tuple[str, bool]:
    """Return the text of at most `most` bytes, cut between two characters, and whether bytes were left out."""
    if len(raw) <= most:
        return to_text(raw), False
    end = most
    while end > most - 4 and end > 0 and raw[end] & 0xC0 == 0x80:
        end -= 1
    return to_text(raw[:end]), True
