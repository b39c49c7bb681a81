"""Groups with so many pending entries that pages split and merge and the table is packed, compared with a dict."""

from __future__ import annotations

import random

import pytest

from rillet.types.stream.group import Consumer
from rillet.types.stream.pending import PendingIterator
from rillet.types.stream.stream import Stream
from tests.variants import by_speed, seeds

NAMES = [b"", b"a", b"b"]


class Bench:
    """A stream of two groups, and for each a dict from ID to [consumer (None = released), time, count]."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.stream = Stream()
        self.model: dict[bytes, dict[int, tuple[bytes | None, int, int]]] = {b"g": {}, b"h": {}}
        for name in self.model:
            self.stream.create_group(name, 0, 0, 0)
        self.now = 1000
        self.last = 0

    def consumer(self, group: bytes) -> Consumer:
        name = self.random.choice(NAMES)
        found = self.stream.groups[group]
        return found.find_consumer(name) or found.create_consumer(name, 0)

    def grow(self, group: bytes) -> None:
        for _ in range(self.random.randrange(600)):
            self.last += 1
            consumer = self.consumer(group)
            self.stream.groups[group].deliver(self.last, 7, consumer, self.now)
            self.model[group][self.last] = (consumer.name, self.now, 1)

    def acknowledge(self, group: bytes) -> None:
        """Acknowledge a run of entries, but not all of them."""
        start = self.random.randrange(self.last + 1)
        steps = range(start, start + self.random.randrange(1500))
        for ms in reversed(steps) if self.random.random() < 0.3 else steps:
            if ms % 100:
                known = self.model[group].pop(ms, None) is not None
                assert self.stream.groups[group].acknowledge(ms, 7) == known
        self.stream.tidy_pending()

    def scatter(self, group: bytes) -> None:
        """Claim, release and drop random entries, pending or not."""
        found, model = self.stream.groups[group], self.model[group]
        for _ in range(100):
            ms = self.random.randrange(self.last + 1)
            slot = found.find(ms, 7)
            assert (slot >= 0) == (ms in model)
            consumer, count = self.consumer(group), self.random.choice([0, 5, 2**64 - 1])
            if self.random.random() < 0.3:
                if slot < 0:
                    found.force_released(ms, 7, count)
                else:
                    found.release(slot, count)
                model[ms] = (None, 0, count)
                continue
            if slot < 0:
                slot = found.force(ms, 7, consumer, self.now)
            time = self.random.choice([0, 3, self.now])
            found.transfer(slot, consumer)
            found.set_delivery(slot, time, count)
            model[ms] = (consumer.name, time, count)

    def walk(self, group: bytes) -> None:
        """Iterate from a random ID, dropping current and earlier entries."""
        found, model = self.stream.groups[group], self.model[group]
        start = self.random.randrange(self.last + 1)
        expected = sorted(ms for ms in model if ms >= start)[:200]
        pending = PendingIterator(found.table, found.index, start, 7)
        for ms in expected:
            assert pending.next()
            assert (pending.ms, pending.seq) == (ms, 7)
            if self.random.random() < 0.4:
                found.drop(pending.slot)
                del model[ms]
            elif self.random.random() < 0.2:
                before = self.random.randrange(ms)
                assert found.acknowledge(before, 7) == (model.pop(before, None) is not None)

    def leave(self, group: bytes) -> None:
        name = self.random.choice(NAMES)
        owned = [ms for ms, row in self.model[group].items() if row[0] == name]
        assert max(0, self.stream.groups[group].delete_consumer(name)) == len(owned)
        for ms in owned:
            del self.model[group][ms]
        self.stream.pack_pending()

    def check(self) -> None:
        self.stream.pending.check()
        for name, group in self.stream.groups.items():
            group.check()
            table = group.table
            rows = {}
            for slot in group.index.slots():
                owner = None if table.owner(slot) is group.nobody else table.owner(slot).name
                rows[table.ms(slot)] = (owner, table.delivery_time(slot), table.delivery_count(slot))
            assert rows == self.model[name]
            assert list(rows) == sorted(rows)
            times = [table.delivery_time(slot) for slot in group.order.slots(table)]
            assert times == sorted(times)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, 4))
def test_pages_and_table_equal_a_dict_after_random_operations(seed: int) -> None:
    bench = Bench(seed)
    for number in range(by_speed(60, 30)):
        bench.now += bench.random.randrange(2)
        step = bench.random.choices(
            [bench.grow, bench.acknowledge, bench.scatter, bench.walk, bench.leave], [6, 4, 4, 2, 1]
        )[0]
        step(bench.random.choice([b"g", b"h"]))
        if number % 4 == 3:
            bench.check()
