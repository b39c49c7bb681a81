"""What the generators of values share: commands by weight, now and then a spoilt word, keys and limits that change.

A generator of a type names its commands in TABLE, its keys, its limits, and the words it is spoilt by; the same seed
gives the same commands. What chance decides at a server is asked for only where one outcome is possible, and such
commands (SPARED) are not spoilt.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

OTHERS = (b"text", b"missing")
NUMBERS = (
    b"0", b"1", b"-1", b"127", b"128", b"4095", b"-4096", b"40000", b"-40000", b"8388607", b"2147483648", b"007", b"-0",
    b"+1", b"9223372036854775807", b"-9223372036854775808", b"9223372036854775808", b"1.5",
)  # fmt: skip
JUNK = (
    b"", b"x", b"-1", b"0", b"1", b"2", b"1.5", b"9223372036854775807", b"-9223372036854775808",
    b"-9223372036854775807", b"9223372036854775808", b"4294967296", b"4294967297", b"2147483648", b"LEFT", b"right",
    b"BEFORE", b"COUNT", b"RANK", b"LIMIT", b"MATCH", b"\xff\x00",
)  # fmt: skip


class Generator:
    """Commands of one seed; `next()` gives the words of the next one."""

    TABLE: Sequence[tuple[int, str]]
    """Weights, and the methods that make commands."""
    SPARED: tuple[bytes, ...]
    JUNK: tuple[bytes, ...] = JUNK
    KEYS: tuple[tuple[bytes, ...], ...]
    """Groups of keys; a command on two keys has both from one."""
    KEY_COMMANDS = 6
    SCAN: tuple[bytes, ...] = ()
    LIMITS: Sequence[tuple[bytes, tuple[bytes, ...]]]
    SPAN = (40, 400)
    """How far indexes lie apart, mostly and at times."""

    def __init__(self, seed: int, level: int = 70) -> None:
        """Make commands that a server of that level (`Compat.level`) knows."""
        self.random = random.Random(seed)
        self.level = level
        self.weights = [weight for weight, _ in self.TABLE]
        self.makers = [getattr(self, name) for _, name in self.TABLE]

    def next(self) -> list[bytes]:
        """Return the next command."""
        argv: list[bytes] = self.random.choices(self.makers, self.weights)[0]()
        if self.random.random() < 0.06 and len(argv) > 1 and argv[0] not in self.SPARED:
            at = self.random.randrange(1, len(argv))
            spoil = self.random.randrange(3)
            if spoil == 0:
                argv[at] = self.random.choice(self.JUNK)
            elif spoil == 1:
                del argv[at]
            else:
                argv.insert(at, argv[at])
        return argv

    # -- words ---------------------------------------------------------------------------------------

    def one_of(self, keys: tuple[bytes, ...], others: tuple[bytes, ...] = OTHERS, chance: float = 0.96) -> bytes:
        """Return one of some keys, at times of others: of another type, or missing."""
        return self.random.choice(keys if self.random.random() < chance else others)

    def index(self) -> bytes:
        """Return an index, mostly one that may be there."""
        near, far = self.SPAN
        return b"%d" % self.random.choice(
            (0, 1, -1, self.random.randrange(-near, near), self.random.randrange(-far, far))
        )

    def maybe(self, word: bytes, chance: float = 0.4) -> list[bytes]:
        """Return a word or none."""
        return [word] if self.random.random() < chance else []

    # -- commands ------------------------------------------------------------------------------------

    def key(self) -> list[bytes]:
        """Return a command on a key of any type."""
        kind = self.random.randrange(self.KEY_COMMANDS)
        keys = self.KEYS[0] if len(self.KEYS) == 1 else self.random.choice(self.KEYS)
        if kind == 0:
            return [b"DEL", self.random.choice(keys)]
        if kind == 1:
            return [b"COPY", self.random.choice(keys), self.random.choice(keys), b"REPLACE"]
        if kind == 2:
            return [b"RENAME", self.random.choice(keys), self.random.choice(keys)]
        if kind == 3 and self.SCAN:
            return list(self.SCAN)
        return [self.random.choice((b"TYPE", b"EXISTS")), self.random.choice(keys)]

    def setting(self) -> list[bytes]:
        """Return a change of a limit, which holds for the changes to come."""
        name, values = self.random.choice(self.LIMITS)
        return [b"CONFIG", b"SET", name, self.random.choice(values)]
