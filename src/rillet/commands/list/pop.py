"""LPOP, RPOP, BLPOP, BRPOP, LMPOP and BLMPOP (Redis: t_list.c, blocked.c; commands/first_key_pop.py)."""

from __future__ import annotations

from functools import partial

from rillet._cython import cython
from rillet.commands.arguments import arity_error, positive
from rillet.commands.first_key_pop import FirstKeyPop, KeysAfterNumber
from rillet.commands.list import command
from rillet.commands.list.elements import keep, list_at, note_removed
from rillet.commands.list.reply import write_end, write_range
from rillet.keyspace.database import Database
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.integer_text import decimal
from rillet.types.list import List

_POP = "O(N) where N is the number of elements returned"


@cython.cfunc
def _take(out: ReplyWriter, value: List, head: cython.bint, most: cython.longlong) -> cython.Py_ssize_t:
    """Write an array of up to `most` elements from one end of a list, remove them, and return their number."""
    length: cython.Py_ssize_t = value.elements.count
    count: cython.Py_ssize_t = min(most, length)
    write_range(out, value.elements, 0 if head else length - 1, count, not head)
    value.delete_range(0 if head else length - count, count)
    return count


@cython.final
@cython.cclass
class _Pop(Implementation):
    """LPOP and RPOP (popGenericCommand)."""

    __slots__ = ("_event", "_head")
    _event: bytes
    _head: cython.bint

    def __init__(self, head: bool) -> None:
        self._event = b"lpop" if head else b"rpop"
        self._head = head

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Remove elements at one end of a list and reply with them."""
        db: Database = session.db
        out: ReplyWriter = session.out
        most: cython.longlong = 1
        if words.count > 3:
            raise arity_error(session.command.fullname)
        if words.count == 3:
            most = positive(words.get(2))
        n: cython.Py_ssize_t = db.locate(words)
        if n < 0:
            return out.null() if words.count == 2 else out.null_array()
        value: List = list_at(db, n)
        if most == 0:
            return out.array(0)
        mark: cython.Py_ssize_t = out.mark()
        count: cython.Py_ssize_t = 1
        if words.count == 3:
            count = _take(out, value, self._head, most)
        else:
            write_end(out, value.elements, self._head)
            value.elements.drop(self._head)
        empty: cython.bint = value.elements.count == 0
        if not empty:
            value.shrink(db.buffer.list_limits)
            try:
                keep(db, words, n, value)
            except MemoryError:  # the elements stay in the list
                out.truncate(mark)
                raise
        if db.notifies:
            session.notify(b"l", self._event, words.get(1))
        if empty:
            db.delete(words.get(1))
            session.notify(b"g", b"del", words.get(1))
        return session.changed(words, count)


command("lpop", arity=-2, flags="write fast", since="1.0.0", syntax="key [count]", complexity=_POP,
        summary="Remove and return the first elements of a list.")(partial(_Pop, True))
command("rpop", arity=-2, flags="write fast", since="1.0.0", syntax="key [count]", complexity=_POP,
        summary="Remove and return the last elements of a list, the last one first.")(partial(_Pop, False))


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
            count = _take(out, value, head, self.count)
            note_removed(session, key, value, b"lpop" if head else b"rpop", count)
            words.append(decimal(count))
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
