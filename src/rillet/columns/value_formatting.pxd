cimport cython
from rillet.protocol.reply_writer cimport put_digits


@cython.final
cdef class ValueFormatter:
    cdef bytearray buf
    cdef bytes table
    cdef unsigned long long digits
    cdef long long power
    cdef long long day
    cdef unsigned char *_start(self) noexcept
    cpdef Py_ssize_t put_unsigned(self, unsigned long long value) noexcept
    cpdef Py_ssize_t put_signed(self, long long value) noexcept
    cpdef Py_ssize_t put_truth(self, bint value) noexcept
    cpdef Py_ssize_t put_real(self, double value)
    cpdef Py_ssize_t put_single(self, double value)
    cdef Py_ssize_t _put_easy(self, double value, bint negative) noexcept
    cdef bint _short(self, double value, double bound, bint single) noexcept
    cdef bint _shortest(self, unsigned long long c, long long q, bint nearer)
    cdef unsigned long long _half(self, long long power, Py_ssize_t which) except? -1
    cdef Py_ssize_t _put_digits(self, Py_ssize_t at) noexcept
    cdef Py_ssize_t _put_decimal(self, Py_ssize_t at) noexcept
    cdef Py_ssize_t _put_fraction(self, unsigned char *to, Py_ssize_t at, unsigned long long digits, long long zeros) noexcept
    cdef Py_ssize_t _put_exponent(self, unsigned char *to, Py_ssize_t at, Py_ssize_t end, long long exponent) noexcept
    cpdef Py_ssize_t put_day(self, long long days)
    cpdef Py_ssize_t put_moment(self, long long value, int places, bint zoned)
