"""Lists: the value of a key that is a sequence of elements (Redis: t_list.c).

A list is a quicklist in one of two encodings, which clients see (OBJECT ENCODING):

    listpack     a single listpack                        since 7.2, while it is small
    quicklist    a chain of listpacks                     always in 7.0

list-max-listpack-size defines "small" (`quicklist.exceeds`). A listpack becomes a quicklist before an addition would
exceed this limit. The total size of the addition counts, so one RPUSH of many elements converts the list even if the
first elements would fit. A quicklist becomes a listpack again when it has shrunk to one node of half the limit, so
that a list near the limit is not converted at every change. LINSERT converts the list even if the pivot does not
exist; clients can see this quirk of Redis, so rillet has the same one.

A list is empty only during a command: a command that removes the last element deletes the key.
"""

from __future__ import annotations

from rillet._cython import cython, public, readonly
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.integer_text import decimal
from rillet.structs.listpack import Listpack, is_int64
from rillet.structs.quicklist import (
    DEPTH_MAX,
    FILL_MAX,
    FILL_MIN,
    Quicklist,
    QuicklistNode,
    exceeds,
    size_limit,
)
from rillet.structs.sorting import most_bytes, pack
from rillet.types.encoding_limits import DEFAULTS, EncodingLimits, has_compact, plain_threshold, sizes_lists_anew
from rillet.types.sized import SizedValue


@cython.final
@cython.cclass
class ListLimits:
    """The settings that choose the encoding of a list, and the size of its nodes.

    compact: small lists are listpacks (since 7.2). anew: the size of the nodes decides about SORT ... STORE.
    """

    __slots__ = ("anew", "compact", "depth", "fill", "threshold")
    anew: readonly[cython.bint]
    compact: readonly[cython.bint]
    depth: readonly[cython.Py_ssize_t]
    fill: readonly[cython.Py_ssize_t]
    threshold: readonly[cython.Py_ssize_t]

    def __init__(self, limits: EncodingLimits = DEFAULTS) -> None:
        self.anew = sizes_lists_anew(limits)
        self.compact = has_compact(limits)
        self.depth = max(0, min(limits.list_compress_depth, DEPTH_MAX))
        self.fill = max(FILL_MIN, min(limits.list_max_listpack_size, FILL_MAX))
        self.threshold = plain_threshold(limits)


_DEFAULTS = cython.declare(ListLimits, ListLimits())


