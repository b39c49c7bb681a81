"""What a user may pass where Redis takes bytes, and what comes back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from rillet.types.stream_id import StreamID

Value: TypeAlias = "bytes | bytearray | memoryview | str | int | float"
Fields: TypeAlias = "Mapping[Value, Value] | Iterable[tuple[Value, Value]]"
IDLike: TypeAlias = "StreamID | str | bytes | int"


def encode(value: object) -> bytes:
    """Return the bytes of a value: text as UTF-8, numbers as their shortest text; TypeError names any other type."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, bool) or value is None:
        raise TypeError(f"{value!r} has no one text form: pass bytes, str, int or float")
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, float):
        return repr(value).encode()
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, StreamID):
        return str(value).encode()
    raise TypeError(f"{type(value).__name__} cannot be stored: pass bytes, str, int or float")


def encode_id(value: object) -> bytes:
    """Return the text of an ID: a StreamID, "ms-seq", "ms", "$" and the like, or an int of milliseconds."""
    return str(value).encode() if isinstance(value, StreamID) else encode(value)


def append_fields(argv: list[bytes], fields: Fields) -> None:
    """Append field, value, field, value ... of a mapping or of pairs; ValueError where there are none."""
    before = len(argv)
    pairs = fields.items() if isinstance(fields, Mapping) else fields
    for field, value in pairs:
        # The two usual cases first: this loop is most of the time that `Stream.add` takes.
        argv.append(field.encode("utf-8", "surrogateescape") if type(field) is str else encode(field))
        argv.append(value.encode("utf-8", "surrogateescape") if type(value) is str else encode(value))
    if len(argv) == before:
        raise ValueError("an entry needs at least one field")


def decode(raw: bytes) -> str:
    """Return the text; bytes that are not UTF-8 survive as surrogates, so that encoding it again gives the same bytes."""
    return raw.decode("utf-8", "surrogateescape")
