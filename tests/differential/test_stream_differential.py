"""Random stream commands against a real server: every reply, and the whole state, must be the same.

    RILLET_DIFF_STEPS=10000 RILLET_DIFF_SEEDS=20 python -m pytest tests/differential

Each value of `compat` has its judge: redis-server 7.0 where it is installed, others where the environment names
them (`tests.judge.PEERS`). Odd seeds speak RESP3, and every other two send their commands through the parser. The seed,
the step and the commands before it are in the failure's text.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.differential.generator import CONSUMERS, FIRST, GROUPS, KEYS, Generator, asks_the_clock
from tests.differential.sealing import Freezer
from tests.differential.wire import Local, Redis, differ, is_time, read, tree
from tests.judge import PEERS, Judge
from tests.variants import long, long_interpreted, seeds

pytestmark = pytest.mark.both

STEPS = int(os.environ.get("RILLET_DIFF_STEPS", "500"))
SEEDS = int(os.environ.get("RILLET_DIFF_SEEDS", "4"))
SHORT = SEEDS if "RILLET_DIFF_SEEDS" in os.environ else 2
FIRST_SEED = int(os.environ.get("RILLET_DIFF_FIRST_SEED", "0"))
BATCH = 25
FREEZE = 4  # commands, after which nodes go to disk
# Nodes of a few entries or a few bytes make the edges of nodes as frequent as their insides.
NODE_LIMITS = [(4096, 100), (4096, 5), (120, 100), (300, 0), (0, 3), (4096, 1), (0, 0)]


def node_settings(seed: int, compat: str) -> tuple[list[bytes], Engine]:
    """Return the CONFIG SET for the server, and an engine with the same limits."""
    size, entries = NODE_LIMITS[seed % len(NODE_LIMITS)]
    engine = Engine(Settings(compat=compat, dump_format="native"))
    engine.settings.stream_node_max_bytes = size
    engine.settings.stream_node_max_entries = entries
    engine.take_settings()
    setting = [b"CONFIG", b"SET", b"stream-node-max-bytes", b"%d" % size, b"stream-node-max-entries", b"%d" % entries]
    return setting, engine


def without_idle(argv: list[bytes], node: Any) -> Any:
    """Return the tree of a reply with idle times as True (long) or False (short)."""
    name = argv[0].lower()
    if name == b"xpending" and len(argv) > 3:
        return _rough(node, 2)
    if name == b"xinfo" and len(argv) > 1 and argv[1].lower() == b"consumers":
        return _rough(_rough(node, 5), 7)
    if name == b"xreadgroup":
        return _claimed(node)
    return node


def _rough(node: Any, position: int) -> Any:
    kind, rows = node
    if not isinstance(rows, list):
        return node
    return kind, [
        (row[0], [_long_or_short(value) if at == position else value for at, value in enumerate(row[1])])
        for row in rows
    ]


def _long_or_short(value: Any) -> Any:
    return (b":", value[1] if value[1] == -1 else bool(value[1] > 5_000_000))


def _claimed(node: Any) -> Any:
    """Return the tree with the idle times of claimed entries, which have four parts, made rough."""
    kind, value = node
    if not isinstance(value, list):
        return node
    if len(value) == 4 and value[2][0] == b":" and value[1][0] in b"*%":
        return kind, [value[0], value[1], _long_or_short(value[2]), value[3]]
    return kind, [_claimed(child) for child in value]


def without_tree(node: Any) -> Any:
    """Return the tree of an XINFO without the number of the rax's nodes: sealed nodes are in no rax."""
    kind, value = node
    if not isinstance(value, list):
        return node
    children = [without_tree(child) for child in value]
    for at, child in enumerate(children):
        if child == (b"$", b"radix-tree-nodes"):
            children[at + 1] = (b":", 0)
    return kind, children


def same(argv: list[bytes], ours: bytes, theirs: bytes, sealed: bool = False) -> bool:
    """Whether the replies are equal, byte by byte but for the clock; and for the rax, if nodes are `sealed`."""
    if ours == theirs:
        return True
    if argv[0].lower() not in (b"xpending", b"xinfo", b"xreadgroup"):
        return False
    mine, other = (without_idle(argv, tree(reply)) for reply in (ours, theirs))
    return not differ(without_tree(mine), without_tree(other)) if sealed else not differ(mine, other)


