"""LPUSH, LRANGE, LINDEX, LSET, LINSERT, LREM, LTRIM and LPOS: the elements of one list (Redis: t_list.c)."""

from __future__ import annotations

from functools import partial
from itertools import islice

from rillet._cython import cython
from rillet.commands.arguments import LLONG_MIN, NOT_AN_INTEGER, integer, negatable, positive, syntax_error
from rillet.commands.list import command
from rillet.commands.list.reply import write_element, write_range
from rillet.commands.lookup import delete_if_empty, read_value, value_for_write
from rillet.errors import CommandError, WrongType
from rillet.keyspace.database import Database
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.listpack import is_lowest, parse_digits
from rillet.types.list import List

_NOT_INT = cython.declare(cython.longlong, -(2**63))
_PUSH = "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments."


def clamp(start: int, stop: int, length: int) -> tuple[int, int]:
    """Convert inclusive bounds, negative from the end, to a first index and a number of elements."""
    start = max(start + length, 0) if start < 0 else start
    stop = stop + length if stop < 0 else min(stop, length - 1)
    return start, max(stop - start + 1, 0)


@cython.cfunc
def list_at(db: Database, n: cython.Py_ssize_t) -> List:
    """Return the list of an entry: its object, or the buffer's list, into which its bytes are unpacked."""
    value: object = db.keys.object_at(n)
    if value is None:
        value = db.buffer.unpack_list(db.keys, n)
    if type(value) is not List:
        raise WrongType()
    return value


@cython.cfunc
def keep(db: Database, words: ArgumentSpans, n: cython.Py_ssize_t, value: List) -> cython.bint:
    """Keep a list of `list_at` that changed: as bytes, if it has the limits of a value at rest; n < 0: of a new key."""
    if value is not db.buffer.list:
        return db.ledger.note(value)
    size: cython.Py_ssize_t = db.buffer.pack_list()
    if size >= 0:
        return db.keep_bytes(words, n, size)
    return db.keep_object(words, n, db.buffer.take_list())


@cython.final
@cython.cclass
class _Push(Implementation):
    """LPUSH, RPUSH, LPUSHX and RPUSHX (pushGenericCommand)."""

    __slots__ = ("_event", "_head", "_only_existing")
    _event: bytes
    _head: cython.bint
    _only_existing: cython.bint

    def __init__(self, head: bool, only_existing: bool = False) -> None:
        self._event = b"lpush" if head else b"rpush"
        self._head = head
        self._only_existing = only_existing

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Add elements at one end of a list, one after the other, and reply with its length."""
        db: Database = session.db
        n: cython.Py_ssize_t = db.locate(words)
        if n < 0 and self._only_existing:
            return session.out.integer(0)
        value: List = db.buffer.new_list() if n < 0 else list_at(db, n)
        value.push_words(words, 2, self._head, db.buffer.list_limits)
        length: cython.Py_ssize_t = value.elements.count
        keep(db, words, n, value)
        session.changed(words, words.count - 2)
        if db.notifies:
            session.notify(b"l", self._event, words.get(1))
        return session.out.integer(length)


command("lpush", arity=-3, flags="write denyoom fast", since="1.0.0", syntax="key element [element ...]",
        summary="Add elements at the head of a list, one after the other, creating it if needed.",
        complexity=_PUSH)(partial(_Push, True))
command("rpush", arity=-3, flags="write denyoom fast", since="1.0.0", syntax="key element [element ...]",
        summary="Add elements at the tail of a list, creating it if needed.",
        complexity=_PUSH)(partial(_Push, False))
command("lpushx", arity=-3, flags="write denyoom fast", since="2.2.0", syntax="key element [element ...]",
        summary="Add elements at the head of a list that exists.", complexity=_PUSH)(partial(_Push, True, True))
command("rpushx", arity=-3, flags="write denyoom fast", since="2.2.0", syntax="key element [element ...]",
        summary="Add elements at the tail of a list that exists.", complexity=_PUSH)(partial(_Push, False, True))


def note_removed(session: Session, key: bytes, value: List, event: bytes, count: int) -> None:
    """Finish a removal: publish the event, delete an empty list, convert a small one (listElementsRemoved)."""
    session.notify(b"l", event, key)
    if not delete_if_empty(session, key, value):
        value.shrink(session.db.buffer.list_limits)
    if count == 0 and session.engine.settings.compat.valkey:
        return  # LTRIM that keeps all elements changes nothing in Valkey (t_list.c: total_trim)
    session.modified(key)
    session.dirty += count - 1


@cython.final
@cython.cclass
class Llen(Implementation):
    """LLEN."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Reply with the number of elements in a list."""
        n: cython.Py_ssize_t = session.db.locate_read(words)
        return session.out.integer(0 if n < 0 else list_at(session.db, n).elements.count)


