cdef double parse_plain(const unsigned char *text, Py_ssize_t n) except? -1
