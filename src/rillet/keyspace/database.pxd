cimport cython
from rillet.keyspace.clock cimport Clock

@cython.final
cdef class Watcher:
    cdef public bint dirty
    cdef public list keys
    cdef public set stale

@cython.final
cdef class Database:
    cdef readonly long index
    cdef public Clock clock
    cdef public dict values
    cdef public dict expires
    cdef public dict blocking_keys
    cdef public dict ready_keys
    cdef public dict watched_keys
    cdef public dict idmp_keys
    cdef public object on_expired
    cdef public object on_expiry
    cdef public long long notify_before
    cdef public object on_ready
    cdef public object on_missed
    cdef public object on_new
    cdef public object on_overwritten
    cdef public object may_expire
    cdef public long long hits
    cdef public long long misses
    cdef list _slots
    cdef list _serials
    cdef dict _serial_of
    cdef long long _next_serial
    cdef list _expire_walk
    cpdef object lookup(self, bytes key)
    cpdef object lookup_read(self, bytes key)
    cpdef bint count_read(self, bytes key, bint found) except -1
    cpdef object lookup_no_notify(self, bytes key)
    cpdef bint is_expired(self, bytes key) except -1
    cpdef bint expire_if_needed(self, bytes key) except -1
    cpdef object set(self, bytes key, object value, bint keep_ttl=*)
    cpdef object replace(self, bytes key, object value, bint keep_ttl=*)
    cpdef bint delete(self, bytes key) except -1
    cpdef long long get_expire(self, bytes key)
    cpdef bint set_expire(self, bytes key, long long when) except -1
    cpdef bint persist(self, bytes key) except -1
    cpdef bint touch(self, bytes key) except -1
    cpdef bint signal_ready(self, bytes key) except -1
    cdef bint _number_keys(self) except -1
    cpdef bint _forget_numbers(self) except -1
    cdef bint _give_number(self, bytes key) except -1
    cdef bint _take_number(self, bytes key) except -1
