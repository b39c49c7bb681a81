cimport cython
from rillet.keyspace.database cimport Database
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans

@cython.final
cdef class Exists(Implementation):
    pass
