cimport cython
from rillet.columns.column cimport start_of
from rillet.columns.row_packing cimport StringArrays, int32_at
from rillet.protocol.reply_writer cimport put_header


@cython.final
cdef class CommandForm:
    cdef public list literals
    cdef public list places
    cdef public Py_ssize_t words
    cdef public list pairs
    cdef public list nulls
    cdef public bint of_map
    cdef public Py_ssize_t only_null
    cdef public bint bulk


@cython.final
cdef class CommandPacker:
    cdef bytearray buf
    cdef readonly Py_ssize_t used
    cdef readonly Py_ssize_t commands
    cdef readonly Py_ssize_t lines
    cdef public list forms
    cdef list columns
    cdef bytes ends
    cdef Py_ssize_t base
    cdef StringArrays names
    cdef StringArrays values
    cpdef Py_ssize_t pack(self, Py_ssize_t row, Py_ssize_t stop, Py_ssize_t limit) except -1
    cpdef bytearray take(self)
    cdef bint _command(self, CommandForm form, Py_ssize_t row) except -1
    cdef bint _text(self, StringArrays column) except -1
    cdef bint _reserve(self, Py_ssize_t n) except -1
    cdef bint _bytes(self, bytes data, Py_ssize_t start, Py_ssize_t n) except -1
