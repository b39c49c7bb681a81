"""Active defragmentation: when it starts, how much it does in a step, and what INFO shows."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rillet.keyspace.clock import Clock
from rillet.keyspace.defrag import IDLE, STEP
from rillet.keyspace.memory_usage import value_bytes
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.structs.rax_iterator import RaxIterator
from rillet.types.stream.compaction import list_slack
from tests.differential.wire import Local
from tests.variants import by_speed

MANY = by_speed(20_000, 10_000)
SOME = by_speed(20_000, 3000)
PAGE = 1 << 16  # of a dict: the last one may be nearly empty
ALWAYS = {"activedefrag": "yes", "active_defrag_ignore_bytes": "1"}


class StepClock(Clock):
    """A clock that moves by 50 microseconds whenever it is read."""

    def __init__(self) -> None:
        self.us = 1_700_000_000_000_000

    def now_ms(self) -> int:
        return self.us // 1000

    def now_us(self) -> int:
        return self.us

    def ticks(self) -> int:
        self.us += 50
        return self.us * 1000


def local(**settings: Any) -> Local:
    return Local(Engine(Settings(**settings), StepClock()))


def info(end: Local) -> dict[str, int]:
    """Return the fields of INFO about the defragmentation."""
    lines = end("INFO", "everything").decode().split("\r\n")
    return {name: int(value) for name, _, value in (line.partition(":") for line in lines) if "defrag" in name}


def fill(end: Local, key: str = "s", count: int = 3000) -> None:
    """Add entries and delete nine in ten."""
    for number in range(1, count + 1):
        end("XADD", key, f"{number}-0", "name", "value", "number", number)
    for number in range(1, count + 1):
        if number % 10:
            end("XDEL", key, f"{number}-0")


def object_bytes(end: Local, key: bytes) -> int:
    """Return the bytes of a value as it is; MEMORY USAGE counts a small one as at rest, without spare capacity."""
    keys = end.engine.databases[0].keys
    return int(value_bytes(keys.object_at(keys.find(key))))


def steps(end: Local, most: int = 100_000) -> list[float]:
    """Run steps until the cycle is idle; return their pauses."""
    pauses: list[float] = []
    while len(pauses) < most:
        pauses.append(end.engine.defrag_step())
        if pauses[-1] == IDLE and not end.engine.defrag.running:
            return pauses
    raise AssertionError("the defragmentation does not end")


def test_it_is_off_by_default() -> None:
    end = local()
    fill(end)
    before = end("DUMP", "s")
    assert end("CONFIG", "GET", "activedefrag") == [b"activedefrag", b"no"]
    assert end.engine.defrag_step() == IDLE
    assert end("DUMP", "s") == before
    assert not any(info(end).values())


def test_it_starts_at_the_thresholds_and_ends() -> None:
    end = local()
    fill(end)
    entries, before = end("XRANGE", "s", "-", "+"), end("MEMORY", "USAGE", "s")
    end("CONFIG", "SET", "activedefrag", "yes")
    steps(end)
    assert not any(info(end).values())  # the default of active-defrag-ignore-bytes is 100 MB
    end("CONFIG", "SET", "active-defrag-ignore-bytes", "1kb")
    pauses = steps(end)
    found = info(end)
    assert end("MEMORY", "USAGE", "s") < before / 5
    assert end("XRANGE", "s", "-", "+") == entries
    assert found["active_defrag_running"] == found["current_active_defrag_time"] == 0
    assert found["active_defrag_key_hits"] == 1
    assert found["active_defrag_hits"] > 10
    assert found["total_active_defrag_time"] > 0
    assert len(pauses) > 5
    assert steps(end) == [IDLE]  # nothing has changed since
    end("CONFIG", "RESETSTAT")
    assert not any(info(end).values())


def test_the_effort_follows_the_fragmentation() -> None:
    defrag = local(active_defrag_threshold_lower=10, active_defrag_threshold_upper=110, active_defrag_cycle_min=5,
                   active_defrag_cycle_max=45, active_defrag_ignore_bytes="10").engine.defrag  # fmt: skip
    cases = {(9, 109): 0, (5, 15): 0, (10, 110): 5, (60, 160): 25, (110, 210): 45, (999, 1000): 45}
    assert {case: defrag.share_for(*case) for case in cases} == cases


def test_a_step_has_a_budget_and_a_pause() -> None:
    end = local(**ALWAYS, active_defrag_cycle_min=20, active_defrag_cycle_max=20)
    fill(end)
    clock = end.engine.clock
    while True:
        before = clock.ticks()
        pause = end.engine.defrag_step()
        assert clock.ticks() - before <= STEP + 300_000
        if end.engine.defrag.running:
            assert info(end)["active_defrag_running"] == 20
            assert pause == pytest.approx(STEP / 1e9 * 80 / 20)
            break
    end("CONFIG", "SET", "activedefrag", "no")
    assert end.engine.defrag_step() == IDLE
    assert info(end)["active_defrag_running"] == 0


def test_values_that_change_between_steps() -> None:
    """Commands delete, replace and change the values while they are compacted, in several databases."""
    end, rnd = local(**ALWAYS, list_max_listpack_size=8, stream_node_max_entries=10), random.Random(5)
    for round_ in range(40):
        end("SELECT", rnd.choice([0, 0, 3]))
        key = rnd.choice(["s", "t", "u"])
        if rnd.random() < 0.2:
            end("DEL", key)
        if end("TYPE", key) in (b"none", b"stream"):
            fill(end, key, 60) if end("TYPE", key) == b"none" else end("XTRIM", key, "MAXLEN", rnd.randint(0, 5))
        for number in range(30):
            end("RPUSH", "list", f"element {round_} {number}")
            end("HSET", f"hash {round_ % 7}", f"field {number}", "x" * rnd.randint(0, 60))
            end("ZADD", "zset", number, f"member {number}")
        for number in range(0, 30, 2):
            end("LREM", "list", 1, f"element {round_} {number}")
            end("HDEL", f"hash {round_ % 7}", f"field {number}")
        kept = end("LRANGE", "list", 0, -1)
        for _ in range(rnd.randint(1, 30)):
            end.engine.defrag.run(rnd.choice([1, 60_000, 400_000]))
        end.engine.check()
        assert end("LRANGE", "list", 0, -1) == kept
        if rnd.random() < 0.1:
            end("SWAPDB", 0, 3)
        if rnd.random() < 0.05:
            end("FLUSHDB")
    steps(end)
    assert info(end)["active_defrag_hits"] > 0


def test_lists_and_listpacks_become_smaller() -> None:
    end = local(**ALWAYS)
    for number in range(SOME):
        end("RPUSH", "list", f"element {number}")
    for number in range(SOME):
        if number % 10:
            end("LSET", "list", number, "gone")
    end("LREM", "list", 0, "gone")
    for number in range(100):
        end("HSET", "hash", f"field {number}", number)
    for number in range(1, 100):
        end("HDEL", "hash", f"field {number}")
    kept = end("LRANGE", "list", 0, -1), end("HGETALL", "hash")
    before = [object_bytes(end, key) for key in (b"list", b"hash")]
    steps(end)
    after = [object_bytes(end, key) for key in (b"list", b"hash")]
    assert (end("LRANGE", "list", 0, -1), end("HGETALL", "hash")) == kept
    assert after[0] < before[0] / 4
    assert after[1] < before[1] / 4
    end.engine.check()


def test_it_waits_while_a_child_process_shares_the_memory() -> None:
    end = local(**ALWAYS)
    fill(end)
    end.engine.defrag.is_blocked = lambda: True
    assert end.engine.defrag_step() == IDLE
    assert steps(end, 1) == [IDLE]
    end.engine.defrag.is_blocked = bool
    assert len(steps(end)) > 1


def test_hash_tables_fill_their_gaps_and_shrink() -> None:
    """Deletions below the table's own limits leave gaps: a third of the items, half of the records, spare buckets."""
    end = local(**ALWAYS)
    words = [f"member {number} {'x' * 40}" for number in range(20_000)]
    for at in range(0, len(words), 100):
        end("SADD", "set", *words[at : at + 100])
        end("HSET", "hash", *(word for name in words[at : at + 100] for word in (name, "value")))
    gone = words[: 8 * len(words) // 10]
    for at in range(0, len(gone), 100):
        end("SREM", "set", *gone[at : at + 100])
        end("HDEL", "hash", *gone[at : at + 100])
    kept = sorted(end("SMEMBERS", "set")), sorted(end("HGETALL", "hash"))
    before = [end("MEMORY", "USAGE", key) for key in ("set", "hash")]
    steps(end)
    after = [end("MEMORY", "USAGE", key) for key in ("set", "hash")]
    assert (sorted(end("SMEMBERS", "set")), sorted(end("HGETALL", "hash"))) == kept
    fresh = local(**ALWAYS)
    fresh("SADD", "set", *words[len(gone) :])
    fresh("HSET", "hash", *(word for name in words[len(gone) :] for word in (name, "value")))
    never = [fresh("MEMORY", "USAGE", key) for key in ("set", "hash")]
    for then, now, best in zip(before, after, never, strict=True):
        assert now < 0.7 * then
        # A spare block of records and the list of the pages that became free may remain.
        assert now <= best + PAGE + 1024
    assert info(end)["active_defrag_key_hits"] >= 2
    end.engine.check()


def test_the_tables_of_the_keyspace_fill_their_gaps() -> None:
    end = local(**ALWAYS)
    for number in range(MANY):
        end("SET", f"key:{number}", "v", "PX", 100_000_000)
    for number in range(MANY):
        if number % 10 > 2:
            end("DEL", f"key:{number}")
    database = end.engine.databases[0]
    before = database.keys.memory_bytes() + database.expires.memory_bytes()
    steps(end)
    after = database.keys.memory_bytes() + database.expires.memory_bytes()
    fresh = local()
    for number in range(MANY):
        if number % 10 <= 2:
            fresh("SET", f"key:{number}", "v", "PX", 100_000_000)
    never = fresh.engine.databases[0].keys.memory_bytes() + fresh.engine.databases[0].expires.memory_bytes()
    assert after < 0.7 * before
    assert after <= never + 4 * PAGE
    assert end("DBSIZE") == 3 * MANY // 10
    end.engine.check()


def test_an_intset_releases_unused_capacity() -> None:
    end = local(**ALWAYS)
    for number in range(200):
        end("SADD", f"set:{number}", *range(500))
        end("SPOP", f"set:{number}", 260)  # SREM would leave it at rest, where it has no spare capacity
    members = end("SMEMBERS", "set:7")
    before = object_bytes(end, b"set:7")
    steps(end)
    assert object_bytes(end, b"set:7") <= before - 400
    assert end("SMEMBERS", "set:7") == members
    end.engine.check()


def test_rax_nodes_release_unused_capacity() -> None:
    """The node callback replaces nodes whose list of children has slack; the tree stays valid."""
    end = local(**ALWAYS, stream_node_max_entries=1)
    for number in range(1, SOME):
        end("XADD", "s", f"{number}-0", "f", "v")
    for number in range(1, SOME):
        if number % 3 == 0:
            end("XDEL", "s", f"{number}-0")
    stream = end.engine.databases[0].peek(b"s")
    kept = end("XRANGE", "s", "-", "+")

    def slack() -> int:
        iterator = RaxIterator(stream.rax)
        found: list[int] = []
        iterator.node_cb = lambda node: found.append(list_slack(node.link))
        iterator.seek("^")
        while iterator.next():
            pass
        return sum(found)

    assert slack() > 0
    steps(end)
    assert slack() == 0
    assert end("XRANGE", "s", "-", "+") == kept
    end.engine.check()


def test_a_list_that_is_renamed_during_its_walk_is_released() -> None:
    """The walk marks its node in the list; a list with that mark would never rest."""
    end = local(**ALWAYS, list_max_listpack_size=2)
    for number in range(200):
        end("RPUSH", "list", f"element {number}")
    value: Any = end.session.db.awake_value(b"list")
    while value.elements.bookmark is None:
        end.engine.defrag.run(1)
    end("RENAME", "list", "other")
    for _ in range(5):
        end.engine.defrag.run(1)
    end("CONFIG", "SET", "activedefrag", "no")
    end.engine.defrag_step()
    assert end.session.db.awake_value(b"other") is value
    assert value.elements.bookmark is None
