cimport cython
from rillet.columns.receive_buffer cimport ReceiveBuffer
from rillet.columns.node_decoder cimport NodeReader
from rillet.structs.memory cimport copy_out
from rillet.types.stream.id cimport key_ms, key_seq


@cython.final
cdef class NodePages(ReceiveBuffer):
    cdef public NodeReader reader
    cdef Py_ssize_t after
    cdef Py_ssize_t left
    cdef bint busy
    cdef readonly object go_on
    cdef readonly object first
    cdef object parsed
    cpdef int decode(self)
    cdef bint _head(self)
    cdef bint _identifier(self)
    cdef bint _node(self)
    cdef Py_ssize_t _length(self, Py_ssize_t p, int kind) except -3
    cdef Py_ssize_t _other_line(self, Py_ssize_t p, int kind) except -3
