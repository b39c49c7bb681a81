cimport cython
from rillet.structs.rax cimport Rax


@cython.final
cdef class Consumer:
    cdef readonly bytes name
    cdef public long long seen_time
    cdef readonly Rax pel


@cython.final
@cython.no_gc
cdef class PendingEntry:
    cdef public long long delivery_time
    cdef public unsigned long long delivery_count
    cdef readonly Consumer consumer
    cpdef bint redelivered(self, long long now) except -1


@cython.final
cdef class Group:
    cdef readonly bytes name
    cdef public unsigned long long last_ms
    cdef public unsigned long long last_seq
    cdef public long long entries_read
    cdef readonly Rax pel
    cdef readonly dict consumers
    cpdef bint clear(self) except -1
    cpdef bint set_id(self, unsigned long long ms, unsigned long long seq, long long entries_read) except -1
    cpdef Consumer find_consumer(self, bytes name)
    cpdef Consumer create_consumer(self, bytes name, long long now)
    cpdef Py_ssize_t delete_consumer(self, bytes name)
    cpdef PendingEntry find_pending(self, bytes key)
    cpdef PendingEntry add_pending(self, bytes key, Consumer consumer, long long now)
    cpdef PendingEntry force_pending(self, bytes key, long long now)
    cpdef bint transfer(self, bytes key, PendingEntry entry, Consumer consumer) except -1
    cpdef bint acknowledge(self, bytes key) except -1
    cpdef bint load_pending(self, bytes key, long long delivery_time, unsigned long long delivery_count) except -1
    cpdef bint assign_pending(self, bytes key, Consumer consumer) except -1
