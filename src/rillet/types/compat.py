"""Whose behaviour is shown: one value of the setting `compat`, and all that hangs on it.

Servers that speak the same protocol differ in what they know and in what they say. Code that has to
tell them apart asks for one of these, never for a version's name:

    level        the first Redis that does it, as major * 10 + minor (7.0 is 70, 8.2 is 82), with `newest` above
                 all; Valkey stands at 72, where it left Redis, and has `valkey` set for what it did since
    lag_rule     LAG_A, LAG_B or LAG_C: when a group's lag is a number (`Stream.lag`)
    rdb_version  what the server of that version writes at the end of a DUMP, and at the head of an RDB file
    stream_type  the RDB type of a stream in it

    compat      level   lag   RDB   stream type   redis_version
    7.0            70    A     10        19       7.0.15
    7.2            72    A     11        21       7.2.6
    7.4            74    A     12        21       7.4.1
    8.0            80    C     12        21       8.0.0
    8.6            86    C     13        26       8.6.3
    newest        810    C     14        27       8.10.0
    valkey         72    B     80        21       7.2.4 (and valkey_version 9.1.2)

Rejected: a flag for every difference (nobody could say which combinations exist), and one number for all
(Valkey is neither before nor behind Redis 8).
"""

from __future__ import annotations

from dataclasses import dataclass

LAG_A = 0
"""Redis 7.0 to 7.4: the read counter counts until a deletion by XDEL lies ahead of the group."""
LAG_B = 1
"""Valkey 8.1 and newer: as A, but a counter is not carried over a trimmed head, nor over any deletion ahead."""
LAG_C = 2
"""Redis 8.0 and newer: a group behind the first living entry lags by the stream's length."""


@dataclass(frozen=True, slots=True)
class Compat:
    """One server to be compatible with; the module's table tells what the attributes are."""

    name: str
    level: int
    lag_rule: int
    rdb_version: int
    stream_type: int
    redis_version: str
    valkey: bool = False
    valkey_version: str = ""

    def knows(self, level: int) -> bool:
        """Say whether something that Redis has since that level (`level_of`) is there."""
        return self.level >= level

    def __str__(self) -> str:
        """Return the word that the setting takes."""
        return self.name


COMPATS: dict[str, Compat] = {
    entry.name: entry
    for entry in (
        Compat("7.0", 70, LAG_A, 10, 19, "7.0.15"),
        Compat("7.2", 72, LAG_A, 11, 21, "7.2.6"),
        Compat("7.4", 74, LAG_A, 12, 21, "7.4.1"),
        Compat("8.0", 80, LAG_C, 12, 21, "8.0.0"),
        Compat("8.6", 86, LAG_C, 13, 26, "8.6.3"),
        Compat("newest", 810, LAG_C, 14, 27, "8.10.0"),
        Compat("valkey", 72, LAG_B, 80, 21, "7.2.4", True, "9.1.2"),
    )
}
"""By the word that the setting takes."""

NEWEST = COMPATS["newest"]


def level_of(version: str) -> int:
    """Return the level of a version such as "8.2.0" (82); two digits of a minor version make it three (8.10 is 810)."""
    major, minor = version.split(".")[:2]
    return int(major + minor)
