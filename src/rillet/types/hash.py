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

A command examines all its arguments before it stores the first one (commands/hash/lookup.py): one argument that is too
long, or since 7.2 too many arguments, convert the hash at once, even if the arguments repeat the same field. The limits
are read at each change, so a hash keeps its encoding until its first change after the settings have changed.

All encodings keep the fields in insertion order until a field is removed from a hashtable, but for the fields of a
listpackex that expire. The order of Redis's hashtable depends on a random seed, so clients cannot rely on it. HSCAN
uses the cursor of the hashtable.

**Expiry.** A hash knows no clock: its methods return and count fields whose time has passed like all others. A command
asks for the times. `FieldExpiry.due` is the time for which the keyspace has registered the hash (keyspace/database.py);
as in Redis it may be earlier than the earliest time of the fields.

**Packed hashes.** A small hash is bytes in the keyspace's dict (types/at_rest.py). While a command uses it, its
listpack is that of the keyspace's buffer, and one `Hash` that the buffer uses again stands for it
(keyspace/rest_buffer.py). Its `tag` is that of the bytes; that of another object is 0. A packed hash in the encoding
hashtable has a listpack, too.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from rillet._cython import cython, public
from rillet.structs.dict import Dict
from rillet.structs.due_times import DueTimes
from rillet.structs.listpack import HEADER_SIZE, Listpack
from rillet.types import field_triples
from rillet.types.encoding_limits import DEFAULTS, EncodingLimits
from rillet.types.field_triples import insert_span as insert_triple
from rillet.types.field_triples import remove as remove_triple
from rillet.types.field_triples import set_time as set_triple_time
from rillet.types.field_triples import time_at as triple_time
from rillet.types.sized import SizedValue

HASH, HASH_TABLE, TRIPLES = 3, 9, 10
"""The tags of packed hashes (types/at_rest.py)."""
_HASH_TABLE = cython.declare(cython.int, HASH_TABLE)
_HEADER = cython.declare(cython.Py_ssize_t, HEADER_SIZE)


@cython.final
@cython.cclass
class FieldExpiry:
    """The additional state of a hash whose fields may expire: `triples` (listpackex) or `times` (hashtable)."""

    __slots__ = ("due", "times", "triples")
    due: public[cython.longlong]
    times: public[DueTimes | None]
    triples: public[Listpack | None]

    def __init__(self, triples: Listpack | None, times: DueTimes | None, due: cython.longlong = 0) -> None:
        self.triples = triples
        self.times = times
        self.due = due

    def copy(self) -> FieldExpiry:
        """Return a copy. O(n)"""
        triples = None if self.triples is None else self.triples.copy()
        return FieldExpiry(triples, None if self.times is None else self.times.copy(), self.due)


