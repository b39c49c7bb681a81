"""LMOVE, RPOPLPUSH, BLMOVE, BRPOPLPUSH and LMOVEM: move elements between lists (Redis: t_list.c, blocked.c).

The blocking commands are propagated as LMOVE and RPOPLPUSH. If an element arrives for a blocked BLMOVE whose target
is not a list, the reply is an error, and the element stays in the source.

LMOVEM takes all elements before it adds one, so within one list it differs from repeated LMOVEs. The reply has them in
the order of the target. OBO adds them in the order in which they were taken, BULK keeps the order of the source:

    source a b c d, target x y, two elements     OBO             BULK
    LEFT LEFT                                    b a x y         a b x y
    LEFT RIGHT                                   x y a b         x y a b
    RIGHT LEFT                                   c d x y         c d x y
    RIGHT RIGHT                                  x y d c         x y c d
"""

from __future__ import annotations

from rillet.commands.arguments import integer, syntax_error
from rillet.commands.first_key_pop import blocking_timeout, timed_out
from rillet.commands.list import command
from rillet.commands.list.elements import note_removed
from rillet.commands.lookup import value_for_blocked, value_for_write
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.types.list import List


def _side(raw: bytes) -> bool:
    """Return True for LEFT, the head, and False for RIGHT (getListPositionFromObjectOrReply)."""
    side = raw.lower()
    if side not in (b"left", b"right"):
        raise syntax_error()
    return side == b"left"


class _Move:
    """A move between two lists, which a blocked session keeps; `word` is the command to propagate."""

    __slots__ = ("from_head", "source", "target", "to_head", "word")

    def __init__(self, source: bytes, target: bytes, from_head: bool, to_head: bool, word: bytes) -> None:
        self.source = source
        self.target = target
        self.from_head = from_head
        self.to_head = to_head
        self.word = word

    def run(self, session: Session) -> bool:
        """Move an element and reply with it; return False if the source does not exist (lmoveGenericCommand)."""
        limits = session.db.buffer.list_limits
        source = value_for_write(session, self.source, List)
        if source is None:
            return False
        target = value_for_write(session, self.target, List)
        if target is None:
            target = List(limits)
            session.db.set(self.target, target)
        value = source.move_to(target, self.from_head, self.to_head, limits)
        session.db.touch(self.target)
        session.notify(b"l", b"lpush" if self.to_head else b"rpush", self.target)
        session.out.bulk(value)
        note_removed(session, self.source, source, b"lpop" if self.from_head else b"rpop", 1)
        return True

    def run_or_block(self, session: Session, timeout: int) -> None:
        """Move an element, or block until the source exists."""
        if self.run(session):
            self._log(session, session.argv[3:5])
        elif session.can_block:
            session.block([self.source], timeout, self.serve, timed_out)
        else:
            session.out.null()

    def serve(self, session: Session, key: bytes) -> bool:
        """Serve a blocked session whose source changed (serveClientBlockedOnList)."""
        if not isinstance(value_for_blocked(session, key), List):
            return False
        sides = session.blocked.argv[3:5]
        self.run(session)
        if not session.engine.settings.compat.knows(72):
            sides = [b"left" if head else b"right" for head in (self.from_head, self.to_head)]
        self._log(session, sides)
        return True

    def _log(self, session: Session, sides: list[bytes]) -> None:
        """Propagate LMOVE or RPOPLPUSH; Redis 7.0 keeps the client's spelling of LEFT only if it did not block."""
        session.propagate([self.word, self.source, self.target, *(sides if self.word == b"LMOVE" else [])])


@command("lmove", arity=5, flags="write denyoom", keys=(1, 2, 1), since="6.2.0",
         syntax="source destination <LEFT | RIGHT> <LEFT | RIGHT>", complexity="O(1)")
def lmove(session: Session, argv: list[bytes]) -> None:
    """Remove an element at one end of a list, add it at an end of another list, and return it."""
    if not _Move(argv[1], argv[2], _side(argv[3]), _side(argv[4]), b"LMOVE").run(session):
        session.out.null()


@command("rpoplpush", arity=3, flags="write denyoom", keys=(1, 2, 1), since="1.2.0", syntax="source destination",
         complexity="O(1)")
def rpoplpush(session: Session, argv: list[bytes]) -> None:
    """Remove the last element of a list, add it at the head of another list, and return it."""
    if not _Move(argv[1], argv[2], False, True, b"RPOPLPUSH").run(session):
        session.out.null()


@command("blmove", arity=6, flags="write denyoom noscript blocking", keys=(1, 2, 1), since="6.2.0",
         syntax="source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout", complexity="O(1)")
def blmove(session: Session, argv: list[bytes]) -> None:
    """Move an element from one list to another as LMOVE does; block while the source is empty."""
    move = _Move(argv[1], argv[2], _side(argv[3]), _side(argv[4]), b"LMOVE")
    move.run_or_block(session, blocking_timeout(session, argv[5]))


@command("brpoplpush", arity=4, flags="write denyoom noscript blocking", keys=(1, 2, 1), since="2.2.0",
         syntax="source destination timeout", complexity="O(1)")
def brpoplpush(session: Session, argv: list[bytes]) -> None:
    """Move the last element of a list to the head of another list; block while the source is empty."""
    _Move(argv[1], argv[2], False, True, b"RPOPLPUSH").run_or_block(session, blocking_timeout(session, argv[3]))


_COUNT = "count should be greater than 0"


def _batch(words: list[bytes]) -> tuple[int, bool, bool]:
    """Parse `[COUNT n | EXACTLY n  OBO | BULK]`; return n, whether fewer are too few, and whether BULK is given."""
    if not words:
        return 1, False, False
    selector, order = words[0].lower(), words[-1].lower()
    if len(words) != 3 or selector not in (b"count", b"exactly") or order not in (b"obo", b"bulk"):
        raise syntax_error()
    count = integer(words[1], _COUNT)
    if count < 1:
        raise CommandError(_COUNT)
    return count, selector == b"exactly", order == b"bulk"


@command("lmovem", arity=-5, flags="write denyoom", keys=(1, 2, 1), since="8.10.0",
         syntax="source destination <LEFT | RIGHT> <LEFT | RIGHT> [<COUNT count | EXACTLY count> <OBO | BULK>]",
         complexity="O(N) where N is the number of elements moved.")
def lmovem(session: Session, argv: list[bytes]) -> None:
    """Move elements from an end of a list to an end of another, and return them; null if there are too few."""
    from_head, to_head = _side(argv[3]), _side(argv[4])
    count, exactly, bulk = _batch(argv[5:])
    limits = session.db.buffer.list_limits
    source = value_for_write(session, argv[1], List)
    there = 0 if source is None else len(source)
    if source is None or (exactly and there < count):
        session.out.null_array()
        return
    target = value_for_write(session, argv[2], List)  # its type is checked before the first change
    count = min(count, there)
    taken = [source.elements.pop(from_head) for _ in range(count)]
    if target is None:
        target = List(limits)
        session.db.set(argv[2], target)
    reverse = (bulk and not from_head) or (not bulk and to_head)
    moved = taken[::-1] if reverse else taken
    target.push(moved[::-1] if to_head else moved, to_head, limits)
    session.db.touch(argv[2])
    session.notify(b"l", b"lpush" if to_head else b"rpush", argv[2])
    session.out.array(count)
    session.out.bulks(moved)
    note_removed(session, argv[1], source, b"lpop" if from_head else b"rpop", count)
