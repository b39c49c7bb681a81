cimport cython
from rillet.structs.rax_iterator cimport RaxIterator
from rillet.types.stream.id cimport encode_key, key_ms, key_seq
from rillet.types.stream.iterator cimport StreamIterator, StreamNodes
from rillet.types.stream.node cimport int_at


@cython.final
cdef class StreamCounts:
    cdef readonly Py_ssize_t piece
    cdef readonly list keys
    cdef readonly list sums
    cdef readonly unsigned long long found_ms
    cdef readonly unsigned long long found_seq
    cpdef bint refresh(self, StreamNodes stream)
    cpdef long long rank(self, StreamNodes stream, unsigned long long ms, unsigned long long seq)
    cpdef bint find(self, StreamNodes stream, long long position)
    cdef long long _sum(self, StreamNodes stream, Py_ssize_t index)
    cdef long long _between(self, StreamNodes stream, str op, bytes key, Py_ssize_t index)
    cdef long long _rest_of_node(self, StreamNodes stream, unsigned long long ms, unsigned long long seq)
