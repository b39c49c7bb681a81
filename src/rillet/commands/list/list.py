"""The list commands that touch one key and never wait (Redis: t_list.c); those that do are in `list_move`.

A list that loses its last element goes with its key. What is propagated is the command as it came: all of these
do the same wherever they run.

The settings decide the form of a list at each change (`types.list`), so every change hands them on.
"""

from __future__ import annotations

from itertools import islice

from rillet.commands.arguments import LLONG_MAX, LLONG_MIN, integer, positive, syntax_error
from rillet.commands.list.reply import write_element, write_range
from rillet.errors import CommandError, WrongType
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.types.list import List

_PUSH = "O(1) for each element added, so O(N) to add N elements when the command is called with multiple arguments."
_POP = "O(N) where N is the number of elements returned"
_RANGE = f"value is out of range, value must between {-LLONG_MAX} and {LLONG_MAX}"


def read_list(session: Session, key: bytes) -> List | None:
    """Return the list at a key, None where there is no key; WrongType for another type."""
    value = session.db.lookup_read(key)
    if value is not None and not isinstance(value, List):
        raise WrongType()
    return value


def list_for_write(session: Session, key: bytes) -> List | None:
    """Return the list at a key, to be changed, None where there is no key; WrongType for another type."""
    value = session.db.lookup(key)
    if value is not None and not isinstance(value, List):
        raise WrongType()
    return value


def clamp(start: int, stop: int, length: int) -> tuple[int, int]:
    """Return the first index and the number of elements of a range whose bounds are inclusive, or negative."""
    start = max(start + length, 0) if start < 0 else start
    stop = stop + length if stop < 0 else min(stop, length - 1)
    return start, max(stop - start + 1, 0)


# -- push and pop ------------------------------------------------------------------------------------


def _push(session: Session, argv: list[bytes], head: bool, only_existing: bool) -> None:
    """Answer LPUSH, RPUSH, LPUSHX and RPUSHX (pushGenericCommand)."""
    key, values = argv[1], argv[2:]
    value = list_for_write(session, key)
    if value is None:
        if only_existing:
            session.out.integer(0)
            return
        value = List(session.engine.settings)
        session.db.set(key, value)
    value.push(values, head, session.engine.settings)
    session.modified(key)
    session.dirty += len(values) - 1
    session.notify(b"l", b"lpush" if head else b"rpush", key)
    session.out.integer(len(value))


@command("lpush", arity=-3, flags="write denyoom fast", keys=(1, 1, 1), group="list", since="1.0.0",
         complexity=_PUSH, syntax="key element [element ...]")
def lpush(session: Session, argv: list[bytes]) -> None:
    """Add elements at the head of a list, one after the other, creating it if needed."""
    _push(session, argv, True, False)


@command("rpush", arity=-3, flags="write denyoom fast", keys=(1, 1, 1), group="list", since="1.0.0",
         complexity=_PUSH, syntax="key element [element ...]")
def rpush(session: Session, argv: list[bytes]) -> None:
    """Add elements at the tail of a list, creating it if needed."""
    _push(session, argv, False, False)


@command("lpushx", arity=-3, flags="write denyoom fast", keys=(1, 1, 1), group="list", since="2.2.0",
         complexity=_PUSH, syntax="key element [element ...]")
def lpushx(session: Session, argv: list[bytes]) -> None:
    """Add elements at the head of a list that exists."""
    _push(session, argv, True, True)


@command("rpushx", arity=-3, flags="write denyoom fast", keys=(1, 1, 1), group="list", since="2.2.0",
         complexity=_PUSH, syntax="key element [element ...]")
def rpushx(session: Session, argv: list[bytes]) -> None:
    """Add elements at the tail of a list that exists."""
    _push(session, argv, False, True)


