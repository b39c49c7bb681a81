cimport cython
from libc.string cimport memcmp, memcpy

from rillet.structs.block_list cimport BlockList
from rillet.structs.dict_table cimport DictTable, address, bucket, hash_bytes, item_size, put_u32, put_u64, put_varint, table_mask, u32, u64, varint, varint_size

cdef extern from *:
    """
    #define rillet_prefetch_item(chunk, index) rillet_prefetch(PyList_GET_ITEM((chunk), (index)))
    #if defined(__GNUC__)
    #define rillet_prefetch(at) __builtin_prefetch(at)
    #else
    #define rillet_prefetch(at) ((void)(at))
    #endif
    """
    void rillet_prefetch(const void *at) noexcept
    void rillet_prefetch_item(list chunk, Py_ssize_t index) noexcept


@cython.final
cdef class Dict(DictTable):
    cdef bint delete_span(self, const unsigned char *at, Py_ssize_t size)
    cdef bint set_value_span(self, Py_ssize_t n, const unsigned char *value, Py_ssize_t value_size)
    cdef bint _remove(self, Py_ssize_t n)
    cdef bint _set_object(self, Py_ssize_t n, object value)
    cdef object _object(self, Py_ssize_t n)
    cdef bint _tidy(self, bint shrink)
    cdef bint _tidy_items(self)
    cdef Py_ssize_t _find_place(self, const unsigned char *at, Py_ssize_t size, long long place) except -2
    cdef bint _set_place(self, Py_ssize_t n, unsigned long long place) except -1
    cdef bint _live_number(self, Py_ssize_t n)
    cdef bint _pull_last(self)
    cdef bint _compact(self, Py_ssize_t steps, Py_ssize_t percent)
    cdef bint _move_item(self, Py_ssize_t page, Py_ssize_t offset, Py_ssize_t size)
    cdef bint _collect(self, BlockList table, Py_ssize_t index, list into)
    cpdef Py_ssize_t find(self, bytes key) except -2
    cpdef Py_ssize_t add_or_find(self, bytes key) except -2
    cpdef object get(self, bytes key)
    cpdef bint set(self, bytes key, object value)
    cpdef Py_ssize_t add_value(self, bytes key, bytes rest) except -2
    cpdef object object_at(self, Py_ssize_t n)
    cpdef bint wake_entry(self, Py_ssize_t n, object value)
    cpdef bint rest_entry(self, Py_ssize_t n, bytes rest)
    cdef const unsigned char *key_span(self, Py_ssize_t n) noexcept
    cdef const unsigned char *value_span(self, Py_ssize_t n) noexcept
    cpdef bint add(self, bytes key)
    cpdef Py_ssize_t value_size(self, Py_ssize_t n) except -2
    cpdef int value_byte(self, Py_ssize_t n)
    cpdef list next_objects(self, Py_ssize_t slots)
    cpdef bint delete(self, bytes key)
    cpdef object unlink(self, bytes key)
    cdef bint prefetch_same(self, Dict other, list numbers)
    cdef bint _prefetch_object(self, Py_ssize_t n)
    cdef Py_ssize_t find_same(self, Dict other, Py_ssize_t n) except -2
    cdef object take_same(self, Dict other, Py_ssize_t n)
    cpdef bint tidy(self, Py_ssize_t times)
    cpdef bint delete_entry(self, Py_ssize_t n)
    cpdef bytes entry_key(self, Py_ssize_t n)
    cpdef list entries_between(self, Py_ssize_t first, Py_ssize_t last)
    cpdef list keys_between(self, Py_ssize_t first, Py_ssize_t last)
    cpdef object entry_value(self, Py_ssize_t n)
    cpdef bint set_entry_value(self, Py_ssize_t n, object value)
    cpdef long long number(self, Py_ssize_t n) except? -1
    cpdef bint set_number(self, Py_ssize_t n, long long value)
    cpdef double score(self, Py_ssize_t n) except? -1
    cpdef bint set_score(self, Py_ssize_t n, double value)
    cdef bint put_lru(self, Py_ssize_t n, long value)
    cpdef long lru(self, Py_ssize_t n) except -1
    cpdef bint set_lru(self, Py_ssize_t n, long value)
    cpdef Py_ssize_t random_entry(self) except -2
    cpdef Py_ssize_t uniform_entry(self) except -2
    cpdef Py_ssize_t fair_random_entry(self) except -2
    cpdef list sample(self, Py_ssize_t count)
    cpdef unsigned long long scan_step(self, unsigned long long cursor, list into) except? 0
    cpdef bint reclaim(self, Py_ssize_t limit)
    cpdef bint defrag_step(self, Py_ssize_t limit)
    cpdef bint free_some(self, Py_ssize_t limit, list into=*)
    cpdef Py_ssize_t memory_bytes(self)
