"""import-mode of Valkey: expired keys stay, and only the source of the import sees them; compared with Valkey."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.commands.ends import Bench
from tests.differential.wire import Redis, read
from tests.judge import Judge

# Calls of the source (s) and of another client (o). A time in the past needs no waiting.
CALLS = """
s CLIENT IMPORT-SOURCE on
s CLIENT IMPORT-SOURCE foo
s CLIENT IMPORT-SOURCE off
s CONFIG SET import-mode yes
s CLIENT IMPORT-SOURCE foo
s CLIENT IMPORT-SOURCE on
s SET k 1 PXAT 1
s SET n 5
s PEXPIREAT n 1
s EXPIREAT n -1
s EXPIREAT n -1000
s GET k
o GET k
o TTL k
o EXISTS k n
o DBSIZE
o KEYS *
s KEYS *
s TTL k
s INCR k
s SCAN 0 COUNT 100
o SCAN 0 COUNT 100
s EVAL return(redis.call('get','k')) 0
o EVAL return(redis.call('get','k')) 0
s MULTI
s GET k
s EXEC
o SET k other
o GET k
s GET k
s SET old 1 PXAT 1
o LPUSH old a b
o TYPE old
o TTL old
s SET j 2 PXAT 1
o INCR j
o TTL j
s HSET h f v
s HSETEX h PXAT 1 FIELDS 1 g w
s HGET h g
o HGET h g
s HPEXPIREAT h 1 FIELDS 1 f
s HGETALL h
o HLEN h
s HSETEX zero EXAT 0 FIELDS 2 a v b w
s HGETALL zero
o HGETALL zero
o HLEN zero
o OBJECT ENCODING zero
s GETEX n PXAT 1
s RESET
s GET n
s CLIENT IMPORT-SOURCE on
s GET n
s CONFIG SET maxmemory 1 maxmemory-policy allkeys-lru
s SET more data
s CONFIG SET maxmemory 0
s DBSIZE
s CLIENT IMPORT-SOURCE off
s GET n
s DBSIZE
s CONFIG SET import-mode no
s GET n
s CLIENT IMPORT-SOURCE on
"""


def _sorted(reply: Any) -> Any:
    """Return a reply with its arrays sorted: the order of keys is random."""
    return sorted(map(_sorted, reply), key=repr) if isinstance(reply, list) else reply


@pytest.mark.parametrize("compat", ["valkey"])
def test_replies_equal_valkeys(compat: str, peer_of: Callable[[str], Judge]) -> None:
    bench = Bench(compat=compat)
    ours = {"s": bench, "o": bench.beside()}
    with Redis(peer_of(compat).port) as source, Redis(peer_of(compat).port) as other:
        source.run([b"FLUSHALL"])
        theirs = {"s": source, "o": other}
        try:
            for line in CALLS.strip().splitlines():
                who, *words = line.split()
                expected = read(theirs[who].run([word.encode() for word in words])[0])
                assert _sorted(ours[who](*words)) == _sorted(expected), line
        finally:
            source.run(b"CONFIG SET import-mode no maxmemory 0 maxmemory-policy noeviction".split())


def test_the_cycle_deletes_nothing_in_import_mode() -> None:
    bench = Bench(compat="valkey", import_mode="yes")
    bench("SET", "k", "v", "PX", 10)
    bench.clock.advance(1000)
    assert bench.engine.expire_cycle() == 0
    assert bench("DBSIZE") == 1
    bench.engine.settings.set_text("import-mode", "no")
    bench.engine.take_settings()
    assert bench.engine.expire_cycle() == 1
    assert bench("DBSIZE") == 0


def test_flags_of_the_client_line() -> None:
    bench = Bench(compat="valkey", import_mode="yes")
    assert bench("CLIENT", "IMPORT-SOURCE", "ON") == b"OK"
    assert b" flags=I " in bench("CLIENT", "INFO")
    assert bench("READONLY") == b"OK"
    assert b" flags=rI " in bench("CLIENT", "INFO")
    bench("RESET")
    assert b" flags=N " in bench("CLIENT", "INFO")
    bench("READONLY")
    bench("READWRITE")
    assert b" flags=N " in bench("CLIENT", "INFO")
