"""Random streams that real servers build, to test readers and writers of their payloads.

`build` sends only commands that the server of a `compat` has. The streams have nodes of several shapes, tombstones,
groups, and consumers that were never active; on newer servers also released entries and idempotent producers.

"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from rillet.types.compat import COMPATS

Run = Callable[..., Any]


def build(run: Run, compat: str, seed: int, key: bytes = b"s") -> None:
    """Delete the stream `key` and build it by run(*words), which may return an error if a command has no effect."""
    source = random.Random(seed)
    run(b"DEL", key)
    run(b"CONFIG", b"SET", b"stream-node-max-entries", b"%d" % source.choice((1, 3, 10, 100)))
    run(b"CONFIG", b"SET", b"rdbcompression", source.choice((b"yes", b"no")))
    ids = _add(run, key, source)
    for entry in source.sample(ids, source.randrange(len(ids))):
        run(b"XDEL", key, entry)
    if source.random() < 0.2:
        run(b"XTRIM", key, b"MINID", source.choice(ids))
    for number in range(source.randrange(3)):
        _group(run, key, b"g%d" % number, compat, ids, source)
    if COMPATS[compat].knows(86):
        _producers(run, key, source)
    if source.random() < 0.1:
        run(b"XTRIM", key, b"MAXLEN", b"0")


def _add(run: Run, key: bytes, source: random.Random) -> list[bytes]:
    ids, ms = [], source.choice((1, 1_700_000_000_000, 2**63))
    for number in range(source.choice((1, 4, 30, 120))):
        ms += source.choice((1, 1, 1, 1000))
        words = [b"name", source.choice((b"%d" % number, b"", b"text" * source.randrange(20), bytes(range(256))))]
        if source.random() < 0.3:
            words += [b"%d" % source.randrange(-(2**40), 2**40), source.randbytes(3)]
        ids.append(b"%d-%d" % (ms, source.randrange(3)))
        run(b"XADD", key, ids[-1], *words)
    return ids


def _group(run: Run, key: bytes, name: bytes, compat: str, ids: list[bytes], source: random.Random) -> None:
    run(b"XGROUP", b"CREATE", key, name, source.choice((b"0", b"$", source.choice(ids))))
    run(b"XGROUP", b"CREATECONSUMER", key, name, b"idle")
    for consumer in (b"alice", b"12345", b"bob" * 30)[: source.randrange(4)]:
        run(b"XREADGROUP", b"GROUP", name, consumer, b"COUNT", b"%d" % source.randrange(1, 9), b"STREAMS", key, b">")
        some = source.sample(ids, min(3, len(ids)))
        options = source.choice(((), (b"FORCE",), (b"TIME", b"1000"), (b"RETRYCOUNT", b"%d" % source.randrange(999))))
        run(b"XCLAIM", key, name, consumer, b"0", *some, *options)
        run(b"XACK", key, name, *source.sample(ids, min(2, len(ids))))
    if COMPATS[compat].knows(88):
        for mode in (b"SILENT", b"FAIL", b"FATAL"):
            chosen = source.sample(ids, min(source.randrange(3), len(ids)))
            if chosen:
                run(b"XNACK", key, name, mode, b"IDS", b"%d" % len(chosen), *chosen, *source.choice(((), (b"FORCE",))))
    if source.random() < 0.3:
        run(b"XGROUP", b"SETID", key, name, source.choice(ids))


def _producers(run: Run, key: bytes, source: random.Random) -> None:
    if source.random() < 0.3:
        run(b"XCFGSET", key, b"IDMP-DURATION", b"%d" % source.choice((50, 86400)), b"IDMP-MAXSIZE", b"3")
    for number in range(source.choice((0, 1, 6))):
        producer = source.choice((b"p", b"7", source.randbytes(30)))
        if source.random() < 0.5:
            words = [b"IDMP", producer, source.choice((b"%d" % number, b"same", source.randbytes(25)))]
        else:
            words = [b"IDMPAUTO", producer]
        noise = source.randbytes(source.randrange(300))
        run(b"XADD", key, *words, b"*", b"a", b"%d" % source.randrange(3), b"b", noise)
