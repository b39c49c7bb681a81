"""FastStream: subscribers of channels, lists and streams with groups; publishers; requests with replies."""

from __future__ import annotations

import asyncio

import pytest
import redis

from tests.frameworks.workers import PATIENCE
from tests.waiting import until

pytestmark = pytest.mark.environment("RILLET_FRAMEWORKS")


def test_an_application(served):
    with served.worker("faststream", "run", "tests.frameworks.apps.faststream_app:app") as output:
        until(lambda: "started successfully" in output.read_text(), "the application")
        with served.client() as client, redis.Redis.from_url(served.url) as undecoded:
            until(lambda: client.pubsub_numsub("requests")[0][1] == 1, "the subscription")
            until(lambda: client.exists("events") and client.xinfo_groups("events"), "the group")
            asyncio.run(_messages(served))
            until(lambda: client.llen("results") == 1, "the result of a job")
            until(lambda: client.exists("handled"), "the event's result")
            assert b"WORD" in undecoded.lindex("results", 0)
            assert client.xlen("handled") == 1
            [group] = client.xinfo_groups("events")
            assert group["name"] == "readers"
            until(lambda: client.xinfo_groups("events")[0]["lag"] == 0, "the end of the stream")


async def _messages(served):
    from faststream.redis import RedisBroker

    async with RedisBroker(served.url) as broker:
        reply = await broker.request(21, "requests", timeout=PATIENCE)
        assert await reply.decode() == 42
        await broker.publish("word", list="jobs")
        await broker.publish(1, stream="events")
        await broker.publish(2, stream="events")
