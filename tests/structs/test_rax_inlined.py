"""The number of rax nodes in Redis 8.10, which inlines leaves, derived from a complete tree."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from rillet.structs.rax import Rax
from rillet.types.stream.id import encode_key
from tests.differential.wire import Redis, read
from tests.judge import Judge


def nodes_of(tree: Rax) -> int:
    """Check the tree and return its number of nodes in Redis 8.10."""
    tree.check()
    return tree.inlined_nodes


def test_a_leaf_does_not_count_as_a_node() -> None:
    tree = Rax(fixed_len=3)
    assert nodes_of(tree) == 1
    tree.insert(b"abc", None)
    assert (tree.numnodes, nodes_of(tree)) == (2, 1)
    tree.insert(b"abd", None)
    assert (tree.numnodes, nodes_of(tree)) == (4, 2)
    tree.insert(b"axy", None)
    assert (tree.numnodes, nodes_of(tree)) == (7, 4)


def test_the_node_that_holds_a_value_is_not_merged() -> None:
    tree = Rax(fixed_len=3)
    for key in (b"abc", b"abd"):
        tree.insert(key, None)
    tree.remove(b"abd")
    assert (tree.numnodes, nodes_of(tree), tree.cuts) == (2, 2, {b"ab"})
    tree.insert(b"axy", None)
    tree.remove(b"axy")
    assert (tree.numnodes, nodes_of(tree), tree.cuts) == (2, 2, {b"ab"})
    tree.remove(b"abc")
    assert (tree.numnodes, nodes_of(tree), tree.cuts) == (1, 1, set())


def test_a_split_at_a_cut_turns_it_into_a_node_boundary() -> None:
    tree = Rax(fixed_len=4)
    for key in (b"abcd", b"abxy"):
        tree.insert(key, None)
    tree.remove(b"abxy")
    assert tree.cuts == {b"abc"}
    tree.insert(b"abcz", None)
    assert (tree.cuts, nodes_of(tree)) == (set(), 2)
    tree.remove(b"abcz")
    assert (tree.cuts, nodes_of(tree)) == ({b"abc"}, 2)
    tree.clear()
    assert (tree.cuts, nodes_of(tree)) == (set(), 1)


STEPS = [(0, 1), (0, 1), (0, 255), (0, 256), (1, 0), (1, 0), (255, 0), (256, 3), (65536, 0), (1 << 40, 0)]


@pytest.mark.peer("newest")
@pytest.mark.parametrize("seed", range(5))
def test_random_streams_have_the_server_s_count(peer_of: Callable[[str], Judge], seed: int) -> None:
    rnd = random.Random(seed)
    steps = rnd.sample(STEPS, rnd.randint(2, len(STEPS)))
    server = peer_of("newest")
    tree = Rax(fixed_len=16)
    living: list[tuple[int, int]] = []
    ms = seq = 1
    with Redis(server.port) as redis:
        redis.run([b"CONFIG", b"SET", b"stream-node-max-entries", b"1"], [b"DEL", b"s"])
        for step in range(2000):
            if living and rnd.random() < (0.25 if step % 600 < 300 else 0.7):
                gone = living.pop(rnd.choice([0, -1, rnd.randrange(len(living)), rnd.randrange(len(living))]))
                tree.remove(encode_key(*gone))
                command = [b"XDEL", b"s", b"%d-%d" % gone]
            else:
                up, along = rnd.choice(steps)
                ms, seq = (ms + up, 0 if up else seq + along)
                living.append((ms, seq))
                tree.insert(encode_key(ms, seq), None)
                command = [b"XADD", b"s", b"%d-%d" % (ms, seq), b"f", b"v"]
            _, reply = redis.run(command, [b"XINFO", b"STREAM", b"s"])
            assert read(reply)[3:6:2] == [len(living), tree.inlined_nodes], (step, command)
        tree.check()
