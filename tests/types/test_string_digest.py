"""XXH3: digests of inputs of all forms, as Redis's DIGEST shows them."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from rillet.types.string import hex_digest
from tests.differential.wire import Redis
from tests.judge import Judge

LENGTHS = (*range(20), 31, 32, 33, 64, 65, 96, 97, 128, 129, 143, 144, 239, 240, 241, 256, 320, 1023, 1024, 1025, 1088,
           2048, 2049, 5000)  # fmt: skip


def data(size: int) -> bytes:
    return bytes(7 * at + (at >> 5) & 0xFF for at in range(size))


@pytest.mark.parametrize(("size", "known"), [
    (0, 0x2d06800538d394c2), (1, 0xc44bdff4074eecdb), (2, 0x9093381c8763d62e), (3, 0xc3489259e968ad9e),
    (4, 0xd3d60c1519014e89), (8, 0xb88dee77f6bf6980), (9, 0x03688dcad730d826), (16, 0x9da23836adf2be1e),
    (17, 0xf34c3c9cf5a112d1), (32, 0x99cb9ad0f1a11fbe), (33, 0xec310f579b0283ea), (65, 0xff537f080cacfc25),
    (97, 0x1081d1e0d2731d72), (128, 0xc39f1d42d786ce20), (129, 0x9c94c0dc0ff378e9), (144, 0xb47cec6f13f86712),
    (240, 0x861827a431fe503c), (241, 0xbc56e0c024d16050), (1024, 0x7d18fd81bfe82b03), (1025, 0x9ad73839621e83cb),
    (1089, 0x4a2088a1f5bdb337), (5000, 0xc4a8e68acec91f0e),
])  # fmt: skip
def test_the_digests_of_known_inputs(size: int, known: int) -> None:
    assert hex_digest(data(size)) == b"%016x" % known


def test_digests_equal_those_of_redis(peer_of: Callable[[str], Judge]) -> None:
    chance = random.Random(3)
    inputs = [chance.randbytes(size) for size in LENGTHS]
    with Redis(peer_of("newest").port) as redis:
        redis.run([b"DEL", b"k"])
        for one in inputs:
            reply = redis.run([b"SET", b"k", one], [b"DIGEST", b"k"])[1]
            assert reply == b"$16\r\n%b\r\n" % hex_digest(one), len(one)
        redis.run([b"DEL", b"k"])
