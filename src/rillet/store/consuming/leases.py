"""Leases: the messages in the handler of a loop over messages(), their heartbeat, their retry, and the loop's end.

A message in a handler belongs to its consumer until it was idle for `claim_idle`. With heartbeat=True a thread renews
it three times in that time, as long as the handler works; the thread ends with the loop, and with the process. It
renews only messages that still belong to the consumer (consuming/atomic_steps.py). One that does not is lost: `ack`,
`extend` and `retry` raise LeaseLost, and change nothing.

A thread also renews while the handler computes without a pause, or blocks an event loop; and while a handler hangs. So
the heartbeat is an option. Rejected for asyncio: a task, which does not renew while a handler blocks the event loop.

With `backoff`, a message that is neither acknowledged nor released when the loop continues, or ends, has failed.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import weakref
from _thread import get_ident, start_new_thread
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rillet.errors import CommandError, StoreError
from rillet.loggers import logger
from rillet.store.arguments.encoding import decode
from rillet.store.command_steps import Commands, drive
from rillet.store.consuming.atomic_steps import lease
from rillet.store.consuming.delays import Backoff, due_time

if TYPE_CHECKING:
    from rillet.store.consuming.prefetch import Prefetched
    from rillet.store.message import Delivered
    from rillet.store.store import Store

LOGGER = logger("store")
BEATS = 3  # renewals in the time of a lease


class Leases:
    """The messages that are in the handler of a loop.

    backoff, max_deliveries: those of messages(). fenced: whether acknowledgements check that the lease is not lost.
    turn: with order_by, the lease (rillet.store.consuming.order_steps). leased: whether the loop has a claim_idle.
    """

    __slots__ = ("__weakref__", "_backoff", "_consumer", "_leased", "_max_deliveries", "fenced", "handed",
                 "turn")  # fmt: skip

    def __init__(self, consumer: bytes, backoff: Backoff | None, max_deliveries: int | None, fenced: bool,
                 turn: bytes | None = None, leased: bool = True) -> None:  # fmt: skip
        self.handed: Sequence[Delivered[Any]] = ()
        self.fenced = fenced
        self.turn = turn
        self._leased = leased
        self._consumer = consumer
        self._backoff = backoff
        self._max_deliveries = max_deliveries

    def began(self, messages: Sequence[Delivered[Any]]) -> None:
        """Note the messages that are handed out now."""
        if self._leased:
            for message in messages:
                message.leased = True
        if self.fenced:
            for message in messages:
                message.fenced, message.turn = True, self.turn
        self.handed = messages

    def ended(self) -> Commands[None]:
        """Note that the handler returned; messages that it did not acknowledge wait for their retry."""
        messages, self.handed = self.handed, ()
        if self._backoff is None:
            return
        for message in messages:
            if message.settled:
                continue
            message.settled = True
            last = self._max_deliveries is not None and message.deliveries >= self._max_deliveries
            kind, ms = due_time(0.0 if last else self._backoff(message.deliveries), None)
            message.group.has_retries = True
            yield lease(message.group, self._consumer, kind, [message], ms)  # one that is lost stays as it is

    def renew(self) -> Commands[None]:
        """Renew the messages in the handler; forget those that are lost."""
        lost: list[Delivered[Any]] = []
        for message in self.handed:
            if not message.settled:
                (*gone,) = yield lease(message.group, self._consumer, b"renew", [message])
                if gone and not message.settled:
                    lost.append(message)
        if lost:
            self.handed = [message for message in self.handed if all(message is not one for one in lost)]
        for message in lost:
            LOGGER.warning(
                "the lease of message %s of %r was lost: another consumer may handle it too", decode(message.raw_id),
                decode(message.group.stream.key),
            )  # fmt: skip


class Heartbeat:
    """A thread that renews the messages of a loop every `interval` seconds; it starts with the first message."""

    __slots__ = ("_interval", "_leases", "_store", "_stop", "_thread")

    def __init__(self, store: Any, leases: Leases, interval: float) -> None:
        self._store = getattr(store, "synchronous", store)  # of an AsyncStore
        self._leases = leases
        self._interval = interval
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, unless it runs."""
        if self._thread is None:
            arguments = weakref.ref(self._store), weakref.ref(self._leases), self._interval, self._stop
            self._thread = threading.Thread(target=_beat, args=arguments, name="rillet heartbeat", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()


def _beat(store: weakref.ref[Any], leases: weakref.ref[Leases], interval: float, stop: threading.Event) -> None:
    while not stop.wait(interval):
        held, there = leases(), store()
        if held is None or there is None:
            return
        try:
            drive(there, held.renew(), interval)
        except (StoreError, CommandError) as error:
            LOGGER.warning("a heartbeat failed, and is repeated: %s", error)
        del held, there


# -- the end of a loop ---------------------------------------------------------------------------------------------
#
# A loop that is part of a reference cycle is closed by the garbage collector, which runs in any thread, between any two
# lines. That thread may hold the lock of the engine, or serve the socket that the last commands of the loop would wait
# for. So they have a thread of their own then. A loop that ends by itself, by `break` or by close() runs them before it
# returns.

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
