"""Untrusted bytes: validation agrees with Redis, and operations on unvalidated bytes raise at most Corrupt."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rillet.errors import Corrupt
from rillet.structs.listpack import Listpack
from tests.judge import Judge
from tests.structs.dump_payload import list_payload
from tests.structs.listpack_oracle import encode
from tests.variants import by_speed, seeds

SEEDS = [
    encode([]),
    encode([b"a", b"1", b"-5000", b"70000", b"10000000", b"9999999999", b"x" * 70]),
    encode([b"s" * 130, b"2", b"", b"s" * 4096]),
    encode([b"%d" % n for n in range(40)]),
]

MALFORMED = {
    "nothing": b"",
    "a header without an end": bytes.fromhex("06000000 0000"),
    "a total that is too small": bytes.fromhex("06000000 0000 ff"),
    "a total that is too large": bytes.fromhex("08000000 0000 ff"),
    "no 0xFF": bytes.fromhex("07000000 0000 00"),
    "a 0xFF too early": bytes.fromhex("08000000 0000 ff ff"),
    "a count that is too large": bytes.fromhex("07000000 0100 ff"),
    "a count that is too small": bytes.fromhex("09000000 0000 0101 ff"),
    "an entry without a backlen": bytes.fromhex("08000000 0100 01 ff"),
    "a wrong backlen": bytes.fromhex("09000000 0100 0102 ff"),
    "a backlen of six bytes": bytes.fromhex("0e000000 0100 85 8080808080 82 ff"),
    "an unknown encoding": bytes.fromhex("09000000 0100 f501 ff"),
    "a 6-bit string beyond the end": bytes.fromhex("09000000 0100 bf01 ff"),
    "a 12-bit string beyond the end": bytes.fromhex("0a000000 0100 efff01 ff"),
    "a 12-bit length beyond the end": bytes.fromhex("08000000 0100 ef ff"),
    "a 32-bit string beyond the end": bytes.fromhex("0d000000 0100 f0ffffff7f01 ff"),
    "a 32-bit string whose size wraps": bytes.fromhex("0d000000 0100 f0fbffffff00 ff"),
    "a 32-bit length beyond the end": bytes.fromhex("0a000000 0100 f0ffff ff"),
    "an integer beyond the end": bytes.fromhex("0a000000 0100 f40001 ff"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_bytes_are_corrupt(name: str) -> None:
    with pytest.raises(Corrupt):
        Listpack.from_bytes(MALFORMED[name])


def test_unusual_bytes_that_redis_accepts_are_accepted() -> None:
    unknown = Listpack.from_bytes(bytes.fromhex("09000000 ffff 0101 ff"))
    assert len(unknown) == 1
    assert unknown.to_bytes()[4:6] == b"\x01\x00"
    # The backlen is one byte with its high bit set, and the bytes before it happen to continue it.
    assert Listpack.from_bytes(bytes.fromhex("0a000000 0100 8100 82 ff")).values() == [b"\x00"]


def mutated(rng: random.Random) -> bytes:
    """Return a seed listpack with a few bytes changed, removed or inserted, usually with a corrected total."""
    data = bytearray(rng.choice(SEEDS))
    for _ in range(rng.randrange(1, 4)):
        pos = rng.randrange(4, len(data))
        kind = rng.randrange(6)
        if kind == 0:
            del data[pos : pos + rng.randrange(1, 4)]
        elif kind == 1:
            data[pos:pos] = rng.randbytes(rng.randrange(1, 4))
        elif kind == 2:
            data[pos] ^= 1 << rng.randrange(8)
        else:
            data[pos] = rng.choice([0, 1, 127, 128, 129, 0xBF, 0xC0, 0xDF, 0xE0, 0xEF, *range(0xF0, 0x100)])
        if len(data) < 7:
            data.extend(b"\xff" * 7)
    if rng.randrange(8):
        data[:4] = len(data).to_bytes(4, "little")
    if rng.randrange(4) == 0:
        data[4:6] = b"\xff\xff"
    return bytes(data)


def accepted(data: bytes) -> bool:
    try:
        Listpack.from_bytes(data).check()
    except Corrupt:
        return False
    return True


@pytest.mark.parametrize("seed", seeds(1, 4))
def test_validation_agrees_with_redis_s_restore(judge: Judge, seed: int) -> None:
    rng = random.Random(seed)
    samples = [data for data in (mutated(rng) for _ in range(400)) if data[6] != 0xFF]  # RESTORE rejects empty lists
    samples += [data for data in MALFORMED.values() if data and data[6:7] != b"\xff"]
    with judge.client() as client:
        before = client.execute_command("CONFIG", "GET", "sanitize-dump-payload")[1]
        client.execute_command("CONFIG", "SET", "sanitize-dump-payload", "yes")
        client.execute_command("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", "1")
        pipe = client.pipeline(transaction=False)
        for data in samples:
            pipe.execute_command("RESTORE", "key", 0, list_payload(data), "REPLACE")
        verdicts = pipe.execute(raise_on_error=False)
        client.execute_command("DEBUG", "SET-SKIP-CHECKSUM-VALIDATION", "0")
        client.execute_command("CONFIG", "SET", "sanitize-dump-payload", before)
        client.execute_command("DEL", "key")
    theirs = [verdict == b"OK" for verdict in verdicts]
    assert [accepted(data) for data in samples] == theirs
    assert any(theirs)
    assert not all(theirs)


def use(data: bytes, rng: random.Random) -> None:
    """Apply every operation to bytes of which only the frame is validated."""

    def fresh() -> Listpack:
        return Listpack.from_bytes(data, deep=False)

    def walk_back(lp: Listpack) -> None:
        pos = lp.last()
        while pos != -1:
            lp.get_bytes(pos)
            pos = lp.prev(pos)

    anywhere = rng.randrange(-2, len(data) + 2)
    value = rng.choice([b"x", b"12345", b"y" * 100, b""])
    actions: list[Callable[[Listpack], object]] = [
        Listpack.values,
        walk_back,
        len,
        lambda lp: lp.seek(rng.randrange(-50, 50)),
        lambda lp: lp.find(anywhere, value, rng.randrange(3)),
        lambda lp: lp.compare(anywhere, value),
        lambda lp: lp.get(anywhere),
        lambda lp: lp.get_int(anywhere),
        lambda lp: lp.next(anywhere),
        lambda lp: lp.prev(anywhere),
        lambda lp: lp.skip(anywhere, 3),
        lambda lp: lp.insert(anywhere, value, rng.random() < 0.5),
        lambda lp: lp.replace(anywhere, value),
        lambda lp: lp.replace_int(anywhere, 5),
        lambda lp: lp.delete(anywhere),
        lambda lp: lp.delete_range(rng.randrange(-5, 5), rng.randrange(9)),
        lambda lp: Listpack.merge(lp, lp),
        lambda lp: lp.append(value),
    ]
    for action in actions:
        lp = fresh()
        with suppress(Corrupt):
            action(lp)
        assert lp.validate(deep=False), "an operation broke the frame"


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_operations_on_unvalidated_bytes_raise_at_most_corrupt(seed: int) -> None:
    rng = random.Random(7000 + seed)
    for _ in range(300):
        data = mutated(rng)
        data = len(data).to_bytes(4, "little") + data[4:-1] + b"\xff"
        use(data, rng)


@given(st.binary(max_size=60))
@settings(max_examples=by_speed(100, 50, 200), deadline=None)
def test_arbitrary_bytes_in_a_valid_frame_raise_at_most_corrupt(body: bytes) -> None:
    data = (7 + len(body)).to_bytes(4, "little") + b"\xff\xff" + body + b"\xff"
    use(data, random.Random(body))
    if accepted(data):
        lp = Listpack.from_bytes(data)
        assert len(lp.values()) == len(lp)
