"""SINTER, SUNION, SDIFF, and the variants that store or count their results (Redis: t_set.c).

OBJECT ENCODING and DUMP show how a stored result was built. So it is built as in Redis: with the same initial encoding,
the same order of members, and for SDIFF the same choice of algorithm:

    1   search each member of the first set in the others              cost: half of size * number of sets
    2   take all members of the first set, remove those of the others  cost: the sum of all sizes

Algorithm 2 starts with all members, so its result may be a hashtable with few members left.

    initial encoding         SINTERSTORE                       SUNIONSTORE, SDIFFSTORE
    7.0                      intset                            intset
    7.2 and newer            that of the smallest set, but     intset
                             listpack for a hashtable, and
                             intset for only integers
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from rillet.commands.arguments import integer, positive, syntax_error
from rillet.commands.first_key_pop import KeysAfterNumber
from rillet.commands.lookup import read_value
from rillet.commands.set import command
from rillet.commands.set.members import write_members
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.types.set import Set, SetLimits
from rillet.types.string import string2ll
from rillet.types.zset import Zset

_INTER = "O(N*M) worst case where N is the cardinality of the smallest set and M is the number of sets."
_ALL = "O(N) where N is the total number of elements in all given sets."


def _sets(session: Session, keys: list[bytes]) -> list[Set | None]:
    return [read_value(session, key, Set) for key in keys]


# -- intersection ------------------------------------------------------------------------------------


def _by_size(sets: list[Set | None]) -> list[Set]:
    """Return the sets, smallest first, or no sets if a key is missing: the intersection is then empty."""
    there = [one for one in sets if one is not None]
    return sorted(there, key=len) if len(there) == len(sets) else []


def _common(sets: list[Set]) -> Iterator[bytes]:
    """Yield those members of the first set that are in all other sets."""
    if sets:
        others = [one for one in sets[1:] if one is not sets[0]]
        for member in sets[0]:
            if all(member in other for other in others):
                yield member


def _intersection(sets: list[Set], limits: SetLimits) -> Set:
    """Return the intersection, encoded as SINTERSTORE stores it (sinterGenericCommand)."""
    if not limits.compact:
        return _made(Set(), _common(sets), limits)
    encoding = sets[0].encoding() if sets else "intset"
    result = Set.empty("listpack" if encoding == "hashtable" else encoding)
    # A listpack stores integers as integers, but a string in a hashtable may be the text of an integer.
    only_integers = True
    for member in _common(sets):
        only_integers = only_integers and string2ll(member) is not None
        result.add(member, limits)
    if only_integers:
        result.to_intset(limits)
    return result


def _made(result: Set, members: Iterator[bytes], limits: SetLimits) -> Set:
    for member in members:
        result.add(member, limits)
    return result


# -- union and difference ----------------------------------------------------------------------------


def _union(sets: list[Set | None], limits: SetLimits) -> Set:
    """Return the members of all sets (sunionDiffGenericCommand)."""
    return _made(Set(), (member for one in sets if one is not None for member in one), limits)


def _difference(sets: list[Set | None], limits: SetLimits) -> Set:
    """Return the members of the first set that are in no other set (sunionDiffGenericCommand)."""
    first, others = sets[0], [one for one in sets[1:] if one is not None]
    if first is None or any(one is first for one in others):
        return Set()
    sizes = [len(one) for one in others]
    if len(first) * (len(others) + 1) // 2 <= len(first) + sum(sizes):
        others.sort(key=len, reverse=True)
        return _made(Set(), (member for member in first if not any(member in one for one in others)), limits)
    result = _made(Set(), iter(first), limits)
    for one in others:
        for member in one:
            result.remove(member)
        if not len(result):
            break
    return result


# -- the commands ------------------------------------------------------------------------------------


def store_result(session: Session, key: bytes, result: Set | Zset, event: bytes, kind: bytes = b"s") -> None:
    """Store a result and reply with its size; an empty result deletes the key."""
    database = session.db
    if len(result):
        old = database.view(key)  # an access of the old value, whose frequency the new value inherits (setKey)
        database.put(key, result)
        database.notify_overwritten(key, old, result)
        session.modified(key)
        session.notify(kind, event, key)
    elif database.delete_replaced(key):  # without a lookup: an expired key is deleted, too, with the event `del`
        session.modified(key)
        session.notify(b"g", b"del", key)
    session.out.integer(len(result))


@command("sinter", arity=-2, flags="readonly", keys=(1, -1, 1), since="1.0.0", syntax="key [key ...]",
         complexity=_INTER)
def sinter(session: Session, argv: list[bytes]) -> None:
    """Return the intersection of sets."""
    write_members(session, list(_common(_by_size(_sets(session, argv[1:])))))


@command("sinterstore", arity=-3, flags="write denyoom", keys=(1, -1, 1), since="1.0.0",
         syntax="destination key [key ...]", complexity=_INTER)
def sinterstore(session: Session, argv: list[bytes]) -> None:
    """Store the intersection of sets."""
    result = _intersection(_by_size(_sets(session, argv[2:])), session.db.buffer.set_limits)
    store_result(session, argv[1], result, b"sinterstore")


@command("sintercard", arity=-3, flags="readonly movablekeys", keys=(0, 0, 0), since="7.0.0",
         syntax="numkeys key [key ...] [LIMIT limit]", complexity=_INTER, get_keys=KeysAfterNumber(1))
def sintercard(session: Session, argv: list[bytes]) -> None:
    """Return the size of the intersection of sets, up to a limit."""
    keys, limit, _ = _counting(argv)
    members = _common(_by_size(_sets(session, keys)))
    session.out.integer(sum(1 for _ in (islice(members, limit) if limit else members)))


def _counting(argv: list[bytes], flag: bytes = b"limit") -> tuple[list[bytes], int, bool]:
    """Parse SINTERCARD, SUNIONCARD or SDIFFCARD; return the keys, LIMIT (0 = none), and whether `flag` is given."""
    numkeys = integer(argv[1], "numkeys should be greater than 0")
    if numkeys < 1:
        raise CommandError("numkeys should be greater than 0")
    if numkeys > len(argv) - 2:
        raise CommandError("Number of keys can't be greater than number of args")
    limit, flagged = 0, False
    words = iter(argv[2 + numkeys :])
    for word in words:
        option = word.lower()
        value = next(words, None) if option == b"limit" else None
        if value is not None:
            limit = positive(value, "LIMIT can't be negative")
        elif option == flag != b"limit":
            flagged = True
        else:
            raise syntax_error()
    return argv[2 : 2 + numkeys], limit, flagged


@command("sunion", arity=-2, flags="readonly", keys=(1, -1, 1), since="1.0.0", syntax="key [key ...]", complexity=_ALL)
def sunion(session: Session, argv: list[bytes]) -> None:
    """Return the union of sets."""
    members = dict.fromkeys(member for one in _sets(session, argv[1:]) if one is not None for member in one)
    write_members(session, list(members))


@command("sunioncard", arity=-3, flags="readonly movablekeys", keys=(0, 0, 0), since="8.10.0",
         syntax="numkeys key [key ...] [APPROX] [LIMIT limit]", complexity=_ALL, get_keys=KeysAfterNumber(1))
def sunioncard(session: Session, argv: list[bytes]) -> None:
    """Return the size of the union of sets, up to a limit; APPROX is accepted, and the result is exact."""
    keys, limit, _ = _counting(argv, b"approx")
    met: set[bytes] = set()
    for member in (member for one in _sets(session, keys) if one is not None for member in one):
        met.add(member)
        if len(met) == limit:
            break
    session.out.integer(len(met))


@command("sunionstore", arity=-3, flags="write denyoom", keys=(1, -1, 1), since="1.0.0",
         syntax="destination key [key ...]", complexity=_ALL)
def sunionstore(session: Session, argv: list[bytes]) -> None:
    """Store the union of sets."""
    result = _union(_sets(session, argv[2:]), session.db.buffer.set_limits)
    store_result(session, argv[1], result, b"sunionstore")


@command("sdiff", arity=-2, flags="readonly", keys=(1, -1, 1), since="1.0.0", syntax="key [key ...]", complexity=_ALL)
def sdiff(session: Session, argv: list[bytes]) -> None:
    """Return the difference of the first set and the others."""
    write_members(session, list(_difference(_sets(session, argv[1:]), session.db.buffer.set_limits)))


@command("sdiffcard", arity=-3, flags="readonly movablekeys", keys=(0, 0, 0), since="8.10.0",
         syntax="numkeys key [key ...] [LIMIT limit]", complexity=_ALL, get_keys=KeysAfterNumber(1))
def sdiffcard(session: Session, argv: list[bytes]) -> None:
    """Return the size of the difference of sets, up to a limit."""
    keys, limit, _ = _counting(argv)
    count = len(_difference(_sets(session, keys), session.db.buffer.set_limits))
    session.out.integer(min(count, limit) if limit else count)


@command("sdiffstore", arity=-3, flags="write denyoom", keys=(1, -1, 1), since="1.0.0",
         syntax="destination key [key ...]", complexity=_ALL)
def sdiffstore(session: Session, argv: list[bytes]) -> None:
    """Store the difference of the first set and the others."""
    result = _difference(_sets(session, argv[2:]), session.db.buffer.set_limits)
    store_result(session, argv[1], result, b"sdiffstore")
