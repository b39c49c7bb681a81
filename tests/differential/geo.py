"""Random GEO commands: crowded and distant places, the edges of the world, equal distances, any score as a place."""

from __future__ import annotations

from tests.differential import values

PLACES = (b"g1", b"g2", b"g3")
STORED = (b"g4",)
OTHERS = (b"missing", b"list", b"text")
EDGES = ((b"180", b"85.05112878"), (b"-180", b"-85.05112878"), (b"0", b"0"), (b"179.9", b"10"),
         (b"-179.9", b"10"), (b"5", b"84"), (b"1e1", b"0x1p2"), (b"180.1", b"0"), (b"0", b"85.06"), (b"x", b"0"),
         (b"inf", b"0"))  # fmt: skip
SCORES = (b"0", b"-1", b"4503599627370496", b"13510798882111488", b"1e17", b"1e300", b"inf", b"-inf", b"3.5")


class Generator(values.Generator):
    """Commands on places, of which a few lie on a grid, so that distances are equal."""

    TABLE = (
        (24, "add"), (16, "search"), (12, "radius"), (9, "store"), (9, "look_up"), (4, "score"), (3, "key"),
        (1, "setting"),
    )  # fmt: skip
    SPARED = ()
    JUNK = (*values.JUNK, b"any", b"WITHDIST", b"storedist", b"BYBOX", b"byradius", b"fromlonlat", b"mi", b"inch",
            b"NX")  # fmt: skip
    KEYS = (PLACES,)
    LIMITS = ((b"zset-max-listpack-entries", (b"128", b"10", b"40")),)

    def _key(self) -> bytes:
        return self.one_of(PLACES, OTHERS + STORED)

    def _member(self) -> bytes:
        return b"%d" % self.random.randrange(90)

    def _place(self) -> list[bytes]:
        kind = self.random.random()
        if kind < 0.5:
            return [b"%d" % self.random.randrange(10, 14), b"%.1f" % self.random.choice((0, 45, 45.1, 45.2))]
        if kind < 0.75:
            return [repr(self.random.uniform(12, 13)).encode(), repr(self.random.uniform(45, 46)).encode()]
        if kind < 0.9:
            return [repr(self.random.uniform(-180, 180)).encode(), repr(self.random.uniform(-85, 85)).encode()]
        return list(self.random.choice(EDGES))

    def _length(self) -> bytes:
        some = (b"0", b"1", b"10.5", b"100", b"500", b"2000", b"20000", b"1e10", b"1e308", b"-1")
        return self.random.choice((*some, b"%d" % 10 ** self.random.randrange(9)))

    def _unit(self) -> bytes:
        return self.random.choice((b"m", b"KM", b"km", b"km", b"ft", b"mi"))

    def _options(self, with_more: bool) -> list[bytes]:
        more = [word for word in (b"WITHDIST", b"withcoord", b"WITHHASH") if with_more and self.random.random() < 0.5]
        count = [b"COUNT", b"%d" % self.random.choice((1, 2, 3, 5, 12, 100))] if self.random.random() < 0.5 else []
        if count and self.random.random() < 0.3:
            count.append(b"ANY")
        return [*self.maybe(self.random.choice((b"ASC", b"desc"))), *count, *more]

    def add(self) -> list[bytes]:
        """Return a GEOADD of some places."""
        words = [*self.maybe(self.random.choice((b"NX", b"xx", b"CH")), 0.2)]
        for _ in range(self.random.choice((1, 1, 2, 8, 30))):
            words += [*self._place(), self._member()]
        return [b"GEOADD", self._key(), *words]

    def _shape(self) -> list[bytes]:
        kind = self.random.random()
        if kind < 0.45:
            return [b"BYRADIUS", self._length(), self._unit()]
        if kind < 0.85:
            return [b"BYBOX", self._length(), self._length(), self._unit()]
        return [b"BYPOLYGON", b"4", b"9", b"44", b"15", b"44.5", *self._place(), b"10", b"47"]

    def _search(self, with_more: bool) -> list[bytes]:
        shape = self._shape()
        centre = [b"FROMLONLAT", *self._place()] if self.random.random() < 0.6 else [b"FROMMEMBER", self._member()]
        if shape[0] == b"BYPOLYGON" and self.random.random() < 0.9:
            centre = []
        parts = [shape, centre]
        self.random.shuffle(parts)
        return [*parts[0], *parts[1], *self._options(with_more)]

    def search(self) -> list[bytes]:
        """Return a GEOSEARCH."""
        return [b"GEOSEARCH", self._key(), *self._search(True)]

    def radius(self) -> list[bytes]:
        """Return a GEORADIUS of some kind."""
        size = [self._length(), self._unit()]
        suffix = self.random.choice((b"", b"", b"_RO"))
        if self.random.random() < 0.5:
            return [b"GEORADIUS" + suffix, self._key(), *self._place(), *size, *self._options(True)]
        return [b"GEORADIUSBYMEMBER" + suffix, self._key(), self._member(), *size, *self._options(True)]

    def store(self) -> list[bytes]:
        """Return a search that stores its result."""
        target = self.random.choice(PLACES[:1] + STORED)
        if self.random.random() < 0.6:
            return [b"GEOSEARCHSTORE", target, self._key(), *self._search(False), *self.maybe(b"STOREDIST")]
        word = self.random.choice((b"STORE", b"storedist"))
        return [b"GEORADIUS", self._key(), *self._place(), b"300", b"km", *self._options(False), word, target]

    def look_up(self) -> list[bytes]:
        """Return a GEOPOS, GEOHASH or GEODIST."""
        members = [self._member() for _ in range(self.random.choice((1, 2, 3)))]
        if self.random.random() < 0.5:
            return [self.random.choice((b"GEOPOS", b"GEOHASH")), self._key(), *members]
        return [b"GEODIST", self._key(), self._member(), self._member(), *self.maybe(self._unit())]

    def score(self) -> list[bytes]:
        """Return a command on the sorted set: any score is a place."""
        if self.random.random() < 0.5:
            return [b"ZADD", self.random.choice(PLACES), self.random.choice(SCORES), self._member()]
        return [b"ZREM", self.random.choice(PLACES), *(self._member() for _ in range(5))]
