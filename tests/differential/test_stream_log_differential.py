"""What stream commands leave behind: the log and the keyspace events, against a real server's AOF and pub/sub.

The same random commands run here, with a log that keeps what it is given, and on a redis-server with
`appendonly yes`, whose append-only file is decoded afterwards. Both must hold the same commands in the
same transactions, but for the milliseconds in XCLAIM's TIME.
"""

from __future__ import annotations

from typing import Any

import pytest

from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.differential.generator import FIRST, FUTURE_MS, KEYS, Generator, asks_the_clock
from tests.differential.wire import TOLERANCE_MS, Local, Redis, read, tree
from tests.judge import Judge
from tests.variants import by_speed

STEPS = by_speed(400, 400, 600)


class Kept:
    """A log that keeps what it is given."""

    def __init__(self) -> None:
        self.commands: list[list[bytes]] = []

    def append(self, db: int, argv: list[bytes]) -> None:
        """Keep a command."""
        assert db == 0
        self.commands.append(list(argv))

    def flush(self) -> None:
        """There is nothing to make durable."""


def logged_by(server: Judge, after: int) -> list[list[bytes]]:
    """Return the commands in the server's append-only files behind the first `after`, without SELECT."""
    data = b"".join(path.read_bytes() for path in sorted(server.folder.glob("appendonlydir/*.incr.aof")))
    commands = []
    while data:
        argv, data = _one(data)
        if argv[0] != b"SELECT":
            commands.append(argv)
    return commands[after:]


def _one(data: bytes) -> tuple[list[bytes], bytes]:
    head, _, data = data.partition(b"\r\n")
    words = []
    for _ in range(int(head[1:])):
        size, _, data = data.partition(b"\r\n")
        words.append(data[: int(size[1:])])
        data = data[int(size[1:]) + 2 :]
    return words, data


def without_time(argv: list[bytes]) -> list[Any]:
    """Return the command without what may differ: XCLAIM's TIME, what a trim by reference reached, a duplicate's ID.

    Redis logs the second as if no reference had been in the way, so that its replicas delete other entries, and the
    third as `*`, so that they may add what it did not. Here a replay does the same again (see below).
    """
    if argv[0] == b"XCLAIM" and len(argv) == 14 and argv[6] == b"TIME":
        return [*argv[:7], b"...", *argv[8:]]
    words = [word.upper() for word in argv]
    if words[0] == b"XADD" and (b"IDMP" in words or b"IDMPAUTO" in words):
        argv = [b"..." if word == b"*" or word.startswith(FAR) else word for word in argv]
    if words[0] in (b"XADD", b"XTRIM") and (b"DELREF" in words or b"ACKED" in words):
        for limit in (b"MAXLEN", b"MINID"):
            if limit in words:
                at = words.index(limit)
                return [*argv[:at], b"...", *argv[at + 3 :]]
    return argv


def assert_same_log(ours: list[list[bytes]], theirs: list[list[bytes]]) -> None:
    """Compare two logs command by command.

    Ours may say more often that a consumer came to be: where nothing is delivered to one that asked, Redis logs
    nothing, and its replicas do not have it.
    """
    number = 0
    for their in theirs:
        while ours[number] != their and ours[number][:2] == [b"XGROUP", b"CREATECONSUMER"]:
            number += 1
        our = ours[number]
        assert without_time(our) == without_time(their), (number, ours[max(0, number - 3) : number + 3])
        if our[0] == b"XCLAIM" and without_time(our) != our:
            assert abs(int(our[7]) - int(their[7])) < TOLERANCE_MS
        number += 1
    assert all(our[:2] == [b"XGROUP", b"CREATECONSUMER"] for our in ours[number:]), ours[number:]


def watched(local: Local) -> list[tuple[bytes, bytes]]:
    """Let the engine report its keyspace events into the list that is returned."""
    events: list[tuple[bytes, bytes]] = []
    local.engine.notify_events = True

    def note(_db: object, _kind: bytes, event: bytes, key: bytes) -> None:
        events.append((event, key))

    local.engine.on_keyspace_event = note
    return events


def events_of(listener: Redis) -> list[tuple[bytes, bytes]]:
    """Return the key events that a subscriber got, up to the last word."""
    events: list[tuple[bytes, bytes]] = []
    while True:
        _, _, channel, key = read(listener._reply())
        if channel == b"__keyevent@0__:last":
            return events
        events.append((channel.partition(b":")[2], key))


