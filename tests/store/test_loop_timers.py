"""Timers of event loops by real time: order, cancelling, several loops, and a forked process."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import threading
from functools import partial

import pytest

from rillet.client import loop_timers
from rillet.client.loop_timers import LoopTimer, call_later, sleep, time_limit, within
from rillet.real_time import monotonic
from rillet.timer_thread import MANY

pytestmark = pytest.mark.timeout(60)


def test_timers_fire_in_order_in_the_thread_of_the_loop() -> None:
    async def main() -> None:
        loop, fired, here = asyncio.get_running_loop(), [], threading.get_ident()
        over = asyncio.Event()
        chance = random.Random(1)
        delays = [chance.choice((-1.0, 0.0, 0.01, 0.02, 0.05)) for _ in range(500)]

        timers: list[LoopTimer] = []

        def fire(number: int) -> None:
            assert threading.get_ident() == here
            assert monotonic() >= timers[number].due
            fired.append(timers[number].due)
            if len(fired) == len(delays):
                over.set()

        for number, delay in enumerate(delays):
            timers.append(call_later(loop, delay, partial(fire, number)))
        await over.wait()
        assert fired[-1] == max(fired)

    asyncio.run(main())


def test_cancelled_timers_do_not_fire_and_are_removed() -> None:
    async def main() -> None:
        loop, fired = asyncio.get_running_loop(), []
        timers = loop_timers._timers
        for _ in range(20_000):
            call_later(loop, 3600, lambda: fired.append(1)).cancel()
        await sleep(0.01)
        assert len(timers._new) + len(timers._heap) <= 2 * MANY
        due = call_later(loop, 0, lambda: fired.append(2))
        await sleep(0)  # the timer has fired, or has not yet
        due.cancel()
        count = len(fired)
        await sleep(0.02)
        assert len(fired) == count
        assert due.cancelled

    asyncio.run(main())


def test_limits_of_time() -> None:
    async def main() -> None:
        async with time_limit(None):
            await asyncio.sleep(0)
        async with time_limit(3600):
            await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            async with time_limit(0.01):
                await asyncio.Event().wait()
        with pytest.raises(TimeoutError):
            async with time_limit(0):
                await asyncio.Event().wait()
        never = asyncio.get_running_loop().create_future()
        await within(0.01, never)
        assert not never.done()
        task = asyncio.create_task(sleep(3600))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_several_loops_share_the_thread() -> None:
    def run() -> None:
        for _ in range(20):
            asyncio.run(sleep(0.001))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_has_its_own_timers() -> None:
    asyncio.run(sleep(0))
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(sleep(0.01))
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_the_timer_of_a_closed_loop_is_dropped() -> None:
    loop = asyncio.new_event_loop()
    timer = call_later(loop, 0.01, lambda: None)
    loop.close()
    asyncio.run(sleep(0.03))
    assert not timer.cancelled  # nobody called it


def test_what_has_arrived_comes_before_a_timer() -> None:
    """A loop that was busy beyond a limit first reads what arrived meanwhile, as with its own timers."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        order: list[str] = []
        with one, other:
            one.setblocking(False)
            loop.add_reader(one, lambda: order.append(one.recv(10).decode()))
            call_later(loop, 0.01, lambda: order.append("timer"))
            other.send(b"data")
            threading.Event().wait(0.1)  # the loop is busy, and both are due
            while len(order) < 2:
                await asyncio.sleep(0)
            loop.remove_reader(one)
        assert order == ["data", "timer"]

    asyncio.run(main())
