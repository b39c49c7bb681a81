"""A place where Python may run signal handlers while a script runs.

Compiled code runs no signal handlers. This module is interpreted in both builds, so the call of this function runs the
handlers that are due, and KeyboardInterrupt ends a script that has written nothing.
"""

from __future__ import annotations


def checkpoint() -> None:
    """Let Python handle signals."""
