"""The dict of `structs/dict.py`: memory against redis-server, and times against Python's dict in the same process."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterable
from time import thread_time_ns

from benchmarks.harness import Figure, redis_server, resident_bytes
from rillet.protocol.command_parser import pack_command
from rillet.structs.dict import Dict

KEYS = 10_000_000


def fill(port: int, keys: list[bytes]) -> None:
    """SET the keys through one pipelined connection and wait for the last reply."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for start in range(0, len(keys), 5_000):
            part = keys[start : start + 5_000]
            connection.sendall(b"".join(pack_command([b"SET", key, b"value"]) for key in part))
            lines = 0
            while lines < len(part):
                received = connection.recv(1 << 20)
                assert received, "the server closed the connection"
                lines += received.count(b"\n")


def timed(call: Callable[[bytes], object], keys: Iterable[bytes]) -> tuple[float, float]:
    """Call with each key; return the mean (ns) and the longest call (us), both in CPU time of this thread."""
    longest = count = 0
    start = before = thread_time_ns()
    for key in keys:
        call(key)
        now = thread_time_ns()
        longest = max(longest, now - before)
        before = now
        count += 1
    return (before - start) / count, longest / 1000


def figures(rounds: int, scale: float) -> list[Figure]:
    """Measure bytes per key, the longest SET, and the mean time of each operation. `rounds` is not used."""
    count = max(100_000, int(KEYS * scale))
    keys = [b"key:%012d" % number for number in range(count)]
    random.Random(1).shuffle(keys)
    with redis_server() as (port, pid):
        before = resident_bytes(pid)
        fill(port, keys)
        theirs = (resident_bytes(pid) - before) / count
    table, plain = Dict(values=True), dict[bytes, bytes]()
    plain_set = timed(lambda key: plain.__setitem__(key, b"value"), keys)
    rows = [
        ("set", plain_set, timed(lambda key: table.set(key, b"value"), keys)),
        ("get", timed(plain.get, keys), timed(table.get, keys)),
    ]
    used = table.memory_bytes() / count
    rows.append(("delete", timed(plain.pop, keys), timed(table.delete, keys)))
    found = [Figure("dict: bytes per key", "redis-server", theirs, used, "bytes", 1 / 1.3, less_is_better=True)]
    for name, (mean, longest), (ours, our_longest) in rows:
        found.append(Figure(f"dict: {name}", "Python's dict", mean, ours, "ns", None, less_is_better=True))
        found.append(
            Figure(f"dict: longest {name}", "Python's dict", longest, our_longest, "us", None, less_is_better=True)
        )
    return found
