cimport cython

cdef class ReadBuffer:
    cdef bytes data
    cdef Py_ssize_t pos
    cdef Py_ssize_t size
    cdef bytearray tail
    cdef Py_ssize_t wanted
    cdef int terminator
    cdef public bint strict  # beside the one before: two of these share a word
    cdef Py_ssize_t scanned
    cdef Py_ssize_t max_line
    cdef object broken

    cpdef bint feed(self, bytes data)
    cdef bint refill(self)
    cdef bint enough(self, Py_ssize_t total)
    cdef Py_ssize_t line_end(self, int terminator)
    cdef bint forget(self, str text)
    cdef bint refuse(self, str text)
