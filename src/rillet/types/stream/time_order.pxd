cimport cython
from rillet.types.stream.pending cimport PendingTable


@cython.final
@cython.no_gc
cdef class TimeOrder:
    cdef public Py_ssize_t head
    cdef public Py_ssize_t tail
    cdef public Py_ssize_t zone
    cdef public Py_ssize_t released
    cpdef bint clear(self)
    cdef bint _insert_after(self, PendingTable table, Py_ssize_t after, Py_ssize_t slot)
    cpdef bint append(self, PendingTable table, Py_ssize_t slot)
    cpdef bint insert(self, PendingTable table, Py_ssize_t slot)
    cpdef bint release(self, PendingTable table, Py_ssize_t slot)
    cpdef bint remove(self, PendingTable table, Py_ssize_t slot, bint released)
    cpdef bint contains(self, PendingTable table, Py_ssize_t slot)
