"""Partitioned streams, with consumers and changes of the number of partitions that stop between any two commands.

A consumer is the generator of its commands (rillet.store.partitions.delivery), which the test drives, and so is a
change. A kill or a pause comes at any place that a server can notice. Each consumer has a clock of its own, which may
jump. A ledger has what was added, handed out and acknowledged, and checks:

    nothing is lost     in the end every entry was acknowledged, or is a dead letter
    order               an entry is handed out only after all earlier ones with its key were acknowledged
    one at a time       two consumers have messages with the same key only if one of them outlived its lease: its `ack`,
                        `retry` and `extend` raise LeaseLost
    holds               no message that was retried or extended comes before its time, by the clock of the store
    filters             in some rounds, loops with `where` receive matching entries only, and acknowledge the others
    delays              a delayed entry comes once, and not before its time, also if its partition was sealed meanwhile

`now` returns the time of the node of a cluster that has the key: what is due is due by the clock of its partition.

After a `reset_to`, also one that is killed, what was there before comes once more, beside what is pending; entries that
were added later come after all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

import rillet
from rillet import LeaseLost, Message, PartitionedStream, Store
from rillet.keyspace.helper_keys import consumers_key
from rillet.store.command_steps import drive, run_step
from rillet.store.consuming import prefetch
from rillet.store.consuming.delivery_options import DeliveryOptions, End
from rillet.store.partitions import delivery, share
from rillet.store.partitions.layout import keys_of, partition_of
from rillet.store.partitions.upkeep import repartitioned, reset_to
from rillet.testing.clock import StoreClock
from tests.store.conftest import FEW, Frontend
from tests.variants import by_speed

NAMES = "abc"
KEYS = "uvwxyz"


class Actor:
    """A consumer that does one command at a time."""

    def __init__(self, model: Model, name: str, options: DeliveryOptions) -> None:
        self.model, self.options, self.name = model, options, name
        self.jump = 0.0  # how far its clock is ahead
        consumer = model.writer().group(model.group).consumer(name)
        self.prefetched: Any
        self.prefetched, self.leases = consumer._loop(options)
        self.steps = consumer._steps(options, End(options), self.prefetched, self.leases)
        self.handler: list[Message] = []
        self.failed: list[Message] = []  # those whose retry the next commands ask for
        with model.clock_of(self):
            self.next: Any = next(self.steps)  # the next command

    def step(self) -> None:
        """End the handler, or run the next command; then a handler may begin."""
        with self.model.clock_of(self):
            if self.handler:
                if self.options.backoff is not None:
                    self.failed = [message for message in self.handler if not message.settled]
                self.handler = []
                self.next = next(self.steps)
            else:
                before = self.model.time_of(self.failed[0]) if self.failed else 0.0
                reply = run_step(self.model.store, self.next)
                if self.failed:
                    message = self.failed.pop(0)
                    if not reply:  # not lost
                        last = self.options.max_deliveries == message.deliveries  # a dead letter at once
                        until = before + (0.0 if last else self.model.backoff)
                        self.model.held[message["n"]] = until - 0.001 * (self.model.unit < 1)  # floats are rounded
                self.next = self.steps.send(reply)
        if isinstance(self.next, tuple):
            assert not self.failed
            self.model.handed_out(self, list(self.next))


class Model:
    """A store, its consumers, and the ledger."""

    def __init__(self, store: Store, random: Random, now: Callable[..., float], advance: Callable[[float], None],
                 unit: float) -> None:  # fmt: skip
        self.store, self.random, self.now, self.advance, self.unit = store, random, now, advance, unit
        self.name, self.group = random.choice(("jobs", "{a}jobs}", "50%")), "the:group"
        self.record = consumers_key(self.name.encode(), self.group.encode())
        self.writers = [self.writer(random.randrange(1, 6), "k")]
        self.writers[0].layout()
        self.writers.append(self.writer())
        self.actors: list[Actor] = []
        self.started: list[str] = []
        self.changes: list[tuple[Any, Any]] = []  # changes of the number of partitions, and the next command of each
        self.keys: dict[str, str] = {}
        self.held: dict[str, float] = {}  # the time before which nobody may receive it
        self.at: dict[str, bytes] = {}  # the partition from which it was received
        self.dues: dict[str, float] = {}  # of the delayed entries
        self.done: set[str] = set()
        self.buried: set[str] = set()  # of these, the dead letters
        self.replayed: set[str] = set()  # those that a reset delivers again
        self.resetting = False  # whether a reset was killed, which a consumer will continue
        self.lost: dict[int, Message] = {}  # by id(): messages that a handler must not acknowledge any more
        self.filters = random.randrange(3) == 0  # whether some loops have a filter
        self.backoff = 4.0 * unit
        self.jump = 0.0

    def writer(self, partitions: int | None = None, by: str | None = None) -> PartitionedStream[Any]:
        return self.store.partitioned(self.name, partitions, by)

    def time_of(self, message: Message) -> float:
        return self.now(message.stream.key)

    @contextmanager
    def clock_of(self, actor: Actor) -> Iterator[None]:
        self.jump = actor.jump
        yield
        self.jump = 0.0

    # -- the ledger ------------------------------------------------------------------------------------

    def handed_out(self, actor: Actor, messages: list[Message]) -> None:
        self.bury()
        together: set[str] = set()
        for message in messages:
            n, now = message["n"], self.time_of(message)
            self.at[n] = message.stream.key
            assert self.may_come(n), f"{n} comes again"
            assert message["odd"] == "1" or actor.options.where is None
            assert now >= self.dues.get(n, 0.0), f"{n} came {self.dues[n] - now} s before it was due"
            # A batch may be checked by several commands: a pause between two of them is one before the hand-out.
            if actor.options.batch is None and n not in self.replayed:
                assert now >= self.held.get(n, 0.0), f"{n} came {self.held[n] - now} s before its time"
            for earlier, key in self.keys.items():
                apart = self.dues.keys() & {earlier, n} or n in self.replayed or not self.wanted(earlier)
                if key == self.keys[n] and int(earlier) < int(n) and not apart:
                    assert earlier in self.done or earlier in together, f"{n} came before {earlier}"
            together.add(n)
            for other in self.actors:
                for one in other.handler if other is not actor else ():
                    # One that was extended, in a batch of which others are lost.
                    held = self.time_of(one) < self.held.get(one["n"], 0.0)
                    if self.keys[one["n"]] == self.keys[n] and not one.settled and not held:
                        self.lost[id(one)] = one
        actor.handler = messages

    def bury(self) -> None:
        """Note the dead letters: they need no acknowledgement."""
        for entry in self.store.stream("dead"):
            self.done.add(entry["n"])
            self.buried.add(entry["n"])

    def wanted(self, n: str) -> bool:
        """Return whether a handler must acknowledge an entry: no filter does."""
        return not self.filters or int(n) % 2 == 1

    def may_come(self, n: str) -> bool:
        """Return whether an entry may be handed out.

        In a cluster the dead letters are in another slot, so a kill may come between one and its acknowledgement.
        """
        return n not in self.done or n in self.replayed or (n in self.buried and self.store.transport.clustered)

    def places_of(self, value: bytes) -> list[bytes]:
        """Return the partition that receives a value now, and the next one if its number changes."""
        layout = self.writers[0].layout()
        after = keys_of(layout.name, layout.epoch + 1, layout.next) if layout.next else ()
        return [layout.key_for(value), *([after[partition_of(value, len(after))]] if after else [])]

    # -- what happens ----------------------------------------------------------------------------------

    def add(self) -> None:
        if self.random.randrange(6) == 0:
            self.writers.append(self.writer(None, "k"))
        writer = self.random.choice(self.writers[-4:])
        some = []
        for _ in range(self.random.choice((1, 1, 1, 8))):
            n, key = str(len(self.keys)), self.random.choice(KEYS)
            self.keys[n] = key
            some.append({"n": n, "k": key, "odd": str(int(n) % 2)})
        if self.random.randrange(4) == 0:
            seconds = self.random.choice((0, 1, 4, 12)) * self.unit
            for one in some:
                now = min(map(self.now, self.places_of(one["k"].encode())))
                self.dues[one["n"]] = now + seconds - 0.001 * (self.unit < 1)
            assert len(writer.add_many(some, delay=seconds)) == len(some)
        elif len(some) > 1:
            assert len(writer.add_many(some)) == len(some)
        else:
            writer.add(some[0])

    def start(self) -> None:
        if len(self.actors) < 4:
            failures = self.random.choice((None, None, 5))
            options = DeliveryOptions(
                block=None, claim_idle=self.random.choice((3, 8)) * self.unit,
                backoff=None if self.random.randrange(2) else (lambda _: self.backoff),
                batch=self.random.choice((None, None, 2)), collect=self.random.choice((None, 8 * self.unit)),
                max_deliveries=failures, dead_letters="dead" if failures else None,
                where={"odd": 1} if self.filters and self.random.randrange(2) else None,
            )  # fmt: skip
            self.started.append(self.random.choice(NAMES))
            self.actors.append(Actor(self, self.started[-1], options))

    def stop(self, actor: Actor) -> None:
        """Kill a consumer, or end its loop."""
        self.actors.remove(actor)
        actor.steps.close()
        if not actor.handler and self.random.randrange(2):
            with self.clock_of(actor):
                drive(self.store, actor.prefetched.give_back())

    def step(self, actor: Actor) -> None:
        if self.random.randrange(8) == 0:
            with self.clock_of(actor):
                drive(self.store, actor.leases.renew())
        for message in actor.handler:
            if not message.settled and self.act(actor, message):
                return
        try:
            actor.step()
        except LeaseLost:  # another loop has taken the name
            assert self.started.count(actor.name) > 1
            self.actors.remove(actor)

    def act(self, actor: Actor, message: Message) -> bool:
        """Do something with a message in a handler; return whether the handler goes on with it."""
        n, seconds = message["n"], self.random.choice((1, 3, 7)) * self.unit
        now, lost = self.time_of(message), id(message) in self.lost
        kind = self.random.randrange(7)
        try:
            match kind:
                case 0:
                    message.retry(seconds)
                    self.held[n] = now + seconds - 0.001 * (self.unit < 1)
                case 1 if actor.options.backoff is not None:
                    return False  # it fails
                case _:
                    if kind == 2:
                        message.extend(seconds)
                        self.held[n] = now + seconds - 0.001 * (self.unit < 1)
                    else:
                        assert message.ack()
                        self.done.add(n)
        except LeaseLost:
            message.settled = True
        else:
            assert not lost, f"{n} was acknowledged, retried or extended after its lease"
        return not message.settled

    def change(self) -> None:
        """Begin a change of the number of partitions, or do its next command, or kill it."""
        if not self.changes:
            steps = repartitioned(self.writers[0].key, self.writers[0].layout().next or self.random.randrange(1, 6))
            self.changes.append((steps, next(steps)))
            return
        steps, command = self.changes.pop()
        if self.random.randrange(6):
            try:
                self.changes.append((steps, steps.send(run_step(self.store, command))))
            except (StopIteration, rillet.PartitionMismatch):
                pass

    def reset(self) -> None:
        """Let the group begin again; the call may be killed at any place."""
        if not self.store.execute("EXISTS", self.record):
            return
        self.bury()
        self.replayed = {entry["n"] for entry in self.writers[0]}
        self.done -= self.replayed
        steps = reset_to(self.writers[0].key, self.group.encode(), b"0-0")
        reply: Any = None
        for _ in range(self.random.choice((1, 2, 3, 99))):
            try:
                command = steps.send(reply)
            except StopIteration:
                break
            reply = run_step(self.store, command)
        else:
            self.resetting = True
            return
        for actor in self.actors:
            for one in actor.handler:
                if not one.settled and self.time_of(one) >= self.held.get(one["n"], 0.0):
                    self.lost[id(one)] = one

    def watch_reset(self) -> None:
        """Note that a reset delivers everything again that was added before it ended."""
        if self.resetting:
            self.replayed = set(self.keys)
            self.resetting = bool(self.store.execute("HEXISTS", self.record, "reset"))

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.watch_reset()
            kind = self.random.randrange(24)
            if kind < 3:
                self.add()
            elif kind == 3:
                self.start()
            elif kind == 4 and self.actors and self.random.randrange(3) == 0:
                self.stop(self.random.choice(self.actors))
            elif kind == 5:
                self.advance(self.random.choice((0.25, 1, 1, 3, 20)) * self.unit)
            elif kind == 6 and self.random.randrange(2):
                self.change()
            elif kind == 7 and self.actors and self.random.randrange(4) == 0:
                self.random.choice(self.actors).jump += self.random.choice((-30, -5, 5, 30)) * self.unit
            elif kind == 8 and self.random.randrange(8) == 0:
                self.writers[0].delete_drained()
            elif kind == 9 and self.random.randrange(12) == 0:
                self.reset()
            elif self.actors:
                self.step(self.random.choice(self.actors))

    def finish(self) -> None:
        """Let one consumer handle everything that is left, then check the ledger."""
        while self.actors:
            self.stop(self.actors[0])
        while self.changes:
            self.change()
        last = str(len(self.keys) | 1)
        self.writers[0].add({"n": last, "k": "last", "odd": "1"})  # finishes a change that was killed
        self.keys[last] = "last"
        wanted = set(filter(self.wanted, self.keys))
        group = self.writers[0].group(self.group)
        for _ in range(200):
            self.bury()
            if wanted <= self.done:
                info = group.info()
                if info.lag == info.pending == self.writers[0].delayed_count() == 0:
                    break
            self.advance(5 * self.unit)
            self.watch_reset()
            for message in group.consumer("last").messages(claim_idle=self.unit, block=None, stop_when_empty=True):
                assert self.may_come(message["n"])
                assert message.ack()
                self.done.add(message["n"])
        assert wanted <= self.done <= self.keys.keys()
        assert self.writers[0].delayed_count() == 0
        info = group.info()
        assert (info.pending, info.lag) == (0, 0)
        self.check_entries()

    def check_entries(self) -> None:
        """The stream has what was added, once, and in order, unless its first epochs were deleted."""
        entries = [entry["n"] for entry in self.writers[0]]
        assert len(entries) == len(set(entries)) == self.writers[0].length()
        for key in KEYS:
            added = [n for n, other in self.keys.items() if other == key and n not in self.dues]
            found = [n for n in entries if self.keys[n] == key and n not in self.dues]
            assert added[len(added) - len(found) :] == found


@contextmanager
def _clock(model: Model) -> Iterator[None]:
    """Let the consumers use the clock of the model, and check what they hand out: they take no real time here."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (share, delivery):
            patch.setattr(module, "monotonic", lambda: model.now() + model.jump)
        for name in ("EVERY", "SOON", "HOLD"):
            patch.setattr(share, name, getattr(share, name) * model.unit)
        patch.setattr(delivery, "HOLD", share.HOLD)
        patch.setattr(prefetch, "CHECK_AFTER", 0.0)  # as after a pause
        yield


