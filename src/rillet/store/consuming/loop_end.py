"""The last commands of a loop over messages(): give back what it has not handed out.

A loop that is part of a reference cycle is closed by the garbage collector, which runs in any thread, between any two
lines. That thread may hold the lock of the engine, or serve the socket that the commands would wait for. So these
commands have a thread of their own then. A loop that ends by itself, by `break` or by close() runs them before it
returns.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from _thread import get_ident, start_new_thread
from typing import TYPE_CHECKING, Any

from rillet.errors import CommandError, StoreError
from rillet.store.command_steps import drive

if TYPE_CHECKING:
    from rillet.store.consuming.leases import Leases
    from rillet.store.consuming.prefetch import Prefetched
    from rillet.store.store import Store

_collecting = 0  # the thread that runs the garbage collector; at most one does


def _note(phase: str, _: dict[str, Any]) -> None:
    global _collecting
    _collecting = get_ident() if phase == "start" else 0


gc.callbacks.append(_note)


def end_loop(store: Store, leases: Leases, prefetched: Prefetched) -> None:
    """Run the last commands of a loop, in another thread if the garbage collector ends it."""
    if _collecting != get_ident():
        _run(store, leases, prefetched)
    elif not sys.is_finalizing():
        start_new_thread(_run, (store, leases, prefetched))


def _run(store: Store, leases: Leases, prefetched: Prefetched) -> None:
    with contextlib.suppress(StoreError, CommandError):  # the store is closed, or the group is gone
        drive(store, leases.ended(), 0.0)
        drive(store, prefetched.give_back(), 0.0)


__all__ = ["end_loop"]
