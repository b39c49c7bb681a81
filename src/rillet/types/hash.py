"""Hashes: the value of a key that maps fields to values (Redis: t_hash.c).

A hash has one of three encodings, which clients see (OBJECT ENCODING) and DUMP exposes:

    listpack     field, value, field, value ...; up to hash-max-listpack-entries fields (512), each field and value
                 of up to hash-max-listpack-value bytes (64)
    listpackex   field, value, time, field, value, time ... (types/field_triples.py), within the same limits: a
                 listpack whose fields may expire
    hashtable    anything else: a `Dict` whose values rest as bytes (structs/dict.py), and the times of the fields that
                 expire (structs/due_times.py)

A hash starts as a listpack. The first command that may give a field an expiry makes it a listpackex, even if no field
gets one (`start_expiry`), and it remains one. In Valkey the encoding listpackex does not exist: the first expiry makes
a hashtable. A hashtable never becomes a listpack.

A command examines all its arguments before it stores the first one (`prepare`): one argument that is too long, or since
7.2 too many arguments, convert the hash at once, even if the arguments repeat the same field. The limits are read at
each change, so a hash keeps its encoding until its first change after the settings have changed.

All encodings keep the fields in insertion order until a field is removed from a hashtable, but for the fields of a
listpackex that expire. The order of Redis's hashtable depends on a random seed, so clients cannot rely on it. HSCAN
uses the cursor of the hashtable.

**Expiry.** A hash knows no clock: its methods return and count fields whose time has passed like all others. A command
asks for the times. `FieldExpiry.due` is the time for which the keyspace has registered the hash (keyspace/database.py);
as in Redis it may be earlier than the earliest time of the fields.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from rillet.structs.dict import Dict
from rillet.structs.due_times import DueTimes
from rillet.structs.listpack import HEADER_SIZE, Listpack
from rillet.types import field_triples
from rillet.types.charged import Charged
from rillet.types.encoding_limits import DEFAULTS, EncodingLimits, has_compact


class FieldExpiry:
    """What a hash has in addition once its fields may expire: `triples` (listpackex) or `times` (hashtable)."""

    __slots__ = ("due", "times", "triples")

    def __init__(self, triples: Listpack | None, times: DueTimes | None, due: int = 0) -> None:
        self.triples = triples
        self.times = times
        self.due = due

    def copy(self) -> FieldExpiry:
        """Return a copy. O(n)"""
        triples = None if self.triples is None else self.triples.copy()
        return FieldExpiry(triples, None if self.times is None else self.times.copy(), self.due)


class Hash(Charged):
    """The value of a hash key: its fields and values, stored in `listpack`, `expiry.triples` or `table`."""

    __slots__ = ("expiry", "listpack", "table")

    type_name = "hash"

    def __init__(self) -> None:
        self.listpack: Listpack | None = Listpack()
        self.table: Dict | None = None
        self.expiry: FieldExpiry | None = None

    def encoding(self) -> str:
        """Return the encoding: listpack, listpackex or hashtable."""
        if self.table is not None:
            return "hashtable"
        return "listpack" if self.listpack is not None else "listpackex"

    def _triples(self) -> Listpack:
        assert self.expiry is not None and self.expiry.triples is not None
        return self.expiry.triples

    # -- reading -------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of fields (HLEN). O(1)"""
        if self.listpack is not None:
            return self.listpack.length() // 2
        if self.table is not None:
            return len(self.table)
        return self._triples().length() // field_triples.WIDTH

    def __contains__(self, field: bytes) -> bool:
        """Return whether the field exists; O(1), in a listpack O(n)."""
        if self.listpack is not None:
            return self.listpack.find(HEADER_SIZE, field, 1) != -1
        if self.table is not None:
            return self.table.find(field) >= 0
        return field_triples.find(self._triples(), field) != -1

    def get(self, field: bytes) -> bytes | None:
        """Return the value of a field, or None if it does not exist (hashTypeGetValue). O(1), in a listpack O(n)"""
        if self.table is not None:
            value: bytes | None = self.table.get(field)
            return value
        if self.listpack is None:
            packed = self._triples()
            pos = field_triples.find(packed, field)
        else:
            packed = self.listpack
            pos = packed.find(HEADER_SIZE, field, 1)
        return None if pos == -1 else packed.get_bytes(packed.next(pos))

    def words(self) -> list[bytes]:
        """Return fields and values alternately. O(n)"""
        if self.listpack is not None:
            return self.listpack.texts()
        return [word for pair in self.items() for word in pair]

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield (field, value) pairs in their order. O(n)"""
        if self.table is not None:
            yield from self.table.items()
            return
        words = self._triples().texts() if self.listpack is None else self.listpack.texts()
        width = 2 if self.listpack is not None else field_triples.WIDTH
        yield from zip(words[::width], words[1::width], strict=True)

    def rows(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Yield field, value and expiry (ms since the epoch, 0: none) of each field, in their order. O(n)"""
        if self.expiry is not None and self.expiry.triples is not None:
            yield from field_triples.rows(self.expiry.triples)
            return
        times = None if self.expiry is None else self.expiry.times
        for field, value in self.items():
            yield field, value, 0 if times is None else times.get(field)

    def __iter__(self) -> Iterator[bytes]:
        """Yield the fields in their order. O(n)"""
        if self.table is not None:
            return self.table.keys()
        if self.listpack is not None:
            return iter(self.listpack.texts()[::2])
        return iter(self._triples().texts()[:: field_triples.WIDTH])

    def values(self) -> list[bytes]:
        """Return the values in the order of their fields. O(n)"""
        return self.words()[1::2]

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
        if self.table is not None:
            return
        packed = self._triples() if self.listpack is None else self.listpack
        sizes = list(map(len, words))
        many = len(words) // 2 > limits.hash_max_listpack_entries and has_compact(limits)
        if many or max(sizes) > limits.hash_max_listpack_value or not packed.can_append(sum(sizes)):
            self.to_hashtable()

    def set(self, field: bytes, value: bytes, limits: EncodingLimits = DEFAULTS, keep: bool = False) -> bool:
        """Set the value of a field; return whether the field is new (hashTypeSet). O(1), in a listpack O(n)

        The field loses its expiry, unless `keep`.
        """
        if self.table is None:
            packed = self._triples() if self.listpack is None else self.listpack
            longest, one, two = limits.hash_max_listpack_value, len(field), len(value)
            if one <= longest and two <= longest and packed.can_append(one + two):
                if self.listpack is None:
                    return self._set_triple(packed, field, value, limits, keep)
                return self._set_packed(packed, field, value, limits)
            self.to_hashtable()
        assert self.table is not None
        if self.expiry is not None and self.expiry.times is not None and not keep:
            self.expiry.times.remove(field)
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

    def _set_triple(
        self, packed: Listpack, field: bytes, value: bytes, limits: EncodingLimits, keep: bool
    ) -> bool:
        pos = field_triples.find(packed, field)
        if pos != -1:
            packed.replace(packed.next(pos), value)
            if not keep and field_triples.time_at(packed, pos):
                field_triples.set_time(packed, pos, 0)
        else:
            field_triples.insert(packed, field, value, 0)
        if len(self) > limits.hash_max_listpack_entries:
            self.to_hashtable()
        return pos == -1

    def remove(self, field: bytes) -> bool:
        """Remove a field; return False if it does not exist (hashTypeDelete). O(1), in a listpack O(n)"""
        if self.listpack is not None:
            pos = self.listpack.find(HEADER_SIZE, field, 1)
            if pos != -1:
                self.listpack.delete(self.listpack.delete(pos))
            return pos != -1
        if self.table is None:
            pos = field_triples.find(self._triples(), field)
            if pos != -1:
                field_triples.remove(self._triples(), pos)
            return pos != -1
        if self.expiry is not None and self.expiry.times is not None:
            self.expiry.times.remove(field)
        return self.table.delete(field)

    def to_hashtable(self) -> None:
        """Convert to a hashtable (hashTypeConvert). O(n)"""
        table = Dict(values=True, newest=True)
        table.resize(len(self))
        times = None if self.expiry is None else DueTimes()
        for field, value, when in self.rows():
            table.set(field, value)
            if when and times is not None:
                times.set(field, when)
        self.table, self.listpack = table, None
        if self.expiry is not None:
            self.expiry.triples, self.expiry.times = None, times

    # -- expiry of fields ----------------------------------------------------------------------------

    def start_expiry(self, limits: EncodingLimits = DEFAULTS) -> FieldExpiry:
        """Convert to an encoding in which fields may expire (hashTypeSetExInit). O(n) the first time"""
        if self.expiry is not None:
            return self.expiry
        if self.listpack is not None and limits.compat.valkey:
            self.to_hashtable()
        if self.listpack is not None:
            self.expiry = FieldExpiry(field_triples.of_pairs(self.listpack), None)
            self.listpack = None
        else:
            self.expiry = FieldExpiry(None, DueTimes())
        return self.expiry

    def time_of(self, field: bytes) -> int:
        """Return the expiry of a field in ms since the epoch, 0 if it has none, -1 if the field does not exist."""
        if self.expiry is None or self.expiry.times is not None:
            times = None if self.expiry is None else self.expiry.times
            when = 0 if times is None else times.get(field)
            return when if when or field in self else -1
        packed = self._triples()
        pos = field_triples.find(packed, field)
        return -1 if pos == -1 else field_triples.time_at(packed, pos)

    def set_time(self, field: bytes, when: int) -> None:
        """Set the expiry of an existing field, 0 to remove it; `start_expiry` must have been called. O(log n)

        In a listpack O(n).
        """
        assert self.expiry is not None
        if self.expiry.triples is not None:
            field_triples.set_time(self.expiry.triples, field_triples.find(self.expiry.triples, field), when)
            return
        assert self.expiry.times is not None
        if when:
            self.expiry.times.set(field, when)
        else:
            self.expiry.times.remove(field)

    def earliest(self) -> int:
        """Return the earliest expiry of a field, 0 if no field expires (hashTypeGetMinExpire). O(1)"""
        if self.expiry is None:
            return 0
        if self.expiry.times is not None:
            return self.expiry.times.earliest()
        packed = self._triples()
        return field_triples.time_at(packed, HEADER_SIZE) if packed.length() else 0

    def due(self, when: int, limit: int) -> list[bytes]:
        """Return up to `limit` fields that expire at or before `when`, the earliest first. O(log n + fields)"""
        if self.expiry is None:
            return []
        if self.expiry.times is not None:
            return self.expiry.times.due(when, limit)
        found: list[bytes] = []
        for field, _, time in field_triples.rows(self._triples()):
            if not 0 < time <= when or len(found) == limit:
                break
            found.append(field)
        return found

    def count_before(self, when: int) -> int:
        """Return the number of fields that expire before `when` (ebExpireDryRun). O(log n), in a listpack O(n)"""
        if self.expiry is None:
            return 0
        if self.expiry.times is not None:
            return self.expiry.times.count_before(when)
        return sum(1 for _, _, time in field_triples.rows(self._triples()) if 0 < time < when)

    # -- the whole hash ------------------------------------------------------------------------------

    def copy(self) -> Hash:
        """Return a copy with the same fields, values, times and encoding (hashTypeDup). O(n)"""
        twin = Hash()
        twin.listpack = None if self.listpack is None else self.listpack.copy()
        twin.table = None if self.table is None else self.table.copy()
        twin.expiry = None if self.expiry is None else self.expiry.copy()
        return twin

    def check(self) -> None:
        """Raise AssertionError if the hash is empty, has two encodings, or one that is broken. O(n)"""
        expiry = self.expiry
        triples, times = (None, None) if expiry is None else (expiry.triples, expiry.times)
        assert [self.listpack, self.table, triples].count(None) == 2 and len(self)
        assert (times is not None) == (expiry is not None and self.table is not None)
        if self.listpack is not None:
            self.listpack.check()
            words = self.words()
            assert len(words) % 2 == 0 and len(set(words[::2])) == len(self)
        elif triples is not None:
            field_triples.check(triples)
        else:
            assert self.table is not None
            self.table.check()
        if times is not None:
            times.check()
            assert all(field in self for field, _ in times.items())
        # A command may leave the keyspace with a time that is too early, or a few seconds too late.
        assert expiry is None or expiry.due >= 0
