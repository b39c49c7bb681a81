cimport cython
from rillet.keyspace.database cimport Database, Watcher
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.structs.argument_spans cimport ArgumentSpans

@cython.final
cdef class Session:
    cdef public object engine
    cdef public Database db
    cdef public ReplyWriter out
    cdef public long long id
    cdef public bytes name
    cdef public object account
    cdef public bytes lib_name
    cdef public bytes lib_ver
    cdef public int state
    cdef public Watcher watcher
    cdef public object queue
    cdef public object blocked
    cdef public long long dirty
    cdef public list propagated
    cdef public list[bytes] argv
    cdef public object command
    cdef public object on_wake
    cdef public object transport
    cdef public long long created_ms
    cdef public long long last_ms
    cdef public dict extra
    cdef public object subscriptions
    cdef public object pushes
    cdef public object on_message
    cdef public object tracking
    cdef public long long commands
    cdef public bint logged
    cdef public object batch_value
    cdef public long long batch_ms
    cpdef long long now_ms(self) except -1
    cpdef bint mute(self, Py_ssize_t mark)
    cpdef bint reply_error(self, Py_ssize_t mark, object error)
    cpdef bint push(self, bytes data)
    cpdef bint postpone(self, bytes data)
    cpdef bint flush_pushes(self)
    cpdef bint modified(self, bytes key)
    cpdef bint changed(self, ArgumentSpans words, long long count)
    cpdef bint propagate(self, list[bytes] argv)
    cpdef bint propagate_nothing(self)
    cpdef bint notify(self, bytes kind, bytes event, bytes key, list[bytes] subkeys=*)
