"""Type inference for columns of texts, and schemas in Spark's notation.

`typed` converts a column to the first of these types that fits all of its values. Blanks around a value are ignored,
and so are empty texts; they become null unless the column remains a column of strings:

    int64        decimal digits within 64 bits, with an optional sign: 7, -12, +7; not 007
    double       a decimal number, with an exponent or without; nan, inf; no leading zeros
    bool         true, false, in any case
    date32       YYYY-MM-DD
    timestamp    ISO 8601 with hours and minutes, in UTC if there is no zone (in some of the values, the time may be
                 missing)
    string       anything else

inferSchema of the Spark connector has the same table (rillet/spark/read/schema_inference.py).

Arrow's casts decide whether a type fits. Each cast is tried with a few sample values first, so a column of other texts
costs almost nothing. A numeric column is parsed twice, about 120 ns per value; `schema_discovery.py` avoids the second
time after the first batch.
"""

from __future__ import annotations

import re
from typing import Any

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ModuleNotFoundError:  # `arrow.require_pyarrow` reports the missing package
    pass

_TYPE = re.compile(r"(?P<name>[a-z_]+)\s*(?:\((?P<numbers>[0-9, ]+)\))?(?P<rest><.*>)?", re.I | re.S)
_NAME = re.compile(r"\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<plain>[^\s:,`]+))(?:\s*:\s*|\s+)(?P<type>\S.*)", re.S)
_INTEGER = r"^[+-]?(0|[1-9][0-9]*)$"
_WITHOUT_MINUTES = r"^.{10}[T ][0-9]{2}($|[^:])"
_ZONE = r"^.{11}.*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_ZEROS = tuple(f"0{digit}" for digit in range(10))
FEW = 64
PART = 1024  # number of rows of a chunk that are searched for sample values


def typed(column: Any) -> Any:
    """Return a chunked array of strings, converted to the narrowest type that fits all its values."""
    few = few_of(column)
    if not len(few):
        return column
    texts = None
    for read in (_integers, _doubles, _booleans, _dates, _moments):
        try:
            # A few sample values exclude most types.
            if read(few) is None:
                continue
            if texts is None:
                texts = pc.ascii_trim_whitespace(column)
                texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
            if (found := read(texts)) is not None:
                return found
        except pa.ArrowInvalid:
            continue
    return column


def few_of(column: Any) -> Any:
    """Return the first values of a chunked array that are neither null nor empty, without the blanks around them."""
    few: list[Any] = []
    for chunk in column.chunks:
        for start in range(0, len(chunk), PART):
            part = pc.ascii_trim_whitespace(chunk.slice(start, PART))
            few.append(part.filter(pc.not_equal(part, "")))
            if sum(map(len, few)) >= FEW:
                return pa.chunked_array(few, pa.string()).slice(0, FEW)
    return pa.chunked_array(few, pa.string())


def _integers(column: Any) -> Any:
    """Return a column of integers; None if a text is not an integer, or has leading zeros (007)."""
    if not pc.all(pc.match_substring_regex(column, _INTEGER)).as_py():
        return None
    return pc.cast(pc.utf8_ltrim(column, "+"), pa.int64())


def _doubles(column: Any) -> Any:
    numbers = pc.cast(column, pa.float64())
    begins = [pc.starts_with(column, sign) for sign in ("0", "-0", "+0")]
    zero = column.filter(pc.or_(begins[0], pc.or_(begins[1], begins[2])))
    digits = pc.utf8_slice_codeunits(pc.utf8_ltrim(zero, "+-"), 0, 2)
    return None if pc.any(pc.is_in(digits, pa.array(_ZEROS))).as_py() else numbers


def _booleans(column: Any) -> Any:
    lower = pc.utf8_lower(column)
    true = pc.equal(lower, "true")
    return true.cast(pa.bool_()) if pc.all(pc.or_(true, pc.equal(lower, "false"))).as_py() else None


def _dates(column: Any) -> Any:
    return pc.cast(column, pa.date32())


def _moments(column: Any) -> Any:
    if pc.any(pc.match_substring_regex(column, _WITHOUT_MINUTES)).as_py():
        return None
    utc, none = pa.timestamp("us", "UTC"), pa.scalar(None, pa.string())
    zoned = pc.match_substring_regex(column, _ZONE)
    without = pc.cast(pc.if_else(zoned, none, column), pa.timestamp("us"))
    return pc.coalesce(pc.cast(pc.if_else(zoned, column, none), utc), pc.cast(without, utc))


# ---- schemas as text ---------------------------------------------------------------------------------------------


def schema_of(text: str) -> Any:
    """Return the Arrow schema for a text such as "id string, delay double"; raise ValueError if it is malformed."""
    fields = []
    for part in _parts(text):
        found = _NAME.fullmatch(part)
        if found is None:
            raise ValueError(f"each column needs a name and a type, such as 'id string', not {part.strip()!r}")
        name = found["plain"] or found["quoted"].replace("``", "`")
        fields.append(pa.field(name, _type(found["type"].strip())))
    return pa.schema(fields)


def _parts(text: str) -> list[str]:
    """Split a text at the commas outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[len(parts) - 1] += letter
    return parts


def _type(text: str) -> Any:
    """Return the Arrow type for a Spark type in text form, such as "decimal(10,2)" or "array<string>"."""
    known = {
        "string": pa.string(), "binary": pa.binary(), "boolean": pa.bool_(), "tinyint": pa.int8(), "byte": pa.int8(),
        "smallint": pa.int16(), "short": pa.int16(), "int": pa.int32(), "integer": pa.int32(), "bigint": pa.int64(),
        "long": pa.int64(), "float": pa.float32(), "real": pa.float32(), "double": pa.float64(), "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
    }  # fmt: skip
    found = _TYPE.fullmatch(text)
    if found is not None:
        name, numbers, rest = found["name"].lower(), found["numbers"], found["rest"]
        if name in known and not numbers and not rest:
            return known[name]
        if name in ("decimal", "dec", "numeric") and not rest:
            digits = [int(number) for number in (numbers or "10,0").split(",")]
            if len(digits) < 3:
                return pa.decimal128(*digits)
        inner = _parts(rest[1:-1]) if rest else []
        if name == "array" and len(inner) == 1:
            return pa.list_(_type(inner[0].strip()))
        if name == "map" and len(inner) == 2:
            return pa.map_(_type(inner[0].strip()), _type(inner[1].strip()))
        if name == "struct" and rest:
            return pa.struct(list(schema_of(rest[1:-1])))
    raise ValueError(f"{text!r} is not a type; use {', '.join(known)}, decimal(p,s), array<>, map<,> or struct<>")
