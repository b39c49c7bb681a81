cimport cython
from rillet.protocol.command_parser cimport CommandParser
from rillet.runtime.acl.user cimport User
from rillet.runtime.admission cimport admit
from rillet.runtime.command_queue cimport CommandQueue
from rillet.runtime.effects cimport Effects
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.registry cimport Command
from rillet.runtime.session cimport Session
from rillet.runtime.statistics cimport Statistics
from rillet.runtime.tracking cimport Tracking
from rillet.structs.argument_spans cimport ArgumentSpans

cdef class Dispatch(Effects):
    cdef public object acl
    cdef readonly object paused_clients
    cdef list _spans
    cpdef bint execute(self, Session session, list[bytes] argv) except -1
    cpdef ArgumentSpans take_spans(self)
    cpdef bint give_spans(self, ArgumentSpans words) except -1
    cdef bint _admit_and_run(self, Session session, Command entry, ArgumentSpans words, CommandParser parser, Py_ssize_t limit) except -1
    cdef int _flags(self, Session session) except -1
    cdef bint _make_rooms(self, Session session) except -1
    cdef bint _run_silently(self, Session session, Command entry, ArgumentSpans words, int flags) except -1
    cpdef bint call(self, Session session, Command entry, list[bytes] argv) except -1
    cpdef bint call_spans(self, Session session, Command entry, ArgumentSpans words) except -1
    cpdef bint run_queue(self, Session session, CommandQueue queue) except -1
    cpdef bint drain(self, Session session, CommandParser parser, Py_ssize_t limit) except -1
    cdef bint _drain(self, Session session, CommandParser parser, Py_ssize_t limit) except -1
    cdef list[bytes] _next(self, Session session, CommandParser parser)
    cpdef long long run_next(self, Session session, CommandParser parser, ArgumentSpans words, tuple[bytes, ...] apart) except -1
