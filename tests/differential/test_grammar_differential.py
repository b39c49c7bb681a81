"""The grammar of every command's options, compared with a server of each version: grammar.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.differential.grammar import differences
from tests.differential.wire import Redis
from tests.judge import PEERS, Judge
from tests.variants import by_speed, seeds

# Commands whose options changed between versions: three quarters of the calls.
CHANGED = [
    "bitcount", "client|list", "client|tracking", "client|unblock", "copy", "expire", "getex", "hexpire", "hexpireat",
    "hgetdel", "hgetex", "hpersist", "hpexpire", "hpexpireat", "hscan", "hsetex", "httl", "lcs", "set", "sort", "xadd",
    "xautoclaim", "xclaim", "xpending", "xread", "xreadgroup", "xsetid", "xtrim", "zadd", "zrange", "zscan", "zunion",
]  # fmt: skip
STEPS = by_speed(1000, 500, 20_000)


@pytest.mark.parametrize("seed", seeds(2, 6))
@pytest.mark.parametrize("compat", PEERS)
def test_calls_fail_and_succeed_alike(peer_of: Callable[[str], Judge], compat: str, seed: int) -> None:
    with Redis(peer_of(compat).port) as redis:
        found = list(differences(redis, compat, seed, STEPS * 3 // 4, CHANGED))
        found += differences(redis, compat, seed, STEPS // 4)
    assert not found, found[:3]
