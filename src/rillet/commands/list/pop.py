"""LPOP, RPOP, BLPOP, BRPOP, LMPOP and BLMPOP (Redis: t_list.c, blocked.c; commands/first_key_pop.py)."""

from __future__ import annotations

from rillet.commands.arguments import positive
from rillet.commands.first_key_pop import FirstKeyPop, blocking_timeout, keys_after_number, read_mpop
from rillet.commands.list.elements import list_for_write, note_removed
from rillet.commands.list.reply import write_range
from rillet.errors import CommandError
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.types.list import List

_POP = "O(N) where N is the number of elements returned"


def pop_range(session: Session, key: bytes, value: List, head: bool, count: int) -> int:
    """Write an array of up to `count` elements of an end, remove them, and return their number."""
    length = len(value)
    count = min(count, length)
    write_range(session.out, value.elements, 0 if head else length - 1, count, not head)
    value.delete_range(0 if head else length - count, count)
    note_removed(session, key, value, b"lpop" if head else b"rpop", count)
    return count


def _pop(session: Session, argv: list[bytes], head: bool) -> None:
    """Run LPOP or RPOP (popGenericCommand)."""
    if len(argv) > 3:
        raise CommandError(f"wrong number of arguments for '{session.command.fullname}' command")
    key = argv[1]
    count = positive(argv[2]) if len(argv) == 3 else None
    value = list_for_write(session, key)
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


@command("lpop", arity=-2, flags="write fast", keys=(1, 1, 1), group="list", since="1.0.0", complexity=_POP,
         syntax="key [count]")
def lpop(session: Session, argv: list[bytes]) -> None:
    """Remove and return the first elements of a list."""
    _pop(session, argv, True)


@command("rpop", arity=-2, flags="write fast", keys=(1, 1, 1), group="list", since="1.0.0", complexity=_POP,
         syntax="key [count]")
def rpop(session: Session, argv: list[bytes]) -> None:
    """Remove and return the last elements of a list, the last one first."""
    _pop(session, argv, False)


class _ListPop(FirstKeyPop):
    """A pop from the first of several lists."""

    __slots__ = ()
    kind = List

    def for_write(self, session: Session, key: bytes) -> List | None:
        """Return the list at the key."""
        return list_for_write(session, key)

    def pop(self, session: Session, key: bytes, value: List) -> None:
        """Pop from this list, write the reply, propagate LPOP or RPOP."""
        out, head = session.out, not self.from_end
        words = [b"LPOP" if head else b"RPOP", key]
        out.array(2)
        out.bulk(key)
        if self.count is None:
            out.bulk(value.elements.pop(head))
            note_removed(session, key, value, b"lpop" if head else b"rpop", 1)
        else:
            words.append(b"%d" % pop_range(session, key, value, head, self.count))
        session.propagate(words)


def _blocking_pop(session: Session, argv: list[bytes], head: bool) -> None:
    timeout = blocking_timeout(session, argv[-1])
    _ListPop(argv[1:-1], not head, None).run_or_block(session, timeout)


@command("blpop", arity=-3, flags="write noscript blocking", keys=(1, -2, 1), group="list", since="2.0.0",
         complexity="O(N) where N is the number of provided keys.", syntax="key [key ...] timeout")
def blpop(session: Session, argv: list[bytes]) -> None:
    """Remove and return the first element of the first list that exists; block if there is none."""
    _blocking_pop(session, argv, True)


@command("brpop", arity=-3, flags="write noscript blocking", keys=(1, -2, 1), group="list", since="2.0.0",
         complexity="O(N) where N is the number of provided keys.", syntax="key [key ...] timeout")
def brpop(session: Session, argv: list[bytes]) -> None:
    """Remove and return the last element of the first list that exists; block if there is none."""
    _blocking_pop(session, argv, False)


@command("lmpop", arity=-4, flags="write movablekeys", group="list", since="7.0.0", get_keys=keys_after_number(1),
         complexity="O(N+M) where N is the number of provided keys and M is the number of elements returned.",
         syntax="numkeys key [key ...] <LEFT | RIGHT> [COUNT count]")
def lmpop(session: Session, argv: list[bytes]) -> None:
    """Remove and return elements of the first list that exists."""
    keys, side, count = read_mpop(argv, 1, (b"left", b"right"))
    _ListPop(keys, side == b"right", count).run_or_null(session)


@command("blmpop", arity=-5, flags="write blocking movablekeys", group="list", since="7.0.0",
         get_keys=keys_after_number(2),
         complexity="O(N+M) where N is the number of provided keys and M is the number of elements returned.",
         syntax="timeout numkeys key [key ...] <LEFT | RIGHT> [COUNT count]")
def blmpop(session: Session, argv: list[bytes]) -> None:
    """Remove and return elements of the first list that exists; block if there is none."""
    keys, side, count = read_mpop(argv, 2, (b"left", b"right"))
    _ListPop(keys, side == b"right", count).run_or_block(session, blocking_timeout(session, argv[1]))