@pytest.mark.parametrize("seed", [100, 101, 102])
def test_log_and_events_are_redis_s(writer: tuple[str, Judge], seed: int) -> None:
    """The same commands log the same commands and notify of the same events."""
    compat, server = writer
    before = len(logged_by(server, 0))
    generator = Generator(seed, compat)
    local = Local(Engine(Settings(compat=compat)))
    local.engine.log = kept = Kept()
    events = watched(local)
    with Redis(server.port) as redis, Redis(server.port) as listener:
        listener.run([b"PSUBSCRIBE", b"__keyevent@0__:*"])
        for argv in ([b"FLUSHALL"], *FIRST):
            redis.run(argv)
            local.run(argv)
        for _ in range(STEPS):
            argv = generator.next()
            if asks_the_clock(local, argv):
                continue
            their = redis.run(argv)[0]
            our = local.run(argv)
            generator.observe(their)
            assert our[:1] == their[:1], (argv, our, their)
        redis.run([b"PUBLISH", b"__keyevent@0__:last", b""])
        theirs = [event for event in events_of(listener) if event[0].startswith(b"x")]
    ours = [event for event in events if event[0].startswith(b"x")]
    assert ours == theirs
    mine = [argv for argv in kept.commands if argv[0] in _LOGGED or argv[0].lower() in _STREAM]
    real = [argv for argv in logged_by(server, before) if argv[0] in _LOGGED or argv[0].lower() in _STREAM]
    if made_consumers(mine) != made_consumers(real):  # one more command makes a transaction of what was one
        mine, real = ([argv for argv in log if argv[0] not in _LOGGED] for log in (mine, real))
    assert_same_log(mine, real)
    assert len(mine) > STEPS // 4


def made_consumers(log: list[list[bytes]]) -> int:
    """Return how often a log says that a consumer came to be."""
    return sum(argv[:2] == [b"XGROUP", b"CREATECONSUMER"] for argv in log)


FAR = b"%d" % (FUTURE_MS // 1000)
_LOGGED = (b"MULTI", b"EXEC")
_STREAM = (b"xadd", b"xtrim", b"xdel", b"xsetid", b"xack", b"xgroup", b"xclaim")


@pytest.mark.parametrize("seed", [200, 201, 202])
@pytest.mark.parametrize("compat", ["7.0", "newest"])
def test_log_replayed_gives_the_same_streams(compat: str, seed: int) -> None:
    """An engine that is fed the log by a trusted session holds the same entries, IDs, counters and groups."""
    generator = Generator(seed, compat)
    local = Local(Engine(Settings(compat=compat)))
    local.engine.log = kept = Kept()
    for _ in range(STEPS):
        generator.observe(local.run(generator.next()))
    other = Local(Engine(Settings(compat=compat)))
    other.session = other.engine.session(trusted=True)
    for argv in kept.commands:
        if argv[0] not in _LOGGED:
            assert not other.run(argv).startswith(b"-"), argv
    other.engine.check()
    for key in KEYS:
        assert other("XINFO", "STREAM", key) == local("XINFO", "STREAM", key)
        assert other("XRANGE", key, "-", "+") == local("XRANGE", key, "-", "+")
        if compat == "newest":
            full = [b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"]
            assert without_sight(tree(other.run(full))) == without_sight(tree(local.run(full)))


def without_sight(node: Any) -> Any:
    """Return an XINFO without what no log tells: when consumers were seen, and what asking for history again counts."""
    kind, value = node
    if not isinstance(value, list):
        return node
    if len(value) in (3, 4) and value[-1][0] == value[-2][0] == b":":
        return kind, value[:-2]
    found = [without_sight(child) for child in value]
    for at, (_, name) in enumerate(value[:-1]):
        if name in (b"seen-time", b"active-time"):
            found[at + 1] = (b":", 0)
    return kind, found


def test_clock_and_approximate_trims_are_logged_as_what_they_did() -> None:
    """An ID that was made and a threshold that was reached stand in the log."""
    local = Local()
    local.engine.settings.stream_node_max_entries = 3
    local.engine.take_settings()
    local.engine.log = kept = Kept()
    made = [local("XADD", "s", "*", "f", "v") for _ in range(5)]
    made.append(local("XADD", "s", "MAXLEN", "~", 3, "LIMIT", 10, "*", "f", "v"))
    assert local("XTRIM", "s", "MINID", "~", made[5]) == 0
    assert local("XTRIM", "s", "MINID", "~", "99999999999999-1") == 3
    assert kept.commands[:5] == [[b"XADD", b"s", ident, b"f", b"v"] for ident in made[:5]]
    assert kept.commands[5] == [b"XADD", b"s", b"MAXLEN", b"=", b"3", b"LIMIT", b"10", made[5], b"f", b"v"]
    largest = b"18446744073709551615-18446744073709551615"
    assert kept.commands[6:] == [[b"XTRIM", b"s", b"MINID", b"=", largest]]


def test_nothing_is_rewritten_while_nothing_is_logged() -> None:
    """Without a log a reading group notes no commands; with one, each entry is one XCLAIM."""
    local = Local()
    for number in range(1, 4):
        local("XADD", "s", f"{number}-1", "f", "v")
    local("XGROUP", "CREATE", "s", "g", 0)
    local.run([b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", b"1", b"STREAMS", b"s", b">"])
    assert local.session.propagated in (None, [])
    local.engine.log = kept = Kept()
    local.run([b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", b"2", b"STREAMS", b"s", b">"])
    assert [argv[:1] for argv in kept.commands] == [[b"MULTI"], [b"XCLAIM"], [b"XCLAIM"], [b"EXEC"]]
    claim = kept.commands[1]
    assert claim[:6] == [b"XCLAIM", b"s", b"g", b"c", b"0", b"2-1"]
    assert claim[8:] == [b"RETRYCOUNT", b"1", b"FORCE", b"JUSTID", b"LASTID", b"2-1"]
