"""Keyspace notifications: the classes of events, and the channels that publish them (Redis: notify.c).

    notify-keyspace-events KEtg         K  __keyspace@0__:orders   <- xadd
                                        E  __keyevent@0__:xadd     <- orders
                                        tg the events of streams, and generic ones

    g generic   $ string   l list   s set   h hash   z sorted set   t stream   d module   x expired   e evicted
    A  all of these, and a (array) since 8.8
    m  key misses    n  new keys         not in A
    o  overwritten   c  type changed     since 8.2, not in A
    S T I V          channels for the fields of hashes, since 8.8: see below

An event of a hash names the fields that the command set, removed or gave an expiry, or that expired. The payload of a
list of fields is `<length>:<field>,<length>:<field>...`:

    S  __subkeyspace@0__:cart          <- hset|5:apple,4:pear      not if the event contains |
    T  __subkeyevent@0__:hset          <- 4:cart|5:apple,4:pear
    I  __subkeyspaceitem@0__:cart\napple  <- hset                  one message per field; not if the key contains \n
    V  __subkeyspaceevent@0__:hset|cart   <- 5:apple,4:pear

Letters that the server of `compat` does not support are rejected. The setting is shown in Redis's canonical order,
with A if all of its classes are on.
"""

from __future__ import annotations

from dataclasses import dataclass

from rillet.types.compat import Compat

_ALL = "g$lshzxetd"
# All letters of event classes and channels, in the order of CONFIG GET.
_SHOWN = "g$lshzxetdanocKEmSTIV"
_SINCE = {"o": 82, "c": 82, **dict.fromkeys("aSTIV", 88)}
BIT = {letter: 1 << at for at, letter in enumerate(_SHOWN)}
KEYSPACE, KEYEVENT, MISS, NEW, OVERWRITTEN = (BIT[letter] for letter in "KEmno")
TYPE_CHANGED = BIT["c"]
SUBKEYS = BIT["S"] | BIT["T"] | BIT["I"] | BIT["V"]
_WHERE = KEYSPACE | KEYEVENT | SUBKEYS
# The bit of each letter that handlers pass to Session.notify.
CLASS = {letter.encode(): bit for letter, bit in BIT.items()}


@dataclass(frozen=True, slots=True)
class Events:
    """A value of notify-keyspace-events: the classes as bits, and the text that CONFIG GET shows."""

    flags: int = 0
    text: str = ""

    @property
    def wanted(self) -> bool:
        """True if events can be published: at least one class and one kind of channel (K, E, S, T, I, V) are on."""
        return bool(self.flags & _WHERE and self.flags & ~_WHERE)

    def __str__(self) -> str:
        return self.text


def parse(text: str, compat: Compat) -> Events | None:
    """Parse letters of notify-keyspace-events; return None if one is invalid (keyspaceEventsStringToFlags)."""
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
    """Return the canonical text of the classes (keyspaceEventsFlagsToString); A hides n, o and c, as in Redis."""
    rest = "KEmSTIV"
    shown = "".join(letter for letter in _SHOWN if flags & BIT[letter] and letter not in rest)
    if all(flags & BIT[letter] for letter in every):
        shown = "A"
    return shown + "".join(letter for letter in rest if flags & BIT[letter])


def letters(compat: Compat) -> str:
    """Return the valid letters of notify-keyspace-events, for the error message about an invalid letter."""
    return "Ag$lshzxeKEtmdn" + ("ocaSTIV" if compat.knows(88) else "")


def channels_of(
    flags: int, index: int, event: bytes, key: bytes, subkeys: list[bytes] | None = None
) -> list[tuple[bytes, bytes]]:
    """Return the (channel, message) pairs that publish an event of database `index`. O(subkeys)"""
    messages = []
    if flags & KEYSPACE:
        messages.append((b"__keyspace@%d__:%b" % (index, key), event))
    if flags & KEYEVENT:
        messages.append((b"__keyevent@%d__:%b" % (index, event), key))
    if flags & SUBKEYS and subkeys:
        messages += _of_subkeys(flags, index, event, key, subkeys)
    return messages


def _of_subkeys(flags: int, index: int, event: bytes, key: bytes, subkeys: list[bytes]) -> list[tuple[bytes, bytes]]:
    """Return the messages about the fields of a hash (notify.c: notifyKeyspaceEventImpl)."""
    messages = []
    payload = b",".join(b"%d:%b" % (len(subkey), subkey) for subkey in subkeys)
    if flags & BIT["S"] and b"|" not in event:
        messages.append((b"__subkeyspace@%d__:%b" % (index, key), b"%b|%b" % (event, payload)))
    if flags & BIT["T"]:
        messages.append((b"__subkeyevent@%d__:%b" % (index, event), b"%d:%b|%b" % (len(key), key, payload)))
    if flags & BIT["I"] and b"\n" not in key:
        messages += [(b"__subkeyspaceitem@%d__:%b\n%b" % (index, key, subkey), event) for subkey in subkeys]
    if flags & BIT["V"] and b"|" not in event:
        messages.append((b"__subkeyspaceevent@%d__:%b|%b" % (index, event, key), payload))
    return messages
