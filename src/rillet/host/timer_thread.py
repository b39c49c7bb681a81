"""OwnerThread: the thread of a directory's owner while no socket is in use. It runs the timers of the engine.

    a timer is due       run it: expiry, defragmentation, retries and rewrites of the log (rillet.host.timers)
    a client connects    start the server, which has its own timers (rillet.store.sharing.serving); this thread ends

So an owner needs no event loop before a second process comes. The first client waits in the backlog of the socket.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from rillet.host.timers import Timer
from rillet.loggers import logger
from rillet.real_time import monotonic

LOGGER = logger("owner")
_AGAIN = 1.0  # seconds after which a server that could not be started is started again


class OwnerThread:
    """Runs timers, and calls `on_client` when a client connects to the listening socket, until `end`."""

    def __init__(self, listening: socket.socket | None, on_client: Callable[[], object]) -> None:
        self._listening = listening
        self._on_client = on_client
        self._timers: list[Timer] = []
        self._numbers = count()
        self._bell, self._rope = socket.socketpair()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="rillet-owner", daemon=True)

    def later(self, seconds: float, function: Callable[[], object]) -> Timer:
        """Call a function after a time; only for this thread, and before its start for any."""
        timer = Timer(monotonic() + seconds, next(self._numbers), function)
        heappush(self._timers, timer)
        return timer

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self) -> None:
        """Run no more timers, and end after the current one; any thread may call this."""
        self._ended = True
        with contextlib.suppress(OSError):  # it has ended
            self._rope.send(b"!")

    def join(self) -> None:
        """Wait for the end."""
        self._thread.join()

    def is_this_thread(self) -> bool:
        """Return whether the caller runs in the thread."""
        return threading.current_thread() is self._thread

    def descriptors(self) -> list[int]:
        """Return the open file descriptors."""
        return [one.fileno() for one in (self._bell, self._rope) if one.fileno() >= 0]

    def _run(self) -> None:
        # A selector without a descriptor of its own, which a forked child would share.
        selector = getattr(selectors, "PollSelector", selectors.SelectSelector)()
        selector.register(self._bell, selectors.EVENT_READ)
        if self._listening is not None:
            selector.register(self._listening, selectors.EVENT_READ)
        try:
            while not self._ended:
                found = selector.select(self._pause())
                if any(key.fileobj is self._listening for key, _ in found) and not self._ended:
                    self._serve(selector)
                self._run_due()
        finally:
            selector.close()
            self._bell.close()
            self._rope.close()

    def _serve(self, selector: selectors.BaseSelector) -> None:
        try:
            self._on_client()
        except Exception:
            LOGGER.exception("other processes cannot attach; the next attempt is in a second")
            listening = self._listening
            assert listening is not None
            selector.unregister(listening)
            self.later(_AGAIN, lambda: selector.register(listening, selectors.EVENT_READ))

    def _pause(self) -> float | None:
        """Return the seconds until the next timer is due, None if there is none."""
        return max(0.0, self._timers[0].due - monotonic()) if self._timers else None

    def _run_due(self) -> None:
        now = monotonic()
        while self._timers and self._timers[0].due <= now and not self._ended:
            function = heappop(self._timers).function
            try:
                if function is not None:
                    function()
            except Exception:
                LOGGER.exception("the periodic work of the owner failed; it continues")


def redirect_to_null(numbers: list[int]) -> None:
    """In a forked child: let file descriptors of the parent lead to /dev/null.

    The child's copies of Python objects still contain these descriptors and would close them again. So each one is
    redirected instead of closed; the caller keeps the objects alive.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for number in numbers:
        os.dup2(null, number, inheritable=False)
    os.close(null)


__all__ = ["OwnerThread", "redirect_to_null"]
