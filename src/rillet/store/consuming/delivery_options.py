"""The options of a loop over messages(), and when it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from rillet.real_time import monotonic
from rillet.store.arguments.argument_checks import flag, one_of, whole_number
from rillet.store.arguments.durations import Seconds, milliseconds_in, seconds_in
from rillet.store.arguments.encoding import encode_name
from rillet.store.consuming.delays import Backoff
from rillet.store.consuming.leases import BEATS, Heartbeat, Leases
from rillet.store.consuming.prefetch import PREFETCH, Pace, Prefetched, Search
from rillet.store.entry import Where

if TYPE_CHECKING:
    from rillet.store.arguments.conditions import Conditions

STOP_CHECK = 1.0  # the most seconds after which a waiting consumer notices `stop`


class HasIsSet(Protocol):
    """An event: threading.Event, asyncio.Event, multiprocessing.Event."""

    def is_set(self) -> bool:
        """Return whether the event has occurred."""


Stop: TypeAlias = "Callable[[], bool] | HasIsSet"


@dataclass(frozen=True, slots=True)
class DeliveryOptions:
    """The arguments of Consumer.messages."""

    count: int = 100
    block: Seconds | None = 1.0
    claim_idle: Seconds | None = None
    max_deliveries: int | None = None
    dead_letters: str | bytes | None = None
    on_exhausted: Literal["drop"] | None = None
    stop_when_empty: bool = False
    stop: Stop | None = None
    timeout: Seconds | None = None
    batch: int | None = None
    prefetch: int | None = None
    to_dead_letters: str | None = None  # the stream whose on_invalid is "dead_letter"
    backoff: Backoff | None = None
    heartbeat: bool = False
    collect: Seconds | None = None
    order_by: str | bytes | None = None
    where: Where | None = None
    skipped: Literal["ack", "leave"] = "ack"

    def __post_init__(self) -> None:
        """Raise TypeError or ValueError for values that are not accepted, or that would lose messages or do nothing."""
        whole_number(self.count, "count", 1)
        for name in ("batch", "max_deliveries", "prefetch"):
            if getattr(self, name) is not None:
                whole_number(getattr(self, name), name, 1)
        for name in ("block", "claim_idle", "collect"):
            if getattr(self, name) is not None:
                milliseconds_in(getattr(self, name), name)
        if self.timeout is not None:
            seconds_in(self.timeout, "timeout")
        flag(self.stop_when_empty, "stop_when_empty")
        if self.stop is not None and not callable(getattr(self.stop, "is_set", self.stop)):
            raise TypeError(f"stop must be a function, or an event with is_set(), not {self.stop!r:.200}")
        if self.backoff is not None and not callable(self.backoff):
            raise TypeError("backoff must be a function from the number of deliveries to seconds, such as "
                            f"rillet.Exponential(first=1), not {self.backoff!r:.200}")  # fmt: skip
        if flag(self.heartbeat, "heartbeat") and not self.claim_idle:
            raise ValueError("heartbeat renews the lease of claim_idle: pass claim_idle, in seconds above 0, too")
        if self.order_by is not None:
            encode_name(self.order_by, "order_by")
            if self.claim_idle is not None and not self.turn.strip(b"0"):
                raise ValueError("claim_idle is the lease of a key with order_by: it must be above 0")
        one_of(self.skipped, "skipped", ("ack", "leave"))
        if self.where is not None:
            self.conditions()
            if self.order_by is not None and self.skipped == "leave":
                raise ValueError("skipped='leave' cannot be combined with order_by: a message that is left would hold "
                                 "back its key")  # fmt: skip
        elif self.skipped != "ack":
            raise ValueError("skipped says what happens to messages that do not match: pass where, too")
        if self.dead_letters is not None:
            encode_name(self.dead_letters, "dead_letters")
        if self.on_exhausted not in (None, "drop"):
            raise ValueError(f"on_exhausted must be 'drop' or None, not {self.on_exhausted!r}")
        if self.to_dead_letters is not None and self.dead_letters is None:
            raise ValueError(
                f"on_invalid='dead_letter' of the stream {self.to_dead_letters!r} needs a place: pass "
                "dead_letters='a stream' to messages(), or the stream itself as on_invalid"
            )
        if self.max_deliveries is None:
            letters = None if self.to_dead_letters is not None else self.dead_letters
            if letters is not None or self.on_exhausted is not None:
                raise ValueError("dead_letters and on_exhausted apply after max_deliveries deliveries: pass it too")
        elif (self.dead_letters is None) == (self.on_exhausted is None):
            raise ValueError(
                "max_deliveries needs a place for the messages that exceed it: pass either dead_letters='a stream', "
                "or on_exhausted='drop' to acknowledge and lose them"
            )

    @property
    def counts(self) -> bool:
        """Whether hand-outs are counted, and not reads."""
        return self.claim_idle is not None or self.max_deliveries is not None or self.order_by is not None

    @property
    def order_field(self) -> bytes | None:
        """The name of the field of order_by."""
        return None if self.order_by is None else encode_name(self.order_by)

    @property
    def turn(self) -> bytes:
        """The lease of a key in microseconds, or b"inf" (rillet.store.consuming.order_steps)."""
        return b"inf" if self.claim_idle is None else b"%d" % round(1e6 * seconds_in(self.claim_idle))

    @property
    def _turn(self) -> bytes | None:
        return None if self.order_by is None else self.turn

    @property
    def others(self) -> bytes:
        """What a read does with messages that do not match: b"ack", or how long they count as idle, in ms."""
        return b"ack" if self.skipped == "ack" else b"%d" % (1000 * (self._idle() or 0.0))

    def conditions(self) -> Conditions | None:
        """Return the conditions of `where`."""
        if self.where is None:
            return None
        from rillet.store.arguments.conditions import Conditions

        return Conditions(self.where)

    def pace(self) -> Pace:
        """Return how many new messages a read returns."""
        if self.batch is not None:
            return Pace(self.batch, self.batch, self.batch)
        most = min(self.count, self.prefetch or (PREFETCH if self.counts else self.count))
        if self.max_deliveries == 1 or self.heartbeat:  # the message in a handler must have its count
            most = 1
        return Pace(most, 1 if self.counts else most)

    def prefetched(self, consumer: bytes) -> Prefetched:
        """Return an empty queue for the messages that a loop of this consumer reads ahead."""
        return Prefetched(consumer, self.counts, self._idle(), self._turn)

    def leases(self, consumer: bytes) -> Leases:
        """Return the leases of the messages in the handler of a loop of this consumer."""
        ordered = self.order_by is not None
        fenced = self.heartbeat or ordered
        return Leases(consumer, self.backoff, self.max_deliveries, fenced, self._turn, self.claim_idle is not None)

    def beat(self, store: Any, leases: Leases) -> Heartbeat | None:
        """Return the heartbeat of a loop, if it has one."""
        return Heartbeat(store, leases, max(0.01, (self._idle() or 0.0) / BEATS)) if self.heartbeat else None

    def search(self, groups: int) -> Search:
        """Return when to search the pending lists of so many groups for stale messages."""
        return Search(groups, self._idle())

    def _idle(self) -> float | None:
        return None if self.claim_idle is None else seconds_in(self.claim_idle)


class End:
    """Decides when an iteration over messages ends: at `stop`, or after `timeout` seconds without a message."""

    def __init__(self, options: DeliveryOptions) -> None:
        self.options = options
        self.stopped = False
        self._block = None if options.block is None else seconds_in(options.block)
        self._timeout = None if options.timeout is None else seconds_in(options.timeout)
        stop: Any = options.stop
        self._stop: Callable[[], bool] | None = getattr(stop, "is_set", stop)
        self.handed_out()

    def handed_out(self) -> None:
        """Note that a message was handled: the time without a message begins again."""
        self._since = monotonic()

    def requested(self) -> bool:
        """Return whether `stop` is set; once it was, always True."""
        if not self.stopped and self._stop is not None:
            self.stopped = bool(self._stop())
        return self.stopped

    def expired(self) -> bool:
        """Return whether `timeout` seconds have passed since the last message."""
        return self._timeout is not None and monotonic() - self._since >= self._timeout

    def block(self) -> float | None:
        """Return how long the next read may wait, in seconds; 0 without limit, None for a read that does not wait."""
        wait = self._block
        if wait is None or self.options.stop_when_empty:
            return None
        limits = [wait] if wait > 0 else []
        if self._stop is not None:
            limits.append(STOP_CHECK)
        if self.options.claim_idle is not None:  # meanwhile, messages of others may become stale
            limits.append(max(STOP_CHECK, seconds_in(self.options.claim_idle)))
        if self._timeout is not None:
            limits.append(max(0.001, self._timeout - (monotonic() - self._since)))
        return min(limits) if limits else 0
