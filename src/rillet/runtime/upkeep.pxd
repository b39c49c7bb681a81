cimport cython
from rillet.keyspace.clock cimport Clock
from rillet.keyspace.database cimport Database
from rillet.keyspace.eviction cimport Eviction
from rillet.keyspace.lru cimport AccessClock
from rillet.runtime.blocking cimport Blocking
from rillet.runtime.channels cimport Channels
from rillet.runtime.propagation cimport Propagation
from rillet.runtime.engine_stats cimport EngineStats

cdef class Upkeep:
    cdef public list databases
    cdef public object settings
    cdef public Clock clock
    cdef readonly Propagation propagation
    cdef readonly object defrag
    cdef readonly Blocking blocking
    cdef public EngineStats stats
    cdef public object modules
    cdef bint _notify_events
    cdef public Channels channels
    cdef object _on_keyspace_event
    cdef public object replication
    cdef readonly AccessClock access
    cdef readonly Eviction eviction
    cdef readonly object latency
    cdef readonly long long monitored_ns
    cdef long long _fitted
    cpdef bint make_room(self)
    cdef readonly object lazyfree
    cdef public int conditions
    cdef int _paused
    cdef object _refusal
    cdef object _buffer
    cdef bint _when(self, int condition, bint holds)
