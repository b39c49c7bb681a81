"""The list commands that take several keys, and those that wait (Redis: t_list.c, blocked.c).

    at once                  waiting                     propagated as
    LMOVE  RPOPLPUSH         BLMOVE  BRPOPLPUSH          LMOVE, RPOPLPUSH
    LMPOP                    BLMPOP                      LPOP or RPOP with the count that there was
    (LPOP  RPOP)             BLPOP  BRPOP                LPOP or RPOP

The waiting ones take the first of their keys that holds a list, as they go. Where none does, the session waits for
all of them, and is served when one of them comes to be a list: from that one in 7.0, while since 7.2 the command is run
again, which may find another one before it. A key of another type is an error whenever it is met on that
way, but wakes nobody; a BLMOVE whose target is no list fails when it is served, and the element stays
where it was. Inside MULTI nobody waits: the answer is that of a time-out.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from rillet.commands.arguments import LLONG_MAX, float_value, integer, syntax_error, timeout_seconds
from rillet.commands.list.list import list_for_write, note_removed, pop_range
from rillet.errors import CommandError
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.structs import long_double
from rillet.types.list import List

_NUMKEYS = "numkeys should be greater than 0"
_OUT_OF_RANGE = "timeout is out of range"


def _side(raw: bytes) -> bool:
    """Return whether LEFT, the head, is meant (getListPositionFromObjectOrReply)."""
    side = raw.lower()
    if side not in (b"left", b"right"):
        raise syntax_error()
    return side == b"left"


def blocking_timeout(session: Session, raw: bytes) -> int:
    """Return a time-out in milliseconds, given in seconds (timeout.c: getTimeoutFromObjectOrReply)."""
    if not session.engine.settings.compat.knows(72):
        return timeout_seconds(raw)
    try:
        value = ceil(long_double.rounded(float_value(raw, "timeout is not a float or out of range") * 1000))
    except long_double.NotFinite:
        value = -1 if raw.startswith(b"-") else LLONG_MAX + 1
    if value < 0:
        raise CommandError("timeout is negative")
    if value > LLONG_MAX - session.engine.clock.now_ms():
        raise CommandError(_OUT_OF_RANGE)
    return value


# -- from one list to another ------------------------------------------------------------------------


class _Move:
    """An LMOVE, and while its session waits, what it waits with; `word` is the command that it is logged as."""

    __slots__ = ("from_head", "source", "target", "to_head", "word")

    def __init__(self, source: bytes, target: bytes, from_head: bool, to_head: bool, word: bytes) -> None:
        self.source = source
        self.target = target
        self.from_head = from_head
        self.to_head = to_head
        self.word = word

    def run(self, session: Session) -> bool:
        """Move an element and write it; False where there is no source (lmoveGenericCommand)."""
        settings = session.engine.settings
        source = list_for_write(session, self.source)
        if source is None:
            return False
        target = list_for_write(session, self.target)
        if target is None:
            target = List(settings)
            session.db.set(self.target, target)
        value = source.move_to(target, self.from_head, self.to_head, settings)
        session.db.touch(self.target)
        session.notify(b"l", b"lpush" if self.to_head else b"rpush", self.target)
        session.out.bulk(value)
        note_removed(session, self.source, source, b"lpop" if self.from_head else b"rpop", 1)
        return True

    def run_or_wait(self, session: Session, timeout: int) -> None:
        """Move at once, or wait for the source."""
        if self.run(session):
            self._log(session, session.argv[3:5])
        elif session.can_block:
            session.block([self.source], timeout, self.serve, _timed_out)
        else:
            session.out.null()

    def serve(self, session: Session, key: bytes) -> bool:
        """Answer a waiting client whose source changed (serveClientBlockedOnList)."""
        if not isinstance(session.db.lookup(key), List):
            return False
        sides = session.blocked.argv[3:5]
        self.run(session)
        if not session.engine.settings.compat.knows(72):
            sides = [b"left" if head else b"right" for head in (self.from_head, self.to_head)]
        self._log(session, sides)
        return True

    def _log(self, session: Session, sides: list[bytes]) -> None:
        """Log the command that does not wait; its sides are spelled as the client did, unless 7.0 served it."""
        session.propagate([self.word, self.source, self.target, *(sides if self.word == b"LMOVE" else [])])


def _timed_out(session: Session) -> None:
    session.out.null_array()


@command("lmove", arity=5, flags="write denyoom", keys=(1, 2, 1), group="list", since="6.2.0", complexity="O(1)",
         syntax="source destination <LEFT | RIGHT> <LEFT | RIGHT>")
def lmove(session: Session, argv: list[bytes]) -> None:
    """Take an element off one end of a list, add it to an end of another, and return it."""
    if not _Move(argv[1], argv[2], _side(argv[3]), _side(argv[4]), b"LMOVE").run(session):
        session.out.null()


@command("rpoplpush", arity=3, flags="write denyoom", keys=(1, 2, 1), group="list", since="1.2.0", complexity="O(1)",
         syntax="source destination")
def rpoplpush(session: Session, argv: list[bytes]) -> None:
    """Take the last element of a list, add it at the head of another, and return it."""
    if not _Move(argv[1], argv[2], False, True, b"RPOPLPUSH").run(session):
        session.out.null()


@command("blmove", arity=6, flags="write denyoom noscript blocking", keys=(1, 2, 1), group="list", since="6.2.0",
         complexity="O(1)", syntax="source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout")
def blmove(session: Session, argv: list[bytes]) -> None:
    """Move an element from one list to another as LMOVE does; wait for one where there is none."""
    move = _Move(argv[1], argv[2], _side(argv[3]), _side(argv[4]), b"LMOVE")
    move.run_or_wait(session, blocking_timeout(session, argv[5]))


@command("brpoplpush", arity=4, flags="write denyoom noscript blocking", keys=(1, 2, 1), group="list", since="2.2.0",
         complexity="O(1)", syntax="source destination timeout")
def brpoplpush(session: Session, argv: list[bytes]) -> None:
    """Move the last element of a list to the head of another; wait for one where there is none."""
    _Move(argv[1], argv[2], False, True, b"RPOPLPUSH").run_or_wait(session, blocking_timeout(session, argv[3]))


# -- from the first list that there is ---------------------------------------------------------------


class _Pop:
    """A pop from the first list among several keys; count None: one element, not in an array."""

    __slots__ = ("count", "head", "keys")

    def __init__(self, keys: list[bytes], head: bool, count: int | None) -> None:
        self.keys = keys
        self.head = head
        self.count = count

    def run(self, session: Session) -> bool:
        """Pop from the first list that there is; False where there is none."""
        for key in self.keys:
            value = list_for_write(session, key)
            if value is not None:
                self._pop(session, key, value)
                return True
        return False

    def _pop(self, session: Session, key: bytes, value: List) -> None:
        out = session.out
        words = [b"LPOP" if self.head else b"RPOP", key]
        out.array(2)
        out.bulk(key)
        if self.count is None:
            out.bulk(value.elements.pop(self.head))
            note_removed(session, key, value, b"lpop" if self.head else b"rpop", 1)
        else:
            words.append(b"%d" % pop_range(session, key, value, self.head, self.count))
        session.propagate(words)

    def run_or_wait(self, session: Session, timeout: int) -> None:
        """Pop at once, or wait for any of the keys."""
        if self.run(session):
            return
        if session.can_block:
            session.block(self.keys, timeout, self.serve, _timed_out)
        else:
            session.out.null_array()

    def serve(self, session: Session, key: bytes) -> bool:
        """Answer a waiting client one of whose keys changed (serveClientBlockedOnList)."""
        value = session.db.lookup(key)
        if not isinstance(value, List):
            return False
        if session.engine.settings.compat.knows(72):
            return self.run(session)
        self._pop(session, key, value)
        return True


def _blocking_pop(session: Session, argv: list[bytes], head: bool) -> None:
    timeout = blocking_timeout(session, argv[-1])
    _Pop(argv[1:-1], head, None).run_or_wait(session, timeout)


@command("blpop", arity=-3, flags="write noscript blocking", keys=(1, -2, 1), group="list", since="2.0.0",
         complexity="O(N) where N is the number of provided keys.", syntax="key [key ...] timeout")
def blpop(session: Session, argv: list[bytes]) -> None:
    """Remove the first element of the first list that there is, and return its key and it; wait where there is none."""
    _blocking_pop(session, argv, True)


@command("brpop", arity=-3, flags="write noscript blocking", keys=(1, -2, 1), group="list", since="2.0.0",
         complexity="O(N) where N is the number of provided keys.", syntax="key [key ...] timeout")
def brpop(session: Session, argv: list[bytes]) -> None:
    """Remove the last element of the first list that there is, and return its key and it; wait where there is none."""
    _blocking_pop(session, argv, False)


def read_mpop(argv: list[bytes], at: int, sides: tuple[bytes, bytes]) -> tuple[list[bytes], bytes, int]:
    """Return the keys, the side in small letters, and the count of a pop from the first of several keys.

    Their number stands at that word (lmpopGenericCommand, zmpopGenericCommand).
    """
    numkeys = integer(argv[at], _NUMKEYS)
    if numkeys < 1:
        raise CommandError(_NUMKEYS)
    where = at + 1 + numkeys
    if where >= len(argv) or argv[where].lower() not in sides:
        raise syntax_error()
    rest = argv[where + 1 :]
    count = 1
    if rest:
        if rest[0].lower() != b"count" or len(rest) == 1:
            raise syntax_error()
        count = integer(rest[1], "count should be greater than 0")
        if count < 1:
            raise CommandError("count should be greater than 0")
        if len(rest) > 2:
            raise syntax_error()
    return argv[at + 1 : where], argv[where].lower(), count


def _read_mpop(argv: list[bytes], at: int) -> _Pop:
    """Return what LMPOP or BLMPOP asks for, the number of keys standing at that word."""
    keys, side, count = read_mpop(argv, at, (b"left", b"right"))
    return _Pop(keys, side == b"left", count)


def keys_after_number(at: int) -> Callable[[list[bytes]], list[int]]:
    """Return what finds the keys that stand behind their number, which is at that word (db.c: genericGetKeys)."""

    def positions(argv: list[bytes]) -> list[int]:
        try:
            numkeys = integer(argv[at])
        except CommandError:
            return []
        return list(range(at + 1, at + 1 + numkeys)) if 0 < numkeys < len(argv) - at else []

    return positions


@command("lmpop", arity=-4, flags="write movablekeys", group="list", since="7.0.0", get_keys=keys_after_number(1),
         complexity="O(N+M) where N is the number of provided keys and M is the number of elements returned.",
         syntax="numkeys key [key ...] <LEFT | RIGHT> [COUNT count]")
def lmpop(session: Session, argv: list[bytes]) -> None:
    """Remove elements from the first list that there is, and return its key and them."""
    if not _read_mpop(argv, 1).run(session):
        session.out.null_array()


@command("blmpop", arity=-5, flags="write blocking movablekeys", group="list", since="7.0.0",
         get_keys=keys_after_number(2),
         complexity="O(N+M) where N is the number of provided keys and M is the number of elements returned.",
         syntax="timeout numkeys key [key ...] <LEFT | RIGHT> [COUNT count]")
def blmpop(session: Session, argv: list[bytes]) -> None:
    """Remove elements from the first list that there is, and return its key and them; wait where there is none."""
    pop = _read_mpop(argv, 2)
    pop.run_or_wait(session, blocking_timeout(session, argv[1]))
