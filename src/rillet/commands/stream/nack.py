"""XNACK: a consumer releases pending entries that it cannot process, so that the next claim receives them.

    XNACK key group SILENT|FAIL|FATAL IDS n id ... [RETRYCOUNT count] [FORCE]

A released entry stays pending, without a consumer. In the order by time it follows the entries that were released
before it and precedes all others. A claim takes it regardless of its idle time, and clients blocked in XREADGROUP with
CLAIM are served. The mode sets the delivery count:

    SILENT   the delivery did not happen         the count decreases by 1, not below 0
    FAIL     the delivery failed                 the count stays
    FATAL    no delivery can succeed             the count becomes the maximum, 2**63-1

RETRYCOUNT sets the count instead. FORCE also releases entries that exist and are not pending; their count is 0 (with
FATAL, the maximum). Other IDs are ignored. The reply is the number of released entries.
"""

from __future__ import annotations

from rillet.commands.arguments import text
from rillet.commands.stream import command
from rillet.commands.stream.arguments import integer, option, read_ids
from rillet.commands.stream.lookup import lookup_write, require_stream_and_group
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.types.stream.group import MAX_DELIVERIES

_SILENT, _FAIL, _FATAL = b"silent", b"fail", b"fatal"
_MAX_INT = (1 << 31) - 1


class NackArguments:
    """The arguments of XNACK: mode, IDs, RETRYCOUNT (-1 = not given), FORCE."""

    __slots__ = ("force", "ids", "mode", "retrycount")

    def __init__(self, argv: list[bytes]) -> None:
        self.mode = option(argv[3])
        if self.mode not in (_SILENT, _FAIL, _FATAL):
            raise CommandError("mode must be SILENT, FAIL, or FATAL")
        self.force = False
        self.retrycount = -1
        words: list[bytes] | None = None
        at = 4
        while at < len(argv):
            word = option(argv[at])
            more = at + 1 < len(argv)
            if word == b"ids" and more:
                words = _words_of(argv, at)
                at += 2 + len(words)
            elif word == b"force":
                self.force = True
                at += 1
            elif word == b"retrycount" and more:
                self.retrycount = integer(argv[at + 1])
                if self.retrycount < 0:
                    raise CommandError("Invalid RETRYCOUNT value, must be >= 0")
                at += 2
            else:
                raise CommandError(f"Unrecognized XNACK option '{text(argv[at])}'")
        if words is None:
            raise CommandError("syntax error, expected IDS keyword")
        self.ids = read_ids(words, 0)

    def count_after(self, deliveries: int) -> int:
        """Return the delivery count of a released entry (t_stream.c: nackSetDeliveryCount)."""
        if self.retrycount >= 0:
            return self.retrycount
        if self.mode == _FATAL:
            return MAX_DELIVERIES
        if self.mode == _SILENT and deliveries > 0:
            return deliveries - 1
        return deliveries


def _words_of(argv: list[bytes], at: int) -> list[bytes]:
    """Return the IDs of `IDS numids id ...`; raise an error if fewer than numids follow."""
    message = "numids must be a positive integer"
    count = integer(argv[at + 1], message)
    if not 1 <= count <= _MAX_INT:
        raise CommandError(message)
    if count > len(argv) - at - 2:
        raise CommandError("number of IDs doesn't match numids")
    return argv[at + 2 : at + 2 + count]


@command("xnack", arity=-7, flags="write fast", since="8.8.0",
         syntax="key group <SILENT | FAIL | FATAL> IDS numids id [id ...] [RETRYCOUNT count] [FORCE]",
         complexity="O(1) for each ID.")
def xnack(session: Session, argv: list[bytes]) -> None:
    """Releases pending entries of a group for the next claim, and returns how many."""
    key = argv[1]
    stream, group = require_stream_and_group(lookup_write(session, key), key, argv[2])
    arguments = NackArguments(argv)
    released = 0
    for ms, seq in arguments.ids:
        slot = group.find(ms, seq)
        if slot >= 0:
            group.release(slot, arguments.count_after(group.table.delivery_count(slot)))
        elif arguments.force and stream.contains(ms, seq):
            group.force_released(ms, seq, arguments.count_after(0))
        else:
            continue
        released += 1
    session.out.integer(released)
    if released:
        session.dirty += released
        session.db.signal_ready(key)
