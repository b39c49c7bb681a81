"""The streaming reader of a query whose options or schema are wrong."""

from __future__ import annotations

from typing import Any, NoReturn

from rillet.errors import RilletError
from rillet.spark.errors import plainly
from rillet.spark.spark_versions import DataSourceStreamReader, SupportsTriggerAvailableNow


class FailedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A substitute for a streaming reader that could not be created; every method raises the error.

    If `streamReader` raised the error itself, Spark's worker would replace it with an UnboundLocalError.
    """

    def __init__(self, error: RilletError) -> None:
        self.error = error

    def _fail(self, *args: Any, **kwargs: Any) -> NoReturn:
        with plainly():
            raise self.error

    initialOffset = latestOffset = getDefaultReadLimit = prepareForTriggerAvailableNow = partitions = read = _fail
