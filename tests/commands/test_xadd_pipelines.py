"""The fast path of XADD has the effects of its handler: reply, value, counters, log, WATCH, blocked clients."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from rillet import compiled
from rillet.keyspace.clock import ManualClock
from rillet.protocol.command_parser import CommandParser, pack_command
from rillet.protocol.propagation_buffer import PropagationBuffer
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.engine import Engine
from rillet.runtime.registry import TABLE
from rillet.runtime.settings.settings import Settings
from rillet.types.rdb.value import dump
from tests.commands.ends import NOW
from tests.variants import by_speed, seeds

pytestmark = pytest.mark.both

LIMIT = 1 << 20
ADD = [b"XADD", b"s", b"*", b"f", b"v"]

KEYS = [b"s", b"s", b"s", b"t", b"", b"text", b"other"]
NAMES = [b"XADD", b"xadd", b"XaDd", b"XAD", b"XADDS"]
IDS = [b"*", b"*", b"*", b"*", b"1-*", b"5", b"1700000000001-0", b"1700000000000-*", b"0-0", b"x", b"-", b"", b"01-1",
       b"18446744073709551615-18446744073709551615", b"9999999999999999999999", b"*\0"]  # fmt: skip
OPTIONS: list[list[bytes]] = [
    [], [], [], [], [b"MAXLEN", b"3"], [b"MAXLEN", b"=", b"2"], [b"maxlen", b"~", b"2"], [b"MAXLEN", b"~", b"0"],
    [b"MAXLEN", b"03"], [b"MAXLEN", b"-1"], [b"MAXLEN", b"~"], [b"NOMKSTREAM"], [b"MINID", b"1700000000000-1"],
    [b"MAXLEN", b"~", b"2", b"LIMIT", b"1"], [b"MAXLEN", b"=", b"2", b"KEEPREF"], [b"MAXLEN", b"", b"2"],
    [b"MAXLEN", b"=", b"9" * 18], [b"MAXLEN", b"=", b"9" * 19],
]  # fmt: skip
WORDS = [b"", b"f", b"v", b"17", b"-1", b"007", b"-9223372036854775808", b"9223372036854775808", b"x" * 63,
         b"x" * 64, b"y" * 126, b"y" * 127, b"z" * 5000, b"\xff\0\r\n", b"4095", b"4096", b"-4097", b"8388608",
         b"2147483648"]  # fmt: skip


class Log:
    """A log that the engine writes through a propagation buffer."""

    def __init__(self, timestamps: bool) -> None:
        self.feed = PropagationBuffer(timestamps)

    def append(self, _db: int, _argv: list[bytes]) -> None:
        """Fail: the engine writes into the buffer instead."""
        raise AssertionError("the engine wrote past the buffer")

    def flush(self) -> None:
        """Do nothing: the test takes the bytes from the buffer."""


class Side:
    """An engine and a session: `send` takes bytes like a server, `run` takes one command."""

    def __init__(self, log: Log | None = None, **settings: object) -> None:
        self.clock = ManualClock(NOW)
        self.engine = Engine(Settings(**settings), self.clock)
        self.log = self.engine.log = log
        self.session = self.engine.session()
        self.parser = CommandParser()

    def send(self, data: bytes) -> bytes:
        """Parse and run the commands in these bytes; return the replies."""
        self.parser.feed(data)
        while self.engine.drain(self.session, self.parser, LIMIT):
            pass
        return self.session.out.take_bytes()

    def run(self, argv: Sequence[bytes]) -> bytes:
        """Run one command through its handler; return the reply."""
        self.engine.execute(self.session, list(argv))
        return self.session.out.take_bytes()

    def state(self) -> object:
        """Return the values and all counters, to be compared with the other side's."""
        stats = self.engine.stats
        counts: dict[str, object] = {"commands": stats.commands_processed, "errors": dict(stats.errors)}
        for entry in TABLE:
            counters = stats.of_command(entry)
            counts[entry.fullname] = (counters.calls, counters.failed, counters.rejected)
        database = self.engine.databases[0]
        values = {key: dump(value) for key, value in database.items()}
        return values, self.engine.dirty, counts


def some_command(chance: random.Random) -> list[bytes]:
    """Return a random command, mostly an XADD that the fast path takes."""
    if chance.random() < 0.1:
        return chance.choice([[b"PING"], [b"SET", b"text", b"1"], [b"DEL", b"s"], [b"XLEN", b"s"], [b"XADD", b"s"],
                              [b"XSETID", b"t", b"18446744073709551615-18446744073709551614"],
                              [b"XDEL", b"s", b"1700000000000-1"]])  # fmt: skip
    if chance.random() < 0.02:
        return chance.choice([[b"MULTI"], [b"EXEC"], [b"EXEC"], [b"SELECT", b"1"], [b"SELECT", b"0"],
                              [b"PEXPIRE", b"s", b"2"], [b"PEXPIRE", b"t", b"1"]])  # fmt: skip
    fields = [chance.choice(WORDS) for _ in range(chance.choice([1, 2, 2, 2, 4, 4, 6, 80]))]
    if chance.random() < 0.5:
        fields = [b"f", chance.choice(WORDS)]
    name = chance.choice(NAMES) if chance.random() < 0.1 else b"XADD"
    return [name, chance.choice(KEYS), *chance.choice(OPTIONS), chance.choice(IDS), *fields]


