"""OwnerThread: the thread of a directory's owner while no socket is in use. It runs the timers of the engine.

    a timer is due       run it: expiry, defragmentation, retries and rewrites of the log (rillet.host.timers)
    a client connects    start the server, which has its own timers (rillet.store.sharing.serving); this thread ends

So an owner needs no event loop before a second process comes. The first client waits in the backlog of the socket.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Callable
from math import inf

from rillet.loggers import logger
from rillet.timer_thread import TimerThread

LOGGER = logger("owner")
_AGAIN = 1.0  # seconds after which a server that could not be started is started again


class OwnerThread(TimerThread):
    """Calls functions when they are due, and `on_client` when a client connects to a listening socket, until `end`."""

    def __init__(self, listening: socket.socket | None, on_client: Callable[[], object]) -> None:
        super().__init__("the periodic work of the owner failed; it continues")
        self._listening = listening
        self._on_client = on_client
        self._bell, self._rope = socket.socketpair()

    def descriptors(self) -> list[int]:
        """Return the open file descriptors."""
        return [one.fileno() for one in (self._bell, self._rope) if one.fileno() >= 0]

    def _rests(self) -> bool:
        return False

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # it has ended
            self._rope.send(b"!")

    def _sleep(self, seconds: float) -> None:
        # `select` has no descriptor, which a forked child would share, but a limit for their numbers on some systems.
        sockets = [one for one in (self._bell, self._listening) if one is not None]
        if hasattr(select, "poll"):
            poll = select.poll()
            for one in sockets:
                poll.register(one, select.POLLIN)
            found = [number for number, _ in poll.poll(None if seconds == inf else seconds * 1000)]
        else:
            found = [one.fileno() for one in select.select(sockets, [], [], None if seconds == inf else seconds)[0]]
        if self._bell.fileno() in found:
            self._bell.recv(1 << 12)
        if self._listening is not None and self._listening.fileno() in found and not self.ended:
            self._serve()

    def _serve(self) -> None:
        try:
            self._on_client()
        except Exception:
            LOGGER.exception("other processes cannot attach; the next attempt is in a second")
            listening, self._listening = self._listening, None
            self.later(_AGAIN, lambda: setattr(self, "_listening", listening))

    def _work(self) -> None:
        try:
            super()._work()
        finally:
            self._bell.close()
            self._rope.close()


def redirect_to_null(numbers: list[int]) -> None:
    """In a forked child: let file descriptors of the parent lead to /dev/null.

    The child's copies of Python objects still contain these descriptors and would close them again. So each one is
    redirected instead of closed; the caller keeps the objects alive.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for number in numbers:
        os.dup2(null, number, inheritable=False)
    os.close(null)
