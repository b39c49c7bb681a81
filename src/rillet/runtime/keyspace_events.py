"""Keyspace notifications: what happens to keys, told on channels (Redis: notify.c).

    notify-keyspace-events KEtg         K  __keyspace@0__:orders   <- xadd
                                        E  __keyevent@0__:xadd     <- orders
                                        tg which events: those of streams, and generic ones

    g generic   $ string   l list   s set   h hash   z sorted set   t stream   d module   x expired   e evicted
    A  all of these, and a (array) where it is known
    m  key misses    n  new keys         not in A
    o  overwritten   c  type changed     since 8.2, not in A
    S T I V          events of a key's fields, since 8.8: taken; nothing here has fields that could be told

A letter that a server of the version in `compat` does not know is refused, as it would be there. The setting is
shown normalised: in Redis's order, with A where all of its classes are on.
"""

from __future__ import annotations

from dataclasses import dataclass

from rillet.types.compat import Compat

_ALL = "g$lshzxetd"
# In the order in which Redis shows them: what A stands for or is left out by it, then the rest.
_SHOWN = "g$lshzxetdanocKEmSTIV"
_SINCE = {"o": 82, "c": 82, **dict.fromkeys("aSTIV", 88)}
BIT = {letter: 1 << at for at, letter in enumerate(_SHOWN)}
KEYSPACE, KEYEVENT, MISS, NEW, OVERWRITTEN = (BIT[letter] for letter in "KEmno")
TYPE_CHANGED = BIT["c"]
_WHERE = KEYSPACE | KEYEVENT
# By the letter as handlers say it.
CLASS = {letter.encode(): bit for letter, bit in BIT.items()}


@dataclass(frozen=True, slots=True)
class Events:
    """A value of notify-keyspace-events: its classes as bits, and the text that CONFIG GET shows."""

    flags: int = 0
    text: str = ""

    @property
    def wanted(self) -> bool:
        """Whether anything can be told: a class, and a kind of channel to tell it on."""
        return bool(self.flags & _WHERE and self.flags & ~_WHERE)

    def __str__(self) -> str:
        return self.text


def parse(text: str, compat: Compat) -> Events | None:
    """Return the classes that the letters name, None where one is not known (keyspaceEventsStringToFlags)."""
    every = _ALL + "a" if compat.knows(88) else _ALL
    flags = 0
    for letter in text:
        if letter == "A":
            for one in every:
                flags |= BIT[one]
        elif letter not in BIT or not compat.knows(_SINCE.get(letter, 0)):
            return None
        else:
            flags |= BIT[letter]
    return Events(flags, _show(flags, every))


def _show(flags: int, every: str) -> str:
    """Return the normal form of the setting (keyspaceEventsFlagsToString); under A, Redis's n o c are not shown."""
    rest = "KEmSTIV"
    shown = "".join(letter for letter in _SHOWN if flags & BIT[letter] and letter not in rest)
    if all(flags & BIT[letter] for letter in every):
        shown = "A"
    return shown + "".join(letter for letter in rest if flags & BIT[letter])


def letters(compat: Compat) -> str:
    """Return the letters that Redis's error message names."""
    return "Ag$lshzxeKEtmdn" + ("ocaSTIV" if compat.knows(88) else "")


def channels_of(flags: int, index: int, event: bytes, key: bytes) -> list[tuple[bytes, bytes]]:
    """Return the channels on which an event of database `index` is told, and the message on each."""
    told = []
    if flags & KEYSPACE:
        told.append((b"__keyspace@%d__:%b" % (index, key), event))
    if flags & KEYEVENT:
        told.append((b"__keyevent@%d__:%b" % (index, event), key))
    return told


__all__ = ["CLASS", "MISS", "NEW", "OVERWRITTEN", "TYPE_CHANGED", "Events", "channels_of", "letters", "parse"]
