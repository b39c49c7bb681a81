"""A fuzzer of RESTORE: it mutates genuine payloads of every type, fixes their checksum, restores and uses them.

    python -m tests.types.fuzz_restore COUNT [SEED]                     to test the compiled build, set PYTHONPATH
    python -m tests.types.fuzz_restore COUNT [SEED] --all               every type, not only streams
    python -m tests.types.fuzz_restore COUNT [SEED] --against SERVER    compare with what a real server accepts

A payload is recorded as its lengths, strings and times (`Recorder`), so that a mutation changes one of them and the
rest stays readable: a count that is wrong by one or absurd, a pending entry with two owners, a listpack whose values
contradict each other. Other mutations change random bytes. The version and checksum are corrected afterward, because
RESTORE would otherwise reject the payload before it reads the value.

Invariants: RESTORE replies OK or `ERR Bad data format` and raises nothing else; its memory is proportional to the
payload. An accepted value is valid (`check`), restoring its DUMP gives the same value, and it stays valid under every
command of its type. A failure prints the seed of its case, and `case` runs that case again.

"""

from __future__ import annotations

import argparse
import random
import re
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import redis

import rillet
from rillet.errors import Corrupt
from rillet.structs.crc64 import crc64
from rillet.structs.listpack import Listpack
from rillet.types.compat import COMPATS
from rillet.types.digest import value_digest
from rillet.types.rdb import value as rdb
from rillet.types.rdb.primitives import RdbWriter
from rillet.types.rdb.stream import STREAM_TYPES, save_stream
from rillet.types.stream.stream import Stream
from rillet.types.stream.validation import LivingEntries
from tests.commands.ends import Bench
from tests.judge import running_redis
from tests.types import genuine_values
from tests.types.genuine import build

EXTREMES = (0, 1, 2, 63, 64, 100, 16383, 16384, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1)
VERSIONS = (10, 11, 12, 13, 14, 80)
REFUSED = "ERR Bad data format"
# Payloads are small, so that a case is fast and a mutation probably has an effect.
LARGEST = 2000
MEMORY_PER_BYTE = 600
MEMORY_AT_ALL = 16 << 20

Token = tuple[str, Any]


class Recorder(RdbWriter):
    """A writer that records the parts of a value instead of their bytes."""

    def __init__(self) -> None:
        super().__init__(False)
        self.tokens: list[Token] = []

    def raw(self, data: bytes | bytearray) -> bool:
        """Record bytes."""
        return self._note("raw", bytes(data))

    def raw_id(self, ms: int, seq: int) -> bool:
        """Record the bytes of an ID."""
        return self._note("raw", (ms << 64 | seq).to_bytes(16, "big"))

    def length(self, n: int) -> bool:
        """Record a length."""
        return self._note("length", n)

    def string(self, data: bytes) -> bool:
        """Record a string."""
        return self._note("string", data)

    def buffer(self, data: bytearray, size: int) -> bool:
        """Record a string from a buffer."""
        return self._note("string", bytes(data[:size]))

    def milliseconds(self, ms: int) -> bool:
        """Record a time."""
        return self._note("milliseconds", ms)

    def _note(self, method: str, value: Any) -> bool:
        self.tokens.append((method, value))
        return True


def pool(seed: int, size: int = 12) -> list[tuple[int, list[Token]]]:
    """Return (type, tokens) of genuine streams, `size` of each type."""
    found: list[tuple[int, list[Token]]] = []
    bench = Bench(compat="newest")
    number = seed * 1000
    while len(found) < size * len(STREAM_TYPES):
        number += 1
        build(bench, "newest", number)
        stream = bench.engine.databases[0].peek(b"s")
        for kind in STREAM_TYPES:
            recorder = Recorder()
            save_stream(recorder, stream, kind)
            if len(written(recorder.tokens, False)) < LARGEST:
                found.append((kind, recorder.tokens))
    return found


def pool_of_all(seed: int, size: int = 12) -> list[tuple[int, list[Token]]]:
    """Return (type, tokens) of genuine values of every type, the same number of each."""
    found = pool(seed, size)
    source = random.Random(seed)
    for kind in genuine_values.KINDS:
        found += [(kind, genuine_values.tokens(kind, source)) for _ in range(size)]
    return found


def written(tokens: list[Token], compression: bool) -> bytes:
    """Return the tokens as bytes."""
    out = RdbWriter(compression)
    for method, value in tokens:
        getattr(out, method)(value)
    return bytes(out.out)


def sealed(kind: int, body: bytes, version: int) -> bytes:
    """Return a DUMP payload of the type and body."""
    payload = bytes((kind,)) + body + version.to_bytes(2, "little")
    return payload + crc64(payload).to_bytes(8, "little")


# -- mutations -------------------------------------------------------------------------------------------


