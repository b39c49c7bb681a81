cimport cython
from rillet.types.stream.iterator cimport NodePlace
from rillet.types.stream.pending cimport PendingTable, PendingIndex, PendingIterator
from rillet.types.stream.time_order cimport TimeOrder


@cython.final
@cython.no_gc
cdef class Consumer:
    cdef readonly bytes name
    cdef readonly bytes group_name
    cdef public long long seen_time
    cdef public long long active_time
    cdef readonly Py_ssize_t number
    cdef readonly PendingIndex index


@cython.final
cdef class Group:
    cdef readonly bytes name
    cdef public unsigned long long last_ms
    cdef public unsigned long long last_seq
    cdef public long long entries_read
    cdef readonly PendingTable table
    cdef readonly PendingIndex index
    cdef readonly TimeOrder order
    cdef readonly dict consumers
    cdef readonly Consumer nobody
    cdef readonly NodePlace place
    cpdef bint clear(self)
    cpdef bint set_id(self, unsigned long long ms, unsigned long long seq, long long entries_read)
    cpdef Consumer find_consumer(self, bytes name)
    cpdef Consumer create_consumer(self, bytes name, long long now)
    cpdef Py_ssize_t delete_consumer(self, bytes name) except -2
    cdef Consumer _owner(self, Py_ssize_t slot)
    cpdef Py_ssize_t find(self, unsigned long long ms, unsigned long long seq) except -2
    cdef Py_ssize_t _new(self, unsigned long long ms, unsigned long long seq, long long time,
                         unsigned long long count, Consumer consumer)
    cpdef Py_ssize_t deliver(self, unsigned long long ms, unsigned long long seq, Consumer consumer,
                             long long now)
    cpdef Py_ssize_t force(self, unsigned long long ms, unsigned long long seq, Consumer consumer,
                           long long now)
    cpdef bint transfer(self, Py_ssize_t slot, Consumer consumer)
    cpdef bint set_delivery(self, Py_ssize_t slot, long long time, unsigned long long count)
    cpdef bint redeliver(self, Py_ssize_t slot, long long now, bint saturates)
    cpdef bint release(self, Py_ssize_t slot, unsigned long long count)
    cpdef Py_ssize_t force_released(self, unsigned long long ms, unsigned long long seq,
                                    unsigned long long count)
    cpdef bint drop(self, Py_ssize_t slot)
    cpdef bint acknowledge(self, unsigned long long ms, unsigned long long seq)
    cpdef Py_ssize_t oldest(self) except -2
    cpdef bint load(self, unsigned long long ms, unsigned long long seq, long long time,
                    unsigned long long count)
    cdef Py_ssize_t _find_unowned(self, unsigned long long ms, unsigned long long seq) except -2
    cpdef bint assign(self, unsigned long long ms, unsigned long long seq, Consumer consumer)
    cpdef bint load_nacked(self, unsigned long long ms, unsigned long long seq)
