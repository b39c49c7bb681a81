cimport cython
from rillet.keyspace.clock cimport Clock
from rillet.keyspace.database cimport Database
from rillet.keyspace.lru cimport AccessClock
from rillet.keyspace.memory_usage cimport dict_bytes
from rillet.structs.dict cimport Dict
from rillet.structs.dict_table cimport GrowthGate
from rillet.structs.listpack cimport Listpack
from rillet.types.stream.node cimport int_at
from rillet.types.stream.stream cimport Stream

@cython.final
cdef class Pool:
    cdef readonly list idles
    cdef readonly list keys
    cdef readonly list indexes
    cdef bint offers(self, unsigned long long idle)
    cdef bint insert(self, unsigned long long idle, bytes key, Py_ssize_t index)

@cython.final
cdef class Eviction(GrowthGate):
    cdef readonly list databases
    cdef readonly Clock clock
    cdef readonly AccessClock access
    cdef object _on_evicted
    cdef object _on_trimmed
    cdef readonly Py_ssize_t limit
    cdef readonly int kind
    cdef readonly bint volatile
    cdef readonly Py_ssize_t samples
    cdef readonly long long time_limit
    cdef readonly bint trims
    cdef readonly bint lazy
    cdef public Py_ssize_t buffers
    cdef readonly Pool pool
    cdef public bint running
    cdef public bint timed
    cdef readonly long long deletion_ns
    cdef public object on_unfinished
    cdef readonly long long evicted_keys
    cdef readonly long long trimmed_entries
    cdef long long _exceeded_since
    cdef long long _exceeded_total
    cdef Py_ssize_t _next
    cpdef Py_ssize_t counted(self)
    cdef Py_ssize_t _counted(self, bint settle)
    cpdef int run(self)
    cdef int _free(self, long long began)
    cdef bint _reclaim(self)
    cdef bint _evict(self, Database database, bytes key)
    cdef bint _trim(self, Database database, bytes key, Stream stream)
    cdef bint _pick(self)
    cdef bint _pick_random(self)
    cdef bint _populate(self, Database database, Py_ssize_t index)
    cdef unsigned long long _idle(self, long bits) except? 0
    cdef bint _can_free(self, Dict keys, Py_ssize_t n)
    cdef Py_ssize_t _picked_index
    cdef bytes _picked_key