def _length(source: random.Random, value: int, tokens: list[Token]) -> int:
    others = [other for method, other in tokens if method == "length"]
    near = (value + source.choice((-2, -1, 1, 2, 10))) % 2**64
    return source.choice((near, near, near, source.choice(EXTREMES), source.choice(others), source.getrandbits(64)))


def _bytes(source: random.Random, value: bytes, tokens: list[Token]) -> bytes:
    """Return other bytes, mostly of the same length, so that the following parts can be read."""
    others = [other for method, other in tokens if method in ("raw", "string") and len(other) == len(value)]
    if others and source.random() < 0.5:
        return bytes(source.choice(others))
    changed = bytearray(value)
    for _ in range(source.choice((1, 1, 2, 5))):
        if changed:
            changed[source.randrange(len(changed))] = source.choice((0, 1, 127, 128, 255, source.randrange(256)))
    return bytes(changed)


def _string(source: random.Random, value: bytes, tokens: list[Token]) -> bytes:
    choice = source.random()
    if len(value) > 30 and choice < 0.7:
        return _node(source, value)
    if choice < 0.9:
        return _bytes(source, value, tokens)
    return source.choice((b"", value[:-1], value + b"\0", value * 2, b"12", source.randbytes(16)))


def _node(source: random.Random, value: bytes) -> bytes:
    """Return a node's listpack with either changed values or changed bytes."""
    if source.random() < 0.3:
        changed = bytearray(_bytes(source, value, []))
        changed[:4] = len(changed).to_bytes(4, "little")
        return bytes(changed)
    try:
        values: list[Any] = list(Listpack.from_bytes(value).values())
    except Corrupt:
        return value
    for _ in range(source.choice((1, 1, 2))):
        at = source.randrange(len(values))
        action = source.randrange(6)
        if action == 0:
            del values[at]
        elif action == 1:
            values.insert(at, values[source.randrange(len(values))])
        elif action == 2 and at + 1 < len(values):
            values[at], values[at + 1] = values[at + 1], values[at]
        elif isinstance(values[at], int):
            near = values[at] + source.choice((-2, -1, 1, 2))
            values[at] = source.choice((near, near, -values[at], 2**63 - 1, -(2**63), 0, b"text"))
        else:
            values[at] = source.choice((0, b"", b"-1", b"9" * 30))
        if not values:
            break
    made = Listpack()
    for one in values:
        made.append(str(one).encode() if isinstance(one, int) else bytes(one))
    return made.to_bytes()


def mutate_tokens(source: random.Random, tokens: list[Token]) -> None:
    """Change, remove, repeat or reorder parts."""
    action = source.random()
    at = source.randrange(len(tokens))
    method, value = tokens[at]
    if action < 0.75:
        if method == "length":
            tokens[at] = (method, _length(source, value, tokens))
        elif method == "milliseconds":
            tokens[at] = (method, source.choice((0, -1, 1, 2**63 - 1, -(2**63), value & 0xFFFF)))
        elif method == "string":
            tokens[at] = (method, _string(source, value, tokens))
        else:
            tokens[at] = (method, _bytes(source, value, tokens))
        return
    end = at + source.choice((1, 1, 2, 3, 8))
    if action < 0.83:
        del tokens[at:end]
    elif action < 0.91:
        tokens[at:at] = tokens[at:end]
    elif action < 0.96:
        tokens[at:end] = reversed(tokens[at:end])
    else:
        # A count that is wrong by one.
        tokens[at:end] = [("length", len(tokens[at:end])), *tokens[at:end]]


def mutate_bytes(source: random.Random, body: bytes) -> bytes:
    """Return the bytes with a few changed, removed or inserted, or truncated."""
    changed = bytearray(body)
    for _ in range(source.choice((1, 1, 1, 2, 4))):
        at = source.randrange(len(changed) + 1)
        action = source.randrange(5)
        if action == 0:
            del changed[at : at + source.choice((1, 1, 2, 16))]
        elif action == 1:
            changed[at:at] = source.randbytes(source.choice((1, 1, 2, 16)))
        elif action == 2:
            del changed[at:]
        elif at < len(changed):
            changed[at] = source.choice((0, 0x3F, 0x40, 0x80, 0x81, 0xC0, 0xC3, 0xFF, source.randrange(256)))
    return bytes(changed)


def mutated(source: random.Random, genuine: list[tuple[int, list[Token]]]) -> bytes:
    """Return a genuine payload with one or a few mutations."""
    kind, tokens = source.choice(genuine)
    tokens = list(tokens)
    way = source.random()
    if way < 0.8:
        for _ in range(source.choice((1, 1, 1, 2, 3))):
            if tokens:
                mutate_tokens(source, tokens)
    body = written(tokens, source.random() < 0.3)
    if way > 0.75:
        body = mutate_bytes(source, body)
    if source.random() < 0.03:
        kind = source.choice((*STREAM_TYPES, *genuine_values.KINDS, source.randrange(256)))
    return sealed(kind, body, source.choice(VERSIONS))


