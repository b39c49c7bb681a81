"""Random commands on sorted sets, the same ones for the same seed, and what is to be equal of their replies.

Few keys, few members, scores that are often equal, and small limits that are changed on the way, so that ties are
broken by members and encodings are converted. Some keys hold members of one score, as ranges of members want it. What
chance decides (ZRANDMEMBER) is asked for only where one outcome is possible.
"""

from __future__ import annotations

from tests.differential import values
from tests.differential.values import JUNK, NUMBERS, OTHERS

ZSETS = (b"z1", b"z2", b"z3")
FLAT = (b"f1", b"f2")
"""Sorted sets of one score."""
SETS = (b"s1", b"s2")
SCORES = (
    b"0", b"-0", b"1", b"-1", b"0.1", b"1.1", b"-2.5", b"3.0e-5", b"1e17", b"100000000000000000", b"5e18", b"1e21",
    b"4611686018427387904", b"9223372036854775807", b"inf", b"-inf", b"+inf", b"Infinity", b"0x1p3", b"1e-7", b"5e-324",
    b"45.44936278342308", b"1.7976931348623157e308", b".5", b"5.",
)  # fmt: skip
STRANGE = (
    b"nan", b"1e400", b"-1e400", b"1e-400", b" 1", b"1 ", b"", b"1_0", b"abc", b"0x", b"1e", b"infin", b"1\0", b"(",
    b"(1", b"[a", b"0x1p5000", b"123456789012345678901234567890", b"--1", b"1,5",
)  # fmt: skip


