"""The RDB forms of a stream compared with real servers: rillet reads their payloads, and they read rillet's.

Each server requires the path of its binary (tests/judge.py: PEERS); Redis 7.0 is the installed one.

"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from rillet.types.compat import COMPATS
from rillet.types.rdb import value as rdb
from rillet.types.stream.stream import Stream
from tests.commands.ends import Bench
from tests.judge import PEERS, Judge, peer_binary
from tests.types.genuine import build

PeerOf = Callable[[str], Judge]
SEEDS = range(25)
# The RDB versions that each server reads.
READS = {"7.0": (10,), "8.6": (10, 11, 13), "newest": (10, 11, 13, 14), "valkey": (10, 11)}


def _runner(client: redis.Redis) -> Callable[..., Any]:
    def run(*words: bytes) -> Any:
        try:
            return client.execute_command(*words, NEVER_DECODE=[])
        except redis.ResponseError as error:
            return error

    return run


@pytest.mark.slow
@pytest.mark.parametrize("compat", PEERS)
def test_a_payload_of_a_server_is_read_and_written_back_unchanged(compat: str, peer_of: PeerOf) -> None:
    with peer_of(compat).client() as client:
        run = _runner(client)
        ours = Bench(compat=compat, dump_format="native")
        for seed in SEEDS:
            build(run, compat, seed)
            payload = run(b"DUMP", b"s")
            assert payload[0] == COMPATS[compat].stream_type
            ours("CONFIG", "SET", "rdbcompression", run(b"CONFIG", b"GET", b"rdbcompression")[1])
            assert ours("RESTORE", "s", 0, payload, "REPLACE") == b"OK", seed
            ours.engine.databases[0].peek(b"s").check()
            assert ours("DUMP", "s") == payload, seed
            assert ours("DEBUG", "DIGEST-VALUE", "s") == run(b"DEBUG", b"DIGEST-VALUE", b"s"), seed


@pytest.mark.slow
@pytest.mark.parametrize("source", PEERS)
def test_every_server_with_the_type_reads_the_default_payload(source: str, peer_of: PeerOf) -> None:
    with peer_of(source).client() as client:
        run = _runner(client)
        for seed in SEEDS:
            build(run, source, seed)
            stream = rdb.restore(run(b"DUMP", b"s"))
            digest = run(b"DEBUG", b"DIGEST-VALUE", b"s")
            payload = rdb.dump(stream)
            version = int.from_bytes(payload[-10:-8], "little")
            again = rdb.restore(payload)
            assert isinstance(again, Stream)
            assert rdb.dump(again, True, COMPATS["newest"]) == rdb.dump(stream, True, COMPATS["newest"])
            for reader, versions in READS.items():
                if version in versions and peer_binary(reader):
                    with peer_of(reader).client() as other:
                        ask = _runner(other)
                        ask(b"CONFIG", b"SET", b"sanitize-dump-payload", b"yes")
                        assert ask(b"RESTORE", b"t", b"0", payload, b"REPLACE") == b"OK", (seed, reader)
                        assert ask(b"DEBUG", b"DIGEST-VALUE", b"t") == digest, (seed, reader)


@pytest.mark.peer("newest")
def test_the_generated_iid_is_that_of_redis(peer_of: PeerOf) -> None:
    with peer_of("newest").client() as client:
        run = _runner(client)
        ours = Bench(compat="newest", dump_format="native")
        for number in range(40):
            words = [b"w" * (number * 7 % 41), b"%d" % number] * (1 + number % 4) + [b"", bytes(range(number))]
            run(b"XADD", b"auto", b"IDMPAUTO", b"p", b"*", *words)
            run(b"XADD", b"auto", b"IDMPAUTO", b"p", b"*", *words)
        assert ours("RESTORE", "auto", 0, run(b"DUMP", b"auto")) == b"OK"
        ours.clock.us = int(run(b"TIME")[0]) * 1_000_000
        length = ours("XLEN", "auto")
        for number in range(40):
            words = [b"w" * (number * 7 % 41), b"%d" % number] * (1 + number % 4) + [b"", bytes(range(number))]
            ours("XADD", "auto", "IDMPAUTO", "p", "*", *words)
        assert ours("XLEN", "auto") == length == 40


@pytest.mark.peer(*PEERS)
def test_a_payload_of_every_type_is_accepted_with_every_compat(peer_of: PeerOf) -> None:
    payloads = []
    for compat in PEERS:
        with peer_of(compat).client() as client:
            run = _runner(client)
            build(run, compat, 3)
            payloads.append(run(b"DUMP", b"s"))
    for compat in COMPATS:
        ours = Bench(compat=compat)
        for payload in payloads:
            assert ours("RESTORE", "s", 0, payload, "REPLACE") == b"OK"
