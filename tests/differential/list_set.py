"""Random commands on lists and sets, the same ones for the same seed, and what is to be equal of their replies.

Few keys, small limits that are changed on the way, and values of lengths around them, so that encodings are
converted, nodes split and joined, and elements come that have a node to themselves. What chance decides (SPOP,
SRANDMEMBER) is asked for only where one outcome is possible, or compared by its length.
"""

from __future__ import annotations

from tests.differential import values
from tests.differential.values import NUMBERS, OTHERS

LISTS = (b"l1", b"l2", b"l3")
SETS = (b"s1", b"s2", b"s3", b"s4")
UNORDERED = frozenset(b"smembers sinter sunion sdiff sscan spop srandmember".split())


class Generator(values.Generator):
    """Commands on lists and sets."""

    TABLE = (
        (26, "push"), (6, "pop"), (6, "edit"), (6, "read_list"), (4, "move"), (4, "blocking"), (14, "add"),
        (6, "remove"), (5, "read_set"), (6, "algebra"), (3, "chance"), (4, "key"), (1, "setting"),
    )  # fmt: skip
    SPARED = (b"SPOP", b"SRANDMEMBER", b"SSCAN")
    KEYS = (LISTS + SETS,)
    LIMITS = (
        (b"list-max-listpack-size", (b"-1", b"-2", b"-2", b"0", b"1", b"3", b"16", b"128", b"-5")),
        (b"list-max-ziplist-size", (b"-1", b"-2", b"4")),
        (b"list-compress-depth", (b"0", b"1", b"2")),
        (b"set-max-intset-entries", (b"512", b"8", b"40", b"0")),
        (b"set-max-listpack-entries", (b"128", b"10", b"40")),
        (b"set-max-listpack-value", (b"64", b"4", b"20")),
    )

    def _list(self) -> bytes:
        return self.one_of(LISTS, OTHERS + SETS)

    def _set(self) -> bytes:
        return self.one_of(SETS, OTHERS + LISTS)

    def _value(self) -> bytes:
        kind = self.random.random()
        if kind < 0.35:
            return b"%d" % self.random.randrange(30)
        if kind < 0.5:
            return self.random.choice(NUMBERS)
        if kind < 0.93:
            return self.random.choice((b"a", b"b", b"c", b"abc", b"")) * self.random.choice((1, 1, 2, 7, 21, 22, 40))
        return b"%d:" % self.random.randrange(9) + b"x" * self.random.choice((100, 1000, 4000, 4080, 4096, 8190, 9000))

    def _member(self) -> bytes:
        kind = self.random.random()
        if kind < 0.5:
            return b"%d" % self.random.randrange(40)
        if kind < 0.6:
            return self.random.choice(NUMBERS)
        if kind < 0.95:
            return b"m%d" % self.random.randrange(40)
        return b"%d" % self.random.randrange(4) * self.random.choice((18, 63, 64, 65))

    def _values(self) -> list[bytes]:
        return [self._value() for _ in range(self.random.choice((1, 1, 1, 2, 3, 8)))]

    def _members(self) -> list[bytes]:
        return [self._member() for _ in range(self.random.choice((1, 1, 2, 3, 8, 20)))]

    # -- lists ---------------------------------------------------------------------------------------

    def push(self) -> list[bytes]:
        """Return a command that adds to an end."""
        name = self.random.choice((b"LPUSH", b"RPUSH", b"RPUSH", b"LPUSHX", b"RPUSHX"))
        return [name, self._list(), *self._values()]

    def pop(self) -> list[bytes]:
        """Return a command that takes from an end, or leaves but a part."""
        key = self._list()
        kind = self.random.randrange(8)
        if kind < 4:
            count = [b"%d" % self.random.choice((0, 1, 2, 5, 30))] if self.random.random() < 0.4 else []
            return [self.random.choice((b"LPOP", b"RPOP")), key, *count]
        if kind < 6:
            return [b"LTRIM", key, self.index(), self.index()]
        keys = [self._list() for _ in range(self.random.randrange(1, 3))]
        count = [b"COUNT", b"%d" % self.random.choice((1, 3, 50))] if self.random.random() < 0.5 else []
        return [b"LMPOP", b"%d" % len(keys), *keys, self.random.choice((b"LEFT", b"right")), *count]

    def edit(self) -> list[bytes]:
        """Return a command that changes elements where they are."""
        key = self._list()
        kind = self.random.randrange(6)
        if kind < 2:
            return [b"LSET", key, self.index(), self._value()]
        if kind < 5:
            return [b"LINSERT", key, self.random.choice((b"BEFORE", b"after")), self._value(), self._value()]
        return [b"LREM", key, b"%d" % self.random.choice((0, 1, -1, 2, -2)), self._value()]

    def read_list(self) -> list[bytes]:
        """Return a command that looks at a list."""
        key = self._list()
        kind = self.random.randrange(5)
        if kind == 0:
            return [b"LLEN", key]
        if kind == 1:
            return [b"LINDEX", key, self.index()]
        if kind == 2:
            return [b"LRANGE", key, self.index(), self.index()]
        options: list[bytes] = []
        for name, numbers in ((b"RANK", (1, 2, -1, -3, 0)), (b"COUNT", (0, 1, 3)), (b"MAXLEN", (0, 1, 20))):
            if self.random.random() < 0.4:
                options += [name, b"%d" % self.random.choice(numbers)]
        return [b"LPOS", key, self._value(), *options]

    def move(self) -> list[bytes]:
        """Return a command that moves an element."""
        if self.random.random() < 0.3:
            return [b"RPOPLPUSH", self._list(), self._list()]
        sides = [self.random.choice((b"LEFT", b"RIGHT", b"left")) for _ in range(2)]
        return [b"LMOVE", self._list(), self._list(), *sides]

    def blocking(self) -> list[bytes]:
        """Return a command that waits, a millisecond at most."""
        soon = self.random.choice((b"0.001", b"0.001", b"1e-3", b"-1", b"x", b"inf", b"9223372036854776"))
        kind = self.random.randrange(4)
        if kind == 0:
            return [self.random.choice((b"BLPOP", b"BRPOP")), self._list(), self._list(), soon]
        if kind == 1:
            return [b"BLMOVE", self._list(), self._list(), b"LEFT", self.random.choice((b"left", b"RIGHT")), soon]
        if kind == 2:
            return [b"BRPOPLPUSH", self._list(), self._list(), soon]
        return [b"BLMPOP", soon, b"2", self._list(), self._list(), b"RIGHT", b"COUNT", b"2"]

    # -- sets ----------------------------------------------------------------------------------------

    def add(self) -> list[bytes]:
        """Return an SADD, now and then of so many members that it decides about the encoding."""
        if self.random.random() < 0.04:
            start, prefix = self.random.randrange(1000), self.random.choice((b"", b"m"))
            many = range(start, start + self.random.choice((30, 70)))
            return [b"SADD", self._set(), *(b"%b%d" % (prefix, number) for number in many)]
        return [b"SADD", self._set(), *self._members()]

    def remove(self) -> list[bytes]:
        """Return an SREM or SMOVE."""
        if self.random.random() < 0.3:
            return [b"SMOVE", self._set(), self._set(), self._member()]
        return [b"SREM", self._set(), *self._members()]

    def read_set(self) -> list[bytes]:
        """Return a command that looks at a set."""
        kind = self.random.randrange(5)
        if kind == 0:
            return [b"SCARD", self._set()]
        if kind == 1:
            return [b"SISMEMBER", self._set(), self._member()]
        if kind == 2:
            return [b"SMISMEMBER", self._set(), *self._members()]
        if kind == 3:
            return [b"SMEMBERS", self._set()]
        options: list[bytes] = [b"MATCH", self.random.choice((b"*", b"m*", b"[1-5]"))]
        return [b"SSCAN", self._set(), b"0", b"COUNT", b"10000", *options[: self.random.choice((0, 2))]]

    def algebra(self) -> list[bytes]:
        """Return a union, an intersection or a difference."""
        keys = [self._set() for _ in range(self.random.choice((1, 2, 2, 3)))]
        name = self.random.choice((b"SINTER", b"SUNION", b"SDIFF"))
        if self.random.random() < 0.5:
            return [name + b"STORE", self._set(), *keys]
        if self.random.random() < 0.3:
            limit = [b"LIMIT", b"%d" % self.random.choice((0, 1, 3))] if self.random.random() < 0.5 else []
            return [b"SINTERCARD", b"%d" % len(keys), *keys, *limit]
        return [name, *keys]

    def chance(self) -> list[bytes]:
        """Return an SPOP of all or none, or an SRANDMEMBER of all."""
        if self.random.random() < 0.3:
            return [b"SPOP", self._set(), self.random.choice((b"0", b"100000"))]
        return [b"SRANDMEMBER", self._set(), self.random.choice((b"0", b"100000"))]


def comparable(argv: list[bytes], reply: bytes) -> object:
    """Return what must be equal of a reply: all of it, but for the order of a set's members."""
    if argv[0].lower() in UNORDERED and reply[:1] == b"*":
        return sorted(reply.split(b"\r\n"))
    return reply
