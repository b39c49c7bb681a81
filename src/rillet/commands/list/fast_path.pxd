cimport cython
from rillet.commands.small_values cimport HEADER, MISSING, UNUSUAL, LengthFastPath, SmallValuePath, write_entry
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

cdef class _PopFastPath(SmallValuePath):
    cdef bint _head

@cython.final
cdef class LpopFastPath(_PopFastPath):
    pass

@cython.final
cdef class RpopFastPath(_PopFastPath):
    pass

@cython.final
cdef class LrangeFastPath(SmallValuePath):
    pass
