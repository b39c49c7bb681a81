cimport cython
from rillet.structs.dict_table cimport put_u32, put_u64, u32, u64
from rillet.structs.memory cimport copy_slice

cpdef int width_of(long long value)


@cython.final
cdef class Intset:
    cdef readonly bytearray buf
    cdef readonly Py_ssize_t count
    cdef readonly int width
    cdef bint load(self, const unsigned char *source, Py_ssize_t size)
    cdef bint clear(self)
    cdef bint _put_header(self)
    cpdef Py_ssize_t nbytes(self)
    cdef long long number_at(self, Py_ssize_t index) noexcept
    cdef bint _put(self, Py_ssize_t index, long long value) noexcept
    cdef Py_ssize_t _index(self, long long value) noexcept
    cpdef bint has(self, long long value)
    cpdef bint add(self, long long value)
    cdef bint _make_room(self, int width)
    cpdef bint remove(self, long long value)
    cdef bint _rises(self)
