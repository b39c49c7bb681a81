cimport cython

cdef long long eight_digits(const unsigned char *data, Py_ssize_t p) noexcept
cdef bint check(bytearray buf, Py_ssize_t start, Py_ssize_t n) except -1


@cython.final
cdef class ValueParser:
    cdef public long long number
    cdef public double real
    cdef public bint bad
    cdef public Py_ssize_t zeros
    cdef public Py_ssize_t stop
    cdef Py_ssize_t trim(self, const unsigned char *data, Py_ssize_t start, Py_ssize_t n) noexcept
    cpdef bint integer(self, bytearray buf, Py_ssize_t start, Py_ssize_t n)
    cpdef bint decimal(self, bytearray buf, Py_ssize_t start, Py_ssize_t n)
    cpdef bint boolean(self, bytearray buf, Py_ssize_t start, Py_ssize_t n)
    cpdef bint date(self, bytearray buf, Py_ssize_t start, Py_ssize_t n)
    cpdef bint timestamp(self, bytearray buf, Py_ssize_t start, Py_ssize_t n)
    cdef bint read_integer(self, const unsigned char *data, Py_ssize_t start, Py_ssize_t n) noexcept
    cdef bint read_decimal(self, const unsigned char *data, Py_ssize_t start, Py_ssize_t n, Py_ssize_t limit)
    cdef bint _short(self, unsigned long long word, Py_ssize_t n, Py_ssize_t sign) noexcept
    cdef bint _read_long(self, const unsigned char *data, Py_ssize_t start, Py_ssize_t n)
    cdef bint read_boolean(self, const unsigned char *data, Py_ssize_t start, Py_ssize_t n)
    cdef bint read_date(self, const unsigned char *data, Py_ssize_t start, Py_ssize_t n) noexcept
    cdef bint read_timestamp(self, const unsigned char *data, Py_ssize_t start, Py_ssize_t n)
    cdef bint read_fixed(self, const unsigned char *data, Py_ssize_t start, Py_ssize_t n, Py_ssize_t scale) noexcept
    cdef double _scaled(self, unsigned long long mantissa, Py_ssize_t scale) noexcept
    cdef bint _exponent(self, const unsigned char *data, Py_ssize_t p, Py_ssize_t stop) noexcept
    cdef bint _special_real(self, const unsigned char *data, Py_ssize_t first, Py_ssize_t p, Py_ssize_t stop)
    cdef long long _pair(self, const unsigned char *data, Py_ssize_t p, Py_ssize_t stop) noexcept
    cdef bint _civil(self, const unsigned char *data, Py_ssize_t p, Py_ssize_t stop) noexcept
    cdef bint _clock(self, const unsigned char *data, Py_ssize_t p, Py_ssize_t stop) noexcept
    cdef bint _zone(self, const unsigned char *data, Py_ssize_t p, Py_ssize_t stop)
