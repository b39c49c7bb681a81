cimport cython
from libc.string cimport memcpy, memmove
from rillet.structs.hyperloglog_estimate cimport estimate

@cython.final
cdef class Cursor:
    cdef Py_ssize_t at
    cdef Py_ssize_t before
    cdef int first
    cpdef bint reset(self)

cdef unsigned long long murmur64(const unsigned char *p, Py_ssize_t n) noexcept
cdef bint is_valid(const unsigned char *p, Py_ssize_t size) noexcept
cdef int add(bytearray buf, const unsigned char *p, Py_ssize_t n, Py_ssize_t limit, Cursor cursor) except -2
cdef long long cached_count(const unsigned char *p) noexcept
cdef bint cache_count(bytearray buf, long long count)
cdef bint forget_count(bytearray buf)
cdef long long count(const unsigned char *p, Py_ssize_t size) except -2
cdef bint merge(bytearray registers, const unsigned char *p, Py_ssize_t size)
cdef bint merge_dense(bytearray registers, const unsigned char *p)
cdef bint merge_sparse(bytearray registers, const unsigned char *p, Py_ssize_t size, bint words)
cpdef long long count_registers(bytearray registers) except -2
cpdef bint to_dense(bytearray buf)
cpdef bint store_registers(bytearray buf, bytearray registers, bint dense, Py_ssize_t limit)
cpdef bint use_words(bint on)
cpdef bint uses_words()

cdef bint set_dense(bytearray buf, int index, int value)
cdef int set_sparse(bytearray buf, int index, int value, Py_ssize_t limit, Cursor cursor) except -2
