"""Sets as RDB bytes (Redis: rdb.c, rdbSaveObject and rdbLoadObject).

    type                         value
     2  set                      count, then each member as a string                        read, written
    11  set of an intset         the intset as a string                                     read, written
    20  set of a listpack        the listpack as a string                                   read, written from RDB 11 on

A set in the listpack encoding is written as type 2 for RDB 10, which has no type 20.

The limits choose the encoding of the loaded set, by Redis's rules: for a listpack, the number of members counts but not
their length.
"""

from __future__ import annotations

from collections.abc import Callable

from rillet.errors import Corrupt
from rillet.structs.intset import Intset
from rillet.structs.listpack import Listpack
from rillet.types.encoding_limits import EncodingLimits, has_compact
from rillet.types.rdb.primitives import EmptyValue, RdbReader, RdbWriter
from rillet.types.rdb.tables import save_table
from rillet.types.set import Set, SetLimits
from rillet.types.string import string2ll

TYPE_SET, TYPE_SET_INTSET, TYPE_SET_LISTPACK = 2, 11, 20
_LISTPACK_SINCE = 11


def type_of(value: Set, version: int) -> int:
    """Return the RDB type for writing a set in an RDB version (rdbSaveObjectType)."""
    if value.intset is not None:
        return TYPE_SET_INTSET
    return TYPE_SET_LISTPACK if value.listpack is not None and version >= _LISTPACK_SINCE else TYPE_SET


def save(out: RdbWriter, value: Set, kind: int) -> None:
    """Append the set as RDB type `kind`, which `type_of` returned. O(bytes)"""
    if kind == TYPE_SET_INTSET and value.intset is not None:
        out.string(value.intset.to_bytes())
    elif kind == TYPE_SET_LISTPACK and value.listpack is not None:
        out.string(value.listpack.to_bytes())
    elif value.table is not None:
        save_table(out, value.table)
    else:
        out.length(len(value))
        for member in value:
            out.string(member)


def _load_set(reader: RdbReader, limits: EncodingLimits) -> Set:
    """Read a set of strings. The set starts as an intset and is converted at the first member that does not fit."""
    count = reader.length()
    if not count:
        raise EmptyValue("a set is empty")
    own_limits = SetLimits(limits)
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
        if not value.add(member, own_limits):
            raise Corrupt("a set has a duplicate member", "Duplicate set members detected")
    return value


def _load_intset(reader: RdbReader, limits: EncodingLimits) -> Set:
    value = Set(Intset.from_bytes(reader.string()))
    if len(value) > limits.set_max_intset_entries:
        value.to_hashtable()
    return value


def _load_listpack(reader: RdbReader, limits: EncodingLimits) -> Set:
    value = Set(None, Listpack.from_bytes(reader.string()))
    members = list(value)
    if not members:
        raise EmptyValue("a set is empty")
    if len(set(members)) != len(members):
        raise Corrupt("a set has a duplicate member")
    if not has_compact(limits) or len(members) > limits.set_max_listpack_entries:
        value.to_hashtable()
    return value


LOADERS: dict[int, Callable[[RdbReader, EncodingLimits], Set]] = {
    TYPE_SET: _load_set,
    TYPE_SET_INTSET: _load_intset,
    TYPE_SET_LISTPACK: _load_listpack,
}
"""The RDB types of sets, each with the function that reads the type."""
