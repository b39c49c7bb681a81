"""The fast paths of EXPIRE, TTL, EXISTS and PING have the effects of the handlers: reply, expiry, counters, log."""

from __future__ import annotations

import random

import pytest

from rillet.protocol.command_parser import pack_command
from tests.commands.ends import NOW
from tests.commands.test_string_pipelines import bits, calls
from tests.commands.test_xadd_pipelines import Log, Side
from tests.variants import by_speed

KEYS = (b"a", b"b", b"c", b"d", b"list", b"missing")
TIMES = (b"1", b"2", b"10", b"60", b"0", b"-1", b"x", b"05", b"+1", b"1.5", b"", b"9223372036854775807", b"10000000000",
         b"1000000000000000", b"%d" % NOW, b"%d" % (NOW // 1000 + 2), b"%d" % (NOW + 1500))  # fmt: skip
CONDITIONS: tuple[list[bytes], ...] = (
    [], [], [], [], [b"NX"], [b"xx"], [b"GT"], [b"Lt"], [b"NX", b"XX"], [b"GT", b"XX"], [b"LT", b"GT"], [b"no"],
)
WRITES = (b"EXPIRE", b"PEXPIRE", b"EXPIREAT", b"PEXPIREAT", b"pexpireat", b"Expire")
READS = (b"TTL", b"PTTL", b"EXPIRETIME", b"PEXPIRETIME", b"ttl")


def some_command(chance: random.Random) -> list[bytes]:
    """Return a random command, mostly one of an expiry."""
    key = chance.choice(KEYS)
    kind = chance.random()
    if kind < 0.5:
        return [chance.choice(WRITES), key, chance.choice(TIMES), *chance.choice(CONDITIONS)]
    if kind < 0.7:
        return [chance.choice(READS), key]
    if kind < 0.8:
        return [b"EXISTS", *(chance.choice(KEYS) for _ in range(chance.choice((1, 1, 2, 4))))]
    if kind < 0.85:
        return [b"PING", *chance.choice(([], [b""], [b"text"], [b"a", b"b"]))]
    return chance.choice(([b"SET", key, b"v"], [b"RPUSH", b"list", b"1"], [b"PERSIST", key], [b"DEL", key], [b"EXISTS"],
                          [b"EXPIRE", key], [b"TTL"], [b"WATCH", key], [b"UNWATCH"], [b"GET", b"a"],
                          [b"SET", b"big", b"v" * 300]))  # fmt: skip


@pytest.mark.parametrize("settings", [
    {"compat": "7.0"}, {"compat": "newest", "maxmemory_policy": "allkeys-lru"},
    {"compat": "newest", "maxmemory_policy": "allkeys-lrm"}, {"compat": "valkey", "lazyfree_lazy_expire": "yes"},
])  # fmt: skip
def test_commands_in_a_buffer_have_the_effects_of_single_commands(settings: dict[str, str]) -> None:
    chance = random.Random(str(settings))
    quick, slow = (Side(Log(False), **settings) for _ in range(2))
    assert quick.log is not None
    assert slow.log is not None
    for _ in range(by_speed(90, 25, 150)):
        commands = [some_command(chance) for _ in range(chance.choice((1, 5, 20)))]
        replies = quick.send(b"".join(map(pack_command, commands)))
        assert replies == b"".join(map(slow.run, commands)), commands
        assert quick.state() == slow.state(), commands
        ours, theirs = quick.engine.databases[0], slow.engine.databases[0]
        assert dict(ours.expiries()) == dict(theirs.expiries())
        assert bits(ours) == bits(theirs)
        assert (ours.hits, ours.misses) == (theirs.hits, theirs.misses)
        assert quick.log.feed.take_bytes() == slow.log.feed.take_bytes()
        step = chance.choice((1, 1, 700, 3000))
        for side in (quick, slow):
            side.clock.advance(step)
            side.engine.check()


PLAIN = {
    b"EXPIRE k 60": (b":1\r\n", b"PEXPIREAT k %d" % (NOW + 60_000)),
    b"pexpire k 5 NX": (b":1\r\n", b"PEXPIREAT k %d NX" % (NOW + 5)),
    b"EXPIREAT k %d" % (NOW // 1000 + 9): (b":1\r\n", b"PEXPIREAT k %d" % (NOW // 1000 * 1000 + 9000)),
    b"pexpireat k %d lt" % (NOW + 9): (b":1\r\n", b"pexpireat k %d lt" % (NOW + 9)),
    b"EXPIRE k 60 XX": (b":0\r\n", b""), b"EXPIRE missing 60": (b":0\r\n", b""),
    b"EXPIRE timed 60 GT": (b":0\r\n", b""),
    b"TTL k": (b":-1\r\n", b""), b"TTL missing": (b":-2\r\n", b""), b"PTTL timed": (b":100000\r\n", b""),
    b"PEXPIRETIME timed": (b":%d\r\n" % (NOW + 100_000), b""), b"EXISTS k missing k": (b":2\r\n", b""),
    b"PING": (b"+PONG\r\n", b""), b"PING text": (b"$4\r\ntext\r\n", b""),
}  # fmt: skip


@pytest.mark.parametrize("line", PLAIN)
def test_a_plain_call_runs_no_handler(line: bytes) -> None:
    side = Side(log := Log(False), compat="newest")
    side.run([b"SET", b"k", b"v"])
    side.run([b"SET", b"timed", b"v", b"PX", b"100000"])
    log.feed.take_bytes()
    before = side.session.argv
    reply, logged = PLAIN[line]
    assert side.send(pack_command(line.split())) == reply
    assert side.session.argv is before
    assert calls(side, line.split()[0].lower().decode()) == 1
    assert log.feed.take_bytes() == (pack_command(logged.split()) if logged else b"")
