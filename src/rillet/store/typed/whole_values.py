"""The codecs of typed streams that store a whole value in one field: `codec="json"`, "msgpack" or "raw".

`add` decodes the bytes that it is about to write, so that an entry that it has written can be read: msgspec encodes a
list[int] that contains a text, and a Struct whose constraint does not hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rillet.store import codecs
from rillet.store.typed.pydantic_models import is_model, json_of_model, msgpack_of_model


class Checked:
    """A codec whose `encode` raises TypeError for a value of another class, and InvalidValue for an invalid one."""

    __slots__ = ("_inner", "_kind", "decode")

    def __init__(self, inner: codecs.Codec[Any], kind: Any) -> None:
        self._inner = inner
        self._kind = _class_of(kind)
        self.decode: Callable[[bytes], Any] = inner.decode

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a value after a check that `decode` accepts them."""
        if self._kind is not None and value.__class__ is not self._kind:
            raise TypeError(f"expected {self._kind.__name__}, got {value!r:.80} ({type(value).__name__})")
        raw = self._inner.encode(value)
        self.decode(raw)
        return raw


def _class_of(kind: Any) -> type | None:
    """Return the class that values of a type have; None if there are several."""
    if not isinstance(kind, type):
        return None
    return dict if issubclass(kind, dict) else kind


def codec_of(type: Any, name: str) -> codecs.Codec[Any]:
    """Return the codec of a name for a type (None for any value); ValueError for an unknown name."""
    if name == "raw":
        if type not in (None, bytes):
            raise TypeError(f"codec='raw' stores bytes: type={type!r} has no effect with it")
        return codecs.raw
    if name not in ("json", "msgpack"):
        raise ValueError(f"codec must be 'fields', 'json', 'msgpack', 'raw' or a codec, not {name!r}")
    if type is None:
        return codecs.json_of(Any) if name == "json" else codecs.msgpack_of(Any)
    if is_model(type):
        made = json_of_model(type) if name == "json" else msgpack_of_model(type)
    else:
        made = codecs.json_of(type) if name == "json" else codecs.msgpack_of(type)
    return Checked(made, type)
