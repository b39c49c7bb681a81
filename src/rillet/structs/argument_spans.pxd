cimport cython

@cython.final
cdef class ArgumentSpans:
    cdef const unsigned char **at
    cdef Py_ssize_t *size
    cdef readonly Py_ssize_t room
    cdef public Py_ssize_t count
    cdef readonly list[bytes] source
    cdef readonly bint received
    cdef readonly Py_ssize_t replaced
    cdef readonly Py_ssize_t last_replaced
    cdef list _kept
    cdef list[bytes] _original
    cdef bytearray _places
    cdef bytearray _sizes
    cpdef bint make_room(self, Py_ssize_t count)
    cpdef bint point_to(self, list[bytes] argv, Py_ssize_t start, Py_ssize_t count)
    cpdef bint begin(self, bint received)
    cpdef bint put(self, Py_ssize_t index, bytes word)
    cpdef list[bytes] to_list(self)
    cpdef bint restore(self)
    cpdef bytes get(self, Py_ssize_t index)
    cpdef bint equals(self, Py_ssize_t index, bytes value)
    cpdef bint is_char(self, Py_ssize_t index, int char)
    cpdef bint is_digit(self, Py_ssize_t index)
    cpdef bint is_option(self, Py_ssize_t index, bytes option)
    cpdef long long number(self, Py_ssize_t index) except -2
