"""Conversion of Python values into command arguments, and of replies into Python values.

    add({"total": 9.5})     ->  [b"XADD", b"orders", b"*", b"total", b"9.5"]    encode, append_fields
    $15\\r\\n1700000000000-0  ->  StreamID(1700000000000, 0)                      id_of_reply, parse_id
    [b"total", b"9.5"]      ->  {"total": "9.5"}                              decode_fields, find_field
    *2 *2 $15 1700...       ->  [Entry, Entry]                                entries_in

These functions run for every call of the store's API, so they are compiled: encoding an entry with five fields takes
0.4 microseconds instead of 1.7, and parsing its ID 0.3 instead of 1.

Text is UTF-8 with surrogate escapes in both directions: bytes that are not valid UTF-8 can be read as str and written
back unchanged. A bool or None has no standard text form, so both are rejected instead of being stored as "True".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from typing import Any, TypeAlias

from rillet._cython import cython, public
from rillet.errors import InvalidID, InvalidValue
from rillet.protocol.command_parser import plain_line
from rillet.structs.integer_text import decimal
from rillet.types.stream.id import StreamID

if cython.compiled:
    from cython.cimports.cpython.ref import Py_INCREF  # type: ignore[import-not-found, unused-ignore]
    from cython.cimports.cpython.tuple import PyTuple_SET_ITEM  # type: ignore[import-not-found, unused-ignore]
    from cython.cimports.cpython.type import PyType_GenericAlloc  # type: ignore[import-not-found, unused-ignore]
    from cython.cimports.libc.string import memcmp  # type: ignore[import-not-found, unused-ignore]

Value: TypeAlias = "bytes | bytearray | memoryview | str | int | float"
# Names and values must be of type Value. The annotation is Any, because mypy infers dict[str, object] for mixed values.
Fields: TypeAlias = "Mapping[Any, Any] | Iterable[tuple[Any, Any]]"
IDLike: TypeAlias = StreamID | str | bytes | int

_known_names = cython.declare(dict, {})

_StreamID = cython.declare(object, StreamID)


@cython.ccall
def encode(value: object) -> bytes:
    """Return the bytes of a value: str as UTF-8, a number as its shortest text; raise TypeError for other types."""
    text: str
    if type(value) is str:
        text = value
        try:
            return text.encode()  # a third of the time that an error handler takes
        except UnicodeEncodeError:
            return text.encode("utf-8", "surrogateescape")
    if type(value) is bytes:
        return value
    if type(value) is int:
        try:
            return decimal(value)
        except OverflowError:
            return b"%d" % value
    if type(value) is float:
        return repr(value).encode()
    return _encode_other(value)


def _encode_other(value: Any) -> bytes:
    """Return the bytes of a buffer, a StreamID, or a value whose class derives from one that `encode` knows."""
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, str):
        return str.encode(value, "utf-8", "surrogateescape")
    if isinstance(value, bool) or value is None:
        raise TypeError(f"{value!r} has no standard text form: pass bytes, str, int or float")
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, float):
        return float.__repr__(value).encode()
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, StreamID):
        return str(value).encode()
    raise TypeError(f"{type(value).__name__} cannot be stored: pass bytes, str, int or float")


_AN_ID = "must be an ID: a StreamID, text such as '1700000000000-0', or an int of milliseconds"
_DIGITS = re.compile(rb"[0-9]{1,20}(-[0-9]{1,20})?")
_MOST = 2**64 - 1


def encode_id(value: object, parameter: str = "id", words: frozenset[bytes] = frozenset()) -> bytes:
    """Return the text of an ID: a StreamID, "ms-seq", "ms", or an int of milliseconds.

    words: other accepted texts, such as "$"; with "(", an ID may follow it. TypeError, or InvalidID for another text.
    """
    if type(value) is StreamID:
        return encode(value)
    if isinstance(value, datetime):
        raise TypeError(f"{parameter}: a datetime is a time at which many entries may lie, not the ID of one: read "
                        "them with range()")  # fmt: skip
    if isinstance(value, date):
        raise TypeError(f"{parameter}: a date has no time of day and no time zone: pass an aware datetime, such as "
                        f"datetime({value.year}, {value.month}, {value.day}, tzinfo=UTC)")  # fmt: skip
    if isinstance(value, bool) or not isinstance(value, (StreamID, str, bytes, int)):
        raise TypeError(f"{parameter} {_AN_ID}, not {value!r:.200}")
    try:
        raw = encode(value)
    except ValueError:  # a surrogate
        raise _invalid_id(value, parameter, words) from None
    if not _is_id(raw) and raw not in words:
        exclusive = raw[:1] == b"(" and b"(" in words
        timed = raw.endswith(b"-*") and b"*" in words
        if not (exclusive and _is_id(raw[1:])) and not (timed and _is_id(raw.removesuffix(b"*") + b"0")):
            raise _invalid_id(value, parameter, words)
    return raw


@cython.cfunc
def _is_id(raw: bytes) -> cython.bint:
    """Return whether a text is an ID, whose numbers have 64 bits."""
    at: cython.Py_ssize_t
    digits: cython.Py_ssize_t = 0
    dash: cython.bint = False
    for at in range(len(raw)):
        if 48 <= raw[at] <= 57:
            digits += 1
        elif raw[at] == 45 and digits and not dash:
            dash = True
            digits = 0
        else:
            return False
        if digits > 19:  # 64 bits have 20 digits at most
            return _is_long_id(raw)
    return digits > 0


def _is_long_id(raw: bytes) -> bool:
    return _DIGITS.fullmatch(raw) is not None and all(int(number) <= _MOST for number in raw.split(b"-"))


def _invalid_id(value: object, parameter: str, words: frozenset[bytes]) -> InvalidID:
    others = "".join(f", {decode(word)!r}" for word in sorted(words - {b"("}))
    return InvalidID(f"Invalid stream ID specified as stream command argument: {parameter} {_AN_ID}{others}, "
                     f"not {value!r:.200}")  # fmt: skip


def located_encoder(write: Callable[[Any], bytes], key: bytes) -> Callable[[Any], bytes]:
    """Return an encoder of values whose errors contain the key."""

    def located(value: object) -> bytes:
        try:
            return write(value)
        except (TypeError, InvalidValue, UnicodeEncodeError) as error:
            kind = ValueError if isinstance(error, UnicodeEncodeError) else type(error)
            raise kind(f"key {decode(key)!r}: {error}") from None

    return located


def encode_name(value: object, parameter: str = "name") -> bytes:
    """Return the bytes of a key's, group's or consumer's name; raise TypeError unless it is str or bytes."""
    if not isinstance(value, (str, bytes)):
        raise TypeError(f"{parameter}: a name must be str or bytes, not {value!r:.200}")
    return encode(value)


