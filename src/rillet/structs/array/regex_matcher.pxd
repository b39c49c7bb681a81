cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING

cdef unsigned int *_pointer(bytearray numbers) noexcept
cdef bint _is_word(int byte) noexcept
cdef bint _holds(unsigned int assertions, int before, int after, Py_ssize_t at) noexcept


@cython.final
cdef class RegexMatcher:
    cdef Py_ssize_t _positions
    cdef list _texts
    cdef bint _starts
    cdef bint _ends
    cdef bint _fold
    cdef object _sets
    cdef object _first_steps
    cdef object _edges
    cdef object _first
    cpdef bint matches(self, bytes text)
    cdef bint _matches_text(self, bytes text)
    cdef bint _run(
        self, const unsigned char *text, Py_ssize_t size, unsigned int *sets, unsigned int *starts,
        unsigned int *edges, unsigned int *first, Py_ssize_t firsts, unsigned int *reached, unsigned int *seen
    )
