cimport cython
from rillet.columns.row_builder cimport RowBuilder, Shape, Slot
from rillet.columns.receive_buffer cimport ReceiveBuffer
from rillet.columns.value_parsing cimport eight_digits


@cython.final
cdef class RangeDecoder(ReceiveBuffer):
    cdef public RowBuilder rows
    cdef Py_ssize_t after
    cdef public Py_ssize_t left
    cdef public Py_ssize_t entries
    cdef public unsigned long long last_ms
    cdef public unsigned long long last_seq
    cdef public Py_ssize_t max_rows
    cdef public Py_ssize_t max_bytes
    cdef unsigned long long ms
    cdef unsigned long long seq
    cdef public Py_ssize_t missing
    cdef list recent
    cdef Py_ssize_t fields
    cdef unsigned long long begin_ms
    cdef unsigned long long begin_seq
    cdef Py_ssize_t most
    cdef readonly Py_ssize_t extra
    cdef readonly bint met
    cdef readonly Py_ssize_t skipped
    cpdef bint expect(self, unsigned long long ms, unsigned long long seq, Py_ssize_t most)
    cpdef bint skip(self)
    cpdef int decode(self)
    cdef bint _begin(self)
    cdef Py_ssize_t _head(self, Py_ssize_t p) except? -1
    cdef bint _pass(self, Py_ssize_t p)
    cdef bint _entry(self, Py_ssize_t p)
    cdef bint _shaped_entry(self, Py_ssize_t p)
    cdef Py_ssize_t _shaped_head(self, Py_ssize_t p) noexcept
    cdef bint _shaped_fields(self, Shape shape, Py_ssize_t p)
    cdef bint _learn(self)
    cdef Py_ssize_t _fields_header(self, Py_ssize_t p) except? -1
    cdef Py_ssize_t _text(self, Py_ssize_t p) except? -1
    cdef Py_ssize_t _header(self, Py_ssize_t p, int kind) except? -1
    cdef Py_ssize_t _short_header(self, Py_ssize_t p, int kind)
    cdef Py_ssize_t _long_header(self, Py_ssize_t p)
    cdef Py_ssize_t _odd_header(self, Py_ssize_t p)
    cdef bint _id(self, Py_ssize_t p, Py_ssize_t n)
