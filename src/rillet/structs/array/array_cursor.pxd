cimport cython
from rillet.structs.array.array_slice cimport ArraySlice, offset_at, word_at
from rillet.structs.array.sparse_array cimport ArrayBlock, SparseArray


@cython.final
cdef class ArrayCursor:
    cdef readonly SparseArray array
    cdef readonly unsigned long long index
    cdef readonly unsigned long long word
    cdef bint _backwards
    cdef Py_ssize_t _step
    cdef unsigned long long _low
    cdef unsigned long long _high
    cdef unsigned long long _base
    cdef ArraySlice _part
    cdef Py_ssize_t _at
    cdef Py_ssize_t _end
    cdef long long _number
    cpdef bint next(self)
    cdef bint _open(self, ArraySlice part, long long number)
    cdef bint _next_slice(self)
