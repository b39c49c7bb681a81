cimport cython
from rillet.keyspace.clock cimport Clock
from rillet.keyspace.database cimport Database
from rillet.keyspace.eviction cimport Eviction
from rillet.keyspace.expire_cycle cimport ExpireCycle
from rillet.keyspace.lru cimport AccessClock
from rillet.runtime.blocking cimport Blocking
from rillet.runtime.channels cimport Channels
from rillet.runtime.dispatch cimport Dispatch
from rillet.runtime.propagation cimport Propagation
from rillet.runtime.registry cimport Command
from rillet.runtime.session cimport Session
from rillet.runtime.engine_stats cimport EngineStats
from rillet.runtime.tracking cimport Tracking

@cython.final
cdef class Engine(Dispatch):
    cdef public dict sessions
    cdef public object host
    cdef public object preserved
    cdef public long long peak_reset_ms
    cdef public bint shrinks_buffers
    cdef public str run_id
    cdef public long long started_ms
    cdef public long long next_session_id
    cdef readonly object memory
    cdef public long long mstime
