cimport cython
from rillet.columns.column cimport start_of
from rillet.columns.value_formatting cimport ValueFormatter
from rillet.protocol.reply_writer cimport put_header


cdef Py_ssize_t int32_at(bytes buf, Py_ssize_t i) except -1


@cython.final
cdef class StringArrays:
    cdef bytes head
    cdef bytes valid
    cdef bytes offsets
    cdef bytes data
    cdef Py_ssize_t base
    cdef Py_ssize_t first
    cdef Py_ssize_t start
    cdef Py_ssize_t size
    cdef int kind
    cdef Py_ssize_t width
    cdef bint zoned
    cdef ValueFormatter writer
    cdef bint find(self, Py_ssize_t row)
    cdef bint _write(self, Py_ssize_t i)


cdef class Packer:
    cdef bytearray buf
    cdef readonly Py_ssize_t used
    cdef readonly Py_ssize_t commands
    cdef readonly Py_ssize_t lines
    cdef bytes ends
    cdef StringArrays names
    cdef StringArrays values
    cdef Py_ssize_t base
    cdef Py_ssize_t _first
    cdef Py_ssize_t _last
    cpdef bytearray take_bytes(self)
    @cython.final
    cdef Py_ssize_t _count_pairs(self, Py_ssize_t row)
    @cython.final
    cdef bint _pairs(self)
    @cython.final
    cdef bint _text(self, StringArrays column) except -1
    @cython.final
    cdef bint _written(self, StringArrays column) except -1
    @cython.final
    cdef bint _number(self, unsigned char kind, Py_ssize_t value) noexcept
    @cython.final
    cdef bint _reserve(self, Py_ssize_t n)
    @cython.final
    cdef bint _bytes(self, bytes data, Py_ssize_t start, Py_ssize_t n) except -1


@cython.final
cdef class RowPacker(Packer):
    cdef bytes head
    cdef bytes tail
    cdef bytes after
    cdef bytes verb
    cdef Py_ssize_t words
    cdef list columns
    cdef StringArrays ids
    cdef StringArrays keys
    cpdef Py_ssize_t pack(self, Py_ssize_t row, Py_ssize_t stop, Py_ssize_t limit)
    cdef bint _start(self, Py_ssize_t row, Py_ssize_t pairs, Py_ssize_t room)
    cdef bint _row(self, Py_ssize_t row)
    cdef bint _map_row(self, Py_ssize_t row)
