cdef int _write(unsigned long long number, bint negative) noexcept
cpdef bytes decimal(object value)
cdef Py_ssize_t put_decimal(bytearray to, Py_ssize_t at, long long value)
