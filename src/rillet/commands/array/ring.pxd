cimport cython
from rillet.commands.array.elements cimport set_range
from rillet.commands.array.values cimport (
    array_at, array_for_write, array_to_read, changed, parse_index, write_index, write_word
)
from rillet.commands.span_arguments cimport integer_at
from rillet.keyspace.database cimport Database
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.array.sparse_array cimport SparseArray
from rillet.types.array cimport Array

@cython.final
cdef class Arinsert(Implementation):
    pass

@cython.final
cdef class Arring(Implementation):
    pass
