"""The end of a command that ^C interrupts, or whose reader has ended, as in `rillet stats ... | head -1`.

Both are silent. The exit status is the one that a shell shows for a program that the signal ends: 128 plus the number
of the signal. Commands that run until ^C, such as `rillet tail`, end with 0 then (rillet.cli.output.until_interrupted).
"""

from __future__ import annotations

import os
import select
import sys
from typing import Any

INTERRUPTED = 130  # SIGINT
CLOSED_PIPE = 141  # SIGPIPE


def status_of(error: BaseException) -> int | None:
    """Return the exit status after an interrupt or a closed pipe; None for any other exception."""
    closed = [_is_closed(one) for one in (sys.stdout, sys.stderr)]
    if interrupted(error):
        return INTERRUPTED
    return CLOSED_PIPE if isinstance(error, BrokenPipeError) and any(closed) else None


def interrupted(error: BaseException | None) -> bool:
    """Return whether an error is a KeyboardInterrupt, or the failure of a clean-up after one."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _is_closed(stream: Any) -> bool:
    """Return whether the reader of a standard stream has ended; drop the rest, which Python would report at exit."""
    try:
        file = stream.fileno()
        poll = select.poll()
    except (AttributeError, OSError, ValueError):  # there is no such stream, or it is closed; or Windows
        return False
    poll.register(file, 0)  # errors only
    if not poll.poll(0):
        return False
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, file)
    os.close(nowhere)
    return True
