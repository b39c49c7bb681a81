"""Which of Spark's types a column of fields may have, told before a job starts.

Everything that Spark can put into a schema is either read (`docs/spark.md`, "Types and bad values") or refused here by
the column's name and Spark's own word for the type; for what is inside a struct, array or map the path leads there.

Three look as if they could be read, and must not: a geometry, a geography and a variant are structs of bytes on
their way through Arrow, and a user-defined type is whatever it is stored as. Of these a variant as a column of its own
is read (`columns/json_column.py`); inside JSON its text is gone when its turn comes. `char(n)` and `varchar(n)` are
refused
by Spark itself, where it is asked before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_ADVICE = "read it as a string and convert it in Spark"


def refused(schema: StructType) -> list[str]:
    """Return a sentence for each column, or part of one, whose type no text is read as."""
    from pyspark.sql.types import VariantType

    found = []
    for field in schema.fields:
        if not isinstance(field.dataType, VariantType):
            found += _inside(field.name, field.dataType)
    return found


def _inside(path: str, kind: DataType) -> list[str]:
    from pyspark.sql import types

    if isinstance(kind, types.StructType):
        return [text for field in kind.fields for text in _inside(f"{path}.{field.name}", field.dataType)]
    if isinstance(kind, types.ArrayType):
        return _inside(f"{path}.element", kind.elementType)
    if isinstance(kind, types.MapType):
        return _inside(f"{path}.key", kind.keyType) + _inside(f"{path}.value", kind.valueType)
    if isinstance(kind, types.VariantType):
        return [f"column {path!r} is a variant inside another type: read the whole as a string and use parse_json"]
    readable = (
        types.StringType, types.BinaryType, types.BooleanType, types.IntegralType, types.FloatType, types.DoubleType,
        types.DecimalType, types.TimestampType, types.TimestampNTZType, types.DateType,
    )  # fmt: skip
    if isinstance(kind, readable) and not isinstance(kind, (types.CharType, types.VarcharType)):
        return []
    return [f"column {path!r} cannot be {kind.simpleString()}: {_ADVICE}"]
