"""Lists: the value of a key that holds a sequence (Redis: t_list.c).

A list is a quicklist in one of two encodings, which clients see (OBJECT ENCODING):

    listpack     one listpack and no more                 since 7.2, and as long as it is small
    quicklist    a chain of listpacks                     always in 7.0

What is small is told by list-max-listpack-size (`quicklist.exceeds`). A listpack becomes a quicklist before it is
to grow beyond that; the sum of what is to be added counts, so one RPUSH of many elements converts it although
the first few would have fitted. A quicklist becomes a listpack again when it has shrunk to one node of half that
size, so that a list that swings around the limit is not converted at every step. LINSERT converts even where it
then finds nothing to insert beside: Redis's own, and seen.

A list is never empty but within a command: who takes the last element away deletes the key.
"""

from __future__ import annotations

import sys
from itertools import islice

from rillet.structs.listpack import Listpack, is_int64
from rillet.structs.quicklist import Quicklist, QuicklistNode, exceeds, size_limit
from rillet.types.encoding_limits import DEFAULTS, EncodingLimits, has_compact


class List:
    """The elements of one key: a quicklist, and when it takes which form."""

    __slots__ = ("elements",)

    type_name = "list"

    def __init__(self, limits: EncodingLimits = DEFAULTS) -> None:
        compact = has_compact(limits)
        self.elements = Quicklist(
            limits.list_max_listpack_size, limits.list_compress_depth, not compact, single=compact
        )

    def __len__(self) -> int:
        """Return the number of elements (LLEN). O(1)"""
        return self.elements.count

    def encoding(self) -> str:
        """Return listpack or quicklist."""
        return "listpack" if self.elements.single else "quicklist"

    # -- conversion ----------------------------------------------------------------------------------

    def grow(self, nbytes: int, count: int, limits: EncodingLimits) -> None:
        """Get ready for so many elements more, of so many bytes in all (listTypeTryConversionAppend)."""
        elements = self.elements
        elements.threshold = limits.quicklist_packed_threshold
        if not elements.single:
            return
        compact = has_compact(limits)
        used = 7 if elements.head is None else elements.head.nbytes()
        if not compact or exceeds(limits.list_max_listpack_size, used + nbytes, elements.count + count):
            elements.single = False
            elements.classic = not compact
            elements.set_limits(limits.list_max_listpack_size, limits.list_compress_depth)

    def shrink(self, limits: EncodingLimits, built: bool = False) -> None:
        """Become a listpack if that suits; `built`: it is new, full size will do (listTypeTryConvertQuicklist)."""
        elements = self.elements
        node = elements.head
        if elements.single or elements.nodes != 1 or node is None or node.is_plain() or not has_compact(limits):
            return
        fill, half = limits.list_max_listpack_size, 1 if built else 2
        fits = node.nbytes() <= size_limit(fill) // half if fill < 0 else node.count <= max(fill, 1) // half
        if fits:
            node.open()
            elements.single = True

    # -- change --------------------------------------------------------------------------------------

    def push(self, values: list[bytes], head: bool, limits: EncodingLimits) -> None:
        """Add the values one after the other at the head or the tail. O(values)"""
        self.grow(sum(map(len, values)), len(values), limits)
        for value in values:
            self.elements.push(value, head)

    def move_to(self, target: List, from_head: bool, to_head: bool, limits: EncodingLimits) -> bytes:
        """Take an element off an end, add it to an end of the target, return it. Call `shrink` after. O(1)"""
        value = self.elements.pop(from_head)
        # What a quicklist stores as an integer comes out of it as one, and is not counted as bytes that are added.
        integer = not self.elements.single and is_int64(value)
        target.grow(0 if integer else len(value), 1, limits)
        target.elements.push(value, to_head)
        return value

    def set(self, index: int, value: bytes, limits: EncodingLimits) -> bool:
        """Put a value in the place of the element of that index; False where there is none."""
        self.grow(len(value), 1, limits)
        if not self.elements.replace(index, value):
            return False
        self.shrink(limits)
        return True

    def insert(self, pivot: bytes, value: bytes, after: bool, limits: EncodingLimits) -> bool:
        """Add a value before or after the first element that equals the pivot; False where none does. O(n)"""
        self.grow(len(value), 1, limits)
        index = next(self.elements.positions(pivot), -1)
        found = self.elements.locate(index) if index >= 0 else None
        if found is None:
            return False
        self.elements.insert(*found, value, after)
        return True

    def delete_range(self, start: int, count: int) -> None:
        """Remove count elements from a non-negative index on. Call `shrink` after."""
        self.elements.delete_range(start, count)

    # -- the whole -----------------------------------------------------------------------------------

    def copy(self) -> List:
        """Return a list of its own with the same elements, nodes and encoding (listTypeDup). O(bytes)"""
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

    def memory_usage(self, samples: int = 5) -> int:
        """Return the bytes that the value takes in this process (MEMORY USAGE); samples = nodes looked at, 0 = all.

        Nodes beyond the samples are taken to be as large as those on the average. O(samples)
        """
        elements = self.elements
        usages = [_node_usage(node) for node in islice(elements.chain(), samples or None)]
        nodes = sum(usages) * elements.nodes // len(usages) if usages else 0
        return sys.getsizeof(self) + sys.getsizeof(elements) + nodes

    def check(self) -> None:
        """Assert the invariants: the quicklist's, and that a key holds an element. O(bytes)"""
        assert self.elements.count
        self.elements.check()


def _node_usage(node: QuicklistNode) -> int:
    size = sys.getsizeof(node)
    if node.packed is not None:
        return size + sys.getsizeof(node.packed) + sys.getsizeof(node.packed.buf)
    return size + sys.getsizeof(node.plain if node.plain is not None else node.block)
