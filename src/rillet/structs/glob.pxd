cpdef bint matches(bytes pattern, bytes text, bint ignore_case=*)
cpdef bint matches_any(list[bytes] patterns, bytes text)
cdef bint matches_any_at(list[bytes] patterns, const unsigned char *text, Py_ssize_t size)
