"""Random load of every type for a master, and the comparison of two servers."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Container
from typing import Any

import redis

from rillet.types.compat import COMPATS
from tests.differential import arrays, bits, generator, geo, hashes, hyperloglogs, list_set, strings, zsets

_SCRIPT = b"""
redis.call('set', KEYS[1], ARGV[1])
redis.call('incrby', KEYS[2], 3)
redis.call('rpush', KEYS[3], unpack(redis.call('time')))
return redis.call('srandmember', KEYS[4])
"""
_LIBRARY = b"#!lua name=lib%d\nredis.register_function('f%d', function(keys) return redis.call('incr', keys[1]) end)"


# Commands that wait, or that change the server's settings.
_BLOCKS = re.compile(rb"(?i)b[lrz].*|wait.*|config|debug|$")


class Load:
    """Commands of one seed for a server of `compat`."""

    def __init__(self, seed: int, compat: str) -> None:
        self.random = random.Random(seed)
        level = COMPATS[compat].level
        kinds: list[Any] = [bits, geo, hashes, hyperloglogs, list_set, strings, zsets]
        if level >= 88:
            kinds.append(arrays)
        self._makers: list[Any] = [one.Generator(seed, level) for one in kinds]
        self._streams = generator.Generator(seed, compat)
        self._makers += [self._streams, self._streams]

    def _some(self) -> list[bytes]:
        return list(self.random.choice(self._makers).next())

    def transaction(self) -> list[list[bytes]]:
        """Return one command, or several that belong together."""
        chance = self.random.random()
        if chance < 0.06:
            return [[b"MULTI"], *(self._some() for _ in range(self.random.randrange(1, 6))), [b"EXEC"]]
        if chance < 0.10:
            key = b"e%d" % self.random.randrange(8)
            return [[b"SET", key, b"v", b"PX", b"%d" % self.random.choice((1, 5, 40, 400, 100000))]]
        if chance < 0.12:
            return [[b"SELECT", b"%d" % self.random.randrange(3)]]
        if chance < 0.14:
            return [[b"EVAL", _SCRIPT, b"4", b"e1", b"counter", b"times", b"s1", b"%d" % self.random.randrange(9)]]
        if chance < 0.145:
            number = self.random.randrange(3)
            return [[b"FUNCTION", b"LOAD", b"REPLACE", _LIBRARY % (number, number)]]
        if chance < 0.15:
            return [[b"FCALL", b"f%d" % self.random.randrange(3), b"1", b"called"]]
        if chance < 0.152:
            return [self.random.choice(([b"FLUSHDB"], [b"SWAPDB", b"0", b"1"], [b"FLUSHALL", b"ASYNC"]))]
        if chance < 0.16:
            return [[b"PUBLISH", b"channel", b"message"], [b"SPUBLISH", b"channel", b"message"]]
        if chance < 0.2:
            field, ms = b"f%d" % self.random.randrange(5), b"%d" % self.random.choice((1, 20, 200))
            return [[b"HSET", b"hx", field, b"v"], [b"HPEXPIRE", b"hx", ms, b"FIELDS", b"1", field]]
        return [self._some()]

    def run(self, client: redis.Redis, count: int) -> None:
        """Send `count` transactions in pipelines, except commands that block; errors are replies as others."""
        while count > 0:
            pipeline = client.pipeline(transaction=False)
            for _ in range(min(count, 50)):
                for argv in self.transaction():
                    if argv and not _BLOCKS.match(argv[0]) and b"BLOCK" not in [word.upper() for word in argv]:
                        pipeline.execute_command(*argv)
                count -= 1
            pipeline.execute(raise_on_error=False)


def offset_of(client: redis.Redis) -> int:
    """Return the position of a server in the stream."""
    return int(_info(client)["master_repl_offset"])


def _info(client: redis.Redis) -> dict[str, str]:
    reply = client.execute_command("INFO", "replication")
    text = reply.decode() if isinstance(reply, bytes) else reply
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


info = _info


def await_equal(master: redis.Redis, replica: redis.Redis, seconds: float = 30) -> None:
    """Return when the replica has the offset of its master, and the master has no more to send."""
    deadline = time.monotonic() + seconds
    while True:
        state = _info(replica)
        here = offset_of(master)
        if state.get("master_link_status") == "up" and int(state["slave_repl_offset"]) == here:
            return
        assert time.monotonic() < deadline, (state, here)
        time.sleep(0.01)


def lasts(master: redis.Redis) -> None:
    """Delete what would expire during the comparison, in the databases of the load."""
    for database in range(3):
        master.execute_command("SELECT", database)
        master.execute_command("DEL", "hx", *(f"e{number}" for number in range(8)))
    master.execute_command("SELECT", 0)


UNLIKE = frozenset((
    "group.pel.time", "consumer.pel.time", "consumer.seen-time", "consumer.active-time", "stream.radix-tree-keys",
    "stream.radix-tree-nodes", "group.entries-read", "group.lag", "group.idle consumers", "group.pel.count",
    "consumer.pel.count", "stream.pids-tracked",
))  # fmt: skip
"""The fields of XINFO STREAM FULL in which a genuine replica may differ from its genuine master of the same version."""


def differences(master: redis.Redis, replica: redis.Redis, *, streams: bool = True,
                ignored: Container[str] = UNLIKE) -> list[str]:  # fmt: skip
    """Return how the data of two servers differ, key by key, after `lasts`.

    streams: compare the fields of XINFO STREAM FULL, too, except those in `ignored`.
    """
    found = []
    for database in range(3):
        digests = []
        for client in (master, replica):
            client.execute_command("SELECT", database)
            keys = sorted(client.execute_command("KEYS", "*"))
            values = [_digest(client, key) for key in keys]
            times = [client.execute_command("PEXPIRETIME", key) for key in keys]
            digests.append({key: (value, when) for key, value, when in zip(keys, values, times, strict=True)})
        for key in sorted(set(digests[0]) | set(digests[1])):
            if digests[0].get(key) != digests[1].get(key):
                kind = master.execute_command("TYPE", key)
                found.append(f"{database} {key!r} {kind}: {_parting(digests[0].get(key), digests[1].get(key))}")
            elif streams:
                full = _stream(master, key), _stream(replica, key)
                names = [name for name in sorted(unlike(*full)) if name not in ignored]
                found += [f"{database} {key!r} {names}: {_parting(*full)}"] if names else []
        for client in (master, replica):
            client.execute_command("SELECT", 0)
    functions = [client.execute_command("FUNCTION", "LIST", "WITHCODE") for client in (master, replica)]
    if sorted(map(repr, functions[0])) != sorted(map(repr, functions[1])):
        found.append(f"functions: {functions}")
    return found


def _parting(mine: Any, other: Any) -> str:
    """Return the places where the texts of two values begin to differ."""
    one, two = repr(mine), repr(other)
    at = next((at for at, pair in enumerate(zip(one, two, strict=False)) if pair[0] != pair[1]), len(one))
    start = max(at - 80, 0)
    return f"{one[start : at + 200]} | {two[start : at + 200]}"


def streams_unlike(master: redis.Redis, replica: redis.Redis) -> dict[tuple[int, bytes], set[str]]:
    """Return the fields of XINFO STREAM FULL in which each stream differs."""
    found = {}
    for database in range(3):
        for client in (master, replica):
            client.execute_command("SELECT", database)
        for key in master.execute_command("KEYS", "*"):
            found[database, key] = unlike(_stream(master, key), _stream(replica, key))
    for client in (master, replica):
        client.execute_command("SELECT", 0)
    return found


def _digest(client: redis.Redis, key: bytes) -> Any:
    """Return the digest of a value; the elements of an array, whose digest would visit each index."""
    if client.execute_command("TYPE", key) in (b"array", "array"):
        return client.execute_command("ARSCAN", key, "0", str(2**64 - 2))
    return client.execute_command("DEBUG", "DIGEST-VALUE", key)




def _stream(client: redis.Redis, key: bytes) -> Any:
    if client.execute_command("TYPE", key) not in (b"stream", "stream"):
        return None
    return client.execute_command("XINFO", "STREAM", key, "FULL", "COUNT", "0")


def unlike(mine: Any, other: Any, part: str = "stream") -> set[str]:
    """Return the names of the fields in which two replies of XINFO STREAM FULL differ, such as `group.lag`.

    `missing` follows a field that one of them lacks. `group.idle consumers`: one has consumers without pending entries
    that the other lacks.
    """
    if mine == other:
        return set()
    if mine is None or other is None:
        return {part}
    ours, theirs = _fields(mine), _fields(other)
    found = {f"{part}.{name} missing" for name in ours.keys() ^ theirs.keys()}
    for name in ours.keys() & theirs.keys():
        one, two = ours[name], theirs[name]
        if one == two:
            continue
        if name == "groups" and len(one) == len(two):
            for left, right in zip(one, two, strict=True):
                found |= unlike(left, right, "group")
        elif name == "consumers":
            found |= _unlike_consumers(one, two)
        elif name in ("pel", "pending") and isinstance(one, list) and len(one) == len(two):
            for left, right in zip(one, two, strict=True):
                names = ("id", "consumer", "time", "count") if len(left) == 4 else ("id", "time", "count")
                found |= {f"{part}.pel.{name}" for name, a, b in zip(names, left, right, strict=True) if a != b}
        else:
            found.add(f"{part}.{name}")
    return found


def _unlike_consumers(mine: Any, other: Any) -> set[str]:
    ours, theirs = ({one["name"]: one for one in map(_fields, consumers)} for consumers in (mine, other))
    found = set()
    for name in ours.keys() ^ theirs.keys():
        consumer = ours.get(name) or theirs[name]
        found.add("group.consumers" if consumer["pel-count"] else "group.idle consumers")
    for name in ours.keys() & theirs.keys():
        found |= unlike(ours[name], theirs[name], "consumer")
    return found


def _fields(reply: Any) -> dict[str, Any]:
    if isinstance(reply, dict):
        return reply
    return {_text(name): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


__all__ = ["UNLIKE", "Load", "await_equal", "differences", "info", "lasts", "offset_of", "streams_unlike", "unlike"]
