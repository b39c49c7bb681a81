"""Arrays as DUMP payloads: exchanged with the newest Redis, and malformed ones, which both sides reject alike."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

from rillet.errors import Corrupt
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from rillet.structs.crc64 import crc64
from rillet.types.array import Array
from rillet.types.rdb import value as rdb
from rillet.types.rdb.primitives import RdbWriter
from tests.differential.wire import Local, Redis
from tests.judge import Judge
from tests.variants import by_speed

FAR = 2**64 - 2


def sealed(body: bytes) -> bytes:
    data = b"\x1c" + body + b"\x0e\x00"
    return data + crc64(data).to_bytes(8, "little")


def random_body(source: random.Random) -> bytes:
    """Return the value of an array, mostly a valid one."""
    out = RdbWriter()
    count = source.choice((1, 2, 5, 30))
    out.length(count if source.random() < 0.9 else source.choice((0, 1, 2**40)))
    inserted = source.choice((0, 0, 1, 1, 2)) if source.random() < 0.1 else source.choice((0, 1))
    out.length(inserted)
    if inserted:
        out.length(source.choice((0, 5, FAR, 2**63, FAR + 1)))
    for _ in range(count):
        out.length(source.choice((source.randrange(30), source.randrange(9000), 2**23, FAR)))
        kind = source.choice((0, 1, 2, 3)) if source.random() < 0.97 else source.choice((4, 63, 200))
        out.length(kind)
        if kind == 1:
            out.raw(struct.pack("<q", source.choice((0, -1, 2**61 - 1, 2**61, -(2**63), source.randrange(10**6)))))
        elif kind == 2:
            out.raw(struct.pack("<d", source.choice((0.1, 1.0, -0.0, 1e300, float("nan"), float("inf"), 2.5))))
        else:
            out.string(source.choice((b"", b"a", b"12", b"3.5", b"1234567", b"12345678", b"text " * 9)))
    body = bytearray(bytes(out.out))
    if source.random() < 0.3:
        for _ in range(source.choice((1, 1, 3))):
            body[source.randrange(len(body))] = source.randrange(256)
    body = body[: source.randrange(len(body) + 1)] if source.random() < 0.1 else body
    return bytes(body) + b"\xff" * 64  # Redis would read the footer of a payload as a part of the value


@pytest.mark.peer
def test_both_sides_take_and_reject_the_same_payloads(peer_of: Callable[[str], Judge]) -> None:
    source = random.Random(7)
    local = Local(Engine(Settings(compat="newest", enable_debug_command="yes")))
    taken = 0
    with Redis(peer_of("newest").port) as redis:
        redis.run([b"FLUSHALL"])
        for _ in range(by_speed(600, 200)):
            payload = sealed(random_body(source))
            commands = [
                [b"RESTORE", b"k", b"0", payload, b"REPLACE"], [b"DUMP", b"k"], [b"ARINFO", b"k", b"FULL"],
                [b"AROP", b"k", b"0", b"9000", b"SUM"], [b"AROP", b"k", b"0", b"9000", b"MATCH", b"12"],
                [b"ARGREP", b"k", b"-", b"+", b"GLOB", b"*[0-9]*", b"WITHVALUES"],
            ]  # fmt: skip
            ours, theirs = [local.run(argv) for argv in commands], redis.run(*commands)
            assert ours == theirs, payload
            taken += ours[0] == b"+OK\r\n"
            if local.session.db.peek(b"k") is not None:
                local.session.db.peek(b"k").check()
    assert 0.3 < taken / by_speed(600, 200) < 0.95


@pytest.mark.parametrize(
    ("body", "check"),
    [
        (b"\x00\x00", "Empty array (count == 0) is invalid"), (b"\x01\x02", "Invalid array insert_idx_flag 2"),
        (b"\x01\x00\x81" + b"\xff" * 8 + b"\x03\x00", "Invalid array index 18446744073709551615"),
        (b"\x01\x00\x01\x03\x08" + b"x" * 8, "Invalid small string length 8 in array"),
        (b"\x01\x00\x01\x09\x00", "Unknown array element type_tag 9"),
    ],
)  # fmt: skip
def test_the_log_names_the_failed_check(body: bytes, check: str) -> None:
    payload = sealed(body)
    with pytest.raises(Corrupt) as failure:
        rdb.restore(payload)
    assert rdb.refusal(payload, failure.value).startswith(check)


def test_only_rdb_14_has_arrays() -> None:
    array = Array()
    array.cells.set(3, b"x")
    assert [rdb.fits(array, version) for version in (9, 13, 14, 80)] == [False, False, True, False]
    assert rdb.dump(array)[-10:-8] == b"\x0e\x00"
