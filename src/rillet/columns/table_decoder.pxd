cimport cython
from rillet.columns.column cimport Column
from rillet.columns.receive_buffer cimport ReceiveBuffer
from rillet.columns.row_builder cimport RowBuilder


@cython.final
cdef class ReplyPart:
    cdef public int kind
    cdef public list columns
    cdef public bint required
    cdef public bint lenient
    cdef public bint positive


@cython.final
cdef class TableDecoder(ReceiveBuffer):
    cdef public RowBuilder rows
    cdef public list parts
    cdef public list keys
    cdef readonly Py_ssize_t at
    cdef public Py_ssize_t prefix
    cdef public bint keeps
    cdef Py_ssize_t first
    cdef public list absent
    cdef public list failed
    cdef public Py_ssize_t max_rows
    cdef public Py_ssize_t max_bytes
    cdef readonly Py_ssize_t left
    cdef Py_ssize_t begun
    cdef Py_ssize_t after
    cdef long long number
    cdef Py_ssize_t start
    cdef Py_ssize_t size
    cdef Py_ssize_t text_start
    cdef Py_ssize_t text_size
    cdef bint present
    cdef long long index
    cdef Py_ssize_t index_start
    cdef Py_ssize_t index_size
    cpdef int decode(self)
    cdef bint _row(self)
    cdef bint _part(self, ReplyPart part, Py_ssize_t p)
    cdef bint _scalar(self, ReplyPart part, int kind)
    cdef bint _fields(self, ReplyPart part, long long n)
    cdef bint _elements(self, ReplyPart part)
    cdef bint _bits(self, ReplyPart part)
    cdef bint _index(self, Py_ssize_t p)
    cdef bint _text(self, Py_ssize_t p)
    cdef bint _rest(self)
    cdef int _line(self, Py_ssize_t p)
