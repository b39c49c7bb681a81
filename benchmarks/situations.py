"""Commands in situations against redis-server: the server's CPU time of a command; above 1, rillet is cheaper.

    python -m benchmarks situations                                 the core: 9 rows, 3 columns
    python -m benchmarks situations --cells '*'                     every cell
    python -m benchmarks situations --cells 'MULTI *, KEA' --cells 'GET, *'

A row is a command and its way to the server, a column is a situation, and a cell's name is "row, column". A pipeline
contains a hundred commands: plain, between MULTI and EXEC, or as ten calls of a script that runs the command ten times.
One connection sends a pipeline and waits for its replies. The keys are few, and each pipeline of a command that adds
elements begins with a command that removes them, so no value grows except XADD's stream.

Each column of each round starts its servers anew, so no situation leaves a trace in another one. The servers take
several turns for a row, because the speed of a shared machine changes by the second. A third server, an ordinary
rillet, alternates with them: a second table compares rillet with itself, a situation with none, MULTI and Lua with the
plain pipeline. A thread reads the output for other clients.
"""

from __future__ import annotations

import hashlib
import re
import socket
import statistics
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from typing import NamedTuple

from benchmarks.durability import KEEP
from benchmarks.groups import Wire, pack
from benchmarks.harness import Figure, cpu_us, redis_server, rillet_server
from benchmarks.replication import AT_ONCE, follow
from benchmarks.server import FIVE_FIELDS

_PIPELINE = 100  # commands
_CALLS = 10  # of one script
_COMMANDS = 100_000  # that a cell measures in a round
_TURNS = 3  # of the servers, for a cell in a round
_WARMING = 10  # pipelines before each turn
GOAL = 1.0
LIMIT = 1.3  # times the ordinary cost, where a situation must cost little
_SUFFIX = ": CPU of a command"
_REDIS, _SELF, _PLAIN = "redis-server", "rillet, ordinary", "rillet, plain pipeline"

Server = tuple[int, int]  # port, process ID


class Command(NamedTuple):
    """Commands of a pipeline, repeated; {n} is the number of the repetition, {m} its last digit."""

    lines: tuple[str, ...]
    first: str = ""  # the command that begins a pipeline, and is not counted


class Row(NamedTuple):
    """A command and its way to the server."""

    way: str
    command: str

    @property
    def name(self) -> str:
        """The name in the table."""
        return f"{self.way} {self.command}".strip()


class Situation(NamedTuple):
    """What holds while the commands run."""

    name: str
    settings: tuple[str, ...] = ()  # options of both servers
    other: tuple[str, ...] = ()  # commands of another client
    own: tuple[str, ...] = ()  # commands of the client that is measured
    replica: bool = False
    limited: bool = False  # must cost at most LIMIT times the ordinary cost


_FIELDS = " ".join(FIVE_FIELDS)
COMMANDS = {
    "XADD": Command((f"XADD key:log * {_FIELDS}",)),
    "HSET": Command(("HSET key:hash field:{m} value-{n}",)),
    "SET": Command(("SET key:{m} value-of-16-byte",)),
    "ZADD": Command(("ZADD key:zset {n} member:{m}",)),
    "LPUSH": Command(("LPUSH key:list element:{n}",), "DEL key:list"),
    "SADD": Command(("SADD key:set member:{n}",), "DEL key:set"),
    "INCR": Command(("INCR key:count:{m}",)),
    "GET": Command(("GET key:{m}",)),
    "HGET": Command(("HGET key:hash field:{m}",)),
    "HGETALL": Command(("HGETALL key:flight",)),
    "ZINCRBY": Command(("ZINCRBY key:zset 1 member:{m}",)),
    "EXPIRE": Command(("EXPIRE key:{m} 1000",)),
    "XREADGROUP, XACK": Command(
        ("XREADGROUP GROUP g c COUNT 1 STREAMS key:stream >", "XACK key:stream g 1-{n}"),
        first="XGROUP SETID key:stream g 0-0",
    ),
    "XRANGE of 3": Command(("XRANGE key:stream - + COUNT 3",)),
}
_BEFORE = (
    *(f"SET key:{number} value-of-16-byte" for number in range(10)),
    *(f"HSET key:hash field:{number} value" for number in range(10)),
    *(f"ZADD key:zset {number} member:{number}" for number in range(10)),
    f"HSET key:flight {_FIELDS}",
    "XGROUP CREATE key:stream g $ MKSTREAM",
    *(f"XADD key:stream 1-{number} {_FIELDS}" for number in range(1, 1 + _PIPELINE)),
)
"""The data that every cell begins with."""
MULTI, LUA = "MULTI", "Lua"
_MAIN = ("XADD", "HSET", "SET", "ZADD")
ROWS = tuple(Row(way, command) for command in COMMANDS for way in ("", MULTI, LUA) if way != LUA or command in _MAIN)

