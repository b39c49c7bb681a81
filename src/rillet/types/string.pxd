cimport cython

@cython.final
cdef class String:
    cdef readonly bytes data
    cdef bytearray grown
    cdef int form
    cpdef bytes value(self)
    cpdef Py_ssize_t length(self) except -1
    cpdef Py_ssize_t append(self, bytes tail) except -1
    cpdef Py_ssize_t set_range(self, Py_ssize_t offset, bytes part) except -1
    cpdef bytes get_range(self, Py_ssize_t start, Py_ssize_t stop)
    cdef bint _grow(self, Py_ssize_t size) except -1

cpdef String new_string(bytes data, int form=*)
cpdef object string2ll(bytes text)
