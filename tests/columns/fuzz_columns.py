"""A fuzzer for the columns: hostile replies, stream nodes, texts and Arrow buffers (hostile_bytes.py).

    python -m tests.columns.fuzz_columns --inputs 1000000 --seed 1      PYTHONPATH selects the build
    python -m tests.columns.fuzz_columns --seconds 600
    python -m tests.columns.fuzz_columns --seed 1 --case 4711           run one input again, in this process

Every input must satisfy these properties:

    no crash        inputs run in a child process; if it dies, the parent prints the seed, the case and the input
    documented      nothing is raised but the errors in ERRORS
    consistent      every column holds a value or a null for each row, and its offsets and bitmap agree with that
    bounded         the columns and the receive buffer stay in proportion to the input, the process below a fixed size
    deterministic   bytes in pieces give the same rows as the whole; sound nodes give the rows of a model in Python

`outcomes` returns what each input gave, so that two builds can be compared.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import mmap
import os
import random
import re
import resource
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

if os.environ.get("RILLET_NO_CYTHON"):
    sys.modules["cython"] = None  # type: ignore[assignment]  # import now raises ModuleNotFoundError

import rillet
from rillet.columns import column as kinds
from rillet.columns import row_builder, row_packing
from rillet.columns.json_column import reader
from rillet.columns.node_decoder import FULL, NodeDecoder, NodeReader, nodes_of
from rillet.columns.node_pages import NodePages
from rillet.columns.receive_buffer import ReceiveBuffer
from rillet.columns.resp_decoder import DONE, MORE, RangeDecoder, ReplyFailed
from rillet.columns.row_builder import BadValue, RowBuilder
from rillet.columns.value_parsing import ValueParser
from rillet.errors import Corrupt, ProtocolError
from rillet.protocol.command_parser import CommandParser
from tests.columns import hostile_bytes

ROOT = Path(__file__).parents[2]
FIRST, LAST = (0, 0), (2**64 - 1, 2**64 - 1)
MAX_GROWTH = 96 << 20  # bytes that the process may grow by, whatever the inputs say
FIELDS = (
    (b"user", kinds.STRING), (b"amount", kinds.DOUBLE), (b"n", kinds.LONG), (b"17", kinds.INT), (b"ok", kinds.BOOLEAN),
    (b"day", kinds.DATE), (b"at", kinds.TIMESTAMP), (b"j", kinds.JSON), (b"raw", kinds.BINARY), (b"d", kinds.DECIMAL),
    (b"\xff", kinds.FLOAT), (b"", kinds.SHORT), (b"x" * 70, kinds.BYTE),
)  # fmt: skip
INTEGER = re.compile(rb"[\x00-\x20]*([+-]?[0-9]+)[\x00-\x20]*")
REAL = re.compile(
    rb"(?i)[\x00-\x20]*([+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|inf|infinity))[\x00-\x20]*"
)


@lru_cache(maxsize=1)
def _read_json() -> Callable[[bytes], Any]:
    import pyarrow as pa

    read = reader(pa.struct([("a", pa.int64()), ("b", pa.decimal128(9, 2)), ("c", pa.list_(pa.string()))]))
    assert read is not None
    return read


def new_rows(rng: random.Random) -> RowBuilder:
    """Return a builder with some of the columns of every kind, in one of the three modes."""
    rows = RowBuilder(rng.choice((b"events", b"\xff" * 300)), rng.randrange(3))
    for source in range(row_builder.STREAM, row_builder.MAP):
        if rng.random() < 0.4:
            rows.add_source(source)
    if rng.random() < 0.5:
        rows.add_map(rng.choice((kinds.STRING, kinds.BINARY)))
    for name, kind in FIELDS:
        if rng.random() < 0.6:
            added = rows.add_field(name, kind)
            if kind == kinds.DECIMAL:
                precision = rng.randrange(1, 39)
                added.be_decimal(precision, rng.randrange(precision + 1))
            elif kind == kinds.JSON:
                added.read = _read_json()
    if rng.random() < 0.3:
        rows.add_corrupt()
    rows.discovers = rng.random() < 0.1
    return rows


def columns_of(rows: RowBuilder) -> list[kinds.Column]:
    """Return the columns, and both halves of the map."""
    return rows.columns if rows.keys is None else [*rows.columns, rows.keys, rows.items]


def taken(rows: RowBuilder, length: int, limit: int) -> list[Any]:
    """Take the buffers of all columns, which must have that length and fit into `limit` bytes."""
    rows.begin(0, 0)
    pairs = 0 if rows.keys is None else rows.keys.length
    ends = rows.map_ends
    result: list[Any] = []
    for column in columns_of(rows):
        expected = pairs if column is rows.keys or column is rows.items else length
        assert column.length == expected, (column.name, column.kind, column.length, expected)
        if column.kind == kinds.JSON:
            objects = column.take_objects()
            assert len(objects) == length
            result.append(repr(objects))
            continue
        assert len(column.data) + len(column.offsets) + len(column.valid) <= limit, "a column outgrows its input"
        buffers = column.take_buffers()
        consistent(column, *buffers)
        if column is ends:
            marks = memoryview(buffers[4]).cast("i").tolist()
            assert marks == sorted(marks), "the map's offsets"
            assert not marks or marks[-1] == pairs, "the map's offsets"
        result.append(buffers)
    rows.clear()
    return result


def consistent(
    column: kinds.Column, length: int, nulls: int, valid: bytearray | None, offsets: bytearray | None, data: bytearray
) -> None:
    """Check a column's buffers against Arrow's rules."""
    if valid is None:
        assert nulls == 0
    else:
        ones = int.from_bytes(valid, "little") & (1 << length) - 1
        assert len(valid) == (length + 7) >> 3, "the validity bitmap"
        assert length - ones.bit_count() == nulls, "the validity bitmap"
    if offsets is not None:
        ends = memoryview(offsets).cast("i").tolist()
        assert len(ends) == length + 1, "the ends of the texts"
        assert ends[0] == 0, "the ends of the texts"
        assert ends[-1] == len(data), "the ends of the texts"
        assert ends == sorted(ends), "texts overlap"
        if column.kind == kinds.STRING:
            for start, end in zip(ends, ends[1:], strict=False):
                data[start:end].decode()
    elif column.kind == kinds.BOOLEAN:
        assert len(data) == (length + 7) >> 3
    else:
        assert len(data) == column.width * length


def pieces_of(rng: random.Random, data: bytes) -> list[list[bytes]]:
    """Return the bytes whole, and sometimes also one by one or in larger pieces."""
    if rng.random() < 0.7:
        return [[data]]
    size = rng.choice((1, 3, 20, 100))
    return [[data], [data[i : i + size] for i in range(0, len(data), size)]]


def attempt(rows: RowBuilder, pull: Callable[[], bool], buffer: ReceiveBuffer | None, size: int) -> list[Any]:
    """Call `pull` until it returns False or raises; return the batches and the error, all of it checked.

    `pull` decodes and returns whether a batch is full. After BadValue the job has failed, and no batch is taken.
    """
    limit = 65536 + 512 * size  # an entry of 8 bytes makes a value of 16 in every column, in buffers that double
    batches: list[Any] = []
    try:
        while pull():
            batches.append(taken(rows, rows.length, limit))
        error = ""
    except BadValue as bad:
        return [*batches, repr(bad)]
    except (Corrupt, ProtocolError, ReplyFailed) as refused:
        error = repr(refused)
    if buffer is not None:
        assert len(buffer.buf) <= (1 << 18) + 4 * size + 65536, "the receive buffer outgrows its input"
    return [*batches, taken(rows, rows.length, limit), error]


# ---- targets: each returns all that an input gave ------------------------------------------------------------------


def try_reply(rng: random.Random, pool: int) -> Any:
    data = hostile_bytes.reply(rng, pool)
    seed, max_rows, expected = rng.random(), rng.choice((1, 2, 1000)), rng.random() < 0.2
    results = []
    for pieces in pieces_of(rng, data):
        rows = new_rows(random.Random(seed))
        decoder = RangeDecoder(rows, max_rows)
        if expected:
            decoder.expect(1526919030400, 0, 2)
        results.append(attempt(rows, _replies(decoder, pieces), decoder, len(data)))
        results[-1].append((decoder.last_ms, decoder.last_seq, decoder.entries, decoder.missing, decoder.met))
    assert results[0] == results[-1], "pieces give other rows than the whole"
    return results[0]


def _replies(decoder: RangeDecoder, pieces: list[bytes]) -> Callable[[], bool]:
    waiting = pieces[::-1]
    replies = 0

    def pull() -> bool:
        nonlocal replies
        while True:
            state = decoder.decode()
            if state == MORE:
                if not waiting:
                    return False
                decoder.feed(waiting.pop())
            elif state == DONE:
                replies += 1
                if replies == 3:
                    return False
            elif state == FULL:
                return True

    return pull


def try_node(rng: random.Random, pool: int) -> Any:
    nodes = [hostile_bytes.node(rng, pool) for _ in range(rng.randrange(1, 3))]
    after, last = FIRST, LAST
    if rng.random() < 0.2:
        after, last = (1526919030400, 3), (1526919030412, 2**64 - 1)
    seed, max_rows = rng.random(), rng.choice((1, 2, 1000))
    rows = new_rows(random.Random(seed))
    size = sum(len(data) for _, data in nodes)
    result = attempt(rows, _nodes(NodeReader(rows, after, last, max_rows), nodes), None, size)
    for key, data in nodes[:1] if rng.random() < 0.4 else []:
        try:
            stream = nodes_of([(key, data)])
        except Corrupt as refused:
            return [result, repr(refused)]
        model = RowBuilder(b"k", 0)
        model.add_source(row_builder.ID)
        model.add_map(kinds.BINARY)
        decoder = NodeDecoder(model, stream, after, last, 1000)
        assert decoder.decode() == DONE
        assert _shown(model) == _model(key, list(next(iter(stream.rax.items()))[1]), after, last)
    return result


def _nodes(node_reader: NodeReader, nodes: list[tuple[bytes, bytes]]) -> Callable[[], bool]:
    waiting = nodes[::-1]
    opened = False

    def pull() -> bool:
        nonlocal opened
        while True:
            if opened and node_reader.decode() == FULL:
                return True
            if not waiting:
                return False
            key, data = waiting.pop()
            # The node ends where the buffer ends, so that a read beyond it leaves the buffer.
            node_reader.open(bytearray(data), 0, len(data), *struct.unpack(">QQ", key))
            opened = True

    return pull


def _shown(rows: RowBuilder) -> list[Any]:
    ids, ends = rows.columns
    marks = [0, *memoryview(ends.data)[: 4 * ends.length].cast("i").tolist()]
    return [
        (ids.value(i), {rows.keys.value(j): rows.items.value(j) for j in range(marks[i], marks[i + 1])})
        for i in range(rows.length)
    ]


def _model(key: bytes, items: list[int | bytes], after: tuple[int, int], last: tuple[int, int]) -> list[Any]:
    """Return the living entries of a sound node within (after, last], up to the first one beyond it."""
    master = struct.unpack(">QQ", key)
    words = [b"%d" % item if isinstance(item, int) else item for item in items]
    count = int(words[2])
    names = words[3 : 3 + count]
    at, entries = 4 + count, []
    while at < len(words):
        flags, ms, seq = (int(word) for word in words[at : at + 3])
        entry = ((master[0] + ms) % 2**64, (master[1] + seq) % 2**64)
        at += 3
        if entry > last:
            break
        if flags & 2:
            pairs = list(zip(names, words[at : at + count], strict=True))
            at += count + 1
        else:
            own = int(words[at])
            pairs = [(words[at + 1 + 2 * i], words[at + 2 + 2 * i]) for i in range(own)]
            at += 2 + 2 * own
        if not flags & 1 and entry > after:
            texts = {name.decode("utf-8", "replace").encode(): value for name, value in pairs}
            entries.append((b"%d-%d" % entry, texts))
    return entries


def try_page(rng: random.Random, pool: int) -> Any:
    data = hostile_bytes.page(rng, pool)
    seed, max_rows = rng.random(), rng.choice((1, 2, 1000))
    results = []
    for pieces in pieces_of(rng, data):
        rows = new_rows(random.Random(seed))
        pages = NodePages(NodeReader(rows, FIRST, LAST, max_rows))
        results.append(attempt(rows, _pages(pages, pieces), pages, len(data)))
        results[-1].append((pages.go_on, pages.first))
    assert results[0] == results[-1], "pieces give other rows than the whole"
    return results[0]


def _pages(pages: NodePages, pieces: list[bytes]) -> Callable[[], bool]:
    waiting = pieces[::-1]

    def pull() -> bool:
        while True:
            state = pages.decode()
            if state == MORE:
                if not waiting:
                    return False
                pages.feed(waiting.pop())
            elif state == FULL:
                return True

    return pull


def try_value(rng: random.Random, pool: int) -> Any:
    text = hostile_bytes.value(rng)
    before, behind = rng.choice((b"", b"9", b".9")), rng.choice((b"", b"9", b"9.345678", b"\x80\xbf"))
    buf, start, n = bytearray(before + text + behind), len(before), len(text)
    parser = ValueParser()
    results: list[Any] = []
    for read in (parser.integer, parser.boolean, parser.date, parser.timestamp):
        results.append(parser.number if read(buf, start, n) else None)
    plain = INTEGER.fullmatch(text)
    fits = plain is not None and -(2**63) <= int(plain[1]) < 2**63
    assert results[0] == (int(plain[1]) if plain is not None and fits else None), text
    real = repr(parser.real) if parser.decimal(buf, start, n) else None
    decimal = REAL.fullmatch(text)
    assert real == (repr(float(decimal[1])) if decimal else None), text
    for name, kind in FIELDS:
        column = kinds.Column(name, row_builder.FIELD, kind, parser)
        if kind == kinds.DECIMAL:
            precision = rng.randrange(1, 39)
            column.be_decimal(precision, rng.randrange(precision + 1))
        elif kind == kinds.JSON:
            column.read = _read_json()
        column.put(buf, start, n)
        assert column.length == 1
        if kind == kinds.JSON:
            results.append(repr(column.take_objects()))
        else:
            buffers = column.take_buffers()
            consistent(column, *buffers)
            results.append(buffers)
    for whole in (True, False):
        column = kinds.Column(b"", row_builder.FIELD, kinds.STRING, parser)
        column.be_plain(kinds.WHOLE if whole else kinds.REAL)
        try:
            column.put(buf, start, n)
            results.append((column.kind, column.take_buffers()))
        except kinds.NotPlain as refused:
            results.append(repr(refused))
    return [*results, real]


def try_buffers(rng: random.Random, pool: int) -> Any:
    """Pack rows from Arrow buffers that contradict each other."""
    columns = [_array(rng, b"f%d" % i) for i in range(rng.randrange(1, 4))]
    ids = _array(rng, b"") if rng.random() < 0.3 else None
    packer = row_packing.RowPacker([b"XADD", b"k"], b"*" if ids is not None and rng.random() < 0.5 else b"")
    keys = _array(rng, b"") if rng.random() < 0.3 else None
    if rng.random() < 0.3:
        ends = _offsets(rng)
        packer.rows_of_map(ends, rng.randrange(-1, 3), columns[0], columns[-1], ids, keys)
    else:
        packer.rows_of(columns, ids, keys)
    row, error = 0, ""
    try:
        while row < 8:
            row = packer.pack(row, 8, rng.choice((1, 200, 1 << 16)) + packer.used)
    except (IndexError, ValueError) as refused:
        error = repr(refused)
    whole = packer.commands
    data = bytes(packer.take_bytes())
    parser = CommandParser()
    parser.feed(data)
    for _ in range(whole):
        command = parser.next()
        assert command is not None, command
        assert command[0] == b"XADD", command
        assert len(command) >= 5, command
    return [data if not error else whole, error]


def _offsets(rng: random.Random) -> bytes:
    ends = sorted(rng.choices(range(40), k=rng.randrange(12)))
    if ends and rng.random() < 0.4:
        ends[rng.randrange(len(ends))] = rng.choice((-1, 2**31 - 1, -(2**31), 41, 0))
    return struct.pack(f"={len(ends)}i", *ends) + rng.randbytes(rng.choice((0, 0, 0, 3)))


def _array(rng: random.Random, name: bytes) -> row_packing.StringArrays:
    valid = rng.randbytes(rng.randrange(3)) if rng.random() < 0.5 else None
    kind = rng.randrange(len(row_packing.WIDTHS))
    base, first = rng.choice((0, 0, 1, 7, -1)), rng.choice((0, 0, 1))
    column = row_packing.StringArrays(name, valid, _offsets(rng), rng.randbytes(rng.randrange(80)), base, first)
    return column if kind == row_packing.TEXT else column.be_values(kind, rng.random() < 0.5)


TARGETS: dict[str, Callable[[random.Random, int], Any]] = {
    "reply": try_reply, "node": try_node, "page": try_page, "value": try_value, "buffers": try_buffers,
}  # fmt: skip


def run_case(seed: int, case: int) -> tuple[str, Any]:
    """Run one input; return the target's name and what the input gave."""
    rng = random.Random(seed << 32 | case)
    name = list(TARGETS)[case % len(TARGETS)]
    return name, TARGETS[name](rng, seed)


