"""A web application (Starlette) that receives webhooks, handles them in the background, and shows them live.

    WEBHOOK_SECRET=secret python examples/webhooks/app.py --port 8000

    POST /hooks/SOURCE ──► stream `hooks` ──► group `handlers` ──► handle(hook), in this process
                                │                   └─ failed 5 times ──► stream `hooks.dead`
                                └──► GET /events, server-sent events for any number of browsers

    POST /hooks/shop      X-Signature: the HMAC-SHA256 of the body, in hex     202 {"id": ...}, 401 or 429
                          X-Delivery: the sender's ID of this delivery
    GET  /events          text/event-stream: ?after=ID or the header Last-Event-ID; ?count=N ends after N events
    GET  /status          {"hooks": ..., "pending": ..., "dead": ...}

The store is a directory beside the application; there is no other service. The response 202 means that the hook is on
disk. Senders repeat a delivery that was not confirmed: `idmp` recognizes the repetition and returns the same ID, if it
is one of the source's last 10,000 deliveries and comes within a day (by default: 100 deliveries, 100 seconds). A
browser that loses its connection sends the ID of the last event that it saw, so it misses nothing.

With several processes (`uvicorn --workers 4`) each process opens the directory; they share the stream and the group.
`create` takes the store, so the tests (test_app.py) pass one in memory, with a clock that they move.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hmac
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from hashlib import sha256

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import rillet
from rillet.aio import AsyncMessage

LIMIT, WINDOW = 60, 60.0  # hooks of one source per number of seconds
RETRY = 30.0  # seconds after which a hook that failed is handled again
ATTEMPTS = 5
KEEP = 100_000  # hooks in the stream
KEEP_ALIVE = 15.0  # seconds after which an idle event stream gets a comment, so that proxies keep it open

Handler = Callable[[AsyncMessage], Awaitable[None]]


async def print_hook(hook: AsyncMessage) -> None:
    """Handle a hook: replace this function by your own."""
    print(f"{hook.id} from {hook['source']}: {hook['body']}", flush=True)


class Webhooks:
    """The endpoints and the background worker, around one store."""

    def __init__(self, store: rillet.Store, secret: str, handle: Handler) -> None:
        self.store = store.aio()
        self.secret = secret.encode()
        self.handle = handle
        self.hooks = self.store.stream("hooks")

    # -- endpoints ---------------------------------------------------------------------------------------

    async def receive(self, request: Request) -> Response:
        """Store a hook and return its ID."""
        source, body = request.path_params["source"], await request.body()
        signature = hmac.new(self.secret, body, sha256).hexdigest()
        if not hmac.compare_digest(signature.encode(), request.headers.get("x-signature", "").encode()):
            return JSONResponse({"error": "the signature in X-Signature does not match the body"}, 401)
        if await self.exceeds_limit(source):
            return JSONResponse({"error": f"more than {LIMIT} hooks in {WINDOW:.0f} s"}, 429)
        delivery = request.headers.get("x-delivery")
        id = await self.hooks.add(
            {"source": source, "body": body}, maxlen=KEEP, idmp=None if delivery is None else (source, delivery)
        )
        return JSONResponse({"id": str(id)}, 202)

    async def exceeds_limit(self, source: str) -> bool:
        """Count a hook of a source; return whether there were too many since the window began."""
        key = f"rate:{source}"
        async with self.store.transaction() as transaction:
            count = transaction.execute("INCR", key)
            transaction.execute("PEXPIRE", key, int(WINDOW * 1000), "NX")
        return bool(count.result > LIMIT)

    async def events(self, request: Request) -> Response:
        """Send the hooks after a position, and new ones as they arrive, as server-sent events."""
        after = request.headers.get("last-event-id") or request.query_params.get("after")
        try:
            last = rillet.StreamID.parse(after) if after else await self.hooks.last_id()
        except ValueError:
            return JSONResponse({"error": f"{after!r} is not the ID of an event"}, 400)
        count = int(request.query_params.get("count", 0))
        return StreamingResponse(self.lines(last, count), media_type="text/event-stream")

    async def lines(self, last: rillet.StreamID, count: int) -> AsyncIterator[str]:
        """Yield an event for each hook after an ID, until the browser disconnects, or after `count` events."""
        yield ": connected\n\n"
        sent = 0
        while True:
            found = await self.hooks.read(last, count=100, block=KEEP_ALIVE)
            if not found:
                yield ": keep-alive\n\n"
            for entry in found:
                data = json.dumps({"source": entry["source"], "body": entry["body"]})
                yield f"id: {entry.id}\ndata: {data}\n\n"
                last = entry.id
                sent += 1
                if sent == count:
                    return

    async def status(self, request: Request) -> Response:
        """Return the numbers of hooks, of unhandled ones, and of dead letters."""
        group = await self.hooks.group("handlers")
        pending = await group.pending_count()
        dead = await self.store.stream("hooks.dead").length()
        return JSONResponse({"hooks": await self.hooks.length(), "pending": pending, "dead": dead})

    # -- the background worker ---------------------------------------------------------------------------

    async def work(self) -> None:
        """Handle hooks without end. A hook whose handler fails is handled again after RETRY seconds."""
        group = await self.hooks.group("handlers")
        messages = group.consumer(f"process-{os.getpid()}").messages(
            claim_idle=RETRY, max_deliveries=ATTEMPTS, dead_letters="hooks.dead"
        )
        async for hook in messages:
            try:
                await self.handle(hook)
            except Exception as error:  # the handler is the user's code
                print(f"{hook.id} failed, delivery {hook.deliveries}: {error!r}", flush=True)
            else:
                await hook.ack()

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Run the worker as long as the application. A cancelled read consumes no hook."""
        await (await self.hooks.group("handlers")).create()  # `status` may be called before the first read
        worker = asyncio.create_task(self.work())
        yield
        worker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await worker


def create(store: rillet.Store, secret: str, handle: Handler = print_hook) -> Starlette:
    """Return the application around a store."""
    hooks = Webhooks(store, secret, handle)
    routes = [
        Route("/hooks/{source}", hooks.receive, methods=["POST"]),
        Route("/events", hooks.events),
        Route("/status", hooks.status),
    ]
    return Starlette(routes=routes, lifespan=hooks.lifespan)


def main() -> None:
    """Serve the application until SIGTERM or SIGINT."""
    import uvicorn

    parser = argparse.ArgumentParser(description="Receive webhooks.")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--path", default="webhooks.rillet", help="the directory of the store")
    options = parser.parse_args()
    secret = os.environ.get("WEBHOOK_SECRET")
    if not secret:
        parser.error("set the environment variable WEBHOOK_SECRET to the secret that the senders sign with")
    with rillet.open(options.path, appendfsync="always", stream_idmp_duration=86_400,
                     stream_idmp_maxsize=10_000) as store:  # fmt: skip
        app = create(store, secret)
        uvicorn.run(app, port=options.port, log_level="warning", timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main()
