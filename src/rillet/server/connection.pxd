cimport cython
from rillet.runtime.session cimport Session
from rillet.runtime.engine cimport Engine
from rillet.protocol.command_parser cimport CommandParser
from rillet.protocol.reply_writer cimport ReplyWriter

cdef class ClientConnection:
    cdef public object server
    cdef public Engine engine
    cdef public Session session
    cdef public CommandParser parser
    cdef public object transport
    cdef object _peer
    cdef object _local
    cdef public long long received
    cdef public long long sent
    cdef public long long reads
    cdef public long long writes
    cdef public Py_ssize_t last_read
    cdef public Py_ssize_t counted
    cdef public Py_ssize_t reply_peak
    cdef long long _peak_reset
    cdef object _timer
    cdef object _aside
    cdef long long _above_since
    cdef Py_ssize_t _alarm
    # Together: two of these share a word.
    cdef public bint exposed
    cdef public bint watched
    cdef bint _paused
    cdef bint _dirty
    cdef bint _held
    cdef bint _announced
    cdef bint _limited
    cdef int _turn
    cpdef bint run(self)
    cpdef bint within_limits(self)
    cdef bint _end_turn(self)
    cdef bint _end(self)
    cdef bint _is_full(self)
    cdef bint _wait_for_log(self, object replies)
    cdef bint _send(self)
