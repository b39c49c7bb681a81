"""LPOP, RPOP, BLPOP, BRPOP, LMPOP and BLMPOP (Redis: t_list.c, blocked.c; commands/first_key_pop.py)."""

from __future__ import annotations

from rillet.commands.arguments import arity_error, positive
from rillet.commands.first_key_pop import FirstKeyPop, KeysAfterNumber
from rillet.commands.list import command
from rillet.commands.list.elements import note_removed
from rillet.commands.list.fast_path import LpopFastPath, RpopFastPath
from rillet.commands.list.reply import write_range
from rillet.commands.lookup import value_for_write
from rillet.runtime.session import Session
from rillet.structs.integer_text import decimal
from rillet.types.list import List

_LPOP, _RPOP = LpopFastPath(), RpopFastPath()
_POP = "O(N) where N is the number of elements returned"


def pop_range(session: Session, key: bytes, value: List, head: bool, count: int) -> int:
    """Write an array of up to `count` elements from one end of a list, remove them, and return their number."""
    length = len(value)
    count = min(count, length)
    write_range(session.out, value.elements, 0 if head else length - 1, count, not head)
    value.delete_range(0 if head else length - count, count)
    note_removed(session, key, value, b"lpop" if head else b"rpop", count)
    return count


def _pop(session: Session, argv: list[bytes], head: bool) -> None:
    """Run LPOP or RPOP (popGenericCommand)."""
    if len(argv) > 3:
        raise arity_error(session.command.fullname)
    key = argv[1]
    count = positive(argv[2]) if len(argv) == 3 else None
    value = value_for_write(session, key, List)
    if value is None:
        if count is None:
            session.out.null()
        else:
            session.out.null_array()
    elif count is None:
        session.out.bulk(value.elements.pop(head))
        note_removed(session, key, value, b"lpop" if head else b"rpop", 1)
    elif count == 0:
        session.out.array(0)
    else:
        pop_range(session, key, value, head, count)


@command("lpop", arity=-2, flags="write fast", since="1.0.0", syntax="key [count]", complexity=_POP,
         shortcut=LpopFastPath)
def lpop(session: Session, argv: list[bytes]) -> None:
    """Remove and return the first elements of a list."""
    if not session.engine.notify_events and _LPOP.execute(session, argv):
        return
    _pop(session, argv, True)


@command("rpop", arity=-2, flags="write fast", since="1.0.0", syntax="key [count]", complexity=_POP,
         shortcut=RpopFastPath)
def rpop(session: Session, argv: list[bytes]) -> None:
    """Remove and return the last elements of a list, the last one first."""
    if not session.engine.notify_events and _RPOP.execute(session, argv):
        return
    _pop(session, argv, False)


class _ListPop(FirstKeyPop):
    """A pop from the first of several lists."""

    __slots__ = ()
    kind = List
    sides = (b"left", b"right")

    def pop(self, session: Session, key: bytes, value: List) -> None:
        """Pop from the list, write the reply, and propagate LPOP or RPOP."""
        out, head = session.out, not self.from_end
        words = [b"LPOP" if head else b"RPOP", key]
        out.array(2)
        out.bulk(key)
        if self.count is None:
            out.bulk(value.elements.pop(head))
            note_removed(session, key, value, b"lpop" if head else b"rpop", 1)
        else:
            words.append(decimal(pop_range(session, key, value, head, self.count)))
        session.propagate(words)


@command("blpop", arity=-3, flags="write noscript blocking", keys=(1, -2, 1), since="2.0.0",
         syntax="key [key ...] timeout", complexity="O(N) where N is the number of provided keys.")
def blpop(session: Session, argv: list[bytes]) -> None:
    """Remove and return the first element of the first list that exists; block if no list exists."""
    _ListPop(argv[1:-1], False, None).run_or_block(session, argv[-1])


@command("brpop", arity=-3, flags="write noscript blocking", keys=(1, -2, 1), since="2.0.0",
         syntax="key [key ...] timeout", complexity="O(N) where N is the number of provided keys.")
def brpop(session: Session, argv: list[bytes]) -> None:
    """Remove and return the last element of the first list that exists; block if no list exists."""
    _ListPop(argv[1:-1], True, None).run_or_block(session, argv[-1])


@command("lmpop", arity=-4, flags="write movablekeys", keys=(0, 0, 0), since="7.0.0",
         syntax="numkeys key [key ...] <LEFT | RIGHT> [COUNT count]",
         complexity="O(N+M) where N is the number of provided keys and M is the number of elements returned.",
         get_keys=KeysAfterNumber(1))
def lmpop(session: Session, argv: list[bytes]) -> None:
    """Remove and return elements of the first list that exists."""
    _ListPop.read_mpop(argv, 1).run_or_null(session)


@command("blmpop", arity=-5, flags="write blocking movablekeys", keys=(0, 0, 0), since="7.0.0",
         syntax="timeout numkeys key [key ...] <LEFT | RIGHT> [COUNT count]",
         complexity="O(N+M) where N is the number of provided keys and M is the number of elements returned.",
         get_keys=KeysAfterNumber(2))
def blmpop(session: Session, argv: list[bytes]) -> None:
    """Remove and return elements of the first list that exists; block if no list exists."""
    _ListPop.read_mpop(argv, 2).run_or_block(session, argv[1])
