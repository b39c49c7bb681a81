"""Registers format("rillet") with Spark 4.0 and newer without a line of Python: for `USING rillet` in SQL.

At the first use of a Python data source, Spark imports each installed package whose name begins with `pyspark_`, and
registers its `DefaultSource`. A package whose import fails would hide those of all others, so this one imports nothing
but itself, and `DefaultSource` is missing if rillet.spark cannot be imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rillet.spark import RilletDataSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from rillet.spark import RilletDataSource
        from rillet.spark.spark_versions import require_sources

        require_sources()
    except Exception as error:
        raise AttributeError(f"module {__name__!r} has no {name}: {error}") from error
    return RilletDataSource
