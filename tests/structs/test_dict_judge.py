"""The dict's sizes and its statistics compared with those of a real redis-server (DEBUG HTSTATS-KEY)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import redis

from rillet.structs.dict import Dict
from tests.judge import Judge

COUNTS = [600, 1024, 1025, 3000]


@pytest.fixture
def server(judge: Judge) -> Iterator[redis.Redis]:
    with judge.client() as client:
        client.flushall()
        yield client
        client.flushall()


def members(first: int, count: int) -> list[bytes]:
    return [b"member:%d" % i for i in range(first, first + count)]


def statistics(server: redis.Redis, table: Dict) -> tuple[str, str]:
    """Return both texts once both rehashes have ended; each lookup moves one bucket."""
    for _ in range(20_000):
        if b"rehashing target" not in (text := server.execute_command("DEBUG", "HTSTATS-KEY", "s")):
            break
        server.execute_command("SMISMEMBER", "s", *members(0, 500))
    while table.rehash(100):
        pass
    return text.decode(), table.stats()


def sizes(text: str) -> list[str]:
    return re.findall(r"(?:table size|number of elements): (\d+)", text)


def form(text: str) -> list[str]:
    """Return the lines without what depends on the hash: numbers, and the lines of the distribution."""
    return [re.sub(r"[\d.]+", "N", line) for line in text.splitlines() if not line.startswith("   ")]


@pytest.mark.parametrize("count", COUNTS)
def test_sizes_and_statistics_equal_redis(server: redis.Redis, count: int) -> None:
    table = Dict()
    for start in range(0, count, 500):
        names = members(start, min(500, count - start))
        server.execute_command("SADD", "s", *names)
        for name in names:
            table.add(name)
    theirs, ours = statistics(server, table)
    assert (sizes(ours), form(ours)) == (sizes(theirs), form(theirs))
    pattern = r"^   \d+: \d+ \(\d+\.\d\d%\)$"
    assert len(re.findall(pattern, theirs, re.M)) > 2
    assert len(re.findall(pattern, ours, re.M)) > 2


def test_a_sparse_table_shrinks_as_in_redis(server: redis.Redis) -> None:
    table = Dict()
    server.execute_command("SADD", "s", *members(0, 1000))
    for name in members(0, 1000):
        table.add(name)
    statistics(server, table)
    for count in (500, 395, 3, 3, 20):
        gone = members(1000 - len(table), count)
        server.execute_command("SREM", "s", *gone)
        for name in gone:
            table.delete(name)
        table.shrink_if_needed()
        theirs, ours = statistics(server, table)
        assert sizes(ours) == sizes(theirs)
    table.check()
