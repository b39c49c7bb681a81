"""The first command after a load has the same effect as on a stream that stayed in memory.

A stream in memory has more state than its payload: caches of the head and the tail, the fields of the last node, and
the position of the last search. A load must neither require this state nor keep an old one.

"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.commands.ends import Bench
from tests.variants import by_speed, seeds

KEY = b"s"
ENTRIES_OF_A_NODE = 4


def first_commands(rng: random.Random, last: int) -> list[list[bytes | str | int]]:
    """Return random commands to run after a load: additions, trims, deletions, reads, acknowledgements."""
    near = rng.randint(0, last + 2)
    limit = rng.randint(0, 14)
    about = rng.choice(["=", "~"])
    strategy = rng.choice([[], ["KEEPREF"], ["DELREF"], ["ACKED"]])
    return rng.choice([
        [["XADD", KEY, f"{last + 1}-0", "f", rng.choice(["v", "7", "w" * 90])]],
        [["XADD", KEY, f"{last + 1}-1", "other", "v", "g", "-5"]],
        [["XADD", KEY, "MAXLEN", about, limit, f"{last + 1}-0", "f", "v"]],
        [["XADD", KEY, "MINID", about, near, f"{last + 1}-0", "f", "v"]],
        [["XTRIM", KEY, "MAXLEN", about, limit, *strategy]],
        [["XTRIM", KEY, "MINID", about, near, *strategy]],
        [["XTRIM", KEY, "MAXLEN", 0], ["XADD", KEY, f"{last + 1}-0", "f", "v"]],
        [["XDEL", KEY, f"{near}-0", f"{last}-0"]],
        [["XDELEX", KEY, "ACKED", "IDS", 1, f"{near}-0"]],
        [["XREADGROUP", "GROUP", "g", rng.choice("ab"), "COUNT", rng.randint(1, 5), "STREAMS", KEY, ">"]],
        [["XACK", KEY, "g", f"{near}-0", f"{near + 1}-0"]],
        [["XNACK", KEY, "g", "FAIL", "IDS", 1, f"{near}-0"]],
        [["XREADGROUP", "GROUP", "g", "c", "CLAIM", 0, "COUNT", 2, "STREAMS", KEY, ">"]],
        [["XSETID", KEY, f"{last + 3}-0"]],
    ])  # fmt: skip


def info(bench: Bench) -> dict[bytes, Any]:
    """Return what XINFO shows, except the number of tree nodes, which depends on the stream's history."""
    flat = bench("XINFO", "STREAM", KEY, "FULL")
    facts = dict(zip(flat[::2], flat[1::2], strict=True))
    del facts[b"radix-tree-nodes"]
    return facts


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_the_first_commands_after_a_load_have_the_same_effect(seed: int) -> None:
    rng = random.Random(seed)
    stays, leaves = (Bench(compat="newest", stream_node_max_entries=ENTRIES_OF_A_NODE) for _ in range(2))
    for bench in (stays, leaves):
        bench("XGROUP", "CREATE", KEY, "g", 0, "MKSTREAM")
    for _ in range(by_speed(60, 25, 120)):
        flat = stays("XINFO", "STREAM", KEY)
        last = int(flat[flat.index(b"last-generated-id") + 1].partition(b"-")[0])
        assert leaves("DEBUG", "RELOAD") == b"OK"
        for words in first_commands(rng, last):
            assert leaves(*words) == stays(*words), words
        assert leaves("DUMP", KEY) == stays("DUMP", KEY)
        assert info(leaves) == info(stays)
        leaves.engine.databases[0].peek(KEY).check()
    assert len(stays("XRANGE", KEY, "-", "+")) == stays("XLEN", KEY)
