"""Strings, lists, sets, hashes and sorted sets in every RDB form, generated from a seed in parts.

A value is its RDB type and its parts: lengths, strings, raw bytes (fuzz_restore.py changes them). Types
that rillet only reads are included. `commands` returns client commands for each type.
"""

from __future__ import annotations

import random
import struct
from typing import Any

from rillet.structs.listpack import Listpack
from rillet.structs.ziplist import write_ziplist

Token = tuple[str, Any]
# The types of rdb_list_set, rdb_hash and rdb_zset, and strings.
KINDS = (0, 1, 2, 3, 4, 5, 9, 10, 11, 12, 13, 14, 16, 17, 18, 20)


def _words(source: random.Random, count: int) -> list[bytes]:
    """Return distinct strings of all kinds: numbers, compressible text, binary, sometimes a long one."""
    found: dict[bytes, None] = {}
    while len(found) < count:
        found[source.choice((
            b"%d" % source.choice((0, -1, 12, 127, 4095, -4096, 2**23, 2**31, -(2**63), source.randrange(10**6))),
            b"w%d" % source.randrange(1000), b"ab" * source.randrange(1, 40), source.randbytes(source.randrange(1, 30)),
            b"1e%d" % source.randrange(9), b"long" * 70,
        ))] = None  # fmt: skip
    return list(found)


def _scores(source: random.Random, count: int) -> list[float]:
    return sorted(source.choice((0.5, 1.0, -1e300, 3.25, float("inf"), source.uniform(-9, 9))) for _ in range(count))


def listpack_of(words: list[bytes]) -> bytes:
    """Return a listpack of the strings."""
    made = Listpack()
    for word in words:
        made.append(word)
    return made.to_bytes()


def _zipmap(words: list[bytes]) -> bytes:
    out = bytearray((min(len(words) // 2, 254),))
    for at, word in enumerate(words):
        out += bytes((len(word),)) if len(word) < 254 else b"\xfe" + struct.pack("<I", len(word))
        out += (b"\x00" if at % 2 else b"") + word
    return bytes(out + b"\xff")


def _many(words: list[bytes]) -> list[Token]:
    return [("string", word) for word in words]


def tokens(kind: int, source: random.Random) -> list[Token]:
    """Return the parts of a value of an RDB type in KINDS."""
    count = source.choice((1, 2, 3, 5, 20))
    words = _words(source, count)
    scores = _scores(source, count)
    texts = [word for pair in zip(sorted(words), (b"%.17g" % one for one in scores), strict=True) for word in pair]
    pairs = [word for pair in zip(words, _words(source, count), strict=True) for word in pair]
    if kind == 0:
        return [("string", words[0])]
    if kind in (1, 2):
        return [("length", count), *_many(words)]
    if kind in (3, 5):
        made: list[Token] = [("length", count)]
        for word, score in zip(words, scores, strict=True):
            text = b"%.17g" % score
            old = {b"inf": b"\xfe", b"-inf": b"\xff"}.get(text, bytes((len(text),)) + text)
            made += [("string", word), ("raw", old if kind == 3 else struct.pack("<d", score))]
        return made
    if kind == 4:
        return [("length", count), *_many(pairs)]
    if kind == 11:
        numbers = sorted({source.choice((-(2**15), 0, 5, source.randrange(2**15))) for _ in range(count)})
        return [("string", struct.pack(f"<II{len(numbers)}h", 2, len(numbers), *numbers))]
    if kind in (14, 18):
        halves = [half for half in (words[: count // 2], words[count // 2 :]) if half]
        if kind == 14:
            return [("length", len(halves)), *(("string", write_ziplist(half)) for half in halves)]
        nodes = [part for half in halves for part in (("raw", b"\x02"), ("string", listpack_of(half)))]
        return [("length", len(halves) + 1), *nodes, ("raw", b"\x01"), ("string", b"plain" * 300)]
    whole = {9: _zipmap(pairs), 10: write_ziplist(words), 12: write_ziplist(texts), 13: write_ziplist(pairs),
             16: listpack_of(pairs), 17: listpack_of(texts), 20: listpack_of(words)}  # fmt: skip
    return [("string", whole[kind])]


def commands(kind: str, key: bytes) -> list[tuple[bytes, ...]]:
    """Return commands that exercise every operation on a key of that type."""
    k = key
    found: dict[str, list[tuple[bytes, ...]]] = {
        "string": [(b"GET", k), (b"APPEND", k, b"x"), (b"SETRANGE", k, b"3", b"ab"), (b"GETRANGE", k, b"0", b"-1"),
                   (b"STRLEN", k)],
        "list": [(b"LRANGE", k, b"0", b"-1"), (b"RPUSH", k, b"1", b"x" * 100), (b"LPUSH", k, b"a"), (b"LPOP", k, b"2"),
                 (b"RPOP", k), (b"LINSERT", k, b"BEFORE", b"12", b"new"), (b"LREM", k, b"0", b"12"),
                 (b"LTRIM", k, b"0", b"5"), (b"LPOS", k, b"a"), (b"LMOVE", k, k, b"LEFT", b"RIGHT"),
                 (b"LINDEX", k, b"-1")],
        "set": [(b"SMEMBERS", k), (b"SADD", k, b"5", b"text"), (b"SREM", k, b"0"), (b"SISMEMBER", k, b"5"),
                (b"SPOP", k), (b"SRANDMEMBER", k, b"-3"), (b"SSCAN", k, b"0"), (b"SINTER", k, k),
                (b"SUNIONSTORE", b"other", k)],
        "hash": [(b"HGETALL", k), (b"HSET", k, b"f", b"v" * 100), (b"HSET", k, b"12", b"1"), (b"HDEL", k, b"f"),
                 (b"HGET", k, b"12"), (b"HSCAN", k, b"0"), (b"HRANDFIELD", k, b"-3"), (b"HKEYS", k), (b"HLEN", k)],
        "zset": [(b"ZRANGE", k, b"0", b"-1", b"WITHSCORES"), (b"ZADD", k, b"1.5", b"m" * 100),
                 (b"ZADD", k, b"-1", b"12"), (b"ZREM", k, b"12"), (b"ZINCRBY", k, b"2", b"member"),
                 (b"ZPOPMIN", k), (b"ZPOPMAX", k),
                 (b"ZRANGEBYSCORE", k, b"-inf", b"(3"), (b"ZRANK", k, b"member"), (b"ZSCAN", k, b"0"),
                 (b"ZREMRANGEBYRANK", k, b"0", b"1"), (b"ZCOUNT", k, b"-inf", b"+inf")],
    }  # fmt: skip
    both: list[tuple[bytes, ...]] = [
        (b"DUMP", k), (b"COPY", k, b"copy", b"REPLACE"), (b"MEMORY", b"USAGE", k), (b"DEBUG", b"DIGEST-VALUE", k),
        (b"OBJECT", b"ENCODING", k), (b"TYPE", k),
    ]  # fmt: skip
    return found[kind] + both
