cimport cython
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.quicklist cimport Quicklist, QuicklistNode, exceeds, size_limit
from rillet.types.sized cimport SizedValue

@cython.final
cdef class ListLimits:
    cdef readonly bint anew
    cdef readonly bint compact
    cdef readonly Py_ssize_t depth
    cdef readonly Py_ssize_t fill
    cdef readonly Py_ssize_t threshold

@cython.final
cdef class List(SizedValue):
    cdef public Quicklist elements
    cpdef bint grow(self, Py_ssize_t nbytes, Py_ssize_t count, ListLimits limits)
    cpdef bint shrink(self, ListLimits limits, bint built=*)
    cdef bint push_words(self, ArgumentSpans words, Py_ssize_t first, bint head, ListLimits limits)
