"""Consumer groups and growth against redis-server: reads and acknowledgements, claims, many waiting clients.

A minimal client drives both sides: commands are packed before the clock starts, and a burst ends with a PING whose echo
marks the end of the replies, so nothing is parsed.
"""

from __future__ import annotations

import random
import resource
import socket
import statistics
import time
from collections.abc import Callable, Iterable
from functools import partial

from benchmarks.harness import (
    Figure,
    alternate,
    redis_benchmark,
    redis_server,
    resident_bytes,
    rillet_server,
)
from benchmarks.memory import fill
from rillet.protocol.command_parser import pack_command

START_MS = 1_700_000_000_000  # the time of the first ID that `fill` adds
STEP_MS = 13
PENDING_BYTES_OF_REDIS = 100_000
WAITING = 10_000


class Wire:
    """A connection that sends packed commands and waits for the end of their replies."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(120)
        self.buffer = bytearray(1 << 20)
        self.bursts = 0

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, packed: bytes) -> bytes:
        """Send commands and a PING; return the bytes that end the replies."""
        self.bursts += 1
        token = b"end-of-burst-%08d" % self.bursts
        self.socket.sendall(packed + pack_command([b"PING", token]))
        return token + b"\r\n"

    def wait(self, end: bytes) -> None:
        """Receive until the end of the replies."""
        tail = b""
        while not tail.endswith(end):
            count = self.socket.recv_into(self.buffer)
            assert count, "the server closed the connection"
            tail = (tail + self.buffer[max(0, count - len(end)) : count])[-len(end) :]

    def run(self, *commands: Iterable[bytes | str | int]) -> None:
        """Run commands and wait for their replies."""
        self.wait(self.send(b"".join(pack(*command) for command in commands)))


def pack(*words: bytes | str | int) -> bytes:
    """Return one command as RESP."""
    return pack_command([word if isinstance(word, bytes) else str(word).encode() for word in words])


def small_stream(wire: Wire, key: str, count: int) -> None:
    """Add `count` entries of one short field, with the IDs 1-1, 2-1 ..."""
    for start in range(1, count + 1, 10_000):
        ids = range(start, min(start + 10_000, count + 1))
        wire.wait(wire.send(b"".join(pack("XADD", key, f"{ms}-1", "f", ms) for ms in ids)))


def make_pending(wire: Wire, key: str, count: int, group: str = "g", consumer: str = "c") -> None:
    """Recreate the group and let the consumer read `count` entries from the beginning."""
    wire.run(("XGROUP", "DESTROY", key, group), ("XGROUP", "CREATE", key, group, 0))
    for start in range(0, count, 10_000):
        wire.run(("XREADGROUP", "GROUP", group, consumer, "COUNT", min(10_000, count - start), "STREAMS", key, ">"))


def rate(wire: Wire, packed: bytes, count: int) -> float:
    """Return the number of commands per second."""
    begin = time.perf_counter()
    wire.wait(wire.send(packed))
    return count / (time.perf_counter() - begin)


# -- reading and acknowledging ---------------------------------------------------------------------------


def read_and_acknowledge(port: int, entries: int) -> float:
    """Eight consumers read 100 entries each in turn and acknowledge them; entries per second."""
    with Wire(port) as admin:
        admin.run(("XGROUP", "DESTROY", "stream", "g"), ("XGROUP", "CREATE", "stream", "g", 0))
    wires = [Wire(port) for _ in range(8)]
    reads = [pack("XREADGROUP", "GROUP", "g", f"c{n}", "COUNT", 100, "STREAMS", "stream", ">") for n in range(8)]
    acks = []
    for start in range(0, entries, 100):
        ids = [f"{START_MS + number * STEP_MS}-0" for number in range(start, start + 100)]
        acks.append(pack("XACK", "stream", "g", *ids))
    begin = time.perf_counter()
    for start in range(0, len(acks), 8):
        for part in (reads, acks[start : start + 8]):
            ends = [wire.send(packed) for wire, packed in zip(wires, part, strict=True)]
            for wire, end in zip(wires, ends, strict=True):
                wire.wait(end)
    spent = time.perf_counter() - begin
    for wire in wires:
        wire.socket.close()
    return entries / spent


# -- costs by the number of pending entries ----------------------------------------------------------------


def acknowledge(port: int, pending: int) -> float:
    """Measure XACK of one entry, in random order; return commands per second."""
    some = min(pending // 2, 20_000)
    rates = []
    with Wire(port) as wire:
        for _ in range(max(1, 5_000 // some)):
            make_pending(wire, f"small{pending}", pending)
            ids = random.Random(pending).sample(range(1, pending + 1), some)
            rates.append(rate(wire, b"".join(pack("XACK", f"small{pending}", "g", f"{ms}-1") for ms in ids), some))
        make_pending(wire, f"small{pending}", pending)
    return statistics.median(rates)


def _over(pending: int, port: int, command: Callable[[random.Random], tuple[bytes | str | int, ...]]) -> float:
    source = random.Random(3)
    packed = [pack(*command(source)) for _ in range(5_000)]
    with Wire(port) as wire:
        return rate(wire, b"".join(packed), len(packed))


def claim(port: int, pending: int) -> float:
    """Measure XCLAIM of one entry by one of two consumers; return commands per second."""
    key = f"small{pending}"
    return _over(pending, port, lambda source: (
        "XCLAIM", key, "g", source.choice("de"), 0, f"{source.randint(1, pending)}-1"))  # fmt: skip


def autoclaim(port: int, pending: int) -> float:
    """Measure XAUTOCLAIM of ten entries from a random ID; return commands per second."""
    key = f"small{pending}"
    return _over(pending, port, lambda source: (
        "XAUTOCLAIM", key, "g", source.choice("de"), 0, source.randint(1, pending), "COUNT", 10))  # fmt: skip


def list_pending(port: int, pending: int) -> float:
    """Measure XPENDING of ten entries from a random ID; return commands per second."""
    key = f"small{pending}"
    return _over(pending, port, lambda source: (
        "XPENDING", key, "g", source.randint(1, pending), "+", 10))  # fmt: skip


COSTS = (
    ("XACK", acknowledge, None),
    ("XCLAIM", claim, 1.0),
    ("XAUTOCLAIM COUNT 10", autoclaim, 1.0),
    ("XPENDING of 10", list_pending, None),
)


def costs(peer: int, own: int, rounds: int, scale: float, mode: str) -> list[Figure]:
    """Measure commands on pending entries while their number grows a thousandfold."""
    figures = []
    for pending in (1_000, max(2_000, int(1_000_000 * scale))):
        for port in (peer, own):
            with Wire(port) as wire:
                small_stream(wire, f"small{pending}", pending)
                make_pending(wire, f"small{pending}", pending)
        for what, measure, target in COSTS:
            theirs, ours = alternate(rounds, partial(measure, peer, pending), partial(measure, own, pending))
            goal = target if mode == "compiled" and pending > 1_000 else None
            figures.append(
                Figure(f"{what}, {pending:,} pending", "redis-server", theirs, ours, "requests/s", goal, mode)
            )
    return figures


def bytes_of_pending(port: int, pid: int, count: int) -> float:
    """Return the process growth in bytes per entry that becomes pending."""
    with Wire(port) as wire:
        small_stream(wire, "weighed", count)
        wire.run(("XGROUP", "CREATE", "weighed", "g", 0))
        before = resident_bytes(pid)
        for _ in range(0, count, 100):
            wire.run(("XREADGROUP", "GROUP", "g", "c", "COUNT", 100, "STREAMS", "weighed", ">"))
        return (resident_bytes(pid) - before) / count


# -- many waiting clients ----------------------------------------------------------------------------------


def until_blocked(wire: Wire, count: int) -> None:
    """Wait until that many clients are blocked."""
    reply = b""
    while b"blocked_clients:%d\r" % count not in reply:
        wire.socket.sendall(pack("INFO", "clients"))
        reply = wire.socket.recv(1 << 16)


def waking(port: int, waiting: int, wakes: int) -> tuple[float, float]:
    """Return p50 and p99 in µs from XADD until the longest-waiting client in XREADGROUP has the entry."""
    with Wire(port) as writer:
        writer.run(("DEL", "waited"), ("XGROUP", "CREATE", "waited", "g", "$", "MKSTREAM"))
        clients = []
        reads = []
        for number in range(waiting):
            client = socket.create_connection(("127.0.0.1", port))
            client.settimeout(60)
            reads.append(pack("XREADGROUP", "GROUP", "g", f"c{number}", "BLOCK", 0, "STREAMS", "waited", ">"))
            client.sendall(reads[-1])
            clients.append(client)
        ids = 1
        spent = []
        until_blocked(writer, waiting)
        for wake in range(wakes + 50):
            client = clients[wake % waiting]
            packed = pack("XADD", "waited", f"{ids}-1", "f", "v")
            ids += 1
            begin = time.perf_counter()
            writer.socket.sendall(packed)
            reply = client.recv(4096)
            spent.append((time.perf_counter() - begin) * 1e6)
            assert b"waited" in reply, reply
            writer.wait(b"-1\r\n")
            client.sendall(reads[wake % waiting])
        for client in clients:
            client.close()
    ordered = sorted(spent[50:])
    return ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]


def waits(rounds: int, scale: float, mode: str) -> list[Figure]:
    """Measure both servers with ten thousand blocked clients."""
    waiting = max(200, int(WAITING * scale))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    found: dict[int, list[tuple[float, float]]] = {0: [], 1: []}
    try:
        for _ in range(rounds):
            room = ("--maxclients", "20000")
            for side, server in enumerate((redis_server(*room), rillet_server(mode, *room))):
                with server as (port, _):
                    found[side].append(waking(port, waiting, 2_000))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    figures = []
    for which, name in enumerate(("p50", "p99")):
        peer, own = (statistics.median(pair[which] for pair in found[side]) for side in (0, 1))
        goal = 1.0 if mode == "compiled" else None
        what = f"{waiting:,} clients wait in XREADGROUP, XADD wakes one, {name}"
        figures.append(Figure(what, "redis-server", peer, own, "µs", goal, mode, True))
    return figures


# -- growth ----------------------------------------------------------------------------------------------


def growth(rounds: int, scale: float, mode: str) -> list[Figure]:
    """Compare a stream of ten million entries with one of ten thousand: the peer is rillet itself."""
    sizes = (10_000, max(20_000, int(10_000_000 * scale)))
    goal = round(1 / 1.2, 2) if mode == "compiled" else None
    source = random.Random(5)
    with rillet_server(mode) as (port, _), Wire(port) as wire:
        for size in sizes:
            small_stream(wire, f"grown{size}", size)

        def add(size: int) -> float:
            count = max(2_000, int(400_000 * scale))
            return redis_benchmark(port, count, 50, 64, ["XADD", f"grown{size}", "*", "f", "v"])

        def read(size: int) -> float:
            starts = [source.randint(1, size - 10) for _ in range(20_000)]
            packed = [pack("XRANGE", f"grown{size}", start, "+", "COUNT", 10) for start in starts]
            return rate(wire, b"".join(packed), len(packed))

        def ack(size: int) -> float:
            make_pending(wire, f"grown{size}", 10_000)
            ids = source.sample(range(1, 10_001), 5_000)
            return rate(wire, b"".join(pack("XACK", f"grown{size}", "g", f"{ms}-1") for ms in ids), len(ids))

        figures = []
        for what, measure in (("XADD", add), ("XRANGE of 10", read), ("XACK", ack)):
            small, large = alternate(rounds, partial(measure, sizes[0]), partial(measure, sizes[1]))
            name = f"{what}, {sizes[1]:,} entries"
            figures.append(Figure(name, f"rillet, {sizes[0]:,}", small, large, "requests/s", goal, mode))
    return figures


def run(rounds: int, mode: str, scale: float) -> list[Figure]:
    """Measure all rows about groups; parts that measure memory start separate servers."""
    entries = max(1_600, int(160_000 * scale) // 800 * 800)
    compiled = mode == "compiled"
    with redis_server() as (peer, peer_pid), rillet_server(mode) as (own, own_pid):
        for port in (peer, own):
            fill(port, "stream", entries)
        theirs, ours = alternate(
            rounds, lambda: read_and_acknowledge(peer, entries), lambda: read_and_acknowledge(own, entries)
        )
        what = "XREADGROUP COUNT 100 and XACK of them, 8 consumers"
        figures = [Figure(what, "redis-server", theirs, ours, "entries/s", 1.2 if compiled else None, mode)]
        figures += costs(peer, own, rounds, scale, mode)
    with redis_server() as (peer, peer_pid), rillet_server(mode) as (own, own_pid):
        count = max(10_000, int(PENDING_BYTES_OF_REDIS * scale))
        theirs, ours = bytes_of_pending(peer, peer_pid, count), bytes_of_pending(own, own_pid, count)
        goal = 1.0 if compiled else None
        figures.append(
            Figure("bytes per pending entry, process growth", "redis-server", theirs, ours, "bytes", goal, mode, True)
        )
    figures += waits(rounds, scale, mode)
    return figures + growth(rounds, scale, mode)
