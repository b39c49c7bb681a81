cimport cython
from rillet.keyspace.clock cimport Clock
from rillet.runtime.propagation cimport Propagation
from rillet.runtime.session cimport Session
from rillet.runtime.engine_stats cimport EngineStats
from rillet.structs.argument_spans cimport ArgumentSpans

@cython.final
cdef class Blocking:
    cdef readonly list ready
    cdef Clock _clock
    cdef EngineStats _statistics
    cdef Propagation _propagation
    cdef long long _arrivals
    cdef object _interrupt
    cdef ArgumentSpans _words
    cpdef bint unblock(self, Session session)
    cpdef bint wake(self, Session session)
    cpdef bint serve_ready(self)
