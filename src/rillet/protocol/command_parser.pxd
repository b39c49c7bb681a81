cimport cython
from rillet.protocol.read_buffer cimport ReadBuffer
from rillet.structs.argument_spans cimport ArgumentSpans

cdef Py_ssize_t plain_line(const unsigned char *buf, Py_ssize_t pos, Py_ssize_t size) noexcept

@cython.final
cdef class CommandParser(ReadBuffer):
    cdef object argv
    cdef readonly Py_ssize_t held
    cdef Py_ssize_t argc
    cdef Py_ssize_t missing
    cdef Py_ssize_t bulk_len
    cdef public Py_ssize_t proto_max_bulk_len
    cdef public Py_ssize_t max_multibulk_len
    cdef public Py_ssize_t query_buffer_limit
    cdef public bint exact  # beside the next one: two of these share a word
    cdef public bint authenticated
    cdef Py_ssize_t scan_stop
    cdef readonly Py_ssize_t after
    cdef Py_ssize_t began
    cpdef object next(self)
    cdef Py_ssize_t scan(self, ArgumentSpans words)
    cdef bint step(self)
    cdef bint pass_notes(self)
    cdef object _parse(self)
    cdef Py_ssize_t _line_end(self, int terminator)
    cdef Py_ssize_t _read_count(self)
    cdef Py_ssize_t _read_length(self)
    cdef bint _see_line_feed(self, Py_ssize_t end)
    cdef object _parse_inline(self)
    cdef bint _refuse(self, str reason)
