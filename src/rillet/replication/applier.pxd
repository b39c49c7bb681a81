cimport cython
from rillet.protocol.command_parser cimport CommandParser
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.engine cimport Engine
from rillet.runtime.propagation cimport Propagation
from rillet.runtime.registry cimport Command
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans

@cython.final
cdef class Applier:
    cdef readonly Session session
    cdef Engine engine
    cdef CommandParser parser
    cdef readonly long long offset
    cdef readonly long long here
    cdef readonly long long fed
    cdef readonly long long commands
    cdef readonly long long refused
    cdef public bint ack_wanted
    cdef readonly object transaction
    cdef object on_refused
    cdef ArgumentSpans words
    cdef list _chunks
    cdef long long _kept
    cpdef bint feed(self, bytes chunk)
    cdef bint _apply(self, long long start, bytes chunk)
    cdef long long _position(self) except -1
    cdef bint _forward(self, long long count)
    cdef bint _take(self, list[bytes] argv)
    cdef bint _run(self, list[bytes] argv)
    cdef bint _run_all(self, list whole)
    cdef bint _drop_reply(self, list[bytes] argv, Py_ssize_t at)