class Generator(values.Generator):
    """Commands on sorted sets."""

    TABLE = (
        (26, "add"), (6, "add_flat"), (7, "remove"), (8, "look_up"), (8, "by_rank"), (9, "by_score"), (7, "by_member"),
        (5, "remove_range"), (9, "algebra"), (6, "pop"), (3, "scan"), (3, "chance"), (4, "key"), (2, "setting"),
    )  # fmt: skip
    SPARED = (b"ZRANDMEMBER", b"ZSCAN")
    JUNK = JUNK + STRANGE
    KEYS = (ZSETS, FLAT)
    KEY_COMMANDS = 5
    LIMITS = (
        (b"zset-max-listpack-entries", (b"128", b"10", b"40", b"0")),
        (b"zset-max-ziplist-entries", (b"128", b"25")),
        (b"zset-max-listpack-value", (b"64", b"2", b"20")),
    )
    SPAN = (30, 200)

    def _zset(self) -> bytes:
        return self.one_of(ZSETS, OTHERS + SETS)

    def _flat(self) -> bytes:
        return self.one_of(FLAT, OTHERS + ZSETS, 0.9)

    def _source(self) -> bytes:
        return self.one_of(ZSETS + ZSETS + FLAT + SETS, OTHERS, 0.97)

    def _member(self) -> bytes:
        kind = self.random.random()
        if kind < 0.45:
            return b"%d" % self.random.randrange(25)
        if kind < 0.55:
            return self.random.choice(NUMBERS)
        if kind < 0.95:
            return b"m%d" % self.random.randrange(25)
        return b"%d" % self.random.randrange(4) * self.random.choice((18, 63, 64, 65))

    def _score(self) -> bytes:
        kind = self.random.random()
        if kind < 0.5:
            return b"%d" % self.random.randrange(-3, 12)
        if kind < 0.7:
            return repr(self.random.uniform(-20, 20)).encode()
        if kind < 0.97:
            return self.random.choice(SCORES)
        return self.random.choice(STRANGE)

    def _bound(self) -> bytes:
        return (b"(" if self.random.random() < 0.3 else b"") + self._score()

    def _end(self) -> bytes:
        kind = self.random.random()
        if kind < 0.3:
            return self.random.choice((b"-", b"+", b"-\0x", b"+x"))
        return self.random.choice((b"(", b"[")) + self._member()

    def _limit(self) -> list[bytes]:
        if self.random.random() < 0.6:
            return []
        numbers = (b"0", b"0", b"1", b"3", b"-1", b"7", b"100")
        return [self.random.choice((b"LIMIT", b"limit")), self.random.choice(numbers), self.random.choice(numbers)]

    # -- changes -------------------------------------------------------------------------------------

    def add(self) -> list[bytes]:
        """Return a ZADD or ZINCRBY, now and then of so many members that it decides about the encoding."""
        if self.random.random() < 0.2:
            return [b"ZINCRBY", self._zset(), self._score(), self._member()]
        options = [option for option in (b"NX", b"XX", b"GT", b"LT", b"ch") if self.random.random() < 0.12]
        count = self.random.choice((1, 1, 2, 3, 8, 20))
        if self.random.random() < 0.08:
            options.append(b"INCR")
            count = 1
        pairs = [word for _ in range(count) for word in (self._score(), self._member())]
        if self.random.random() < 0.04:
            start = self.random.randrange(1000)
            many = range(start, start + self.random.choice((20, 70, 200)))
            pairs = [word for number in many for word in (b"%d" % (number % 7), b"n%d" % number)]
        return [b"ZADD", self._zset(), *options, *pairs]

    def add_flat(self) -> list[bytes]:
        """Return a ZADD of members with the one score, or an SADD."""
        members = [self._member() for _ in range(self.random.choice((1, 3, 8, 30)))]
        if self.random.random() < 0.3:
            return [b"SADD", self.random.choice(SETS), *members]
        return [b"ZADD", self.random.choice(FLAT), *(word for member in members for word in (b"7", member))]

    def remove(self) -> list[bytes]:
        """Return a ZREM."""
        return [b"ZREM", self._zset(), *(self._member() for _ in range(self.random.choice((1, 2, 10))))]

    def remove_range(self) -> list[bytes]:
        """Return a removal of a range, mostly of a small one."""
        kind = self.random.randrange(3)
        if kind == 0:
            start = self.random.randrange(-20, 20)
            return [b"ZREMRANGEBYRANK", self._zset(), b"%d" % start, b"%d" % (start + self.random.randrange(-1, 8))]
        if kind == 1:
            low = self.random.randrange(-3, 12)
            return [b"ZREMRANGEBYSCORE", self._zset(), self.random.choice((b"%d", b"(%d")) % low, b"%d" % (low + 1)]
        return [b"ZREMRANGEBYLEX", self._flat(), self._end(), self._end()]

    def pop(self) -> list[bytes]:
        """Return what takes from an end; what waits does so for a millisecond at most."""
        soon = self.random.choice((b"0.001", b"0.001", b"-1", b"x", b"9223372036854776"))
        side = self.random.choice((b"MIN", b"max"))
        kind = self.random.randrange(5)
        keys = [self._zset() for _ in range(self.random.randrange(1, 3))]
        count = [b"COUNT", self.random.choice((b"1", b"3", b"50"))] if self.random.random() < 0.5 else []
        if kind < 2:
            count = [b"%d" % self.random.choice((0, 1, 2, 30))] if self.random.random() < 0.5 else []
            return [b"ZPOP" + side.upper(), self._zset(), *count]
        if kind == 2:
            return [b"ZMPOP", b"%d" % len(keys), *keys, side, *count]
        if kind == 3:
            return [b"BZPOP" + side.upper(), *keys, soon]
        return [b"BZMPOP", soon, b"%d" % len(keys), *keys, side, *count]

    # -- reading -------------------------------------------------------------------------------------

    def look_up(self) -> list[bytes]:
        """Return a command that looks for members."""
        kind = self.random.randrange(6)
        if kind == 0:
            return [b"ZCARD", self._zset()]
        if kind == 1:
            return [b"ZSCORE", self._zset(), self._member()]
        if kind == 2:
            return [b"ZMSCORE", self._zset(), *(self._member() for _ in range(4))]
        name = self.random.choice((b"ZRANK", b"ZREVRANK"))
        return [name, self._zset(), self._member(), *self.maybe(b"withscore", 0.3)]

    def by_rank(self) -> list[bytes]:
        """Return a range of ranks."""
        bounds = [self.index(), self.index()]
        kind = self.random.randrange(4)
        if kind == 0:
            return [b"ZREVRANGE", self._zset(), *bounds, *self.maybe(b"WITHSCORES")]
        if kind == 1:
            return [b"ZRANGESTORE", self._zset(), self._zset(), *bounds, *self.maybe(b"REV")]
        return [b"ZRANGE", self._zset(), *bounds, *self.maybe(b"REV"), *self.maybe(b"withscores")]

    def by_score(self) -> list[bytes]:
        """Return a range of scores."""
        bounds = [self._bound(), self._bound()]
        kind = self.random.randrange(5)
        if kind == 0:
            return [b"ZCOUNT", self._zset(), *bounds]
        if kind == 1:
            name = self.random.choice((b"ZRANGEBYSCORE", b"ZREVRANGEBYSCORE"))
            return [name, self._zset(), *bounds, *self.maybe(b"WITHSCORES"), *self._limit()]
        if kind == 2:
            options = [*self.maybe(b"REV"), *self._limit()]
            return [b"ZRANGESTORE", self._zset(), self._zset(), *bounds, b"BYSCORE", *options]
        options = [b"byscore", *self.maybe(b"REV"), *self._limit(), *self.maybe(b"WITHSCORES")]
        return [b"ZRANGE", self._zset(), *bounds, *options]

    def by_member(self) -> list[bytes]:
        """Return a range of members."""
        bounds = [self._end(), self._end()]
        kind = self.random.randrange(5)
        if kind == 0:
            return [b"ZLEXCOUNT", self._flat(), *bounds]
        if kind == 1:
            name = self.random.choice((b"ZRANGEBYLEX", b"ZREVRANGEBYLEX"))
            return [name, self._flat(), *bounds, *self._limit()]
        if kind == 2:
            options = [*self.maybe(b"REV"), *self._limit()]
            return [b"ZRANGESTORE", self.random.choice(FLAT), self.random.choice(FLAT), *bounds, b"BYLEX", *options]
        return [b"ZRANGE", self._flat(), *bounds, b"BYLEX", *self.maybe(b"REV"), *self._limit()]

    def algebra(self) -> list[bytes]:
        """Return a union, an intersection or a difference."""
        keys = [self._source() for _ in range(self.random.choice((1, 2, 2, 3)))]
        what = self.random.choice((b"ZUNION", b"ZINTER", b"ZDIFF"))
        options: list[bytes] = []
        if what != b"ZDIFF":
            if self.random.random() < 0.4:
                options += [b"WEIGHTS", *(self._score() for _ in keys)]
            if self.random.random() < 0.4:
                aggregates = (b"SUM", b"min", b"MAX", b"count") if self.level > 100 else (b"SUM", b"min", b"MAX")
                options += [b"AGGREGATE", self.random.choice(aggregates)]
        if self.random.random() < 0.5:
            return [what + b"STORE", self._zset(), b"%d" % len(keys), *keys, *options]
        if self.random.random() < 0.2:
            limit = [b"LIMIT", b"%d" % self.random.choice((0, 1, 3))] if self.random.random() < 0.5 else []
            return [b"ZINTERCARD", b"%d" % len(keys), *keys, *limit]
        return [what, b"%d" % len(keys), *keys, *options, *self.maybe(b"WITHSCORES", 0.6)]

    def scan(self) -> list[bytes]:
        """Return a ZSCAN that returns everything at once."""
        options: list[bytes] = [b"MATCH", self.random.choice((b"*", b"m*", b"[1-5]"))]
        return [b"ZSCAN", self._zset(), b"0", b"COUNT", b"10000", *options[: self.random.choice((0, 2))]]

    def chance(self) -> list[bytes]:
        """Return a ZRANDMEMBER of all."""
        return [b"ZRANDMEMBER", self._zset(), self.random.choice((b"0", b"100000")), *self.maybe(b"WITHSCORES")]


def comparable(reply: bytes) -> object:
    """Return what must be equal of a ZSCAN of a skiplist, whose order is up to chance: the members and their scores."""
    words = reply.split(b"\r\n")
    return words[:3], sorted(tuple(words[at : at + 4]) for at in range(4, len(words), 4))