# The attributes of dataclasses and of msgspec's Structs.
_OF_CLASSES = ("__dataclass_fields__", "__struct_fields__")


@cython.ccall
def append_fields(argv: list[bytes], fields: object) -> cython.bint:
    """Append the fields and values of a mapping or of pairs to a command; raise ValueError if there are none."""
    before: cython.Py_ssize_t = len(argv)
    try:
        if type(fields) is dict:
            mapping: dict[object, object] = fields
            for field, value in mapping.items():
                argv.append(encode(field))
                argv.append(encode(value))
        else:
            for field, value in pairs_of(fields):
                argv.append(encode(field))
                argv.append(encode(value))
    except (TypeError, UnicodeEncodeError) as error:
        raise field_error(error, argv[1], argv[len(argv) - 1] if (len(argv) - before) % 2 else None) from None
    if len(argv) == before:
        raise ValueError("an entry must have at least one field")
    return True


@cython.ccall
def longest(argv: list[bytes]) -> cython.Py_ssize_t:
    """Return the length of the longest argument of a command."""
    word: bytes
    size: cython.Py_ssize_t = 0
    for word in argv:
        if len(word) > size:
            size = len(word)
    return size


def field_error(error: Exception, key: bytes, name: bytes | None) -> Exception:
    """Return an error with the stream of an entry, and the field's name if its value could not be encoded."""
    place = "the name of a field: " if name is None else f"the value of the field {decode(name)!r}: "
    if str(error).startswith(("fields: ", "fields is ")):  # of pairs_of
        place = ""
    kind = TypeError if isinstance(error, TypeError) else ValueError
    return kind(f"stream {decode(key)!r}: {place}{error}")


