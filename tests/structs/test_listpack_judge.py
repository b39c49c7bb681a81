"""Listpacks compared byte for byte with those in a real redis-server's DUMP payloads."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import redis

from rillet.structs.listpack import Listpack
from tests.judge import Judge
from tests.structs.dump_payload import hash_listpack, list_listpacks
from tests.variants import seeds

BOUNDARIES = [s * (1 << b) + d for b in (0, 7, 12, 15, 23, 31, 63) for s in (-1, 1) for d in (-2, -1, 0, 1)]
LENGTHS = [0, 1, 62, 63, 64, 65, 124, 125, 126, 127, 128, 4094, 4095, 4096, 4097]
LONG = [16376, 16377, 16378, 16379, 16380, 2097145, 2097146, 2097147]
LOOKALIKES = [b"-", b"-0", b"00", b"+5", b" 5", b"5 ", b"9223372036854775808", b"-9223372036854775809", b"1e5"]


@pytest.fixture
def server(judge: Judge) -> Iterator[redis.Redis]:
    settings = {
        "rdbcompression": "no",
        "list-max-listpack-size": "-5",
        "hash-max-listpack-value": "100000000",
        "hash-max-listpack-entries": "512",
    }
    with judge.client() as client:
        client.flushall()
        before = {name: client.execute_command("CONFIG", "GET", name)[1] for name in settings}
        for name, value in settings.items():
            client.execute_command("CONFIG", "SET", name, value)
        yield client
        for name, old in before.items():
            client.execute_command("CONFIG", "SET", name, old)
        client.flushall()


def filled(values: list[bytes]) -> Listpack:
    lp = Listpack()
    for value in values:
        lp.append(value)
    return lp


def test_every_encoding_equals_the_server_s(server: redis.Redis) -> None:
    values = [b"%d" % n for n in BOUNDARIES] + [b"s" * n for n in LENGTHS] + LOOKALIKES
    server.execute_command("RPUSH", "key", *values)
    assert list_listpacks(server.execute_command("DUMP", "key")) == [filled(values).to_bytes()]


@pytest.mark.parametrize("length", LONG)
def test_long_strings_and_their_backlens_equal_the_server_s(server: redis.Redis, length: int) -> None:
    server.execute_command("HSET", "key", "field", b"v" * length)
    assert hash_listpack(server.execute_command("DUMP", "key")) == filled([b"field", b"v" * length]).to_bytes()


def random_value(rng: random.Random) -> bytes:
    kind = rng.randrange(4)
    if kind == 0:
        return b"%d" % rng.choice(BOUNDARIES)
    if kind == 1:
        return b"%d" % rng.getrandbits(rng.randrange(1, 64))
    if kind == 2:
        return b"s" * rng.choice([0, 1, 62, 63, 64, 125, 126, 127, 200])
    return rng.choice(LOOKALIKES)


@pytest.mark.parametrize("seed", seeds(1, 4))
def test_random_list_commands_give_the_server_s_bytes(server: redis.Redis, seed: int) -> None:
    rng = random.Random(seed)
    lp = Listpack()
    for step in range(150):
        command = list_step(rng, lp)
        server.execute_command(*command)
        payload = server.execute_command("DUMP", "key")
        assert ([] if payload is None else list_listpacks(payload)) == ([lp.to_bytes()] if len(lp) else []), (
            f"seed {seed}, step {step}: {command}"
        )


def list_step(rng: random.Random, lp: Listpack) -> list[object]:
    """Apply one random operation to the listpack; return the equivalent list command for the server."""
    value, size = random_value(rng), len(lp)
    kind = rng.randrange(7) if size else rng.randrange(2)
    index = rng.randrange(-size, size) if size else 0
    if kind == 0:
        lp.append(value)
        return ["RPUSH", "key", value]
    if kind == 1:
        lp.prepend(value)
        return ["LPUSH", "key", value]
    if kind == 2:
        lp.replace(lp.seek(index), value)
        return ["LSET", "key", index, value]
    pivot = lp.get_bytes(lp.seek(index))
    found = lp.find(lp.first(), pivot)
    if kind in (3, 4):
        lp.insert(found, value, kind == 4)
        return ["LINSERT", "key", "AFTER" if kind == 4 else "BEFORE", pivot, value]
    if kind == 5:
        lp.delete(found)
        return ["LREM", "key", 1, pivot]
    front = rng.randrange(min(size, 3))
    lp.delete_range(0, front)
    lp.delete_range(-1, 1)
    return ["LTRIM", "key", front, -2]


@pytest.mark.parametrize("seed", seeds(1, 2))
def test_random_hash_commands_give_the_server_s_bytes(server: redis.Redis, seed: int) -> None:
    rng = random.Random(1000 + seed)
    fields = [b"%d" % n for n in range(-3, 12)] + [b"field", b"", b"007"]
    lp = Listpack()
    for step in range(150):
        field, value = rng.choice(fields), random_value(rng)
        at = lp.find(6, field, 1)
        if rng.randrange(3):
            server.execute_command("HSET", "key", field, value)
            if at == -1:
                lp.append(field)
                lp.append(value)
            else:
                lp.replace(lp.next(at), value)
        else:
            server.execute_command("HDEL", "key", field)
            if at != -1 and lp.delete(at) != -1:
                lp.delete(at)
        payload = server.execute_command("DUMP", "key")
        assert (None if payload is None else hash_listpack(payload)) == (lp.to_bytes() if len(lp) else None), (
            f"seed {seed}, step {step}: {field!r} {value!r}"
        )
