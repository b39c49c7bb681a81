cimport cython
from rillet.commands.string.value_path cimport StringPath
from rillet.keyspace.database cimport Database
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.dict cimport Dict
from rillet.structs.listpack cimport parse_digits
from rillet.types.string cimport String

cdef class CounterPath(StringPath):
    cdef int sign
    cdef Py_ssize_t words

@cython.final
cdef class IncrFastPath(CounterPath):
    pass

@cython.final
cdef class DecrFastPath(CounterPath):
    pass

@cython.final
cdef class IncrbyFastPath(CounterPath):
    pass

@cython.final
cdef class DecrbyFastPath(CounterPath):
    pass
