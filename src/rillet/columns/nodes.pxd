cimport cython
from rillet.columns.builder cimport Rows
from rillet.structs.listpack cimport Listpack
from rillet.types.stream_iterator cimport StreamIterator, StreamNodes
from rillet.types.stream_node cimport validate_node


@cython.final
cdef class NodeDecoder:
    cdef public Rows rows
    cdef public Py_ssize_t max_rows
    cdef public Py_ssize_t max_bytes
    cdef readonly unsigned long long last_ms
    cdef readonly unsigned long long last_seq
    cdef StreamIterator iterator
    cpdef int decode(self)
    cdef bint _field(self, StreamIterator it, bytearray buf)
