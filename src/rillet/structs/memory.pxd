from libc.string cimport memcmp, memcpy, memmove

cdef bint copy_part(bytearray dst, Py_ssize_t dpos, bytes src, Py_ssize_t spos, Py_ssize_t n)
cdef bint copy_slice(bytearray dst, Py_ssize_t dpos, bytearray src, Py_ssize_t spos, Py_ssize_t n)
cdef bytes copy_out(bytearray src, Py_ssize_t start, Py_ssize_t n)
cdef bint equals(bytearray src, Py_ssize_t start, bytes value)
cdef bint put_u32(bytearray dst, Py_ssize_t pos, long long v)
