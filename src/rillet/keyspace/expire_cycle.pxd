cimport cython
from rillet.keyspace.clock cimport Clock
from rillet.keyspace.database cimport Database
from rillet.structs.dict cimport Dict

@cython.final
cdef class ExpireCycle:
    cdef readonly long long capped
    cdef public object batches
    cdef public object fields
    cdef public bint events
    cdef public bint names
    cdef public bint on_time
    cdef public bint rehashes
    cdef readonly double stale_percent
    cdef readonly bint unfinished
    cdef readonly long long used
    cdef long long _began
    cdef long long _budget
    cdef long long _expired
    cdef long long _last_fast
    cdef Py_ssize_t _left
    cdef int _acceptable
    cdef Py_ssize_t _next
    cdef long long _sampled
    cdef long long _share
    cdef long long _spent
    cdef bint _was_capped
    cpdef bint step(self, list databases, Clock clock, int effort, long long limit=*)
    cdef bint _expire_fields(self, Database database, Clock clock, long long stop)
    cdef bint _may_delete(self, Database database)
    cdef bint _tidy(self, Database database, Clock clock, long long stop)
    cdef Py_ssize_t _delete(self, Database database, list due)
    cdef bint _expire(self, Database database, Clock clock, int effort, long long stop)
