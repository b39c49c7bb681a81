cimport cython
from rillet.runtime.channels cimport Channels
from rillet.runtime.registry cimport Command
from rillet.runtime.session cimport Session
from rillet.runtime.statistics cimport CommandCounters, Statistics
from rillet.runtime.fast_path cimport FastPath
from rillet.keyspace.clock cimport Clock
from rillet.keyspace.database cimport Database
from rillet.protocol.propagation_buffer cimport PropagationBuffer
from rillet.protocol.command_parser cimport CommandParser
from rillet.structs.argument_spans cimport ArgumentSpans

@cython.final
cdef class Engine:
    cdef public list databases
    cdef public object settings
    cdef public Clock clock
    cdef object _log
    cdef readonly PropagationBuffer feed
    cdef public dict sessions
    cdef public Statistics statistics
    cdef public object host
    cdef public object preserved
    cdef public object refusal
    cdef public bint notify_events
    cdef public Channels channels
    cdef public object on_keyspace_event
    cdef public bint loading
    cdef public bint active_expire
    cdef public str run_id
    cdef public str replication_id
    cdef public long long started_ms
    cdef public long long next_session_id
    cdef public long long dirty
    cdef readonly ArgumentSpans words
    cdef list _shortcuts
    cdef unsigned long _shortcut_sizes
    cdef dict _by_name
    cdef list _ready
    cdef list _pending
    cdef list _postponed
    cdef long long _waits
    cdef public int paused
    cdef public long long mstime
    cdef long _depth
    cdef long long _since
    cdef long long _idmp_expired
    cpdef bint execute(self, Session session, list[bytes] argv) except -1
    cpdef bint drain(self, Session session, CommandParser parser, Py_ssize_t limit) except -1
    cpdef Py_ssize_t replay(self, Session session, CommandParser parser) except -1
    cdef Py_ssize_t _take_shortcut(self, Session session, CommandParser parser, Py_ssize_t limit) except -1
    cdef Py_ssize_t _run_shortcut(self, Session session, CommandParser parser, Command entry, FastPath shortcut,
                            Py_ssize_t limit) except -1
    cdef bint _drain(self, Session session, CommandParser parser, Py_ssize_t limit) except -1
    cpdef bint call(self, Session session, Command entry, list[bytes] argv) except -1
    cdef bint _execute_muted(self, Session session, object entry, list[bytes] argv) except -1
    cdef bint _mute(self, Session session, Py_ssize_t mark) except -1
    cdef bint _take_effects(self, Session session, list[bytes] argv) except -1
    cdef bint _feed(self, int db, list[bytes] argv, long long now) except -1
    cdef bint _frame(self, int db, bytes word, long long now) except -1
    cdef long long _log_time(self) except -1
    cdef bint _flush_pending(self) except -1
    cdef bint _reply_error(self, Session session, Py_ssize_t mark, object error) except -1
    cdef Command _find(self, bytes name)
    cdef Command _find_subcommand(self, Command entry, bytes name)
    cdef bint _admit(self, Session session, object entry, list[bytes] argv) except -1
    cdef bint _stop_waiting(self, Session session) except -1
    cdef bint _wake(self, Session session) except -1
    cdef bint _serve_ready(self) except -1
