cimport cython
from rillet.keyspace.clock cimport Clock
from rillet.protocol.propagation_buffer cimport PropagationBuffer
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans

@cython.final
cdef class Propagation:
    cdef readonly object log
    cdef readonly object aof
    cdef public bint feeds_replicas
    cdef public object on_feed
    cdef public object narrow
    cdef public dict forms
    cdef bint _is_known(self, Session session, ArgumentSpans words, object commands)
    cdef object _spare
    cdef readonly PropagationBuffer feed
    cdef public long depth
    cdef readonly list pending
    cdef public long long dirty
    cdef object _settings
    cdef Clock _clock
    cpdef bint take_effects(self, Session session, ArgumentSpans words)
    cdef bint _take_both(self, int db, list commands, list others)
    cpdef bint add_deletions(self, int db, bytes name, list[bytes] keys)
    cpdef bint flush_pending(self)
    cpdef bint flush_each(self)
    cdef bint _append(self, int db, list[bytes] argv, long long now)
    cdef bint _frame(self, int db, bytes word, long long now)
    cdef long long _log_time(self) except -1
