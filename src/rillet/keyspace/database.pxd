cimport cython
from rillet.keyspace.clock cimport Clock
from rillet.keyspace.lru cimport AccessClock
from rillet.structs.dict cimport Dict
from rillet.types.string cimport String

@cython.final
cdef class Watcher:
    cdef public bint dirty
    cdef public list keys
    cdef public set stale

@cython.final
cdef class Database:
    cdef readonly long index
    cdef public Clock clock
    cdef public AccessClock access
    cdef public Dict keys
    cdef public Dict expires
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
    cdef public object lazy
    cdef public bint lazy_server_del
    cdef public long long hits
    cdef public long long misses
    cdef public unsigned long long expires_cursor
    cdef public long long average_ttl
    cdef bint _any_expires(self) noexcept
    cdef Py_ssize_t _find(self, bytes key) except -2
    cpdef object peek(self, bytes key)
    cpdef object lookup(self, bytes key)
    cpdef object lookup_read(self, bytes key)
    cpdef bint count_read(self, bytes key, bint found) except -1
    cpdef object lookup_read_no_touch(self, bytes key, bint notify=*)
    cpdef bint touch_access(self, bytes key) except -1
    cpdef bint touch_modified(self, bytes key) except -1
    cpdef bint is_expired(self, bytes key) except -1
    cpdef bint expire_if_needed(self, bytes key) except -1
    cpdef list[bytes] expire_entries(self, list due, bint names)
    cdef bint _deleted(self, bytes key) except -1
    cpdef object set(self, bytes key, object value, bint keep_ttl=*)
    cpdef object replace(self, bytes key, object value, bint keep_ttl=*)
    cpdef bint tidy(self, Py_ssize_t times) except -1
    cpdef bint delete(self, bytes key, bint lazy=*) except -1
    cpdef bint delete_replaced(self, bytes key) except -1
    cpdef long long get_expire(self, bytes key)
    cpdef bint set_expire(self, bytes key, long long when) except -1
    cpdef bint persist(self, bytes key) except -1
    cpdef bint touch(self, bytes key) except -1
    cpdef bint signal_ready(self, bytes key) except -1