@cython.final
@cython.cclass
class List(SizedValue):
    """The value of a list key: a quicklist, and the rules that select its encoding."""

    __slots__ = ("elements",)
    elements: public[Quicklist]

    type_name = "list"

    def __init__(self, limits: ListLimits = _DEFAULTS) -> None:
        self.elements = Quicklist(limits.fill, limits.depth, not limits.compact, limits.compact)

    @staticmethod
    def from_values(values: list[bytes | int], limits: ListLimits) -> List:
        """Return a list of the values, in the encoding that their size allows (SORT ... STORE). O(values)

        An integer stands for its text.
        """
        made: List = _to_build(limits)
        elements: Quicklist = made.elements
        size = most_bytes(values)
        if exceeds(elements.fill, size, len(values)) or size > elements.threshold > 0:
            for value in values:
                elements.push(decimal(value) if isinstance(value, int) else value, False)
        else:
            elements.append_node(pack(values))  # all values fit into one node
        made.shrink(limits, built=True)
        return made

    @staticmethod
    def of_packed(packed: Listpack, limits: ListLimits) -> List:
        """Return the list that `of` returns for the elements of a listpack, which fits into any node. O(1)"""
        made: List = _to_build(limits)
        made.elements.append_node(packed)
        made.shrink(limits, built=True)
        return made

    def __len__(self) -> int:
        """Return the number of elements (LLEN). O(1)"""
        return self.elements.count

    def encoding(self) -> str:
        """Return the encoding: listpack or quicklist."""
        return "listpack" if self.elements.single else "quicklist"

    # -- conversion ----------------------------------------------------------------------------------

    @cython.ccall
    def grow(self, nbytes: cython.Py_ssize_t, count: cython.Py_ssize_t, limits: ListLimits) -> cython.bint:
        """Convert to a quicklist if `count` new elements of `nbytes` require it (listTypeTryConversionAppend)."""
        elements: Quicklist = self.elements
        elements.threshold = limits.threshold
        if not elements.single:
            return True
        used: cython.Py_ssize_t = 7 if elements.head is None else elements.head.nbytes()
        if not limits.compact or exceeds(limits.fill, used + nbytes, elements.count + count):
            elements.single = False
            elements.classic = not limits.compact
            elements.fill = limits.fill
            elements.depth = limits.depth
        return True

    @cython.ccall
    def shrink(self, limits: ListLimits, built: cython.bint = False) -> cython.bint:
        """Convert to a listpack if half the limit (if `built`, the limit) allows it (listTypeTryConvertQuicklist)."""
        elements: Quicklist = self.elements
        node: QuicklistNode | None = elements.head
        if elements.single or elements.nodes != 1 or node is None or node.is_plain() or not limits.compact:
            return True
        half: cython.Py_ssize_t = 1 if built else 2
        fits: cython.bint = node.count <= max(limits.fill, 1) // half
        if limits.fill < 0:
            fits = node.nbytes() <= size_limit(limits.fill) // half
        if fits:
            elements.open_head()
            elements.single = True
        return True

    # -- changes -------------------------------------------------------------------------------------

    @cython.cfunc
    def push_words(
        self, words: ArgumentSpans, first: cython.Py_ssize_t, head: cython.bint, limits: ListLimits
    ) -> cython.bint:
        """Push the arguments from the first one on, one by one, at the head or the tail. O(arguments)"""
        i: cython.Py_ssize_t
        nbytes: cython.Py_ssize_t = 0
        for i in range(first, words.count):
            nbytes += words.size[i]
        self.grow(nbytes, words.count - first, limits)
        for i in range(first, words.count):
            self.elements.push_span(words.at[i], words.size[i], head)
        return True

    def push(self, values: list[bytes], head: bool, limits: ListLimits) -> None:
        """Push the values one by one at the head or the tail. O(values)"""
        self.grow(sum(map(len, values)), len(values), limits)
        for value in values:
            self.elements.push(value, head)

    def move_to(self, target: List, from_head: bool, to_head: bool, limits: ListLimits) -> bytes:
        """Pop an element from one end, push it to an end of target, and return it; call `shrink` afterwards. O(1)"""
        value = self.elements.pop(from_head)
        # Redis pops an integer as a number and does not count its size.
        integer = not self.elements.single and is_int64(value)
        target.grow(0 if integer else len(value), 1, limits)
        target.elements.push(value, to_head)
        return value

    def set(self, index: int, value: bytes, limits: ListLimits) -> bool:
        """Replace the element at an index; return False if the index is out of range."""
        self.grow(len(value), 1, limits)
        if not self.elements.replace(index, value):
            return False
        self.shrink(limits)
        return True

    def insert(self, pivot: bytes, value: bytes, after: bool, limits: ListLimits) -> bool:
        """Insert a value before or after the first element equal to the pivot; return False if there is none. O(n)"""
        self.grow(len(value), 1, limits)
        index = next(self.elements.positions(pivot), -1)
        found = self.elements.locate(index) if index >= 0 else None
        if found is None:
            return False
        self.elements.insert(found[0], found[1], value, after)
        return True

    def delete_range(self, start: int, count: int) -> None:
        """Delete count elements from a non-negative index on; call `shrink` afterwards."""
        self.elements.delete_range(start, count)

    # -- the whole list ------------------------------------------------------------------------------

    def copy(self) -> List:
        """Return a copy with the same elements, nodes and encoding (listTypeDup). O(bytes)"""
        ours, twin = self.elements, List()
        theirs = Quicklist(ours.fill, ours.depth, ours.classic, ours.single)
        for node in ours.chain():
            closed = node.block is not None
            node.open()
            packed = None if node.packed is None else Listpack.from_bytes(node.packed.to_bytes(), False)
            theirs.append_node(packed, node.plain)
            if closed:
                node.close()
        twin.elements = theirs
        return twin

    def check(self) -> None:
        """Raise AssertionError if the list is empty or an invariant of the quicklist is broken. O(bytes)"""
        assert self.elements.count
        self.elements.check()


@cython.cfunc
def _to_build(limits: ListLimits) -> List:
    """Return an empty quicklist for a number of elements that is known; until 7.2 its nodes have the default size."""
    made: List = List(limits if limits.anew else _DEFAULTS)
    elements: Quicklist = made.elements
    elements.single = False
    elements.classic = not limits.compact
    elements.threshold = limits.threshold
    return made
