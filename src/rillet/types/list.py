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

from rillet.structs.integer_text import decimal
from rillet.structs.listpack import Listpack, is_int64
from rillet.structs.quicklist import Quicklist, exceeds, size_limit
from rillet.structs.sorting import most_bytes, pack
from rillet.types.charged import Charged
from rillet.types.encoding_limits import DEFAULTS, EncodingLimits, has_compact, plain_threshold, sizes_lists_anew


class List(Charged):
    """The value of a list key: a quicklist, and the rules that select its encoding."""

    __slots__ = ("elements",)

    type_name = "list"

    def __init__(self, limits: EncodingLimits = DEFAULTS) -> None:
        compact = has_compact(limits)
        self.elements = Quicklist(
            limits.list_max_listpack_size, limits.list_compress_depth, not compact, single=compact
        )

    @staticmethod
    def of(values: list[bytes | int], limits: EncodingLimits) -> List:
        """Return a list of the values, in the encoding that their size allows (SORT ... STORE). O(values)

        An integer stands for its text.

        Until 7.2 it has nodes of the default size, whatever the limits are.
        """
        made = List(limits if sizes_lists_anew(limits) else DEFAULTS)
        made.elements.single = False
        made.elements.classic = not has_compact(limits)
        made.elements.threshold = plain_threshold(limits)
        elements = made.elements
        size = most_bytes(values)
        if exceeds(elements.fill, size, len(values)) or size > elements.threshold > 0:
            for value in values:
                elements.push(decimal(value) if isinstance(value, int) else value, False)
        else:
            elements.append_node(pack(values))  # all values fit into one node
        made.shrink(limits, built=True)
        return made

    def __len__(self) -> int:
        """Return the number of elements (LLEN). O(1)"""
        return self.elements.count

    def encoding(self) -> str:
        """Return the encoding: listpack or quicklist."""
        return "listpack" if self.elements.single else "quicklist"

    # -- conversion ----------------------------------------------------------------------------------

    def grow(self, nbytes: int, count: int, limits: EncodingLimits) -> None:
        """Convert to a quicklist if `count` new elements of `nbytes` require it (listTypeTryConversionAppend)."""
        elements = self.elements
        elements.threshold = plain_threshold(limits)
        if not elements.single:
            return
        compact = has_compact(limits)
        used = 7 if elements.head is None else elements.head.nbytes()
        if not compact or exceeds(limits.list_max_listpack_size, used + nbytes, elements.count + count):
            elements.single = False
            elements.classic = not compact
            elements.set_limits(limits.list_max_listpack_size, limits.list_compress_depth)

    def shrink(self, limits: EncodingLimits, built: bool = False) -> None:
        """Convert to a listpack if half the limit (if `built`, the limit) allows it (listTypeTryConvertQuicklist)."""
        elements = self.elements
        node = elements.head
        if elements.single or elements.nodes != 1 or node is None or node.is_plain() or not has_compact(limits):
            return
        fill, half = limits.list_max_listpack_size, 1 if built else 2
        fits = node.nbytes() <= size_limit(fill) // half if fill < 0 else node.count <= max(fill, 1) // half
        if fits:
            elements.open_head()
            elements.single = True

    # -- changes -------------------------------------------------------------------------------------

    def push(self, values: list[bytes], head: bool, limits: EncodingLimits) -> None:
        """Push the values one by one at the head or the tail. O(values)"""
        self.grow(sum(map(len, values)), len(values), limits)
        for value in values:
            self.elements.push(value, head)

    def move_to(self, target: List, from_head: bool, to_head: bool, limits: EncodingLimits) -> bytes:
        """Pop an element from one end, push it to an end of target, and return it; call `shrink` afterwards. O(1)"""
        value = self.elements.pop(from_head)
        # Redis pops an integer as a number and does not count its size.
        integer = not self.elements.single and is_int64(value)
        target.grow(0 if integer else len(value), 1, limits)
        target.elements.push(value, to_head)
        return value

    def set(self, index: int, value: bytes, limits: EncodingLimits) -> bool:
        """Replace the element at an index; return False if the index is out of range."""
        self.grow(len(value), 1, limits)
        if not self.elements.replace(index, value):
            return False
        self.shrink(limits)
        return True

    def insert(self, pivot: bytes, value: bytes, after: bool, limits: EncodingLimits) -> bool:
        """Insert a value before or after the first element equal to the pivot; return False if there is none. O(n)"""
        self.grow(len(value), 1, limits)
        index = next(self.elements.positions(pivot), -1)
        found = self.elements.locate(index) if index >= 0 else None
        if found is None:
            return False
        self.elements.insert(*found, value, after)
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
