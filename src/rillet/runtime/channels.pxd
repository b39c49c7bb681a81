cimport cython
from rillet.runtime.session cimport Session

@cython.final
cdef class Channels:
    cdef public dict channels
    cdef public dict shards
    cdef public dict patterns
    cdef object _on_change
    cpdef bint subscribe(self, Session session, bytes name, int kind)
    cpdef bint unsubscribe(self, Session session, bytes name, int kind)
    cdef object _table(self, int kind)
    cdef object _own(self, Session session, int kind)
    cpdef Py_ssize_t publish(self, bytes channel, bytes message)
    cpdef Py_ssize_t publish_shard(self, bytes channel, bytes message)
    cdef Py_ssize_t _send(self, dict listeners, bytes body)
