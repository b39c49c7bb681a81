cimport cython
from rillet.runtime.session cimport Session
from rillet.protocol.propagation_buffer cimport PropagationBuffer
from rillet.protocol.command_parser cimport CommandParser
from rillet.structs.argument_spans cimport ArgumentSpans

cdef class FastPath:
    cdef public Py_ssize_t ran
    cpdef Py_ssize_t run(self, Session session, CommandParser parser, ArgumentSpans words, PropagationBuffer feed, Py_ssize_t limit) except -1
