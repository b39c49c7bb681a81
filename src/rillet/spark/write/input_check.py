"""Checks, before a writer reports success, that its task has received all its rows.

Spark sends the rows to a writer as an Arrow stream over a socket:

    schema  batch  batch  ...  end of stream (8 bytes)  -4        complete
    schema  batch  batch  |                                       the executor was killed, or producing the rows failed

If the socket ends between two batches, Arrow treats this as the end of the stream. So the writer's iterator ends
normally in both cases. Without a check, the writer would record a truncated task as complete, and all later attempts,
which have more rows, would be rejected. If batches are produced slowly, almost every truncation is between two batches.

The socket distinguishes the cases exactly: a truncated socket is at its end; otherwise it is open, or the -4 is
unread. Spark does not pass the socket to a data source. It is the variable `infile` of the PySpark function that called
the writer, in all versions so far. If no such variable exists, for example outside Spark, the rows count as complete.

Rejected: checking whether the executor's JVM is alive (it is, if only producing the rows failed); continuing after the
rows of a complete task, as after those of a partial one (rows of a batch that was divided differently would be
duplicated).
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
    """Return whether the socket of a file has reached its end."""
    try:
        return not _open(infile) and not infile.peek(1)  # a closed socket: only buffered bytes remain
    except ConnectionError:
        return True
    except (AttributeError, OSError):  # `infile` does not read from a socket
        return False


def _open(infile: Any) -> bool:
    """Return whether the socket of a file has data or is still open, without waiting."""
    try:
        descriptor = infile.fileno()
    except UnsupportedOperation:  # a worker that Spark started without its daemon: only `peek` detects the end
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
