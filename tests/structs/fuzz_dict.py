"""A fuzzer of the dict, and of the hashes and sets that use it, against Python's dict and set.

    python -m tests.structs.fuzz_dict OPERATIONS [SEED]                 to test the compiled build, set PYTHONPATH
    python -m tests.structs.fuzz_dict OPERATIONS [SEED] --only hash     one of: dict, hash, set

A run creates cases until it has done the given number of operations. A case is one value with random parts, which
goes through phases: each phase chooses a size from 0 to 100,000, most often next to a multiple of a block of records
or buckets, and adds or deletes keys until the value has this size. Keys are deleted in a random order, the oldest or
the newest first. Between these steps, random operations run: changes of values, samples, scans, iterations with
changes inside, rehashing, resize modes, movement of entries and items, clearing, detaching and copying.

Invariants: every result equals that of the model; the number of an entry stays valid until the next deletion; a scan
or an iteration returns every key that exists during all of it; `check` finds nothing. Checks that read every entry run
at random, about once in as many operations as there are entries. A failure prints the seed of its case, and
`--case SEED` runs that case again; the case is repeated exactly if PYTHONHASHSEED is the same.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from typing import Any

import rillet
from rillet.structs import dict_table
from rillet.structs.dict import Dict
from rillet.types.encoding_limits import Defaults
from rillet.types.hash import Hash
from rillet.types.set import Set, SetLimits

BLOCKS = (4096, 8192, 16384, 32768)  # records or buckets of a block, and multiples
SIZES = (0, 0, 1, 3, 30, 300, 1100, 2500, 5000, *BLOCKS, *BLOCKS, 100_000)
VALUES = (b"", b"v", b"w" * 20, b"v" * 126, b"v" * 127, b"v" * 128, b"w" * 1000)
LARGE = (b"x" * 16370, b"y" * 20000, b"z" * 70000)
PHASES = 8


def key(i: int) -> bytes:
    """Return a key of a length that depends on i; a few are larger than a quarter of a page."""
    if i % 5000 == 77:
        return b"%d:" % i + b"k" * 17000
    return b"key:%d" % i if i % 5 else b"%d:" % i + b"x" * (i % 150)


class Case:
    """One value and its model; subclasses define `add`, `remove`, `length`, `other` and `compare`."""

    operations: tuple[str, ...] = ()

    def __init__(self, seed: str, largest: int) -> None:
        self.chance = random.Random(seed)
        self.largest = largest
        self.model: dict[bytes, Any] = {}
        self.order: list[int] = []  # numbers of keys in the order in which they were added, some of which are deleted
        self.next = 0
        self.done = 0
        self.credit = 0.0
        self.counts: Counter[str] = Counter()

    def add(self, name: bytes) -> None: ...

    def remove(self, name: bytes) -> None: ...

    def compare(self) -> None: ...

    def length(self) -> int:
        raise NotImplementedError

    def run(self) -> None:
        """Run all phases."""
        for _ in range(PHASES):
            self.phase()
        self.compare()

    def phase(self) -> None:
        """Add or delete keys until the value has a random size, with random operations between."""
        chance = self.chance
        goal = chance.choice(SIZES)
        goal = max(0, min(self.largest, goal + chance.choice((0, 0, -1, 1, chance.randrange(-20, 21)))))
        way = chance.choice(("random", "oldest", "newest"))
        others = chance.choice((0.02, 0.1, 0.5))
        # The random operations delete keys too, so the goal may stay out of reach.
        for _ in range(3 * abs(goal - len(self.model))):
            if len(self.model) == goal:
                break
            if len(self.model) < goal:
                self.add_one()
            else:
                self.remove_one(way)
            self.step(others)
        for _ in range(chance.choice((0, 100, 1000))):
            self.step(1.0)
        assert self.length() == len(self.model)

    def step(self, others: float) -> None:
        """Do another operation with a probability, and compare everything if it is time."""
        self.done += 1
        if self.chance.random() < others:
            name = self.chance.choice(self.operations)
            self.counts[name] += 1
            getattr(self, name)()
        self.credit += self.chance.random() * 2
        if self.credit > 300 + len(self.model):
            self.credit = 0.0
            self.compare()

    def add_one(self) -> None:
        self.next += 1
        i = self.next if self.chance.random() < 0.9 else self.chance.randrange(self.next)
        self.order.append(i)
        self.add(key(i))

    def remove_one(self, way: str) -> None:
        """Delete one key that exists, if one is found quickly."""
        while self.order:
            if way == "random":
                at = self.chance.randrange(len(self.order))
                self.order[at], self.order[-1] = self.order[-1], self.order[at]
            i = self.order.pop(0 if way == "oldest" else -1)
            if key(i) in self.model:
                self.remove(key(i))
                return
        self.order = []
        for name in list(self.model):
            self.remove(name)

    def some_key(self) -> bytes:
        """Return a key, which mostly exists."""
        if self.order and self.chance.random() < 0.8:
            return key(self.chance.choice(self.order))
        return key(self.chance.randrange(self.next + 10))

    def a_value(self) -> bytes:
        return self.chance.choice(VALUES if self.chance.random() < 0.995 else LARGE)

    def rarely(self) -> bool:
        """Return True at most as often as a comparison of everything takes place."""
        return self.chance.random() < 30 / (30 + len(self.model))


class DictCase(Case):
    """A Dict with random parts. The model maps a key to its value, its number and its LRU data."""

    operations = (
        "replace", "replace", "wake", "set_value", "set_value", "delete_some", "unlink_some", "find_some", "pop_random",
        "draw", "draw_fair", "draw_uniform", "draw_distinct", "sample", "scan", "scan", "iterate", "list_records",
        "rehash", "shrink", "resize", "change_mode", "defrag", "hold", "hold", "clear", "detach", "copy", "pause",
    )  # fmt: skip

    def __init__(self, seed: str, largest: int) -> None:
        super().__init__(seed, largest)
        chance = self.chance
        self.values, self.objects, self.numbers = (chance.random() < 0.6 for _ in range(3))
        self.table = Dict(self.values, self.objects, self.numbers, chance.random() < 0.5)
        self.held: dict[int, bytes] = {}
        self.cursor = 0
        self.stable: set[bytes] = set()
        self.freeing: list[Dict] = []
        dict_table.set_resize_mode(dict_table.RESIZE_ENABLE)

    def length(self) -> int:
        return len(self.table)

    def run(self) -> None:
        try:
            super().run()
        finally:
            dict_table.set_resize_mode(dict_table.RESIZE_ENABLE)

    def new_value(self) -> Any:
        kinds = ([self.a_value()] if self.values else []) + ([[self.done]] if self.objects else [])
        return self.chance.choice([*kinds, None])

    def add(self, name: bytes) -> None:
        new = name not in self.model
        if not self.values and not self.objects:
            assert bool(self.table.add(name)) is new
            value = None
        else:
            value = self.new_value()
            assert bool(self.table.set(name, value)) is new
        n = self.table.find(name)
        assert self.table.entry_value(n) == value
        self.store(name, n, value)

    def store(self, name: bytes, n: int, value: Any) -> None:
        number, lru = self.model[name][1:] if name in self.model else (0, 0)
        assert self.table.lru(n) == lru
        lru = self.chance.choice((lru, 0xFFFFFF, self.done & 0xFFFFFF))
        self.table.set_lru(n, lru)
        if self.numbers:
            assert self.table.number(n) == number
            number = self.chance.choice((number, -1, -(2**63), 2**63 - 1, self.done))
            self.table.set_number(n, number)
        self.model[name] = (value, number, lru)

    def forget(self, name: bytes) -> None:
        self.held.clear()
        self.stable.discard(name)
        self.model.pop(name, None)

    def remove(self, name: bytes) -> None:
        was = name in self.model
        self.forget(name)
        assert bool(self.table.delete(name)) is was

    def name_of(self, n: int) -> bytes:
        """Return the key of an entry, after a comparison of its parts."""
        name = self.table.entry_key(n)
        value, number, lru = self.model[name]
        assert self.table.entry_value(n) == value
        assert self.table.lru(n) == lru
        assert not self.numbers or self.table.number(n) == number
        return name

    def replace(self) -> None:
        name = self.some_key()
        self.order.append(int(name.removeprefix(b"key:").split(b":")[0]))
        self.add(name)

    def wake(self) -> None:
        n = self.table.find(self.some_key())
        if n >= 0 and self.objects:
            name = self.table.entry_key(n)
            value = [self.done]
            self.table.set_entry_value(n, value)
            assert self.table.entry_key(n) == name
            self.store(name, n, value)

    def set_value(self) -> None:
        """Set values of other lengths by number; the number stays valid."""
        for _ in range(self.chance.choice((1, 1, 20))):
            # The last records are the ones that move into gaps.
            n = self.table.find(key(self.order[-1])) if self.order and self.chance.random() < 0.5 else -1
            n = n if n >= 0 else self.table.uniform_entry()
            if n < 0 or not (self.values or self.objects):
                return
            name, value = self.name_of(n), self.new_value()
            self.table.set_entry_value(n, value)
            assert self.table.entry_key(n) == name
            assert self.table.entry_value(n) == value
            self.store(name, n, value)

    def delete_some(self) -> None:
        for _ in range(self.chance.choice((1, 1, 5))):
            name = self.some_key()
            n = self.table.find(name)
            if n >= 0:
                self.forget(name)
                self.table.delete_entry(n)
            assert name not in self.table

    def unlink_some(self) -> None:
        name = self.some_key()
        value = self.model[name][0] if name in self.model else None
        self.forget(name)
        assert self.table.unlink(name) == value

    def find_some(self) -> None:
        name = self.some_key()
        value = self.model[name][0] if name in self.model else None
        assert self.table.get(name) == value
        assert (name in self.table) is (name in self.model)

    def pop_random(self) -> None:
        n = self.table.fair_random_entry()
        if n >= 0:
            name = self.name_of(n)
            self.forget(name)
            self.table.delete_entry(n)

    def draw(self) -> None:
        if self.table.buckets < 64 * len(self.model) + 64:  # otherwise it takes too long, as in Redis
            n = self.table.random_entry()
            assert (n >= 0) is bool(self.model)
            assert n < 0 or self.name_of(n)

    def draw_fair(self) -> None:
        if self.table.buckets < 64 * len(self.model) + 64:
            n = self.table.fair_random_entry()
            assert (n >= 0) is bool(self.model)
            assert n < 0 or self.name_of(n)

    def draw_uniform(self) -> None:
        n = self.table.uniform_entry()
        assert (n >= 0) is bool(self.model)
        assert n < 0 or self.name_of(n)

    def draw_distinct(self) -> None:
        count = self.chance.choice((0, 1, 10, len(self.model) // 3, len(self.model) + 1) if self.rarely() else (0, 1))
        if 3 * count < len(self.model) or self.rarely():
            found = {self.name_of(n) for n in self.table.distinct_sample(count)}
            assert len(found) == min(count, len(self.model))

    def sample(self) -> None:
        count = self.chance.choice((0, 1, 15, 100))
        found = self.table.sample(count)
        assert len(found) <= min(count, len(self.model))
        for n in found:
            self.name_of(n)

    def scan(self) -> None:
        if self.cursor == 0:
            if not self.rarely():
                return
            self.stable = set(self.model)
        self.cursor, entries = self.table.scan(self.cursor, self.chance.choice((1, 10, 1000)))
        for n in entries:
            self.stable.discard(self.name_of(n))
        if self.cursor == 0:
            assert not self.stable, "a scan did not return a key"

    def iterate(self) -> None:
        """Iterate while keys are added and deleted, and sometimes while the table is replaced."""
        if self.chance.random() < 0.8 or not self.rarely():
            return
        every = dict.fromkeys(self.model, 0)
        whole = self.chance.random() < 0.1
        way = self.chance.randrange(3)
        met: Counter[bytes] = Counter()
        if way == 0:
            for n in self.table.entries():
                met[self.name_of(n)] += 1
                self.disturb(every, whole)
        else:
            names = self.table.keys() if way == 1 else (name for name, _ in self.table.items())
            for name in names:
                assert name in self.model
                met[name] += 1
                self.disturb(every, whole)
        for name in every:
            assert met[name] == 1, "an iteration returned a key not exactly once"
        assert self.table.pauses == 0

    def disturb(self, every: dict[bytes, int], whole: bool) -> None:
        what = self.chance.random()
        if what < 0.2:
            name = self.some_key()
            every.pop(name, None)
            self.remove(name)
        elif what < 0.3 and len(self.model) < self.largest:
            self.replace()
        elif what < 0.35:
            self.set_value()
        elif what < 0.36:
            assert not self.table.defrag_step(100)
            self.table.rehash_for(1, lambda: 0)
        elif whole and what > 1 - 2 / (10 + len(self.model)):
            every.clear()
            self.clear_now() if self.chance.random() < 0.5 else self.detach_now()
            for _ in range(self.chance.choice((0, 10))):
                self.replace()

    def list_records(self) -> None:
        if self.rarely():
            assert dict(self.table.items()) == {name: parts[0] for name, parts in self.model.items()}
            assert sorted(self.table) == sorted(self.table.keys()) == sorted(self.model)

    def rehash(self) -> None:
        self.table.rehash(self.chance.choice((1, 10, 1000)))

    def shrink(self) -> None:
        self.table.shrink_if_needed()

    def resize(self) -> None:
        if self.chance.random() < 0.05:
            self.table.resize(self.chance.choice((1, 100, 16384, 16385, 40000, 70000)))

    def change_mode(self) -> None:
        dict_table.set_resize_mode(self.chance.choice((0, 0, 0, 1, 2)))

    def defrag(self) -> None:
        self.held.clear()
        self.table.defrag_step(self.chance.choice((1, 10, 300)))

    def hold(self) -> None:
        """Compare the numbers that were remembered, and remember another."""
        for n, name in self.held.items():
            assert self.name_of(n) == name
        n = self.table.uniform_entry()
        if n >= 0:
            self.held[n] = self.table.entry_key(n)

    def pause(self) -> None:
        """Delete many keys while movement is paused."""
        if self.chance.random() < 60 / (60 + len(self.model)):
            self.table.pauses += 1
            way = self.chance.choice(("random", "oldest"))
            for _ in range(self.chance.randrange(len(self.model) + 1)):
                self.remove_one(way)
            self.table.pauses -= 1
            self.set_value()
            self.hold()

    def clear_now(self) -> None:
        self.held.clear()
        self.model.clear()
        self.stable.clear()
        self.order.clear()
        self.table.clear()

    def clear(self) -> None:
        if self.chance.random() < 0.01:
            self.clear_now()

    def detach_now(self) -> None:
        self.held.clear()
        old, before = self.table.detach(), self.model
        self.model = {}
        self.stable.clear()
        self.order.clear()
        assert len(old) == len(before)
        if self.rarely():
            old.check()
            assert {old.entry_key(n) for n in old.entries()} == set(before)
        objects: list[Any] = []
        while old.free_some(self.chance.choice((1, 100)), objects):
            assert len(old) == 0
        assert sorted(objects) == sorted(parts[0] for parts in before.values() if isinstance(parts[0], list))
        old.check()

    def detach(self) -> None:
        if self.chance.random() < 0.01:
            self.detach_now()

    def copy(self) -> None:
        """Copy the dict, and sometimes continue with the copy."""
        if self.rarely():
            twin = self.table.copy()
            if self.chance.random() < 0.5:
                self.table, twin = twin, self.table
            elif self.model:
                twin.delete(next(iter(self.model)))
                twin.clear()

    def compare(self) -> None:
        self.table.check()
        assert len(self.table) == len(self.model)
        for name, (value, number, lru) in self.model.items():
            n = self.table.find(name)
            assert n >= 0
            assert self.table.entry_value(n) == value
            assert self.table.lru(n) == lru
            assert not self.numbers or self.table.number(n) == number


class KeyCase(Case):
    """What hashes and sets have in common: a `value` that is empty or valid, and a scan in progress."""

    value: Any

    def __init__(self, seed: str, largest: int) -> None:
        super().__init__(seed, largest)
        self.limits = Defaults()
        self.cursor = 0
        self.stable: set[bytes] = set()

    def length(self) -> int:
        return len(self.value)

    def remove(self, name: bytes) -> None:
        was = self.model.pop(name, None) is not None
        self.stable.discard(name)
        assert self.value.remove(name) is was

    def replace(self) -> None:
        self.add(self.some_key())

    def remove_some(self) -> None:
        self.remove(self.some_key())

    def find_some(self) -> None:
        name = self.some_key()
        assert (name in self.value) is (name in self.model)

    def sample(self) -> None:
        count = self.chance.choice((1, 10, len(self.model) // 2, len(self.model)) if self.rarely() else (1, 2))
        count = min(count, len(self.model))
        found = self.value.sample(count)
        assert len(set(found)) == len(found) == count
        assert all(name in self.model for name in found)

    def scan(self) -> None:
        if self.cursor == 0:
            if not self.rarely():
                return
            self.stable = set(self.model)
        self.cursor, names = self.value.scan(self.cursor, self.chance.choice((1, 10, 1000)))
        assert all(name in self.model for name in names)
        self.stable.difference_update(names)
        if self.cursor == 0:
            assert not self.stable, "a scan did not return a key"

    def copy(self) -> None:
        if self.rarely() and self.model:
            twin = self.value.copy()
            assert twin.encoding() == self.value.encoding()
            if self.chance.random() < 0.5:
                self.value, twin = twin, self.value
            twin.remove(next(iter(self.model)))
            assert next(iter(self.model)) in self.value

    def convert(self) -> None:
        """Change the limits, and rarely convert at once."""
        limits = self.limits
        limits.hash_max_listpack_entries = limits.set_max_listpack_entries = self.chance.choice((0, 10, 128, 512))
        limits.hash_max_listpack_value = limits.set_max_listpack_value = self.chance.choice((0, 10, 64, 64))
        limits.set_max_intset_entries = self.chance.choice((0, 10, 512))

    def compare(self) -> None:
        assert len(self.value) == len(self.model)
        if self.model:
            self.value.check()


class HashCase(KeyCase):
    """A Hash, which HSET, HDEL, HRANDFIELD and HSCAN use."""

    operations = (
        "replace",
        "replace",
        "remove_some",
        "find_some",
        "picks",
        "sample",
        "scan",
        "copy",
        "convert",
        "read",
    )

    def __init__(self, seed: str, largest: int) -> None:
        super().__init__(seed, largest)
        self.value = Hash()

    def add(self, name: bytes) -> None:
        value = self.a_value()
        assert bool(self.value.set(name, value, self.limits)) is (name not in self.model)
        self.model[name] = value

    def picks(self) -> None:
        if self.model:
            assert all(name in self.model for name in self.value.picks(self.chance.choice((1, 5))))

    def read(self) -> None:
        name = self.some_key()
        assert self.value.get(name) == self.model.get(name)
        if self.rarely():
            assert list(self.value) == self.value.words()[::2]
            assert self.value.values() == self.value.words()[1::2]

    def compare(self) -> None:
        super().compare()
        assert dict(self.value.items()) == self.model


class SetCase(KeyCase):
    """A Set, which SADD, SREM, SPOP, SRANDMEMBER and SSCAN use."""

    operations = ("replace", "replace", "remove_some", "find_some", "pop", "sample", "scan", "copy", "convert")

    def __init__(self, seed: str, largest: int) -> None:
        super().__init__(seed, largest)
        self.value = Set()
        self.integers = self.chance.random() < 0.1

    def add(self, name: bytes) -> None:
        if self.integers and len(self.model) < 600:
            name = b"%d" % self.chance.randrange(2000)
        assert bool(self.value.add(name, SetLimits(self.limits))) is (name not in self.model)
        self.model[name] = True

    def pop(self) -> None:
        if self.model:
            name = self.value.random()
            assert name in self.model
            self.remove(name)

    def compare(self) -> None:
        super().compare()
        assert set(self.value) == set(self.model)


KINDS: dict[str, type[Case]] = {"dict": DictCase, "hash": HashCase, "set": SetCase}


def run(operations: int, seed: int, kinds: list[str], largest: int) -> Counter[str]:
    """Run cases until they have done the number of operations; a finding is raised with the seed of its case."""
    counts: Counter[str] = Counter()
    number = done = 0
    while done < operations:
        for kind in kinds:
            name = f"{kind}:{seed}:{number}"
            # Many small cases, and a few large ones.
            case = run_case(name, min(largest, random.Random(name).choice((40, 3000, 20000, largest))))
            done += case.done
            counts[f"{kind}: steps"] += case.done
            counts.update({f"{kind}: {what}": count for what, count in case.counts.items()})
        number += 1
    return counts


def run_case(name: str, largest: int) -> Case:
    """Run one case by its seed."""
    state = random.getstate()
    random.seed(name)  # the structures draw from the module's generator
    case = KINDS[name.split(":")[0]](name, largest)
    try:
        case.run()
    except BaseException as error:
        hashes = os.environ.get("PYTHONHASHSEED", "random")
        error.add_note(f"fuzz_dict: run_case({name!r}, {largest}), step {case.done}, PYTHONHASHSEED={hashes}")
        raise
    finally:
        random.setstate(state)
    return case


def main() -> None:
    """Run the fuzzer from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operations", type=int)
    parser.add_argument("seed", type=int, nargs="?", default=1)
    parser.add_argument("--only", choices=list(KINDS))
    parser.add_argument("--largest", type=int, default=100_000)
    parser.add_argument("--case", default="", help="the seed of one case, with --largest as in the failure's note")
    options = parser.parse_args()
    if "PYTHONHASHSEED" not in os.environ:  # a case that fails can be repeated only with the same hashes
        hashes = str(options.seed % 2**32)
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHONHASHSEED": hashes})
    print(f"rillet {'compiled' if rillet.compiled() else 'interpreted'}, seed {options.seed}", flush=True)
    if options.case:
        run_case(options.case, options.largest)
        return
    began = time.monotonic()
    counts = run(options.operations, options.seed, [options.only] if options.only else list(KINDS), options.largest)
    steps = sum(count for name, count in counts.items() if name.endswith(" steps"))
    print(f"{steps} steps in {time.monotonic() - began:.0f} s")
    for name, number in sorted(counts.items()):
        print(f"{number:9} {name}")


if __name__ == "__main__":
    main()
