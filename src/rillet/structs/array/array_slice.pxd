cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING
from libc.string cimport memcpy
from rillet.structs.listpack cimport parse_digits
from rillet.structs.memory cimport copy_slice

cdef unsigned long long word_at(bytearray words, Py_ssize_t at) noexcept
cdef bint set_word(bytearray words, Py_ssize_t at, unsigned long long word) noexcept
cdef Py_ssize_t offset_at(bytearray offsets, Py_ssize_t at) noexcept
cdef long long integer_of(unsigned long long word) noexcept
cdef double double_of(unsigned long long word) noexcept
cpdef unsigned long long word_of_integer(long long value) except? 7777777777777777777
cpdef unsigned long long word_of_double(double value) except? 7777777777777777777
cpdef unsigned long long word_of_short(bytes data) except? 7777777777777777777
cpdef unsigned long long word_of(bytes data) except? 7777777777777777777
cdef bint set_offset(bytearray offsets, Py_ssize_t at, Py_ssize_t value) noexcept
cdef bytes data_of(unsigned long long word)


@cython.final
cdef class ArraySlice:
    cdef public bint dense
    cdef public Py_ssize_t count
    cdef public Py_ssize_t offset
    cdef public Py_ssize_t room
    cdef public Py_ssize_t top
    cdef public bytearray words
    cdef public bytearray offsets
    cpdef Py_ssize_t memory_bytes(self)
    cdef Py_ssize_t place(self, Py_ssize_t offset)
    cdef unsigned long long word(self, Py_ssize_t offset) noexcept
    cdef Py_ssize_t last(self)
    cdef bint move_window(self, Py_ssize_t offset, Py_ssize_t room)
    cdef bint grow_to(self, Py_ssize_t offset, Py_ssize_t slice_size)
    cdef ArraySlice promoted(self, Py_ssize_t slice_size)
    cdef bint is_wasteful(self, Py_ssize_t kmax, Py_ssize_t kmin)
    cdef ArraySlice demoted(self, Py_ssize_t kmin)
    cdef bint insert(self, Py_ssize_t at, Py_ssize_t offset, unsigned long long word)
    cdef bint cut(self, Py_ssize_t first, Py_ssize_t end)
    cdef bint widen(self, Py_ssize_t room)
    cdef bint find_top(self)
    cdef ArraySlice copy(self)
