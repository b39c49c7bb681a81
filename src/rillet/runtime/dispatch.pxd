cimport cython
from rillet.protocol.command_parser cimport CommandParser
from rillet.runtime.acl.user cimport User
from rillet.runtime.admission cimport admit
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.registry cimport Command
from rillet.runtime.session cimport Session
from rillet.runtime.engine_stats cimport EngineStats
from rillet.runtime.tracking cimport Tracking
from rillet.runtime.transactions cimport Transactions
from rillet.structs.argument_spans cimport ArgumentSpans

cdef class Dispatch(Transactions):
    cdef readonly object paused_clients
    cpdef bint execute(self, Session session, list[bytes] argv)
    cdef bint _admit_and_run(self, Session session, Command entry, ArgumentSpans words, CommandParser parser, Py_ssize_t limit)
    cdef int _flags(self, Session session)
    cdef bint _make_rooms(self, Session session)
    cdef bint _run_silently(self, Session session, Command entry, ArgumentSpans words, int flags)
    cpdef bint call(self, Session session, Command entry, list[bytes] argv)
    cpdef bint call_spans(self, Session session, Command entry, ArgumentSpans words)
    cpdef bint drain(self, Session session, CommandParser parser, Py_ssize_t limit)
    cdef bint _drain(self, Session session, CommandParser parser, Py_ssize_t limit)
    cdef list[bytes] _next(self, Session session, CommandParser parser)
    cpdef long long run_next(self, Session session, CommandParser parser, ArgumentSpans words, tuple[bytes, ...] apart) except -1
