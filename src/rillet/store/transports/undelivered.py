"""Replies without a receiver: the caller was cancelled or interrupted after the engine had executed its command.

A cancelled call must not consume data. What happens to a reply that arrives after the cancellation:

    BLPOP, LMPOP, ZPOPMIN, SPOP ...      its elements are put back where they were (`put_back`)
    BLMOVE, RPOPLPUSH ...                the element is moved back, unless another client has taken it already
    GETDEL; HGET, HDEL in MULTI ...      the value is set again (a key of GETDEL loses its expiry)
    XREADGROUP, XAUTOCLAIM, XCLAIM       the next call of that consumer gets the reply (`Undelivered`); its entries
                                         are pending meanwhile, so another process can claim them
    any other command                    nothing: the command took nothing away

Redis does the same when a client disconnects only if the reply was not produced yet; a reply that was already sent to a
broken connection is lost there. In process, no other command runs between the reply and `put_back`.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, TypeAlias

from rillet.errors import CommandError

# Each pop of a list, and the command that puts its elements back.
_POPS = {b"LPOP": b"LPUSH", b"RPOP": b"RPUSH"}
_BLOCKING_POPS = {b"BLPOP": b"LPUSH", b"BRPOP": b"RPUSH"}
_MOVES = {b"LMOVE", b"BLMOVE", b"RPOPLPUSH", b"BRPOPLPUSH"}
_SORTED_POPS = {b"ZPOPMIN", b"ZPOPMAX"}
_BLOCKING_SORTED_POPS = {b"BZPOPMIN", b"BZPOPMAX"}
_MULTI_POPS = {b"LMPOP", b"BLMPOP", b"ZMPOP", b"BZMPOP"}
_SINGLE = {b"SPOP", b"GETDEL"}
_TAKES = frozenset({*_POPS, *_BLOCKING_POPS, *_MOVES, *_SORTED_POPS, *_BLOCKING_SORTED_POPS, *_MULTI_POPS, *_SINGLE})
# A command that removes what the command before it returned, in one batch: Hash.pop, SortedSet.pop.
_REMOVES = {b"HDEL": b"HGET", b"ZREM": b"ZSCORE"}
# The encoded name of such a command, or of one that a transaction may contain.
_ENCODED = re.compile(rb"\r\n(?:" + b"|".join(sorted(_TAKES)) + rb")\r\n", re.IGNORECASE)
_DELIVERS = frozenset((b"XREADGROUP", b"XAUTOCLAIM", b"XCLAIM"))


# Commands to run in order, each only if the one before it changed something: its reply is not 0 and no error.
Steps: TypeAlias = "list[list[bytes]]"


def continues(reply: Any) -> bool:
    """Return whether the next of the Steps is to be run after this reply."""
    return not (reply == 0 or isinstance(reply, CommandError))


def takes(argv: list[bytes]) -> bool:
    """Return whether the command removes data that its reply contains, or delivers messages to a consumer."""
    name = argv[0].upper()
    return name in _TAKES or name in _DELIVERS


def delivers(argv: list[bytes]) -> bool:
    """Return whether the command may deliver messages to a consumer, so that `Undelivered` may have its reply."""
    return argv[0].upper() in _DELIVERS


def takes_any(commands: Sequence[list[bytes]]) -> bool:
    """Return whether a command of a batch may remove data that a reply of the batch contains."""
    return any(takes(argv) or argv[0].upper() in _REMOVES for argv in commands)


def may_take(data: bytes) -> bool:
    """Return whether encoded commands may contain one whose data must be put back if its reply is lost. O(bytes)"""
    return _ENCODED.search(data) is not None


def executed(commands: Sequence[list[bytes]], replies: Sequence[Any]) -> list[tuple[list[bytes], Any]]:
    """Return the commands of a batch with their replies; those of a transaction are in the reply of EXEC."""
    if len(commands) > 1 and (commands[0], commands[-1]) == ([b"MULTI"], [b"EXEC"]):
        return list(zip(commands[1:-1], replies[-1], strict=True)) if isinstance(replies[-1], list) else []
    return list(zip(commands, replies, strict=True))


def executed_of(commands: Sequence[list[bytes]], replies: Sequence[Any]) -> list[tuple[list[bytes], Any]]:
    """Return the commands of a connection that were executed, with their replies, also those inside transactions.

    The last commands have no replies yet if one of them is blocked.
    """
    pairs: list[tuple[list[bytes], Any]] = []
    queued: list[list[bytes]] | None = None  # the commands since MULTI
    for argv, reply in zip(commands, replies, strict=False):
        name = argv[0].upper()
        if name == b"MULTI":
            queued = []
        elif queued is None:
            pairs.append((argv, reply))
        elif name in (b"EXEC", b"DISCARD"):
            if isinstance(reply, list) and len(reply) == len(queued):
                pairs += zip(queued, reply, strict=True)
            queued = None
        elif reply == b"QUEUED":
            queued.append(argv)
    return pairs


def put_back_all(pairs: Sequence[tuple[list[bytes], Any]]) -> list[Steps]:
    """Return the commands that restore what a batch took away, in reverse order."""
    restoring: list[Steps] = []
    for place in range(len(pairs) - 1, -1, -1):
        argv, reply = pairs[place]
        restoring += [steps] if (steps := put_back(argv, reply)) else []
        if place and reply == 1:
            restoring += _put_back_removed(*pairs[place - 1], argv)
    return restoring


def _put_back_removed(reading: list[bytes], value: Any, removing: list[bytes]) -> list[Steps]:
    """Return the command that restores a field or member that was read and then removed."""
    name = removing[0].upper()
    if _REMOVES.get(name) != reading[0].upper() or reading[1:] != removing[1:] or value is None:
        return []
    key, field = removing[1], removing[2]
    if name == b"HDEL":
        return [[[b"HSETNX", key, field, value]]]
    return [[[b"ZADD", key, b"NX", _number(value), field]]]


def put_back(argv: list[bytes], reply: Any) -> Steps:
    """Return the commands that restore what `reply` took away; none if the command took nothing.

    The place in a list is exact as long as no other client has changed the list since.
    """
    if reply is None or isinstance(reply, (CommandError, int)) or reply == []:
        return []
    name = argv[0].upper()
    if name in _POPS:
        taken = reply if isinstance(reply, list) else [reply]
        return [[_POPS[name], argv[1], *reversed(taken)]]
    if name in _BLOCKING_POPS:
        key, value = reply
        return [[_BLOCKING_POPS[name], key, value]]
    if name in _MOVES:
        return _move_back(name, argv, reply)
    if name in _SORTED_POPS:
        return [[b"ZADD", argv[1], *_scored(reply)]]
    if name in _BLOCKING_SORTED_POPS:
        key, member, score = reply
        return [[b"ZADD", key, _number(score), member]]
    if name in _MULTI_POPS:
        key, taken = reply
        if name.endswith(b"ZMPOP"):
            return [[b"ZADD", key, *_scored(taken)]]
        side = argv[2 + int(argv[1])] if name == b"LMPOP" else argv[3 + int(argv[2])]
        return [[b"LPUSH" if side.upper() == b"LEFT" else b"RPUSH", key, *reversed(taken)]]
    if name == b"GETDEL":
        return [[b"SET", argv[1], reply, b"NX"]]
    if name == b"SPOP":
        return [[b"SADD", argv[1], *(reply if isinstance(reply, (list, set)) else [reply])]]
    return []


def _move_back(name: bytes, argv: list[bytes], value: bytes) -> Steps:
    """Return the commands that move an element back to the list from which it came."""
    source, target = argv[1], argv[2]
    came_from, went_to = (argv[3].upper(), argv[4].upper()) if name.endswith(b"LMOVE") else (b"RIGHT", b"LEFT")
    count = b"1" if went_to == b"LEFT" else b"-1"  # the first equal element from the end to which it went
    return [[b"LREM", target, count, value], [b"LPUSH" if came_from == b"LEFT" else b"RPUSH", source, value]]


def _scored(reply: Any) -> list[bytes]:
    """Return the score and member arguments of ZADD for members and scores in a flat list (RESP2) or in pairs."""
    pairs = reply if isinstance(reply[0], list) else zip(reply[::2], reply[1::2], strict=True)
    return [word for member, score in pairs for word in (_number(score), member)]


def _number(score: Any) -> bytes:
    return score if isinstance(score, bytes) else float.__repr__(score).encode()


class Undelivered:
    """Messages that were delivered to a consumer whose call was cancelled; its next call gets them. Thread-safe."""

    def __init__(self) -> None:
        self._kept: dict[tuple[bytes, ...], deque[Any]] = {}
        self._guard = threading.RLock()  # a signal handler may need it inside a call that holds it

    def after_fork(self) -> None:
        """In a forked child with a copy of the data: another thread of the parent may have held the guard."""
        self._guard = threading.RLock()

    def keep(self, argv: list[bytes], reply: Any) -> None:
        """Keep a reply for the next call of the same consumer, if it contains messages."""
        place = _consumer_of(argv)
        if place is not None and reply and not isinstance(reply, CommandError):
            with self._guard:
                self._kept.setdefault(place, deque()).append(reply)

    def take_reply(self, argv: list[bytes]) -> Any:
        """Return the oldest kept reply for this command's consumer, None if there is none."""
        if not self._kept:
            return None
        place = _consumer_of(argv)
        if place is None:
            return None
        with self._guard:
            replies = self._kept.get(place)
            if not replies:
                return None
            reply = replies.popleft()
            if not replies:
                self._kept.pop(place, None)
        return reply


def _consumer_of(argv: list[bytes]) -> tuple[bytes, ...] | None:
    """Return the command's name with its streams, group and consumer; None if it delivers no new messages."""
    name = argv[0].upper()
    if name == b"XREADGROUP":
        words = [word.upper() for word in argv]
        try:
            at, streams = words.index(b"GROUP", 1), words.index(b"STREAMS", 1)
        except ValueError:
            return None
        if b">" not in argv[streams + 1 :]:
            return None  # a consumer's own pending messages can be read again
        return (name, argv[at + 1], argv[at + 2], *argv[streams + 1 :])
    if name in (b"XAUTOCLAIM", b"XCLAIM") and len(argv) > 3:
        return (name, *argv[1:4])
    return None
