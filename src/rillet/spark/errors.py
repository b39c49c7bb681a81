"""Puts rillet's errors into the first line of Spark's messages, and extracts them again.

Spark wraps an exception of a data source in its own text, with Python's traceback between its headline and the message:

    [PYTHON_DATA_SOURCE_ERROR] Failed to generate Python data source read partitions: Traceback (most recent ...
      File ...
    rillet.client.errors.ConnectorError: rillet: there is no stream 'absent' at 127.0.0.1:6379

A RilletError describes a server, a stream or an option, so its traceback is of no use. PySpark omits the traceback if
SPARK_HIDE_TRACEBACK is set. A worker ends after it has reported an error, so `plainly` sets the variable in that worker
at that moment, and the first line becomes

    [PYTHON_DATA_SOURCE_ERROR] Failed to generate ...: rillet.client.errors.ConnectorError: rillet: there is no ...

Other exceptions keep their tracebacks. Rejected: Spark's setting for all workers, which would also hide the tracebacks
of users' functions.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rillet.errors import RilletError

_MESSAGE = re.compile(r"(?:^|\s)(?:rillet(?:\.\w+)+: )?(rillet: .*?)(?:\s*SQLSTATE: \w+)*\s*$", re.MULTILINE)


@contextmanager
def plainly() -> Iterator[None]:
    """Make Spark omit the traceback of a RilletError that is raised inside this context manager."""
    try:
        yield
    except RilletError:
        if _in_worker():
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def _in_worker() -> bool:
    """Return whether this process is a Python worker of Spark."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return main is not None and main.name.startswith("pyspark.")


def reason(error: BaseException) -> str:
    """Return rillet's error message from a Spark exception; for other exceptions, return the first line."""
    text = str(error)
    match = _MESSAGE.search(text)
    return match[1] if match else text.partition("\n")[0]
