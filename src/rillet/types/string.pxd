cimport cython
from rillet.structs.listpack cimport is_int64, parse_int64

@cython.final
cdef class String:
    cdef readonly bytes data
    cdef bytearray grown
    cdef readonly int form
    cdef public unsigned int charge
    cpdef bytes value(self)
    cpdef object bytes_like(self)
    cpdef Py_ssize_t length(self)
    cdef const unsigned char *span(self) noexcept
    cpdef bytearray reserve(self, Py_ssize_t size)
    cpdef Py_ssize_t append(self, bytes tail)
    cpdef Py_ssize_t set_range(self, Py_ssize_t offset, bytes part)
    cpdef bytes get_range(self, Py_ssize_t start, Py_ssize_t stop)
    cdef bint _grow(self, Py_ssize_t size)

cpdef String new_string(bytes data, int form=*)
cpdef object string2ll(bytes text)
