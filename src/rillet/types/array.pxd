cimport cython
from rillet.structs.array.sparse_array cimport SparseArray
from rillet.types.sized cimport SizedValue


@cython.final
cdef class Array(SizedValue):
    cdef readonly SparseArray cells
    cpdef unsigned long long next_index(self) except? 7777777777777777777
    cpdef bint rework(self, unsigned long long size, Py_ssize_t slice_size, Py_ssize_t kmax)
