"""Replication beside Redis: full synchronisations, and the processor time of following and of feeding replicas.

full sync           seconds from REPLICAOF to master_link_status:up, of a stream of entries
    as master       the replica is redis-server; the masters are redis-server and rillet
    as replica      the master is redis-server; the replicas are redis-server and rillet, through a file
following           one redis-server master with both replicas at once, under redis-benchmark -P 64; processor time of
                    each replica for a command, and how many commands a second the master takes until both have all
feeding             processor time of a master for a command with two replicas of redis-server, beside that without

The servers share the machine. Processor time is the figure that other programs change least.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator

import redis

from benchmarks.harness import Figure, alternate, cpu_us, redis_benchmark, redis_server, rillet_server
from benchmarks.memory import fill

_ENTRIES = 5_000_000
_STREAMS = 10
_COMMANDS = 1_000_000
_LONGEST = 600.0  # seconds
_FIELDS = ["f1", "value-1", "f2", "value-2", "f3", "value-3"]
AT_ONCE = ("--repl-diskless-sync-delay", "0", "--client-output-buffer-limit", "replica 0 0 0")
KINDS = {
    "XADD": [["XADD", "bench", "*", *_FIELDS]],
    "SET": [["-r", "100000", "SET", "key:__rand_int__", "value-of-16-byte"]],
    "a mix": [
        ["-r", "100000", "HSET", "hash:__rand_int__", "field", "value"],
        ["-r", "1000", "LPUSH", "list:__rand_int__", "v"],
        ["-r", "100000", "ZADD", "zset", "5", "m:__rand_int__"], ["-r", "100000", "SADD", "set", "m:__rand_int__"],
        ["-r", "1000", "INCR", "count:__rand_int__"], ["-r", "1000", "RPOP", "list:__rand_int__"],
        ["-r", "100000", "SET", "key:__rand_int__", "v", "EX", "1000"],
        ["-r", "100000", "EXPIRE", "key:__rand_int__", "99"],
    ],
}  # fmt: skip


def _client(port: int) -> redis.Redis:
    made = redis.Redis(host="127.0.0.1", port=port, protocol=2)
    made.response_callbacks.clear()
    return made


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LONGEST
    while not condition():
        assert time.monotonic() < deadline, "a replica did not follow in time"
        threading.Event().wait(0.005)


def _is_up(replica: redis.Redis) -> bool:
    return b"master_link_status:up" in replica.execute_command("INFO", "replication")


def follow(replica: int, master: int) -> float:
    """Make a server follow another one; return the seconds of the full synchronisation."""
    one = _client(replica)
    began = time.perf_counter()
    one.execute_command("REPLICAOF", "127.0.0.1", str(master))
    _until(lambda: _is_up(one))
    return time.perf_counter() - began


def _leave(replica: int) -> None:
    one = _client(replica)
    one.execute_command("REPLICAOF", "NO", "ONE")
    one.execute_command("FLUSHALL")


def _rate(replica: int, master: int, entries: int) -> float:
    """Return the entries a second of one full synchronisation."""
    seconds = follow(replica, master)
    _leave(replica)
    return entries / seconds


def _full(rounds: int, mode: str, scale: float) -> Iterator[Figure]:
    entries = max(int(_ENTRIES * scale) // _STREAMS, 2_000) * _STREAMS
    with (redis_server(*AT_ONCE) as (theirs, _), rillet_server(mode, *AT_ONCE) as (ours, _),
          redis_server() as (replica, _), rillet_server(mode) as (own_replica, _)):  # fmt: skip
        for number in range(_STREAMS):
            for port in (theirs, ours):
                fill(port, f"stream:{number}", entries // _STREAMS)
        peer, own = alternate(rounds, lambda: _rate(replica, theirs, entries), lambda: _rate(replica, ours, entries))
        yield Figure(f"full sync of {entries:,} entries, as master", "redis-server", peer, own, "entries/s", 0.7, mode)
        peer, own = alternate(rounds, lambda: _rate(replica, theirs, entries),
                              lambda: _rate(own_replica, theirs, entries))  # fmt: skip
        yield Figure(f"full sync of {entries:,} entries, as replica", "redis-server", peer, own, "entries/s", 1.0, mode)


def _load(port: int, kind: str, count: int) -> None:
    for command in KINDS[kind]:
        redis_benchmark(port, count // len(KINDS[kind]), 50, 64, command)


def _following(rounds: int, mode: str, scale: float) -> Iterator[Figure]:
    count = max(int(_COMMANDS * scale), 20_000)
    with (redis_server(*AT_ONCE) as (master, _), redis_server() as (theirs, their_pid),
          rillet_server(mode) as (ours, own_pid)):  # fmt: skip
        one = redis.Redis(host="127.0.0.1", port=master, protocol=2, single_connection_client=True)
        for port in (theirs, ours):
            follow(port, master)
        for kind in KINDS:
            peers, own, rates = [], [], []
            for _ in range(rounds):
                before = cpu_us(their_pid), cpu_us(own_pid)
                began = time.perf_counter()
                _load(master, kind, count)
                loaded = time.perf_counter() - began
                one.set("end", "1")
                assert one.execute_command("WAIT", 2, int(_LONGEST * 1000)) == 2
                rates.append((loaded, time.perf_counter() - began))
                peers.append((cpu_us(their_pid) - before[0]) / count)
                own.append((cpu_us(own_pid) - before[1]) / count)
            yield Figure(f"following a master under {kind} -P 64: CPU", "redis-server", statistics.median(peers),
                         statistics.median(own), "µs", 1 / 1.2, mode, less_is_better=True)  # fmt: skip
            yield Figure(f"following a master under {kind} -P 64: its rate, and that until both replicas have all",
                         "redis-server", count / statistics.median(rate[0] for rate in rates),
                         count / statistics.median(rate[1] for rate in rates), "/s", 0.95, mode)  # fmt: skip


def _cost(port: int, pid: int, kind: str, count: int) -> float:
    """Return the processor time of a master for a command."""
    before = cpu_us(pid)
    _load(port, kind, count)
    _client(port).execute_command("SET", "end", "1")
    return (cpu_us(pid) - before) / count


def _feeding(rounds: int, mode: str, scale: float) -> Iterator[Figure]:
    count = max(int(_COMMANDS * scale), 20_000)
    kept: dict[str, dict[str, list[float]]] = {kind: {"theirs": [], "ours": []} for kind in ("XADD", "SET")}
    for _ in range(rounds):
        for kind in kept:
            with contextlib.ExitStack() as stack:
                masters = {"theirs": stack.enter_context(redis_server(*AT_ONCE)),
                           "ours": stack.enter_context(rillet_server(mode, *AT_ONCE))}  # fmt: skip
                alone = {name: _cost(*master, kind, count) for name, master in masters.items()}
                for name, (port, pid) in masters.items():
                    replicas = [stack.enter_context(redis_server())[0] for _ in range(2)]
                    for replica in replicas:
                        follow(replica, port)
                    kept[kind][name].append(alone[name] / _cost(port, pid, kind, count))
                    for replica in replicas:
                        _leave(replica)
    for kind, shares in kept.items():
        yield Figure(f"share of its rate (by CPU) that a master with two replicas keeps, {kind} -P 64", "redis-server",
                     statistics.median(shares["theirs"]), statistics.median(shares["ours"]), "share", None,
                     mode)  # fmt: skip


def run(rounds: int, mode: str, scale: float) -> list[Figure]:
    """Return the figures beside redis-server."""
    return [*_full(rounds, mode, scale), *_following(rounds, mode, scale), *_feeding(rounds, mode, scale)]


__all__ = ["AT_ONCE", "follow", "run"]
