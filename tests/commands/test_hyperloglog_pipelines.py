"""PFADD, PFCOUNT and PFMERGE: the fast paths have the effects of the handlers: reply, value, access, counters, log."""

from __future__ import annotations

import random

import pytest

from rillet.protocol.command_parser import pack_command
from tests.commands.test_string_pipelines import bits, calls
from tests.commands.test_xadd_pipelines import Log, Side, sent
from tests.variants import by_speed, covering

KEYS = [b"a", b"a", b"b", b"c", b"text", b"list"]
BROKEN = b"HYLL\1\0\0\0" + b"\0" * 7 + b"\x80" + b"\x80" * 9
OTHERS = [
    [b"SET", b"b", BROKEN], [b"DEL", b"a"], [b"SET", b"text", b"x"], [b"RPUSH", b"list", b"x"],
    [b"PFMERGE", b"c", b"a"], [b"PFMERGE", b"a", b"b", b"c"], [b"PFMERGE", b"a"], [b"PFMERGE", b"a", b"text"],
    [b"PFDEBUG", b"TODENSE", b"b"], [b"PFDEBUG", b"TODENSE", b"c"], [b"PFDEBUG", b"SIMD", b"OFF"],
    [b"PFDEBUG", b"SIMD", b"ON"],
    [b"PEXPIRE", b"a", b"2"], [b"PFDEBUG", b"TODENSE", b"a"], [b"WATCH", b"a"], [b"UNWATCH"], [b"MULTI"], [b"EXEC"],
    [b"PFCOUNT", b"a", b"c"], [b"PFADD"], [b"PFCOUNT"], [b"APPEND", b"a", b"x"], [b"CONFIG", b"SET",
    b"hll-sparse-max-bytes", b"60"], [b"COPY", b"a", b"c", b"REPLACE"], [b"OBJECT", b"ENCODING", b"a"],
]  # fmt: skip


def some_command(chance: random.Random) -> list[bytes]:
    """Return a random command, mostly a PFADD, PFCOUNT or PFMERGE that the fast path takes."""
    kind = chance.random()
    if kind < 0.12:
        return chance.choice(OTHERS)
    if kind < 0.2:
        return [b"PFMERGE", *chance.choices(KEYS[:4], k=chance.randrange(1, 5))]
    if kind < 0.4:
        return [chance.choice([b"PFCOUNT", b"pfcount"]), chance.choice(KEYS)]
    elements = (chance.randbytes(chance.choice((0, 1, 7, 8, 9, 30))) for _ in range(chance.choice((0, 1, 1, 3, 30))))
    return [chance.choice([b"PFADD", b"pfAdd"]), chance.choice(KEYS), *elements]


@pytest.mark.parametrize(("log", "policy"), covering(
    ["none", "log", "log with timestamps"], ["noeviction", "allkeys-lfu", "allkeys-lrm"]
))  # fmt: skip
def test_a_batch_of_commands_has_the_effects_of_the_single_commands(log: str, policy: str) -> None:
    """One side gets them as bytes in two parts, the other one by one; all that can be observed is equal."""
    chance = random.Random(f"{log} {policy}")
    quick, slow = (Side(None if log == "none" else Log(log == "log with timestamps"), compat="newest",
                        maxmemory_policy=policy) for _ in range(2))  # fmt: skip
    for _ in range(by_speed(40, 8)):
        commands = [some_command(chance) for _ in range(chance.choice([1, 5, 20]))]
        data = b"".join(sent(argv, chance) for argv in commands)
        cut = chance.randrange(len(data))
        replies = quick.send(data[:cut]) + quick.send(data[cut:])
        expected = b""
        for argv in commands:
            expected += slow.run(argv)
        assert replies == expected, commands
        assert quick.state() == slow.state(), commands
        if policy != "allkeys-lfu":  # frequencies are random
            assert bits(quick.engine.databases[0]) == bits(slow.engine.databases[0])
        if quick.log is not None:
            assert slow.log is not None
            assert quick.log.feed.take_bytes() == slow.log.feed.take_bytes()
        for side in (quick, slow):
            side.clock.advance(1)
            side.engine.check()


def test_plain_calls_run_no_handler() -> None:
    side = Side(log := Log(False))
    side.send(pack_command([b"PFADD", b"k", b"x"]) + pack_command([b"PFCOUNT", b"k"]))  # the value is awake now
    before = side.session.argv
    add, count = pack_command([b"PFADD", b"k", b"y", b"z"]), pack_command([b"PFCOUNT", b"k"])
    log.feed.take_bytes()
    assert side.send(add * 2 + count * 2) == b":1\r\n:0\r\n:3\r\n:3\r\n"
    assert side.session.argv is before
    assert (calls(side, "pfadd"), calls(side, "pfcount")) == (3, 3)
    assert log.feed.take_bytes() == add + count  # neither the addition nor the estimate is logged twice
    assert side.engine.dirty == 6
