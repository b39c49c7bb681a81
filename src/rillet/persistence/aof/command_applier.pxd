cimport cython
from rillet.runtime.session cimport Session
from rillet.runtime.engine cimport Engine
from rillet.protocol.command_parser cimport CommandParser
from rillet.structs.argument_spans cimport ArgumentSpans

@cython.final
cdef class CommandApplier:
    cdef readonly str path
    cdef readonly Session session
    cdef Engine engine
    cdef CommandParser parser
    cdef readonly long long here
    cdef readonly long long good
    cdef readonly long long fed
    cdef readonly long long commands
    cdef readonly long long refused
    cdef long long delay
    cdef readonly object transaction
    cdef ArgumentSpans words
    cpdef bint feed(self, bytes chunk)
    cdef bint _advance(self)
    cdef list[bytes] _next(self)
    cdef long long _run_next(self) except -1
    cdef bint _take(self, list[bytes] argv)
    cdef bint _run(self, list[bytes] argv)
