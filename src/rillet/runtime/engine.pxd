cimport cython
from rillet.keyspace.clock cimport Clock
from rillet.keyspace.database cimport Database
from rillet.keyspace.eviction cimport Eviction
from rillet.keyspace.expire_cycle cimport ExpireCycle
from rillet.keyspace.lru cimport AccessClock
from rillet.protocol.command_parser cimport CommandParser
from rillet.runtime.admission cimport admit
from rillet.runtime.blocking cimport Blocking
from rillet.runtime.channels cimport Channels
from rillet.runtime.command_queue cimport CommandQueue
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.propagation cimport Propagation
from rillet.runtime.registry cimport Command
from rillet.runtime.session cimport Session
from rillet.runtime.statistics cimport CommandCounters, Statistics
from rillet.runtime.tracking cimport Tracking
from rillet.protocol.propagation_buffer cimport PropagationBuffer
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.structs.argument_spans cimport ArgumentSpans

@cython.final
cdef class Engine:
    cdef public list databases
    cdef public object settings
    cdef public Clock clock
    cdef readonly Propagation propagation
    cdef readonly object defrag
    cdef readonly Blocking blocking
    cdef public dict sessions
    cdef public Statistics statistics
    cdef public object host
    cdef public object modules
    cdef public object acl
    cdef public object scripts
    cdef public object preserved
    cdef bint _notify_events
    cdef public Channels channels
    cdef readonly Tracking tracking
    cdef readonly object monitors
    cdef public bint observed
    cdef public long long peak_reset_ms
    cdef public bint shrinks_buffers
    cdef public object on_keyspace_event
    cdef public bint active_expire
    cdef public bint applying
    cdef public bint writing
    cdef public bint allow_access_expired
    cdef public str run_id
    cdef public object replication
    cdef public long long started_ms
    cdef public long long next_session_id
    cdef dict _renamed
    cdef dict _by_name
    cdef readonly ExpireCycle expiry
    cdef readonly AccessClock access
    cdef readonly Eviction eviction
    cdef readonly bint limited
    cdef public bint keeps_expired
    cdef readonly bint importing
    cdef bint _sees_expired
    cdef bint _writes
    cdef readonly object command_log
    cdef readonly object latency
    cdef public object hotkeys
    cdef readonly long long slow_ns
    cdef readonly long long monitored_ns
    cdef readonly long long large
    cdef readonly bint tracks_latency
    cdef readonly object memory
    cpdef bint make_room(self) except -1
    cdef readonly object lazyfree
    cdef Command _last_entry
    cdef object _paused_clients
    cdef object _buffer
    cdef public long long mstime
    cdef long long _since
    cdef long long _idmp_expired
    cdef public int conditions
    cdef int _paused
    cdef readonly Py_ssize_t failed_at
    cdef long long ran
    cdef object _refusal
    cdef list _spans
    cdef list _implementations
    cdef bint _when(self, int condition, bint holds) except -1
    cpdef bint execute(self, Session session, list[bytes] argv) except -1
    cpdef ArgumentSpans take_spans(self)
    cpdef bint give_spans(self, ArgumentSpans words) except -1
    cdef bint _admit_and_run(self, Session session, Command entry, ArgumentSpans words, CommandParser parser,
                             Py_ssize_t limit) except -1
    cdef int _flags(self, Session session) except -1
    cdef bint _make_rooms(self, Session session) except -1
    cdef bint _run_silently(self, Session session, Command entry, ArgumentSpans words, int flags) except -1
    cpdef bint call(self, Session session, Command entry, list[bytes] argv) except -1
    cpdef bint call_spans(self, Session session, Command entry, ArgumentSpans words) except -1
    cdef bint _run(self, Session session, Command entry, ArgumentSpans words, CommandParser parser, Py_ssize_t limit) except -1
    cdef bint _flush(self, Command entry) except -1
    cdef bint _begin(self, Session session, Command entry, ArgumentSpans words) except -1
    cdef bint _end(self, Session session, Command entry, ArgumentSpans words, bint outermost) except -1
    cdef bint _remember(self, Session current, Session session, Command entry, list[bytes] argv) except -1
    cpdef bint run_queue(self, Session session, CommandQueue queue) except -1
    cpdef bint drain(self, Session session, CommandParser parser, Py_ssize_t limit) except -1
    cdef bint _drain(self, Session session, CommandParser parser, Py_ssize_t limit) except -1
    cdef list[bytes] _next(self, Session session, CommandParser parser)
    cpdef long long run_next(self, Session session, CommandParser parser, ArgumentSpans words, tuple[bytes, ...] apart) except -1
    cpdef Command command_of(self, ArgumentSpans words)
    cdef Implementation _implementation(self, Command entry)
    cpdef Command lookup(self, list[bytes] argv)
    cdef Command _find(self, bytes name)
    cdef Command _find_subcommand(self, Command entry, bytes name)
