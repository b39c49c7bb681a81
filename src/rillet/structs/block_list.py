"""A list of byte blocks, created one at a time: a large array that never allocates or zeroes a large block.

    blocks   [bytearray, None, bytearray ...]      index >> shift selects a block, index & mask a place in it
    at       [address,   NULL, address   ...]      the same in compiled code, so that a read costs two loads

A block that does not exist stands for zeros. The dict keeps its buckets, its entries and its key bytes in such lists.
Doubling a dict of ten million keys therefore creates a directory of eight kilobytes, and the blocks of the new table
come into being when the first key falls into each.

Costs: all operations O(1), except `enlarge`, which copies its block, and a directory of n blocks: 16 bytes a block.
An address is valid until its block is enlarged or dropped. Rejected alternative: one bytearray that grows, which
stalls for 3 ms for each 10 MB that it copies.
"""

from __future__ import annotations

from typing import Any

from rillet._cython import cython, readonly

_HEADER = cython.declare(cython.Py_ssize_t, 64)  # a bytearray object and its allocation's own header


@cython.final
@cython.cclass
class BlockList:
    """Blocks of bytes by index; `size` is the sum of their sizes."""

    __slots__ = ("_addresses", "at", "blocks", "size")
    blocks: readonly[list[Any]]
    size: readonly[cython.Py_ssize_t]
    at: cython.pp_uchar
    _addresses: bytearray

    def __init__(self, count: cython.Py_ssize_t = 0) -> None:
        self.blocks = [None] * count
        self.size = 0
        self._addresses = bytearray(0)
        self._make_room(count)

    @cython.cfunc
    def _make_room(self, count: cython.Py_ssize_t) -> cython.bint:
        """Ensure that `at` has room for `count` addresses; new ones are NULL."""
        if cython.compiled:
            room: cython.Py_ssize_t = len(self._addresses) // cython.sizeof(cython.p_char)
            if room < count or room == 0:
                wider: bytearray = bytearray(max(count, 2 * room, 1) * cython.sizeof(cython.p_char))
                wider[: len(self._addresses)] = self._addresses
                self._addresses = wider
                addresses: cython.p_uchar = wider
                self.at = cython.cast(cython.pp_uchar, addresses)
        return True

    @cython.ccall
    def append(self, size: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Add a block of zeros at the end; return its index. After MemoryError, nothing has changed."""
        index: cython.Py_ssize_t = len(self.blocks)
        block: bytearray = bytearray(size)
        self._make_room(index + 1)
        self.blocks.append(block)
        if cython.compiled:
            address: cython.p_uchar = block
            self.at[index] = address
        self.size += size + _HEADER
        return index

    @cython.ccall
    def put(self, index: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
        """Create a block of zeros at an index that has none."""
        assert self.blocks[index] is None
        block: bytearray = bytearray(size)
        self.blocks[index] = block
        if cython.compiled:
            address: cython.p_uchar = block
            self.at[index] = address
        self.size += size + _HEADER
        return True

    @cython.ccall
    def enlarge(self, index: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
        """Replace a block by a larger one with the same beginning, followed by zeros. O(size)"""
        old: bytearray = self.blocks[index]
        block: bytearray = bytearray(size)
        block[: len(old)] = old
        assert len(block) == size
        self.blocks[index] = block
        if cython.compiled:
            address: cython.p_uchar = block
            self.at[index] = address
        self.size += size - len(old)
        return True

    @cython.ccall
    def drop(self, index: cython.Py_ssize_t) -> cython.bint:
        """Free a block, if it exists; its index stays."""
        if self.blocks[index] is not None:
            self.size -= len(self.blocks[index]) + _HEADER
            self.blocks[index] = None
            if cython.compiled:
                self.at[index] = cython.NULL
        return True

    @cython.ccall
    def pop(self) -> cython.bint:
        """Free the last block and its index."""
        self.drop(len(self.blocks) - 1)
        self.blocks.pop()
        return True

    def __len__(self) -> int:
        return len(self.blocks)

    def __getitem__(self, index: int) -> bytearray | None:
        """Return a block, or None if it was not created."""
        block: bytearray | None = self.blocks[index]
        return block

    def copy(self) -> BlockList:
        """Return a copy of all blocks. O(size)"""
        twin = BlockList(len(self.blocks))
        for index, block in enumerate(self.blocks):
            if block is not None:
                twin.put(index, len(block))
                twin.blocks[index][:] = block
        return twin

    @cython.ccall
    def memory_bytes(self) -> cython.Py_ssize_t:
        """Return the bytes of the blocks and of the directory. O(1)"""
        return self.size + 16 * len(self.blocks) + 160

    def check(self) -> None:
        """Raise AssertionError unless `size` is the sum of the blocks. O(blocks)"""
        assert self.size == sum(len(block) + _HEADER for block in self.blocks if block is not None)
