cimport cython
from rillet.columns.column cimport Column
from rillet.columns.text cimport Parser


@cython.final
cdef class Rows:
    cdef public list columns
    cdef public dict wanted
    cdef public list pattern
    cdef public list owners
    cdef public Py_ssize_t position
    cdef public bint changed
    cdef public bint unique
    cdef public Column keys
    cdef public Column items
    cdef public Py_ssize_t keys_mark
    cdef public Py_ssize_t keys_used
    cdef public Py_ssize_t items_used
    cdef public Column map_ends
    cdef Column owner
    cdef public bytearray key
    cdef public Py_ssize_t length
    cdef public unsigned long long ms
    cdef public unsigned long long seq
    cdef public Py_ssize_t nbytes
    cdef public Parser parser
    cpdef bint begin(self, unsigned long long ms, unsigned long long seq)
    cpdef bint name(self, bytearray buf, Py_ssize_t start, Py_ssize_t n)
    cpdef bint text(self, bytearray buf, Py_ssize_t start, Py_ssize_t n)
    cpdef bint number(self, long long value)
    cdef Column _owner(self, bytearray buf, Py_ssize_t start, Py_ssize_t n)
    cdef Column _learn(self, Py_ssize_t i, bytes name)
    cpdef bint finish(self, bytearray buf)
    cdef bint _finish_map(self)
    cdef bint _drop_doubles(self)
