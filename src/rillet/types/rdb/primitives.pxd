cimport cython
from rillet.structs.crc64 cimport crc64_of
from rillet.structs.lzf cimport pack, refuse_block, unpack


cdef class RdbWriter:
    cdef readonly bytearray out
    cdef public bint compression
    cdef public object sink
    cdef bytearray _room(self, Py_ssize_t n)
    cdef bint _cut(self, Py_ssize_t size)
    cdef bint _plain(self, const unsigned char *data, Py_ssize_t size)
    cdef bint _integer(self, const unsigned char *data, Py_ssize_t size)
    cdef bint string_span(self, const unsigned char *data, Py_ssize_t size)
    cpdef bint number(self, double value)
    cpdef bint spill(self)
    cpdef bint flush(self)
    cpdef bint raw(self, object data)
    cpdef bint byte(self, int n)
    cpdef bint length(self, unsigned long long n)
    cpdef bint string(self, bytes data)
    cpdef bint buffer(self, bytearray data, Py_ssize_t size)
    cpdef bint milliseconds(self, long long ms)
    cpdef bint raw_id(self, unsigned long long ms, unsigned long long seq)


@cython.final
cdef class RdbReader:
    cdef const unsigned char *p
    cdef object window
    cdef Py_ssize_t at
    cdef Py_ssize_t limit
    cdef long long base
    cdef public long long mark
    cdef readonly unsigned long long ms
    cdef readonly unsigned long long seq
    cdef readonly bint special
    cdef object source
    cdef unsigned long long checksum
    cdef Py_ssize_t _summed
    cdef bint _sums
    cdef bint _keeps
    cdef bytearray _kept
    cdef Py_ssize_t _kept_from
    cdef Py_ssize_t end_of_peek
    cdef public object helper
    cdef public list corrected
    cdef Py_ssize_t peek_length(self, Py_ssize_t pos) except -2
    cdef bint need(self, Py_ssize_t n) except -1
    cdef bint _refill(self, Py_ssize_t n)
    cdef bint _move(self, bytearray window, Py_ssize_t left)
    cdef bint _settle(self)
    cpdef unsigned long long checksum_so_far(self) except? 0
    cpdef bytes raw(self, Py_ssize_t n)
    cdef bytes _take(self, Py_ssize_t n)
    cpdef int byte(self)
    cpdef unsigned long long length(self) except? 7777777777777777777
    cdef unsigned long long _length_or_special(self) except? 7777777777777777777
    cdef Py_ssize_t _size(self)
    cdef Py_ssize_t _block(self, long long mark)
    cdef bytes _text(self, unsigned long long form)
    cpdef bytes string(self)
    cpdef Py_ssize_t skip_string(self) except -1
    cpdef Py_ssize_t skip(self, Py_ssize_t n) except -1
    cpdef unsigned long long count(self) except? 7777777777777777777
    cpdef bint seek(self, Py_ssize_t position)
    cpdef bytearray buffer(self)
    cpdef long long milliseconds(self) except? -1
    cpdef bint raw_id(self)
