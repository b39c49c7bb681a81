cimport cython
from rillet.columns.value_parsing cimport ValueParser, check
from rillet.protocol.reply_writer cimport put_digits


cdef unsigned char *start_of(bytearray buf) noexcept
cdef bint put_int32(bytearray dst, Py_ssize_t i, Py_ssize_t value) except -1


@cython.final
cdef class Column:
    cdef public bytes name
    cdef public int source
    cdef public int kind
    cdef public Py_ssize_t width
    cdef public Py_ssize_t length
    cdef public Py_ssize_t nulls
    cdef public bytearray data
    cdef public Py_ssize_t used
    cdef public bytearray offsets
    cdef public bytearray valid
    cdef public Py_ssize_t start
    cdef public Py_ssize_t size
    cdef public long long number
    cdef public ValueParser parser
    cdef public Column next
    cdef public str label
    cdef public int precision
    cdef public int scale
    cdef public object bound
    cdef public object read
    cdef public list objects
    cdef public bint strict
    cdef public Py_ssize_t bad
    cdef unsigned long long upper
    cdef bytearray upper_text
    cdef Py_ssize_t upper_size
    cdef bint _room(self, Py_ssize_t n) except -1
    cdef bint _grow(self, Py_ssize_t n)
    cdef bint _ended(self) except -1
    cdef bint _ended_text(self) except -1
    cdef bint _grow_offsets(self, Py_ssize_t n)
    cdef bint _mark(self, bint valid)
    cpdef bint put_null(self)
    cdef bint _put_bad(self, Py_ssize_t size)
    cpdef bint put_integer(self, long long value)
    cdef bint _fits(self, long long value) noexcept
    cpdef bint put_real_value(self, double value)
    cdef bint _put_bit(self, bint value)
    cpdef bint put(self, bytearray buf, Py_ssize_t start, Py_ssize_t n)
    cdef bint put_text(self, const unsigned char *data, Py_ssize_t start, Py_ssize_t n, Py_ssize_t limit)
    cdef bint _put_string(self, const unsigned char *data, Py_ssize_t start, Py_ssize_t n, Py_ssize_t limit) except -1
    cdef bint _put_rare(self, const unsigned char *data, Py_ssize_t start, Py_ssize_t n)
    cdef bint _put_exact(self, object exact, Py_ssize_t n)
    cdef bint _put_halves(self, long long value)
    cdef bint _fits_precision(self, long long value) noexcept
    cdef bint _put_wide(self, const unsigned char *data, Py_ssize_t start, Py_ssize_t n)
    cdef bint _put_plain(self, const unsigned char *data, Py_ssize_t start, Py_ssize_t n, Py_ssize_t limit)
    cdef bint _is_plain(self, const unsigned char *data, Py_ssize_t start, Py_ssize_t n, Py_ssize_t limit) except -1
    cdef bint _widen(self)
    cpdef bint put_bytes(self, bytes value)
    cpdef bint put_number(self, long long value)
    cdef Column put_registers(self, const unsigned char *data, Py_ssize_t limit)
    cdef bint put_register(self, const unsigned char *data, Py_ssize_t limit) except -1
    cdef bint put_id(self, unsigned long long ms, unsigned long long seq)
    cpdef bint put_decimal(self, unsigned long long value, int mark)
    cpdef bint end_text(self)
    cdef bint put_block(self, bytes texts, bytearray ends, Py_ssize_t count)
    cpdef bint truncate(self, Py_ssize_t length, Py_ssize_t used)
    cpdef bint drop(self)
