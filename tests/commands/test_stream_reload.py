"""What is done first to a stream that was just loaded is done as to one that never left memory.

A stream in memory remembers more than its payload says: where its head and tail are, the fields of the last node, which
search ended where. None of that may be missed, or be left from before.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.commands.ends import Bench

KEY = b"s"
ENTRIES_OF_A_NODE = 4


def first_deeds(rng: random.Random, last: int) -> list[list[bytes | str | int]]:
    """Return what may come right after a load: additions like and unlike those before, trims, deletions, reading."""
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


def shown(bench: Bench) -> dict[bytes, Any]:
    """Return what XINFO shows, without the number of nodes of the tree: that of the newest server tells its history."""
    flat = bench("XINFO", "STREAM", KEY, "FULL")
    facts = dict(zip(flat[::2], flat[1::2], strict=True))
    del facts[b"radix-tree-nodes"]
    return facts


@pytest.mark.parametrize("seed", range(12))
def test_the_first_deeds_after_a_load(seed: int) -> None:
    rng = random.Random(seed)
    stays, leaves = (Bench(compat="newest", stream_node_max_entries=ENTRIES_OF_A_NODE) for _ in range(2))
    for bench in (stays, leaves):
        bench("XGROUP", "CREATE", KEY, "g", 0, "MKSTREAM")
    for _ in range(120):
        info = stays("XINFO", "STREAM", KEY)
        last = int(info[info.index(b"last-generated-id") + 1].partition(b"-")[0])
        assert leaves("DEBUG", "RELOAD") == b"OK"
        for deed in first_deeds(rng, last):
            assert leaves(*deed) == stays(*deed), deed
        assert leaves("DUMP", KEY) == stays("DUMP", KEY)
        assert shown(leaves) == shown(stays)
        leaves.engine.databases[0].values[KEY].check()
    assert len(stays("XRANGE", KEY, "-", "+")) == stays("XLEN", KEY)
