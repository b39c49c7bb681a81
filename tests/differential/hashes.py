"""Random commands on hashes, the same ones for the same seed, and what is to be equal of their replies.

Few keys, few fields, small limits that are changed on the way, and words of lengths around them, so that hashes are
converted while they are set, added to and read from payloads. What chance decides (HRANDFIELD) is asked for only where
one outcome is possible.
"""

from __future__ import annotations

from tests.differential import values
from tests.differential.values import JUNK, NUMBERS, OTHERS

HASHES = (b"h1", b"h2", b"h3")
FAR_MS = 4_000_000_000_000
VALKEY = 72
"""The level of Valkey, the first one of a real server with field expiry."""
UNORDERED = frozenset(b"hgetall hkeys hvals hscan hrandfield".split())
FLOATS = (
    b"0.1", b"-2.5", b"1e3", b"3.0e-5", b"5e-18", b"1e17", b"0x10p2", b"12345678901234567890", b"-0.0", b"1e4000",
    b"inf", b"-inf", b"nan", b"1.7976931348623157e308", b" 1", b"1e5000", b"99999999999999999.99",
)  # fmt: skip


class Generator(values.Generator):
    """Commands on hashes."""

    TABLE = (
        (24, "put"), (8, "count"), (7, "count_float"), (8, "remove"), (12, "read"), (5, "scan"), (4, "chance"),
        (5, "key"), (2, "setting"), (12, "expiry"),
    )  # fmt: skip
    SPARED = (b"HRANDFIELD", b"HSCAN", b"SCAN")
    KEYS = (HASHES,)
    SCAN = (b"SCAN", b"0", b"COUNT", b"1000", b"TYPE", b"hash", b"MATCH", b"h1")
    LIMITS = (
        (b"hash-max-listpack-entries", (b"512", b"512", b"30", b"8", b"1", b"0")),
        (b"hash-max-ziplist-entries", (b"512", b"40")),
        (b"hash-max-listpack-value", (b"64", b"64", b"20", b"4", b"1kb")),
        (b"hash-max-ziplist-value", (b"64", b"10")),
    )

    def _hash(self) -> bytes:
        return self.one_of(HASHES, OTHERS)

    def _field(self) -> bytes:
        kind = self.random.random()
        if kind < 0.45:
            return b"%d" % self.random.randrange(25)
        if kind < 0.9:
            return b"f%d" % self.random.randrange(25)
        if kind < 0.95:
            return self.random.choice(NUMBERS)
        return self.random.choice((b"", b"\xff\x00", b"F" * self.random.choice((18, 63, 64, 65, 4100))))

    def _content(self) -> bytes:
        kind = self.random.random()
        if kind < 0.4:
            return b"%d" % self.random.randrange(-300, 300)
        if kind < 0.6:
            return self.random.choice(NUMBERS + FLOATS)
        if kind < 0.97:
            return self.random.choice((b"a", b"b", b"abc", b"")) * self.random.choice((1, 1, 2, 6, 7, 20))
        return b"v" * self.random.choice((18, 63, 64, 65, 300, 5000))

    def _fields(self) -> list[bytes]:
        return [self._field() for _ in range(self.random.choice((1, 1, 2, 3, 8)))]

    def _time(self) -> list[bytes]:
        """Return a time in the far future, at times in the past, with the option that precedes it."""
        ms = self.random.choice((1, *(FAR_MS + by for by in (0, 1, 999, 3999, 4000, 4001, 10**7, 10**9))))
        if self.random.random() < 0.3:
            return [b"EXAT", b"%d" % (ms // 1000)]
        return [b"pxat", b"%d" % ms]

    # -- commands ------------------------------------------------------------------------------------

    def put(self) -> list[bytes]:
        """Return a command that sets fields, now and then so many that their number decides about the encoding."""
        kind = self.random.random()
        if kind < 0.2:
            return [b"HSETNX", self._hash(), self._field(), self._content()]
        if kind < 0.24:
            start, step = self.random.randrange(1000), self.random.choice((0, 1))
            pairs = ((b"m%d" % (start + step * at), b"%d" % at) for at in range(self.random.choice((30, 70))))
            return [b"HSET", self._hash(), *(word for pair in pairs for word in pair)]
        words = [word for field in self._fields() for word in (field, self._content())]
        return [b"HMSET" if kind < 0.45 else b"HSET", self._hash(), *words]

    def count(self) -> list[bytes]:
        """Return an HINCRBY."""
        return [b"HINCRBY", self._hash(), self._field(), self.random.choice((b"1", b"-7", *NUMBERS))]

    def count_float(self) -> list[bytes]:
        """Return an HINCRBYFLOAT."""
        return [b"HINCRBYFLOAT", self._hash(), self._field(), self.random.choice((b"1", b"-7", *FLOATS))]

    def remove(self) -> list[bytes]:
        """Return an HDEL or HGETDEL."""
        if self.level >= 80 and self.random.random() < 0.3:
            fields = self._fields()
            number = len(fields) if self.random.random() < 0.9 else self.random.choice((0, -1, 2, 2**63))
            return [b"HGETDEL", self._hash(), b"fields", b"%d" % number, *fields]
        return [b"HDEL", self._hash(), *self._fields()]

    def read(self) -> list[bytes]:
        """Return a command that looks at a hash."""
        kind = self.random.randrange(8)
        if kind < 3:
            return [self.random.choice((b"HGET", b"HEXISTS", b"HSTRLEN")), self._hash(), self._field()]
        if kind == 3:
            return [b"HMGET", self._hash(), *self._fields()]
        return [self.random.choice((b"HLEN", b"HKEYS", b"HVALS", b"HGETALL")), self._hash()]

    def expiry(self) -> list[bytes]:
        """Return a command on the expiry of fields; without a clock, so the time is absolute."""
        if self.level < VALKEY:
            return self.put()
        kind = self.random.random()
        fields = self._fields()
        named = [b"FIELDS", b"%d" % len(fields), *fields]
        if kind < 0.4:
            option, when = self._time()
            name = b"HPEXPIREAT" if option == b"pxat" else b"HEXPIREAT"
            condition = [self.random.choice((b"NX", b"xx", b"GT", b"lt"))] if self.random.random() < 0.4 else []
            return [name, self._hash(), when, *condition, *named]
        if kind < 0.55:
            chosen = self.random.choice(([], [b"PERSIST"], self._time()))
            return [b"HGETEX", self._hash(), *chosen, *named]
        if kind < 0.75:
            options = [self.random.choice((b"FNX", b"FXX"))] if self.random.random() < 0.3 else []
            options += self.random.choice(([], [b"KEEPTTL"], self._time(), self._time()))
            if self.level < 88:  # Redis 8.6.3 crashes if HSETEX names a field twice
                fields = list(dict.fromkeys(fields))
            pairs = [word for field in fields for word in (field, self._content())]
            return [b"HSETEX", self._hash(), *options, b"FIELDS", b"%d" % len(fields), *pairs]
        name = self.random.choice((b"HPERSIST", b"HEXPIRETIME", b"HPEXPIRETIME"))
        return [name, self._hash(), *named]

    def scan(self) -> list[bytes]:
        """Return an HSCAN of everything."""
        options: list[bytes] = []
        if self.random.random() < 0.5:
            options += [b"MATCH", self.random.choice((b"*", b"f*", b"[1-5]", b"?"))]
        if self.random.random() < 0.4:
            options.insert(self.random.choice((0, len(options))), b"NOVALUES")
        if self.random.random() < 0.06:
            options += [self.random.choice(JUNK)]
        cursor = self.random.choice((b"0", b"0", b"0", b"0", b"x"))
        return [b"HSCAN", self._hash(), cursor, b"COUNT", b"100000", *options]

    def chance(self) -> list[bytes]:
        """Return an HRANDFIELD of all fields, of none, or a wrong one."""
        words = self.random.choice((
            [b"100000"], [b"100000", b"WITHVALUES"], [b"100000", b"withvalues"], [b"0"], [b"0", b"WITHVALUES"],
            [b"x"], [b"1", b"values"], [b"1", b"withvalues", b"x"], [b"-9223372036854775808"],
            [b"-4611686018427387904", b"withvalues"], [b"4611686018427387904", b"WITHVALUES"],
        ))  # fmt: skip
        return [b"HRANDFIELD", self._hash(), *words]


def comparable(argv: list[bytes], reply: bytes) -> object:
    """Return what must be equal of a reply: all of it, but for the order of the fields of a hashtable."""
    if argv[0].lower() in UNORDERED and reply[:1] in (b"*", b"%"):
        return sorted(reply.split(b"\r\n"))
    return reply
