"""Random HyperLogLog commands: sparse and dense strings, limits that change on the way, strings that users wrote."""

from __future__ import annotations

from tests.differential import values

LOGS = (b"h1", b"h2", b"h3", b"h4")
OTHERS = (b"missing", b"list", b"text")
STALE = b"\0" * 7 + b"\x80"
EMPTY = b"\x7f\xff"


class Generator(values.Generator):
    """Commands on HyperLogLogs, and on the strings as texts."""

    TABLE = (
        (30, "add"), (16, "count"), (10, "merge"), (8, "debug"), (5, "text"), (2, "key"), (2, "setting"),
    )  # fmt: skip
    SPARED = ()
    JUNK = (*values.JUNK, b"HYLL", b"on", b"off", b"todense", b"GETREG")
    KEYS = (LOGS,)
    LIMITS = ((b"hll-sparse-max-bytes", (b"3000", b"3000", b"3000", b"300", b"18", b"0", b"20000")),)

    def _key(self) -> bytes:
        return self.one_of(LOGS, OTHERS)

    def add(self) -> list[bytes]:
        """Return a PFADD of few or many elements, which repeat."""
        many = self.random.choice((0, 1, 1, 2, 5, 20, 120))
        width = self.random.choice((20, 300, 5000, 10**9))
        tail = bytes(self.random.randrange(12))
        return [b"PFADD", self._key(), *(b"%d" % self.random.randrange(width) + tail for _ in range(many))]

    def count(self) -> list[bytes]:
        """Return a PFCOUNT of one or more keys."""
        return [b"PFCOUNT", *(self._key() for _ in range(self.random.choice((1, 1, 2, 3))))]

    def merge(self) -> list[bytes]:
        """Return a PFMERGE."""
        return [b"PFMERGE", *(self._key() for _ in range(self.random.choice((1, 2, 2, 3, 4))))]

    def debug(self) -> list[bytes]:
        """Return a PFDEBUG; registers are seldom asked for, because a reply has 16,384 of them."""
        kind = self.random.random()
        name = b"encoding" if kind < 0.4 else b"DECODE" if kind < 0.8 else b"todense" if kind < 0.95 else b"GETREG"
        return [b"PFDEBUG", name, self._key()]

    def text(self) -> list[bytes]:
        """Return a command that takes the string for a text; a sequence of opcodes ends with a whole opcode."""
        key = self.random.choice(LOGS)
        kind = self.random.randrange(5)
        if kind == 0:
            return [b"SETRANGE", key, b"%d" % self.random.randrange(4, 16), self.random.choice((b"\0", b"\1", b"\x80"))]
        if kind == 1:
            return [b"APPEND", key, self.random.choice((b"\0", b"\x80", b"\x40\0", b"\xff\xff"))]
        if kind == 2:  # a dense string of any registers
            registers = self.random.choice((self.random.randbytes(12288), b"\xff" * 12288, b"\x41\x10\x04" * 4096))
            return [b"SET", key, b"HYLL\0\0\0\0" + STALE + registers[: self.random.choice((12288, 12288, 12287))]]
        opcodes = b"".join(
            self.random.choice((b"\x3f", b"\x05", b"\x00", b"\x42\x11", b"\x8c", b"\x8f", b"\x91"))
            for _ in range(self.random.randrange(6))
        )
        length = sum(_registers(opcodes))
        rest = 16384 - length - self.random.choice((0, 0, 0, 1, -1))
        last = bytes((0x40 | rest - 1 >> 8, rest - 1 & 0xFF)) if kind == 3 else EMPTY
        return [b"SET", key, b"HYLL\1\0\0\0" + STALE + opcodes + last]


def _registers(opcodes: bytes) -> list[int]:
    """Return how many registers each of the opcodes covers."""
    found, at = [], 0
    while at < len(opcodes):
        op = opcodes[at]
        if 0x40 <= op < 0x80:
            found.append((op - 0x40 << 8 | opcodes[at + 1]) + 1)
            at += 1
        else:
            found.append(op + 1 if op < 0x40 else (op & 3) + 1)
        at += 1
    return found
