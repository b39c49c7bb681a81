"""Checks, before a job starts, that the connector can read the types of all columns in a schema.

The error message for a column of an unsupported type contains the column's name and Spark's name for the type. For a
type inside a struct, array or map, it contains the path to that type. docs/spark.md, "Types and bad values", lists the
types that can be read.

Arrow represents geometry, geography and variant as structs of bytes, and a user-defined type as its storage type, so an
explicit check must reject these types. A variant is only supported as a top-level column (columns/json_column.py):
inside JSON, its original text is not available. Spark itself usually rejects `char(n)` and `varchar(n)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_ADVICE = "read it as a string and convert it in Spark"


def unsupported_columns(schema: StructType) -> list[str]:
    """Return an error message for each column, or part of a column, whose type the connector cannot read."""
    from rillet.spark.spark_versions import VariantType

    problems = []
    for field in schema.fields:
        if not isinstance(field.dataType, VariantType):
            problems += _inside(field.name, field.dataType)
    return problems


def _inside(path: str, kind: DataType) -> list[str]:
    from pyspark.sql import types

    from rillet.spark.spark_versions import VariantType

    if isinstance(kind, types.StructType):
        return [text for field in kind.fields for text in _inside(f"{path}.{field.name}", field.dataType)]
    if isinstance(kind, types.ArrayType):
        return _inside(f"{path}.element", kind.elementType)
    if isinstance(kind, types.MapType):
        return _inside(f"{path}.key", kind.keyType) + _inside(f"{path}.value", kind.valueType)
    if isinstance(kind, VariantType):
        return [f"column {path!r} is a variant inside another type: read the column as a string and use parse_json"]
    readable = (
        types.StringType, types.BinaryType, types.BooleanType, types.IntegralType, types.FloatType, types.DoubleType,
        types.DecimalType, types.TimestampType, types.TimestampNTZType, types.DateType,
    )  # fmt: skip
    if isinstance(kind, readable) and not isinstance(kind, (types.CharType, types.VarcharType)):
        return []
    return [f"column {path!r} cannot be {kind.simpleString()}: {_ADVICE}"]


_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_WIDER = {"tinyint": ("smallint", "int", "bigint"), "smallint": ("int", "bigint"), "int": ("bigint",),
          "float": ("double",)}  # fmt: skip


def unfitting(path: str, column: DataType, other: DataType, of_what: str, reading: bool) -> list[str]:
    """Return an error message for each part of a column that another type cannot fill, or be filled by, without loss.

    The fields of the column's structs are found by name; the other type may have more. other: the type in `of_what`.
    """
    from pyspark.sql import types

    if isinstance(column, types.StructType) and isinstance(other, types.StructType):
        known = {field.name: field.dataType for field in other.fields}
        missing = [f"column {f'{path}.{name}'!r} is not in {of_what}, which has {', '.join(known)}"
                   for name in column.names if name not in known]  # fmt: skip
        for field in column.fields:
            if field.name in known:
                missing += unfitting(f"{path}.{field.name}", field.dataType, known[field.name], of_what, reading)
        return missing
    if isinstance(column, types.ArrayType) and isinstance(other, types.ArrayType):
        return unfitting(f"{path}.element", column.elementType, other.elementType, of_what, reading)
    if isinstance(column, types.MapType) and isinstance(other, types.MapType):
        return [*unfitting(f"{path}.key", column.keyType, other.keyType, of_what, reading),
                *unfitting(f"{path}.value", column.valueType, other.valueType, of_what, reading)]  # fmt: skip
    if _holds(*((other, column) if reading else (column, other))):
        return []
    return [f"column {path!r} is {column.simpleString()}, but {of_what} has {other.simpleString()}"]


def _holds(narrow: DataType, wide: DataType) -> bool:
    """Return whether each value of a type without parts is one of another."""
    from pyspark.sql import types

    if isinstance(wide, types.DecimalType):
        if isinstance(narrow, types.DecimalType):
            more = wide.scale - narrow.scale
            return more >= 0 and wide.precision - narrow.precision >= more
        return wide.precision - wide.scale >= _DIGITS.get(narrow.simpleString(), 99)
    if isinstance(narrow, types.StringType) and isinstance(wide, types.StringType):  # of any collation
        return True
    return narrow == wide or wide.simpleString() in _WIDER.get(narrow.simpleString(), ())
