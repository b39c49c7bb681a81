"""Damaged RDB files, logs, manifests and redis.conf files, generated from a seed for fuzz_files.py.

A valid file is kept as its parts (an opcode, a key with the parts of its value, a command), so that a mutation changes
one part and leaves the rest readable. Some mutations change single bytes, to cover cases that no rule foresees. The
checksums of RDB files and of a log's batches are then recomputed; otherwise the readers would reject every file early.
"""

from __future__ import annotations

import random
import re
from zlib import crc32

from rillet.keyspace.clock import ManualClock
from rillet.persistence.aof.frames import frame
from rillet.protocol.command_parser import pack_command
from rillet.runtime.engine import Engine
from rillet.runtime.settings.settings import PARAMETERS, Settings
from rillet.structs.crc64 import crc64
from tests.persistence import rdb_files
from tests.persistence.workload import Commands
from tests.types import genuine_values
from tests.types.fuzz_restore import EXTREMES, Token, mutate_bytes, mutate_tokens, written

NOW = 1_700_000_000_000
NAMES = [b"", b"k", b"k2", b"12", b"name" * 30, b"\r\n", bytes(range(256))]


# -- checksums -------------------------------------------------------------------------------------------


def sealed_rdb(data: bytes) -> bytes:
    """Return an RDB file with a correct checksum."""
    return data[:-8] + crc64(data[:-8]).to_bytes(8, "little")


_BATCH = re.compile(rb"#RILLET:[0-9a-f]{8} (\d{1,19}) (\d{1,19}) (\d{1,19})\r\n")


def sealed_log(data: bytes) -> bytes:
    """Return a log whose batches have correct checksums."""
    out = bytearray(data)
    at = 0
    while (line := _BATCH.match(out, at)) is not None:
        end = line.end() + min(int(line[1]), len(out))
        rest = bytes(out[at + 16 : end])
        out[at + 8 : at + 16] = b"%08x" % crc32(rest, at & 0xFFFFFFFF)
        at = end
    return bytes(out)


# -- genuine files, and what is wrong with them ----------------------------------------------------------


def _rdb_parts(source: random.Random, streams: list[tuple[int, list[Token]]]) -> list[list[Token]]:
    """Return the parts of an RDB file after its header: opcodes, and keys with their values."""
    parts: list[list[Token]] = [[("raw", b"\xfa"), ("string", b"redis-ver"), ("string", b"7.0.15")]]
    for database in sorted(source.sample(range(16), source.randint(1, 2))):
        parts.append([("raw", b"\xfe"), ("length", database)])
        parts.append([("raw", b"\xfb"), ("length", 3), ("length", 1)])
        for number in range(source.randint(0, 5)):
            kind = source.choice((*genuine_values.KINDS, -1))
            kind, value = source.choice(streams) if kind < 0 else (kind, genuine_values.tokens(kind, source))
            parts += source.choice(([], [], [_before_key(source)]))
            name = b"%b%d" % (source.choice(NAMES), number)
            parts.append([("raw", bytes((kind,))), ("string", name), *value])
    if source.random() < 0.3:
        parts.insert(source.randrange(len(parts) + 1), [("raw", source.choice((
            b"\xf5" + rdb_files.text(b"#!lua name=a\n"),
            b"\xf7" + rdb_files.size(2**60) + b"\x02\x01\x02\x05\x03abc\x00", b"\xf4\x01\x02\x03",
            b"\xf6" + rdb_files.text(b"n") + rdb_files.text(b"lua") + b"\x00" + rdb_files.text(b"c"),
        )))])  # fmt: skip
    return parts


def _before_key(source: random.Random) -> list[Token]:
    return source.choice((
        [("raw", b"\xfc"), ("milliseconds", source.choice((NOW + 10**9, 1, -1)))],
        [("raw", b"\xfd" + (2_000_000_000).to_bytes(4, "little"))],
        [("raw", b"\xf8"), ("length", 100)], [("raw", b"\xf9\x05")],
    ))  # fmt: skip


def _mutate_parts(source: random.Random, parts: list[list[Token]]) -> None:
    at = source.randrange(len(parts))
    way = source.random()
    if way < 0.7:
        mutate_tokens(source, parts[at])
    elif way < 0.8:
        del parts[at]
    elif way < 0.9:
        parts.insert(at, source.choice(parts))
    else:
        parts[at], parts[0] = parts[0], parts[at]


