cimport cython
from rillet.keyspace.database cimport Database
from rillet.keyspace.lru cimport AccessClock
from rillet.protocol.command_parser cimport CommandParser
from rillet.protocol.propagation_buffer cimport PropagationBuffer
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.acl.user cimport User
from rillet.runtime.command_finder cimport CommandFinder
from rillet.runtime.slowlog cimport CommandLog
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.monitors cimport Monitors
from rillet.runtime.propagation cimport Propagation
from rillet.runtime.registry cimport Command
from rillet.runtime.session cimport Session
from rillet.runtime.engine_stats cimport CommandStats
from rillet.runtime.tracking cimport Tracking
from rillet.structs.argument_spans cimport ArgumentSpans

cdef int follows(Session session, Command entry, ArgumentSpans words, CommandParser parser, Py_ssize_t count) except? -1

cdef class Effects(CommandFinder):
    cdef public object scripts
    cdef readonly Tracking tracking
    cdef readonly Monitors monitors
    cdef public bint observed
    cdef readonly bint limited
    cdef readonly CommandLog command_log
    cdef readonly bint tracks_latency
    cdef long long _since
    cdef readonly Py_ssize_t failed_at
    cdef long long ran
    cdef bint _run(self, Session session, Command entry, ArgumentSpans words, CommandParser parser, Py_ssize_t limit)
    cdef bint _log(self, Session session, Command entry, ArgumentSpans words)
    cdef bint _begin(self, Session session, Command entry, ArgumentSpans words)
    cdef bint _end(self, Session session, Command entry, ArgumentSpans words, bint outermost)
    cdef long long _part(self, Session session, Command entry, ArgumentSpans words, long long began, Py_ssize_t reply) except -1
    cdef bint _show(self, Session session, Command entry, ArgumentSpans words, long long nanoseconds, Py_ssize_t reply)
