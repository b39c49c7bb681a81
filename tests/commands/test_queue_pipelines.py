"""A transaction in one pipeline has the replies and the effects of one that arrives command by command."""

from __future__ import annotations

import random

import pytest

from rillet.keyspace.clock import ManualClock
from rillet.protocol.command_parser import CommandParser, pack_command
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.commands.ends import NOW

pytestmark = pytest.mark.both

LIMIT = 1 << 20
COMMANDS = (
    *["SET a 1", "SET b 2", "set a 3", "SeT c 4"] * 3,
    "GET a", "GET b", "SET a", "SET a 1 EX", "SET other 1", "GET other", "INCR a", "STORE b 7", "DEL a b c", "NOSUCH a",
    "MULTI", "WATCH a", "EXEC", "EXEC", "DISCARD", "PING", "ECHO x", "CONFIG GET maxmemory", "CONFIG NOSUCH", "RESET",
    "CLIENT CACHING YES",
)  # fmt: skip
SITUATIONS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "user": ("ACL SETUSER u on nopass ~a ~b ~c +@all -ping", "AUTH u x"),
    "tracking": ("HELLO 3", "CLIENT TRACKING ON OPTIN"),
    "no memory": ("CONFIG SET maxmemory 1",),
    "subscribed": ("SUBSCRIBE ch",),
}


class Client:
    """A client of an engine of its own, in which SET is also called STORE."""

    def __init__(self, situation: str) -> None:
        self.engine = Engine(Settings(), ManualClock(NOW))
        if situation == "renamed":
            self.engine.rename_command(b"set", b"store")
        self.session = self.engine.session()
        self.parser = CommandParser()
        for line in SITUATIONS.get(situation, ()):
            self.send(line)

    def send(self, *lines: str) -> bytes:
        """Return the replies to lines that arrive together."""
        self.parser.feed(b"".join(pack_command([word.encode() for word in line.split()]) for line in lines))
        while self.engine.drain(self.session, self.parser, LIMIT):
            pass
        return self.session.out.take_bytes()

    def queued(self) -> int:
        """Return the number of commands that wait for EXEC."""
        return len(self.session.queue)


@pytest.mark.parametrize("situation", [*SITUATIONS, "renamed"])
@pytest.mark.parametrize("seed", range(20))
def test_replies_and_data_are_those_of_single_commands(situation: str, seed: int) -> None:
    rng = random.Random(seed)
    lines = ["MULTI", *rng.choices(COMMANDS, k=30), "EXEC", "MGET a b c other"]
    one, each = Client(situation), Client(situation)
    assert one.send(*lines) == b"".join(map(each.send, lines))
    assert one.queued() == each.queued()
    for client in (one, each):
        client.engine.check()


def test_queueing_stops_at_the_limit_of_replies() -> None:
    client = Client("plain")
    client.send("MULTI")
    client.parser.feed(b"".join(pack_command([b"SET", b"k", b"%d" % n]) for n in range(50)))
    turns = 1
    while client.engine.drain(client.session, client.parser, 20):
        assert client.session.out.take_bytes() == 3 * b"+QUEUED\r\n"
        turns += 1
    assert turns == 17
    assert client.queued() == 50


def test_a_command_that_arrives_in_pieces_is_queued_once() -> None:
    client = Client("plain")
    data = pack_command([b"MULTI"]) + b"".join(pack_command([b"SET", b"k", b"%d" % n]) for n in range(9))
    for at in range(len(data)):
        client.parser.feed(data[at : at + 1])
        client.engine.drain(client.session, client.parser, LIMIT)
    assert client.session.out.take_bytes() == b"+OK\r\n" + 9 * b"+QUEUED\r\n"
    assert client.send("EXEC", "GET k") == b"*9\r\n" + 9 * b"+OK\r\n" + b"$1\r\n8\r\n"
