cimport cython
from rillet.runtime.command_queue cimport CommandQueue
from rillet.runtime.registry cimport Command
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans

@cython.final
cdef class Rule:
    cdef readonly int when
    cdef readonly int only
    cdef readonly int but
    cdef readonly int verdict

cpdef bint admit(object engine, Session session, Command entry, ArgumentSpans words, int flags) except -1