def genuine_rdb(source: random.Random, streams: list[tuple[int, list[Token]]], mutations: int = 0) -> bytes:
    """Return an RDB file with the given number of changed parts."""
    if source.random() < 0.2:
        version = source.randint(1, 11)
        return rdb_files.of_version(version)
    parts = _rdb_parts(source, streams)
    for _ in range(mutations):
        if parts:
            _mutate_parts(source, parts)
        parts = [part for part in parts if part]
    head = b"VALKEY080" if source.random() < 0.1 else b"REDIS%04d" % source.choice((9, 10, 11, 12, 13, 14))
    body = b"".join(written(part, source.random() < 0.3) for part in parts)
    return sealed_rdb(head + body + b"\xff" + bytes(8))


def mutated_rdb(source: random.Random, streams: list[tuple[int, list[Token]]]) -> bytes:
    """Return an RDB file with one or a few mutations."""
    way = source.random()
    data = genuine_rdb(source, streams, source.choice((1, 1, 2, 3)) if way < 0.75 else 0)
    if way > 0.7:
        data = mutate_bytes(source, data)
    return sealed_rdb(data) if source.random() < 0.9 else data


# Commands that no log contains, and that would do harm if a replay executed them.
ODD = """
BLPOP none 0
BRPOP none 0
BLMOVE none none LEFT LEFT 0
XREAD BLOCK 0 STREAMS none $
XREADGROUP GROUP g c BLOCK 0 STREAMS s0 >
SUBSCRIBE channel
PSUBSCRIBE *
PUBLISH channel message
WATCH k0
UNWATCH
DISCARD
EXEC
MULTI
QUIT
RESET
HELLO 3
AUTH nobody nothing
CLIENT KILL TYPE normal
CLIENT PAUSE 1000000
CLIENT REPLY OFF
MONITOR
SHUTDOWN NOSAVE
SAVE
BGSAVE
BGREWRITEAOF
DEBUG SLEEP 0
DEBUG RELOAD
DEBUG LOADAOF
DEBUG DIGEST
CONFIG SET databases 1
CONFIG REWRITE
SELECT 99
SELECT -1
SWAPDB 0 1
FLUSHALL
FLUSHDB ASYNC
GET k0
KEYS *
WAIT 1 0
WAITAOF 1 0 0
EVAL return 0
FUNCTION LOAD code
RESTORE x 0 payload
COPY s0 s1
SORT l0 STORE l1
OBJECT FREQ k0
""".strip().splitlines()


def _log_commands(source: random.Random) -> list[list[list[bytes]]]:
    """Return logged commands in complete units: one command, or a transaction."""
    engine = Engine(Settings(compat="newest"), ManualClock(NOW))
    kept: list[list[bytes]] = []

    class _Log:
        def append(self, _db: int, argv: list[bytes]) -> None:
            kept.append(list(argv))

        def write(self) -> int:
            return 0

    engine.log = _Log()
    session = engine.session()
    maker = Commands(source, engine)
    units: list[list[list[bytes]]] = [[[b"SELECT", b"0"]]]
    for _ in range(source.randint(3, 25)):
        for argv in maker.step(0).commands:
            engine.execute(session, argv)
        session.out.take_bytes()
        if kept:
            units.append(kept[:])
            kept.clear()
    engine.log = None
    return units


def _mutate_command(source: random.Random, argv: list[bytes]) -> None:
    at = source.randrange(len(argv))
    way = source.randrange(6)
    if way == 0:
        del argv[at]
    elif way == 1:
        argv.insert(at, argv[source.randrange(len(argv))])
    elif way == 2:
        argv[at] = b"%d" % source.choice((*EXTREMES, -1, -(2**63)))
    elif way == 3:
        argv[at] = source.choice((b"", b"*", b"$", b"-", b"+", b"0-0", b"18446744073709551615-18446744073709551615"))
    elif way == 4:
        argv[at] = mutate_bytes(source, argv[at])
    else:
        argv[:] = source.choice(ODD).encode().split()


def mutated_log(source: random.Random, streams: list[tuple[int, list[Token]]]) -> bytes:
    """Return a log file with a few mutations, or none."""
    units = _log_commands(source)
    for _ in range(source.choice((0, 1, 1, 2))):
        _mutate_command(source, source.choice(source.choice(units)))
        units = [kept for unit in units if (kept := [argv for argv in unit if argv])]
        if not units:
            units = [[[b"PING"]]]
    preamble = genuine_rdb(source, streams, source.choice((0, 0, 1))) if source.random() < 0.15 else b""
    out = preamble
    in_batches = source.random() < 0.5 and not preamble
    if in_batches:
        out = frame(b"", offset=0, synced=0, seq=1)
    while units:
        count = source.randint(1, 4)
        some, units = units[:count], units[count:]
        data = b"".join(_packed(source, unit) for unit in some)
        if in_batches:
            odd = source.random() < 0.03
            synced = source.choice(EXTREMES) if odd else source.randrange(len(out) + 1)
            data = frame(data, offset=len(out), synced=synced % 10**19, seq=source.choice((1, 2)) if odd else 1)
            in_batches = source.random() > 0.03  # continued by a redis-server
        out += data
    way = source.random()
    if way < 0.5:
        out = mutate_bytes(source, out)
    if way < 0.2:
        out = sealed_log(out)
    return out[: source.randrange(len(out) + 1)] if source.random() < 0.2 else out


