"""Have all of a task's rows come? What a writer asks before it says that a task is done.

Spark hands a writer its rows as an Arrow stream over a socket:

    schema  batch  batch  ...  end of stream (8 bytes)  -4        a task whose rows have all come
    schema  batch  batch  |                                       the executor was killed, or what makes the rows failed

Arrow takes the end of the socket for the end of the stream, if it lies between two batches. So the iterator of a
writer ends in both cases alike, and a writer that believed it would write down that the task is done, with some of its
rows: its next attempt has more, which are then another task's as far as the record can tell, and is refused for ever.
Behind batches that were made slowly, the end lies between two of them nearly always.

The socket tells the two apart, exactly: in the second case its end has been read, in the first it is open, or the -4
is there. A data source is not given the socket. It is the file `infile` of PySpark's functions that called us,
as it has been in all of its versions; where there is none, as without Spark, rows are taken to be all.

Rejected: looking whether the executor's JVM lives (it does, where only the rows' making failed); to go on after the
rows of a finished task, as after those of a part (rows of a batch that was split otherwise would be doubled).
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
    """Raise ConnectorError where the rows that came to this task were cut off."""
    if cut_off(_input(sys._getframe(1))):
        raise ConnectorError(
            "rillet: the rows of this task ended before all of them had come, because what makes them failed or the "
            "executor was killed: it is run again"
        )


def cut_off(infile: Any) -> bool:
    """Return whether a socket's file has nothing more to give, now and for ever."""
    try:
        return not _open(infile) and not infile.peek(1)  # at the socket's end: what was read ahead is left, or nothing
    except ConnectionError:
        return True
    except (AttributeError, OSError):  # no file of a socket
        return False


def _open(infile: Any) -> bool:
    """Return whether more is there or may come; it is not waited for."""
    try:
        descriptor = infile.fileno()
    except UnsupportedOperation:  # of a worker that no daemon has forked, where only peek, which waits, can tell
        return False
    with socket.socket(fileno=os.dup(descriptor)) as shared:
        try:
            return bool(shared.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True


def _input(frame: FrameType | None) -> Any:
    """Return the file from which PySpark's worker reads, None outside of one."""
    while frame is not None:
        if "infile" in frame.f_locals:
            return frame.f_locals["infile"]
        frame = frame.f_back
    return None
