"""Random stream commands, valid and invalid, the same ones for the same seed.

Few keys, groups and consumers, so that commands meet each other's work; explicit IDs from a narrow, rising
range, so that they hit, miss and repeat; options of every command; now and then a word that is replaced,
dropped, doubled or written in another case. Nothing depends on the clock: a min-idle-time is 0 or lies far
between the idle times that XCLAIM is told to set.

All commands are made for every `compat`; those that it does not know (`newer` has them) are seldom, as what must be
refused. One key, FUTURE, begins behind every clock, so that the IDs that `*` gives there are known: IDMP takes no
others. EDGE's IDs end at 2^64-1.
"""

from __future__ import annotations

import random
import re
from collections import deque
from collections.abc import Callable

from rillet.types.compat import COMPATS, Compat
from rillet.types.stream.stream import Stream
from tests.differential.newer import NewerCommands
from tests.differential.wire import Local

EDGE = b"edge"
FUTURE = b"future"
KEYS = [b"s1", b"s2", b"s3", EDGE, FUTURE]
_SOME_KEYS = [*KEYS[:3], *KEYS[:3], *KEYS]
LAST = (1 << 64) - 1
FUTURE_MS = 5_000_000_000_000
GROUPS = [b"g1", b"g2", b"g\x003"]
CONSUMERS = [b"c1", b"c2", b"c3"]
TEXT_KEY = b"text"
MISSING = b"missing"
FIRST = [[b"SET", TEXT_KEY, b"x"], [b"XADD", FUTURE, b"%d-0" % FUTURE_MS, b"f", b"v"]]
"""The commands that come before those of any seed."""
SHORT_IDLE, LONG_IDLE, BETWEEN = 0, 10_000_000, 1_000_000
JUNK = [
    b"", b"abc", b"-1", b"0", b"1", b"7", b"$", b">", b"+", b"-", b"(1-1", b"(", b"5-", b"-5", b"1-1-1", b"0-0",
    b"0-1", b"18446744073709551615-18446744073709551615", b"(18446744073709551615-18446744073709551615", b"(0-0",
    b"(-", b"(+", b"18446744073709551615", b"18446744073709551616", b"9223372036854775807", b"9223372036854775808",
    b"-9223372036854775808", b"01", b"1 ", b" 1", b"+1", b"1.5", b"x\x00y", b"3-*", b"~", b"=", b"COUNT", b"LIMIT",
    b"FORCE", b"MAXLEN", b"MINID", b"NOMKSTREAM", b"JUSTID", b"IDLE", b"NOACK", b"STREAMS", b"GROUP", b"MKSTREAM",
    b"ENTRIESREAD", b"FULL", b"KEEPREF", b"DELREF", b"ACKED", b"IDS", b"CLAIM", b"IDMP", b"IDMPAUTO", b"SILENT",
    b"RETRYCOUNT", b"*", b"\xff\x00\xfe", b"HELP", b"LASTID", b"force\x00x", b"1--5", b"1--05", b"9" * 130,
]  # fmt: skip

_IDS = re.compile(rb"\r\n(\d+-\d+)\r\n")


def asks_the_clock(local: Local, argv: list[bytes]) -> bool:
    """Whether the reply hangs on a millisecond: an ID that the clock gives, or a min-idle-time that is soon over.

    The first is an XADD that has a `*`, unless the stream is ahead of every clock. And from 8.4 to 8.6 COPY puts
    entries in order that were delivered in the same millisecond, so that CLAIM takes them in another one.
    """
    name = argv[0].lower()
    if name == b"xadd" and any(word[:2] in (b"*", b"*\0") for word in argv[2:]):
        stream = local.session.db.lookup(argv[1])
        return not isinstance(stream, Stream) or stream.last_ms < FUTURE_MS
    if name == b"copy" and 84 <= local.engine.settings.compat.level < 88:
        stream = local.session.db.lookup(argv[1])
        return isinstance(stream, Stream) and any(group.pending_count for group in stream.groups.values())
    if name in (b"xclaim", b"xautoclaim"):
        idles = argv[4:5]
    else:
        idles = [argv[at + 1] for at, word in enumerate(argv[:-1]) if word.lower() in (b"idle", b"claim")]
    return any(word.isdigit() and 0 < int(word) < BETWEEN for word in idles)


