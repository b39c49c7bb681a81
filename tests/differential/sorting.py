"""Random SORT and SORT_RO of lists, sets and sorted sets, by their elements, by keys and by fields, stored at times.

Sets have integers only and sorted sets are not sorted by the texts of other keys: where Redis walks a hashtable, the
order of equal elements is up to chance.
"""

from __future__ import annotations

from tests.differential import values

LISTS = (b"l1", b"l2", b"out")
SETS = (b"s1",)
ZSETS = (b"z1",)
WEIGHTS = tuple(b"w_%d" % number for number in range(12))
RECORDS = tuple(b"h_%d" % number for number in range(12))
ELEMENTS = (
    *(b"%d" % number for number in range(12)), b"1.5", b"-3", b"1e2", b"", b"a", b"B", b"aa", b"a\0b", b"a\0a",
    b"9223372036854775807", b"9223372036854775806", b"0x10", b" 7", b"+5", b"07", b"inf", b"-inf", b"nan", b"3 ",
    b"7\0x", b".5", b"2.", b"1e", b"x" * 70,
)  # fmt: skip
NUMBERS = tuple(b"%d" % number for number in range(12))
BY = (b"w_*", b"w_*", b"w_*", b"h_*->n", b"h_*->t", b"nosort", b"x*", b"*", b"w_*->", b"h_*->", b"#", b"w_\0*")
GET = (b"#", b"w_*", b"h_*->n", b"h_*->t", b"fixed", b"*", b"h_*->", b"#x", b"h_*->n\0", b"l*")


class Generator(values.Generator):
    """Commands that sort, and those that change what is sorted."""

    TABLE = (
        (60, "sort"), (14, "push"), (4, "add"), (4, "score"), (10, "weight"), (6, "record"), (4, "key"), (1, "setting"),
    )  # fmt: skip
    SPARED = (b"SADD", b"ZADD")
    JUNK = (*values.JUNK, b"ASC", b"desc", b"BY", b"GET", b"STORE", b"alpha")
    KEYS = (LISTS,)
    LIMITS = ((b"list-max-listpack-size", (b"-2", b"4", b"-1")), (b"list-compress-depth", (b"0", b"1")))
    SPAN = (6, 30)

    def elements(self, pool: tuple[bytes, ...]) -> list[bytes]:
        """Return some elements, of which a few are the same."""
        return self.random.choices(pool, k=self.random.choice((1, 2, 5, 5, 9, 50)))

    def sort(self) -> list[bytes]:
        """Return a SORT of anything."""
        key = self.one_of((*LISTS, *LISTS, *SETS, *ZSETS))
        read_only = self.random.random() < 0.15
        by_text = False
        options: list[list[bytes]] = []
        if self.random.random() < 0.6:
            options.append([b"BY", self.random.choice(BY)])
            by_text = b"*" in options[-1][1]
        for _ in range(self.random.choice((0, 0, 1, 1, 2))):
            options.append([b"GET", self.random.choice(GET)])
        if self.random.random() < 0.4:
            options.append([b"LIMIT", self.index(), self.index()])
        if self.random.random() < 0.7:
            options.append([self.random.choice((b"ASC", b"DESC", b"desc"))])
        if self.random.random() < 0.5 and not (by_text and key in ZSETS):
            options.append([b"ALPHA"])
        if self.random.random() < (0.05 if read_only else 0.3):
            options.append([b"STORE", self.random.choice((b"out", b"out", b"l2"))])
        self.random.shuffle(options)
        return [b"SORT_RO" if read_only else b"SORT", key, *(word for words in options for word in words)]

    def push(self) -> list[bytes]:
        """Return an RPUSH, mostly of numbers, or a new list of them."""
        pool = ELEMENTS if self.random.random() < 0.25 else NUMBERS
        return [self.random.choice((b"RPUSH", b"LPUSH")), self.random.choice(LISTS), *self.elements(pool)]

    def add(self) -> list[bytes]:
        """Return an SADD of integers."""
        return [b"SADD", b"s1", *self.elements(NUMBERS)]

    def score(self) -> list[bytes]:
        """Return a ZADD."""
        member = self.random.choice((*NUMBERS, b"a", b"x" * 70))
        return [b"ZADD", b"z1", self.random.choice((b"1", b"2", b"-1.5")), member]

    def weight(self) -> list[bytes]:
        """Return a SET of the value that an element is sorted by; few values, so that many are equal."""
        if self.random.random() < 0.1:
            return [b"DEL", self.random.choice(WEIGHTS)]
        return [b"SET", self.random.choice(WEIGHTS), self.random.choice((*NUMBERS[:4], *NUMBERS[:4], *ELEMENTS))]

    def record(self) -> list[bytes]:
        """Return an HSET of a field that an element is sorted by."""
        word = self.random.choice((*NUMBERS[:3], *ELEMENTS))
        return [b"HSET", self.random.choice(RECORDS), self.random.choice((b"n", b"t", b"")), word]

    def key(self) -> list[bytes]:
        """Return a command on a key of any kind; lists are cut, as else they would only grow."""
        if self.random.random() < 0.4:
            return [b"LTRIM", self.random.choice(LISTS), b"0", b"12"]
        return super().key()