command("llen", arity=2, flags="readonly fast", since="1.0.0", syntax="key", complexity="O(1)",
        summary="Return the number of elements in a list.")(Llen)


@command("lindex", arity=3, flags="readonly", since="1.0.0", syntax="key index",
         complexity="O(N) where N is the number of elements to the nearer end of the list.")
def lindex(session: Session, argv: list[bytes]) -> None:
    """Return an element by its index, negative from the tail."""
    value = read_value(session, argv[1], List)
    if value is None or not write_element(session.out, value.elements, integer(argv[2])):
        session.out.null()


@cython.cfunc
@cython.exceptval(-1, check=True)
def _integer_at(words: ArgumentSpans, index: cython.Py_ssize_t) -> cython.longlong:
    """Parse an argument as `integer` does."""
    number: cython.longlong = parse_digits(words.at[index], words.size[index])
    if number == _NOT_INT and not is_lowest(words.at[index], words.size[index]):
        raise CommandError(NOT_AN_INTEGER)
    return number


@cython.final
@cython.cclass
class Lrange(Implementation):
    """LRANGE (lrangeCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Reply with the elements between two indexes, inclusive."""
        first: cython.longlong = _integer_at(words, 2)
        last: cython.longlong = _integer_at(words, 3)
        n: cython.Py_ssize_t = session.db.locate_read(words)
        if n < 0:
            return session.out.array(0)
        value: List = list_at(session.db, n)
        length: cython.Py_ssize_t = value.elements.count
        if first < 0:
            first = max(first + length, 0)
        last = last + length if last < 0 else min(last, length - 1)
        if first > last or first >= length:
            return session.out.array(0)
        return write_range(session.out, value.elements, first, last - first + 1)


command("lrange", arity=4, flags="readonly", since="1.0.0", syntax="key start stop",
        summary="Return the elements between two indexes, inclusive.",
        complexity="O(S+N) where S is the distance of the start from the nearer end and N the elements in the range.",
        )(Lrange)


class _PosOptions:
    """The options RANK, COUNT and MAXLEN of LPOS; count -1 = not given."""

    __slots__ = ("count", "maxlen", "rank")

    def __init__(self, session: Session, argv: list[bytes]) -> None:
        self.rank, self.count, self.maxlen = 1, -1, 0
        for at in range(3, len(argv), 2):
            option = argv[at].lower()
            if at + 1 == len(argv) or option not in (b"rank", b"count", b"maxlen"):
                raise syntax_error()
            if option == b"rank":
                self.rank = _signed(session, argv[at + 1])
                if self.rank == 0:
                    raise CommandError(
                        "RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use "
                        "negative to start from the end of the list"
                    )
            elif option == b"count":
                self.count = positive(argv[at + 1], "COUNT can't be negative")
            else:
                self.maxlen = positive(argv[at + 1], "MAXLEN can't be negative")


def _signed(session: Session, raw: bytes) -> int:
    """Parse an integer; since 7.2 its negation must fit 64 bits too."""
    return negatable(raw) if session.engine.settings.compat.knows(72) else integer(raw)


@command("lpos", arity=-3, flags="readonly", since="6.0.6",
         syntax="key element [RANK rank] [COUNT num-matches] [MAXLEN len]",
         complexity="O(N) where N is the number of elements that are compared.")
