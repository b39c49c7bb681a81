cimport cython
from rillet.keyspace.database cimport KeyObserver
from rillet.runtime.registry cimport Command
from rillet.runtime.session cimport Session

cdef bint same(const unsigned char *at, bytes word, Py_ssize_t size)

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
    cpdef bint clear(self)

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
    cdef list _reported
    cdef object _reporter
    cdef list _states
    cdef bint _flushing
    cdef bint _immediate
    cdef public bint early
    cpdef bint remember(self, Session session, Command entry, list[bytes] argv)
    cdef bytes _report(self, const unsigned char *at, Py_ssize_t size, bytes key, object writer)
    cdef bint _send_key(self, bytes key)
    cdef bint _remove(self, bytes key, KeyReaders readers)
    cdef bint _clear_table(self)
    cdef bint _send(self, Session session, ClientTracking state, bytes body)
    cdef bint _deliver(self, Session session, bytes data)
    cpdef bint command_ended(self, Session session, Command entry)
    cpdef bint send_pending(self, Session session)
    cpdef bint schedule(self)
    cdef bint is_full(self)
    cpdef bint make_room(self)
