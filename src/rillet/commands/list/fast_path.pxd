cimport cython
from rillet.commands.small_values cimport SmallValuePath
from rillet.keyspace.database cimport Database
from rillet.keyspace.rest_buffer cimport RestBuffer
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.listpack cimport Listpack

cdef class _PushFastPath(SmallValuePath):
    cdef bint _head

@cython.final
cdef class LpushFastPath(_PushFastPath):
    pass

@cython.final
cdef class RpushFastPath(_PushFastPath):
    pass
