"""The servers whose behaviour rillet can imitate: the values of the setting `compat` and their consequences.

Servers with the same protocol differ in features and replies. Code that depends on such a difference reads one of
these attributes, never a version's name:

    level        the first Redis with a behaviour, as major * 10 + minor (7.0 is 70, 8.2 is 82); `newest` is above
                 all. Valkey is 72, where it forked from Redis, and sets `valkey` for its later changes
    lag_rule     LAG_A, LAG_B or LAG_C: when a group's lag is known (`Stream.lag`)
    rdb_version  the version that this server writes at the end of a DUMP and at the start of an RDB file
    stream_type  its RDB type for streams

    compat      level   lag   RDB   stream type   redis_version
    7.0            70    A     10        19       7.0.15
    7.2            72    A     11        21       7.2.6
    7.4            74    A     12        21       7.4.1
    8.0            80    C     12        21       8.0.6
    8.2            82    C     12        21       8.2.3
    8.6            86    C     13        26       8.6.3
    newest        810    C     14        27       8.10.0
    valkey         72    B     80        21       7.2.4 (and valkey_version 9.1.2)

Rejected alternatives: a flag for every difference (the valid combinations would be unknown), and a single number
(Valkey is neither older nor newer than Redis 8).
"""

from __future__ import annotations

from dataclasses import dataclass

LAG_A = 0
"""Redis 7.0 to 7.4: the group's read counter is valid until XDEL deletes an entry ahead of the group."""
LAG_B = 1
"""Valkey 8.1 and newer: as A, but trimming the head or deleting any entry ahead also invalidates the counter."""
LAG_C = 2
"""Redis 8.0 and newer: a group before the first existing entry lags by the stream's length."""

EMBEDS_44 = 0
"""Redis before 8.2: a string of at most 44 bytes is embstr, whatever its key is."""
EMBEDS_UP_TO_64 = 1
"""Redis since 8.2: object, key and string together have at most 64 bytes."""
EMBEDS_UP_TO_128 = 2
"""Valkey: object, key, string, and an expiry together have at most 128 bytes."""


@dataclass(frozen=True, slots=True)
class Compat:
    """A server to be compatible with; the module's docstring describes the attributes."""

    name: str
    level: int
    lag_rule: int
    rdb_version: int
    stream_type: int
    redis_version: str
    valkey: bool = False
    valkey_version: str = ""

    def knows(self, level: int) -> bool:
        """Return whether this server has a feature that Redis introduced at that level (see `level_of`)."""
        return self.level >= level

    @property
    def embedding(self) -> int:
        """The rule for strings that share an allocation with their object: see `types.string.fits`."""
        return EMBEDS_UP_TO_128 if self.valkey else EMBEDS_UP_TO_64 if self.level >= 82 else EMBEDS_44

    @property
    def shares_integers(self) -> bool:
        """True if the keys with equal small integers share one object (OBJECT REFCOUNT): in Redis before 8.2."""
        return not self.valkey and self.level < 82

    def __str__(self) -> str:
        """Return the value of the setting `compat`."""
        return self.name


COMPATS: dict[str, Compat] = {
    entry.name: entry
    for entry in (
        Compat("7.0", 70, LAG_A, 10, 19, "7.0.15"),
        Compat("7.2", 72, LAG_A, 11, 21, "7.2.6"),
        Compat("7.4", 74, LAG_A, 12, 21, "7.4.1"),
        Compat("8.0", 80, LAG_C, 12, 21, "8.0.6"),
        Compat("8.2", 82, LAG_C, 12, 21, "8.2.3"),
        Compat("8.6", 86, LAG_C, 13, 26, "8.6.3"),
        Compat("newest", 810, LAG_C, 14, 27, "8.10.0"),
        Compat("valkey", 72, LAG_B, 80, 21, "7.2.4", True, "9.1.2"),
    )
}
"""The servers by the value of the setting `compat`."""

NEWEST = COMPATS["newest"]
NEVER = 1_000_000
"""The level of a feature that no version of Redis has."""


def level_of(version: str) -> int:
    """Return the level of a version: 82 for "8.2.0", 810 for "8.10.0"."""
    major, minor = version.split(".")[:2]
    return int(major + minor)
