"""The commands and options that came after Redis 7.0, for the generator: often where they are known, else seldom.

    82   XDELEX, XACKDEL, and what becomes of references: KEEPREF, DELREF, ACKED
    84   XREADGROUP CLAIM
    86   XADD IDMP and IDMPAUTO, XCFGSET, XIDMPRECORD
    88   XNACK
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from rillet.types.compat import Compat

STRATEGIES = [b"KEEPREF", b"DELREF", b"ACKED"]
MODES = [b"SILENT", b"FAIL", b"FATAL"]
PRODUCERS = [b"p1", b"p2", b"p\x003"]
MESSAGES = [b"m1", b"m2", b"m3", b"m4", b"17"]
UNKNOWN = 0.05
"""How often what is not known is made, compared with what is."""


class NewerCommands:
    """What `Generator` makes of later versions; the words come from its own methods."""

    random: random.Random
    compat: Compat

    if TYPE_CHECKING:

        def chance(self, probability: float) -> bool: ...
        def key(self) -> bytes: ...
        def group(self) -> bytes: ...
        def consumer(self) -> bytes: ...
        def ident(self, key: bytes = ...) -> bytes: ...
        def held(self, key: bytes, group: bytes) -> bytes: ...
        def idle(self) -> bytes: ...
        def number(self, low: int, high: int) -> bytes: ...

    def newer(self) -> list[tuple[float, Callable[[], list[bytes]]]]:
        """Return the makers of commands, each with how often it is asked."""
        return [
            (self.often(82, 4), self.xdelex), (self.often(82, 5), self.xackdel), (self.often(86, 1), self.xcfgset),
            (self.often(86, 1), self.xidmprecord), (self.often(88, 6), self.xnack),
        ]  # fmt: skip

    def often(self, level: int, weight: float) -> float:
        """Return the weight of something that is there since a level."""
        return weight if self.compat.knows(level) else weight * UNKNOWN

    # -- options

    def strategy(self) -> list[bytes]:
        """Return what is to become of references, mostly nothing."""
        if not self.chance(self.often(82, 0.3)):
            return []
        return self.random.choices(STRATEGIES, k=2 if self.chance(0.03) else 1)

    def claiming(self) -> list[bytes]:
        """Return XREADGROUP's CLAIM, mostly nothing."""
        return [b"CLAIM", self.idle()] if self.chance(self.often(84, 0.3)) else []

    def idempotent(self) -> list[bytes]:
        """Return the names of a message and its producer, or nothing."""
        if not self.chance(self.often(86, 0.6)):
            return []
        producer = self.random.choice(PRODUCERS)
        if self.chance(0.4):
            return [b"IDMPAUTO", producer]
        return [b"IDMP", producer, self.random.choice(MESSAGES)]

    def some_ids(self, key: bytes, group: bytes, most: int) -> list[bytes]:
        """Return the IDS block of entries that a group may hold, now and then with a wrong number."""
        ids = [self.held(key, group) for _ in range(self.random.randint(1, most))]
        count = len(ids) if self.chance(0.95) else self.random.randint(-1, most + 1)
        return [b"IDS", b"%d" % count, *ids]

    def in_any_order(self, *options: list[bytes]) -> list[bytes]:
        """Return the words of all options, in an order of chance."""
        order = list(options)
        self.random.shuffle(order)
        return [word for words in order for word in words]

    # -- commands

    def xdelex(self) -> list[bytes]:
        """Return an XDELEX."""
        key = self.key()
        return [b"XDELEX", key, *self.in_any_order(self.strategy(), self.some_ids(key, b"", 3))]

    def xackdel(self) -> list[bytes]:
        """Return an XACKDEL."""
        key, group = self.key(), self.group()
        return [b"XACKDEL", key, group, *self.in_any_order(self.strategy(), self.some_ids(key, group, 3))]

    def xnack(self) -> list[bytes]:
        """Return an XNACK of a mode, with any options."""
        key, group = self.key(), self.group()
        count = [b"RETRYCOUNT", self.random.choice([b"0", b"3", b"-1", b"9223372036854775807"])]
        options = self.in_any_order(
            self.some_ids(key, group, 4), count if self.chance(0.2) else [], [b"FORCE"] if self.chance(0.3) else []
        )
        return [b"XNACK", key, group, self.random.choice(MODES), *options]

    def xcfgset(self) -> list[bytes]:
        """Return an XCFGSET of one or both limits."""
        options = self.in_any_order(
            [b"IDMP-DURATION", self.random.choice([b"100", b"86400", b"0", b"86401"])] if self.chance(0.6) else [],
            [b"IDMP-MAXSIZE", self.random.choice([b"100", b"2", b"3", b"0", b"10001"])] if self.chance(0.6) else [],
        )
        return [b"XCFGSET", self.random.choice([b"future", self.key()]), *options]

    def xidmprecord(self) -> list[bytes]:
        """Return an XIDMPRECORD; elsewhere than behind the clock what it records would expire at once."""
        ident = self.ident(b"future") if self.chance(0.9) else b"x"
        return [b"XIDMPRECORD", b"future", self.random.choice(PRODUCERS), self.random.choice(MESSAGES), ident]
