from rillet.commands.small_values cimport SmallValuePath
from rillet.keyspace.database cimport Database
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.dict cimport Dict
from rillet.types.string cimport String

cdef class StringPath(SmallValuePath):
    cdef Py_ssize_t n
    cdef const unsigned char *at
    cdef Py_ssize_t size
    cdef int view(self, Database db, ArgumentSpans words) except -3
    cdef bint view_entry(self, Dict keys, Py_ssize_t n) except -1
    cdef String raw(self, Database db, ArgumentSpans words)
