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
    cdef public str peer
    cdef public str local
    cdef public long long received
    cdef public long long sent
    cdef public Py_ssize_t last_read
    cdef public Py_ssize_t counted
    cdef public bint watched
    cdef object _write
    cdef object _timer
    cdef bint _paused
    cdef bint _dirty
    cdef object _aside
    cdef bint _held
    cdef bint _announced
    cdef bint _limited
    cdef long long _above_since
    cdef Py_ssize_t _alarm
    cdef int _turn
    cpdef bint run(self)
    cpdef bint within_limits(self)
    cdef bint _end_turn(self)
    cdef bint _is_full(self)
    cdef bint _send(self)
