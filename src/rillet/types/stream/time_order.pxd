cimport cython
from rillet.types.stream.pending cimport PendingTable


@cython.final
@cython.no_gc
cdef class TimeOrder:
    cdef public Py_ssize_t head
    cdef public Py_ssize_t tail
    cdef public Py_ssize_t zone
    cdef public Py_ssize_t released
    cpdef bint clear(self) except -1
    cdef bint _insert_after(self, PendingTable table, Py_ssize_t after, Py_ssize_t slot) except -1
    cpdef bint append(self, PendingTable table, Py_ssize_t slot) except -1
    cpdef bint insert(self, PendingTable table, Py_ssize_t slot) except -1
    cpdef bint release(self, PendingTable table, Py_ssize_t slot) except -1
    cpdef bint remove(self, PendingTable table, Py_ssize_t slot, bint released) except -1
    cpdef bint contains(self, PendingTable table, Py_ssize_t slot) except -1