def pairs_of(values: Any, parameter: str = "fields") -> Iterable[tuple[Any, Any]]:
    """Return the pairs of a mapping or of an iterable of pairs; raise TypeError for anything else."""
    if isinstance(values, Mapping):
        raw = getattr(values, "pairs", None)  # of an Entry: every field, also if a name occurs twice
        return raw if isinstance(raw, list) else values.items()
    kind = type(values)
    if not isinstance(values, Iterable) and any(hasattr(kind, name) for name in _OF_CLASSES):
        raise TypeError(
            f"{parameter} is a {kind.__name__}, neither a mapping nor pairs: values of a class need the stream of "
            f"their type, such as store.stream(name, type={kind.__name__})"
        )
    if isinstance(values, (str, bytes, bytearray, memoryview)) or not isinstance(values, Iterable):
        raise TypeError(f"{parameter}: expected a mapping or pairs, got {values!r:.200}")
    pairs = list(values)
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"{parameter}: expected a mapping or pairs; {pair!r:.200} is not a pair")
    return pairs


@cython.ccall
def parse_id(raw: bytes) -> Any:
    """Return the StreamID of the text `<ms>-<seq>` as servers write it; StreamID.parse handles any other text."""
    return _id_between(raw, 0, len(raw))


@cython.ccall
def id_of_reply(raw: bytes) -> Any:
    """Return the StreamID in a complete RESP bulk string; None for any other reply."""
    # "$<one or two digits>\r\n<ms>-<seq>\r\n"
    size: cython.Py_ssize_t = len(raw)
    if size < 8 or raw[0] != 36:
        return None
    return _id_between(raw, 4 if raw[2] == 13 else 5, size - 2)


@cython.cfunc
def new_id(ms: object, seq: object) -> object:
    """Return a StreamID, without the tuple of arguments that its constructor takes: in a third of the time."""
    if not cython.compiled:
        return tuple.__new__(StreamID, (ms, seq))
    ident: object = PyType_GenericAlloc(_StreamID, 2)
    Py_INCREF(ms)
    PyTuple_SET_ITEM(ident, 0, ms)
    Py_INCREF(seq)
    PyTuple_SET_ITEM(ident, 1, seq)
    return ident


