"""Codecs: how a Python value becomes the bytes that Redis stores, and how these bytes become a value again.

    store.hash("k")                              text           str in, str out
    store.hash("k", codec=codecs.raw)            raw            bytes in, bytes out
    store.hash("k", codec=text_of(int))          text_of(T)     a number, date, enum ... as plain text: 42
    store.hash("k", codec=codecs.json)           json           any JSON value
    store.hash("k", codec=json_of(list[int]))    json_of(T)     JSON, decoded as T and checked
    store.hash("k", codec=codecs.msgpack)        msgpack, msgpack_of(T)

Any object with `encode(value) -> bytes` and `decode(bytes) -> value` is a codec. Two values are the same set member if
the codec returns the same bytes for both.

Each type has one text. `text_of` writes it as it is, and JSON writes it between quotation marks where JSON has no such
type. Redis, Spark and every other client can read it.

    type             text                                    example
    str              UTF-8; other bytes as surrogates        Zürich
    bytes            the bytes; in JSON as base64            \\x00\\x01
    int              decimal, so that INCR works             -42
    float            the shortest text that reads back       99.9, 1e+16, inf, nan  (in JSON, msgspec writes null for
                                                             inf and nan; the standard library raises ValueError)
    bool             true, false                             true
    None             the empty text; in JSON null
    datetime         ISO 8601, Z for UTC, no zone if naive   2026-11-22T10:30:00Z, 2026-11-22T10:30:00.250000+01:00
    date, time       ISO 8601                                2026-11-22, 10:30:00
    timedelta        ISO 8601: days and seconds              PT3600S, -P2DT0.5S, P0D
    Decimal          its digits                              99.90
    UUID             36 characters                           12345678-1234-5678-1234-567812345678
    Enum, Literal    the text of its value                   red
    another type     JSON: list, dict, dataclass, msgspec.Struct, int | str ...

The empty text of None and of "" would be equal, so `text_of(str | None)` is rejected. Use json_of(str | None) there.
MessagePack has these differences: an aware datetime becomes a timestamp in UTC, and bytes stay bytes.

`json` and `msgpack` use msgspec (`pip install 'rillet[codecs]'`). Without it, the standard library handles `json`, and
json_of for the types that JSON has, with the same bytes.

Type checkers derive the type of the values from the codec. For a union they need an annotation:
`codec: Codec[int | None] = text_of(int | None)`.

A value of another type raises TypeError on write. Bytes that are not a T raise InvalidValue on read.

Rejected: pickle, because reading a value would execute code of its writer. "True" and "None" for bool and None, because
they would be read as texts by every other client. A text for None such as "null", because a column of numbers in which
null occurs would become a column of texts in Arrow.
"""

from __future__ import annotations

import base64
import dataclasses
import json as _standard_json
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum, Flag
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    overload,
)
from uuid import UUID

from rillet.errors import InvalidValue
from rillet.extras import require
from rillet.store.arguments.encoding import decode, encode

V = TypeVar("V")
_INTEGER = re.compile(rb"-?[0-9]+")
_DURATION = re.compile(
    r"([+-]?)P(?=[0-9]|T[0-9])(?:([0-9]+)W)?(?:([0-9]+)D)?"
    r"(?:T(?=[0-9])(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+)(?:\.([0-9]{1,6}))?S)?)?"
)
_JSON_TYPES = (int, float, str, bool, list, dict, NoneType)


class Codec(Protocol[V]):
    """Converts values of type V to bytes and back."""

    def encode(self, value: V, /) -> bytes:
        """Return the bytes to store; raise TypeError for a value of another type."""

    def decode(self, raw: bytes, /) -> V:
        """Return the value of stored bytes; raise InvalidValue if they are not a value of this codec."""


class _PairCodec(Generic[V]):
    """A codec of two functions. Codecs with the same name and type are equal."""

    __slots__ = ("decode", "encode", "name", "type")

    def __init__(self, name: str, type: Any, encode: Callable[[V], bytes], decode: Callable[[bytes], V]) -> None:
        self.name = name
        self.type = type
        self.encode = encode
        self.decode = decode

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _PairCodec) and (self.name, self.type) == (other.name, other.type)

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> str | tuple[Any, ...]:
        if self.type is Any and self.name in ("raw", "text"):
            return self.name
        return {"text": text_of, "json": json_of, "msgpack": msgpack_of}[self.name], (self.type,)

    def __repr__(self) -> str:
        return self.name if self.type is Any else f"{self.name}_of({name_of(self.type)})"


def name_of(type: Any) -> str:
    """Return the name of a type in errors."""
    text = getattr(type, "__name__", str(type)) if get_origin(type) is None else str(type)
    return text.replace("typing.", "")


