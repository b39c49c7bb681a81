"""A group continues behind the entry that it read last, whatever happens to the nodes between two reads.

Random commands change a stream of small nodes. Each XREADGROUP must return what XRANGE returns for the IDs after the
group's last delivered ID, which searches the stream anew.
"""

from __future__ import annotations

import random

import pytest

from tests.commands.ends import Bench

NODES = {"of three entries": 3, "of up to 300 entries": 300}


def change(rng: random.Random) -> list[str | int]:
    """Return a random command that adds or removes entries, or moves the last ID."""
    choices: list[list[str | int]] = [
        ["XADD", "s", "*", "f", rng.randrange(1000)],
        ["XADD", "s", "*", "other", "x" * rng.randrange(100), "f", 1],
        ["XADD", "s", "MAXLEN", rng.choice("=~"), rng.randrange(60), "*", "f", 1],
        ["XTRIM", "s", "MAXLEN", "=", rng.randrange(200)],
        ["XTRIM", "s", "MAXLEN", "=", rng.randrange(200), rng.choice(["DELREF", "ACKED"])],
        ["XGROUP", "SETID", "s", rng.choice("gh"), rng.choice(["0", "$"])],
        ["XSETID", "s", "99999999999999-0"],
    ]
    return rng.choice(choices)


@pytest.mark.parametrize("size", NODES.values(), ids=NODES)
@pytest.mark.parametrize("seed", range(3))
def test_each_read_of_a_group_returns_the_entries_after_its_last_one(size: int, seed: int) -> None:
    rng = random.Random(seed)
    bench = Bench(compat="newest")
    bench("CONFIG", "SET", "stream-node-max-entries", size)
    for group in "gh":
        bench("XGROUP", "CREATE", "s", group, "0", "MKSTREAM")
    for step in range(800):
        if rng.random() < 0.4:
            group, count = rng.choice("gh"), rng.choice([1, 1, 2, 5, 200])
            last = {row[1]: row[7] for row in bench("XINFO", "GROUPS", "s")}[group.encode()]
            expected = bench("XRANGE", "s", b"(" + last, "+", "COUNT", count)
            got = bench("XREADGROUP", "GROUP", group, "c", "COUNT", count, "STREAMS", "s", ">")
            assert (got[0][1] if got else []) == expected, step
        elif rng.random() < 0.2 and (entries := bench("XRANGE", "s", "-", "+")):
            bench(*rng.choice([["XDEL", "s"], ["XACK", "s", "g"]]), rng.choice(entries)[0])
        elif rng.random() < 0.6:
            bench("XADD", "s", "*", "f", rng.randrange(1000))
        else:
            bench(*change(rng))
    bench.engine.check()


def test_a_count_that_grows_to_two_bytes_moves_the_entries_that_a_group_reads_next() -> None:
    bench = Bench()
    bench("CONFIG", "SET", "stream-node-max-entries", 300)
    bench("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    for number in range(1, 400):
        bench("XADD", "s", f"{number}-0", "f", "v")
        if number > 120:
            entry = [f"{number - 120}-0".encode(), [b"f", b"v"]]
            assert bench("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", "s", ">") == [[b"s", [entry]]]
