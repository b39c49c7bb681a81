cimport cython
from rillet.columns.column cimport Column, put_int32
from rillet.columns.value_parsing cimport ValueParser


@cython.final
cdef class Slot:
    cdef readonly bytes name
    cdef readonly Column owner
    cdef readonly bytes literal
    cdef readonly Py_ssize_t size
    cdef public Slot next


@cython.final
cdef class Shape:
    cdef readonly Slot first
    cdef readonly Py_ssize_t count
    cdef readonly bint unique
    cdef readonly bytes texts
    cdef readonly bytearray ends


@cython.final
cdef class RowBuilder:
    cdef public list columns
    cdef public Column first
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
    cdef public bytes key
    cdef public Py_ssize_t length
    cdef public unsigned long long ms
    cdef public unsigned long long seq
    cdef public Py_ssize_t nbytes
    cdef public ValueParser parser
    cdef public dict shapes
    cdef Shape shape
    cdef Py_ssize_t id_start
    cdef Py_ssize_t id_size
    cdef readonly int mode
    cdef readonly Column corrupt
    cdef public bint discovers
    cdef public str noun
    cdef public bytes before
    cpdef bint begin(self, unsigned long long ms, unsigned long long seq)
    cdef bint _forget(self)
    cpdef bint name(self, bytearray buf, Py_ssize_t start, Py_ssize_t n)
    cpdef bint text(self, bytearray buf, Py_ssize_t start, Py_ssize_t n)
    cpdef bint number(self, long long value)
    cdef Column _owner(self, bytearray buf, Py_ssize_t start, Py_ssize_t n)
    cdef Column _learn(self, Py_ssize_t i, bytes name)
    cpdef bint begin_as(self, Shape shape, unsigned long long ms, unsigned long long seq)
    cpdef bint finish(self, bytearray buf)
    cdef bint finish_in(self, const unsigned char *data, Py_ssize_t limit)
    cdef bint _put_own(self, Column column, const unsigned char *data, Py_ssize_t limit)
    cdef bint _mark(self)
    cdef bint _finish_map(self)
    cdef bint _drop_duplicates(self)
    cdef bint _finish_bad(self, const unsigned char *data)
    cdef bint _fail(self, const unsigned char *data)
