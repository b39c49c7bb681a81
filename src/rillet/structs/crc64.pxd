cdef unsigned long long crc64_of(const unsigned char *p, Py_ssize_t n, unsigned long long crc) noexcept
cpdef object crc64(object data, object crc=*)
