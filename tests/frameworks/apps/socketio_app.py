"""A Socket.IO server whose rooms span processes."""

from __future__ import annotations

import sys

import socketio
import uvicorn

from tests.frameworks.apps.counting import url

server = socketio.AsyncServer(async_mode="asgi", client_manager=socketio.AsyncRedisManager(url()))
application = socketio.ASGIApp(server)


@server.event
async def join(sid, room):
    """Let a client enter a room."""
    await server.enter_room(sid, room)
    return "joined"


@server.event
async def say(sid, data):
    """Send a text to everybody in a room, in whichever process."""
    await server.emit("said", data["text"], room=data["room"])


if __name__ == "__main__":
    uvicorn.run(application, host="127.0.0.1", port=int(sys.argv[1]), log_level="info")
