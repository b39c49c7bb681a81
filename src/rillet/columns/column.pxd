cimport cython
from rillet.columns.text cimport Parser


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
    cdef public Parser parser
    cdef bint _room(self, Py_ssize_t n)
    cdef bint _ended(self, bint valid)
    cdef bint _mark(self, bint valid)
    cdef bint _put_bit(self, bint value)
    cdef bint _put_wide(self, bytearray buf, Py_ssize_t start, Py_ssize_t n)
    cpdef bint put_null(self)
    cpdef bint put_integer(self, long long value)
    cpdef bint put_real_value(self, double value)
    cpdef bint put(self, bytearray buf, Py_ssize_t start, Py_ssize_t n)
    cpdef bint put_bytes(self, bytes value)
    cpdef bint put_number(self, long long value)
    cpdef bint put_register(self, bytearray buf)
    cpdef bint put_decimal(self, unsigned long long value, int mark)
    cpdef bint end_text(self)
    cpdef bint truncate(self, Py_ssize_t length, Py_ssize_t used)
