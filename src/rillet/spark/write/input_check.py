"""Checks, before a write task reports success, that it has received all its rows.

Spark sends the rows to a writer as an Arrow stream over a socket:

    schema  batch  batch  ...  end of stream (8 bytes)  -4        complete
    schema  batch  batch  |                                       the executor was killed, or producing the rows failed

If the socket ends between two batches, Arrow treats this as the end of the stream. So the iterator over the batches
ends normally in both cases. Without a check, the writer would record a truncated task as complete, and then reject all
later attempts, which have more rows. If batches are produced slowly, almost every truncation is between two batches.

The socket distinguishes the cases exactly. After a truncation, the socket is at its end; otherwise the socket is open,
or the -4 is unread. Spark does not pass the socket to a data source. In all versions so far, it is the variable
`infile` of the PySpark function that called the writer. If no such variable exists, for example outside Spark, the rows
count as complete.

Rejected: checking whether the executor's JVM is alive (the JVM is alive if only producing the rows failed); continuing
after the rows of a task that is recorded as complete (if the batch was divided differently, rows would be duplicated).
"""

from __future__ import annotations

import os
import socket
import sys
from io import UnsupportedOperation
from types import FrameType
from typing import Any

from rillet.client.errors import ConnectorError


def require_all_rows() -> None:
    """Raise ConnectorError if the input of this task was truncated."""
    if cut_off(_input(sys._getframe(1))):
        raise ConnectorError(
            "rillet: the task's input was truncated, because producing its rows failed or the executor was killed; "
            "Spark will retry the task"
        )


def cut_off(infile: Any) -> bool:
    """Return whether the socket behind the file object `infile` has reached its end."""
    try:
        return not _open(infile) and not infile.peek(1)  # closed: only buffered bytes remain
    except ConnectionError:
        return True
    except (AttributeError, OSError):  # `infile` does not read from a socket
        return False


def _open(infile: Any) -> bool:
    """Return whether the socket behind a file object has data or is still open; do not wait."""
    try:
        descriptor = infile.fileno()
    except UnsupportedOperation:  # a worker without Spark's daemon: only `peek` detects the end
        return False
    with socket.socket(fileno=os.dup(descriptor)) as shared:
        try:
            return bool(shared.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True


def _input(frame: FrameType | None) -> Any:
    """Return the file from which the PySpark worker reads its input; None outside a worker."""
    while frame is not None:
        if "infile" in frame.f_locals:
            return frame.f_locals["infile"]
        frame = frame.f_back
    return None
