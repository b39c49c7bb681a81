"""KeyboardInterrupt at each place of asyncio calls: the loop ends, and the same store serves another loop.

asyncio itself may lose a callback if an exception comes in the middle of it, so its own places are left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import selectors
import sys
from asyncio.selector_events import _SelectorTransport  # type: ignore[attr-defined]
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import rillet
from rillet.store.aio import AsyncStore
from tests.model.interrupts import AtPlace, in_time, quiet
from tests.variants import by_speed

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="Unix sockets"),
    # An interrupt closes a loop before its connections, and Python cannot raise an exception in a finalizer.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
LIMIT = 20.0  # seconds after which a call hangs
MOST = by_speed(25, 25, 400)  # places of a call that are tried
_ASYNCIO = (os.path.dirname(asyncio.__file__), selectors.__file__)
Call = Callable[[AsyncStore], Awaitable[object]]


class _Places(AtPlace):
    """The places of a coroutine and of the callbacks that run meanwhile, without those of asyncio."""

    kind = KeyboardInterrupt
    inside = False

    def _look(self, frame: FrameType, event: str, argument: Any) -> None:
        if self.inside and not frame.f_code.co_filename.startswith(_ASYNCIO):
            super()._look(frame, event, argument)

    def run(self, call: Call, store: AsyncStore) -> None:
        """Run a call in a new loop."""

        async def main() -> None:
            self.inside = True
            try:
                await call(store)
            finally:
                self.inside = False

        self.call(lambda: asyncio.run(main()))


async def durable(store: AsyncStore) -> None:
    await store.stream("s").add({"n": 1})


async def redis_py(store: AsyncStore) -> None:
    async with store.redis_async() as client:
        await client.set("k", 1)


async def subscription(store: AsyncStore) -> None:
    async with await store.subscribe("channel") as messages:
        await store.publish("channel", "x")
        assert await messages.get(timeout=LIMIT)


async def arrow(store: AsyncStore) -> None:
    await store.stream("s").to_arrow()


def interrupted(at: int, call: Call, store: AsyncStore) -> bool:
    """Run a call that is interrupted in its `at`-th place; return whether it has as many."""
    places = _Places(lambda: at)
    with contextlib.suppress(KeyboardInterrupt):
        places.run(call, store)
    return places.sent


@pytest.mark.parametrize("call", [durable, redis_py, subscription, arrow])
def test_a_loop_that_is_interrupted_at_each_place(call: Call, tmp_path: Path) -> None:
    with rillet.open(tmp_path / "store", appendfsync="always") as owner, rillet.connect(str(owner.url)) as connected:
        owner.stream("s").add({"n": 0})
        store = (owner if call in (durable, redis_py) else connected).aio()

        def again() -> None:
            asyncio.run(asyncio.wait_for(call(store), LIMIT))

        again()
        many = 1 << 60
        counted = _Places(lambda: many)
        counted.run(call, store)
        step, at = max((many - counted._left) // MOST, 1), 1
        with quiet():
            while interrupted(at, call, store):
                in_time(again, LIMIT)
                at += step
        assert at > 20
    _close_what_is_left()


def _close_what_is_left() -> None:
    """Close the connections of closed loops: only an interrupted loop leaves them, and their finalizers would warn."""
    for left in gc.get_objects():
        if not isinstance(left, _SelectorTransport) or left._sock is None:
            continue
        if left._loop is None or left._loop.is_closed():
            left._sock.close()
            left._sock = None
