"""The order by key, with consumers that are killed or paused between any two of their commands, and a ledger.

As tests/store/test_delay_model.py, whose consumers are driven command by command. Consumers come and go, retry, extend,
release and outlive their leases; others acknowledge by XACK alone, delete entries, collect and delete consumers. The
ledger knows what was added, and checks:

    nothing is lost      in the end every entry was acknowledged, deleted, or is a dead letter
    the order            an entry is handed out only when all entries of its key with lower IDs are done
    one at a time        an entry of a key is not handed out while another consumer has a live lease of the key
    nothing is early     by the clock of the store: neither a retry nor an extended message
    fencing              `ack`, `retry` and `extend` succeed only if the group lists the message for this hand-out
    counting             `count` and `rank` agree with the entries that are left
    nothing remains      the keys of the order exist only while messages are pending
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

import rillet
from rillet import InvalidEntry, LeaseLost, Message, Store
from rillet.keyspace.helper_keys import order_keys
from rillet.store.command_steps import drive, run_step
from rillet.store.consuming import delays, delivery, prefetch
from rillet.store.consuming.delivery_options import DeliveryOptions, End
from rillet.store.message import Delivered
from rillet.testing.clock import StoreClock
from tests.store.conftest import FEW, Frontend
from tests.store.test_delay_model import check_counts
from tests.variants import by_speed

NAMES = "abcd"
KEYS = ("", "x", "xx", "x:1-1", "9:", "é\n")
BACKOFF = 4.0


class Actor:
    """A consumer that does one command at a time."""

    def __init__(self, model: Model, name: str, options: DeliveryOptions) -> None:
        self.model, self.options, self.name = model, options, name
        self.consumer = model.stream.group(model.group.name).consumer(name)
        self.lease = math.inf if options.claim_idle is None else float(options.claim_idle)  # type: ignore[arg-type]
        self.leases = options.leases(self.consumer.key)
        prefetched = options.prefetched(self.consumer.key)
        self.steps = delivery.delivery([self.consumer], options, End(options), prefetched, self.leases)
        self.next: Any = next(self.steps)  # the next command
        self.handler: list[Message] = []
        self.failed: list[Delivered[Any]] = []  # the next commands ask for their retry; a renewal forgets lost ones
        self.since = model.now()  # the time before the first command since the last hand-out

    def step(self) -> None:
        """End the handler, or run the next command; then a handler may begin."""
        before = self.model.now()
        if self.handler or isinstance(self.next, InvalidEntry):
            if self.options.backoff is not None:
                self.failed = [message for message in self.leases.handed if not message.settled]
            self.handler, self.since = [], before
            self.next = next(self.steps)
        else:
            reply = run_step(self.model.store, self.next)
            if self.failed:
                message = self.failed.pop(0)
                if not reply:  # not lost
                    last = self.options.max_deliveries == message.deliveries  # then it becomes a dead letter at once
                    self.model.hold(message, before + (0 if last else BACKOFF))
            self.next = self.steps.send(reply)
        if isinstance(self.next, InvalidEntry):
            self.model.invalid(self.next.entry)
        elif isinstance(self.next, tuple):
            assert not self.failed
            self.handler = list(self.next)
            keys = [message["k"] for message in self.handler]
            assert len(keys) == len(set(keys))
            # A batch may be checked by several commands, and a pause between two of them may be longer than the lease.
            began = before if self.options.batch is None else self.since
            began = min(began, self.model.now())  # the clock may have jumped back since
            if self.options.batch is None or self.model.now() - began < self.lease / 2:
                for message in self.handler:  # a collection may come between two of these commands, too
                    if self.options.batch is None or self.model.owns(message):
                        self.model.handed_out(message, self, began + self.lease)

    def renew(self) -> None:
        """Do what the thread of a heartbeat does."""
        before = self.model.now()
        drive(self.model.store, self.leases.renew())
        for message in self.leases.handed:
            if not message.settled and self.model.owns(message):
                self.model.leased(message, self.name, before + self.lease)


class Model:
    """A store, its consumers, and the ledger."""

    def __init__(self, store: Store, random: Random, now: Callable[[], float], advance: Callable[[float], None],
                 unit: float) -> None:  # fmt: skip
        self.store, self.random, self.now, self.advance, self.unit = store, random, now, advance, unit
        self.slack = 1e-5 if unit >= 1 else 0.001
        self.stream = store.stream("{a}jobs}")
        self.dead = store.stream("dead")
        self.group = self.stream.group("the:group")
        self.group.create()
        self.actors: list[Actor] = []
        self.added = 0
        self.leases: dict[str, tuple[str, float]] = {}  # entry -> the name and the end of the lease of a hand-out
        self.held: dict[str, float] = {}  # the time before which nobody may receive it
        self.done: set[str] = set()
        self.deleted: set[str] = set()  # some of these are pending
        self.foreign: set[str] = set()  # acknowledged by others
        self.handed = 0

    # -- the ledger ------------------------------------------------------------------------------------

    def dead_letters(self) -> set[str]:
        return {entry["n"] for entry in self.dead.range()}

    def handed_out(self, message: Message, actor: Actor, until: float) -> None:
        n, now = message["n"], self.now()
        self.handed += 1
        assert now >= self.held.get(n, 0.0) - self.slack, f"{n} came {self.held[n] - now} s before its retry"
        between = n in self.foreign and actor.options.batch is not None  # the messages of a batch are checked in turn
        assert n not in self.done or n in self.deleted or between, f"{n} was handed out after its acknowledgement"
        before = [entry["n"] for entry in self.stream.range(end=f"({message.id}") if entry.get("k") == message["k"]]
        left = [other for other in before if other not in self.done]
        assert not left or not set(left) - self.dead_letters(), f"{n} was handed out before {left}"
        for other in (*before, n):
            name, end = self.leases.get(other, ("", 0.0))
            assert name == actor.name or end <= now + self.slack, f"{name} has {other} for {end - now} s"
        self.leased(message, actor.name, until)

    def leased(self, message: Delivered[Any], name: str, until: float) -> None:
        self.leases[message["n"]] = (name, until)

    def invalid(self, message: Message) -> None:
        """Settle an entry without a key, or leave it."""
        if self.random.randrange(2):
            self.group.ack(message.id)
            self.done.add(message["n"])

    def owns(self, message: Delivered[Any]) -> bool:
        """Whether the group lists the message for this hand-out, which may still be uncounted."""
        rows = self.group.pending(1, start=message.id, end=message.id, consumer=message.consumer)
        return any(message.deliveries - one.deliveries in (0, 1) for one in rows)

    def hold(self, message: Delivered[Any], until: float) -> None:
        self.held[message["n"]] = until
        self.leases.pop(message["n"], None)

    def finished(self, n: str) -> None:
        self.done.add(n)
        self.leases.pop(n, None)

    def freed(self, *names: str) -> None:
        """Note that these consumers have no leases any more."""
        self.leases = {n: lease for n, lease in self.leases.items() if lease[0] not in names}

    # -- what happens ----------------------------------------------------------------------------------

    def add(self) -> None:
        fields = {"n": str(self.added), "k": self.random.choice(KEYS)}
        if self.random.randrange(15) == 0:
            del fields["k"]
        self.added += 1
        self.stream.add(fields, delay=self.random.choice((None, None, None, None, 2 * self.unit)))  # type: ignore

    def start(self) -> None:
        free = [name for name in NAMES if name not in [actor.name for actor in self.actors]]
        if free:
            name = self.random.choice(free)
            backoff = None if self.random.randrange(2) else (lambda _: BACKOFF)
            heartbeat = self.random.randrange(3) == 0
            limit = self.random.choice((None, 3))
            options = DeliveryOptions(
                block=None, claim_idle=self.random.choice((2, 6, *([] if heartbeat else [None]))), backoff=backoff,
                heartbeat=heartbeat, batch=self.random.choice((None, None, 2, 4)), order_by="k", max_deliveries=limit,
                collect=self.random.choice((None, None, 8)), dead_letters="dead" if limit else None,
            )  # fmt: skip
            if options.claim_idle is not None:
                object.__setattr__(options, "claim_idle", options.claim_idle * self.unit)
            if options.collect is not None:
                object.__setattr__(options, "collect", options.collect * self.unit)
            self.freed(name)
            self.actors.append(Actor(self, name, options))

    def kill(self, actor: Actor) -> None:
        self.actors.remove(actor)
        actor.steps.close()

    def handle(self, actor: Actor) -> None:
        for message in actor.handler:
            if not message.settled:
                self.act(message, actor)

    def act(self, message: Message, actor: Actor) -> None:
        owns, now, seconds = self.owns(message), self.now(), self.random.choice((1, 3, 7)) * self.unit
        n = message["n"]
        try:
            match self.random.randrange(6):
                case 0 | 1 | 2:
                    message.ack()
                    self.finished(n)
                case 3:
                    message.retry(seconds)
                    self.hold(message, now + seconds)
                case 4:
                    message.extend(seconds)
                    self.hold(message, now + seconds)
                    self.leased(message, actor.name, now + seconds)
                case _:
                    return
        except LeaseLost:
            assert not owns
        else:
            assert owns

    def meddle(self) -> None:
        """Do what programs do that do not know of the order."""
        kind = self.random.randrange(6)
        pending = self.group.pending()
        if kind == 0 and pending:
            one = self.random.choice(pending)
            assert self.stream.group(self.group.name).ack(one.id) == 1
            found = self.stream.get(one.id)
            if found is not None:
                self.foreign.add(found["n"])
                self.finished(found["n"])
        elif kind == 1 and pending:
            found = self.stream.get(self.random.choice(pending).id)
            if found is not None:
                self.stream.delete(found.id)
                self.deleted.add(found["n"])
                self.finished(found["n"])
        elif kind == 2:
            self.freed(*self.silent(5))
            self.group.collect(self.random.choice((5, 15)) * self.unit)
        elif kind == 3:
            name = self.random.choice(NAMES)
            to = self.random.choice([other for other in NAMES if other != name])
            self.group.delete_consumer(name, pending=to)
            self.freed(name)
        elif kind == 4:
            ids = [entry.id for entry in self.stream]
            assert len(ids) == self.added - len(self.deleted) - self.stream.delayed_count()
            check_counts(self.stream, ids, self.random)
        else:
            self.advance(self.random.choice((0.25, 1, 1, 3, 20)) * self.unit)

    def silent(self, seconds: float) -> list[str]:
        """Return the consumers whose messages a collection may have moved."""
        least = seconds * self.unit * 1000 if self.unit >= 1 else 0  # on a real clock they become silent meanwhile
        return [one.name for one in self.group.consumers() if one.idle_ms >= least]

    def run(self, steps: int) -> None:
        for _ in range(steps):
            kind = self.random.randrange(24)
            if kind < 3:
                self.add()
            elif kind == 3:
                self.start()
            elif kind == 4 and self.actors and self.random.randrange(3) == 0:
                self.kill(self.random.choice(self.actors))
            elif kind == 5:
                self.advance(self.random.choice((0.25, 1, 1, 3, 20)) * self.unit)
            elif kind == 6 and self.random.randrange(3) == 0:
                self.meddle()
            elif self.actors:
                actor = self.random.choice(self.actors)
                if actor.handler and actor.options.heartbeat and self.random.randrange(3):
                    self.advance(self.random.choice((0.25, 1)) * self.unit)  # a long handler
                    actor.renew()
                    continue
                if actor.handler:
                    self.handle(actor)
                elif actor.options.collect is not None:  # it may collect now
                    self.freed(*self.silent(8))
                actor.step()

    def finish(self) -> None:
        """Let one consumer handle everything that is left, then check the ledger."""
        for actor in list(self.actors):
            self.kill(actor)
        everything = set(map(str, range(self.added)))
        for _ in range(200):
            if everything <= self.done | self.dead_letters() and self.group.pending_count() == 0:
                break
            self.advance(5 * self.unit)
            self.group.collect(0, to="last")
            last = self.group.consumer("last")
            loop: Any = last.messages(claim_idle=self.unit, block=None, stop_when_empty=True, order_by="k")
            order: dict[str, list[rillet.StreamID]] = {}
            while True:
                try:
                    message = next(loop)
                except StopIteration:
                    break
                except InvalidEntry as error:
                    message = error.entry
                else:
                    order.setdefault(message["k"], []).append(message.id)
                assert message["n"] not in self.done or message["n"] in self.deleted
                assert self.group.ack(message.id) == 1
                self.finished(message["n"])
            assert all(ids == sorted(ids) for ids in order.values())
            for one in self.group.pending(consumer="last"):  # without a key, and delivered before
                self.finished(self.stream[one.id]["n"])
                self.group.ack(one.id)
        assert everything <= self.done | self.dead_letters()
        assert self.group.pending_count() == 0
        assert self.stream.delayed_count() == 0
        list(self.group.consumer("last").messages(block=None, stop_when_empty=True, order_by="k"))
        assert not any(self.store.execute("EXISTS", key) for key in order_keys(self.stream.key, self.group.key))


@contextmanager
def _always_looking() -> Iterator[None]:
    """Let loops look for what is due in each round, and check what they hand out: they take no real time here."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("LOOK", "LOOK_IN_PROCESS", "LOOK_UNUSED"):
            patch.setattr(delays, name, 0.0)
        patch.setattr(delivery, "LOOK_UNUSED", 0.0)
        patch.setattr(prefetch, "CHECK_AFTER", 0.0)  # as after a pause
        patch.setattr(prefetch.Search, "took", lambda search, seconds: None)  # the next one is due at once
        yield


def _round(seed: object, steps: int = 200) -> int:
    clock = StoreClock(1_700_000_000)
    with clock.open() as store, _always_looking():
        model = Model(store, Random(str(seed)), clock.time, clock.advance, 1)
        model.run(steps)
        model.finish()
        return model.handed


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
        model.run(80)
        model.finish()
        store.delete(*store.keys())


@pytest.mark.parametrize("seed", range(8))
def test_the_order_is_kept(seed: int) -> None:
    assert _round(seed) > 5


@FEW
def test_the_order_is_kept_on_a_real_clock(frontend: Frontend) -> None:
    for seed in range(by_speed(2, 1, 3)):
        _real_round(frontend.store, seed)


@pytest.mark.slow
def test_the_order_is_kept_on_a_cluster(cluster_url: str) -> None:
    with rillet.connect(cluster_url) as store:
        for seed in range(by_speed(1, 1, 3)):
            _real_round(store, seed)
