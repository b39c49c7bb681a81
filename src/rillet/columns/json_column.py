"""JSON texts into values of struct, array and map columns.

`reader` builds one function for a column. The function parses a text with `json` and converts the result to the Arrow
type, by the rules of Spark's from_json:

    struct          an object; missing and null names are null; names that the type lacks are ignored
    array           an array
    map             an object; keys are strings
    string          a string; any other value as its JSON text
    binary          a string in base64
    boolean         true, false
    whole numbers   a number without point and exponent, in range
    float, double   a number; "NaN", "Infinity", "-Infinity" too
    decimal         a number or a string of one; rounded half up to the scale, rejected beyond the precision
    timestamp, date the texts that plain columns of these types accept

A column of Spark's variant type accepts any JSON; Arrow represents it as a struct of two binaries, of which the second
is marked. PySpark's VariantVal.parseJson converts the text in about 20 microseconds for an object of three fields. It
would accept NaN and Infinity; they are rejected here, as by Spark's parse_json. Variants inside other types are not
supported.

One rule differs from from_json: from_json silently replaces a wrong value inside an object with null. Here the whole
text is a bad value, as in a plain column, and the mode decides how it is handled. A text with anything after the JSON
value is rejected.

The values stay Python objects until the batch is taken: about 5 microseconds for an object of three fields. Rejected:
pyarrow's JSON reader, which does not support maps and fails a whole block for one bad line.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from decimal import Decimal, DecimalException
from typing import Any

from rillet.columns.value_parsing import ValueParser, exactly

Reader = Callable[[Any], Any]
_WHOLE = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
_NAMED = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def reader(kind: Any) -> Callable[[bytes], Any] | None:
    """Return a function that converts JSON text to a nested Arrow type; None for an unsupported type."""
    import pyarrow as pa

    if not pa.types.is_nested(kind):
        return None
    if pa.types.is_struct(kind) and is_variant(kind):
        return _variant()
    value = _reader(kind)
    if value is None:
        return None

    decode = json.JSONDecoder(parse_float=Decimal if "decimal" in str(kind) else None).decode

    def read(text: bytes) -> Any:
        try:
            return value(decode(text.decode("utf-8", "replace")))
        except RecursionError:
            raise ValueError("the JSON is nested too deeply") from None
        except DecimalException:
            raise ValueError("the exponent exceeds the range of decimals") from None

    return read


def is_variant(kind: Any) -> bool:
    """Return whether a struct is the Arrow form of Spark's variant type."""
    return any(field.name == "metadata" and (field.metadata or {}).get(b"variant") == b"true" for field in kind)


def _variant() -> Callable[[bytes], Any]:
    from pyspark.sql.types import VariantVal

    def read(text: bytes) -> Any:
        if b"N" in text or b"I" in text:  # the value may be NaN or Infinity
            json.loads(text.decode("utf-8", "replace"), parse_constant=_no_constant)
        try:
            variant = VariantVal.parseJson(text.decode("utf-8", "replace"))
        except RecursionError:
            raise ValueError("the JSON is nested too deeply") from None
        return {"value": variant.value, "metadata": variant.metadata}

    return read


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _reader(kind: Any) -> Reader | None:
    """Return a function that converts a parsed JSON value to an Arrow type, and None to None."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        if is_variant(kind):
            return None
        return _struct([(field.name, _reader(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return _map(_reader(kind.item_type)) if pa.types.is_string(kind.key_type) else None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list(_reader(kind.value_type))
    if pa.types.is_decimal128(kind):
        return _decimal(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return _moment(ValueParser().timestamp) if kind.unit == "us" else None
    if str(kind) in _WHOLE:
        return _whole(1 << _WHOLE[str(kind)])
    plain: dict[Any, Reader] = {
        pa.string(): _string, pa.large_string(): _string, pa.binary(): _binary, pa.large_binary(): _binary,
        pa.bool_(): _boolean, pa.float32(): _real, pa.float64(): _real, pa.date32(): _moment(ValueParser().date),
    }  # fmt: skip
    return plain.get(kind)


def _struct(fields: list[tuple[str, Reader | None]]) -> Reader | None:
    readers = [(name, read) for name, read in fields if read is not None]
    if len(readers) < len(fields):
        return None

    def read_struct(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not dict:
            raise ValueError("not an object")
        return {name: read(value.get(name)) for name, read in readers}

    return read_struct


def _map(read: Reader | None) -> Reader | None:
    if read is None:
        return None

    def read_map(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not dict:
            raise ValueError("not an object")
        return [(_text(name), read(item)) for name, item in value.items()]

    return read_map


def _list(read: Reader | None) -> Reader | None:
    if read is None:
        return None

    def read_list(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not list:
            raise ValueError("not an array")
        return [read(item) for item in value]

    return read_list


def _whole(bound: int) -> Reader:
    def read_whole(value: Any) -> Any:
        if value is not None and (type(value) is not int or not -bound <= value < bound):
            raise ValueError("the value is not an integer in the column's range")
        return value

    return read_whole


def _decimal(precision: int, scale: int) -> Reader:
    def read_decimal(value: Any) -> Any:
        if value is None:
            return None
        number = exactly(str(value).encode(), precision, scale) if type(value) in (int, Decimal, str) else None
        if number is None:
            raise ValueError("the value is not a decimal within the column's precision")
        return Decimal(f"{number}e{-scale}")

    return read_decimal


def _moment(parse: Callable[[bytearray, int, int], bool]) -> Reader:
    parser: Any = parse.__self__  # type: ignore[attr-defined]  # its register holds the result

    def read_moment(value: Any) -> Any:
        if value is None:
            return None
        raw = bytearray(str(value).encode())
        if type(value) not in (int, str) or not parse(raw, 0, len(raw)):
            raise ValueError("the text is not a timestamp or a date")
        return parser.number

    return read_moment


def _string(value: Any) -> Any:
    if value is None:
        return None
    if type(value) is not str:
        value = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=float)
    return _text(value)


def _text(value: str) -> str:
    """Replace unpaired surrogates, which JSON allows and UTF-8 does not, by U+FFFD."""
    if value.isascii():
        return value
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _binary(value: Any) -> Any:
    if value is None:
        return None
    if type(value) is not str:
        raise ValueError("not base64")
    return base64.b64decode(value, validate=True)


def _boolean(value: Any) -> Any:
    if value is not None and type(value) is not bool:
        raise ValueError("not a boolean")
    return value


def _real(value: Any) -> Any:
    if value is None:
        return None
    if type(value) in (int, float, Decimal):
        try:
            return float(value)
        except OverflowError:  # an integer beyond the range of doubles
            return float("inf") if value > 0 else float("-inf")
    if type(value) is str and value in _NAMED:
        return _NAMED[value]
    raise ValueError("not a number")