ORDINARY = Situation("ordinary")
SITUATIONS = (
    ORDINARY,
    Situation("BCAST", other=("HELLO 3", "CLIENT TRACKING ON BCAST")),
    Situation("KEA", ("--notify-keyspace-events", "KEA")),
    Situation("BCAST other:", other=("HELLO 3", "CLIENT TRACKING ON BCAST PREFIX other:"), limited=True),
    Situation("WATCH", other=("WATCH other:key",), limited=True),
    Situation("RESP3", own=("HELLO 3",), limited=True),
    Situation("ACL", other=("ACL SETUSER u on nopass ~user:* ~key:* +@all",), own=("AUTH u -",), limited=True),
    Situation("MONITOR", other=("MONITOR",)),
    Situation("slow log 0", ("--slowlog-log-slower-than", "0")),
    Situation("replica", AT_ONCE, replica=True),
    Situation("maxmemory", ("--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru")),
    Situation("everysec", ("--appendonly", "yes", "--appendfsync", "everysec", *KEEP)),
)
_CORE_ROWS = (*(Row(way, command) for command in _MAIN for way in ("", MULTI)), Row(LUA, "XADD"))
_CORE_SITUATIONS = SITUATIONS[:3]


def name(situation: Situation, row: Row) -> str:
    """Return the name of a cell, as `--cells` matches it."""
    return f"{row.name}, {situation.name}"


def selected(patterns: Sequence[str]) -> dict[Situation, list[Row]]:
    """Return the rows to measure by situation: those that match a pattern, or the core."""
    if not patterns:
        return dict.fromkeys(_CORE_SITUATIONS, list(_CORE_ROWS))
    chosen = {
        situation: [row for row in ROWS if any(fnmatchcase(name(situation, row), pattern) for pattern in patterns)]
        for situation in SITUATIONS
    }
    return {situation: rows for situation, rows in chosen.items() if rows}


# -- measuring ---------------------------------------------------------------------------------------------


