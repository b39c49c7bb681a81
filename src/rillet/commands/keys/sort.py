"""SORT and SORT_RO: the elements of a list, set or sorted set, sorted, or the values of keys named by them (sort.c).

    SORT mylist BY weight_* LIMIT 0 10 GET # GET object_*->name STORE result
                │           │          │                        └ a list; otherwise the reply
                │           │          └ for each element: itself, and the field `name` of the hash object_<element>
                │           └ elements 0 to 9 of the sorted ones
                └ the key weight_<element> holds the value to compare; a pattern without `*` keeps the order

Elements are compared as numbers, with ALPHA as bytes: up to the first NUL byte (strcoll in the C locale), or whole if
the result is stored. structs/sorting.py has the orders and says where ties show.

Quirks that clients see: a sorted set in a listpack becomes a skiplist, even in SORT_RO. A constant BY sorts a set after
all if the result is stored, and in a script, so that replicas do the same. An error in a number is reported after all
keys were looked up. Every lookup counts a keyspace hit or miss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rillet._cython import cython, readonly
from rillet.commands.arguments import integer, syntax_error
from rillet.commands.hash.unexpired import unexpired_value
from rillet.commands.keys import command
from rillet.commands.keys.named_keys import NamedKeys
from rillet.commands.string.values import write_string_of
from rillet.errors import CommandError, WrongType
from rillet.keyspace.database import Database
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.session import Session
from rillet.runtime.session_state import IN_SCRIPT, RESTRICTED
from rillet.structs.dict import Dict
from rillet.structs.integer_text import decimal
from rillet.structs.listpack import HEADER_SIZE, Listpack
from rillet.structs.quicklist import Quicklist, QuicklistNode
from rillet.structs.sorting import (
    FAST_FLOAT,
    STRING2D,
    STRTOD,
    VALKEY,
    first_by_scores,
    integers_in,
    order_by_scores,
    partial_order,
    picked,
    scores_of,
    sort_integers,
    sorted_by_keys,
)
from rillet.types.at_rest import LAST_STRING
from rillet.types.compat import Compat
from rillet.types.hash import Hash
from rillet.types.list import List, ListLimits
from rillet.types.set import Set
from rillet.types.string import String
from rillet.types.zset import Zset

_HEADER = cython.declare(cython.Py_ssize_t, HEADER_SIZE)
_FEW = cython.declare(cython.Py_ssize_t, 256)  # integers that fit into one node of any size in bytes
_LARGE = cython.declare(cython.Py_ssize_t, 4096)  # the smallest size of a node in bytes
_EXACT = cython.declare(cython.longlong, 1 << 53)
_NAMED = cython.declare(NamedKeys, NamedKeys())
_LAST_STRING = cython.declare(cython.int, LAST_STRING)
_COMPLEXITY = (
    "O(N+M*log(M)) where N is the number of elements in the list or set to sort, and M the number of returned "
    "elements. When the elements are not sorted, complexity is O(N)."
)
_SYNTAX = "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA]"


@cython.final
@cython.cclass
class Pattern:
    """The argument of BY or GET: `prefix*postfix` names a key, `prefix*postfix->field` a field, `#` the element.

    As in C, `*` and `->` are searched for up to the first NUL byte. `constant`: there is no `*`, so no key is named.
    """

    __slots__ = ("constant", "element", "field", "postfix", "prefix")
    prefix: bytes
    postfix: bytes
    field: bytes | None
    constant: readonly[cython.bint]
    element: readonly[cython.bint]

    def __init__(self, raw: bytes) -> None:
        text = raw.split(b"\0", 1)[0]
        star = text.find(b"*")
        self.element = text == b"#"
        self.constant = star < 0
        self.prefix = raw[:star] if star >= 0 else b""
        self.postfix = raw[star + 1 :]
        self.field = None
        arrow = text.find(b"->", star + 1)
        if star >= 0 and 0 <= arrow < len(text) - 2:
            self.postfix, self.field = raw[star + 1 : arrow], raw[arrow + 2 :]

    @cython.cfunc
    def value(self, session: Session, element: bytes) -> bytes:
        """Return the string that the pattern names for an element, or None (sort.c: lookupKeyByPattern)."""
        if self.element:
            return element
        if self.constant:
            return None  # type: ignore[return-value]
        db: Database = session.db
        key: bytes = self.prefix + element + self.postfix
        n: cython.Py_ssize_t = db.find_read(key)
        if n < 0:
            return None  # type: ignore[return-value]
        keys: Dict = db.keys
        found: object = None
        if self.field is not None:
            found = db.value_at(n)
            if not isinstance(found, Hash):
                return None  # type: ignore[return-value]
            return unexpired_value(session, key, found, self.field)  # type: ignore[return-value]
        found = keys.object_at(n)
        if found is not None:
            return found.value() if isinstance(found, String) else None  # type: ignore[return-value]
        at: cython.p_const_uchar = keys.value_span(n)
        if at[0] > _LAST_STRING:
            return None  # type: ignore[return-value]
        if cython.compiled:
            return at[1 : keys.span_size]
        return bytes(at[1 : keys.span_size])

    @cython.cfunc
    def number(self, session: Session, element: object) -> object:
        """Return the string that the pattern names for an element, or None; an integer stands for its text."""
        if self.element:
            return element
        if self.field is None and not self.constant:
            found: cython.int = _NAMED.find_text(session.db, self.prefix, element, self.postfix)
            if found != -2:
                return None if found else _NAMED.text_or_number()
        return self.value(session, element if isinstance(element, bytes) else decimal(element))

    @cython.cfunc
    def write(self, session: Session, element: object) -> cython.bint:
        """Reply with the string that the pattern names for an element, or null."""
        text: bytes
        if not self.element and not self.constant:
            if self.field is not None:
                if _NAMED.write_field(session, self.prefix, element, self.postfix, self.field):
                    return True
            else:
                state: cython.int = _NAMED.find_text(session.db, self.prefix, element, self.postfix)
                if state != -2:
                    return session.out.null() if state else _NAMED.write_text(session.out)
                text = element if isinstance(element, bytes) else decimal(element)
                return write_string_of(session, self.prefix + text + self.postfix, True)
        text = element if isinstance(element, bytes) else decimal(element)
        found: bytes = self.value(session, text)
        return session.out.null() if found is None else session.out.bulk(found)


@cython.final
@cython.cclass
class _Request:
    """The options of a SORT. BY and GET, which read keys that no argument names, require permission for all keys."""

    __slots__ = ("alpha", "by", "count", "descending", "gets", "offset", "target", "unsorted")
    by: Pattern | None
    gets: list[Any]
    target: bytes | None
    alpha: cython.bint
    descending: cython.bint
    unsorted: cython.bint
    offset: Any
    count: Any

    def __init__(self, argv: list[bytes], read_only: bool, reads_every_key: bool) -> None:
        self.by = None
        self.gets = []
        self.target = None
        self.alpha = self.descending = self.unsorted = False
        self.offset, self.count = 0, -1
        at = 2
        while at < len(argv):
            word = argv[at].lower()
            left = len(argv) - at - 1
            if word in (b"asc", b"desc"):
                self.descending = word == b"desc"
            elif word == b"alpha":
                self.alpha = True
            elif word == b"limit" and left >= 2:
                self.offset, self.count = integer(argv[at + 1]), integer(argv[at + 2])
                at += 2
            elif word == b"store" and left >= 1 and not read_only:
                self.target = argv[at + 1]
                at += 1
            elif word == b"by" and left >= 1:
                self.by = Pattern(argv[at + 1])
                if not self.by.constant and not reads_every_key:
                    raise CommandError("BY option of SORT denied due to insufficient ACL permissions.")
                self.unsorted = self.unsorted or self.by.constant  # a later pattern does not end this
                at += 1
            elif word == b"get" and left >= 1:
                if not reads_every_key:
                    raise CommandError("GET option of SORT denied due to insufficient ACL permissions.")
                self.gets.append(Pattern(argv[at + 1]))
                at += 1
            else:
                raise syntax_error()
            at += 1

    def window(self, size: int) -> tuple[int, int]:
        """Return the first and the last position that LIMIT selects of `size` elements; first > last: none."""
        if self.count < 0 and self.offset <= 0:
            return 0, size - 1
        start = min(max(self.offset, 0), size)
        count = min(self.count, size)
        end = size - 1 if count < 0 else start + count - 1
        if start >= size:
            return max(size - 1, 0), max(size - 1, 0) - 1
        return start, min(end, size - 1)


def _style(compat: Compat) -> int:
    if compat.valkey:
        return VALKEY
    return STRING2D if compat.knows(88) else FAST_FLOAT if compat.knows(80) else STRTOD


@cython.cfunc
def _elements(value: Any, integers: cython.bint = False) -> list[Any]:
    """Return the elements of a list, set or sorted set, in the order in which Redis walks them. O(n)

    integers: those that are stored as integers may be returned as such.
    """
    if value is None:
        return []
    if isinstance(value, Set):
        if value.intset is not None:
            return list(value.intset) if integers else [decimal(number) for number in value.intset]
        return value.listpack.texts() if value.listpack is not None else list(value.table.keys())  # type: ignore[union-attr]
    if isinstance(value, Zset):
        return list(value.table.keys())  # type: ignore[union-attr]
    found: list[Any] = []
    for node in value.elements.chain():
        closed: bool = node.open()
        if node.packed is None:
            found.append(node.plain)
        else:
            found.extend(node.packed.values() if integers else node.packed.texts())
        if closed:
            node.close()
    return found


@cython.cfunc
def _in_their_order(request: _Request, value: Any) -> list[Any]:
    """Return the elements that LIMIT selects of a value that is not sorted; DESC reverses lists and sorted sets."""
    start, last = request.window(0 if value is None else len(value))
    if isinstance(value, Zset):
        first = len(value) - last - 1 if request.descending else start
        return [member for member, _ in value.slice(first, last - start + 1, request.descending)]
    elements = _elements(value)
    if request.descending and isinstance(value, List):
        elements.reverse()
    return elements[start : last + 1]


@cython.cfunc
def _integers(value: object, descending: cython.bint) -> bytearray:
    """Return the sorted elements of a list in one listpack if a double represents each of them exactly, else None.

    Redis compares doubles: those of larger integers may be equal. O(n log n), without comparing objects
    """
    if type(value) is not List:
        return None  # type: ignore[return-value]
    elements: Quicklist = value.elements
    node: QuicklistNode | None = elements.head
    if elements.nodes != 1 or node is None or node.packed is None:
        return None  # type: ignore[return-value]
    packed: Listpack = node.packed
    count: cython.Py_ssize_t = node.count
    kept: bytearray = bytearray(8 * count)
    numbers: cython.p_Py_ssize_t = integers_in(kept)
    i: cython.Py_ssize_t
    pos: cython.Py_ssize_t = _HEADER
    for i in range(count):
        if packed.decode(pos) or not -_EXACT <= packed.at_int <= _EXACT:
            return None  # type: ignore[return-value]
        numbers[i] = packed.at_int
        pos = packed.at_next
    sort_integers(kept, bytearray(8 * count), count, descending)
    return kept


@cython.cfunc
def _end_integers(session: Session, request: _Request, sorted_integers: bytearray) -> cython.bint:
    """Reply with the integers that LIMIT selects, or store them."""
    out: ReplyWriter = session.out
    db: Database = session.db
    numbers: cython.p_Py_ssize_t = integers_in(sorted_integers)
    i: cython.Py_ssize_t
    window: tuple[int, int] = request.window(len(sorted_integers) >> 3)
    start: cython.Py_ssize_t = window[0]
    end: cython.Py_ssize_t = window[1] + 1
    if request.target is None:
        out.array(end - start)
        for i in range(start, end):
            out.bulk_int(numbers[i])
        return True
    limits: ListLimits = db.buffer.list_limits
    if end - start > _FEW or limits.fill >= 0 or 0 < limits.threshold < _LARGE or end <= start:
        _store(session, request.target, [numbers[i] for i in range(start, end)], None)
    else:
        packed: Listpack = Listpack(_FEW)
        for i in range(start, end):
            packed.append_int(numbers[i])
        _store(session, request.target, range(end - start), List.of_packed(packed, limits))
    return True


@cython.cfunc
def _sorted(session: Session, request: _Request, elements: list[Any]) -> list[Any]:
    """Return the elements that LIMIT selects, in the order of the request."""
    start, last = request.window(len(elements))
    by: Pattern = request.by  # type: ignore[assignment]
    keys: list[Any] = elements
    if by is not None:
        keys = [by.value(session, element) if request.alpha else by.number(session, element) for element in elements]
    descending: bool = request.descending
    if not request.alpha:
        scores: bytearray = scores_of(keys, _style(session.engine.settings.compat))
        if scores is None:
            raise CommandError("One or more scores can't be converted into double")
        if 0 < last + 1 < len(elements) and (last + 1) * (last + 1) <= 4 * len(elements):
            return first_by_scores(elements, scores, descending, last + 1)[start:]
        return picked(elements, order_by_scores(elements, scores, descending), start, last + 1)
    if request.target is None and (by is not None or b"\0" in b"".join(elements)):  # strcoll ends at a NUL byte
        keys = [None if key is None else key.split(b"\0", 1)[0] for key in keys]
    if by is None and keys is elements:  # equal elements are the same
        return sorted(elements, reverse=descending)[start : last + 1]
    if by is None:
        return sorted_by_keys(elements, keys, descending)[start : last + 1]
    keys = [b"" if key is None else b"=" + key for key in keys]  # a missing key is less than an empty string
    if start == 0 and last == len(elements) - 1:
        return sorted_by_keys(elements, keys, descending)
    return partial_order(elements, keys, start, last, descending)[start : last + 1]


@cython.cfunc
def _reply(session: Session, gets: list[Any], elements: list[Any]) -> cython.bint:
    out: ReplyWriter = session.out
    out.array(len(elements) * max(len(gets), 1))
    pattern: Pattern
    item: object
    for item in elements:
        if gets:
            for pattern in gets:
                pattern.write(session, item)
        elif isinstance(item, bytes):
            out.bulk(item)
        else:
            out.bulk_int(item)  # type: ignore[arg-type]
    return True


@cython.cfunc
def _values(session: Session, gets: list[Any], elements: list[Any]) -> list[Any]:
    """Return the strings to store: the elements, or what the GET patterns name; a missing one is empty."""
    if not gets:
        return elements
    found: list[Any] = []
    pattern: Pattern
    item: object
    for item in elements:
        for pattern in gets:
            value: bytes = pattern.value(session, item if isinstance(item, bytes) else decimal(item))
            found.append(b"" if value is None else value)
    return found


def _store(session: Session, key: bytes, values: Sequence[Any], result: List | None) -> None:
    """Store the values as a list, or delete the key if there are none; reply with their number.

    result: the list, if the caller has made it already; `values` then has as many items.
    """
    db: Database = session.db
    if values:
        if result is None:
            result = List.from_values(values, db.buffer.list_limits)  # type: ignore[arg-type]
        old: object = None
        if db.on_overwritten is None:
            db.find(key)  # the lookup of setKey
        else:
            old = db.view(key)
        db.put(key, result)
        db.notify_overwritten(key, old, result)
        session.modified(key)
        session.dirty += len(values) - 1
        session.notify(b"l", b"sortstore", key)
    elif db.delete_replaced(key):
        session.modified(key)
        session.notify(b"g", b"del", key)
    session.out.integer(len(values))


@cython.cfunc
def _value(db: Database, key: bytes) -> object:
    """Return the value at a key, None if it does not exist; a packed list is unpacked for this command."""
    n: cython.Py_ssize_t = db.find_read(key)
    value: object = None
    if n >= 0:
        if db.keys.object_at(n) is None:
            value = db.buffer.unpack_list(db.keys, n)
        if value is None:
            value = db.wake(key)
    return value


def _sort(session: Session, argv: list[bytes], read_only: bool) -> None:
    """Run SORT or SORT_RO (sortCommandGeneric)."""
    reads_every_key = True
    if session.state & RESTRICTED:
        reads_every_key = session.engine.acl.reads_every_key(session, session.command, argv)
    request = _Request(argv, read_only, reads_every_key)
    key: bytes = argv[1]
    value: Any = _value(session.db, key)
    if value is not None and not isinstance(value, (List, Set, Zset)):
        raise WrongType()
    if isinstance(value, Zset) and value.listpack is not None:
        value.to_skiplist()
    elements: list[Any]
    repeats: cython.bint = request.target is not None or session.state & IN_SCRIPT != 0
    if request.unsorted and not (isinstance(value, Set) and repeats):
        elements = _in_their_order(request, value)
    else:
        if request.unsorted:
            request.alpha, request.by = True, None
        if request.by is None and not request.alpha and not request.gets:
            integers: bytearray = _integers(value, request.descending)
            if integers is not None:
                _end_integers(session, request, integers)
                return
        elements = _sorted(session, request, _elements(value, not request.alpha))
    if request.target is None:
        _reply(session, request.gets, elements)
    else:
        _store(session, request.target, _values(session, request.gets, elements), None)


def keys_of_sort(argv: list[bytes]) -> list[int]:
    """Return the positions of the keys of a SORT: the first argument and that of the last STORE (sortGetKeys)."""
    found = [1]
    at = 2
    while at < len(argv):
        word = argv[at].lower()
        if word == b"store" and at + 1 < len(argv):
            found[1:] = [at + 1]
        at += {b"limit": 3, b"get": 2, b"by": 2}.get(word, 1)
    return found


def key_of_sort_ro(argv: list[bytes]) -> list[int]:
    """Return the position of the key of a SORT_RO."""
    return [1]


@command("sort", arity=-2, flags="write denyoom movablekeys", since="1.0.0", syntax=_SYNTAX + " [STORE destination]",
         complexity=_COMPLEXITY, get_keys=keys_of_sort)
def sort(session: Session, argv: list[bytes]) -> None:
    """Sorts the elements in a list, a set, or a sorted set, optionally storing the result."""
    _sort(session, argv, False)


@command("sort_ro", arity=-2, flags="readonly movablekeys", since="7.0.0", syntax=_SYNTAX, complexity=_COMPLEXITY,
         get_keys=key_of_sort_ro)
def sort_ro(session: Session, argv: list[bytes]) -> None:
    """Returns the sorted elements of a list, a set, or a sorted set."""
    _sort(session, argv, True)
