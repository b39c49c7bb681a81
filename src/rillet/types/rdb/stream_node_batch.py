"""Loading of many stream nodes at once with two threads, from the window of an RDB reader.

    window   ... | key 0 block 0 | key 1 block 1 | ........ | key n block n | key, and the beginning of a block
                   └── half of the worker thread ─┘ └──── half of the caller ────┘

`gather` finds the blocks that are complete in the window and allocates a buffer for each; `work` decompresses and
validates a range of them without the GIL, so that a second thread can process the other half; `settle` joins the
results. A damaged block raises the same error as a node that is read alone. If the fast validation does not support one
of the nodes, all nodes of the batch are validated again in order.

The window does not move before `settle`, and the batch has references to the window and the buffers, so they exist
even if the caller is interrupted. A batch has at most 8 MB of buffers, whatever size its blocks declare. Only compiled
code uses batches: interpreted threads would wait for the GIL.
"""

from __future__ import annotations

from typing import Annotated, Any

from rillet._cython import cython, readonly
from rillet.errors import Corrupt
from rillet.structs.listpack import Listpack
from rillet.structs.lzf import refuse_block, unpack
from rillet.types.rdb.primitives import RdbReader
from rillet.types.stream.id import key_ms, key_seq
from rillet.types.stream.stream import Stream
from rillet.types.stream.validation import LivingEntries

if cython.compiled:
    from cython.cimports.cpython.bytearray import (  # type: ignore[import-not-found, unused-ignore]
        PyByteArray_FromStringAndSize,
    )
    from cython.cimports.libc.string import memcpy  # type: ignore[import-not-found, unused-ignore]

_MOST = cython.declare(cython.Py_ssize_t, 1024)  # the length of NodeBatch's C arrays
_MOST_BYTES = cython.declare(cython.Py_ssize_t, 1 << 23)
_NODE = "Stream listpack integrity check failed"  # the message that Redis logs


@cython.final
@cython.cclass
class NodeBatch:
    """Up to 1024 stream nodes: position of the compressed block, buffer, ID and validation result of each."""

    __slots__ = (
        "base", "begins", "count", "damage", "data", "ends", "first", "half", "keys", "ms", "nodes", "packed", "second",
        "seq", "size", "source", "walked", "window",
    )  # fmt: skip
    keys: readonly[list[bytes]]
    nodes: readonly[list[Listpack]]
    count: readonly[cython.Py_ssize_t]
    half: readonly[cython.Py_ssize_t]
    first: LivingEntries
    second: LivingEntries
    window: Any
    base: cython.longlong
    source: Annotated[Any, cython.p_const_uchar[1024]]
    data: Annotated[Any, cython.p_uchar[1024]]
    packed: Annotated[Any, cython.Py_ssize_t[1024]]
    size: Annotated[Any, cython.Py_ssize_t[1024]]
    begins: Annotated[Any, cython.Py_ssize_t[1024]]
    ends: Annotated[Any, cython.Py_ssize_t[1024]]
    ms: Annotated[Any, cython.ulonglong[1024]]
    seq: Annotated[Any, cython.ulonglong[1024]]
    damage: Annotated[Any, cython.int[1024]]
    walked: Annotated[Any, cython.bint[1024]]

    def __init__(self) -> None:
        self.count = 0
        self.half = 0
        self.keys = []
        self.nodes = []
        self.first = self.second = LivingEntries()
        self.window = None

    @cython.ccall
    def gather(self, reader: RdbReader, left: cython.ulonglong) -> cython.Py_ssize_t:
        """Collect up to `left` nodes that are complete in the window; return their number. The reader does not move."""
        pos: cython.Py_ssize_t = reader.at
        total: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t = 0
        self.keys = []
        self.nodes = []
        self.window = reader.window
        self.base = reader.base
        while i < _MOST and left > 0 and total < _MOST_BYTES:
            if pos + 18 > reader.limit or reader.p[pos] != 16:
                break
            key: bytes = reader.p[pos + 1 : pos + 17]
            self.begins[i] = pos + 17
            is_block: cython.bint = reader.p[pos + 17] == 0xC3
            packed: cython.Py_ssize_t = reader.peek_length(pos + 18 if is_block else pos + 17)
            if packed < 0:
                break
            size: cython.Py_ssize_t = packed
            if is_block:
                size = reader.peek_length(reader.end_of_peek)
            pos = reader.end_of_peek
            if size < 0 or size > packed * 264 or packed > reader.limit - pos:
                break
            node: Listpack = Listpack.__new__(Listpack)
            if cython.compiled:
                data: bytearray = PyByteArray_FromStringAndSize(cython.NULL, size)
            else:
                data = bytearray(size)
            node.buf = data
            node.used = size
            self.data[i] = data
            self.size[i] = size
            self.source[i] = reader.p + pos
            self.packed[i] = packed if is_block else -1
            self.ms[i] = key_ms(key)
            self.seq[i] = key_seq(key)
            self.keys.append(key)
            self.nodes.append(node)
            pos += packed
            self.ends[i] = pos
            total += size
            left -= 1
            i += 1
        self.count = i
        self.half = i // 2
        self.first = LivingEntries()
        self.second = LivingEntries()
        return i

    def help(self) -> None:
        """Decompress and validate the first half of the nodes, in the worker thread."""
        self.work(0, self.half, self.first)

    @cython.ccall
    def work(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t, living: LivingEntries) -> cython.bint:
        """Decompress and validate the nodes from start to stop, and record the result of each."""
        if cython.compiled:
            with cython.nogil:
                self._work(start, stop, living)
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _work(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t, living: LivingEntries) -> cython.bint:
        i: cython.Py_ssize_t
        for i in range(start, stop):
            self.damage[i] = 0
            if self.packed[i] >= 0:
                self.damage[i] = unpack(self.source[i], 0, self.packed[i], self.data[i], self.size[i])
            else:
                memcpy(self.data[i], self.source[i], self.size[i])
            self.walked[i] = self.damage[i] == 0 and living.walk(self.ms[i], self.seq[i], self.data[i], self.size[i])
        return True

    @cython.ccall
    def settle(self, reader: RdbReader, stream: Stream, living: LivingEntries, before: bytes) -> cython.bint:
        """Add the nodes to the stream and move the reader. Return whether the nodes are in the order of their IDs."""
        i: cython.Py_ssize_t
        in_order: cython.bint = True
        all_walked: cython.bint = True
        for i in range(self.count):
            reader.mark = self.base + self.begins[i]
            if self.damage[i] != 0:
                refuse_block(self.damage[i])
            key: bytes = self.keys[i]
            in_order = in_order and before < key
            before = key
            all_walked = all_walked and self.walked[i]
            if not stream.add_node(key, self.nodes[i]):
                raise Corrupt("two nodes of a stream have the same ID", "Listpack re-added with existing key")
        if in_order and all_walked:
            living.join(self.first)
            living.join(self.second)
        elif in_order:
            for i in range(self.count):
                reader.mark = self.base + self.begins[i]
                if not living.take_node(self.keys[i], self.nodes[i]):
                    raise Corrupt("an invalid node, or a node with wrong counts, in a stream", _NODE)
        reader.at = self.ends[self.count - 1]
        return in_order