def made(name: str, type: Any, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]) -> Codec[Any]:
    """Return a codec of two functions."""
    return _PairCodec(name, type, encode, decode)


# ---- raw and text ----------------------------------------------------------------------------------------------------


def _bytes_of(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"the codec raw stores bytes, not {type(value).__name__}")
    return bytes(value)


raw: Codec[bytes] = _PairCodec("raw", Any, _bytes_of, bytes)
"""Bytes in, bytes out."""

text: Codec[str] = _PairCodec("text", Any, encode, decode)
"""str in, str out. It also writes bytes, int and float, as the fields of an entry do, and reads them as str."""


@overload
def text_of(type: type[V]) -> Codec[V]: ...
@overload
def text_of(type: Any) -> Codec[Any]: ...
def text_of(type: Any) -> Codec[Any]:
    """Return the codec that writes values of a type as the text in this module's table; JSON for other types."""
    forms = _forms_of(type)
    return json_of(type) if forms is None else _PairCodec("text", type, *forms)


def has_text(type: Any) -> bool:
    """Return whether values of a type, or those that are not None, are written as text; otherwise as JSON."""
    if get_origin(type) in (Union, UnionType):
        members = [member for member in get_args(type) if member is not NoneType]
        return len(members) == 1 and has_text(members[0])
    return _forms_of(type) is not None


def forms_of(type: Any) -> _Forms:
    """Return the functions of a field of a typed stream: text, or JSON that is read again before it is written."""
    forms = _forms_of(type)
    if forms is not None:
        return forms
    codec: Codec[Any] = json_of(type)

    def write(value: Any) -> bytes:
        raw = codec.encode(value)
        codec.decode(raw)
        return raw

    return write, codec.decode


_Forms = tuple[Callable[[Any], bytes], Callable[[bytes], Any]]


def _forms_of(type: Any) -> _Forms | None:
    """Return the two functions of a type that has a text; None for a type that is written as JSON."""
    type = getattr(type, "__supertype__", type)  # NewType
    if get_origin(type) is Annotated:
        return _annotated_forms(type)
    if get_origin(type) in (Union, UnionType):
        members = [member for member in get_args(type) if member is not NoneType]
        forms = _forms_of(members[0]) if len(members) == 1 else None
        return None if forms is None else _optional_forms(type, *forms)
    if get_origin(type) is Literal:
        return _literal_forms(type)
    if type in _SCALARS:
        return _SCALARS[type]
    if _is_subclass(type, Flag):
        return _number_forms(type)
    if _is_subclass(type, Enum):
        return _enum_forms(type)
    return None


def _annotated_forms(type: Any) -> _Forms | None:
    """Return the functions of Annotated[T, Meta(...)]: the text of T; msgspec checks the constraints."""
    inner, *metadata = get_args(type)
    forms = _forms_of(inner)
    if forms is None or not any(one.__class__.__module__.startswith("msgspec") for one in metadata):
        return forms
    write, read = forms
    msgspec = _msgspec(f"text_of({type})")
    try:
        msgspec.json.Decoder(type)
    except TypeError as error:  # a constraint that msgspec does not support for this type
        raise TypeError(f"text_of({type}): {error}") from None

    def checked_write(value: Any) -> bytes:
        raw = write(value)
        try:
            msgspec.convert(value, type)
        except msgspec.ValidationError as error:
            raise InvalidValue(f"{error}, got {value!r}") from None
        return raw

    def checked_read(raw: bytes) -> Any:
        value = read(raw)
        try:
            return msgspec.convert(value, type)
        except msgspec.ValidationError as error:
            raise InvalidValue(f"{error}, got {decode(raw)!r}") from None

    return checked_write, checked_read


def _optional_forms(type: Any, write: Callable[[Any], bytes], read: Callable[[bytes], Any]) -> _Forms:
    """Return the functions of `T | None`; raise TypeError if T also has a value whose text is empty."""
    try:
        read(b"")
    except InvalidValue:
        return lambda value: b"" if value is None else write(value), lambda raw: None if raw == b"" else read(raw)
    raise TypeError(f"text_of({type}): None and an empty value have the same text; use json_of({type})")


def _scalar(type: Any, write: Callable[[Any], bytes], read: Callable[[str], Any]) -> _Forms:
    """Return the functions of a type, with the checks of the value and of the text."""
    related = _RELATED.get(type, ())

    def checked_write(value: Any) -> bytes:
        if value.__class__ is not type and (not isinstance(value, type) or isinstance(value, related)):
            raise TypeError(f"text_of({type.__name__}) stores {type.__name__}, not {value.__class__.__name__}")
        return write(value)

    def checked_read(raw: bytes) -> Any:
        try:
            return read(raw.decode())
        except (ValueError, KeyError, InvalidOperation, OverflowError):
            raise InvalidValue(f"expected {type.__name__}, got {decode(raw)!r}") from None

    return checked_write, checked_read


