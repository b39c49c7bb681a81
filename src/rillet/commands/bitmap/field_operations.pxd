cimport cython
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.bits cimport read_field, write_field
from rillet.structs.listpack cimport parse_digits
from rillet.types.string cimport string2ll

@cython.final
cdef class FieldOperations:
    cdef ArgumentSpans _words
    cdef Py_ssize_t _limit
    cdef Py_ssize_t _at
    cdef Py_ssize_t count
    cdef Py_ssize_t end
    cdef int kind
    cdef bint signed
    cdef int width
    cdef Py_ssize_t offset
    cdef long long value
    cdef int overflow
    cdef int check(self, ArgumentSpans words, Py_ssize_t limit)
    cdef bint read(self, const unsigned char *at, Py_ssize_t size, ReplyWriter out)
    cdef Py_ssize_t write(self, bytearray buf, bint grown, ReplyWriter out)
    cdef bint _begin(self) noexcept
    cdef int _next(self)
    cdef bint _parse_type(self, Py_ssize_t at)
    cdef bint _parse_offset(self, Py_ssize_t at)
    cdef unsigned long long _mask(self) noexcept
    cdef long long _signed(self, unsigned long long bits) noexcept
    cdef bint _fits(self, long long base) noexcept