# -- use of an accepted payload ------------------------------------------------------------------------


def _exercise(bench: Bench, stream: Stream, source: random.Random) -> None:
    """Run all kinds of stream commands on the key, in random order, and check the stream."""
    groups = sorted(stream.groups)
    group = source.choice(groups) if groups else b"none"
    last = b"%d-%d" % (stream.last_ms, stream.last_seq)
    first = b"%d-%d" % (stream.first_ms, stream.first_seq)
    pending = b"%d-%d" % stream.groups[group].pending()[0]["id"] if groups and stream.groups[group].pending() else last
    some = (b"3", first, pending, last)
    commands: list[tuple[bytes, ...]] = [
        (b"XLEN", b"s"), (b"XRANGE", b"s", b"-", b"+"), (b"XREVRANGE", b"s", b"+", b"-", b"COUNT", b"3"),
        (b"XRANGE", b"s", pending, last), (b"XINFO", b"STREAM", b"s", b"FULL", b"COUNT", b"0"),
        (b"XINFO", b"GROUPS", b"s"), (b"XINFO", b"CONSUMERS", b"s", group), (b"XPENDING", b"s", group),
        (b"XPENDING", b"s", group, b"IDLE", b"0", b"-", b"+", b"10"), (b"XREAD", b"STREAMS", b"s", b"0"),
        (b"XREADGROUP", b"GROUP", group, b"new", b"COUNT", b"2", b"STREAMS", b"s", b">"),
        (b"XREADGROUP", b"GROUP", group, b"alice", b"STREAMS", b"s", b"0"),
        (b"XREADGROUP", b"GROUP", group, b"new", b"CLAIM", b"0", b"STREAMS", b"s", b">"),
        (b"XAUTOCLAIM", b"s", group, b"auto", b"0", b"-", b"COUNT", b"5"),
        (b"XCLAIM", b"s", group, b"auto", b"0", first, pending, last, b"FORCE"),
        (b"XNACK", b"s", group, b"FAIL", b"IDS", *some), (b"XACK", b"s", group, first, pending),
        (b"XACKDEL", b"s", group, b"ACKED", b"IDS", *some), (b"XDELEX", b"s", b"DELREF", b"IDS", *some),
        (b"XDEL", b"s", first, last), (b"XTRIM", b"s", b"MINID", pending, b"ACKED"),
        (b"XTRIM", b"s", b"MAXLEN", b"~", b"2", b"DELREF"), (b"XTRIM", b"s", b"MAXLEN", b"1"),
        (b"XADD", b"s", b"*", b"a", b"b"), (b"XADD", b"s", b"IDMP", b"p", b"i", b"*", b"a", b"b"),
        (b"XADD", b"s", b"MAXLEN", b"3", b"IDMPAUTO", b"7", b"*", b"a", b"b"),
        (b"XCFGSET", b"s", b"IDMP-MAXSIZE", b"1"), (b"XSETID", b"s", last), (b"XGROUP", b"SETID", b"s", group, b"0"),
        (b"XGROUP", b"DELCONSUMER", b"s", group, b"new"), (b"XGROUP", b"CREATE", b"s", b"made", b"0"),
        (b"XGROUP", b"DESTROY", b"s", group), (b"DUMP", b"s"),
        (b"COPY", b"s", b"t", b"REPLACE"), (b"MEMORY", b"USAGE", b"s"), (b"DEBUG", b"DIGEST-VALUE", b"s"),
    ]  # fmt: skip
    was_set_back = set_back(stream)
    for words in source.sample(commands, source.choice((4, 8, 12))):
        assert bench.run(list(words)), words
    if not was_set_back:  # otherwise the IDs are not in order
        check(stream)


def _exercise_value(bench: Bench, value: object, source: random.Random) -> None:
    """Run commands of the value's type on the key, and check the value after each of them."""
    kind = type(value).__name__.lower()
    commands = genuine_values.commands(kind, b"s")
    for words in source.sample(commands, min(len(commands), source.choice((4, 8, 12)))):
        assert bench.run(list(words)), words
        left = bench.engine.databases[0].peek(b"s")
        if left is None:
            break
        left.check()


def set_back(stream: Stream) -> bool:
    """Return whether the stream has entries below the ID of their node."""
    living = LivingEntries()
    for key, node in stream.rax.items():
        living.add_node(key, node)
    return living.set_back


def check(stream: Stream) -> None:
    """Verify a stream with its groups and producers."""
    stream.check()
    if stream.idmp is not None:
        stream.idmp.check()


