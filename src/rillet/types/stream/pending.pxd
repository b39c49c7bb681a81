cimport cython
from libc.string cimport memcpy
from rillet.structs.memory cimport copy_slice


@cython.final
@cython.no_gc
cdef class PendingPage:
    cdef readonly bytearray buf
    cdef readonly Py_ssize_t count
    cdef bint insert(self, Py_ssize_t pos, Py_ssize_t slot)
    cdef bint remove(self, Py_ssize_t pos)
    cdef bint move_from(self, PendingPage other, Py_ssize_t start)


@cython.final
cdef class PendingTable:
    cdef readonly bytearray buf
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t slots
    cdef readonly Py_ssize_t free
    cdef readonly list owners
    cdef readonly list spare_owners
    cdef readonly PendingIndex refs
    cpdef unsigned long long ms(self, Py_ssize_t slot) except? -1
    cpdef unsigned long long seq(self, Py_ssize_t slot) except? -1
    cpdef long long delivery_time(self, Py_ssize_t slot) except? -1
    cpdef unsigned long long delivery_count(self, Py_ssize_t slot) except? -1
    cpdef bint set_count(self, Py_ssize_t slot, unsigned long long count)
    cpdef bint set_time(self, Py_ssize_t slot, long long time)
    cpdef object owner(self, Py_ssize_t slot)
    cpdef Py_ssize_t owner_number(self, Py_ssize_t slot)
    cpdef bint set_owner(self, Py_ssize_t slot, Py_ssize_t number)
    cpdef Py_ssize_t compare(self, Py_ssize_t slot, unsigned long long ms, unsigned long long seq)
    cpdef Py_ssize_t next_by_time(self, Py_ssize_t slot) except -2
    cpdef Py_ssize_t earlier(self, Py_ssize_t slot)
    cpdef Py_ssize_t later(self, Py_ssize_t slot)
    cpdef bint set_earlier(self, Py_ssize_t slot, Py_ssize_t other)
    cpdef bint set_later(self, Py_ssize_t slot, Py_ssize_t other)
    cpdef Py_ssize_t add_owner(self, object owner)
    cpdef bint remove_owner(self, Py_ssize_t number)
    cpdef Py_ssize_t new(self, unsigned long long ms, unsigned long long seq, long long time,
                         unsigned long long count, Py_ssize_t owner)
    cpdef bint release(self, Py_ssize_t slot)
    cdef bint _refer(self, Py_ssize_t slot, unsigned long long ms, unsigned long long seq)
    cdef bint _unrefer(self, Py_ssize_t slot)
    cpdef Py_ssize_t first_reference(self, unsigned long long ms, unsigned long long seq) except -2
    cpdef bint wants_packing(self)
    cpdef bytearray pack(self, list indexes)


@cython.final
@cython.no_gc
cdef class PendingIndex:
    cdef readonly list pages
    cdef readonly bytearray bounds
    cdef readonly Py_ssize_t count
    cdef readonly long long version
    cdef readonly Py_ssize_t found
    cdef readonly Py_ssize_t at_page
    cdef readonly Py_ssize_t at_pos
    cdef bint locate(self, PendingTable table, unsigned long long ms, unsigned long long seq)
    cpdef Py_ssize_t find(self, PendingTable table, unsigned long long ms, unsigned long long seq) except -2
    cpdef Py_ssize_t edge(self, bint first) except -2
    cpdef bint insert(self, PendingTable table, Py_ssize_t slot, unsigned long long ms,
                      unsigned long long seq)
    cdef bint _add_page(self, PendingTable table, Py_ssize_t slot, unsigned long long ms, unsigned long long seq)
    cdef bint _bound(self, PendingTable table)
    cdef PendingPage _split(self, PendingTable table, PendingPage page)
    cpdef bint remove(self, PendingTable table, Py_ssize_t slot)
    cpdef bint replace(self, PendingTable table, Py_ssize_t slot, Py_ssize_t other)
    cdef bint _drop_page(self)
    cdef bint _merge(self)
    cpdef bint clear(self)
    cpdef bint renumber(self, bytearray new)
    cdef Py_ssize_t _guess(self, Py_ssize_t count, unsigned long long ms)


@cython.final
cdef class PendingIterator:
    cdef PendingTable _table
    cdef PendingIndex _index
    cdef Py_ssize_t _page
    cdef Py_ssize_t _pos
    cdef long long _version
    cdef bint _inclusive
    cdef readonly Py_ssize_t slot
    cdef readonly unsigned long long ms
    cdef readonly unsigned long long seq
    cpdef bint seek(self, unsigned long long ms, unsigned long long seq)
    cpdef bint next(self)
