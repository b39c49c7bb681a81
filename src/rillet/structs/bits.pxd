from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcpy, memset

cdef Py_ssize_t count_bits(const unsigned char *p, Py_ssize_t start, Py_ssize_t stop)
cdef Py_ssize_t find_bit(const unsigned char *p, Py_ssize_t start, Py_ssize_t stop, bint bit) except -2
cdef unsigned long long read_field(const unsigned char *p, Py_ssize_t size, Py_ssize_t offset, int width) noexcept
cdef bint write_field(bytearray buf, Py_ssize_t offset, int width, unsigned long long value)
cpdef bytes combine(int operation, list sources, Py_ssize_t size)
