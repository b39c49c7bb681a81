cimport cython

cdef int _word(bytes raw) except -1

@cython.final
cdef class SetOptions:
    cdef readonly int flags
    cdef readonly bytes expiry
    cdef readonly bytes expiry_option
    cdef readonly Py_ssize_t expiry_at
    cdef readonly bytes condition
    cdef readonly bytes operand

cpdef list[bytes] without_get(list[bytes] argv, Py_ssize_t start)