def digest(result: Any) -> str:
    return hashlib.blake2b(repr(result).encode(), digest_size=8).hexdigest()


# ---- children ------------------------------------------------------------------------------------------------------


def child(seed: int, first: int, inputs: int, seconds: float, counter: str) -> int:
    """Run inputs in this process, with the number of the present one in the file `counter`."""
    with open(counter, "r+b") as file:
        mark = mmap.mmap(file.fileno(), 8)
    counts: Counter[str] = Counter()
    stop = time.monotonic() + seconds if seconds else float("inf")
    base = 0
    for case in range(first, first + inputs):
        if time.monotonic() > stop:
            break
        struct.pack_into("<q", mark, 0, case)
        try:
            name, _ = run_case(seed, case)
        except Exception:
            print(f"seed {seed} case {case}: {traceback.format_exc()}", flush=True)
            return 1
        counts[name] += 1
        if case == first + 300:
            base = peak()
    growth = peak() - base if base else 0
    print(json.dumps({"inputs": sum(counts.values()), "counts": counts, "growth": growth}))
    if growth > MAX_GROWTH:
        print(f"seed {seed}: the process grew by {growth >> 20} MB")
        return 1
    return 0


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "tests.columns.fuzz_columns", *words]


def run(seed: int, inputs: int, seconds: float = 0, progress: bool = True) -> tuple[int, str]:
    """Run inputs in a child process; return the exit code (0: all properties hold) and the report."""
    with tempfile.NamedTemporaryFile() as counter:
        counter.write(bytes(8))
        counter.flush()
        began = time.monotonic()
        words = ("--child", counter.name, "--seed", str(seed), "--inputs", str(inputs), "--seconds", str(seconds))
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        process = subprocess.Popen(command(*words), cwd=ROOT, **pipes)
        while True:
            try:
                report, _ = process.communicate(timeout=5)
                break
            except subprocess.TimeoutExpired:
                if progress:
                    done, elapsed = _case_in(counter.name), time.monotonic() - began
                    print(f"{done:,} inputs, {elapsed:.0f} s, {done / elapsed:,.0f} a second", flush=True)
        if process.returncode < 0 or (process.returncode and "seed" not in report):
            case = _case_in(counter.name)
            report += f"\nseed {seed} case {case}: the process ended with {process.returncode}; {describe(seed, case)}"
        return process.returncode, report.strip()


