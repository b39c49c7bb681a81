"""Random array commands: near and far indexes, ranges, rings, searches, with wrong words now and then."""

from __future__ import annotations

from tests.differential import values

NEAR = (b"a1", b"a2", b"a3", b"a4")
FAR = (b"f1", b"f2")
ARRAYS = NEAR + FAR
OTHERS = (b"missing", b"list", b"text")
TEXTS = (
    *values.NUMBERS, b"", b"a", b"abc", b"Redis", b"hello world", b"HELLO", b"foo-12", b"ab" * 40, b"x" * 33000,
    b"\x00\xff", b"1.0", b"-0.0", b"3.25", b"0.1", b"-2.5", b"1e5", b".5", b"5.", b"0x10", b"inf", b"-inf", b"nan",
    b"2305843009213693951", b"2305843009213693952", b"-2305843009213693949", b"123456789012345680.0",
    b"0.30000000000000004", b"12345678.9",
)  # fmt: skip
OPERATIONS = (b"SUM", b"sum", b"MIN", b"MAX", b"AND", b"or", b"XOR", b"USED", b"AVG")
FAR_INDEXES = (
    b"8388607", b"8388608", b"16777216", b"4611686018427387904", b"18446744073709551614", b"18446744073709551613",
    b"18446744073709551615", b"9223372036854775807", b"9223372036854775808",
)  # fmt: skip
ATOMS = (
    b"a", b"b", b"l", b"o", b"1", b"-", b".", b"[ab]", b"[^a]", b"[a-l]", b"[^a-c-]", b"[[:alpha:]]", b"[^[:digit:]l]",
    b"\\w", b"\\d", b"\\S", b"(ab|l)", b"(a|)", b"(^|b)", b"(l(o|l)*)", b"^", b"$", b"\\b", b"\\B", b"\\<", b"\\>",
    b"\\x61", b"(?i)", b"(?i:h)", b"\\Q.*\\E", b"()", b"|", b"\\.", b"[]a]", b"[a-", b"(", b"\\", b"[^a-cb-e]",
    b"\\x{6c}", b"(?#x)",
)  # fmt: skip
SUFFIXES = (b"", b"", b"", b"*", b"+", b"?", b"{2}", b"{1,3}", b"{,2}", b"{2,}", b"*?", b"{0}", b"**", b"{3,1}", b"{")


