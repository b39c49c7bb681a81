"""Lists and sets as RDB bytes (Redis: rdb.c, rdbSaveObject and rdbLoadObject).

    type                         value
     1  list                     count, then each element as a string                       read
    10  list of a ziplist        the ziplist as a string                                    read
    14  list, quicklist          count of nodes, then each node's ziplist as a string       read, written for RDB 9
    18  list, quicklist 2        count of nodes, then for each: 1 (PLAIN) or 2, its bytes   read, written from RDB 10 on
     2  set                      count, then each member as a string                        read, written
    11  set of an intset         the intset as a string                                     read, written
    20  set of a listpack        the listpack as a string                                   read, written from RDB 11 on

A list in the listpack encoding is written as a quicklist of one node, so every server from 7.0 on reads it. A
set in the listpack encoding is written as type 2 where RDB 10 is asked for, in which type 20 is not known.
A node that list-compress-depth keeps compressed is written as the LZF block that it is, whatever rdbcompression says.

What is read takes the encoding that the limits give it, by Redis's rules: each counts for the form it checks and
no other, so a ziplist of a list stays a quicklist however small, and a listpack of a set is held against the
number of its members but not their length.
"""

from __future__ import annotations

from collections.abc import Callable

from rillet.errors import Corrupt
from rillet.structs.intset import Intset
from rillet.structs.listpack import Listpack
from rillet.structs.lzf import decompress
from rillet.structs.ziplist import read_ziplist, write_ziplist
from rillet.types.encoding_limits import DEFAULTS, EncodingLimits, has_compact
from rillet.types.list import List
from rillet.types.rdb.primitives import EmptyValue, RdbReader, RdbWriter
from rillet.types.set import Set
from rillet.types.string import string2ll

TYPE_LIST, TYPE_SET, TYPE_LIST_ZIPLIST, TYPE_SET_INTSET = 1, 2, 10, 11
TYPE_LIST_QUICKLIST, TYPE_LIST_QUICKLIST_2, TYPE_SET_LISTPACK = 14, 18, 20
_LISTPACK_LISTS_SINCE = 10
_LISTPACK_SETS_SINCE = 11
_PLAIN, _PACKED = 1, 2
_LZF_STRING = 0xC3


def type_of(value: List | Set, version: int) -> int:
    """Return the RDB type in which the value is written for that RDB version (rdbSaveObjectType)."""
    if isinstance(value, List):
        return TYPE_LIST_QUICKLIST_2 if version >= _LISTPACK_LISTS_SINCE else TYPE_LIST_QUICKLIST
    if value.intset is not None:
        return TYPE_SET_INTSET
    return TYPE_SET_LISTPACK if value.listpack is not None and version >= _LISTPACK_SETS_SINCE else TYPE_SET


def save(out: RdbWriter, value: List | Set, kind: int) -> None:
    """Append the value in that type, which `type_of` gave. O(bytes)"""
    if isinstance(value, List):
        if kind == TYPE_LIST_QUICKLIST:
            _save_ziplists(out, value)
        else:
            _save_list(out, value)
    elif kind == TYPE_SET_INTSET and value.intset is not None:
        out.string(value.intset.to_bytes())
    elif kind == TYPE_SET_LISTPACK and value.listpack is not None:
        out.string(value.listpack.to_bytes())
    else:
        out.length(len(value))
        for member in value:
            out.string(member)


def _save_list(out: RdbWriter, value: List) -> None:
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
        data = b"" if node.block is None else decompress(node.block, node.nbytes())  # the node stays as it is
        if node.is_plain():
            elements = [data if node.plain is None else node.plain]
        else:
            packed = Listpack.from_bytes(data, False) if node.packed is None else node.packed
            elements = [b"%d" % one if isinstance(one, int) else one for one in packed.values()]
        out.string(write_ziplist(elements))
        out.spill()


# -- reading ------------------------------------------------------------------------------------------


def _new_list(limits: EncodingLimits) -> List:
    """Return a list in the form of a quicklist, to be filled."""
    value = List(limits)
    elements = value.elements
    elements.single = False
    elements.threshold = limits.quicklist_packed_threshold
    return value


def _filled(value: List, limits: EncodingLimits, converted: bool = True) -> List:
    if not len(value):
        raise EmptyValue("a list without an element")
    if converted:
        value.shrink(limits, built=True)
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
        packed = Listpack()
        for element in read_ziplist(reader.string()):
            packed.append(element)
        if packed.length():
            packed.shrink()
            value.elements.append_node(packed)
    return _filled(value, limits)


def _load_quicklist_2(reader: RdbReader, limits: EncodingLimits) -> List:
    value = _new_list(limits)
    for _ in range(reader.length()):
        container = reader.length()
        data = reader.string()
        if container not in (_PLAIN, _PACKED) or not data:
            raise Corrupt("a list's node that is not sound", "Quicklist integrity check failed")
        if container == _PLAIN:
            value.elements.append_node(None, data)
        else:
            packed = Listpack.from_bytes(data)
            if packed.length():
                value.elements.append_node(packed)
    return _filled(value, limits)


def _load_set(reader: RdbReader, limits: EncodingLimits) -> Set:
    """Return a set of strings: each encoding is tried for as long as what came so far fits it."""
    count = reader.length()
    if not count:
        raise EmptyValue("a set without a member")
    value = Set.empty("intset" if count <= limits.set_max_intset_entries else "hashtable")
    widest = 0
    for _ in range(count):
        member = reader.string()
        widest = max(widest, len(member))
        if value.intset is not None and string2ll(member) is None:
            few = len(value) < limits.set_max_listpack_entries and widest <= limits.set_max_listpack_value
            if has_compact(limits) and few:
                value.to_listpack()
            else:
                value.to_hashtable()
        if not value.add(member, limits):
            raise Corrupt("a member twice in a set", "Duplicate set members detected")
    return value


def _load_intset(reader: RdbReader, limits: EncodingLimits) -> Set:
    value = Set()
    value.intset = Intset.from_bytes(reader.string())
    if len(value) > limits.set_max_intset_entries:
        value.to_hashtable()
    return value


def _load_listpack(reader: RdbReader, limits: EncodingLimits) -> Set:
    value = Set.empty("listpack")
    value.listpack = Listpack.from_bytes(reader.string())
    members = list(value)
    if not members:
        raise EmptyValue("a set without a member")
    if len(set(members)) != len(members):
        raise Corrupt("a set with a member twice")
    if not has_compact(limits) or len(members) > limits.set_max_listpack_entries:
        value.to_hashtable()
    return value


LOADERS: dict[int, Callable[[RdbReader, EncodingLimits], List | Set]] = {
    TYPE_LIST: _load_list,
    TYPE_LIST_ZIPLIST: _load_ziplist,
    TYPE_LIST_QUICKLIST: _load_quicklist,
    TYPE_LIST_QUICKLIST_2: _load_quicklist_2,
    TYPE_SET: _load_set,
    TYPE_SET_INTSET: _load_intset,
    TYPE_SET_LISTPACK: _load_listpack,
}
"""RDB type -> what reads it."""


def load(reader: RdbReader, kind: int, limits: EncodingLimits = DEFAULTS) -> List | Set:
    """Return the next list or set, of a type in LOADERS; Corrupt where it is malformed."""
    return LOADERS[kind](reader, limits)
