cimport cython
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans

cdef class Implementation:
    cdef public object command
    cdef public object handler
    cdef public bint on_spans
    cpdef bint run(self, Session session, ArgumentSpans words)
    cdef bint run_list(self, Session session, ArgumentSpans words)