@cython.cfunc
def _id_between(raw: bytes, start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> Any:
    if not cython.compiled:
        ms_text, _, seq_text = raw[start:stop].partition(b"-")
        if ms_text.isdigit() and seq_text.isdigit():
            return new_id(int(ms_text), int(seq_text))
        return StreamID.parse(raw[start:stop])
    ms: cython.ulonglong = 0
    seq: cython.ulonglong = 0
    at: cython.Py_ssize_t = start
    digits: cython.Py_ssize_t
    # A number of up to 19 digits cannot overflow 64 bits; StreamID.parse handles the rare longer ones.
    while at < stop and 48 <= raw[at] <= 57:
        ms = ms * 10 + (raw[at] - 48)
        at += 1
    digits = at - start
    if 0 < digits < 20 and at < stop and raw[at] == 45:
        at += 1
        digits = at
        while at < stop and 48 <= raw[at] <= 57:
            seq = seq * 10 + (raw[at] - 48)
            at += 1
        if at == stop and 0 < at - digits < 20:
            return new_id(ms, seq)
    return StreamID.parse(raw[start:stop])


@cython.ccall
def decode(raw: bytes) -> str:
    """Return the text of UTF-8 bytes; invalid bytes become surrogates, which `encode` converts back."""
    return raw.decode("utf-8", "surrogateescape")


@cython.ccall
def decode_fields(flat: list[bytes]) -> dict[str, str]:
    """Return alternating names and values as a dict of text; a name that occurs twice has its last value."""
    fields: dict[str, str] = {}
    at: cython.Py_ssize_t
    for at in range(0, len(flat) - 1, 2):
        fields[_name(flat[at])] = decode(flat[at + 1])
    return fields


@cython.cfunc
def _name(raw: bytes) -> str:
    """Return the text of a field's name. The names of a stream repeat, and the last 256 short ones are kept."""
    found: object = _known_names.get(raw)
    name: str
    if type(found) is str:
        return found
    name = raw.decode("utf-8", "surrogateescape")
    if len(raw) <= 64:
        if len(_known_names) >= 256:
            _known_names.clear()
        _known_names[raw] = name
    return name


@cython.ccall
def find_field(flat: list[bytes], name: bytes) -> object:
    """Return the last value of that name among alternating names and values, as bytes; None if there is none."""
    at: cython.Py_ssize_t = len(flat) - 2
    while at >= 0:
        if flat[at] == name:
            return flat[at + 1]
        at -= 2
    return None


# -- entries ---------------------------------------------------------------------------------------------
#
# A reply to XRANGE, read without a parser's objects: an entry keeps its part of the reply, and decodes it on demand.
#
#     *2 *2 $15 1700000000000-0 *4 $1 n $1 1 $4 text $1 x  *2 ...
#               _packed            ^ _fields_at         |
#
# Entries of a stream mostly have the same names: where the bytes of a name are those of the entry before, the entries
# share one FieldNames, so a name is decoded and hashed once.


@cython.final
@cython.cclass
class FieldNames:
    """The names of an entry's fields, in order: as bulk strings of RESP and as text. It does not change once shared."""

    __slots__ = ("packed", "texts")
    packed: list[bytes]
    texts: list[str]

    def __init__(self, packed: list[bytes], texts: list[str]) -> None:
        self.packed = packed
        self.texts = texts


@cython.cclass
class EntryData:
    """What an Entry keeps: its part of a reply, or its ID and its alternating fields and values as bytes.

    `_id` and `_text` are both decoded, once they are.
    """

    __slots__ = ("_fields_at", "_flat", "_id", "_id_size", "_names", "_packed", "_raw_id", "_text")
    _packed: bytes | None
    _names: FieldNames | None
    _id_size: cython.Py_ssize_t
    _fields_at: cython.Py_ssize_t
    _raw_id: public[Any]
    _flat: public[Any]
    _id: public[Any]
    _text: public[Any]

    def __init__(self, raw_id: bytes, flat: list[bytes]) -> None:
        self._raw_id = raw_id
        self._flat = flat
        self._id = self._text = self._packed = self._names = None

    @property
    def raw_id(self) -> bytes:
        """The ID as bytes."""
        if self._packed is not None:
            _unpack(self, self._packed)
        raw_id: bytes = self._raw_id
        return raw_id

    @property
    def flat(self) -> list[bytes]:
        """The alternating fields and values as bytes."""
        if self._packed is not None:
            _unpack(self, self._packed)
        flat: list[bytes] = self._flat
        return flat

    def _parsed_id(self) -> Any:
        """Return the ID."""
        packed: bytes | None = self._packed
        return parse_id(self._raw_id) if packed is None else _id_between(packed, 0, self._id_size)

    def _decoded_fields(self) -> dict[str, str]:
        """Return the fields as text in a new dict; a name that occurs twice has its last value."""
        packed: bytes | None = self._packed
        names: FieldNames | None = self._names
        if packed is None or names is None:
            return decode_fields(self._flat)
        buf: cython.p_const_uchar = packed
        size: cython.Py_ssize_t = len(packed)
        pos: cython.Py_ssize_t = self._fields_at
        fields: dict[str, str] = {}
        at: cython.Py_ssize_t
        line: cython.Py_ssize_t
        for at in range(len(names.texts)):
            pos += len(names.packed[at])
            line = plain_line(buf, pos, size)
            pos += line & 15
            fields[names.texts[at]] = buf[pos : pos + (line >> 4)].decode("utf-8", "surrogateescape")
            pos += (line >> 4) + 2
        return fields


@cython.cfunc
def _unpack(entry: EntryData, packed: bytes) -> cython.bint:
    """Replace an entry's part of a reply by objects."""
    buf: cython.p_const_uchar = packed
    size: cython.Py_ssize_t = len(packed)
    pos: cython.Py_ssize_t = entry._fields_at
    flat: list[bytes] = []
    line: cython.Py_ssize_t
    while pos < size:
        line = plain_line(buf, pos, size)
        pos += line & 15
        flat.append(buf[pos : pos + (line >> 4)])
        pos += (line >> 4) + 2
    entry._raw_id = packed[: entry._id_size]
    entry._flat = flat
    entry._packed = entry._names = None
    return True


_new_entry: Any = EntryData.__new__


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def _count(data: bytes, pos: cython.Py_ssize_t, kind: cython.int) -> cython.Py_ssize_t:
    """Return number * 16 + line length for the count line at pos, 0 if there is none of this kind."""
    buf: cython.p_const_uchar = data
    if pos >= len(data) or buf[pos] != kind:
        return 0
    return plain_line(buf, pos, len(data))


@cython.ccall
def entries_in(data: bytes, kind: Any) -> Any:
    """Return the entries in a reply as objects of `kind`, a class of EntryData; None if the reply has another form."""
    buf: cython.p_const_uchar = data
    size: cython.Py_ssize_t = len(data)
    line: cython.Py_ssize_t = _count(data, 0, 42)
    left: cython.Py_ssize_t = line >> 4
    pos: cython.Py_ssize_t = line & 15
    length: cython.Py_ssize_t
    start: cython.Py_ssize_t
    count: cython.Py_ssize_t
    at: cython.Py_ssize_t
    names: FieldNames = FieldNames([], [])
    shared: cython.bint = False
    entries: list[Any] = []
    entry: EntryData
    if line == 0:
        return None
    while left > 0:
        left -= 1
        line = _count(data, pos, 42)
        if line >> 4 != 2:
            return None
        pos += line & 15
        line = _count(data, pos, 36)
        length = line >> 4
        pos += line & 15
        if length < 3 or pos + length + 2 > size:
            return None
        start = pos
        entry = _new_entry(kind)
        entry._id_size = length
        pos += length + 2
        line = _count(data, pos, 42)
        count = line >> 5
        if count < 1 or line & 16:
            return None
        pos += line & 15
        entry._fields_at = pos - start
        for at in range(count):
            if at < len(names.packed) and _begins(buf, pos, size, names.packed[at]):
                pos += len(names.packed[at])
            else:
                if shared or at < len(names.packed):
                    names = FieldNames(names.packed[:at], names.texts[:at])
                    shared = False
                line = _count(data, pos, 36)
                length = line >> 4
                if line == 0 or pos + (line & 15) + length + 2 > size:
                    return None
                names.packed.append(buf[pos : pos + (line & 15) + length + 2])
                pos += line & 15
                names.texts.append(_name(buf[pos : pos + length]))
                pos += length + 2
            line = _count(data, pos, 36)
            pos += (line & 15) + (line >> 4) + 2
            if line == 0 or pos > size:
                return None
        if count < len(names.packed):
            names = FieldNames(names.packed[:count], names.texts[:count])
        shared = True
        entry._names = names
        entry._packed = buf[start:pos]
        if not cython.compiled:
            entry._id = entry._text = entry._raw_id = entry._flat = None
        entries.append(entry)
    return entries if pos == size else None


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _begins(buf: cython.p_const_uchar, pos: cython.Py_ssize_t, size: cython.Py_ssize_t, word: bytes) -> cython.bint:
    """Return whether the bytes from pos on begin with the word."""
    length: cython.Py_ssize_t = len(word)
    if pos + length > size:
        return False
    if not cython.compiled:
        return bytes(buf[pos : pos + length]) == word
    other: cython.p_const_uchar = word
    return memcmp(other, buf + pos, length) == 0
