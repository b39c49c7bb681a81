"""Passes over the values of an RDB file by the lengths in them, and counts their elements; no value is loaded.

Each value has one of these forms in the file:

    text                   a string
    items pairs scores     the count, then each element
    quicklist ziplists     the count, then packed blocks
    listpack ziplist ...   one packed block, whose header contains the number of its items
    cells parts stream     an array, the value of a module, a stream (stream_parts.py)
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import unpack
from typing import NamedTuple

from rillet.errors import Corrupt
from rillet.persistence.rdb.stream_parts import StreamParts
from rillet.structs.array.array_slice import double_text
from rillet.structs.listpack import Listpack
from rillet.structs.ziplist import read_ziplist
from rillet.structs.zipmap import read_zipmap
from rillet.types.rdb.primitives import RdbReader
from rillet.types.rdb.stream import STREAM_TYPES, TYPE_SEALED

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
"""Types that rillet does not read."""


class ValueSize(NamedTuple):
    """The number of elements, the bytes of the largest one outside packed blocks, and the number of these blocks.

    size: the bytes of all texts and blocks, decompressed.
    """

    elements: int = 0
    largest: int = 0
    blocks: int = 0
    size: int = 0


def skip_value(reader: RdbReader, kind: int, valkey: bool = True, opens: bool = False) -> ValueSize:
    """Pass over the value of an RDB type; Corrupt if it is malformed or the type is unknown. O(elements)

    valkey: type 22 is Valkey's, not that of a preview of Redis 8. opens: count the elements in packed blocks, which
    else count as none, and measure those of arrays; else no string is decoded, so it may be damaged.
    """
    if kind == TYPE_SEALED:
        kind = reader.byte()
        for _ in range(reader.length()):  # each range: first ID, reference, three numbers
            reader.skip_string()
            reader.skip_string()
            for _ in range(3):
                reader.length()
        if kind not in STREAM_TYPES:
            raise Corrupt("a stream with nodes in segments has the type of a stream")
    if kind not in FORMS:
        raise Corrupt("an unknown type")
    type_name, _, form = FORMS[kind]
    if form.endswith("since"):  # the earliest expiry of a field
        reader.skip(8)
    if form == "text":
        size = reader.skip_string()
        return ValueSize(1, size, 0, size)
    if form == "stream":
        parts = StreamParts(reader, kind, named=False)
        size = sum(reader.skip_string() for _ in parts.nodes())
        parts.finish()
        return ValueSize(parts.length, size=size)
    if form == "parts":
        reader.length()
        return skip_parts(reader)
    if form == "cells":
        sizes = [len(text) for _, text in array_values(reader, texts=opens)]
        return ValueSize(len(sizes), max(sizes, default=0), 0, sum(sizes))
    if form in ("items", "pairs", "scores", "old scores") or form.startswith("expiring"):
        return _skip_elements(reader, form, valkey)
    if form in ("quicklist", "ziplists"):
        return _skip_quicklist(reader, form, opens)
    each = 3 if form.startswith("listpack of three") else 2 if type_name in ("hash", "zset") else 1
    items, size = _skip_block(reader, form, opens)
    return ValueSize(items // each, 0, 1, size)


def skip_parts(reader: RdbReader) -> ValueSize:
    """Pass over the parts of a module's data, each with its type before it (rdb.c, rdbLoadCheckModuleValue)."""
    largest = size = 0
    while (part := reader.length()) != 0:
        if part in (1, 2):
            reader.length()
        elif part in (3, 4):
            reader.skip(4 * (part - 2))
        elif part == 5:
            part = reader.skip_string()
            largest, size = max(largest, part), size + part
        else:
            raise Corrupt(f"expected the type of a part of a module's data (0 to 5), found {part}")
    return ValueSize(0, largest, 0, size)


def array_values(reader: RdbReader, texts: bool = True) -> Iterator[tuple[int, bytes]]:
    """Yield the index and the text of each value of an array (rillet.types.rdb.array draws its parts).

    texts: else strings are skipped, and have no text.
    """
    count, inserted = reader.count(), reader.length()
    if inserted > 1:
        raise Corrupt("the insert index of an array expected")
    for _ in range(inserted):
        reader.length()
    for _ in range(count):
        index, kind = reader.length(), reader.length()
        if kind == 1:
            yield index, b"%d" % int.from_bytes(reader.raw(8), "little", signed=True)
        elif kind == 2:
            yield index, double_text(unpack("<d", reader.raw(8))[0])
        elif kind > 3:
            raise Corrupt(f"a value of an array must have a kind from 0 to 3, not {kind}")
        elif texts:
            yield index, reader.string()
        else:
            reader.skip_string()
            yield index, b""


def _skip_elements(reader: RdbReader, form: str, valkey: bool) -> ValueSize:
    """Pass over a value that the file stores as a count and the elements."""
    count = reader.count()
    largest = total = 0
    expiring = form.startswith("expiring")
    valkey = valkey and form == "expiring pairs"
    is_pair = expiring or form == "pairs"
    for _ in range(count):
        if expiring and not valkey:  # Redis writes a field's expiry before the field, Valkey after its value
            reader.length()
        size = reader.skip_string()
        if is_pair:
            size += reader.skip_string()
        if form == "scores" or valkey:
            reader.skip(8)
        elif form == "old scores" and (length := reader.byte()) < 253:
            reader.skip(length)
        largest, total = max(largest, size), total + size
    return ValueSize(count, largest, 0, total)


def _skip_quicklist(reader: RdbReader, form: str, opens: bool) -> ValueSize:
    elements = largest = blocks = total = 0
    for _ in range(reader.count()):
        if form == "quicklist" and reader.length() == 1:  # an element in a node of its own
            size = reader.skip_string()
            largest = max(largest, size)
            elements += 1
        else:
            items, size = _skip_block(reader, form, opens)
            elements += items
            blocks += 1
        total += size
    return ValueSize(elements, largest, blocks, total)


def _skip_block(reader: RdbReader, form: str, opens: bool) -> tuple[int, int]:
    """Pass over a packed block; return the number of its items, if it is opened, and its bytes."""
    if not opens:
        return 0, reader.skip_string()
    block = reader.buffer()
    return _items(block, form), len(block)


def _items(block: bytearray, form: str) -> int:
    """Return the number of items in a packed block: from its header, or counted if that has none."""
    if form == "intset":
        return int.from_bytes(block[4:8], "little")
    if form == "zipmap":
        return len(read_zipmap(bytes(block)))
    ziplist = form in ("ziplist", "ziplists")
    stated = int.from_bytes(block[8:10] if ziplist else block[4:6], "little")
    if stated != 0xFFFF:
        return stated
    return len(read_ziplist(bytes(block))) if ziplist else len(Listpack.from_bytes(bytes(block)))
