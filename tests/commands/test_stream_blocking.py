"""Blocking XREAD and XREADGROUP: which client is served, when, and with which reply, compared with a real server.

A scenario is a list of (client, command). It runs in an engine and on a redis-server. After each step the
replies of all clients, including unblocked ones, and the number of blocked clients must agree.

"""

from __future__ import annotations

import select
import time
from collections.abc import Callable

import pytest

from rillet.keyspace.clock import ManualClock
from rillet.runtime.engine import Engine
from rillet.runtime.session import Session
from rillet.runtime.settings.settings import Settings
from tests.commands.ends import Bench
from tests.differential.wire import Local, Redis, pack, read
from tests.judge import PEERS, Judge

Step = tuple[int, str]
_GONE = b"-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option\r\n"


class Clients:
    """Several clients of one engine; `run` returns the replies that a command causes for any of them."""

    def __init__(self, count: int, resp: int = 2, compat: str = "7.0") -> None:
        self.engine = Engine(Settings(compat=compat))
        self.sessions: list[Session] = [self.engine.session() for _ in range(count)]
        for session in self.sessions:
            session.out.resp = resp

    def run(self, client: int, argv: list[bytes]) -> dict[int, bytes]:
        """Run a command; return the replies by the number of the client that got them."""
        self.engine.execute(self.sessions[client], argv)
        self.engine.check()
        return {at: session.out.take_bytes() for at, session in enumerate(self.sessions) if len(session.out)}

    def waiting(self) -> int:
        """Return the number of blocked clients."""
        return sum(session.blocked is not None for session in self.sessions)


def wait_until_blocked(redis: Redis, count: int) -> None:
    """Poll the server until it reports that number of blocked clients."""
    deadline = time.monotonic() + 60
    while b"blocked_clients:%d\r\n" % count not in redis.run([b"INFO", b"clients"])[0]:
        assert time.monotonic() < deadline, f"there are not {count} blocked clients"


def play(judge: Judge, compat: str, resp: int, steps: list[Step]) -> None:
    """Run a scenario on both sides and compare after each step."""
    count = 1 + max(client for client, _ in steps)
    ours = Clients(count, resp, compat)
    theirs = [Redis(judge.port) for _ in range(count + 1)]
    try:
        for redis in theirs:
            redis.run([b"HELLO", b"%d" % resp])
        theirs[-1].run([b"FLUSHALL"])
        for client, text in steps:
            argv = [word.encode() for word in text.split()]
            replies = ours.run(client, list(argv))
            theirs[client].socket.sendall(pack(argv))
            for at, reply in sorted(replies.items()):
                assert reply == theirs[at]._reply(), (text, at)
            wait_until_blocked(theirs[-1], ours.waiting())
        readable, _, _ = select.select([redis.socket for redis in theirs], [], [], 0)
        assert readable == []
    finally:
        for redis in theirs:
            redis.__exit__()


