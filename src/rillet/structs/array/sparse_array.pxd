cimport cython
from rillet.structs.array.array_slice cimport ArraySlice, data_of, offset_at, set_word, word_at, word_of


@cython.final
cdef class ArrayBlock:
    cdef readonly long long number
    cdef readonly Py_ssize_t count
    cdef readonly list slots


@cython.final
cdef class SparseArray:
    cdef readonly unsigned long long count
    cdef public unsigned long long insert_index
    cdef readonly long long highest
    cdef readonly Py_ssize_t slices
    cdef readonly Py_ssize_t slice_size
    cdef readonly int shift
    cdef readonly list directory
    cdef readonly list blocks
    cdef readonly Py_ssize_t block_room
    cdef readonly list strings
    cdef readonly list spare
    cdef readonly Py_ssize_t slice_bytes
    cdef readonly Py_ssize_t string_bytes
    cdef Py_ssize_t _filled
    cdef Py_ssize_t block_at(self, long long number)
    cdef ArraySlice slice_at(self, long long number)
    cdef bint _grow(self, long long number)
    cdef bint _put_slice(self, long long number, ArraySlice new, ArraySlice old)
    cdef bint _find_highest(self)
    cdef unsigned long long keep(self, bytes data) except? 7777777777777777777
    cdef bint _release(self, unsigned long long word)
    cpdef bytes data(self, unsigned long long word)
    cpdef unsigned long long word(self, unsigned long long index) except? 7777777777777777777
    cpdef bytes get(self, unsigned long long index)
    cpdef bint set(self, unsigned long long index, bytes data, Py_ssize_t kmax=*)
    cpdef bint put(self, unsigned long long index, unsigned long long word, Py_ssize_t kmax)
    cdef bint _added(self, long long number) except -1
    cpdef bint reserve_range(self, unsigned long long first, unsigned long long last, Py_ssize_t kmax)
    cpdef bint remove(self, unsigned long long index, Py_ssize_t kmax=*, Py_ssize_t kmin=*)
    cdef bint _shorten(self) except -1
    cdef bint _drop_slice(self, long long number, ArraySlice found)
    cdef bint _clear_part(
        self, long long number, Py_ssize_t first, Py_ssize_t last, Py_ssize_t kmax, Py_ssize_t kmin
    )
    cpdef unsigned long long remove_range(
        self, unsigned long long first, unsigned long long last, Py_ssize_t kmax=*, Py_ssize_t kmin=*
    ) except? 7777777777777777777
    cdef bint _drop_slices(self, long long first, long long last)
    cpdef unsigned long long length(self) except? 7777777777777777777
    cpdef Py_ssize_t memory_bytes(self)
    cpdef list numbered_slices(self)
    cpdef SparseArray copy(self)
    cpdef bint free_some(self, Py_ssize_t parts)
    cpdef bint begin_compaction(self)
    cpdef bint compact_slice(self, ArraySlice part)
    cpdef bint trim_strings(self)
