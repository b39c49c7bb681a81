cimport cython
from libc.string cimport memcmp, memcpy, memmove

from rillet.structs.block_list cimport BlockList
from rillet.structs.dict cimport Dict
from rillet.structs.dict_table cimport EntryOwner, address, put_u32, u32, varint, varint_size


@cython.final
cdef class Skiplist(EntryOwner):
    cdef readonly BlockList blocks
    cdef readonly Py_ssize_t nodes
    cdef readonly Py_ssize_t length
    cdef readonly Py_ssize_t level
    cdef readonly Py_ssize_t tail
    cdef readonly Py_ssize_t hops
    cdef readonly Py_ssize_t at_node
    cdef readonly Py_ssize_t at_index
    cdef Py_ssize_t _levels
    cdef Py_ssize_t _before[12]
    cdef Py_ssize_t _ranks[12]
    cdef unsigned char *_node(self, Py_ssize_t x) noexcept
    cdef Py_ssize_t count_of(self, Py_ssize_t x) noexcept
    cdef Py_ssize_t entry_of(self, Py_ssize_t x, Py_ssize_t i) noexcept
    cdef double score_of(self, Py_ssize_t x, Py_ssize_t i) noexcept
    cdef Py_ssize_t next_of(self, Py_ssize_t x) noexcept
    cdef Py_ssize_t before(self, Py_ssize_t x) noexcept
    cdef bint _reserve_node(self)
    cdef Py_ssize_t _descend(self, int kind, double score, Dict table, const unsigned char *at, Py_ssize_t size)
    cdef Py_ssize_t _place(self, Py_ssize_t x, int kind, double score, Dict table, const unsigned char *at, Py_ssize_t size)
    cdef Py_ssize_t _find(self, Dict table, Py_ssize_t n, double score)
    cpdef Py_ssize_t rank(self, Dict table, Py_ssize_t n)
    cpdef Py_ssize_t below(self, Dict table, double score, bint inclusive)
    cpdef Py_ssize_t below_member(self, Dict table, bytes member, bint inclusive)
    cdef Py_ssize_t _below(self, int kind, double score, Dict table, const unsigned char *at, Py_ssize_t size)
    cpdef Py_ssize_t at(self, Py_ssize_t rank)
    cpdef list pairs(self, Dict table, Py_ssize_t start, Py_ssize_t count, bint backwards)
    cpdef bint add(self, Dict table, bytes member, double score)
    cdef int put_span(self, Dict table, const unsigned char *at, Py_ssize_t size, double score)
    cpdef bint discard(self, Dict table, bytes member)
    cpdef bint insert(self, Dict table, Py_ssize_t n, double score)
    cdef bint _lengthen(self, Py_ssize_t by)
    cdef bint _split(self, Py_ssize_t x, Py_ssize_t keep)
    cpdef bint remove(self, Dict table, Py_ssize_t n)
    cdef bint _cut(self, Dict table, Py_ssize_t x, Py_ssize_t i, Py_ssize_t count)
    cdef bint _search_before(self, Dict table, Py_ssize_t x)
    cdef bint _unlink(self, Dict table, Py_ssize_t x)
    cdef bint _close_gap(self, Dict table, Py_ssize_t x)
    cpdef bint move(self, Dict table, Py_ssize_t n, double score)
    cpdef bint delete_range(self, Dict table, Py_ssize_t start, Py_ssize_t count)
    cpdef bint free_some(self, Py_ssize_t limit)
    cpdef Py_ssize_t memory_bytes(self)