SCENARIOS: dict[str, list[Step]] = {
    "a reader gets the added entry": [
        (0, "XREAD BLOCK 0 STREAMS s $"), (1, "XADD s 5-1 f v"), (1, "XADD s 6-1 f v"),
    ],
    "the ID is fixed when the client blocks": [
        (1, "XADD s 5-1 f v"), (0, "XREAD BLOCK 0 STREAMS s 100"), (1, "XADD s 50-1 f v"), (1, "XADD s 101-1 f v"),
    ],
    "every reader of a stream is served": [
        (0, "XREAD BLOCK 0 STREAMS s $"), (1, "XREAD BLOCK 0 COUNT 1 STREAMS s 0"), (2, "XADD s 1-1 f v"),
    ],
    "an entry in one of several streams unblocks": [
        (0, "XREAD BLOCK 0 STREAMS a b a 0 0 9"), (1, "XADD b 3-1 f v"), (1, "XADD a 3-1 f v"),
    ],
    "consumers of a group are served in the order in which they blocked": [
        (3, "XGROUP CREATE s g $ MKSTREAM"),
        (0, "XREADGROUP GROUP g c0 BLOCK 0 STREAMS s >"), (1, "XREADGROUP GROUP g c1 BLOCK 0 STREAMS s >"),
        (2, "XREADGROUP GROUP g c2 BLOCK 0 NOACK STREAMS s >"),
        (3, "XADD s 1-1 f v"), (3, "XADD s 2-1 f v"), (3, "XADD s 3-1 f v"), (3, "XPENDING s g"),
    ],
    "each group gets every entry": [
        (3, "XGROUP CREATE s g $ MKSTREAM"), (3, "XGROUP CREATE s h $"),
        (0, "XREADGROUP GROUP g c0 BLOCK 0 STREAMS s >"), (1, "XREADGROUP GROUP h c1 BLOCK 0 STREAMS s >"),
        (2, "XREAD BLOCK 0 STREAMS s $"), (3, "XADD s 1-1 f v"), (3, "XINFO GROUPS s"),
    ],
    "a destroyed group": [
        (1, "XGROUP CREATE s g $ MKSTREAM"), (0, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >"),
        (2, "XREAD BLOCK 0 STREAMS s $"), (1, "XGROUP DESTROY s g"), (1, "XADD s 1-1 f v"),
    ],
    "a deleted stream": [
        (1, "XGROUP CREATE s g $ MKSTREAM"), (0, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >"),
        (2, "XREAD BLOCK 0 STREAMS s $"), (1, "DEL s"), (1, "XADD s 1-1 f v"),
    ],
    "a stream that became a string": [
        (1, "XGROUP CREATE s g $ MKSTREAM"), (0, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >"),
        (2, "XREAD BLOCK 0 STREAMS s $"), (1, "SET s x"), (1, "DEL s"), (1, "XADD s 1-1 f v"),
    ],
    "a flushed database": [
        (1, "XGROUP CREATE s g $ MKSTREAM"), (0, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >"), (1, "FLUSHALL"),
    ],
    "a stream that a transaction deletes and creates": [
        (1, "XGROUP CREATE s g $ MKSTREAM"), (0, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >"),
        (1, "MULTI"), (1, "DEL s"), (1, "XADD s 1-1 f v"), (1, "EXEC"),
    ],
    "an entry added and deleted in a transaction": [
        (0, "XREAD BLOCK 0 STREAMS s $"), (1, "MULTI"), (1, "XADD s 1-1 f v"), (1, "XDEL s 1-1"), (1, "EXEC"),
    ],
    "a set-back group waits for the next entry": [
        (1, "XADD s 1-1 f v"), (1, "XGROUP CREATE s g $"), (0, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >"),
        (1, "XGROUP SETID s g 0"), (1, "XADD s 2-1 f v"),
    ],
    "entries of one transaction, no more than COUNT": [
        (0, "XREAD COUNT 2 BLOCK 0 STREAMS s $"), (1, "MULTI"), (1, "XADD s 1-1 f v"), (1, "XADD s 1-2 f v"),
        (1, "XADD s 1-3 f v"), (1, "EXEC"),
    ],
    "a transaction never blocks": [
        (1, "XGROUP CREATE s g $ MKSTREAM"), (0, "MULTI"), (0, "XREAD BLOCK 0 STREAMS s $"),
        (0, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >"), (0, "EXEC"),
    ],
    "reading pending entries never blocks": [
        (1, "XGROUP CREATE s g $ MKSTREAM"), (0, "XREADGROUP GROUP g c BLOCK 0 STREAMS s 0"),
    ],
    "a key that is not a stream unblocks no client": [
        (0, "XREAD BLOCK 0 STREAMS s $"), (1, "SET s x"), (1, "DEL s"), (1, "XADD s 4-1 f v"),
    ],
    "entries of a transaction in two streams": [
        (0, "XREAD BLOCK 0 STREAMS a b 0 0"), (1, "MULTI"), (1, "XADD b 1-1 f v"), (1, "XADD a 1-1 f v"), (1, "EXEC"),
    ],
    "one of several streams becomes a string": [
        (0, "XREAD BLOCK 0 STREAMS a b 0 0"), (1, "SET b x"), (1, "XADD a 1-1 f v"), (1, "PING"),
    ],
    "one of several groups is destroyed": [
        (1, "XGROUP CREATE a g $ MKSTREAM"), (1, "XGROUP CREATE b g $ MKSTREAM"),
        (0, "XREADGROUP GROUP g c BLOCK 0 STREAMS a b > >"), (1, "XGROUP DESTROY b g"), (1, "XADD a 1-1 f v"),
    ],
    "a consumer that is deleted while it is blocked": [
        (1, "XGROUP CREATE s g $ MKSTREAM"), (0, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >"),
        (1, "XGROUP DELCONSUMER s g c"), (1, "XADD s 1-1 f v"), (1, "XPENDING s g"),
    ],
    "a swap with a database that lacks the stream": [
        (1, "XGROUP CREATE s g $ MKSTREAM"), (0, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >"),
        (2, "XREAD BLOCK 0 STREAMS s $"), (1, "SWAPDB 0 7"), (1, "SELECT 7"), (1, "XADD s 1-1 f v"), (1, "SWAPDB 0 7"),
    ],
    "a rename to the key of a stream with the group, then of one without it": [
        (1, "XGROUP CREATE s g $ MKSTREAM"), (1, "XADD t 5-1 f v"), (1, "XGROUP CREATE t g 0"), (1, "XADD u 6-1 f v"),
        (0, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >"), (1, "RENAME t s"),
        (0, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >"), (1, "RENAME u s"),
    ],
    "a rename to the key": [
        (0, "XREAD BLOCK 0 STREAMS s 0"), (1, "XADD other 4-1 f v"), (1, "RENAME other s"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("compat", PEERS)
@pytest.mark.parametrize("resp", [2, 3])
@pytest.mark.parametrize("name", SCENARIOS)
def test_each_scenario_matches_a_server(peer_of: Callable[[str], Judge], name: str, resp: int, compat: str) -> None:
    """Each step gives the same replies to the same clients, and leaves the same number of blocked clients."""
    play(peer_of(compat), compat, resp, SCENARIOS[name])


@pytest.mark.parametrize(("ending", "before", "since"), [
    ("DEL s", b"-UNBLOCKED the stream key no longer exists\r\n", _GONE),
    ("FLUSHALL", b"-UNBLOCKED the stream key no longer exists\r\n", _GONE),
    ("XGROUP DESTROY s g", b"-NOGROUP the consumer group this client was blocked on no longer exists\r\n", _GONE),
    ("SET s x", b"-UNBLOCKED the stream key no longer exists\r\n",
     b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"),
])  # fmt: skip
def test_a_blocked_consumer_gets_an_error_when_its_group_disappears(ending: str, before: bytes, since: bytes) -> None:
    """Redis 7.0 has errors for this case; since 7.2 the server runs the command again, which fails."""
    for compat, error in (("7.0", before), ("7.2", since), ("newest", since), ("valkey", since)):
        clients = Clients(2, compat=compat)
        clients.run(1, b"XGROUP CREATE s g $ MKSTREAM".split())
        assert clients.run(0, b"XREADGROUP GROUP g c BLOCK 0 STREAMS s >".split()) == {}
        assert clients.run(1, ending.encode().split())[0] == error
        assert clients.waiting() == 0


def test_an_unblocked_client_gets_the_entries_of_all_its_streams_since_7_2() -> None:
    """Redis 7.0 replies with the entries of the changed stream; since 7.2 the server runs the command again."""
    for compat, expected in (("7.0", 1), ("newest", 2)):
        clients = Clients(2, compat=compat)
        assert clients.run(0, b"XREAD BLOCK 0 STREAMS a b 0 0".split()) == {}
        for words in ("MULTI", "XADD b 1-1 f v", "XADD a 1-1 f v", "EXEC"):
            replies = clients.run(1, words.encode().split())
        assert len(read(replies[0])) == expected


def test_info_counts_the_blocking_keys() -> None:
    """Since 7.2 INFO counts each key once, however many clients it blocks.

    A second counter has the keys whose deletion unblocks clients, which are those of groups.

    """
    clients = Clients(4, compat="newest")
    clients.run(3, b"XGROUP CREATE s g $ MKSTREAM".split())
    clients.run(3, b"XGROUP CREATE t g $ MKSTREAM".split())

    def counters() -> list[bytes]:
        text = clients.run(3, [b"INFO", b"clients"])[3]
        return [line.rpartition(b":")[2] for line in text.splitlines() if b"blocking_keys" in line]

    assert counters() == [b"0", b"0"]
    clients.run(0, b"XREAD BLOCK 0 STREAMS s other $ $".split())
    assert counters() == [b"2", b"0"]
    clients.run(1, b"XREADGROUP GROUP g c BLOCK 0 STREAMS s t > >".split())
    clients.run(2, b"XREADGROUP GROUP g d BLOCK 0 STREAMS s >".split())
    assert counters() == [b"3", b"2"]
    clients.run(3, b"XADD s 1-1 f v".split())
    assert counters() == [b"1", b"1"]
    clients.engine.settings.set_text("compat", "7.0")
    assert counters() == []


@pytest.mark.parametrize("words", ["XREAD BLOCK 50 STREAMS s $", "XREADGROUP GROUP g c BLOCK 50 STREAMS s >"])
def test_a_timeout_replies_null(words: str) -> None:
    """After its timeout a client gets a null array and is no longer blocked."""
    local = Local(Engine(Settings(compat="7.0"), ManualClock(1000)))
    local("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    assert not local.engine.execute(local.session, words.encode().split())
    blocked = local.session.blocked
    assert blocked is not None
    assert blocked.deadline == 1050
    local.engine.blocking.expire(local.session)
    assert read(local.session.out.take_bytes()) is None
    assert local.session.blocked is None
    assert not local.session.db.blocking_keys


def test_a_closed_session_is_no_longer_blocked() -> None:
    """A blocked client that disconnects gets no entries, and its consumer has nothing pending."""
    local = Local()
    other = local.engine.session()
    local("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    local.engine.execute(other, [b"XREADGROUP", b"GROUP", b"g", b"gone", b"BLOCK", b"0", b"STREAMS", b"s", b">"])
    local.engine.close_session(other)
    assert local("XADD", "s", "1-1", "f", "v") == b"1-1"
    assert local("XPENDING", "s", "g")[0] == 0
    assert not local.session.db.blocking_keys


def test_a_delivery_to_a_blocked_consumer_is_logged() -> None:
    """The log contains the XADD and after it the XCLAIM of the delivery that it caused."""
    local = Local()
    waiting = local.engine.session()
    log: list[list[bytes]] = []

    class Log:
        def append(self, db: int, argv: list[bytes]) -> None:
            log.append(argv)

        def flush(self) -> None:
            pass

    local("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    local.engine.log = Log()
    local.engine.execute(waiting, b"XREADGROUP GROUP g c BLOCK 0 STREAMS s >".split())
    assert log == []
    local("XADD", "s", "7-1", "f", "v")
    assert log[0] == [b"XADD", b"s", b"7-1", b"f", b"v"]
    assert [argv[0] for argv in log] == [b"XADD", b"XCLAIM"]
    assert log[1][3] == b"c"
    assert log[1][5] == b"7-1"


def test_a_consumer_that_is_unblocked_without_entries_is_logged() -> None:
    """Redis 7.0 creates the consumer and replies without entries; rillet logs the consumer, which Redis does not."""
    bench = Bench()
    bench("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    waiting = bench.engine.session()
    bench.engine.execute(waiting, b"XREADGROUP GROUP g c BLOCK 0 STREAMS s >".split())
    for line in ("MULTI", "XADD s 5-5 a 1", "XDEL s 5-5"):
        bench(*line.split())
    logged = bench.logged("EXEC")
    assert read(waiting.out.take_bytes()) == [[b"s", []]]
    assert [b"XGROUP", b"CREATECONSUMER", b"s", b"g", b"c"] in logged
    assert [consumer[1] for consumer in bench("XINFO", "CONSUMERS", "s", "g")] == [b"c"]
