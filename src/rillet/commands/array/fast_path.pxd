cimport cython
from rillet.commands.array.values cimport write_index, write_word
from rillet.commands.small_values cimport SmallValuePath
from rillet.keyspace.database cimport Database
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.sparse_array cimport SparseArray
from rillet.types.array cimport Array

cdef long long _index(ArgumentSpans words) except -2

cdef class _ArrayPath(SmallValuePath):
    cdef Py_ssize_t _n
    cdef Array _array(self, Database db, ArgumentSpans words)

@cython.final
cdef class ArgetFastPath(_ArrayPath):
    pass

@cython.final
cdef class ArsetFastPath(_ArrayPath):
    pass

@cython.final
cdef class ArinsertFastPath(_ArrayPath):
    pass

@cython.final
cdef class ArringFastPath(_ArrayPath):
    pass

@cython.final
cdef class ArdelFastPath(_ArrayPath):
    pass
