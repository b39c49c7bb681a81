cimport cython


@cython.final
cdef class CommandScan:
    cdef readonly str path
    cdef readonly long long limit
    cdef readonly long long good
    cdef readonly long long commands
    cdef readonly long long first
    cdef readonly long long last
    cdef readonly long long beyond
    cdef readonly long long frame
    cdef long long _here
    cdef bytes _rest
    cdef long long _left
    cdef long long _skip
    cdef bint _named
    cdef bint _ending
    cdef bint _open
    cdef long long _inside

    cpdef bint feed(self, bytes chunk)
    cdef Py_ssize_t _step(self, bytes data, const unsigned char *buf, Py_ssize_t at, Py_ssize_t size)
    cdef bint _begins(self, const unsigned char *buf, Py_ssize_t at, Py_ssize_t size)
    cdef bint _name(self, bytes name)
    cdef bint _whole(self, long long end)
    cdef bint _note(self, bytes line, long long offset)
    cdef long long _number(self, bytes data, const unsigned char *buf, Py_ssize_t at, Py_ssize_t end, int mark) except -2
