"""numele and numnodes compared with a real server, by streams with one entry per node, so that each entry is a key."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import redis

from rillet.structs.rax import Rax
from tests.judge import Judge
from tests.variants import seeds

ENTRIES = b"stream-node-max-entries"


@pytest.fixture
def server(judge: Judge) -> Iterator[redis.Redis]:
    """The server, configured for stream nodes of one entry."""
    with judge.client() as client:
        old = client.execute_command("CONFIG", "GET", ENTRIES)[1]
        client.execute_command("CONFIG", "SET", ENTRIES, 1)
        try:
            yield client
        finally:
            client.execute_command("CONFIG", "SET", ENTRIES, old)
            client.execute_command("DEL", "rax-judge")


def wild_ids(rnd: random.Random, count: int) -> list[tuple[int, int]]:
    """Return rising IDs that share prefixes, middles and suffixes in many ways, or advance like a clock."""
    shape = rnd.randrange(4)
    bytes_of = [rnd.sample(range(256), rnd.choice([1, 1, 2, 3, 200])) for _ in range(16)]
    ids: set[tuple[int, int]] = set()
    at = rnd.randrange(1 << 60)
    while len(ids) < count:
        if shape < 2:
            raw = bytes(rnd.choice(choices) for choices in bytes_of)
            # All choices may be exhausted; a random byte creates new ones.
            spot = rnd.randrange(16)
            raw = raw[:spot] + bytes([rnd.randrange(256)]) + raw[spot + 1 :]
            ids.add((int.from_bytes(raw[:8], "big"), int.from_bytes(raw[8:], "big")))
        elif shape == 2:
            at += rnd.choice([0, 1, 1, 255, 256, 65_536, 1 << 40])
            ids.add((at, rnd.choice([0, 0, 1, 2, 256, 1 << 63])))
        else:
            ids.add((rnd.getrandbits(rnd.choice([1, 8, 9, 33, 64])), rnd.getrandbits(rnd.choice([1, 8, 64]))))
    return sorted(ids - {(0, 0)})


@pytest.mark.parametrize("seed", seeds(3, 12))
def test_every_step_gives_the_server_s_counts(server: redis.Redis, seed: int) -> None:
    rnd = random.Random(seed)
    coming = wild_ids(rnd, 300)
    rax, live = Rax(), list[tuple[int, int]]()
    counts = []
    pipe = server.pipeline(transaction=False)
    pipe.execute_command("DEL", "rax-judge")
    deleting = 0.3
    while coming or live:
        deleting = rnd.choice([0.1, 0.3, 0.6, 0.95]) if rnd.random() < 0.02 else deleting
        if live and (not coming or rnd.random() < deleting):
            ms, seq = live.pop(rnd.choice([0, -1, rnd.randrange(len(live))]))
            pipe.execute_command("XDEL", "rax-judge", f"{ms}-{seq}")
            assert rax.remove(ms.to_bytes(8, "big") + seq.to_bytes(8, "big"))
        else:
            ms, seq = coming.pop(0)
            pipe.execute_command("XADD", "rax-judge", f"{ms}-{seq}", "f", "v")
            live.append((ms, seq))
            assert rax.insert(ms.to_bytes(8, "big") + seq.to_bytes(8, "big"), None)
        pipe.execute_command("XINFO", "STREAM", "rax-judge", "FULL", "COUNT", 1)
        counts.append((rax.numele, rax.numnodes))
        if len(counts) % 50 == 0:
            rax.check()
    replies = [dict(zip(reply[::2], reply[1::2], strict=True)) for reply in pipe.execute()[2::2]]
    assert [(reply[b"radix-tree-keys"], reply[b"radix-tree-nodes"]) for reply in replies] == counts
    assert counts[-1] == (0, 1)
    assert not rax.unmerged
