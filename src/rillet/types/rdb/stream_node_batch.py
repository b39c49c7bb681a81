"""Nodes of a stream that lie whole in the window of a reader: unpacked and walked by two threads at once.

    window   ... | key 0 block 0 | key 1 block 1 | ........ | key n block n | key, and the beginning of a block
                   └──── the helper's half ────┘ └──── the caller's half ────┘

`gather` notes where each block stands and makes its buffer; `work` unpacks a range of them and walks what came out,
without holding Python's lock, so that another thread can do the same with the rest; `settle` puts both halves together.
Nothing is believed that is not checked as when nodes come one by one: a block that is damaged ends it with the same
words, and if a single node is one that the quick walk leaves alone, all of the batch are walked again in their order.

Nothing moves meanwhile: the window is not read on before the batch is settled, and the batch holds on to window and
buffers, so they are there even where the caller is interrupted and gone. A batch ends at 8 MB of buffers, whatever its
blocks claim.

Only for compiled code: interpreted, both halves would wait for each other.
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ModuleNotFoundError:  # interpreted, Cython not installed
    from rillet import _cython as cython

from rillet.errors import Corrupt
from rillet.structs.listpack import Listpack
from rillet.types.rdb.primitives import RdbReader
from rillet.types.stream.validation import LivingEntries
from rillet.types.stream.value import Stream

if cython.compiled:
    from cython.cimports.cpython.bytearray import (  # type: ignore[import-not-found, unused-ignore]
        PyByteArray_FromStringAndSize,
    )
    from cython.cimports.libc.string import memcpy  # type: ignore[import-not-found, unused-ignore]
else:  # compiled code has them as C functions, through the .pxd
    from rillet.structs.lzf import refuse_block, unpack
    from rillet.types.stream.id import key_ms, key_seq

# The arrays are C's own, in the .pxd.
# mypy: disable-error-code="attr-defined, misc"

_MOST = cython.declare(cython.Py_ssize_t, 1024)  # as long as the arrays in the .pxd
_MOST_BYTES = cython.declare(cython.Py_ssize_t, 1 << 23)
_NODE = "Stream listpack integrity check failed"  # what Redis's log says of it


@cython.final
@cython.cclass
class NodeBatch:
    """Up to 1024 nodes, and what is known of each: where its block is, its buffer, its ID, how it fared."""

    __slots__ = (
        "base", "begins", "count", "damage", "data", "ends", "first", "half", "keys", "ms", "nodes", "packed", "second",
        "seq", "size", "source", "walked", "window",
    )  # fmt: skip
    base: cython.longlong
    keys: list[bytes]
    nodes: list[Listpack]
    window: Any

    def __init__(self) -> None:
        self.count = 0
        self.half = 0
        self.keys = []
        self.nodes = []
        self.first = self.second = LivingEntries()
        self.window = None

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def gather(self, reader: RdbReader, left: cython.ulonglong) -> cython.Py_ssize_t:
        """Note the next nodes that are whole in the window, `left` at most, and return how many; none is consumed."""
        pos: cython.Py_ssize_t = reader.at
        packed: cython.Py_ssize_t
        size: cython.Py_ssize_t
        total: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t = 0
        is_block: cython.bint
        key: bytes
        node: Listpack
        data: bytearray
        self.keys = []
        self.nodes = []
        self.window = reader.window
        self.base = reader.base
        while i < _MOST and left > 0 and total < _MOST_BYTES:
            if pos + 18 > reader.limit or reader.p[pos] != 16:
                break
            key = reader.p[pos + 1 : pos + 17]
            self.begins[i] = pos + 17
            is_block = reader.p[pos + 17] == 0xC3
            packed = reader.peek_length(pos + 18 if is_block else pos + 17)
            if packed < 0:
                break
            size = packed
            if is_block:
                size = reader.peek_length(reader.end_of_peek)
            pos = reader.end_of_peek
            if size < 0 or size > packed * 264 or packed > reader.limit - pos:
                break
            node = Listpack.__new__(Listpack)
            if cython.compiled:
                data = PyByteArray_FromStringAndSize(cython.NULL, size)
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
        """Do the first half."""
        self.work(0, self.half, self.first)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def work(self, start: cython.Py_ssize_t, stop: cython.Py_ssize_t, living: LivingEntries) -> cython.bint:
        """Unpack and walk the nodes from start to stop; how each fared is noted."""
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
    @cython.exceptval(-1, check=False)
    def settle(self, reader: RdbReader, stream: Stream, living: LivingEntries, before: bytes) -> cython.bint:
        """Consume the nodes and give them to the stream, or refuse them; False where they do not come in order."""
        i: cython.Py_ssize_t
        in_order: cython.bint = True
        all_walked: cython.bint = True
        key: bytes
        for i in range(self.count):
            reader.mark = self.base + self.begins[i]
            if self.damage[i] != 0:
                refuse_block(self.damage[i])
            key = self.keys[i]
            in_order = in_order and before < key
            before = key
            all_walked = all_walked and self.walked[i]
            if not stream.add_node(key, self.nodes[i]):
                raise Corrupt("two nodes of the same ID", "Listpack re-added with existing key")
        if in_order and all_walked:
            living.join(self.first)
            living.join(self.second)
        elif in_order:
            for i in range(self.count):
                reader.mark = self.base + self.begins[i]
                if not living.take_node(self.keys[i], self.nodes[i]):
                    raise Corrupt("a node that is not sound, or contradicts itself", _NODE)
        reader.at = self.ends[self.count - 1]
        return in_order
