"""Cancellations: undo the command of a cancelled call, so that it has no effect.

    not sent yet                              drop the command
    blocked                                   CLIENT UNBLOCK on the shared connection
    executed, or takes data without blocking  put back what the reply contains (rillet.store.transports.undelivered)

The cancellation waits for this, a round trip, before it is raised, so that the next command finds the data. If the
server does not answer within SETTLE seconds, the connection is closed; it is then unknown what the server did.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from rillet.client.async_connection import AsyncConnection
from rillet.client.loop_timers import within
from rillet.protocol.command_parser import pack_command
from rillet.protocol.reply_parser import ReplyError
from rillet.real_time import monotonic
from rillet.store.transports.undelivered import Steps, Undelivered, continues, executed, put_back_all

SETTLE = 2.0  # seconds that a cancellation waits for the server
_UNBLOCK_AGAIN = 0.02  # seconds after which CLIENT UNBLOCK is repeated: it may have overtaken the command


class Cancellations:
    """Undoes the commands of cancelled calls.

    share: returns the connection that all tasks share. restore: puts elements back, here through that connection.
    """

    def __init__(self, share: Callable[[], Awaitable[AsyncConnection]], undelivered: Undelivered,
                 restore: Callable[[Sequence[Steps]], Awaitable[None]] | None) -> None:  # fmt: skip
        self._share = share
        self._undelivered = undelivered
        self._restore = restore or self._restore_here

    async def settled(self, undoing: Awaitable[None], connection: AsyncConnection) -> None:
        """Finish the undoing of a cancelled call, even if the task is cancelled again; give up after SETTLE seconds."""
        task = asyncio.ensure_future(undoing)
        limit = monotonic() + SETTLE
        while not task.done() and monotonic() < limit:
            with contextlib.suppress(asyncio.CancelledError):
                await within(limit - monotonic(), task)
        if not task.done():
            task.cancel()
            connection.close()
        elif not task.cancelled():
            task.exception()  # the connection broke: what the server did is unknown, as for any other call

    async def unblocked(self, connection: AsyncConnection, argv: list[bytes], reply: asyncio.Future[Any]) -> None:
        """Unblock the command of a connection; put back what it took if its reply was already under way."""
        shared = await self._share()
        unblock = pack_command([b"CLIENT", b"UNBLOCK", connection.id])
        while not reply.done():
            answer = await shared.call(unblock)
            if isinstance(answer, ReplyError):  # not permitted: the server unblocks a client that has gone
                connection.close()
                return
            if not reply.done():
                await within(_UNBLOCK_AGAIN, reply)
        await self.restored(argv, reply)

    async def restored(self, argv: list[bytes], reply: asyncio.Future[Any]) -> None:
        """Put back what a command took, once its reply is there."""
        await self.restored_all([argv], [reply])

    async def restored_all(self, argvs: Sequence[list[bytes]], replies: Sequence[asyncio.Future[Any]]) -> None:
        """Put back what the commands of a batch took, once their replies are there."""
        pairs = executed(argvs, [await reply for reply in replies])
        for argv, taken in pairs:
            self._undelivered.keep(argv, taken)
        restoring = put_back_all(pairs)
        if restoring:
            await self._restore(restoring)

    async def _restore_here(self, restoring: Sequence[Steps]) -> None:
        shared = await self._share()
        for steps in restoring:
            for argv in steps:
                if not continues(await shared.call(pack_command(argv))):
                    break
