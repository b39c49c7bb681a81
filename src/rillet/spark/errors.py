"""Errors in one sentence: how they get into the first line of what Spark raises, and how they are got out of it.

Spark wraps what a data source raises into texts of its own, and puts Python's traceback between its headline and the
sentence:

    [PYTHON_DATA_SOURCE_ERROR] Failed to generate Python data source read partitions: Traceback (most recent ...
      File ...
    rillet.client.errors.ConnectorError: rillet: there is no stream 'absent' at 127.0.0.1:6379

A RilletError is about a server, a stream or an option, not about a line of code. PySpark leaves the traceback out where
SPARK_HIDE_TRACEBACK is set, and a worker that reports an error reports nothing after it: it ends. So `plainly` sets it
there and then, in that process only, and the first line becomes

    [PYTHON_DATA_SOURCE_ERROR] Failed to generate ...: rillet.client.errors.ConnectorError: rillet: there is no ...

Other exceptions keep their tracebacks. Rejected: Spark's setting for all workers, which would hide the tracebacks of
everybody's functions.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rillet.errors import RilletError

_SENTENCE = re.compile(r"(?:^|\s)(?:rillet(?:\.\w+)+: )?(rillet: .*?)(?:\s*SQLSTATE: \w+)*\s*$", re.MULTILINE)


@contextmanager
def plainly() -> Iterator[None]:
    """Let Spark show an error of rillet as its sentence, without a traceback; around what Spark calls."""
    try:
        yield
    except RilletError:
        if _in_worker():
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def _in_worker() -> bool:
    """Return whether this process was started by Spark to run Python for it."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return main is not None and main.name.startswith("pyspark.")


def reason(error: BaseException) -> str:
    """Return the sentence of rillet that an exception of Spark carries, else its first line."""
    text = str(error)
    found = _SENTENCE.search(text)
    return found[1] if found else text.partition("\n")[0]
