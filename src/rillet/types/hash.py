"""Hashes: the value of a key that maps fields to values (Redis: t_hash.c).

A hash has one of two encodings, which clients see (OBJECT ENCODING) and DUMP exposes:

    listpack     field, value, field, value ...; up to hash-max-listpack-entries fields (512), each field and value
                 of up to hash-max-listpack-value bytes (64)
    hashtable    anything else: a `Dict` whose values rest as bytes (structs/dict.py)

A hash starts as a listpack, and a hashtable never becomes a listpack. A command examines all its arguments before it
stores the first one (`prepare`): one argument that is too long, or since 7.2 too many arguments, convert the hash at
once, even if the arguments repeat the same field. The limits are read at each change, so a hash keeps its encoding
until its first change after the settings have changed.

Both encodings keep the fields in insertion order until a field is removed from a hashtable. The order of Redis's
hashtable depends on a random seed, so clients cannot rely on it. HSCAN uses the cursor of the hashtable.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from rillet.structs.dict import Dict
from rillet.structs.listpack import HEADER_SIZE, Listpack
from rillet.types.charged import Charged
from rillet.types.encoding_limits import DEFAULTS, EncodingLimits, has_compact


class Hash(Charged):
    """The value of a hash key: its fields and values, stored in `listpack` or `table`."""

    __slots__ = ("listpack", "table")

    type_name = "hash"

    def __init__(self) -> None:
        self.listpack: Listpack | None = Listpack()
        self.table: Dict | None = None

    def encoding(self) -> str:
        """Return the encoding: listpack or hashtable."""
        return "hashtable" if self.listpack is None else "listpack"

    # -- reading -------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of fields (HLEN). O(1)"""
        if self.listpack is not None:
            return self.listpack.length() // 2
        assert self.table is not None
        return len(self.table)

    def __contains__(self, field: bytes) -> bool:
        """Return whether the field exists; O(1), in a listpack O(n)."""
        if self.listpack is not None:
            return self.listpack.find(HEADER_SIZE, field, 1) != -1
        assert self.table is not None
        return self.table.find(field) >= 0

    def get(self, field: bytes) -> bytes | None:
        """Return the value of a field, or None if it does not exist (hashTypeGetValue). O(1), in a listpack O(n)"""
        if self.listpack is None:
            assert self.table is not None
            value: bytes | None = self.table.get(field)
            return value
        pos = self.listpack.find(HEADER_SIZE, field, 1)
        return None if pos == -1 else self.listpack.get_bytes(self.listpack.next(pos))

    def words(self) -> list[bytes]:
        """Return fields and values alternately. O(n)"""
        if self.listpack is not None:
            return self.listpack.texts()
        return [word for pair in self.items() for word in pair]

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield (field, value) pairs in insertion order. O(n)"""
        if self.table is not None:
            yield from self.table.items()
        else:
            words = self.words()
            yield from zip(words[::2], words[1::2], strict=True)

    def __iter__(self) -> Iterator[bytes]:
        """Yield the fields in insertion order. O(n)"""
        return iter(self.words()[::2]) if self.table is None else self.table.keys()

    def values(self) -> list[bytes]:
        """Return the values in the order of their fields. O(n)"""
        return self.words()[1::2] if self.table is None else [value for _, value in self.table.items()]

    # -- random access and iteration -----------------------------------------------------------------

    def picks(self, count: int) -> list[bytes]:
        """Return `count` random fields, in which a field may occur more than once. O(count), in a listpack O(n)"""
        table = self.table
        if table is None:
            return random.choices(list(self), k=count)
        return [table.entry_key(table.uniform_entry()) for _ in range(count)]

    def sample(self, count: int) -> list[bytes]:
        """Return up to `count` distinct random fields; from a listpack, in insertion order. O(count)"""
        if self.table is not None:
            if count >= len(self.table):
                return list(self.table.keys())
            return list(map(self.table.entry_key, self.table.distinct_sample(count)))
        fields = list(self)
        if count >= len(fields):
            return fields
        return [fields[at] for at in sorted(random.sample(range(len(fields)), count))]

    def scan(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """Return the next cursor (0 at the end) and some fields, or all of a listpack (scanGenericCommand)."""
        if self.table is None:
            return 0, list(self)
        following, entries = self.table.scan(cursor, count)
        return following, list(map(self.table.entry_key, entries))

    # -- changes -------------------------------------------------------------------------------------

    def prepare(self, words: Sequence[bytes], limits: EncodingLimits = DEFAULTS) -> None:
        """Convert to a hashtable if the fields and values about to be set require it (hashTypeTryConversion)."""
        if self.listpack is None:
            return
        sizes = list(map(len, words))
        many = len(words) // 2 > limits.hash_max_listpack_entries and has_compact(limits)
        if many or max(sizes) > limits.hash_max_listpack_value or not self.listpack.can_append(sum(sizes)):
            self.to_hashtable()

    def set(self, field: bytes, value: bytes, limits: EncodingLimits = DEFAULTS) -> bool:
        """Set the value of a field; return whether the field is new (hashTypeSet). O(1), in a listpack O(n)"""
        listpack = self.listpack
        if listpack is not None:
            longest, one, two = limits.hash_max_listpack_value, len(field), len(value)
            if one <= longest and two <= longest and listpack.can_append(one + two):
                return self._set_packed(listpack, field, value, limits)
            self.to_hashtable()
        assert self.table is not None
        return self.table.set(field, value)

    def _set_packed(self, listpack: Listpack, field: bytes, value: bytes, limits: EncodingLimits) -> bool:
        pos = listpack.find(HEADER_SIZE, field, 1)
        if pos != -1:
            listpack.replace(listpack.next(pos), value)
        else:
            listpack.append(field)
            listpack.append(value)
        if listpack.length() > 2 * limits.hash_max_listpack_entries:
            self.to_hashtable()
        return pos == -1

    def remove(self, field: bytes) -> bool:
        """Remove a field; return False if it does not exist (hashTypeDelete). O(1), in a listpack O(n)"""
        if self.listpack is not None:
            pos = self.listpack.find(HEADER_SIZE, field, 1)
            if pos != -1:
                self.listpack.delete(self.listpack.delete(pos))
            return pos != -1
        assert self.table is not None
        return self.table.delete(field)

    def to_hashtable(self) -> None:
        """Convert to a hashtable (hashTypeConvert). O(n)"""
        table = Dict(values=True, newest=True)
        table.resize(len(self))
        for field, value in self.items():
            table.set(field, value)
        self.table, self.listpack = table, None

    # -- the whole hash ------------------------------------------------------------------------------

    def copy(self) -> Hash:
        """Return a copy with the same fields, values and encoding (hashTypeDup). O(n)"""
        twin = Hash()
        if self.listpack is not None:
            twin.listpack = Listpack.from_bytes(self.listpack.to_bytes(), False)
        else:
            assert self.table is not None
            twin.listpack, twin.table = None, self.table.copy()
        return twin

    def check(self) -> None:
        """Raise AssertionError if the hash is empty, has two encodings, or one that is broken. O(n)"""
        assert (self.listpack is None) != (self.table is None) and len(self)
        if self.listpack is not None:
            self.listpack.check()
            words = self.words()
            assert len(words) % 2 == 0 and len(set(words[::2])) == len(self)
        else:
            assert self.table is not None
            self.table.check()
