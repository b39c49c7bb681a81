cimport cython
from rillet.structs.dict cimport Dict
from rillet.structs.skiplist cimport Skiplist

@cython.final
cdef class DueTimes:
    cdef readonly Dict table
    cdef readonly Skiplist order
    cdef readonly dict far
    cpdef Py_ssize_t count(self) noexcept
    cpdef long long get(self, bytes name) except -1
    cdef long long get_span(self, const unsigned char *at, Py_ssize_t size) except -1
    cdef bint set_span(self, const unsigned char *at, Py_ssize_t size, long long when)
    cdef bint remove_span(self, const unsigned char *at, Py_ssize_t size)
    cdef long long _time(self, Py_ssize_t n) except -1
    cpdef bint set(self, bytes name, long long when)
    cpdef bint remove(self, bytes name)
    cpdef long long earliest(self) except -1
    cpdef Py_ssize_t count_before(self, long long when)
    cpdef list[bytes] due(self, long long when, Py_ssize_t limit)
    cpdef Py_ssize_t memory_bytes(self)
