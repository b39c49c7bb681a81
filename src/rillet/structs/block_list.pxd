cimport cython

@cython.final
cdef class BlockList:
    cdef readonly list blocks
    cdef readonly Py_ssize_t size
    cdef unsigned char **at
    cdef bytearray _addresses
    cpdef Py_ssize_t append(self, Py_ssize_t size)
    cpdef bint put(self, Py_ssize_t index, Py_ssize_t size)
    cpdef bint enlarge(self, Py_ssize_t index, Py_ssize_t size)
    cpdef bint drop(self, Py_ssize_t index)
    cpdef bint pop(self)
    cpdef Py_ssize_t memory_bytes(self)
    cdef bint _make_room(self, Py_ssize_t count)
