cimport cython
from rillet.keyspace.clock cimport Clock

@cython.final
cdef class ScriptClock(Clock):
    cdef public Clock inner
    cdef long long _frozen_us
    cpdef bint freeze(self)
    cpdef bint unfreeze(self)