def _round(seed: object, steps: int = 250) -> None:
    clock = StoreClock(1_700_000_000)
    with clock.open() as store:
        model = Model(store, Random(str(seed)), lambda *_: clock.time(), clock.advance, 1)
        with _clock(model):
            model.run(steps)
            model.finish()


def _real_round(store: Store, seed: object) -> None:
    """A round on a store with a real clock, in which a second takes some milliseconds."""

    def now(*_: bytes) -> float:
        seconds, microseconds = map(int, store.execute("TIME"))
        return seconds + microseconds / 1e6

    def advance(seconds: float) -> None:
        until = now() + seconds
        while now() < until:
            pass

    model = Model(store, Random(str(seed)), now, advance, 0.003)
    with _clock(model):
        model.run(100)
        model.finish()
    model.writers[0].delete()
    store.delete("dead")
    assert list(store.keys()) == []


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_or_out_of_order(seed: int) -> None:
    _round(seed)


@FEW
def test_nothing_is_lost_or_out_of_order_on_a_real_clock(frontend: Frontend) -> None:
    for seed in range(2):
        _real_round(frontend.store, seed)


@pytest.mark.slow
def test_nothing_is_lost_or_out_of_order_in_a_cluster(cluster_url: str) -> None:
    with rillet.connect(cluster_url) as store:
        for seed in range(by_speed(1, 1, 2)):
            _real_round(store, seed)
