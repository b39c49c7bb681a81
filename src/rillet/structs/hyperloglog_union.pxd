cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING
from libc.string cimport memcpy
from rillet.structs.hyperloglog cimport count, count_registers, merge, merge_sparse, store_registers, to_dense, uses_words
from rillet.structs.hyperloglog_estimate cimport estimate_sum, pair_table

@cython.final
cdef class Union:
    cdef bytearray _words
    cdef bytearray _registers
    cdef bytearray _room
    cdef list _strings
    cdef readonly bint dense
    cdef bint clear(self)
    cdef bint merge(self, object string)
    cdef unsigned char *_block(self, int first) noexcept
    cdef long long count(self) except -2
    cdef bint store(self, bytearray buf, Py_ssize_t limit)
    cpdef bytearray values(self)

cpdef long long count_string(object string) except -2