def _case_in(path: str) -> int:
    return int(struct.unpack("<q", Path(path).read_bytes()[:8])[0])


def describe(seed: int, case: int) -> str:
    """Return the input of a case as text, without decoding it."""
    rng = random.Random(seed << 32 | case)
    name = list(TARGETS)[case % len(TARGETS)]
    if name == "buffers":
        return name
    made: Any = {
        "reply": lambda: hostile_bytes.reply(rng, seed),
        "node": lambda: [hostile_bytes.node(rng, seed) for _ in range(rng.randrange(1, 3))],
        "page": lambda: hostile_bytes.page(rng, seed),
        "value": lambda: hostile_bytes.value(rng),
    }[name]()
    return f"{name}: {made!r}"


def outcomes(seed: int, inputs: int, package: Path, cython: bool) -> list[str]:
    """Return the digests of the inputs in the build that lies in `package`, with or without Cython's own shim."""
    environment = {name: text for name, text in os.environ.items() if name != "RILLET_NO_CYTHON"}
    environment["PYTHONPATH"] = str(package)
    if not cython:
        environment["RILLET_NO_CYTHON"] = "1"
    words = command("--digests", "--seed", str(seed), "--inputs", str(inputs))
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def main() -> int:
    parser = argparse.ArgumentParser(description="Feed hostile bytes to the columns.")
    parser.add_argument("--inputs", type=int, default=0, help="how many (default: 100,000; no limit with --seconds)")
    parser.add_argument("--seconds", type=float, default=0, help="stop after this time")
    parser.add_argument("--seed", type=int, default=1, help="selects the inputs")
    parser.add_argument("--case", type=int, help="run one input in this process and show it")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--digests", action="store_true", help="print a digest of what each input gave")
    options = parser.parse_args()
    inputs = options.inputs or (1 << 40 if options.seconds else 100_000)
    if options.child:
        return child(options.seed, 0, inputs, options.seconds, options.child)
    if options.digests:
        print("speed", "compiled" if rillet.compiled() else "interpreted")
        for case in range(inputs):
            print(case, digest(run_case(options.seed, case)))
        return 0
    if options.case is not None:
        print(describe(options.seed, options.case))
        print(run_case(options.seed, options.case))
        return 0
    began = time.monotonic()
    code, report = run(options.seed, inputs, options.seconds)
    speed = "compiled" if rillet.compiled() else "interpreted"
    result = "failed" if code else "passed"
    print(f"{report}\nseed {options.seed}, {speed}: {result} in {time.monotonic() - began:.0f} s")
    return 1 if code else 0


if __name__ == "__main__":
    sys.exit(main())
