"""A FastStream application: a channel, a list, a stream with a group, a request with a reply."""

from __future__ import annotations

from faststream import FastStream
from faststream.redis import RedisBroker, StreamSub

from tests.frameworks.apps.counting import times, url

broker = RedisBroker(url())
app = FastStream(broker)


@broker.subscriber("requests")
async def answer(number: int) -> int:
    """Reply to a request."""
    return number * 2


@broker.subscriber(list="jobs")
@broker.publisher(list="results")
async def work(text: str) -> str:
    """Take a job from a list, and put the result into another."""
    return text.upper()


@broker.subscriber(stream=StreamSub("events", group="readers", consumer="one"))
@broker.publisher(stream="handled")
async def handle(number: int) -> int:
    """Read an event of a stream as a consumer of a group, and fail at the first."""
    if times("faststream") == 1:
        raise RuntimeError("the first event fails")
    return number + 1
