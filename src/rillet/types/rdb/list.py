"""Lists as RDB bytes (Redis: rdb.c, rdbSaveObject and rdbLoadObject).

    type                         value
     1  list                     count, then each element as a string                       read
    10  list of a ziplist        the ziplist as a string                                    read
    14  list, quicklist          count of nodes, then each node's ziplist as a string       read, written for RDB 9
    18  list, quicklist 2        count of nodes, then for each: 1 (PLAIN) or 2, its bytes   read, written from RDB 10 on

A list in the listpack encoding is written as a quicklist of one node, which every server from 7.0 on reads. A node that
list-compress-depth keeps compressed is written as its LZF block, whatever rdbcompression says. The limits choose the
encoding of a loaded list, except that a list of type 10 always becomes a quicklist, as in Redis.
"""

from __future__ import annotations

from collections.abc import Callable

from rillet.errors import Corrupt
from rillet.structs.listpack import Listpack
from rillet.structs.lzf import decompress
from rillet.structs.ziplist import read_ziplist, write_ziplist
from rillet.types.encoding_limits import EncodingLimits, plain_threshold
from rillet.types.list import List, ListLimits
from rillet.types.rdb.primitives import EmptyValue, RdbReader, RdbWriter

TYPE_LIST, TYPE_LIST_ZIPLIST, TYPE_LIST_QUICKLIST, TYPE_LIST_QUICKLIST_2 = 1, 10, 14, 18
_QUICKLIST_2_SINCE = 10
_PLAIN, _PACKED = 1, 2
_LZF_STRING = 0xC3


def type_of(value: List, version: int) -> int:
    """Return the RDB type for writing a list in an RDB version (rdbSaveObjectType)."""
    return TYPE_LIST_QUICKLIST_2 if version >= _QUICKLIST_2_SINCE else TYPE_LIST_QUICKLIST


def save(out: RdbWriter, value: List, kind: int) -> None:
    """Append the list as RDB type `kind`, which `type_of` returned. O(bytes)"""
    if kind == TYPE_LIST_QUICKLIST:
        _save_ziplists(out, value)
    else:
        _save_listpacks(out, value)


def _save_listpacks(out: RdbWriter, value: List) -> None:
    out.length(value.elements.nodes)
    for node in value.elements.chain():
        out.length(_PLAIN if node.is_plain() else _PACKED)
        if node.block is not None:
            out.raw(bytes((_LZF_STRING,)))
            out.length(len(node.block))
            out.length(node.nbytes())
            out.raw(node.block)
        elif node.packed is not None:
            out.string(node.packed.to_bytes())
        else:
            assert node.plain is not None
            out.string(node.plain)


def _save_ziplists(out: RdbWriter, value: List) -> None:
    out.length(value.elements.nodes)
    for node in value.elements.chain():
        data = b"" if node.block is None else decompress(node.block, node.nbytes())  # the node stays in LZF form
        if node.is_plain():
            elements = [data if node.plain is None else node.plain]
        else:
            packed = Listpack.from_bytes(data, False) if node.packed is None else node.packed
            elements = packed.texts()
        out.string(write_ziplist(elements))
        out.spill()


# -- reading ------------------------------------------------------------------------------------------


def _new_list(limits: EncodingLimits) -> List:
    """Return an empty list in the quicklist encoding."""
    value = List(ListLimits(limits))
    elements = value.elements
    elements.single = False
    elements.threshold = plain_threshold(limits)
    return value


def _filled(value: List, limits: EncodingLimits, converted: bool = True) -> List:
    if not len(value):
        raise EmptyValue("a list is empty")
    if converted:
        value.shrink(ListLimits(limits), built=True)
    return value


def _load_list(reader: RdbReader, limits: EncodingLimits) -> List:
    value = _new_list(limits)
    for _ in range(reader.length()):
        value.elements.push(reader.string(), False)
    return _filled(value, limits)


def _load_ziplist(reader: RdbReader, limits: EncodingLimits) -> List:
    value = _new_list(limits)
    for element in read_ziplist(reader.string()):
        value.elements.push(element, False)
    return _filled(value, limits, False)


def _load_quicklist(reader: RdbReader, limits: EncodingLimits) -> List:
    value = _new_list(limits)
    for _ in range(reader.length()):
        packed = Listpack.from_values(read_ziplist(reader.string()))
        if packed.length():
            value.elements.append_node(packed)
    return _filled(value, limits)


def _load_quicklist_2(reader: RdbReader, limits: EncodingLimits) -> List:
    value = _new_list(limits)
    for _ in range(reader.length()):
        container = reader.length()
        data = reader.string()
        if container not in (_PLAIN, _PACKED) or not data:
            raise Corrupt("a list node is empty or of an unknown container", "Quicklist integrity check failed")
        if container == _PLAIN:
            value.elements.append_node(None, data)
        else:
            packed = Listpack.from_bytes(data)
            if packed.length():
                value.elements.append_node(packed)
    return _filled(value, limits)


LOADERS: dict[int, Callable[[RdbReader, EncodingLimits], List]] = {
    TYPE_LIST: _load_list,
    TYPE_LIST_ZIPLIST: _load_ziplist,
    TYPE_LIST_QUICKLIST: _load_quicklist,
    TYPE_LIST_QUICKLIST_2: _load_quicklist_2,
}
"""The RDB types of lists, each with the function that reads the type."""
