cimport cython
from rillet.commands.span_arguments cimport integer_at
from rillet.keyspace.database cimport Database
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.integer_text cimport decimal

cdef int _conditions(ArgumentSpans words)
cdef bint _allows(int conditions, long long current, long long when)

cdef class _InUnits(Implementation):
    cdef bint _relative
    cdef long long _unit

@cython.final
cdef class Expire(_InUnits):
    pass

@cython.final
cdef class Ttl(_InUnits):
    pass