def lpos(session: Session, argv: list[bytes]) -> None:
    """Return the indexes of elements that equal a value."""
    options = _PosOptions(session, argv)
    value = read_value(session, argv[1], List)
    found: list[int] = []
    if value is not None:
        backwards = options.rank < 0
        skip = abs(options.rank) - 1
        # Without COUNT, the first match is returned; COUNT 0 returns all matches.
        most = {-1: 1, 0: None}.get(options.count, options.count)
        if options.rank == LLONG_MIN:  # in 7.0, whose 64 bits cannot hold its negation, each match has a greater rank
            skip, most = 0, 1 if options.count == -1 else None
        matches = value.elements.positions(argv[2], backwards, options.maxlen)
        stop = None if most is None else skip + most
        # RANK may be a number that `islice` does not accept; beyond the length of the list, nothing matches.
        if skip < len(value):
            found = list(islice(matches, skip, None if stop is None else min(stop, len(value))))
        if backwards:
            found = [len(value) - 1 - index for index in found]
    if options.count != -1:
        session.out.array(len(found))
        for index in found:
            session.out.integer(index)
    elif found:
        session.out.integer(found[0])
    else:
        session.out.null()


@command("lset", arity=4, flags="write denyoom", since="1.0.0", syntax="key index element",
         complexity="O(N) where N is the number of elements to the nearer end of the list.")
def lset(session: Session, argv: list[bytes]) -> None:
    """Replace the element at an index."""
    key = argv[1]
    settings = session.engine.settings
    value = value_for_write(session, key, List)
    if value is None:
        raise CommandError("no such key")
    index = integer(argv[2])
    if settings.compat.knows(72):
        # Redis passes an int (listTypeReplaceAtIndex): an index beyond 32 bits is truncated.
        index = (index + (1 << 31)) % (1 << 32) - (1 << 31)
    if not value.set(index, argv[3], session.db.buffer.list_limits):
        raise CommandError("index out of range")
    session.modified(key)
    session.notify(b"l", b"lset", key)
    session.out.ok()


@command("linsert", arity=5, flags="write denyoom", since="2.2.0", syntax="key <BEFORE | AFTER> pivot element",
         complexity="O(N) where N is the number of elements before the pivot.")
def linsert(session: Session, argv: list[bytes]) -> None:
    """Insert an element before or after another one."""
    key, where = argv[1], argv[2].lower()
    if where not in (b"after", b"before"):
        raise syntax_error()
    value = value_for_write(session, key, List)
    if value is None:
        session.out.integer(0)
    elif value.insert(argv[3], argv[4], where == b"after", session.db.buffer.list_limits):
        session.modified(key)
        session.notify(b"l", b"linsert", key)
        session.out.integer(len(value))
    else:
        session.out.integer(-1)


@command("lrem", arity=4, flags="write", since="1.0.0", syntax="key count element",
         complexity="O(N+M) where N is the length of the list and M is the number of elements removed.")
def lrem(session: Session, argv: list[bytes]) -> None:
    """Remove elements that equal a value, from the head or, with a negative count, from the tail."""
    key = argv[1]
    count = _signed(session, argv[2])
    value = value_for_write(session, key, List)
    removed = 0 if value is None else value.elements.remove(argv[3], abs(count), count < 0)
    if value is not None and removed:
        note_removed(session, key, value, b"lrem", removed)
    session.out.integer(removed)


@command("ltrim", arity=4, flags="write", since="1.0.0", syntax="key start stop",
         complexity="O(N) where N is the number of elements to be removed by the operation.")
def ltrim(session: Session, argv: list[bytes]) -> None:
    """Keep only the elements between two indexes."""
    key = argv[1]
    start, stop = integer(argv[2]), integer(argv[3])
    value = value_for_write(session, key, List)
    if value is not None:
        length = len(value)
        start, count = clamp(start, stop, length)
        if not count:
            start = length
        value.delete_range(0, start)
        value.delete_range(count, length - start - count)
        note_removed(session, key, value, b"ltrim", length - count)
    session.out.ok()
