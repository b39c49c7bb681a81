"""Delays, retries, leases, collection and filters, with consumers that are killed or paused between any two commands.

A consumer is the generator of its commands (consuming/delivery.py), which the test drives. So a kill or a pause comes
at any place that a server can notice. A ledger has what was added, retried, extended and acknowledged, and checks:

    nothing is lost         in the end every entry was acknowledged
    nothing comes twice     the stream has every delayed entry once
    nothing is early        by the clock of the store: neither an entry nor a retry nor an extended message
    the order               by due time, then by the call of `add`, among entries that waited at the same time
    leases                  no other consumer receives a message before the shortest claim_idle is over, from the last
                            hand-out, `extend`, or renewal by a heartbeat
    fencing                 `ack`, `retry` and `extend` succeed only if the group lists the message for this hand-out
    filters                 a loop with `where` receives matching entries only; it leaves the others to loops without,
                            or, in some rounds, acknowledges them. Ranges with `where` have what matches
    counting                `count` and `rank` agree with the entries of a range
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from rillet import LeaseLost, Message, Store, StreamID
from rillet.keyspace.helper_keys import retries_key
from rillet.store.command_steps import drive, run_step
from rillet.store.consuming import delays, prefetch
from rillet.store.consuming.delivery import delivery
from rillet.store.consuming.delivery_options import DeliveryOptions, End
from rillet.store.message import Delivered
from rillet.store.stream import Stream
from rillet.testing.clock import StoreClock
from tests.store.conftest import FEW, Frontend

NAMES = "abc"
LEASES = (2, 6)  # claim_idle, in units
BACKOFF = 4.0


class Actor:
    """A consumer that does one command at a time."""

    def __init__(self, model: Model, name: str, options: DeliveryOptions) -> None:
        self.model, self.options = model, options
        self.consumer = model.stream.group(model.group.name).consumer(name)  # learns by itself of retries
        self.leases = options.leases(self.consumer.key)
        prefetched = options.prefetched(self.consumer.key)
        self.steps = delivery([self.consumer], options, End(options), prefetched, self.leases)
        self.next: Any = next(self.steps)  # the next command
        self.handler: list[Message] = []
        self.failed: list[Delivered[Any]] = []  # the next commands ask for their retry; a renewal forgets lost ones
        self.since = model.now()  # the time before the first command since the last hand-out

    def step(self) -> None:
        """End the handler, or run the next command; then a handler may begin."""
        before = self.model.now()
        if self.handler:
            if self.options.backoff is not None:
                self.failed = [message for message in self.leases.handed if not message.settled]
            self.handler, self.since = [], before
            self.next = next(self.steps)
        else:
            reply = run_step(self.model.store, self.next)
            if self.failed:
                message = self.failed.pop(0)
                if not reply:  # not lost
                    self.model.hold(message, before + BACKOFF)
            self.next = self.steps.send(reply)
        if isinstance(self.next, tuple):
            assert not self.failed
            self.handler = list(self.next)
            # A batch may be checked by several commands: a pause between two of them is one before the hand-out.
            at_once = self.options.batch is None
            for message in self.handler:
                self.model.handed_out(message, at_once, self.options.where is not None)
                self.model.leased(message, min(before if at_once else self.since, self.model.now()))

    def renew(self) -> None:
        """Do what the thread of a heartbeat does."""
        before = self.model.now()
        drive(self.model.store, self.leases.renew())
        for message in self.leases.handed:
            if not message.settled and self.model.owns(message):
                self.model.leased(message, before)


class Model:
    """A store, its consumers, and the ledger."""

    def __init__(self, store: Store, random: Random, now: Callable[[], float], advance: Callable[[float], None],
                 unit: float) -> None:  # fmt: skip
        self.store, self.random, self.now, self.advance, self.unit = store, random, now, advance, unit
        self.stream = store.stream("{a}jobs}")
        self.group = self.stream.group("the:group")
        self.group.create()
        # As after an earlier retry: a loop does not notice the very first one between two of its commands.
        store.execute("ZADD", retries_key(self.stream.key, self.group.key), "+inf", "")
        self.actors: list[Actor] = []
        self.dues: dict[str, float] = {}
        self.added: dict[str, float] = {}
        self.held: dict[str, float] = {}  # the time before which nobody may receive it
        self.leases: dict[str, tuple[bytes, float]] = {}  # the consumer that has it, and the time before that was noted
        self.acknowledged: set[str] = set()
        self.filters = random.choice(("leave", "ack"))  # what loops with `where` do with other messages

    # -- the ledger ------------------------------------------------------------------------------------

    def handed_out(self, message: Message, at_once: bool = True, odd: bool = False) -> None:
        n, now = message["n"], self.now()
        assert message["odd"] == "1" or not odd
        assert now >= self.dues[n], f"{n} is early by {self.dues[n] - now}"
        if at_once:
            assert now >= self.held.get(n, 0.0), f"{n} came {self.held[n] - now} s before its retry"
            assert n not in self.acknowledged
            name, since = self.leases.get(n, (b"", 0.0))
            left = since + LEASES[0] * self.unit - now
            assert name == message.consumer or left <= 0.001 * (self.unit < 1), f"{name!r} has {n} for {left} s"

    def owns(self, message: Delivered[Any]) -> bool:
        """Whether the group lists the message for this hand-out, which may still be uncounted."""
        rows = self.group.pending(1, start=message.id, end=message.id, consumer=message.consumer)
        return any(message.deliveries - one.deliveries in (0, 1) for one in rows)

    def hold(self, message: Delivered[Any], until: float) -> None:
        self.held[message["n"]] = until - 0.001 * (self.unit < 1)
        self.leases.pop(message["n"], None)

    def leased(self, message: Delivered[Any], since: float) -> None:
        self.leases[message["n"]] = (message.consumer, since)

    # -- what happens ----------------------------------------------------------------------------------

    def add(self) -> None:
        n, kind = str(len(self.dues)), self.random.randrange(3)
        fields = {"n": n, "odd": int(n) % 2}
        self.added[n] = self.now()
        if kind == 0:
            self.dues[n] = 0.0
            self.stream.add(fields)
            return
        delay = self.random.choice((0, 1, 2, 5, 9)) * self.unit
        self.dues[n] = self.now() + delay - 0.001 * (self.unit < 1)
        self.stream.add(fields, delay=delay)

    def start(self) -> None:
        if len(self.actors) < 4:
            backoff = None if self.random.randrange(2) else (lambda _: BACKOFF)
            heartbeat = self.random.randrange(2) == 0
            filters: Any = self.random.choice(({}, {}, {"where": {"odd": 1}, "skipped": self.filters}))
            options = DeliveryOptions(
                block=None, claim_idle=self.random.choice(LEASES) * self.unit, heartbeat=heartbeat, backoff=backoff,
                batch=self.random.choice((None, None, 2)), collect=self.random.choice((None, 8 * self.unit)),
                **filters,
            )  # fmt: skip
            self.actors.append(Actor(self, self.random.choice(NAMES), options))

    def kill(self, actor: Actor) -> None:
        self.actors.remove(actor)
        actor.steps.close()

    def handle(self, actor: Actor) -> None:
        for message in actor.handler:
            if not message.settled:
                self.act(message)

    def act(self, message: Message) -> None:
        owns, now, seconds = self.owns(message), self.now(), self.random.choice((1, 3, 7)) * self.unit
        try:
            match self.random.randrange(5):
                case 0 | 1:
                    fenced = message.fenced
                    if message.ack():
                        self.acknowledged.add(message["n"])
                    owns = owns or not fenced
                case 2:
                    message.retry(seconds)
                    self.hold(message, now + seconds)
                case 3:
                    message.extend(seconds)
                    self.hold(message, now + seconds)
                    self.leased(message, now)
                case _:
                    return
        except LeaseLost:
            assert not owns
        else:
            assert owns

    def read(self) -> None:
        """Compare ranges with `where`, and counts, with all entries."""
        entries = list(self.stream)
        assert len(entries) == len(self.dues) - self.stream.delayed_count()
        assert list(self.stream.scan(where={"odd": 1})) == [entry for entry in entries if int(entry["n"]) % 2]
        check_counts(self.stream, [entry.id for entry in entries], self.random)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            kind = self.random.randrange(20)
            if kind < 3:
                self.add()
            elif kind == 3:
                self.start()
            elif kind == 4 and self.actors and self.random.randrange(3) == 0:
                self.kill(self.random.choice(self.actors))
            elif kind == 5:
                self.advance(self.random.choice((0.25, 1, 1, 3, 20)) * self.unit)
            elif kind == 6:
                self.group.collect(self.random.choice((5, 15)) * self.unit)
            elif kind == 7 and self.random.randrange(4) == 0:
                self.read()
            elif self.actors:
                actor = self.random.choice(self.actors)
                if actor.handler and actor.options.heartbeat and self.random.randrange(3):
                    self.advance(self.random.choice((0.25, 1)) * self.unit)  # a long handler
                    actor.renew()
                    continue
                if actor.handler:
                    self.handle(actor)
                actor.step()

    def finish(self) -> None:
        """Let one consumer handle everything that is left, then check the ledger."""
        for actor in list(self.actors):
            self.kill(actor)
        # What a filter may have acknowledged is not pending, and in the stream.
        wanted = {n for n in self.dues if self.filters == "leave" or int(n) % 2}
        for _ in range(200):
            waits = self.group.pending_count() or self.stream.delayed_count()
            if wanted <= self.acknowledged and not waits:
                break
            self.advance(5 * self.unit)
            lease = LEASES[0] * self.unit
            for message in self.group.consumer("last").messages(claim_idle=lease, block=None, stop_when_empty=True):
                self.handed_out(message)
                assert message.ack()
                self.acknowledged.add(message["n"])
        assert wanted <= self.acknowledged <= self.dues.keys()
        assert self.group.pending_count() == 0
        assert self.stream.delayed_count() == 0
        places = {entry["n"]: (place, entry.id.ms / 1000) for place, entry in enumerate(self.stream)}
        assert len(places) == self.stream.length() == len(self.dues)
        self.check_order(places)

    def check_order(self, places: dict[str, tuple[int, float]]) -> None:
        late = [n for n in places if self.dues[n] and self.unit >= 1]
        for one in late:
            for other in late:
                waited = self.added[other] < places[one][1]  # when `one` was moved
                if waited and (self.dues[other], int(other)) < (self.dues[one], int(one)):
                    assert places[other][0] < places[one][0], f"{other} should come before {one}"


def check_counts(stream: Stream[Any], ids: list[StreamID], random: Random) -> None:
    """Compare `count` and `rank` with the IDs of all entries."""
    assert stream.count() == len(ids)
    for place in random.sample(range(len(ids)), min(3, len(ids))):
        assert stream.rank(ids[place]) == place + 1
        other = random.randrange(len(ids))
        assert stream.count(ids[place], ids[other]) == max(0, other - place + 1)
        assert stream.count(ids[place], f"({ids[other]}") == max(0, other - place)


@contextmanager
def _always_looking() -> Iterator[None]:
    """Let loops look for what is due in each round, and check what they hand out: they take no real time here."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("LOOK", "LOOK_IN_PROCESS", "LOOK_UNUSED"):
            patch.setattr(delays, name, 0.0)
        patch.setattr(prefetch, "CHECK_AFTER", 0.0)  # as after a pause
        patch.setattr(prefetch.Search, "took", lambda search, seconds: None)  # the next one is due at once
        yield


def _round(seed: object, steps: int = 150) -> None:
    clock = StoreClock(1_700_000_000)
    with clock.open() as store, _always_looking():
        model = Model(store, Random(str(seed)), clock.time, clock.advance, 1)
        model.run(steps)
        model.finish()


def _real_round(store: Store, seed: object) -> None:
    """A round on a store with a real clock, in which a second takes some milliseconds."""

    def now() -> float:
        seconds, microseconds = map(int, store.execute("TIME"))
        return seconds + microseconds / 1e6

    def advance(seconds: float) -> None:
        until = now() + seconds
        while now() < until:
            pass

    with _always_looking(), pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "BACKOFF", 0.008)
        model = Model(store, Random(str(seed)), now, advance, 0.002)
        model.run(60)
        model.finish()
        store.delete(*store.keys())


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_lost_or_early(seed: int) -> None:
    _round(seed)


@FEW
def test_nothing_is_lost_or_early_on_a_real_clock(frontend: Frontend) -> None:
    for seed in range(3):
        _real_round(frontend.store, seed)
