cimport cython
from rillet.columns.column cimport start_of
from rillet.columns.row_packing cimport Packer, StringArrays
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
cdef class CommandPacker(Packer):
    cdef public list forms
    cdef list columns
    cpdef Py_ssize_t pack(self, Py_ssize_t row, Py_ssize_t stop, Py_ssize_t limit)
    cdef bint _command(self, CommandForm form, Py_ssize_t row)
