"""Measures the values of an RDB file without loading them: element count, largest element, memory in a server.

Each value has one of these forms in the file:

    text                   a string
    items pairs scores     the count, then each element
    quicklist ziplists     the count, then packed blocks
    listpack ziplist ...   one packed block, whose header contains the number of its items

`measure` skips a value of one of these forms and records its measurements in a `Key`. `rdb_stream_tables` measures
streams.

**Memory** is computed like MEMORY USAGE in Redis 7.0 (object.c, objectComputeSize): an object of 16 bytes and the
structures of its encoding, where each allocation is rounded up to its size class in jemalloc. `rdb_tables` states the
difference from real servers, and tests check it. A packed block has the same bytes in the file and in the server, so
its size is exact. The height of a skip list's node is random, so each element counts as an average node.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from struct import unpack

from rillet.errors import Corrupt
from rillet.structs.array.array_slice import double_text
from rillet.structs.listpack import Listpack
from rillet.structs.ziplist import read_ziplist
from rillet.structs.zipmap import read_zipmap
from rillet.types.rdb.primitives import RdbReader

# RDB type -> (type of the key, encoding, form of the value in the file)
FORMS: dict[int, tuple[str, str, str]] = {
    0: ("string", "", "text"),
    1: ("list", "linkedlist", "items"), 2: ("set", "hashtable", "items"), 3: ("zset", "skiplist", "old scores"),
    4: ("hash", "hashtable", "pairs"), 5: ("zset", "skiplist", "scores"), 7: ("module", "module", "parts"),
    9: ("hash", "zipmap", "zipmap"), 10: ("list", "ziplist", "ziplist"), 11: ("set", "intset", "intset"),
    12: ("zset", "ziplist", "ziplist"), 13: ("hash", "ziplist", "ziplist"), 14: ("list", "quicklist", "ziplists"),
    16: ("hash", "listpack", "listpack"), 17: ("zset", "listpack", "listpack"),
    18: ("list", "quicklist", "quicklist"), 20: ("set", "listpack", "listpack"),
    22: ("hash", "hashtable", "expiring pairs"), 23: ("hash", "listpackex", "listpack of three"),
    24: ("hash", "hashtable", "expiring pairs since"), 25: ("hash", "listpackex", "listpack of three since"),
    28: ("array", "sliced-array", "cells"),
    **dict.fromkeys((15, 19, 21, 26, 27), ("stream", "stream", "stream")),
}  # fmt: skip
UNREAD = {6: "a module value of Redis 4.0's previews", 29: "a rate limit"}

OBJECT = 16
ENTRY = 24  # bytes of a hash table's entry
_SKIPLIST = 16 + 32 + 640
_NODE_OF_SKIPLIST = 46  # average bytes of a node: 24, and 16 per level (one level in 3/4 of nodes, two in 3/16 ...)
_MODULE_NAME = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
# jemalloc's size classes in Redis (lg-quantum 3): multiples of 8 up to 64, then four classes per doubling.
_CLASSES: list[int] = [*range(8, 65, 8), *((64 << i) + (16 << i) * part for i in range(40) for part in range(1, 5))]


@dataclass
class Key:
    """The measurements of the key that is being read."""

    name: bytes = b""
    type: str = ""
    encoding: str = ""
    elements: int = 0
    largest: int = 0  # bytes of the largest element that is not in a packed block
    memory: int | None = None
    expires: int = -1
    idle: int | None = None
    frequency: int | None = None

    def saw(self, size: int) -> None:
        """Record the size of an element, if it is the largest so far."""
        if size > self.largest:
            self.largest = size


def allocated(size: int) -> int:
    """Return the bytes that jemalloc reserves for an allocation of that size."""
    return _CLASSES[bisect_left(_CLASSES, size)]


def text_size(length: int) -> int:
    """Return the bytes of a separately allocated string (sds.c: longer strings have longer headers)."""
    return allocated(length + (2 if 0 < length < 32 else 4 if length < 256 else 6 if length < 65536 else 10))


def _table(entries: int) -> int:
    """Return the bytes of a hash table without its strings (dict.c: a power of two of pointers, plus the entries)."""
    slots = 4
    while slots < entries:
        slots *= 2
    return 56 + 8 * slots + ENTRY * entries


def step_over_parts(reader: RdbReader, key: Key) -> None:
    """Skip a module's value, a list of parts with a type number before each (rdb.c: rdbLoadCheckModuleValue)."""
    while (part := reader.length()) != 0:
        if part in (1, 2):
            reader.length()
        elif part in (3, 4):
            reader.raw(4 * (part - 2))
        elif part == 5:
            key.saw(len(reader.string()))
        else:
            raise Corrupt(f"a part of a module's value must have a type from 0 to 5, not {part}")


def measure(reader: RdbReader, key: Key, form: str, product: str, facts: Mapping[bytes, bytes]) -> None:
    """Skip a value of any form except a stream. product, facts: the server's name and the file's auxiliary fields."""
    if form == "text":
        _string(reader, key)
    elif form == "parts":
        number = reader.length()
        key.encoding = "".join(_MODULE_NAME[number >> (10 + 6 * i) & 63] for i in reversed(range(9)))
        step_over_parts(reader, key)
    elif form in ("items", "pairs", "scores", "old scores") or form.startswith("expiring"):
        _elements(reader, key, form, product == "valkey")
    elif form in ("quicklist", "ziplists"):
        _quicklist(reader, key, form, facts)
    elif form == "cells":
        _cells(reader, key)
    else:
        _packed(reader, key, form)