class Generator(values.Generator):
    """Commands on arrays."""

    TABLE = (
        (16, "set"), (8, "set_many"), (10, "get"), (8, "get_many"), (8, "get_range"), (10, "scan"), (10, "remove"),
        (6, "remove_range"), (9, "insert"), (8, "ring"), (5, "seek"), (7, "last"), (12, "operation"), (14, "search"),
        (6, "info"), (3, "key"), (2, "setting"),
    )  # fmt: skip
    SPARED = ()
    JUNK = (*values.JUNK, b"+5", b" 7", b"-", b"+", b"-18446744073709551615", b"3\x00x", b"0x1", b"WITHVALUES", b"REV")
    KEYS = (NEAR,)
    LIMITS = (
        (b"array-slice-size", (b"256", b"256", b"512", b"4096", b"1000")),
        (b"array-sparse-kmax", (b"10", b"10", b"7", b"0", b"40", b"257")),
        (b"array-sparse-kmin", (b"5", b"2", b"0", b"45")),
    )

    def _key(self) -> bytes:
        return self.one_of(ARRAYS, OTHERS)

    def _index(self) -> bytes:
        if self.random.random() < 0.08:
            return self.random.choice(FAR_INDEXES)
        return b"%d" % self.random.choice(
            (0, 1, 255, 256, self.random.randrange(12), self.random.randrange(40), self.random.randrange(700))
        )

    def _value(self) -> bytes:
        if self.random.random() < 0.4:
            return b"%d" % self.random.randrange(-100, 1000)
        return self.random.choice(TEXTS)

    def _values(self) -> list[bytes]:
        count = self.random.choice((1, 1, 1, 2, 3, 12, 40))
        return [self._value() for _ in range(count)]

    def _ends(self) -> list[bytes]:
        return [self._index(), self._index()]

    def set(self) -> list[bytes]:
        """Return an ARSET."""
        return [b"ARSET", self._key(), self._index(), *self._values()]

    def set_many(self) -> list[bytes]:
        """Return an ARMSET."""
        pairs = [(self._index(), self._value()) for _ in range(self.random.choice((1, 2, 5, 15)))]
        return [b"ARMSET", self._key(), *(word for pair in pairs for word in pair)]

    def get(self) -> list[bytes]:
        """Return an ARGET, ARLEN or ARCOUNT."""
        name = self.random.choice((b"ARGET", b"ARLEN", b"ARCOUNT", b"ARNEXT"))
        return [name, self._key(), *([self._index()] if name == b"ARGET" else [])]

    def get_many(self) -> list[bytes]:
        """Return an ARMGET."""
        return [b"ARMGET", self._key(), *(self._index() for _ in range(self.random.choice((1, 2, 6))))]

    def get_range(self) -> list[bytes]:
        """Return an ARGETRANGE."""
        return [b"ARGETRANGE", self._key(), *self._ends()]

    def scan(self) -> list[bytes]:
        """Return an ARSCAN."""
        limit = [b"LIMIT", self.random.choice((b"1", b"3", b"100", b"0"))] if self.random.random() < 0.4 else []
        return [b"ARSCAN", self._key(), *self._ends(), *limit]

    def remove(self) -> list[bytes]:
        """Return an ARDEL."""
        return [b"ARDEL", self._key(), *(self._index() for _ in range(self.random.choice((1, 1, 3, 20))))]

    def remove_range(self) -> list[bytes]:
        """Return an ARDELRANGE."""
        words = [word for _ in range(self.random.choice((1, 1, 2))) for word in self._ends()]
        return [b"ARDELRANGE", self._key(), *words]

    def insert(self) -> list[bytes]:
        """Return an ARINSERT."""
        return [b"ARINSERT", self._key(), *self._values()]

    def ring(self) -> list[bytes]:
        """Return an ARRING."""
        size = self.random.choice((b"1", b"3", b"4", b"10", b"50", b"300", b"9223372036854775807", b"0"))
        return [b"ARRING", self._key(), size, *self._values()]

    def seek(self) -> list[bytes]:
        """Return an ARSEEK."""
        return [b"ARSEEK", self._key(), self._index()]

    def last(self) -> list[bytes]:
        """Return an ARLASTITEMS."""
        count = self.random.choice((b"1", b"3", b"20", b"1000000", b"0", b"-1"))
        return [b"ARLASTITEMS", self._key(), count, *self.maybe(self.random.choice((b"REV", b"rev", b"x")))]

    def operation(self) -> list[bytes]:
        """Return an AROP."""
        words = [b"MATCH", self._value()] if self.random.random() < 0.2 else [self.random.choice(OPERATIONS)]
        return [b"AROP", self._key(), *self._ends(), *words]

    def pattern(self) -> bytes:
        """Return a regular expression, at times an invalid one."""
        atoms = self.random.choice((1, 1, 2, 3, 5))
        return b"".join(self.random.choice(ATOMS) + self.random.choice(SUFFIXES) for _ in range(atoms))

    def _predicate(self) -> list[bytes]:
        kind = self.random.choice((b"EXACT", b"match", b"GLOB", b"RE", b"RE", b"RE"))
        if kind == b"RE":
            return [kind, self.pattern()]
        if kind == b"GLOB":
            return [kind, self.random.choice((b"*", b"h*o*", b"[0-9]*", b"?", b"*-*", b"H*"))]
        return [kind, self.random.choice((b"hello", b"", b"1", b"ab", b"HELLO", b"-0.0", b"5"))]

    def search(self) -> list[bytes]:
        """Return an ARGREP."""
        ends = [b"-", b"+"] if self.random.random() < 0.7 else self._ends()
        words = [word for _ in range(self.random.choice((1, 1, 2, 3))) for word in self._predicate()]
        options = [self.maybe(word, 0.25) for word in (b"AND", b"NOCASE", b"WITHVALUES", b"or")]
        limit = [b"LIMIT", self.random.choice((b"1", b"5", b"-1"))] if self.random.random() < 0.2 else []
        return [b"ARGREP", self._key(), *ends, *words, *(word for some in options for word in some), *limit]

    def info(self) -> list[bytes]:
        """Return an ARINFO."""
        return [b"ARINFO", self._key(), *self.maybe(self.random.choice((b"FULL", b"full", b"x")), 0.7)]
