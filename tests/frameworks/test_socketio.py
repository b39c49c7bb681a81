"""python-socketio: two server processes share rooms through channels, and a third process emits into them."""

from __future__ import annotations

import asyncio

import pytest

from tests.frameworks.workers import PATIENCE
from tests.judge import free_port
from tests.waiting import until

pytestmark = pytest.mark.environment("RILLET_FRAMEWORKS")
APP = "tests.frameworks.apps.socketio_app"


def test_two_servers_share_rooms(served):
    ports = [free_port(), free_port()]
    with served.worker(APP, str(ports[0])) as first, served.worker(APP, str(ports[1])) as second:
        for output in (first, second):
            until(lambda output=output: "Uvicorn running" in output.read_text(), "a server")
        asyncio.run(_clients(served, ports))


async def _clients(served, ports):
    import socketio

    said: asyncio.Queue = asyncio.Queue()
    speaker, listener = socketio.AsyncClient(), socketio.AsyncClient()
    listener.on("said", said.put)
    await speaker.connect(f"http://127.0.0.1:{ports[0]}")
    await listener.connect(f"http://127.0.0.1:{ports[1]}")
    assert await listener.call("join", "room") == "joined"
    with served.client() as client:
        while client.pubsub_numsub("socketio")[0][1] < 2:
            await asyncio.sleep(0.05)
    await speaker.emit("say", {"room": "room", "text": "from the other server"})
    assert await asyncio.wait_for(said.get(), PATIENCE) == "from the other server"
    outside = socketio.RedisManager(served.url, write_only=True)
    await asyncio.to_thread(outside.emit, "said", "from outside", room="room")
    assert await asyncio.wait_for(said.get(), PATIENCE) == "from outside"
    await speaker.disconnect()
    await listener.disconnect()