def note_removed(session: Session, key: bytes, value: List, event: bytes, count: int) -> None:
    """Do what follows a removal: the event, the end of an empty list, the form of a smaller (listElementsRemoved)."""
    session.notify(b"l", event, key)
    if len(value) == 0:
        session.db.delete(key)
        session.notify(b"g", b"del", key)
    else:
        value.shrink(session.engine.settings)
    session.modified(key)
    session.dirty += count - 1


def pop_range(session: Session, key: bytes, value: List, head: bool, count: int) -> int:
    """Write an array of up to count elements from an end, remove them, return how many they were."""
    length = len(value)
    count = min(count, length)
    write_range(session.out, value.elements, 0 if head else length - 1, count, not head)
    value.delete_range(0 if head else length - count, count)
    note_removed(session, key, value, b"lpop" if head else b"rpop", count)
    return count


def _pop(session: Session, argv: list[bytes], head: bool) -> None:
    """Answer LPOP and RPOP (popGenericCommand)."""
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
    """Remove the first element of a list, or the first ones, and return them."""
    _pop(session, argv, True)


@command("rpop", arity=-2, flags="write fast", keys=(1, 1, 1), group="list", since="1.0.0", complexity=_POP,
         syntax="key [count]")
def rpop(session: Session, argv: list[bytes]) -> None:
    """Remove the last element of a list, or the last ones, and return them, the last one first."""
    _pop(session, argv, False)


# -- reading -----------------------------------------------------------------------------------------


@command("llen", arity=2, flags="readonly fast", keys=(1, 1, 1), group="list", since="1.0.0", complexity="O(1)",
         syntax="key")
def llen(session: Session, argv: list[bytes]) -> None:
    """Return the number of elements in a list."""
    value = read_list(session, argv[1])
    session.out.integer(0 if value is None else len(value))


@command("lindex", arity=3, flags="readonly", keys=(1, 1, 1), group="list", since="1.0.0",
         complexity="O(N) where N is the number of elements to the nearer end of the list.", syntax="key index")
def lindex(session: Session, argv: list[bytes]) -> None:
    """Return an element by its index, negative from the tail."""
    value = read_list(session, argv[1])
    if value is None or not write_element(session.out, value.elements, integer(argv[2])):
        session.out.null()


@command("lrange", arity=4, flags="readonly", keys=(1, 1, 1), group="list", since="1.0.0",
         complexity="O(S+N) where S is the distance of the start from the nearer end and N the elements in the range.",
         syntax="key start stop")
def lrange(session: Session, argv: list[bytes]) -> None:
    """Return the elements between two indexes, both included."""
    start, stop = integer(argv[2]), integer(argv[3])
    value = read_list(session, argv[1])
    start, count = clamp(start, stop, 0 if value is None else len(value))
    if value is None or not count:
        session.out.array(0)
    else:
        write_range(session.out, value.elements, start, count)


class _PosOptions:
    """RANK, COUNT and MAXLEN of LPOS; count -1: not given."""

    __slots__ = ("count", "maxlen", "rank")

    def __init__(self, session: Session, argv: list[bytes]) -> None:
        self.rank, self.count, self.maxlen = 1, -1, 0
        for at in range(3, len(argv), 2):
            option = argv[at].lower()
            if at + 1 == len(argv) or option not in (b"rank", b"count", b"maxlen"):
                raise syntax_error()
            if option == b"rank":
                self.rank = _not_the_least(session, argv[at + 1])
                if self.rank == 0:
                    raise CommandError(
                        "RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use "
                        "negative to start from the end of the list"
                    )
            elif option == b"count":
                self.count = positive(argv[at + 1], "COUNT can't be negative")
            else:
                self.maxlen = positive(argv[at + 1], "MAXLEN can't be negative")


def _not_the_least(session: Session, raw: bytes) -> int:
    """Return an integer whose negation fits 64 bits too, which is asked for since 7.2."""
    number = integer(raw)
    if number == LLONG_MIN and session.engine.settings.compat.knows(72):
        raise CommandError(_RANGE)
    return number