# A value of the second type is also an instance of the first, but has another text.
_RELATED: dict[Any, type] = {int: bool, date: datetime}  # the functions below check int themselves


def _read_integer(digits: str) -> int:
    return _read_int(digits.encode())


def _write_int(value: Any) -> bytes:
    if value.__class__ is not int and (not isinstance(value, int) or isinstance(value, bool)):
        raise TypeError(f"text_of(int) stores int, not {value.__class__.__name__}")
    return b"%d" % value


def _read_int(raw: bytes) -> int:
    if raw.isdigit() or _INTEGER.fullmatch(raw):  # int() also accepts +1, 1_0 and spaces
        try:
            return int(raw)
        except ValueError:  # more than 4300 digits
            pass
    raise InvalidValue(f"expected int, got {decode(raw)!r:.200}")


def _write_str(value: Any) -> bytes:
    if isinstance(value, str):
        return encode(value)
    raise TypeError(f"text_of(str) stores str, not {value.__class__.__name__}")


def _write_bool(value: Any) -> bytes:
    if value is True:
        return b"true"
    if value is False:
        return b"false"
    raise TypeError(f"text_of(bool) stores bool, not {value.__class__.__name__}")


def _read_bool(raw: bytes) -> bool:
    if raw == b"true":
        return True
    if raw == b"false":
        return False
    raise InvalidValue(f"expected bool, got {decode(raw)!r}")


def _write_float(value: Any) -> bytes:
    if value.__class__ is not float and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise TypeError(f"text_of(float) stores float, not {value.__class__.__name__}")
    return float.__repr__(float(value)).encode()


def _read_float(raw: bytes) -> float:
    if b"_" not in raw and raw.strip() == raw:  # float() also accepts these
        try:
            return float(raw)
        except ValueError:
            pass
    raise InvalidValue(f"expected float, got {decode(raw)!r}")


def _read_decimal(digits: str) -> Decimal:
    if "_" in digits or digits != digits.strip():
        raise ValueError(digits)
    return Decimal(digits)


def _write_iso(value: datetime | time) -> bytes:
    """Return ISO 8601 with Z in place of +00:00, as msgspec and add_arrow write it."""
    iso = value.isoformat()
    return (iso[:-6] + "Z" if iso.endswith("+00:00") else iso).encode()


def _write_duration(value: timedelta) -> bytes:
    """Return ISO 8601 with days and seconds only, as msgspec writes it."""
    size = abs(value)
    fraction = f".{size.microseconds:06}".rstrip("0").rstrip(".")
    seconds = f"T{size.seconds}{fraction}S" if size.seconds or fraction else ""
    days = f"{size.days}D" if size.days or not seconds else ""
    return f"{'-' if value.days < 0 else ''}P{days}{seconds}".encode()


def _read_duration(duration: str) -> timedelta:
    found = _DURATION.fullmatch(duration)
    if found is None:
        raise ValueError(duration)
    sign, *numbers, fraction = found.groups()
    weeks, days, hours, minutes, seconds = (int(number or 0) for number in numbers)
    micros = int((fraction or "").ljust(6, "0"))
    # Each part has the sign, because the smallest timedelta has no positive counterpart.
    one = -1 if sign == "-" else 1
    return timedelta(one * days, one * seconds, one * micros, 0, one * minutes, one * hours, one * weeks)


def _is_subclass(kind: Any, parent: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, parent)


def _number_forms(flag: Any) -> _Forms:
    return _scalar(flag, lambda value: b"%d" % value.value, lambda digits: flag(_read_integer(digits)))


def _enum_forms(enum: Any) -> _Forms:
    """Return the functions of an Enum; raise TypeError if two of its values have the same text."""
    texts = {member: _text_of_value(member) for member in enum}
    members = {decode(written): member for member, written in texts.items()}
    if len(members) != len(texts):
        raise TypeError(f"text_of({enum.__name__}): two members have the same text")
    return _scalar(enum, texts.__getitem__, members.__getitem__)


def _literal_forms(literal: Any) -> _Forms | None:
    """Return the functions of a Literal; None (JSON) if it contains None, or two values with the same text."""
    texts = {}
    for value in get_args(literal):
        forms = None if value is None else _forms_of(type(value))
        if forms is None:
            return None
        texts[type(value), value] = forms[0](value)
    values = {written: key[1] for key, written in texts.items()}
    if len(values) != len(texts):
        return None

    def write(value: Any) -> bytes:
        written = texts.get((type(value), value)) if isinstance(value, (str, bytes, int, Enum)) else None
        if written is None:
            raise TypeError(f"text_of({literal}) does not store {value!r:.80}")
        return written

    def read(raw: bytes) -> Any:
        if raw in values:
            return values[raw]
        raise InvalidValue(f"expected {name_of(literal)}, got {decode(raw)!r}")

    return write, read


