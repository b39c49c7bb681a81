"""Lazy freeing: which deletions let a value wait, that steps free all of it, and what INFO shows."""

from __future__ import annotations

from typing import Any

import pytest

from rillet.keyspace.clock import ManualClock
from rillet.keyspace.lazyfree import THRESHOLD, free_effort
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.differential.wire import Local

SIZE = 3000
LARGE = {
    b"set": [b"SADD", *(b"member:%d" % number for number in range(SIZE))],
    b"hash": [b"HSET", *(b"%d" % (number // 2) for number in range(2 * SIZE))],
    b"zset": [b"ZADD", *(b"%d" % (number // 2) for number in range(2 * SIZE))],
    b"list": [b"RPUSH", *(b"element:%d" % number * 20 for number in range(SIZE))],
}


class SlowClock(ManualClock):
    """A clock that moves 100 us with each reading of `ticks`, as if the work took that time."""

    def ticks(self) -> int:
        self.us += 100
        return self.us * 1000


def local(**settings: Any) -> Local:
    """Return an engine with a clock that only `ticks` moves."""
    return Local(Engine(Settings(**settings), SlowClock(1000)))


def integer(end: Local, command: list[bytes]) -> int:
    """Run a command whose reply is an integer."""
    reply = bytes(end.run(command))
    assert reply[:1] == b":"
    return int(reply[1:])


def fill(end: Local, kind: bytes) -> None:
    """Create the key `k` with a large value."""
    if kind == b"stream":
        end.run([b"XGROUP", b"CREATE", b"k", b"g", b"0", b"MKSTREAM"])
        for _ in range(SIZE):
            end.run([b"XADD", b"k", b"*", b"field", b"value" * 20])
        end.run([b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", b"2000", b"STREAMS", b"k", b">"])
    else:
        end.run([LARGE[kind][0], b"k", *LARGE[kind][1:]])


def counts(end: Local) -> tuple[int, int]:
    """Return lazyfree_pending_objects and lazyfreed_objects of INFO."""
    text = bytes(end.run([b"INFO", b"memory"])).decode()
    found = dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)
    return int(found["lazyfree_pending_objects"]), int(found["lazyfreed_objects"])


def steps(end: Local) -> int:
    """Free everything; return the number of steps of 300 us, in each of which three units are freed."""
    number = 0
    while end.engine.lazyfree.pending:
        end.engine.lazyfree.check()
        end.engine.lazyfree.step(300_000)
        number += 1
    return number


KINDS = [*LARGE, b"stream"]


@pytest.mark.parametrize("kind", KINDS)
def test_unlink_frees_a_large_value_in_many_steps(kind: bytes) -> None:
    end = local(set_max_intset_entries=0)
    fill(end, kind)
    value = end.engine.databases[0].peek(b"k")
    assert free_effort(value) > THRESHOLD
    assert integer(end, [b"UNLINK", b"k"]) == 1
    assert integer(end, [b"EXISTS", b"k"]) == 0
    assert counts(end) == (1, 0)
    # A set or hash of this size has few blocks; the others have a part for each node or member.
    assert steps(end) >= {b"stream": 4, b"list": 2}.get(kind, 1)
    assert counts(end) == (0, 1)
    table = getattr(value, "table", None)
    assert table is None or len(table) == 0, "the containers lose their elements"
    fill(end, kind)
    end.engine.check()


@pytest.mark.parametrize("kind", KINDS)
def test_del_frees_lazily_only_if_the_setting_says_so(kind: bytes) -> None:
    for setting in (False, True):
        end = local(lazyfree_lazy_user_del=setting)
        fill(end, kind)
        assert integer(end, [b"DEL", b"k"]) == 1
        assert counts(end) == (int(setting), 0)


def test_a_small_value_never_waits() -> None:
    end = local(lazyfree_lazy_user_del=True, lazyfree_lazy_server_del=True)
    for command in ([b"SADD", b"k", b"a", b"b"], [b"SET", b"k", b"x" * 100_000], [b"ZADD", b"k", b"1", b"a"]):
        end.run([b"DEL", b"k"])
        end.run(command)
        end.run([b"UNLINK", b"k"])
    assert counts(end) == (0, 0)


@pytest.mark.parametrize("command", [
    [b"SET", b"k", b"v"], [b"RENAME", b"other", b"k"], [b"COPY", b"other", b"k", b"REPLACE"],
    [b"SUNIONSTORE", b"k", b"other"], [b"SINTERSTORE", b"k", b"none"],
])  # fmt: skip
def test_a_replaced_value_waits_with_server_del(command: list[bytes]) -> None:
    for setting in (False, True):
        end = local(lazyfree_lazy_server_del=setting)
        fill(end, b"set")
        end.run([b"SADD", b"other", b"1", b"2"])
        end.run(command)
        assert counts(end) == (int(setting), 0)
        steps(end)
        end.engine.check()


def test_a_renamed_value_is_not_freed() -> None:
    end = local(lazyfree_lazy_server_del=True, lazyfree_lazy_user_del=True)
    fill(end, b"set")
    end.run([b"RENAME", b"k", b"other"])
    end.run([b"MOVE", b"other", b"1"])
    assert steps(end) == 0
    end.run([b"SELECT", b"1"])
    assert integer(end, [b"SCARD", b"other"]) == SIZE


@pytest.mark.parametrize("command", [[b"FLUSHALL"], [b"FLUSHDB"]])
def test_a_flush_frees_lazily_with_async_or_the_setting(command: list[bytes]) -> None:
    ways = ((False, b"", False), (False, b"ASYNC", True), (True, b"", True), (True, b"SYNC", False))
    for setting, word, waits in ways:
        end = local(lazyfree_lazy_user_flush=setting, compat="7.0")
        for number in range(500):
            end.run([b"SET", b"k%d" % number, b"v", b"EX", b"100"])
        fill(end, b"zset")
        end.run([*command, word] if word else command)
        assert counts(end) == (501 if waits else 0, 0)
        assert integer(end, [b"DBSIZE"]) == 0
        fill(end, b"zset")
        end.engine.check()
        assert (steps(end) > 3) is waits
        assert integer(end, [b"ZCARD", b"k"]) == SIZE
        assert counts(end) == (0, 501 if waits else 0)


def test_large_values_that_expire_are_freed_in_steps() -> None:
    for by_cycle in (False, True):
        end = local()
        fill(end, b"set")
        end.run([b"PEXPIRE", b"k", b"1"])
        clock = end.engine.clock
        assert isinstance(clock, SlowClock)
        clock.advance(1000)
        if by_cycle:
            end.engine.expire_cycle()
        assert integer(end, [b"EXISTS", b"k"]) == 0
        assert counts(end)[0] == 1
        steps(end)


def test_resetstat_resets_the_count_of_freed_objects() -> None:
    end = local()
    fill(end, b"set")
    end.run([b"UNLINK", b"k"])
    end.run([b"CONFIG", b"RESETSTAT"])
    assert counts(end) == (1, 0)
    steps(end)
    assert counts(end) == (0, 1)
    end.run([b"CONFIG", b"RESETSTAT"])
    assert counts(end) == (0, 0)


def test_a_synchronous_flush_counts_its_keys_since_7_4_except_in_a_transaction() -> None:
    for compat, transaction, freed in (("7.0", False, 0), ("8.6", False, 2), ("8.6", True, 0)):
        end = local(compat=compat)
        end.run([b"MSET", b"a", b"1", b"b", b"2"])
        if transaction:
            end.run([b"MULTI"])
        end.run([b"FLUSHALL"])
        if transaction:
            end.run([b"EXEC"])
        assert counts(end) == (0, freed)
