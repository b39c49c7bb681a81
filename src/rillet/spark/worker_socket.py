"""Removes the delays of 40 ms on the TCP connection between Spark's JVM and a Python worker.

Both sides write a task's first and last bytes in small pieces. By default, TCP delays a small piece until the other
side has acknowledged the piece before it (Nagle's algorithm), and the other side delays its acknowledgement for 40 ms:

    JVM       command ──►             rows ──►               waits for the acknowledgement of `command`
    worker               unpickles           waits for rows, acknowledges `command` after 40 ms

A task of a few hundred rows takes 10 ms of work, so these delays are most of its time. Spark calls the reader or the
writer of a task after the worker has unpickled it. That is the first moment at which this package runs in the task, and
the worker has received the command, but not the rows. `InTask` uses this moment: it makes the worker acknowledge at
once (TCP_QUICKACK, Linux only), and send small pieces at once (TCP_NODELAY).

With spark.python.unix.domain.socket.enabled, which `rillet.spark.session` sets, there is no TCP connection, and nothing
to do.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from typing import Any

from pyspark import TaskContext

_DESCRIPTORS = 64  # the worker's connection is one of its first files


def send_without_delay() -> int:
    """Set the options of this process's TCP connections; return how many there are. Call this in a task."""
    found = 0
    for number in range(3, _DESCRIPTORS):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                found += _set_options(number)
    return found


def _set_options(number: int) -> int:
    """Set the options of a socket if it is a TCP connection; return whether it is."""
    with socket.socket(fileno=os.dup(number)) as copy:
        if copy.family not in (socket.AF_INET, socket.AF_INET6) or copy.type != socket.SOCK_STREAM:
            return 0
        copy.getpeername()  # an error if it is not connected
        copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_QUICKACK"):
            copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return 1


class InTask:
    """The base class of readers and writers, which Spark unpickles in each task."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if TaskContext.get() is not None:
            send_without_delay()