def _string(reader: RdbReader, key: Key) -> None:
    text = reader.string()
    key.elements, key.largest = 1, len(text)
    if len(text) <= 20 and _is_integer(text):
        key.encoding, key.memory = "int", OBJECT
    elif len(text) <= 44:
        key.encoding, key.memory = "embstr", allocated(OBJECT + 4 + len(text))
    else:
        key.encoding, key.memory = "raw", OBJECT + text_size(len(text))


def _is_integer(text: bytes) -> bool:
    """Return whether a server stores a string as a number: canonical digits within 64 bits."""
    digits = text[1:] if text[:1] == b"-" else text
    if not digits.isdigit() or (digits[:1] == b"0" and text != b"0"):
        return False
    return -(1 << 63) <= int(text) < 1 << 63


def _elements(reader: RdbReader, key: Key, form: str, valkey: bool) -> None:
    """Skip a value that the file stores as a count and the elements."""
    if form.endswith("since"):
        reader.raw(8)
    count = reader.length()
    expiring = form.startswith("expiring")
    texts = 2 if form == "pairs" or expiring else 1
    memory = 0
    for _ in range(count):
        if expiring and not valkey:  # Redis writes a field's expiry before the field, Valkey after its value
            reader.length()
        size = 0
        for _ in range(texts):
            length = len(reader.string())
            memory += text_size(length)
            size += length
        if form == "scores" or (expiring and valkey):
            reader.raw(8)
        elif form == "old scores" and (length := reader.byte()) < 253:
            reader.raw(length)
        key.saw(size)
    key.elements = count
    key.memory = OBJECT + memory + (48 + 40 * count if key.type == "list" else _table(count))
    if key.type == "zset":  # the hash table and the skip list share the strings
        key.memory += _SKIPLIST + count * _NODE_OF_SKIPLIST
    elif expiring:
        key.memory += 16 * count


def _quicklist(reader: RdbReader, key: Key, form: str, facts: Mapping[bytes, bytes]) -> None:
    nodes = reader.length()
    memory = packed = 0
    for _ in range(nodes):
        plain = form == "quicklist" and reader.length() == 1
        block = reader.buffer()
        packed += not plain
        memory += 32 + allocated(len(block))
        key.elements += 1 if plain else _boxes(block, form)
        key.saw(len(block) if plain else 0)
    key.memory = OBJECT + 40 + memory
    if nodes == packed == 1 and _packs_lists(facts):
        key.encoding = "listpack"


def _cells(reader: RdbReader, key: Key) -> None:
    """Skip an array. The estimate counts 4096 indexes a slice, as Redis's default does."""
    cells: dict[int, list[int]] = {}  # by slice: values, first and last offset
    strings = 0
    for index, text, kept in array_values(reader):
        first = [0, index & 4095, index & 4095]
        part = cells.setdefault(index >> 12, first)
        part[0] += 1
        part[1] = min(part[1], index & 4095)
        part[2] = max(part[2], index & 4095)
        if kept:
            strings += allocated(len(text) + 2)
        key.saw(len(text))
    key.elements = sum(part[0] for part in cells.values())
    slices = sum(32 + 8 * (16 if part[0] <= 10 else 1 << (part[2] - part[1]).bit_length()) for part in cells.values())
    directory = 8 << max(cells, default=0).bit_length() if max(cells, default=0) < 2048 else 16_384 * len(cells)
    key.memory = OBJECT + 96 + strings + slices + directory


def array_values(reader: RdbReader) -> Iterator[tuple[int, bytes, bool]]:
    """Yield the index, the text and whether it is a separate string, for each value of an array."""
    count = reader.length()
    for _ in range(reader.length()):
        reader.length()
    for _ in range(count):
        index, kind = reader.length(), reader.length()
        if kind == 1:
            yield index, b"%d" % int.from_bytes(reader.raw(8), "little", signed=True), False
        elif kind == 2:
            yield index, double_text(unpack("<d", reader.raw(8))[0]), False
        elif kind > 3:
            raise Corrupt(f"a value of an array must have a kind from 0 to 3, not {kind}")
        else:
            yield index, reader.string(), kind == 0


def _packs_lists(facts: Mapping[bytes, bytes]) -> bool:
    """Return whether the server that wrote the file stores a short list as one packed block (since 7.2)."""
    version = (facts.get(b"valkey-ver") or facts.get(b"redis-ver") or b"0").split(b".")
    return tuple(int(part) if part.isdigit() else 0 for part in version[:2]) >= (7, 2)


def _packed(reader: RdbReader, key: Key, form: str) -> None:
    if form.endswith("since"):
        reader.raw(8)
    block = reader.buffer()
    boxes = _boxes(block, form)
    each = 3 if form.startswith("listpack of three") else 2 if key.type in ("hash", "zset") else 1
    key.elements = boxes // each
    key.memory = OBJECT + allocated(len(block))


def _boxes(block: bytearray, form: str) -> int:
    """Return the number of items in a packed block: from its header, or counted if the header has no number."""
    if form == "intset":
        return int.from_bytes(block[4:8], "little")
    if form == "zipmap":
        return len(read_zipmap(bytes(block)))
    ziplist = form in ("ziplist", "ziplists")
    told = int.from_bytes(block[8:10] if ziplist else block[4:6], "little")
    if told != 0xFFFF:
        return told
    return len(read_ziplist(bytes(block))) if ziplist else len(Listpack.from_bytes(bytes(block)))
