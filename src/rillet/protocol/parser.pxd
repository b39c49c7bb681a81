cimport cython

@cython.final
cdef class CommandParser:
    cdef bytes data
    cdef Py_ssize_t pos
    cdef Py_ssize_t size
    cdef bytearray tail
    cdef Py_ssize_t wanted
    cdef int terminator
    cdef Py_ssize_t scanned
    cdef object argv
    cdef Py_ssize_t argc
    cdef Py_ssize_t missing
    cdef Py_ssize_t bulk_len
    cdef object broken
    cdef public bint authenticated
    cdef public Py_ssize_t proto_max_bulk_len
    cdef public Py_ssize_t max_multibulk_len
    cdef public Py_ssize_t max_inline_len
    cdef public Py_ssize_t query_buffer_limit

    cpdef bint feed(self, bytes data)
    cpdef object next(self)
    cdef bint _refill(self)
    cdef bint _enough(self, Py_ssize_t total)
    cdef object _parse(self)
    cdef Py_ssize_t _find(self, int terminator)
    cdef Py_ssize_t _read_count(self)
    cdef Py_ssize_t _read_length(self)
    cdef object _parse_inline(self)
    cdef bint _drop(self, str text)
    cdef bint _refuse(self, str reason)
