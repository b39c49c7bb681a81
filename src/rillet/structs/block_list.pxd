cimport cython

@cython.final
cdef class BlockList:
    cdef readonly list blocks
    cdef readonly Py_ssize_t size
    cdef unsigned char **at
    cdef bytearray _addresses
    cpdef Py_ssize_t append(self, Py_ssize_t size) except -1
    cpdef bint put(self, Py_ssize_t index, Py_ssize_t size) except -1
    cpdef bint enlarge(self, Py_ssize_t index, Py_ssize_t size) except -1
    cpdef bint drop(self, Py_ssize_t index) except -1
    cpdef bint pop(self) except -1
    cpdef Py_ssize_t memory_bytes(self) except -1
    cdef bint _make_room(self, Py_ssize_t count) except -1
