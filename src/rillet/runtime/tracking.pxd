cimport cython
from rillet.keyspace.database cimport KeyObserver
from rillet.runtime.registry cimport Command
from rillet.runtime.session cimport Session

cdef bint same(const unsigned char *at, bytes word, Py_ssize_t size) except -1

@cython.final
cdef class ClientTracking:
    cdef public bint on
    cdef public bint bcast
    cdef public bint optin
    cdef public bint optout
    cdef public bint noloop
    cdef public bint caching
    cdef public bint broken
    cdef public long long redirect
    cdef public dict prefixes
    cpdef bint clear(self) except -1

@cython.final
cdef class KeyReaders:
    cdef public object ids
    cdef public Py_ssize_t at

@cython.final
cdef class PrefixState:
    cdef public dict clients
    cdef public dict keys
    cdef bytes prefix

@cython.final
cdef class Tracking(KeyObserver):
    cdef public object engine
    cdef public dict table
    cdef public list names
    cdef public Py_ssize_t items
    cdef public dict prefixes
    cdef public Py_ssize_t clients
    cdef public object current
    cdef public list pending
    cdef public Py_ssize_t limit
    cdef Py_ssize_t _misses
    cdef bint _posted
    cdef bytes _last
    cdef object _last_writer
    cdef list _states
    cdef bint _flushing
    cdef bint _immediate
    cdef public bint early
    cpdef bint remember(self, Session session, Command entry, list[bytes] argv) except -1
    cdef bytes _report(self, const unsigned char *at, Py_ssize_t size, bytes key, object writer)
    cdef bint _send_key(self, bytes key) except -1
    cdef bint _remove(self, bytes key, KeyReaders readers) except -1
    cdef bint _clear_table(self) except -1
    cdef bint _send(self, Session session, ClientTracking state, bytes body) except -1
    cdef bint _deliver(self, Session session, bytes data) except -1
    cpdef bint command_ended(self, Session session, Command entry) except -1
    cpdef bint send_pending(self, Session session) except -1
    cpdef bint schedule(self) except -1
    cdef bint is_full(self) except -1
    cpdef bint make_room(self) except -1
