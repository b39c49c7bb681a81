"""Random scripts against a real server: calls of commands, conversions of values and errors, in RESP2 and RESP3.

    python -m tests.scripting.random_scripts --compat newest --count 10000 --seed 1

A script is a random sequence of commands on a few keys, of random arguments (numbers, strings, wrong types), with
`redis.call` and `redis.pcall`, and returns some of the replies, alone or in tables. Scripts run one after the other, so
a difference in the data shows later, too.
"""

from __future__ import annotations

import argparse
import random
import re

from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import Settings
from tests.differential.wire import Local, Redis
from tests.judge import PEERS, required_binary, running_redis

KEYS = ("KEYS[1]", "'n'", "'h'", "'l'", "'s'", "'z'", "'x'", "'none'")
NUMBERS = (
    "0", "1", "-1", "3.0", "1.5", "-0.25", "1e15", "1e17", "123456789012", "2^53", "0.1", "1/3", "1e100", "-2^40",
    "7e-7",
)  # fmt: skip
STRINGS = ("'a'", "'b'", "''", "'a b'", "'10'", "'x\\0y'", "'\\r\\n'", "ARGV[1]", "('y'):rep(70)")
WRONG = ("nil", "true", "{}", "redis.call", "{1}")
COMMANDS = (
    "GET k", "SET k v", "SET k v NX", "SET k n GET", "INCR k", "DECR k", "INCRBY k n", "DECRBY k i", "APPEND k v",
    "STRLEN k", "GETRANGE k i i", "SETRANGE k i v", "MGET k k k", "DEL k", "EXISTS k k", "TYPE k",
    "OBJECT ENCODING k", "EXPIRE k i", "PERSIST k", "RENAME k k", "COPY k k REPLACE", "HSET k v v", "HSET k v n",
    "HGET k v", "HGETALL k", "HMGET k v v", "HDEL k v", "HINCRBY k v i", "HINCRBYFLOAT k v n", "HKEYS k", "HLEN k",
    "RPUSH k v n", "LPUSH k v", "LRANGE k i i", "LPOP k", "LPOP k i", "LLEN k", "LINDEX k i", "LSET k i v",
    "LREM k i v", "SADD k v n", "SREM k v", "SISMEMBER k v", "SCARD k", "SMISMEMBER k v v", "ZADD k n v",
    "ZADD k i v i v", "ZSCORE k v", "ZRANGE k i i", "ZRANGE k 0 -1 WITHSCORES", "ZINCRBY k n v", "ZCARD k",
    "ZMSCORE k v v", "ZRANK k v", "ZPOPMIN k", "ZREM k v", "ZCOUNT k n n", "SETBIT k i 1", "GETBIT k i", "BITCOUNT k",
    "PING", "PING v", "ECHO v", "nothing k", "GET", "GET k k", "SELECT 0", "XADD k 1-* v v", "XLEN k", "XRANGE k - +",
    "DBSIZE", "GETDEL k", "SORT k ALPHA", "GEOADD k 13.5 38.1 v", "GEOPOS k v", "SUBSCRIBE v", "EVAL v 0",
)  # fmt: skip
# Texts that contain an address of memory.
_ADDRESS = re.compile(rb"0x[0-9a-f]+")


def argument(chance: random.Random, kind: str) -> str:
    """Return a random Lua expression for a letter of COMMANDS, or its word."""
    if chance.random() < 0.01:
        return chance.choice(WRONG)
    match kind:
        case "k":
            return chance.choice(KEYS)
        case "n":
            return chance.choice(NUMBERS if chance.random() < 0.8 else STRINGS)
        case "i":
            return str(chance.choice((0, 1, -1, 2, 5, 100)))
        case "v":
            return chance.choice(STRINGS if chance.random() < 0.7 else NUMBERS)
    return f"'{kind}'"


def call(chance: random.Random) -> str:
    """Return a random call of a command."""
    words = chance.choice(COMMANDS).split()
    name = words[0] if chance.random() < 0.5 else words[0].lower()
    arguments = ", ".join([f"'{name}'", *(argument(chance, word) for word in words[1:])])
    return f"redis.{'call' if chance.random() < 0.3 else 'pcall'}({arguments})"


def value(chance: random.Random, depth: int = 2) -> str:
    """Return a random expression to return."""
    match chance.randrange(8):
        case 0 | 1 | 2:
            return call(chance)
        case 3:
            return chance.choice(NUMBERS + STRINGS + WRONG[:3])
        case 4 if depth:
            return "{" + ", ".join(value(chance, depth - 1) for _ in range(chance.randrange(4))) + "}"
        case 5:
            return "{" + chance.choice(("ok", "err")) + f" = {chance.choice(STRINGS)}" + "}"
        case 6:
            return f"select(2, pcall(function() return {call(chance)} end))"
        case 7:
            field = chance.choice(("double", "map", "big_number"))
            inner = {"double": chance.choice(NUMBERS), "map": "{a = " + chance.choice(NUMBERS) + "}",
                     "big_number": "'12345'"}[field]  # fmt: skip
            return "{" + f"{field} = {inner}" + "}"
    return "true"


def script(chance: random.Random) -> str:
    """Return a random script."""
    lines = ["redis.setresp(3)"] if chance.random() < 0.3 else []
    for _ in range(chance.randrange(5)):
        lines.append(f"local r = {call(chance)}")
    return "\n".join([*lines, f"return {value(chance)}"])


def run(compat: str, count: int, seed: int, resp: int = 2) -> list[str]:
    """Run scripts on rillet and on the server of that version; return the differences."""
    chance = random.Random(seed)
    different: list[str] = []
    with running_redis(binary=required_binary(compat)) as server, Redis(server.port) as theirs:
        ours = Local(Engine(Settings(compat=compat)), resp)
        theirs.run([b"hello", str(resp).encode()])
        for number in range(count):
            if number % 50 == 0:
                for side in (ours, theirs):
                    side.run([b"flushall"])
            source = script(chance)
            argv = [b"eval", source.encode("latin-1"), b"1", b"k", b"an argument"]
            mine, real = ours.run(argv), theirs.run(argv)[0]
            if comparable(mine) != comparable(real):
                different.append(f"{seed}/{number}: {source}\n   ours   {mine!r}\n   theirs {real!r}")
            if len(different) > 20:
                break
    return different


def comparable(reply: bytes) -> list[bytes]:
    """Return the lines of a reply in an order of their own: that of a hash table depends on its seed."""
    return sorted(_ADDRESS.sub(b"0x", reply).split(b"\r\n"))


def main() -> None:
    """Run as many scripts as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compat", choices=tuple(PEERS), default="newest")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resp", type=int, choices=(2, 3), default=2)
    options = parser.parse_args()
    different = run(options.compat, options.count, options.seed, options.resp)
    print("\n".join(different) or f"{options.count} scripts: no difference")


if __name__ == "__main__":
    main()