@cython.final
@cython.cclass
class Hash(SizedValue):
    """The value of a hash key: its fields and values, stored in `listpack`, `expiry.triples` or `table`."""

    __slots__ = ("expiry", "listpack", "table", "tag")
    listpack: public[Listpack | None]
    table: public[Dict | None]
    expiry: public[FieldExpiry | None]
    tag: public[cython.int]

    type_name = "hash"

    def __init__(self) -> None:
        self.charge = 0
        self.listpack = Listpack()
        self.table = None
        self.expiry = None
        self.tag = 0

    def encoding(self) -> str:
        """Return the encoding: listpack, listpackex or hashtable."""
        if self.is_table():
            return "hashtable"
        return "listpack" if self.listpack is not None else "listpackex"

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def is_table(self) -> cython.bint:
        """Return whether the encoding is hashtable."""
        return self.table is not None or self.tag == _HASH_TABLE

    @cython.cfunc
    def packed(self) -> Listpack:
        """Return the listpack of a hash that is not a table: of pairs, or of triples."""
        packed: Listpack | None = self.listpack
        return self._triples() if packed is None else packed

    @cython.cfunc
    def _triples(self) -> Listpack:
        expiry: FieldExpiry | None = self.expiry
        assert expiry is not None
        packed: Listpack | None = expiry.triples
        assert packed is not None
        return packed

    # -- reading -------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of fields (HLEN). O(1)"""
        return self.count()

    @cython.cfunc
    def count(self) -> cython.Py_ssize_t:
        """Return the number of fields. O(1)"""
        packed: Listpack | None = self.listpack
        table: Dict | None = self.table
        if packed is not None:
            return packed.length() >> 1
        if table is not None:
            return table.used0 + table.used1
        return self._triples().length() // 3

    def __contains__(self, field: bytes) -> bool:
        """Return whether the field exists; O(1), in a listpack O(n)."""
        return self.locate(field, len(field)) >= 0

    @cython.ccall
    def get(self, field: bytes) -> bytes | None:
        """Return the value of a field, or None if it does not exist (hashTypeGetValue). O(1), in a listpack O(n)"""
        place: cython.Py_ssize_t = self.locate(field, len(field))
        return None if place < 0 else self.content_at(place)

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
        words = self.packed().texts()
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

    def set(self, field: bytes, value: bytes, limits: EncodingLimits = DEFAULTS, keep: bool = False) -> bool:
        """Set the value of a field; return whether the field is new (hashTypeSet). O(1), in a listpack O(n)

        The field loses its expiry, unless `keep`.
        """
        entries, longest = limits.hash_max_listpack_entries, limits.hash_max_listpack_value
        return self.set_at(field, len(field), value, len(value), entries, longest, keep)

    def remove(self, field: bytes) -> bool:
        """Remove a field; return False if it does not exist (hashTypeDelete). O(1), in a listpack O(n)"""
        place: cython.Py_ssize_t = self.locate(field, len(field))
        return place >= 0 and self.remove_at(place, field, len(field))

    def to_hashtable(self) -> None:
        """Convert to a hashtable (hashTypeConvert). O(n)"""
        if self.tag:
            assert self.listpack is not None
            self.tag = _HASH_TABLE
            return
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

    @cython.ccall
    def start_expiry(self, limits: EncodingLimits = DEFAULTS) -> FieldExpiry:
        """Convert to an encoding in which fields may expire (hashTypeSetExInit). O(n) the first time"""
        if self.expiry is not None:
            return self.expiry
        assert not self.tag
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
        place: cython.Py_ssize_t = self.locate(field, len(field))
        return -1 if place < 0 else self.time_at(place, field, len(field))

    def set_time(self, field: bytes, when: cython.longlong) -> None:
        """Set the expiry of an existing field, 0 to remove it; `start_expiry` must have been called. O(log n)

        In a listpack O(n).
        """
        self.set_time_at(self.locate(field, len(field)), field, len(field), when)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def earliest(self) -> cython.longlong:
        """Return the earliest expiry of a field, 0 if no field expires (hashTypeGetMinExpire). O(1)"""
        expiry: FieldExpiry | None = self.expiry
        if expiry is None:
            return 0
        times: DueTimes | None = expiry.times
        if times is not None:
            return times.earliest()
        packed: Listpack = self._triples()
        return triple_time(packed, _HEADER) if packed.length() else 0

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

    # -- fields as bytes at memory addresses ----------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-2, check=False)
    def locate(self, at: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the place of a field: its position in the listpack or its entry in the table; -1 if it is missing."""
        table: Dict | None = self.table
        if table is not None:
            return table.find_span(at, size)
        packed: Listpack | None = self.listpack
        if packed is not None:
            return packed.find_span(_HEADER, at, size, 1)
        return self._triples().find_span(_HEADER, at, size, 2)

    @cython.cfunc
    def content_at(self, place: cython.Py_ssize_t) -> bytes:
        """Return the value of the field at a place."""
        table: Dict | None = self.table
        if table is not None:
            return table.entry_value(place)  # type: ignore[no-any-return]
        packed: Listpack = self.packed()
        return packed.get_bytes(packed.skip(place))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def time_at(
        self, place: cython.Py_ssize_t, at: cython.p_const_uchar, size: cython.Py_ssize_t
    ) -> cython.longlong:
        """Return the expiry of the field at a place, 0 if it has none."""
        expiry: FieldExpiry | None = self.expiry
        if expiry is None:
            return 0
        times: DueTimes | None = expiry.times
        if times is not None:
            return times.get_span(at, size)
        return triple_time(self._triples(), place)

    @cython.cfunc
    def set_time_at(
        self, place: cython.Py_ssize_t, at: cython.p_const_uchar, size: cython.Py_ssize_t, when: cython.longlong
    ) -> cython.bint:
        """Do `set_time` for the field at a place."""
        expiry: FieldExpiry | None = self.expiry
        assert expiry is not None
        times: DueTimes | None = expiry.times
        if times is None:
            return set_triple_time(self._triples(), place, when)
        return times.set_span(at, size, when) if when else times.remove_span(at, size)

    @cython.cfunc
    def set_at(
        self, at: cython.p_const_uchar, size: cython.Py_ssize_t, value: cython.p_const_uchar,
        value_size: cython.Py_ssize_t, entries: cython.longlong, longest: cython.longlong, keep: cython.bint,
    ) -> cython.bint:  # fmt: skip
        """Do `set`, with the limits of the number of fields and of the size of fields and values."""
        place: cython.Py_ssize_t = 0 if self.table is not None else self.locate(at, size)
        return self.put_at(place, at, size, value, value_size, entries, longest, keep)

    @cython.cfunc
    def put_at(
        self, place: cython.Py_ssize_t, at: cython.p_const_uchar, size: cython.Py_ssize_t, value: cython.p_const_uchar,
        value_size: cython.Py_ssize_t, entries: cython.longlong, longest: cython.longlong, keep: cython.bint,
    ) -> cython.bint:  # fmt: skip
        """Do `set_at` for the field at a place, -1 if it does not exist."""
        table: Dict | None = self.table
        if table is None:
            packed: Listpack = self.packed()
            if self.tag == _HASH_TABLE:
                self._put_packed(packed, place, at, size, value, value_size)
                return place < 0
            if size <= longest and value_size <= longest and packed.can_append(size + value_size):
                self._put_packed(packed, place, at, size, value, value_size)
                if place >= 0 and not keep and self.time_at(place, at, size):
                    self.set_time_at(place, at, size, 0)
                if self.count() > entries:
                    self.to_hashtable()
                return place < 0
            self.to_hashtable()
            return self.set_at(at, size, value, value_size, entries, longest, keep)
        place = table.add_span(at, size, value, value_size)
        if table.added:
            return True
        table.set_value_span(place, value, value_size)
        if self.expiry is not None and not keep:
            self.set_time_at(place, at, size, 0)
        return False

    @cython.cfunc
    def _put_packed(
        self, packed: Listpack, place: cython.Py_ssize_t, at: cython.p_const_uchar, size: cython.Py_ssize_t,
        value: cython.p_const_uchar, value_size: cython.Py_ssize_t,
    ) -> cython.bint:  # fmt: skip
        if place >= 0:
            packed.replace_span(packed.skip(place), value, value_size)
        elif self.listpack is None:
            insert_triple(packed, at, size, value, value_size, 0)
        else:
            packed.append_span(at, size)
            packed.append_span(value, value_size)
        return True

    @cython.cfunc
    def remove_at(
        self, place: cython.Py_ssize_t, at: cython.p_const_uchar, size: cython.Py_ssize_t
    ) -> cython.bint:
        """Remove the field at a place."""
        table: Dict | None = self.table
        packed: Listpack | None = self.listpack
        expiry: FieldExpiry | None = self.expiry
        times: DueTimes | None = None
        if table is None:
            if packed is None:
                return remove_triple(self._triples(), place)
            packed.gap(place, packed.skip(place, 2) - place, 0)
            return packed.recount(-2)
        if expiry is not None:
            times = expiry.times
        if times is not None and times.count():
            times.remove_span(at, size)
        return table.delete_entry(place)

    # -- the whole hash ------------------------------------------------------------------------------

    def copy(self) -> Hash:
        """Return a copy with the same fields, values, times and encoding (hashTypeDup). O(n)"""
        twin = Hash()
        twin.listpack = None if self.listpack is None else self.listpack.copy()
        twin.table = None if self.table is None else self.table.copy()
        twin.expiry = None if self.expiry is None else self.expiry.copy()
        if self.tag == _HASH_TABLE:
            twin.to_hashtable()
        return twin

    def check(self) -> None:
        """Raise AssertionError if the hash is empty, has two encodings, or one that is broken. O(n)"""
        assert not self.tag, "a packed hash is not a value of the keyspace"
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