def pipeline(row: Row) -> tuple[bytes, bytes]:
    """Return the commands that prepare a row, and one pipeline."""
    lines, first = COMMANDS[row.command]
    made = [line.format(n=n, m=n % 10) for n in range(1, 1 + _PIPELINE // len(lines)) for line in lines]
    before = pack(*first.split()) if first else b""
    if row.way != LUA:
        body = b"".join(pack(*line.split()) for line in made)
        return b"", before + (pack("MULTI") + body + pack("EXEC") if row.way == MULTI else body)
    words = lines[0].split()
    values = ["i" if "{n}" in word else f"ARGV[{number}]" for number, word in enumerate(words[2:], 1)]
    source = f"for i = 1, {_CALLS} do redis.call('{words[0]}', KEYS[1], {', '.join(values)}) end"
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    calls = [pack("EVALSHA", sha, 1, *line.split()[1:]) for line in made[:: _CALLS + 1]]
    return pack("SCRIPT", "LOAD", source), before + b"".join(calls)


def cost(server: Server, situation: Situation, row: Row, pipelines: int) -> float:
    """Return the microseconds of the server's CPU for a command of a cell."""
    port, pid = server
    script, packed = pipeline(row)
    before = [pack(*line.split()) for line in (*situation.own, "FLUSHALL SYNC", *_BEFORE)]
    with Wire(port) as wire:
        for burst in (b"".join(before) + script, packed):
            _succeed(wire, burst)
        for number in range(_WARMING + pipelines):
            if number == _WARMING:
                began = cpu_us(pid)
            wire.wait(wire.send(packed))
        return (cpu_us(pid) - began) / (pipelines * _PIPELINE)


def _succeed(wire: Wire, packed: bytes) -> None:
    """Run commands; AssertionError if one failed."""
    end = wire.send(packed)
    replies = b""
    while not replies.endswith(end):
        received = wire.socket.recv(1 << 16)
        assert received, "the server closed the connection"
        replies += received
    error = re.search(rb"(?:^|\r\n)-[A-Z]+ .*", replies)
    assert error is None, error


@contextmanager
def _prepared(situation: Situation, server: Server) -> Iterator[None]:
    """Let a situation hold on one server."""
    port, _pid = server
    with ExitStack() as stack:
        if situation.replica:
            replica, _ = stack.enter_context(redis_server())
            follow(replica, port)
        if situation.other:
            other = stack.enter_context(Wire(port))
            for line in situation.other:
                other.socket.sendall(pack(*line.split()))
                reply = other.socket.recv(1 << 16)
                assert reply[:1] not in (b"", b"-"), reply
            stack.enter_context(_reading(other))
        yield


@contextmanager
def _reading(wire: Wire) -> Iterator[None]:
    """Read and discard the output for a client."""
    wire.socket.settimeout(None)

    def read() -> None:
        while wire.socket.recv_into(wire.buffer):
            pass

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        wire.socket.shutdown(socket.SHUT_RDWR)
        thread.join()


def run(rounds: int, scale: float, cells: Sequence[str] = ()) -> list[Figure]:
    """Measure the cells whose names match a pattern, or the core."""
    pipelines = max(1, int(_COMMANDS * scale) // (_PIPELINE * _TURNS))
    measured: dict[tuple[Situation, Row], list[tuple[float, float, float]]] = {}
    for _ in range(rounds):
        for situation, rows in selected(cells).items():
            with _servers(situation) as (peer, own, ordinary):
                for row in [row for row in rows for _ in range(_TURNS)]:
                    costs = (
                        cost(peer, situation, row, pipelines),
                        cost(own, situation, row, pipelines),
                        cost(ordinary, ORDINARY, _beside(situation, row), pipelines),
                    )
                    measured.setdefault((situation, row), []).append(costs)
    return [figure for cell, costs in measured.items() for figure in _figures(*cell, costs)]


@contextmanager
def _servers(situation: Situation) -> Iterator[tuple[Server, Server, Server]]:
    """Start redis-server and rillet in a situation, and an ordinary rillet."""
    with (
        redis_server(*situation.settings) as peer, rillet_server("compiled", *situation.settings) as own,
        rillet_server() as ordinary, _prepared(situation, peer), _prepared(situation, own),
    ):  # fmt: skip
        yield peer, own, ordinary


def _beside(situation: Situation, row: Row) -> Row:
    """Return the ordinary row that a cell of rillet is compared with."""
    return row if situation != ORDINARY else Row("", row.command)


def _figures(situation: Situation, row: Row, costs: list[tuple[float, float, float]]) -> list[Figure]:
    """Return a cell beside redis-server, and beside an ordinary rillet, where they differ."""
    peer, own, ordinary = (statistics.median(side) for side in zip(*costs, strict=True))
    what = f"{name(situation, row)}{_SUFFIX}"
    figures = [Figure(what, _REDIS, peer, own, "µs", GOAL, less_is_better=True)]
    if situation != ORDINARY or row.way:
        limited = situation.limited or (situation == ORDINARY and row.way == MULTI)
        against = _PLAIN if situation == ORDINARY else _SELF
        least = round(1 / LIMIT, 2) if limited else None
        figures.append(Figure(what, against, ordinary, own, "µs", least, less_is_better=True))
    return figures


# -- the tables --------------------------------------------------------------------------------------------


def is_cell(what: str) -> bool:
    """Return whether the figure of this name is a cell."""
    return what.endswith(_SUFFIX)


def tables(figures: Sequence[Figure]) -> tuple[str, str]:
    """Return two tables in Markdown: redis-server's cost over rillet's, and rillet's cost over its ordinary cost."""
    found = [figure for figure in figures if is_cell(figure.what)]
    limited = ", ".join((MULTI, *(situation.name for situation in SITUATIONS if situation.limited)))
    return (
        _table(
            f"CPU of redis-server / CPU of rillet, for a command; the goal is {GOAL} or more:",
            {figure.what: figure.ratio for figure in found if figure.peer_name == _REDIS},
        ),
        _table(
            "CPU of rillet / its CPU in an ordinary situation; in the first column, / that of the plain pipeline.\n"
            f"The goal for {limited} is {LIMIT} or less:",
            {figure.what: 1 / figure.ratio for figure in found if figure.peer_name != _REDIS},
        ),
    )


def _table(caption: str, values: dict[str, float]) -> str:
    cells = {
        (situation, row): f"{values[what]:.2f}"
        for situation in SITUATIONS
        for row in ROWS
        if (what := f"{name(situation, row)}{_SUFFIX}") in values
    }
    columns = [situation for situation in SITUATIONS if any(situation == found for found, _ in cells)]
    lines = [
        caption,
        "",
        f"| | {' | '.join(situation.name for situation in columns)} |",
        "|---" * (1 + len(columns)) + "|",
    ]
    for row in ROWS:
        if any(row == found for _, found in cells):
            lines.append(f"| {row.name} | {' | '.join(cells.get((situation, row), '') for situation in columns)} |")
    return "\n".join(lines)


__all__ = ["is_cell", "run", "selected", "tables"]
