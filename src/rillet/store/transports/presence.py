"""Presence: an object that exists as long as its thread, so that others can detect that the thread has ended.

It is a value of a threading.local, which Python drops with the thread, also in a forked child. Rejected:
Thread.is_alive. If an exception from outside interrupts it, it marks the other thread as stopped while that thread
runs (threading.Thread._wait_for_tstate_lock, bpo-45274), and its session would be closed during a call.
"""

from __future__ import annotations


class Presence:
    """Referred to by a threading.local only; a weak reference to it is dead when the thread has ended."""

    __slots__ = ("__weakref__",)


__all__ = ["Presence"]
