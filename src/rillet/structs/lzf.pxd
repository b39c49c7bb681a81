cimport cython

cdef Py_ssize_t pack(const unsigned char *data, Py_ssize_t n, unsigned char *out, Py_ssize_t start, Py_ssize_t end)
cdef int unpack(const unsigned char *data, Py_ssize_t ip, Py_ssize_t n, unsigned char *out, Py_ssize_t size) noexcept nogil
cdef bint refuse_block(int damage)
cpdef bytes compress(bytes data, Py_ssize_t limit=*)
cpdef bytes decompress(bytes data, Py_ssize_t size)
