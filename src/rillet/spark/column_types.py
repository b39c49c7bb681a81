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
