cimport cython
from rillet.commands.array.values cimport (
    array_at, array_for_write, array_to_read, changed, index_at, parse_index, write_index, write_word
)
from rillet.keyspace.database cimport Database
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.array.sparse_array cimport SparseArray
from rillet.types.array cimport Array

cpdef bint set_range(
    Session session, SparseArray cells, unsigned long long first, ArgumentSpans words, Py_ssize_t begin
)
cdef bint _removed(Session session, bytes key, Array array, bytes event, unsigned long long count)

@cython.final
cdef class Arset(Implementation):
    pass

@cython.final
cdef class Arget(Implementation):
    pass

@cython.final
cdef class Ardel(Implementation):
    pass