def _packed(source: random.Random, unit: list[list[bytes]]) -> bytes:
    """Return the commands of a unit as bytes, sometimes with a timestamp or without its MULTI or EXEC."""
    packed = [pack_command(argv) for argv in unit]
    way = source.random()
    if way < 0.05:
        times = (b"#TS:1700000000\r\n", b"#TS:\r\n", b"#\r\n", b"#TS:1\n", b"#TS:9" + b"9" * 300)
        packed.insert(0, source.choice(times))
    elif way < 0.1:
        packed = [b"*1\r\n$5\r\nMULTI\r\n", *packed, b"*1\r\n$4\r\nEXEC\r\n"]
        if source.random() < 0.3:
            del packed[source.randrange(len(packed))]
    elif way < 0.12:
        packed.append(pack_command(source.choice(ODD).encode().split()))
    return b"".join(packed)


_MANIFESTS = (
    b"file appendonly.aof.1.base.aof seq 1 type b\nfile appendonly.aof.1.incr.aof seq 1 type i\n",
    b"file appendonly.aof.2.base.aof seq 2 type b\nfile appendonly.aof.1.base.aof seq 1 type h\n"
    b"file appendonly.aof.2.incr.aof seq 2 type i\nfile appendonly.aof.3.incr.aof seq 3 type i\n",
    b'# ours\nfile "appendonly.aof.1.incr.aof" seq 1 type i startoffset 10\n',
)
_WORDS = (b"file", b"seq", b"type", b"b", b"h", b"i", b"1", b"0", b"-1", b"9" * 19, b"..", b"a/b", b'"a b"', b"'x'",
          b'"\\x00"', b'"\\xff\\n"', b"\n", b"\r\n", b"#", b"x" * 1030, b"\x00", b"startoffset")  # fmt: skip


def mutated_manifest(source: random.Random, _streams: object) -> bytes:
    """Return a manifest with a few changed words."""
    text = source.choice(_MANIFESTS)
    for _ in range(source.choice((0, 1, 1, 2, 4))):
        text = _mutate_words(source, text, _WORDS)
    return mutate_bytes(source, text) if source.random() < 0.3 else text


def _mutate_words(source: random.Random, text: bytes, words: tuple[bytes, ...]) -> bytes:
    parts = re.split(rb"(\s)", text)
    at = source.randrange(len(parts))
    way = source.randrange(5)
    if way == 0:
        del parts[at]
    elif way == 1:
        parts.insert(at, source.choice(parts))
    elif way == 2:
        lines = text.splitlines(keepends=True) or [b"\n"]
        source.shuffle(lines)
        return b"".join(lines)
    else:
        parts[at] = source.choice(words)
    return b"".join(parts)


_VALUES = (b"yes", b"no", b"0", b"1", b"-1", b"10", b"16kb", b"1gb", b"9223372036854775807", b"18446744073709551616",
           b'""', b"everysec", b"always", b"900 1", b'"900 1 300 10"', b"7.0", b"newest", b"'a b'", b'"\\xff"', b'"',
           b"a\\", b"\x00", b"~*", b"on", b"nopass", b"0x10", b"1e3", b"50%", b"127.0.0.1 ::1")  # fmt: skip
_DIRECTIVES = (*(name.encode() for name in PARAMETERS), b"user default", b"rename-command", b"loadmodule", b"#",
               b"io-threads")  # fmt: skip


def mutated_config(source: random.Random, _streams: object) -> bytes:
    """Return some lines of a redis.conf, most of them valid."""
    settings = Settings()
    lines = []
    for _ in range(source.randint(1, 6)):
        name = source.choice(_DIRECTIVES)
        parameter = PARAMETERS.get(name.decode())
        lined = parameter.lines(getattr(settings, parameter.attribute)) if parameter else ()
        plain = [text.encode() for text, _ in lined]
        value = source.choice(plain) if plain and source.random() < 0.5 else source.choice(_VALUES)
        lines.append(name + source.choice((b" ", b"  ", b"\t")) + value)
    text = source.choice((b"\n", b"\r\n")).join(lines) + b"\n"
    if source.random() < 0.3:
        text = _mutate_words(source, text, _VALUES)
    return mutate_bytes(source, text) if source.random() < 0.2 else text