class Generator(NewerCommands):
    """Commands of one seed; `next()` gives the words of the next one."""

    def __init__(self, seed: int, compat: str = "7.0") -> None:
        self.random = random.Random(seed)
        self.compat: Compat = COMPATS[compat]
        self.ms = 1
        self.known: deque[bytes] = deque(maxlen=150)
        self.far: deque[bytes] = deque(maxlen=40)
        self.delivered: deque[tuple[bytes, bytes, bytes]] = deque(maxlen=120)
        self.made: list[bytes] = []
        self.makers: list[tuple[float, Callable[[], list[bytes]]]] = [
            (40, self.xadd), (3, self.xtrim), (6, self.xdel), (1, self.xlen), (5, self.xrange), (5, self.xread),
            (14, self.xreadgroup), (6, self.xack), (5, self.xpending), (7, self.xclaim), (5, self.xautoclaim),
            (10, self.xgroup), (4, self.xinfo), (3, self.xsetid), (1, self.other), *self.newer(),
        ]  # fmt: skip

    def next(self) -> list[bytes]:
        """Return the next command."""
        makers = [maker for _, maker in self.makers]
        argv = self.random.choices(makers, [weight for weight, _ in self.makers])[0]()
        if self.random.random() < 0.12:
            self.spoil(argv)
        if self.compat.level == 82 and {b"DELREF", b"ACKED"} & {word.upper() for word in argv}:
            argv = [b"=" if word == b"~" else word for word in argv]  # with ~, 8.2 removes nothing
        self.made = argv
        return argv

    def observe(self, reply: bytes) -> None:
        """Remember the IDs of the last command's reply, so that later commands meet them."""
        found = _IDS.findall(reply)[-8:]
        for ident in found:
            (self.known if len(ident) < 10 else self.far).append(ident)
        if self.made[0] == b"XREADGROUP" and b"STREAMS" in self.made[:-1]:
            key = self.made[self.made.index(b"STREAMS") + 1]
            self.delivered.extend((key, self.made[2], ident) for ident in found)

    # -- words -----------------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        """Return True that often."""
        return self.random.random() < probability

    def key(self) -> bytes:
        """Return a stream's key, seldom another one."""
        if self.chance(0.04):
            return self.random.choice([TEXT_KEY, MISSING])
        return self.random.choice(_SOME_KEYS)

    def group(self) -> bytes:
        """Return the name of a group."""
        return b"nogroup" if self.chance(0.03) else self.random.choice(GROUPS)

    def consumer(self) -> bytes:
        """Return the name of a consumer."""
        return self.random.choice(CONSUMERS)

    def number(self, low: int, high: int) -> bytes:
        """Return a number as text."""
        return b"%d" % self.random.randint(low, high)

    def ident(self, key: bytes = EDGE) -> bytes:
        """Return the ID of an entry that is, was or may be there; a key of small IDs gets such."""
        if key in (EDGE, FUTURE):
            if self.chance(0.02):
                return self.random.choice([b"%d-%d" % (LAST, LAST), b"%d" % LAST, b"%d-%d" % (LAST, LAST - 1), b"0-0"])
            if self.far and self.chance(0.9 if key == FUTURE else 0.2):
                return self.random.choice(self.far)
        if self.known and self.chance(0.65):
            return self.random.choice(self.known)
        kind = self.random.random()
        ms = self.random.randint(max(0, self.ms - 25), self.ms + 1)
        if kind < 0.75:
            return b"%d-%d" % (ms, self.random.randint(0, 2))
        if kind < 0.9:
            return b"%d" % ms
        return b"%d-%d" % (self.random.randint(0, self.ms + 3), self.random.randint(0, 3))

    def held(self, key: bytes, group: bytes) -> bytes:
        """Return the ID of an entry that was delivered to the group lately, if any was, else just an ID."""
        held = [ident for stream, reader, ident in self.delivered if (stream, reader) == (key, group)]
        return self.random.choice(held) if held and self.chance(0.7) else self.ident(key)

    def bound(self, lowest: bool) -> bytes:
        """Return one end of a range."""
        kind = self.random.random()
        if kind < 0.35:
            return b"-" if lowest else b"+"
        return (b"(" if kind < 0.5 else b"") + self.ident()

    def word(self) -> bytes:
        """Return a field or a value: short text, numbers of all sizes, seldom something long."""
        kind = self.random.random()
        if kind < 0.4:
            return self.random.choice([b"a", b"b", b"name", b"temperature", b""])
        if kind < 0.7:
            bits = self.random.choice([6, 7, 12, 13, 16, 24, 31, 32, 63])
            return b"%d" % self.random.randint(-(1 << bits), (1 << bits) - 1)
        if kind < 0.95:
            return self.random.randbytes(self.random.randint(0, 20))
        return self.random.choice([b"x", b"xyz", b"0"]) * self.random.choice([63, 64, 100, 1400])

    def spoil(self, argv: list[bytes]) -> None:
        """Replace, drop or double a word, or change its case."""
        at = self.random.randrange(len(argv))
        if at and argv[at - 1].lower() == b"block":
            return
        kind = self.random.random()
        if kind < 0.5 and at:
            argv[at] = self.random.choice(JUNK)
        elif kind < 0.65 and at:
            del argv[at]
        elif kind < 0.8 and at:
            argv.insert(at, argv[at])
        else:
            argv[at] = argv[at].swapcase()

    # -- commands --------------------------------------------------------------------------------------

    def trim(self) -> list[bytes]:
        """Return the options of a trim."""
        words = [b"MAXLEN"] if self.chance(0.5) else [b"MINID"]
        operator = self.random.choice([b"", b"=", b"~", b"~"])
        if operator:
            words.append(operator)
        oldest = b"%d" % max(0, self.ms - self.random.randint(20, 90))
        minid = oldest if self.chance(0.8) else self.ident()
        words.append(self.number(0, 60) if words[0] == b"MAXLEN" else minid)
        if operator == b"~" and self.chance(0.4) or self.chance(0.03):
            words += [b"LIMIT", self.number(0, 30)]
        return words + self.strategy()

    def xadd(self) -> list[bytes]:
        """Return an XADD, mostly of a new ID."""
        self.ms += self.random.choice([0, 0, 1, 1, 1, 2])
        argv = [b"XADD", self.key()]
        options = [
            [b"NOMKSTREAM"] if self.chance(0.05) else [], self.trim() if self.chance(0.08) else [], self.strategy(),
        ]  # fmt: skip
        self.random.shuffle(options)
        argv += [word for words in options for word in words]
        kind = self.random.random()
        if argv[1] == FUTURE and self.chance(0.9):
            argv += [*self.idempotent(), b"*"] if self.chance(0.9) else [b"%d-*" % FUTURE_MS]
        elif argv[1] == EDGE and self.chance(0.3):
            argv.append(b"%d-%d" % (LAST - self.random.randint(0, 1), LAST - self.random.randint(0, 3)))
        elif kind < 0.6:
            argv.append(b"%d-*" % self.ms)
        elif kind < 0.85:
            argv.append(b"%d-%d" % (self.ms, self.random.randint(0, 4)))
        elif kind < 0.9:
            argv.append(b"%d" % (self.ms + 1))
        else:
            argv.append(self.ident(argv[1]))
        if self.chance(0.6):
            for name in [b"name", b"age", b"7"][: self.random.randint(1, 3)]:
                argv += [name, self.word()]
        else:
            for _ in range(self.random.randint(1, 4)):
                argv += [self.word(), self.word()]
        return argv

    def xtrim(self) -> list[bytes]:
        """Return an XTRIM."""
        return [b"XTRIM", self.key(), *self.trim()]

    def xdel(self) -> list[bytes]:
        """Return an XDEL of a few IDs."""
        key = self.key()
        return [b"XDEL", key, *(self.ident(key) for _ in range(self.random.choice([1, 1, 2, 4])))]

    def xlen(self) -> list[bytes]:
        """Return an XLEN."""
        return [b"XLEN", self.key()]

    def xrange(self) -> list[bytes]:
        """Return an XRANGE or XREVRANGE."""
        reverse = self.chance(0.5)
        ends = [self.bound(True), self.bound(False)]
        argv = [b"XREVRANGE" if reverse else b"XRANGE", self.key(), *(reversed(ends) if reverse else ends)]
        if self.chance(0.5):
            argv += [b"COUNT", self.number(-1, 10)]
        return argv

    def xread(self) -> list[bytes]:
        """Return an XREAD of one to three streams."""
        argv = [b"XREAD"]
        if self.chance(0.5):
            argv += [b"COUNT", self.number(-1, 6)]
        if self.chance(0.05):
            argv += [b"BLOCK", self.random.choice([b"1", b"-1", b"abc"])]
        keys = [self.key() for _ in range(self.random.choice([1, 1, 2, 3]))]
        ids = [self.random.choice([b"$", b"+"]) if self.chance(0.15) else self.ident() for _ in keys]
        return [*argv, b"STREAMS", *keys, *ids]

    def xreadgroup(self) -> list[bytes]:
        """Return an XREADGROUP, mostly of new entries."""
        argv = [b"XREADGROUP", b"GROUP", self.group(), self.consumer()]
        if self.chance(0.7):
            argv += [b"COUNT", self.number(-1, 6)]
        if self.chance(0.03):
            argv += [b"BLOCK", b"1"]
        if self.chance(0.15):
            argv.append(b"NOACK")
        argv += self.claiming()
        keys = [self.key() for _ in range(self.random.choice([1, 1, 1, 2]))]
        ids = [b">" if self.chance(0.75) else self.random.choice([b"0", self.ident()]) for _ in keys]
        return [*argv, b"STREAMS", *keys, *ids]

    def xack(self) -> list[bytes]:
        """Return an XACK of a few IDs."""
        key, group = self.key(), self.group()
        return [b"XACK", key, group, *(self.held(key, group) for _ in range(self.random.randint(1, 4)))]

    def xpending(self) -> list[bytes]:
        """Return an XPENDING of either form."""
        argv = [b"XPENDING", self.key(), self.group()]
        if self.chance(0.3):
            return argv
        if self.chance(0.3):
            argv += [b"IDLE", self.random.choice([b"0", b"%d" % BETWEEN])]
        argv += [self.bound(True), self.bound(False), self.number(-1, 10)]
        if self.chance(0.4):
            argv.append(self.consumer())
        return argv

    def idle(self) -> bytes:
        """Return a min-idle-time that the clock cannot blur."""
        return self.random.choice([b"0", b"0", b"%d" % BETWEEN])

    def xclaim(self) -> list[bytes]:
        """Return an XCLAIM with any options."""
        argv = [b"XCLAIM", self.key(), self.group(), self.consumer(), self.idle()]
        argv += [self.held(argv[1], argv[2]) for _ in range(self.random.randint(1, 4))]
        options = [
            [b"IDLE", self.random.choice([b"%d" % SHORT_IDLE, b"%d" % LONG_IDLE])],
            [b"TIME", self.random.choice([b"1000000", b"99999999999999", b"-7"])],
            [b"RETRYCOUNT", self.number(0, 9)], [b"FORCE"], [b"JUSTID"], [b"LASTID", self.ident()],
        ]  # fmt: skip
        self.random.shuffle(options)
        for words in options:
            if self.chance(0.25):
                argv += words
        return argv

    def xautoclaim(self) -> list[bytes]:
        """Return an XAUTOCLAIM."""
        argv = [b"XAUTOCLAIM", self.key(), self.group(), self.consumer(), self.idle(), self.bound(True)]
        if self.chance(0.6):
            argv += [b"COUNT", self.number(0, 5)]
        if self.chance(0.3):
            argv.append(b"JUSTID")
        return argv

    def xgroup(self) -> list[bytes]:
        """Return an XGROUP of any sub-command."""
        kind = self.random.random()
        place = self.random.choice([b"$", b"0", b"0-0", b"-", b"+", self.ident(), self.ident()])
        count = [b"ENTRIESREAD", self.number(-2, 20)] if self.chance(0.3) else []
        if kind < 0.65:
            make = [b"MKSTREAM"] if self.chance(0.6) else []
            options = [make, count] if self.chance(0.5) else [count, make]
            return [b"XGROUP", b"CREATE", self.key(), self.group(), place, *options[0], *options[1]]
        if kind < 0.8:
            return [b"XGROUP", b"SETID", self.key(), self.group(), place, *count]
        if kind < 0.88:
            return [b"XGROUP", b"CREATECONSUMER", self.key(), self.group(), self.consumer()]
        if kind < 0.96:
            return [b"XGROUP", b"DELCONSUMER", self.key(), self.group(), self.consumer()]
        return [b"XGROUP", b"DESTROY", self.key(), self.group()]

    def xinfo(self) -> list[bytes]:
        """Return an XINFO of any sub-command."""
        full = self.random.choice([[], [b"FULL"], [b"FULL", b"COUNT", self.number(-1, 4)]])
        return self.random.choice([
            [b"XINFO", b"STREAM", self.key(), *full], [b"XINFO", b"STREAM", self.key(), *full],
            [b"XINFO", b"GROUPS", self.key()], [b"XINFO", b"CONSUMERS", self.key(), self.group()],
            [b"XINFO", b"HELP"], [b"XGROUP", b"HELP"],
        ])  # fmt: skip

    def xsetid(self) -> list[bytes]:
        """Return an XSETID near the last ID."""
        argv = [b"XSETID", self.key(), b"%d-%d" % (self.ms + self.random.randint(-1, 1), self.random.randint(0, 2))]
        if argv[1] == FUTURE:
            argv[2] = b"%d-%d" % (FUTURE_MS + self.random.randint(-1, 1), self.random.randint(0, 99))
        elif argv[1] == EDGE and self.chance(0.5):
            argv[2] = b"%d-%d" % (LAST - self.random.randint(0, 1), LAST - self.random.randint(0, 2))
        if self.chance(0.4):
            argv += [b"ENTRIESADDED", self.number(-1, 60)]
        if self.chance(0.4):
            argv += [b"MAXDELETEDID", self.ident()]
        return argv

    def other(self) -> list[bytes]:
        """Return what removes a stream, or asks the wrong type."""
        kind = self.random.random()
        if kind < 0.35:
            return [b"DEL", EDGE if self.chance(0.75) else self.random.choice(KEYS[:-1])]
        if kind < 0.6:
            source = self.random.choice(KEYS)
            return [b"COPY", source, self.random.choice(KEYS[:4] if source in KEYS[:3] else [EDGE]), b"REPLACE"]
        return [self.random.choice([b"XLEN", b"XADD", b"XRANGE"]), TEXT_KEY, b"-", b"+", b"x"]