@command("lpos", arity=-3, flags="readonly", keys=(1, 1, 1), group="list", since="6.0.6",
         complexity="O(N) where N is the number of elements that are compared.",
         syntax="key element [RANK rank] [COUNT num-matches] [MAXLEN len]")
def lpos(session: Session, argv: list[bytes]) -> None:
    """Return the index of an element, or of several equal ones."""
    options = _PosOptions(session, argv)
    value = read_list(session, argv[1])
    found: list[int] = []
    if value is not None:
        backwards = options.rank < 0
        skip = abs(options.rank) - 1
        # Without COUNT the first one is asked for, with COUNT 0 all are.
        most = {-1: 1, 0: None}.get(options.count, options.count)
        matches = value.elements.positions(argv[2], backwards, options.maxlen)
        stop = None if most is None else skip + most
        # More matches than a list can have elements are not there to be skipped.
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


# -- changing in place -------------------------------------------------------------------------------


@command("lset", arity=4, flags="write denyoom", keys=(1, 1, 1), group="list", since="1.0.0",
         complexity="O(N) where N is the number of elements to the nearer end of the list.", syntax="key index element")
def lset(session: Session, argv: list[bytes]) -> None:
    """Put another element in the place of the one of an index."""
    key = argv[1]
    settings = session.engine.settings
    value = list_for_write(session, key)
    if value is None:
        raise CommandError("no such key")
    index = integer(argv[2])
    if settings.compat.knows(72):
        # An int there (listTypeReplaceAtIndex): an index of more than 32 bits loses the higher ones.
        index = (index + (1 << 31)) % (1 << 32) - (1 << 31)
    if not value.set(index, argv[3], settings):
        raise CommandError("index out of range")
    session.modified(key)
    session.notify(b"l", b"lset", key)
    session.out.ok()


@command("linsert", arity=5, flags="write denyoom", keys=(1, 1, 1), group="list", since="2.2.0",
         complexity="O(N) where N is the number of elements before the pivot.",
         syntax="key <BEFORE | AFTER> pivot element")
def linsert(session: Session, argv: list[bytes]) -> None:
    """Add an element before or after another one."""
    key, where = argv[1], argv[2].lower()
    if where not in (b"after", b"before"):
        raise syntax_error()
    value = list_for_write(session, key)
    if value is None:
        session.out.integer(0)
    elif value.insert(argv[3], argv[4], where == b"after", session.engine.settings):
        session.modified(key)
        session.notify(b"l", b"linsert", key)
        session.out.integer(len(value))
    else:
        session.out.integer(-1)


@command("lrem", arity=4, flags="write", keys=(1, 1, 1), group="list", since="1.0.0",
         complexity="O(N+M) where N is the length of the list and M is the number of elements removed.",
         syntax="key count element")
def lrem(session: Session, argv: list[bytes]) -> None:
    """Remove elements that equal one, from the head or, with a negative count, from the tail."""
    key = argv[1]
    count = _not_the_least(session, argv[2])
    value = list_for_write(session, key)
    removed = 0 if value is None else value.elements.remove(argv[3], abs(count), count < 0)
    if value is not None and removed:
        note_removed(session, key, value, b"lrem", removed)
    session.out.integer(removed)


@command("ltrim", arity=4, flags="write", keys=(1, 1, 1), group="list", since="1.0.0",
         complexity="O(N) where N is the number of elements to be removed by the operation.", syntax="key start stop")
def ltrim(session: Session, argv: list[bytes]) -> None:
    """Remove all elements but those between two indexes."""
    key = argv[1]
    start, stop = integer(argv[2]), integer(argv[3])
    value = list_for_write(session, key)
    if value is not None:
        length = len(value)
        start, count = clamp(start, stop, length)
        if not count:
            start = length
        value.delete_range(0, start)
        value.delete_range(count, length - start - count)
        note_removed(session, key, value, b"ltrim", length - count)
    session.out.ok()
