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
from rillet.runtime.fast_path cimport FastPath
from rillet.runtime.propagation cimport Propagation
from rillet.runtime.registry cimport Command
from rillet.runtime.session cimport Session
from rillet.runtime.statistics cimport CommandCounters, Statistics
from rillet.runtime.tracking cimport Tracking
from rillet.protocol.propagation_buffer cimport PropagationBuffer
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
    cdef public bint busy
    cdef public object preserved
    cdef public object refusal
    cdef public bint notify_events
    cdef public Channels channels
    cdef readonly Tracking tracking
    cdef readonly object monitors
    cdef public bint observed
    cdef public long long peak_reset_ms
    cdef public bint shrinks_buffers
    cdef public object on_keyspace_event
    cdef public bint loading
    cdef public bint active_expire
    cdef public bint follows
    cdef public bint applying
    cdef public bint writing
    cdef public bint allow_access_expired
    cdef public str run_id
    cdef public object replication
    cdef public long long started_ms
    cdef public long long next_session_id
    cdef readonly ArgumentSpans words
    cdef list _fast_paths
    cdef list _hidden_paths
    cdef tuple _last_path
    cdef tuple _script_path
    cdef CommandParser _no_input
    cdef dict _renamed
    cdef unsigned long _fast_path_sizes
    cdef dict _by_name
    cdef bytes _last_name
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
    cdef readonly bint out_of_memory
    cdef readonly object memory
    cpdef bint make_room(self) except -1
    cdef readonly object lazyfree
    cdef Command _last_entry
    cdef object _paused_clients
    cdef object _buffer
    cdef public int paused
    cdef public long long mstime
    cdef long long _since
    cdef long long _idmp_expired
    cpdef bint execute(self, Session session, list[bytes] argv) except -1
    cdef bint _make_rooms(self, Session session) except -1
    cdef bint _execute_muted(self, Session session, object entry, list[bytes] argv) except -1
    cpdef bint call(self, Session session, Command entry, list[bytes] argv) except -1
    cdef bint _call(self, Session session, Command entry, list[bytes] argv) except -1
    cdef bint _call_observed(self, Session session, Command entry, list[bytes] argv) except -1
    cdef bint _remember(self, Session current, Session session, Command entry, list[bytes] argv) except -1
    cdef bint _end_observed(self, Session session, Command entry) except -1
    cpdef bint drain(self, Session session, CommandParser parser, Py_ssize_t limit) except -1
    cdef bint _drain(self, Session session, CommandParser parser, Py_ssize_t limit) except -1
    cpdef Py_ssize_t replay(self, Session session, CommandParser parser) except -1
    cdef Py_ssize_t _try_fast_path(self, Session session, CommandParser parser, Py_ssize_t limit) except -1
    cdef Py_ssize_t _run_fast_path(self, Session session, CommandParser parser, Command entry, FastPath fast_path,
                            Py_ssize_t limit) except -1
    cpdef int call_words(self, Session session, ArgumentSpans words, bint may_write) except -1
    cdef bint _end_words(self, Session session, Command entry, ArgumentSpans words, long long began) except -1
    cpdef Command lookup(self, list[bytes] argv)
    cdef Command _find(self, bytes name)
    cdef Command _find_subcommand(self, Command entry, bytes name)