def sent(argv: list[bytes], chance: random.Random) -> bytes:
    """Return a command as bytes; the two bytes that end a line or a word are not always CR LF, as Redis allows."""
    if chance.random() < 0.9:
        return pack_command(argv)
    ends = [b"\r\n", b"\r\n", b"\r\n", b"\r\r", b"\r\0"]
    data = b"*%d" % len(argv) + chance.choice(ends)
    for word in argv:
        end = chance.choice([b"\r\n", b"\r\n", b"\r\n", b"\n\n", b"\r\0", b"$*"])
        data += b"$%d" % len(word) + chance.choice(ends) + word + end
    return data


@pytest.mark.slow
@pytest.mark.parametrize("log", ["none", "log", "log with timestamps"])
@pytest.mark.parametrize("seed", seeds(3, 8))
def test_a_batch_of_commands_has_the_effects_of_the_single_commands(seed: int, log: str) -> None:
    """One side gets them as bytes in two parts, the other one by one; replies, values, counters and log are equal."""
    chance = random.Random(f"{seed} {log}")
    limits = {"stream_node_max_entries": chance.choice([2, 3, 100]), "stream_node_max_bytes": chance.choice([64, 4096])}
    quick, slow = (Side(None if log == "none" else Log(log == "log with timestamps"), **limits) for _ in range(2))
    quick.engine.notify_events = chance.random() < 0.1  # keyspace events disable the fast path
    for _ in range(by_speed(40, 15, 40)):
        commands = [some_command(chance) for _ in range(chance.choice([1, 5, 20]))]
        data = b"".join(sent(argv, chance) for argv in commands)
        cut = chance.randrange(len(data))
        got = quick.send(data[:cut]) + quick.send(data[cut:])
        assert got == b"".join(slow.run(argv) for argv in commands)
        assert quick.state() == slow.state()
        if quick.log is not None and slow.log is not None:
            assert quick.log.feed.take_bytes() == slow.log.feed.take_bytes()
        ms = chance.choice([0, 0, 1, -1, 700])
        quick.clock.advance(ms)
        slow.clock.advance(ms)
    quick.engine.check()


def test_the_log_has_the_words_of_the_client_except_for_the_generated_id() -> None:
    side = Side(log := Log(False))
    side.send(pack_command([b"SELECT", b"2"]) + pack_command(ADD))
    before = side.session.argv
    log.feed.take_bytes()
    made = b"$15\r\n1700000000000-"
    for options in ([], [b"MAXLEN", b"9"], [b"maxlen", b"=", b"9"]):
        argv = [b"xAdd", b"s", *options, b"*", b"f", b"v" * 200]
        side.send(pack_command(argv) * 2)
        one, two = (log.feed.take_bytes().split(b"*%d" % len(argv))[1:3])
        head, tail = (b"*%d" % len(argv) + one).split(made)
        assert head + b"$1\r\n*" + tail[1:] == pack_command(argv)
        assert two.partition(made)[2][1:] == tail[1:]
    side.send(pack_command([b"XADD", b"s", b"MAXLEN", b"~", b"1", b"*", b"f", b"v"]))
    assert b"MAXLEN\r\n$1\r\n=\r\n$1\r\n8\r\n" + made in log.feed.take_bytes()
    assert side.session.argv is before  # no handler ran


def test_the_deletion_of_an_expired_key_is_logged_in_one_transaction_with_the_command_that_finds_it() -> None:
    side = Side(log := Log(False))
    side.send(pack_command(ADD) + pack_command([b"PEXPIRE", b"s", b"10"]))
    side.clock.advance(11)
    log.feed.take_bytes()
    side.send(pack_command(ADD))
    logged = log.feed.take_bytes()
    assert logged.startswith(pack_command([b"MULTI"]) + pack_command([b"DEL", b"s"]) + b"*5\r\n$4\r\nXADD")
    assert logged.endswith(pack_command([b"EXEC"]))


def test_an_entry_invalidates_the_watch_of_another_client() -> None:
    side = Side()
    other = side.engine.session()
    side.send(pack_command(ADD))
    side.engine.execute(other, [b"WATCH", b"s"])
    assert not other.watcher.dirty
    side.send(pack_command(ADD))
    assert other.watcher.dirty