@contextmanager
def without_cron(redis: Redis) -> Iterator[None]:
    """Pause the server's cron, which forgets a producer that has no messages when it comes by; it ends servers, too."""
    redis.run([b"DEBUG", b"PAUSE-CRON", b"1"])
    try:
        yield
    finally:
        redis.run([b"DEBUG", b"PAUSE-CRON", b"0"])


def times_in(node: Any) -> set[int]:
    """Return the times since the epoch that a tree holds."""
    kind, value = node
    if isinstance(value, list):
        return set().union(*map(times_in, value)) if value else set()
    return {value} if kind == b":" and is_time(value) else set()


def masked_dump(payload: bytes, times: set[int]) -> bytes:
    """Return a DUMP payload without its checksum, the given times blanked out."""
    payload = payload[:-8]
    for time in times:
        payload = payload.replace(time.to_bytes(8, "little"), b"\0" * 8)
    return payload


def compare_state(local: Local, redis: Redis, context: str, sealed: bool = False) -> None:
    """Compare all that XINFO, OBJECT ENCODING and DUMP tell of every stream."""
    for key in KEYS:
        full = [b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"]
        looks = [full, [b"XINFO", b"GROUPS", key], [b"OBJECT", b"ENCODING", key], [b"DUMP", key]]
        theirs = redis.run(*looks)
        ours = [local.run(argv) for argv in looks]
        for argv, our, their in zip(looks[:3], ours, theirs, strict=False):
            assert same(argv, our, their, sealed), f"{context}\n{argv}\nours   {our!r}\ntheirs {their!r}"
        ours_dump, theirs_dump = read(ours[3]), read(theirs[3])
        if theirs_dump in (None, b"-1"):
            assert ours[3] == theirs[3], context
            continue
        blank = masked_dump(ours_dump, times_in(tree(ours[0]))), masked_dump(theirs_dump, times_in(tree(theirs[0])))
        assert blank[0] == blank[1], f"{context}\nDUMP {key!r}\nours   {blank[0]!r}\ntheirs {blank[1]!r}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(SHORT, SEEDS, FIRST_SEED))
@pytest.mark.parametrize("compat", PEERS)
def test_replies_and_state_are_the_server_s(peer_of: Callable[[str], Judge], compat: str, seed: int) -> None:
    """The same commands give the same replies and leave the same streams."""
    print(f"compat {compat}, seed {seed}, {STEPS} steps")
    run(peer_of(compat).port, compat, seed, STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(SHORT, SEEDS, FIRST_SEED))
@pytest.mark.parametrize("compat", PEERS)
def test_sealed_streams_have_the_same_replies_and_state(
    peer_of: Callable[[str], Judge], tmp_path: Path, compat: str, seed: int
) -> None:
    """The same with all nodes on disk but the last one of each stream, after every few commands."""
    print(f"compat {compat}, seed {seed}, {STEPS} steps")
    assert run(peer_of(compat).port, compat, seed, STEPS, tmp_path) > 0


def run(port: int, compat: str, seed: int, steps: int, folder: Path | None = None) -> int:
    """Run random commands on both sides; AssertionError at the first difference.

    folder: of segments, into which the nodes go after every few commands. Return how many nodes did.
    """
    generator = Generator(seed, compat)
    settings, engine = node_settings(seed, compat)
    resp = 3 if seed % 2 else 2
    local = Local(engine, resp, door=seed % 4 > 1)
    freezer = None if folder is None else Freezer(engine, folder)
    done: list[list[bytes]] = []
    with Redis(port) as redis, without_cron(redis):
        redis.run([b"FLUSHALL"], settings, [b"HELLO", b"%d" % resp], *FIRST)
        for argv in FIRST:
            local.run(argv)
        for start in range(0, steps, BATCH):
            batch: list[list[bytes]] = []
            ours: list[bytes] = []
            while len(batch) < min(BATCH, steps - start):
                argv = generator.next()
                if not asks_the_clock(local, argv):
                    batch.append(argv)
                    ours.append(local.run(argv))
                    generator.observe(ours[-1])
                    if freezer is not None and len(batch) % FREEZE == 0:
                        freezer.freeze()
            theirs = redis.run(*batch)
            for number, (argv, our, their) in enumerate(zip(batch, ours, theirs, strict=True)):
                done.append(argv)
                if not same(argv, our, their, freezer is not None):
                    replies = f"ours   {our!r}\ntheirs {their!r}"
                    before = "\n".join(map(repr, done[-30:]))
                    where = f"compat {compat}, seed {seed}, step {start + number}"
                    raise AssertionError(f"{where}\n{replies}\nafter\n{before}")
            context = f"compat {compat}, seed {seed}, step {start + len(batch)}\n{done[-BATCH:]}"
            compare_state(local, redis, context, freezer is not None)
            engine.check()
    assert local.session.blocked is None
    if freezer is not None:
        freezer.close()
    return 0 if freezer is None else freezer.sealed


SETTING_BACK = """
XADD s1 100-1 f v | XADD s1 100-2 f v | XADD s1 100-3 f v | XTRIM s1 MINID 200 | XSETID s1 50-0
XADD s1 60-0 f v | XADD s1 70-0 f v | XADD s1 80-0 g w | XRANGE s1 - + | XREVRANGE s1 + -
XADD s1 100-1 f v | XADD s1 100-4 f v | XTRIM s1 MAXLEN 2 | XDEL s1 100-1 | XINFO STREAM s1 FULL
"""
COPIED_CLAIMS = """
XADD s1 1-0 f v | XADD s1 2-0 f v | XADD s1 3-0 f v | XADD s1 4-0 f v | XGROUP CREATE s1 g1 0
XREADGROUP GROUP g1 c1 STREAMS s1 > | XCLAIM s1 g1 c1 0 3 1 2 TIME 1000000 JUSTID | COPY s1 s2
XREADGROUP GROUP g1 c2 COUNT 2 CLAIM 10000 STREAMS s2 > | XREADGROUP GROUP g1 c2 COUNT 2 CLAIM 10000 STREAMS s1 >
"""
COUNTED_OUT = """
XADD s1 1-0 f v | XSETID s1 2-0 ENTRIESADDED 9223372036854775806 | XGROUP CREATE s1 g1 0 ENTRIESREAD 9223372036854775806
XADD s1 3-0 f v | XINFO STREAM s1 | XADD s1 4-0 f v | XADD s1 5-0 f v | XINFO GROUPS s1
XREADGROUP GROUP g1 c1 STREAMS s1 >
"""
CORNERS = {
    "more entries were added than a signed number counts": COUNTED_OUT,
    "XSETID goes back before a node of tombstones only": SETTING_BACK,
    "a copy keeps the order by time of delivery": COPIED_CLAIMS,
}


@pytest.mark.parametrize("entries", [3, 100, *long(2, 4)])
@pytest.mark.parametrize("corner", CORNERS)
@pytest.mark.parametrize("compat", PEERS)
def test_corners_that_were_found(peer_of: Callable[[str], Judge], compat: str, corner: str, entries: int) -> None:
    """What a random walk met once is met always."""
    _, engine = node_settings(0, compat)
    engine.settings.stream_node_max_entries = entries
    engine.take_settings()
    local = Local(engine, door=True)
    with Redis(peer_of(compat).port) as redis:
        redis.run([b"FLUSHALL"], [b"CONFIG", b"SET", b"stream-node-max-entries", b"%d" % entries])
        for command in CORNERS[corner].replace("\n", "|").split("|"):
            argv = command.encode().split()
            if argv:
                our, (their,) = local.run(argv), redis.run(argv)
                assert same(argv, our, their), (command, our, their)
                compare_state(local, redis, command)
                engine.check()


@pytest.mark.slow
@pytest.mark.parametrize("compat", PEERS)
def test_nodes_at_exactly_the_limit(peer_of: Callable[[str], Judge], compat: str) -> None:
    """Whether a second entry still fits is decided at the same byte, for every size of both."""
    _, engine = node_settings(0, compat)
    engine.settings.stream_node_max_bytes = 128
    engine.take_settings()
    local = Local(engine)
    commands = []
    for first in range(0, 128, 9):
        for second in range(max(0, 60 - first), 120 - first):
            for ms, size in ((1, first), (2, second)):
                commands.append([b"XADD", b"%d:%d" % (first, second), b"%d-1" % ms, b"f", b"v" * size])
            commands.append([b"XINFO", b"STREAM", b"%d:%d" % (first, second)])
    with Redis(peer_of(compat).port) as redis:
        redis.run([b"FLUSHALL"], [b"CONFIG", b"SET", b"stream-node-max-bytes", b"128"])
        theirs = redis.run(*commands)
    ours = [local.run(argv) for argv in commands]
    assert ours == theirs
    assert {read(reply)[3] for reply in ours[2::3]} == {1, 2}


@long_interpreted
@pytest.mark.parametrize("compat", PEERS)
def test_a_node_of_more_elements_than_its_header_can_count(peer_of: Callable[[str], Judge], compat: str) -> None:
    """A listpack counts to 65,534; beyond, everything is found by walking it."""
    _, engine = node_settings(NODE_LIMITS.index((0, 0)), compat)
    rnd = random.Random(7)
    local = Local(engine)
    wide = [[b"XADD", b"s1", b"%d-1" % ms, *(b"%d" % (ms + at) for at in range(7000))] for ms in range(1, 11)]
    narrow: list[list[bytes]] = []
    for ms in range(11, 23):
        narrow.append([b"XADD", b"s1", b"%d-1" % ms, b"f", b"%d" % ms])
        narrow.append([b"XDEL", b"s1", b"%d-1" % rnd.randint(1, ms)])
        narrow.append([b"XREVRANGE", b"s1", b"+", b"%d" % rnd.randint(9, ms), b"COUNT", b"2"])
        narrow.append([b"XRANGE", b"s1", b"%d" % rnd.randint(9, ms), b"+", b"COUNT", b"2"])
    narrow += [[b"XTRIM", b"s1", b"MINID", b"3"], [b"XINFO", b"STREAM", b"s1"]]
    with Redis(peer_of(compat).port) as redis:
        redis.run([b"FLUSHALL"], [b"CONFIG", b"SET", b"stream-node-max-bytes", b"0"],
                  [b"CONFIG", b"SET", b"stream-node-max-entries", b"0"])
        for commands in (wide, narrow):
            assert [local.run(argv) for argv in commands] == redis.run(*commands)
            compare_state(local, redis, compat)
    engine.check()


def test_generator_reaches_every_command() -> None:
    """Every stream command, group and consumer appears, and the same seed gives the same commands."""
    first, again = Generator(1), Generator(1)
    made = [first.next() for _ in range(3000)]
    assert made == [again.next() for _ in range(3000)]
    names = {argv[0].upper() for argv in made}
    assert names >= {
        b"XADD", b"XTRIM", b"XDEL", b"XLEN", b"XRANGE", b"XREVRANGE", b"XREAD", b"XREADGROUP", b"XGROUP", b"XACK",
        b"XPENDING", b"XCLAIM", b"XAUTOCLAIM", b"XINFO", b"XSETID",
    }  # fmt: skip
    words = {word for argv in made for word in argv}
    assert words >= {*KEYS, *GROUPS, *CONSUMERS}


def test_generator_makes_what_a_version_knows() -> None:
    """Later commands and options are frequent where they are known, and seldom, but made, where they are not."""
    for compat, often in (("7.0", False), ("newest", True)):
        generator = Generator(1, compat)
        made = [generator.next() for _ in range(6000)]
        for word in (b"XDELEX", b"XACKDEL", b"XNACK", b"XCFGSET", b"IDMP", b"CLAIM", b"ACKED"):
            assert (sum(word in argv for argv in made) > 30) == often, (compat, word)
            assert any(word in argv for argv in made)
