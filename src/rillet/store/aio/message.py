"""The asyncio form of rillet.store.message: AsyncMessage.

Made from store/message.py by `python -m tools.make_aio`; edit that file, then run the command.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from rillet.store.arguments.durations import Seconds, seconds_in
from rillet.store.arguments.policies import RefPolicy, policy_arguments
from rillet.store.consuming.atomic_steps import acknowledge_one, lease
from rillet.store.consuming.delays import due_time
from rillet.store.entry import T
from rillet.store.message import Delivered, lost_leases, nack_words

if TYPE_CHECKING:
    from rillet.store.aio.group import AsyncGroup
    from rillet.store.aio.stream import AsyncStream


class AsyncMessage(Delivered[T]):
    """An entry delivered to a consumer: call `ack()` when it is handled, `nack()` to let another consumer try.

    deliveries: how often the message was delivered, including this time; 1 for a new message. idle_ms: the milliseconds
    between the delivery before and this one; 0 for a new message; None unless `read(claim_idle=...)` returned it.
    """

    __slots__ = ()
    group: AsyncGroup[T]

    @property
    def stream(self) -> AsyncStream[T]:
        """The stream of the message."""
        return self.group.stream

    async def ack(self, *, delete: RefPolicy | None = None) -> bool:
        """Acknowledge the message (see AsyncGroup.ack); return False if it was acknowledged before.

        With messages(heartbeat=True) or order_by, and after `extend`: LeaseLost if it no longer belongs to the
        consumer.
        """
        untouched, self.settled = not self.settled, True
        group = self.group
        if self.fenced:
            if untouched and group.token is not None and not self.held and delete is None and \
                    await group.store.run(acknowledge_one(group, self.raw_id)):  # fmt: skip
                return True
            await self._lease(b"ack", b"".join(policy_arguments(delete, "delete")))
            return True
        if delete is not None:  # otherwise one XACK: Group.ack, for any IDs, would cost a loop a tenth of its rate
            return await group.ack(self.raw_id, delete=delete) == 1
        acknowledged: int = await group.store.run([b"XACK", group.stream.key, group.key, self.raw_id])
        return acknowledged == 1

    async def nack(self, mode: str = "fail", *, deliveries: int | None = None) -> bool:
        """Release the message (see Group.nack); return False if it is no longer pending. LeaseLost as for `ack`."""
        if self.turn is not None:
            await self._lease(b"nack", nack_words(mode, deliveries))
            self.settled = True
            return True
        if self.fenced:
            await self._lease(b"renew", b"")
        self.settled = self.released = True
        return await self.group.nack(self.raw_id, mode=mode, deliveries=deliveries) == 1

    async def retry(self, delay: Seconds | None = None, *, at: datetime | None = None) -> None:
        """Give the message back, to be delivered again after `delay` seconds or at a time (consuming/delays.py).

        It stays pending. Any consumer of the group receives it then, and it counts as delivered once more. The clock is
        the store's. LeaseLost if the message no longer belongs to the consumer.
        """
        kind, ms = due_time(delay, at)
        await self._lease(kind, ms)
        self.settled = self.released = True

    async def extend(self, seconds: Seconds) -> None:
        """Keep the message for that many seconds from now: no consumer of rillet claims it before.

        It makes no lease shorter: in a loop with claim_idle, the message is also kept until it was idle for so long.
        LeaseLost if it no longer belongs to the consumer; then another one may have it. A later `ack` raises it, too.
        """
        kind, ms = due_time(seconds_in(seconds, "seconds"), None)
        self.fenced = True
        await self._lease(b"longer" if self.leased else kind, ms)

    async def _lease(self, action: bytes, detail: int | bytes) -> None:
        """Acknowledge or hold the message if it still belongs to the consumer; else raise LeaseLost."""
        group = self.group
        if isinstance(detail, int):
            self.held = group.has_retries = True
        if await group.store.run(lease(group, self.consumer, action, [self], detail)):
            self.released = True
            raise lost_leases([self])
