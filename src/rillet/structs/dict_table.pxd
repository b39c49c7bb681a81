cimport cython
from libc.string cimport memcmp, memcpy

from rillet.structs.arena cimport Arena
from rillet.structs.block_list cimport BlockList

cdef extern from *:
    """
    #if PY_VERSION_HEX >= 0x030E0000
    #define rillet_hash_bytes(at, size) Py_HashBuffer((at), (size))
    #else
    #define rillet_hash_bytes(at, size) _Py_HashBytes((at), (size))
    #endif
    """
    Py_hash_t rillet_hash_bytes(const void *at, Py_ssize_t size) noexcept


cdef unsigned char *address(BlockList blocks, Py_ssize_t index, Py_ssize_t offset) noexcept
cdef unsigned int u32(unsigned char *p, Py_ssize_t i) noexcept
cdef void put_u32(unsigned char *p, Py_ssize_t i, unsigned int value) noexcept
cdef unsigned long long u64(unsigned char *p, Py_ssize_t i) noexcept
cdef void put_u64(unsigned char *p, Py_ssize_t i, unsigned long long value) noexcept
cdef Py_ssize_t varint(unsigned char *p, Py_ssize_t i) noexcept
cdef Py_ssize_t varint_size(Py_ssize_t value) noexcept
cdef Py_ssize_t put_varint(unsigned char *p, Py_ssize_t i, Py_ssize_t value) noexcept
cdef Py_ssize_t item_size(unsigned char *p, bint values) noexcept
cdef Py_ssize_t bucket(BlockList table, Py_ssize_t index) noexcept
cdef Py_ssize_t table_mask(int exp) noexcept
cdef unsigned int hash_bytes(const unsigned char *at, Py_ssize_t size) noexcept


cdef class EntryOwner:
    cpdef bint entry_moves(self, object table, Py_ssize_t old, Py_ssize_t new)


cdef class GrowthGate:
    cpdef bint allows(self, Py_ssize_t more)


cdef class DictTable:
    cdef readonly bint has_values
    cdef readonly bint has_objects
    cdef readonly bint has_numbers
    cdef public bint newest
    cdef public int pauses
    cdef public EntryOwner owner
    cdef public GrowthGate gate
    cdef readonly bint added
    cdef readonly Py_ssize_t span_size
    cdef readonly Py_ssize_t rehashidx
    cdef readonly int exp0
    cdef readonly int exp1
    cdef readonly Py_ssize_t used0
    cdef readonly Py_ssize_t used1
    cdef BlockList _table0
    cdef BlockList _table1
    cdef BlockList _records
    cdef Py_ssize_t _stride
    cdef Py_ssize_t _top
    cdef Py_ssize_t _free
    cdef Py_ssize_t _free_count
    cdef list _objects
    cdef Py_ssize_t _object_slots
    cdef Py_ssize_t _object_walk
    cdef readonly Arena arena
    cdef Py_ssize_t _walk_page
    cdef Py_ssize_t _walk_offset
    cdef Py_ssize_t _next_page
    cdef list _vacated

    @cython.final
    cdef unsigned char *_record(self, Py_ssize_t n) noexcept
    @cython.final
    cdef unsigned char *_item(self, Py_ssize_t n) noexcept
    cdef Py_ssize_t find_span(self, const unsigned char *at, Py_ssize_t size) except -2
    cdef Py_ssize_t add_span(self, const unsigned char *at, Py_ssize_t size, const unsigned char *value, Py_ssize_t value_size) except -2
    @cython.final
    cdef Py_ssize_t add_hashed(self, const unsigned char *at, Py_ssize_t size, const unsigned char *value, Py_ssize_t value_size, unsigned int h) except -2
    @cython.final
    cdef Py_ssize_t find_hashed(self, const unsigned char *at, Py_ssize_t size, unsigned int h) except -2
    @cython.final
    cdef Py_ssize_t _find(self, const unsigned char *at, Py_ssize_t size, unsigned int h) except -2
    @cython.final
    cdef Py_ssize_t _find_in(self, Py_ssize_t link, const unsigned char *at, Py_ssize_t size, unsigned int h) noexcept
    @cython.final
    cdef bint _same(self, Py_ssize_t n, const unsigned char *at, Py_ssize_t size) noexcept
    cdef long long _write_item(self, const unsigned char *at, Py_ssize_t size, const unsigned char *value, Py_ssize_t value_size) except -1
    cdef bint _reserve_record(self)
    cdef Py_ssize_t _new_record(self)
    cdef bint _free_record(self, Py_ssize_t n)
    cdef bint _unlink(self, Py_ssize_t n, unsigned int h)
    cdef bint _relink(self, Py_ssize_t n, Py_ssize_t to)
    cdef bint _free_item(self, Py_ssize_t n)
    cdef bint _rehash_step(self)
    cdef bint _finish_rehash(self)
    cdef bint _discard(self)
    cdef bint _discard_entries(self)
    cdef bint _free_vacated(self, Py_ssize_t limit, list into)
    cdef bint _grow_if_needed(self)
    @cython.final
    cdef bint _live(self, Py_ssize_t n)
    cpdef bint rehash(self, Py_ssize_t steps)
    cpdef bint resize(self, Py_ssize_t size)
    cpdef bint shrink_if_needed(self)
