"""OfThread and Presence: what a transport keeps for each thread, and how others detect that the thread has ended.

A Presence exists as long as its thread. It is a value of a threading.local, which Python drops with the thread, also in
a forked child. Rejected: Thread.is_alive. If an exception from outside interrupts it, it marks the other thread as
stopped while that thread runs (threading.Thread._wait_for_tstate_lock, bpo-45274), and its session would be closed
during a call.
"""

from __future__ import annotations

import threading
from typing import Any


class Presence:
    """Referred to by a threading.local only; a weak reference to it is dead when the thread has ended."""

    __slots__ = ("__weakref__",)


class OfThread(threading.local):
    """Leads to the state of the calling thread. Each use of a threading.local costs as much as five attributes.

    A subclass names the class of the state. There is no __init__: a call of a signal handler in it would find no
    attributes. Each attribute is created in one step.
    """

    new_state: Any
    state: Any = None

    def own_state(self) -> Any:
        """Return the state of the calling thread; create it before its first call."""
        return self.state or self.__dict__.setdefault("state", self.new_state())

    @property
    def presence(self) -> Presence:
        """The presence of the calling thread."""
        found: Presence = self.__dict__.setdefault("is_present", Presence())
        return found
