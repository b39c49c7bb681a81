"""XNACK: a consumer gives entries back that it cannot handle, and the next one gets them at once.

    XNACK key group SILENT|FAIL|FATAL IDS n id ... [RETRYCOUNT count] [FORCE]

A released entry stays pending, with nobody. It stands before all others in the order by time, behind those that were
released before it, whoever claims takes it however short the time since its delivery, and clients that wait in
XREADGROUP with CLAIM are woken. What the word says about the delivery:

    SILENT   it did not happen           the delivery count goes down by one, not below 0
    FAIL     it failed                   the count stays
    FATAL    it can never succeed        the count is the highest there is, 2**63-1

RETRYCOUNT sets the count instead. FORCE releases entries too that are in the stream and not pending; their count
is 0 (with FATAL, the highest). An ID that is neither is passed over; the reply is the number of those released.
"""

from __future__ import annotations

from rillet.commands.arguments import text
from rillet.commands.stream.arguments import integer, option, read_ids
from rillet.commands.stream.lookup import lookup_write, require_stream_and_group
from rillet.errors import CommandError
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.types.stream.group import MAX_DELIVERIES

_SILENT, _FAIL, _FATAL = b"silent", b"fail", b"fatal"
_MAX_INT = (1 << 31) - 1


class NackArguments:
    """What XNACK is told: the mode, IDs, RETRYCOUNT (-1 = none), FORCE."""

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
    """Return the words that IDS announces."""
    message = "numids must be a positive integer"
    count = integer(argv[at + 1], message)
    if not 1 <= count <= _MAX_INT:
        raise CommandError(message)
    if count > len(argv) - at - 2:
        raise CommandError("number of IDs doesn't match numids")
    return argv[at + 2 : at + 2 + count]


@command(
    "xnack", arity=-7, flags="write fast", keys=(1, 1, 1), group="stream", since="8.8.0",
    complexity="O(1) for each ID.",
    syntax="key group <SILENT | FAIL | FATAL> IDS numids id [id ...] [RETRYCOUNT count] [FORCE]",
)  # fmt: skip
def xnack(session: Session, argv: list[bytes]) -> None:
    """Releases pending entries of a group, which the next claim gets, and returns how many."""
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
