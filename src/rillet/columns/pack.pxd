cimport cython


@cython.final
cdef class Texts:
    cdef bytes head
    cdef bytes valid
    cdef bytes offsets
    cdef bytes data
    cdef Py_ssize_t base
    cdef Py_ssize_t start
    cdef Py_ssize_t size
    cdef bint find(self, Py_ssize_t row)


@cython.final
cdef class Packer:
    cdef bytearray buf
    cdef readonly Py_ssize_t used
    cdef readonly Py_ssize_t commands
    cdef bytes head
    cdef bytes tail
    cdef Py_ssize_t words
    cdef list columns
    cdef Texts ids
    cdef Texts keys
    cdef bytes ends
    cdef Texts names
    cdef Texts values
    cdef Py_ssize_t base
    cpdef Py_ssize_t pack(self, Py_ssize_t row, Py_ssize_t stop, Py_ssize_t limit)
    cpdef bytearray take(self)
    cdef bint _start(self, Py_ssize_t row, Py_ssize_t pairs)
    cdef bint _keyed_head(self, Py_ssize_t row) except -1
    cdef bint _row(self, Py_ssize_t row)
    cdef bint _map_row(self, Py_ssize_t row)
    cdef bint _text(self, Texts column)
    cdef bint _number(self, int kind, Py_ssize_t value)
    cdef bint _reserve(self, Py_ssize_t n)
    cdef bint _bytes(self, bytes data, Py_ssize_t start, Py_ssize_t n)
