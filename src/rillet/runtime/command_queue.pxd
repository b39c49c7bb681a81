cimport cython
from rillet.protocol.propagation_buffer cimport PropagationBuffer
from rillet.runtime.registry cimport Command
from rillet.structs.argument_spans cimport ArgumentSpans

@cython.final
cdef class CommandQueue:
    cdef readonly list entries
    cdef PropagationBuffer feed
    cpdef bint add(self, Command entry, ArgumentSpans words)
    cpdef bint add_calls(self, Command entry, Py_ssize_t calls, bytes packed)
