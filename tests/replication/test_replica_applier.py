"""The stream of a master in an engine: offsets, transactions, the log, differences."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from rillet.keyspace.clock import ManualClock
from rillet.protocol.command_parser import pack_command
from rillet.replication.applier import Applier
from rillet.replication.errors import LinkError
from rillet.runtime.engine import Engine
from rillet.runtime.session import Session
from rillet.runtime.settings.settings import Settings


class Fed:
    """What receives the bytes for the replicas of a replica."""

    def __init__(self) -> None:
        self.data = b""

    def feed_raw(self, data: bytes) -> None:
        self.data += data


class Logged:
    """A log that keeps the commands."""

    def __init__(self) -> None:
        self.commands: list[list[bytes]] = []

    def append(self, db: int, argv: list[bytes]) -> None:
        self.commands.append([b"%d" % db, *argv])

    def flush(self) -> None:
        """Nothing is buffered."""


def follower(engine: Engine, offset: int = 0) -> tuple[Applier, list[str]]:
    session = engine.session(trusted=True)
    session.enter("follow")
    engine.follows = True
    engine.replication.link = SimpleNamespace(connected=True, asynchronous=False)
    refused: list[str] = []
    return Applier(session, offset, refused.append), refused


def ask(session: Session, *words: str | bytes) -> bytes:
    argv = [word.encode() if isinstance(word, str) else word for word in words]
    session.engine.execute(session, argv)
    return bytes(session.out.take_bytes())


def test_pieces_of_every_size_give_the_same_data_and_offsets() -> None:
    chance = random.Random(1)
    stream = b""
    ends = [0]
    for number in range(120):
        key = b"k%d" % chance.randrange(9)
        kind = chance.randrange(5)
        if kind == 0:
            inner = [[b"MULTI"], [b"SELECT", b"1"], [b"INCR", key], [b"XADD", b"s", b"%d-1" % (number + 1), b"a", b"b"],
                     [b"SELECT", b"0"], [b"EXEC"]]  # fmt: skip
            stream += b"".join(map(pack_command, inner))
        elif kind == 1:
            stream += pack_command([b"SET", key, b"v" * chance.randrange(3000)])
        elif kind == 2:
            stream += pack_command([b"PING"])
        elif kind == 3:
            stream += pack_command([b"REPLCONF", b"GETACK", b"*"])
        else:
            stream += pack_command([b"LPUSH", b"l", b"x"])
        ends.append(len(stream))
    wanted: Any = None
    for largest in (1, 50, 5000, len(stream)):
        engine = Engine(Settings())
        fed = engine.replication.stream = Fed()
        applier, refused = follower(engine, 1000)
        at = 0
        while at < len(stream):
            size = chance.randint(1, largest)
            applier.feed(stream[at : at + size])
            at += size
            assert applier.fed == 1000 + min(at, len(stream))
            assert applier.offset - 1000 == max(end for end in ends if end <= at)
            assert engine.replication.offset in (applier.offset, 0)
        assert fed.data == stream
        assert applier.ack_wanted
        client = engine.session()
        state = [ask(client, "DEBUG", "DIGEST-VALUE", key) for key in (*(f"k{n}" for n in range(9)), "l")]
        ask(client, "SELECT", "1")
        state += [ask(client, "XLEN", "s"), *(ask(client, "GET", f"k{n}") for n in range(9))]
        wanted = wanted or state
        assert state == wanted
        assert engine.replication.db == 0
        assert all("INCR" in text for text in refused)
        engine.check()


def test_a_transaction_is_applied_at_its_end() -> None:
    engine = Engine(Settings())
    log = Logged()
    engine.log = log
    applier, _ = follower(engine)
    client = engine.session()
    applier.feed(pack_command([b"MULTI"]) + pack_command([b"SET", b"a", b"1"]))
    assert ask(client, "GET", "a") == b"$-1\r\n"
    assert applier.offset == 0
    applier.feed(pack_command([b"SET", b"b", b"2"]) + pack_command([b"EXEC"]))
    assert ask(client, "MGET", "a", "b") == b"*2\r\n$1\r\n1\r\n$1\r\n2\r\n"
    assert [one[1].upper() for one in log.commands] == [b"MULTI", b"SET", b"SET", b"EXEC"]
    assert applier.offset == applier.fed


def test_a_reader_that_waits_sees_the_whole_transaction() -> None:
    engine = Engine(Settings())
    applier, _ = follower(engine)
    waiting = engine.session()
    assert not engine.execute(waiting, [b"XREAD", b"BLOCK", b"0", b"STREAMS", b"s", b"0"])
    stream = [[b"MULTI"], [b"XADD", b"s", b"1-1", b"a", b"1"], [b"XADD", b"s", b"1-2", b"a", b"2"], [b"EXEC"]]
    applier.feed(b"".join(map(pack_command, stream)))
    reply = bytes(waiting.out.take_bytes())
    assert b"1-1" in reply
    assert b"1-2" in reply


def test_keys_expire_for_clients_but_not_for_the_master() -> None:
    clock = ManualClock(1_000_000)
    engine = Engine(Settings(), clock)
    applier, refused = follower(engine)
    applier.feed(pack_command([b"SET", b"n", b"1", b"PXAT", b"1000100"]))
    clock.advance(200)
    client = engine.session()
    assert ask(client, "GET", "n") == b"$-1\r\n"
    assert ask(client, "DBSIZE") == b":1\r\n"
    engine.expire_cycle()
    assert ask(client, "DBSIZE") == b":1\r\n"
    applier.feed(pack_command([b"INCR", b"n"]) + pack_command([b"PERSIST", b"n"]))
    assert ask(client, "GET", "n") == b"$1\r\n2\r\n"
    assert refused == []


def test_commands_that_compat_does_not_know_are_applied() -> None:
    engine = Engine(Settings(compat="7.0"))
    applier, refused = follower(engine)
    stream = [[b"HSET", b"h", b"f", b"v"], [b"HPEXPIREAT", b"h", b"9999999999999", b"FIELDS", b"1", b"f"],
              [b"MULTI"], [b"HPERSIST", b"h", b"FIELDS", b"1", b"f"], [b"EXEC"]]  # fmt: skip
    applier.feed(b"".join(map(pack_command, stream)))
    assert refused == []


def test_a_refused_command_is_reported_and_the_stream_continues() -> None:
    engine = Engine(Settings())
    applier, refused = follower(engine)
    stream = [[b"SET", b"a", b"x"], [b"LPUSH", b"a", b"1"], [b"NOSUCH", b"a"], [b"SET", b"b", b"1"]]
    applier.feed(b"".join(map(pack_command, stream)))
    assert [text.partition("master: '")[2].partition(" ")[0] for text in refused] == ["WRONGTYPE", "ERR"]
    assert [text.rpartition(" ")[2] for text in refused] == ["'lpush'", "'<unknown>'"]
    assert applier.offset == applier.fed
    assert ask(engine.session(), "GET", "b") == b"$1\r\n1\r\n"


def test_bytes_that_are_not_commands_end_the_link() -> None:
    for junk in (b"SET a b\r\n", b"*1\r\n$x\r\n", b"$3\r\n"):
        applier, _ = follower(Engine(Settings()))
        with pytest.raises(LinkError):
            applier.feed(pack_command([b"SET", b"a", b"1"]) + junk)
        assert applier.offset == len(pack_command([b"SET", b"a", b"1"]))
