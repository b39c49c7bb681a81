cimport cython


@cython.final
cdef class Parser:
    cdef public long long number
    cdef public double real
    cdef public Py_ssize_t stop
    cdef Py_ssize_t trim(self, bytearray buf, Py_ssize_t start, Py_ssize_t n)
    cpdef bint integer(self, bytearray buf, Py_ssize_t start, Py_ssize_t n)
    cpdef bint decimal(self, bytearray buf, Py_ssize_t start, Py_ssize_t n)
    cpdef bint boolean(self, bytearray buf, Py_ssize_t start, Py_ssize_t n)
    cpdef bint date(self, bytearray buf, Py_ssize_t start, Py_ssize_t n)
    cpdef bint timestamp(self, bytearray buf, Py_ssize_t start, Py_ssize_t n)
    cdef double _scaled(self, unsigned long long mantissa, Py_ssize_t scale)
    cdef bint _exponent(self, bytearray buf, Py_ssize_t p, Py_ssize_t stop)
    cdef bint _special_real(self, bytearray buf, Py_ssize_t first, Py_ssize_t p, Py_ssize_t stop)
    cdef long long _pair(self, bytearray buf, Py_ssize_t p, Py_ssize_t stop)
    cdef bint _civil(self, bytearray buf, Py_ssize_t p, Py_ssize_t stop)
    cdef bint _clock(self, bytearray buf, Py_ssize_t p, Py_ssize_t stop)
    cdef bint _zone(self, bytearray buf, Py_ssize_t p, Py_ssize_t stop)
