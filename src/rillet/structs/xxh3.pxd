from libc.string cimport memcpy

cdef unsigned long long _word(const unsigned char *p, Py_ssize_t at) noexcept
cdef unsigned long long _half_word(const unsigned char *p, Py_ssize_t at) noexcept
cdef unsigned long long _folded(unsigned long long one, unsigned long long other) noexcept
cdef unsigned long long _mixed(unsigned long long h) noexcept
cdef unsigned long long _mixed_as_xxh64(unsigned long long h) noexcept
cdef unsigned long long _short(const unsigned char *p, Py_ssize_t n, const unsigned char *s) noexcept
cdef unsigned long long _piece(const unsigned char *p, Py_ssize_t at, const unsigned char *s, Py_ssize_t key) noexcept
cdef unsigned long long _middle(const unsigned char *p, Py_ssize_t n, const unsigned char *s) noexcept
cdef bint _stripe(unsigned long long *lanes, const unsigned char *p, Py_ssize_t at, const unsigned char *s, Py_ssize_t key) noexcept
cdef unsigned long long _long(bytes data) except? 0
cpdef unsigned long long xxh3_64(bytes data) except? 0