def test_a_blocked_client_is_served_between_two_commands() -> None:
    side = Side()
    blocked = side.engine.session()
    side.send(pack_command(ADD))
    side.engine.execute(blocked, [b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", b"$"])
    assert blocked.blocked is not None
    side.send(pack_command(ADD) * 3)
    assert blocked.blocked is None
    assert blocked.out.take_bytes().count(b"1700000000000-") == 1
    assert len(side.engine.databases[0].peek(b"s").groups) == 0
    assert side.engine.databases[0].peek(b"s").length == 4


@pytest.mark.slow
@pytest.mark.parametrize("state", [[b"MULTI"], [b"CLIENT", b"REPLY", b"OFF"]])
def test_a_session_in_multi_or_with_replies_off_does_not_use_the_fast_path(state: list[bytes]) -> None:
    side = Side()
    side.send(pack_command(ADD))
    side.send(pack_command(state))
    reply = side.send(pack_command(ADD))
    assert reply == (b"+QUEUED\r\n" if state == [b"MULTI"] else b"")
    assert side.engine.databases[0].peek(b"s").length == (1 if state == [b"MULTI"] else 2)


def test_the_fast_path_respects_a_refusal_of_writes() -> None:
    side = Side()
    side.send(pack_command(ADD))
    side.engine.refusal = "no space left on the device"
    assert side.send(pack_command(ADD)).startswith(b"-MISCONF")


def test_replies_accumulate_up_to_the_limit() -> None:
    side = Side()
    side.send(pack_command(ADD))
    side.parser.feed(pack_command(ADD) * 10)
    assert side.engine.drain(side.session, side.parser, 30)
    assert side.session.out.used < 60
    while side.engine.drain(side.session, side.parser, 30):
        side.session.out.take_bytes()
    assert side.engine.databases[0].peek(b"s").length == 11


def test_a_key_with_a_string_is_rejected() -> None:
    side = Side()
    side.send(pack_command([b"SET", b"s", b"1"]))
    assert side.send(pack_command(ADD)).startswith(b"-WRONGTYPE")


def test_an_expired_key_starts_as_a_new_stream() -> None:
    side = Side()
    side.send(pack_command(ADD) * 3 + pack_command([b"PEXPIRE", b"s", b"10"]))
    side.clock.advance(11)
    side.send(pack_command(ADD))
    assert side.engine.databases[0].peek(b"s").length == 1


def test_entries_with_thousands_of_fields_are_added() -> None:
    side = Side()
    side.send(pack_command(ADD))
    fields = [b"%d" % number for number in range(6000)]
    side.send(pack_command([b"XADD", b"s", b"*", *fields]))
    side.send(pack_command([b"XADD", b"s", b"*", *fields]))
    reply = side.send(pack_command([b"XRANGE", b"s", b"-", b"+"]))
    assert reply.count(b"\r\n5999\r\n") == 2
    side.send(pack_command(ADD))
    assert side.engine.databases[0].peek(b"s").length == 4


@pytest.mark.skipif(compiled(), reason="compiled methods cannot be replaced")
@pytest.mark.parametrize(
    "argv",
    [
        ADD,
        [b"XADD", b"s", b"MAXLEN", b"~", b"3", b"*", b"f", b"v" * 100],
        [b"SET", b"k", b"v" * 100],
        [b"HSET", b"h", b"f", b"v" * 20],
        [b"LPUSH", b"l", b"a", b"b"],
        [b"PFADD", b"p", b"e" * 50],
        [b"LMOVE", b"l", b"l2", b"LEFT", b"RIGHT"],
        [b"DEL", b"s", b"h"],
    ],
)
def test_without_memory_for_the_log_a_change_is_logged_whole_or_not_made(
    argv: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The buffer of the log cannot grow; a command that runs on the fast path then changes nothing."""
    log = Log(True)
    side = Side(log)
    for prepared in (ADD, ADD, [b"HSET", b"h", b"e", b"v"], [b"RPUSH", b"l", b"x"], [b"PFADD", b"p", b"x"]):
        side.run(prepared)
    log.feed.take_bytes()
    grow = ReplyWriter._grow

    def scarce(self: ReplyWriter, need: int) -> bool:
        if self is log.feed.out:
            raise MemoryError
        return grow(self, need)

    failed = 0
    for room in range(0, 500, 7):
        log.feed.take_bytes()
        log.feed.forget_db()
        log.feed.out.use_buffer(bytearray(room))
        values = payloads(side)
        monkeypatch.setattr(ReplyWriter, "_grow", scarce)
        try:
            side.send(pack_command(argv))
        except MemoryError:
            failed += 1
            assert payloads(side) == values
            assert not log.feed.take_bytes()
            side.parser = CommandParser()
            side.session.out.take_bytes()
        else:
            assert parsed(log.feed.take_bytes()) == 1 or payloads(side) == values
        monkeypatch.undo()
    assert failed > 5


def payloads(side: Side) -> dict[bytes, bytes]:
    """Return the values of all keys as DUMP payloads."""
    return {key: dump(value) for key, value in side.engine.databases[0].items()}


def parsed(logged: bytes) -> int:
    """Return the number of commands in a log beside SELECT; the log ends with a whole command."""
    parser = CommandParser()
    parser.feed(logged.partition(b"\r\n")[2] if logged.startswith(b"#") else logged)
    found: list[Sequence[bytes]] = []
    while (argv := parser.next()) is not None:
        found.append(argv)
    assert pack_all(found) == logged[logged.find(b"*") :]
    return sum(argv[0] != b"SELECT" for argv in found)


def pack_all(commands: Sequence[Sequence[bytes]]) -> bytes:
    return b"".join(map(pack_command, commands))