def _text_of_value(member: Enum) -> bytes:
    forms = _forms_of(type(member.value))
    if forms is None:
        raise TypeError(f"text_of({type(member).__name__}): the value {member.value!r} has no text")
    return forms[0](member.value)


_SCALARS: dict[Any, _Forms] = {
    bytes: (raw.encode, raw.decode),
    str: (_write_str, decode),  # any bytes are a str
    bool: (_write_bool, _read_bool),
    int: (_write_int, _read_int),
    float: (_write_float, _read_float),
    NoneType: _scalar(NoneType, lambda value: b"", {"": None}.__getitem__),
    datetime: _scalar(datetime, _write_iso, datetime.fromisoformat),
    date: _scalar(date, _write_iso, date.fromisoformat),
    time: _scalar(time, _write_iso, time.fromisoformat),
    timedelta: _scalar(timedelta, _write_duration, _read_duration),
    Decimal: _scalar(Decimal, lambda value: str(value).encode(), _read_decimal),
    UUID: _scalar(UUID, lambda value: str(value).encode(), UUID),
}

# ---- JSON and MessagePack --------------------------------------------------------------------------------------------


@overload
def json_of(type: type[V]) -> Codec[V]: ...
@overload
def json_of(type: Any) -> Codec[Any]: ...
def json_of(type: Any) -> Codec[Any]:
    """Return the codec that writes JSON and reads it as values of a type, which it checks.

    Dataclasses, TypedDicts, msgspec Structs and containers of them need msgspec; without it they raise MissingExtra.
    """
    try:
        import msgspec
    except ModuleNotFoundError:
        if type is not Any and type not in _JSON_TYPES:
            _msgspec(f"json_of({name_of(type)})")
        return _PairCodec("json", type, _standard_encode, _standard_decoder(type))
    return _PairCodec(
        "json", type, msgspec.json.Encoder().encode, checked_decoder(msgspec.json.Decoder(type).decode)
    )


@overload
def msgpack_of(type: type[V]) -> Codec[V]: ...
@overload
def msgpack_of(type: Any) -> Codec[Any]: ...
def msgpack_of(type: Any) -> Codec[Any]:
    """Return the codec that writes MessagePack and reads it as values of a type, which it checks."""
    module = _msgspec("MessagePack").msgpack
    return _PairCodec("msgpack", type, module.Encoder().encode, checked_decoder(module.Decoder(type).decode))


def _msgspec(use: str) -> Any:
    """Return the module msgspec; raise MissingExtra with the command that installs it."""
    require("codecs", use)
    import msgspec

    return msgspec


def checked_decoder(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return a decoder that raises InvalidValue in place of msgspec's errors, which are ValueErrors."""

    def checked(raw: bytes) -> Any:
        try:
            return read(raw)
        except ValueError as error:
            raise InvalidValue(f"{error}; got {raw[:80]!r}") from None

    return checked


def _standard_encode(value: Any) -> bytes:
    form = _standard_json.dumps(value, default=_json_form, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return form.encode()


def _json_form(value: Any) -> Any:
    """Return a value that JSON has for a value that it has not: the same as msgspec's."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, (set, frozenset)):
        return list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    forms = _SCALARS.get(type(value))
    if forms is None:
        raise TypeError(f"{type(value).__name__} has no JSON form without msgspec: pip install 'rillet[codecs]'")
    return forms[0](value).decode()


def _standard_decoder(type: Any) -> Callable[[bytes], Any]:
    """Return a decoder that uses the standard library and checks the type of the value."""

    def read(raw: bytes) -> Any:
        value = _standard_json.loads(raw.decode())
        if type is float and value.__class__ is int:
            return float(value)
        if type is not Any and value.__class__ is not type:
            raise ValueError(f"Expected {type.__name__}")
        return value

    return checked_decoder(read)


if TYPE_CHECKING:
    json: Codec[Any]
    msgpack: Codec[Any]


def __getattr__(name: str) -> Any:
    """Create the codecs `json` and `msgpack` at their first use, because they import msgspec."""
    if name not in ("json", "msgpack"):
        raise AttributeError(f"module 'rillet.store.codecs' has no attribute {name!r}")
    globals()[name] = codec = json_of(Any) if name == "json" else msgpack_of(Any)
    return codec