class Fuzzer:
    """An engine that restores payload after payload and counts the results; every: use all types, not only streams."""

    def __init__(self, seed: int, every: bool = False) -> None:
        self.seed = seed
        self.every = every
        self.genuine = pool_of_all(seed) if every else pool(seed)
        self.counts: Counter[str] = Counter()
        self.bench = Bench(compat="newest", dump_format="native")
        self.bench.engine.log = None

    def payload(self, number: int) -> bytes:
        """Return the payload of a case."""
        return mutated(random.Random(f"{self.seed}:{number}"), self.genuine)

    def case(self, number: int) -> None:
        """Create and run one case; any exception is a finding."""
        payload = self.payload(number)
        bench = self.bench
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        answer = bench(b"RESTORE", b"s", b"0", payload, b"REPLACE")
        grew = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        if grew * 1024 > MEMORY_AT_ALL + MEMORY_PER_BYTE * len(payload):
            raise AssertionError(f"{len(payload)} bytes took {grew} KB")
        value = bench.engine.databases[0].peek(b"s")
        if answer != b"OK":
            assert answer == REFUSED, answer
            self.counts["refused"] += 1
        elif isinstance(value, Stream):
            self.counts["accepted"] += 1
            self._accepted(value, random.Random(number))
        else:
            self.counts["other types"] += 1
            self._accepted_value(value, random.Random(number))
        bench.engine.databases[0].flush()

    def _accepted(self, stream: Stream, source: random.Random) -> None:
        check(stream)
        newest = COMPATS["newest"]
        dumped = rdb.dump(stream, True, newest)
        assert rdb.dump(rdb.restore(dumped), True, newest) == dumped
        assert rdb.dump(rdb.restore(rdb.dump(stream)), True, newest) == dumped
        _exercise(self.bench, stream, source)

    def _accepted_value(self, value: Any, source: random.Random) -> None:
        value.check()
        again: Any = rdb.restore(rdb.dump(value))
        again.check()
        assert value_digest(again, False) == value_digest(value, False)
        _exercise_value(self.bench, value, source)

    def run(self, count: int, tell: Callable[[int], object] | None = None) -> None:
        """Run the cases 0 to count - 1; a finding is raised with the number of its case."""
        for number in range(count):
            try:
                self.case(number)
            except BaseException as error:
                error.add_note(f"fuzz_restore: Fuzzer({self.seed}, {self.every}).case({number})")
                raise
            if tell is not None:
                tell(number)


# -- command line------------------------------------------------------------------------------------------


def _compare(fuzzer: Fuzzer, count: int, server: str) -> None:
    """Count and print differences from a real server that sanitizes payloads."""
    cases = iter(range(count))
    alive = False
    while not alive:
        with running_redis("--sanitize-dump-payload", "yes", binary=server) as judge, judge.client() as client:
            try:
                for number in cases:
                    _compare_one(fuzzer, number, client)
                alive = True
            except redis.ConnectionError:
                fuzzer.counts["the server died"] += 1


def _compare_one(fuzzer: Fuzzer, number: int, client: redis.Redis) -> None:
    payload = fuzzer.payload(number)
    payload = sealed(payload[0], payload[1:-10], VERSIONS[0])
    ours = fuzzer.bench(b"RESTORE", b"s", b"0", payload, b"REPLACE")
    try:
        client.execute_command("RESTORE", "s", "0", payload, "REPLACE")
        theirs = "accepted"
    except redis.ResponseError:
        theirs = "refused"
    outcome = f"here {'accepted' if ours == b'OK' else 'refused'}, there {theirs}"
    fuzzer.counts[outcome] += 1
    if "refused, there accepted" in outcome or "accepted, there refused" in outcome:
        reason = "accepted"
        try:
            rdb.restore(payload, strict=True)
        except Exception as error:
            reason = re.sub(r"-?\d+", "N", f"{type(error).__name__}: {error}")
        if fuzzer.counts[f"  {outcome}: {reason}"] == 0:
            print(number, outcome, reason, flush=True)
        fuzzer.counts[f"  {outcome}: {reason}"] += 1


def main() -> None:
    """Run the fuzzer from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int, nargs="?", default=1)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--against", metavar="SERVER", default="")
    options = parser.parse_args()
    fuzzer = Fuzzer(options.seed, options.all)
    began = time.monotonic()
    print(f"rillet {'compiled' if rillet.compiled() else 'interpreted'}, seed {options.seed}", flush=True)
    if options.against:
        _compare(fuzzer, options.count, options.against)
    else:
        # A case that takes longer than 60 s is a finding.
        fuzzer.run(options.count, lambda _number: signal.alarm(60))
        signal.alarm(0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{options.count} payloads in {time.monotonic() - began:.0f} s, at most {peak} MB", file=sys.stdout)
    for name, number in sorted(fuzzer.counts.items()):
        print(f"{number:9} {name}")


if __name__ == "__main__":
    main()
