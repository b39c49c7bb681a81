"""A client's record of what it sent, what was acknowledged, and the expected data, for a server that may be killed.

A client has its own keys, and each item that it sends has an effect on them, in Python (`Sent`). An acknowledged item
takes effect immediately, with data from its reply: IDs, the length that a `~` trim left. Items without a reply at the
time of the kill may have taken effect or not, but only in the order of sending, and a transaction only as a whole:
`settle` finds the one prefix of these items that leads to the found data.

Unknown values (the ID of an entry whose XADD was not acknowledged) are None in the state and match any value.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

CONSUMERS = (b"alice", b"bob", b"carol")


class Failure(AssertionError):
    """Acknowledged data is missing, a transaction is incomplete, or a directory does not open."""


def fields_of(n: int) -> list[bytes]:
    """Return the fields of entry n: mostly short, sometimes long, sometimes similar to a log."""
    pad = b"\r\n*1\r\n$4\r\nPING\r\n" if n % 17 == 0 else b"x" * (3000 if n % 97 == 0 else n * 7 % 60)
    return [b"n", b"%d" % n, b"pad", pad]


@dataclass
class Model:
    """The expected keys of one client; None stands for unknown values of unacknowledged commands."""

    ids: dict[int, bytes | None] = field(default_factory=dict)
    entries: list[int] = field(default_factory=list)
    added: int = 0
    delivered: int = 0
    pending: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    there: bool = False
    """Whether the group was made."""
    text: bytes | None = None
    expires: int = -2
    count: int = 0
    items: list[bytes] = field(default_factory=list)
    table: dict[bytes, bytes] = field(default_factory=dict)
    first_found: int = 0
    """The first entry that a recovery found: what a `~` trim that nobody acknowledged came to."""

    def state(self) -> tuple[Any, ...]:
        """Return the expected result of `read` for the same keys."""
        stream = None
        if self.there:
            stream = (
                [(self.ids[n], fields_of(n)) for n in self.entries],
                self.added,
                self.ids[self.added] if self.added else b"0-0",
                self.ids[self.delivered] if self.delivered else b"0-0",
                [(self.ids[n], *self.pending[n]) for n in sorted(self.pending)],
                sorted(CONSUMERS),
            )
        count = b"%d" % self.count if self.count else None
        return stream, self.text, self.expires, count, list(self.items), dict(self.table)

    def learn(self, found: tuple[Any, ...]) -> None:
        """Take the unknown IDs from the found data."""
        if self.there:
            entries, _, last, delivered, pending, _ = found[0]
            self.ids.update(zip(self.entries, (one[0] for one in entries), strict=True))
            self.ids.update(zip(sorted(self.pending), (one[0] for one in pending), strict=True))
            self.ids[self.added] = last
            self.ids[self.delivered] = delivered

    def trim(self, length: int) -> int:
        """Keep the newest entries and return the number of removed ones."""
        gone = max(len(self.entries) - length, 0)
        del self.entries[:gone]
        return gone

    def trim_roughly(self, length: int, left: int | None) -> int:
        """Apply a `~` trim: keep the reported number of entries, or, if unknown, those that were found."""
        if left is None:
            left = sum(n >= self.first_found for n in self.entries)
        require(left >= min(length, len(self.entries)), f"{left} entries left of {len(self.entries)} by ~ {length}")
        return self.trim(left)


def same(expected: Any, found: Any) -> bool:
    """Return whether two states are equal; an expected ID of None matches any ID."""
    if isinstance(expected, (list, tuple)):
        return (
            isinstance(found, (list, tuple)) and len(expected) == len(found)
            and all(same(one, other) for one, other in zip(expected, found, strict=True))
        )  # fmt: skip
    return expected == found or (expected is None and isinstance(found, bytes) and b"-" in found)


def require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Failure(otherwise)


# -- commands --------------------------------------------------------------------------------------------

Effect = Callable[[Model, Any], None]


@dataclass
class Sent:
    """Commands that a client sent together: one, or a transaction. alone: no other command was without a reply."""

    commands: list[list[bytes]]
    effect: Effect
    alone: bool = False


class Client:
    """One client: its keys, the items it sent, and those that were acknowledged."""

    def __init__(self, number: int, source: random.Random) -> None:
        self.name = b"c%d:" % number
        self.source = source
        self.model = Model()
        self.flying: list[Sent] = []
        self.acknowledged = 0
        self.next = 0
        # Half of the clients choose their IDs, like a producer that retries.
        self.tells_ids = number % 2 == 1

    def _key(self, kind: str) -> bytes:
        return self.name + kind.encode()

    def batch(self) -> list[Sent]:
        """Return the next items to send in one write."""
        if not self.model.there:
            return [self._made()]
        if self.source.random() < 0.1:
            return [self._trimmed_roughly()]
        self.next = self.model.added
        return [self._one() for _ in range(self.source.choice((1, 1, 2, 4, 8, 16)))]

    def _one(self) -> Sent:
        makers = (self._add, self._read, self._ack, self._claim, self._trim, self._other, self._transaction)
        return self.source.choices(makers, (40, 15, 12, 6, 4, 15, 8))[0]()

    def _made(self) -> Sent:
        stream = self._key("s")
        commands = [[b"XGROUP", b"CREATE", stream, b"g", b"0", b"MKSTREAM"]]
        commands += [[b"XGROUP", b"CREATECONSUMER", stream, b"g", one] for one in CONSUMERS]

        def effect(model: Model, _reply: Any) -> None:
            model.there = True

        return _whole(commands, effect)

    def _id(self) -> bytes:
        return b"%d-7" % self.next if self.tells_ids else b"*"

    def _add(self) -> Sent:
        self.next += 1
        n, given = self.next, self._id()
        most = self.source.choice((0, 0, 60, 100))
        trim = [b"MAXLEN", b"%d" % most] if most else []

        def effect(model: Model, reply: Any) -> None:
            require(n == model.added + 1, "an entry was left out by the harness")
            require(reply is None or given == b"*" or reply == given, f"XADD {given!r} answered {reply!r}")
            model.ids[n] = reply or (None if given == b"*" else given)
            model.added = n
            model.entries.append(n)
            if most:
                model.trim(most)

        return Sent([[b"XADD", self._key("s"), *trim, given, *fields_of(n)]], effect)

    def _trimmed_roughly(self) -> Sent:
        """Send XADD MAXLEN ~ and read the resulting length, or XTRIM MAXLEN ~; alone: later items depend on it."""
        length = self.source.randint(10, 60)
        if self.source.random() < 0.5:

            def trim(model: Model, reply: Any) -> None:
                left = None if reply is None else len(model.entries) - reply
                model.trim_roughly(length, left)

            return Sent([[b"XTRIM", self._key("s"), b"MAXLEN", b"~", b"%d" % length]], trim, alone=True)
        self.next = self.model.added
        self.next += 1
        n = self.next
        words = [self._id(), *fields_of(n)]

        def effect(model: Model, reply: Any) -> None:
            made, left = reply or (None, None)
            given = words[0]
            model.ids[n] = made or (None if given == b"*" else given)
            model.added = n
            model.entries.append(n)
            model.trim_roughly(length, left)

        commands = [[b"XADD", self._key("s"), b"MAXLEN", b"~", b"%d" % length, *words], [b"XLEN", self._key("s")]]
        return _whole(commands, effect, alone=True)

    def _read(self) -> Sent:
        count, consumer = self.source.randint(1, 6), self.source.choice(CONSUMERS)

        def effect(model: Model, reply: Any) -> None:
            taken = [n for n in model.entries if n > model.delivered][:count]
            for n in taken:
                model.pending[n] = (consumer, 1)
                model.delivered = n
            require(len(taken) == (len(reply[0][1]) if reply else len(taken)), "XREADGROUP brought others")

        return Sent([[b"XREADGROUP", b"GROUP", b"g", consumer, b"COUNT", b"%d" % count, b"STREAMS", self._key("s"),
                      b">"]], effect)  # fmt: skip

    def _some_pending(self, most: int) -> list[int]:
        known = [n for n in self.model.pending if self.model.ids[n] is not None]
        return self.source.sample(known, min(len(known), most))

    def _ids(self, some: list[int]) -> list[bytes]:
        return [self.model.ids[n] or b"" for n in some] or [b"0-1"]

    def _ack(self) -> Sent:
        some = self._some_pending(20 if len(self.model.pending) > 60 else 4)

        def effect(model: Model, reply: Any) -> None:
            done = [n for n in some if model.pending.pop(n, None)]
            require(reply is None or reply == len(done), f"XACK answered {reply}, not {len(done)}")

        return Sent([[b"XACK", self._key("s"), b"g", *self._ids(some)]], effect)

    def _claim(self) -> Sent:
        some, consumer = self._some_pending(3), self.source.choice(CONSUMERS)
        just = self.source.random() < 0.3

        def effect(model: Model, reply: Any) -> None:
            claimed = 0
            for n in some:
                if n not in model.pending:
                    continue
                if n not in model.entries:  # t_stream.c: a deleted entry is removed from the pending entries
                    del model.pending[n]
                    continue
                claimed += 1
                model.pending[n] = (consumer, model.pending[n][1] + (not just))
            require(reply is None or len(reply) == claimed, f"XCLAIM brought {reply}, not {claimed} entries")

        options = [b"JUSTID"] if just else []
        return Sent([[b"XCLAIM", self._key("s"), b"g", consumer, b"0", *self._ids(some), *options]], effect)

    def _trim(self) -> Sent:
        length = self.source.randint(10, 90)

        def effect(model: Model, reply: Any) -> None:
            gone = model.trim(length)
            require(reply is None or reply == gone, f"XTRIM answered {reply}, not {gone}")

        return Sent([[b"XTRIM", self._key("s"), b"MAXLEN", b"%d" % length]], effect)

    def _other(self) -> Sent:
        return self.source.choice((self._set, self._incr, self._push, self._pop, self._hset))()

    def _set(self) -> Sent:
        text, expires = self.source.randbytes(self.source.choice((3, 30, 5000))), self.source.choice((-1, 2**42))

        def effect(model: Model, _reply: Any) -> None:
            model.text, model.expires = text, expires

        return Sent([[b"SET", self._key("t"), text, *([b"PXAT", b"%d" % expires] if expires > 0 else [])]], effect)

    def _incr(self) -> Sent:
        def effect(model: Model, reply: Any) -> None:
            model.count += 1
            require(reply is None or reply == model.count, f"INCR answered {reply}, not {model.count}")

        return Sent([[b"INCR", self._key("n")]], effect)

    def _push(self) -> Sent:
        item = b"%d" % self.source.randrange(10**6)

        def effect(model: Model, _reply: Any) -> None:
            model.items.append(item)

        return Sent([[b"RPUSH", self._key("l"), item]], effect)

    def _pop(self) -> Sent:
        def effect(model: Model, reply: Any) -> None:
            del model.items[:2]

        return Sent([[b"LPOP", self._key("l"), b"2"]], effect)

    def _hset(self) -> Sent:
        name, value = b"f%d" % self.source.randrange(20), b"%d" % self.source.randrange(10**9)

        def effect(model: Model, _reply: Any) -> None:
            model.table[name] = value

        return Sent([[b"HSET", self._key("h"), name, value]], effect)

    def _transaction(self) -> Sent:
        """Return commands between two counters, so that an incomplete transaction is detectable."""
        makers = (self._add, self._read, self._ack, self._claim, self._set)
        inner = [self._incr(), *(self.source.choice(makers)() for _ in range(self.source.randint(1, 5))), self._incr()]

        def effect(model: Model, reply: Any) -> None:
            for at, one in enumerate(inner):
                one.effect(model, None if reply is None else reply[at])

        return _whole([one.commands[0] for one in inner], effect)

    def acknowledge(self, replies: list[Any]) -> None:
        """Process the replies to the oldest sent items."""
        sent = self.flying.pop(0)
        for argv, reply in zip(sent.commands, replies, strict=True):
            require(not isinstance(reply, Exception), f"{b' '.join(argv)[:200]!r} was refused: {reply}")
        sent.effect(self.model, replies[-1])
        self.acknowledged += len(sent.commands)

    def settle(self, found: tuple[Any, ...]) -> int:
        """Find the prefix of sent items that leads to the found data; return its number of unacknowledged items."""
        model = self.model
        model.first_found = int(found[0][0][0][1][1]) if found[0] and found[0][0] else 1 << 60
        acknowledged = model.state()
        for taken in range(len(self.flying) + 1):
            if taken:
                self.flying[taken - 1].effect(model, None)
            if same(model.state(), found):
                model.learn(found)
                self.flying = []
                return taken
        raise Failure(
            f"the keys {self.name.decode()}* are none of the states between what was acknowledged and what was sent "
            f"({len(self.flying)} more):\n  acknowledged {acknowledged}\n  sent         {model.state()}\n"
            f"  found        {found}"
        )


def _whole(commands: list[list[bytes]], effect: Effect, alone: bool = False) -> Sent:
    return Sent([[b"MULTI"], *commands, [b"EXEC"]], effect, alone)
