cimport cython
from rillet.runtime.acl.key_access cimport first_after
from rillet.runtime.registry cimport Command
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.glob cimport matches_any, matches_any_at

@cython.final
cdef class CommandDecision:
    cdef bint _always
    cdef Py_ssize_t _first
    cdef Py_ssize_t _last
    cdef Py_ssize_t _step
    cdef Py_ssize_t _fixed
    cdef bytes _keyword
    cdef Command _entry
    cdef list[list[list[bytes]]] _patterns
    cdef list[list[list[bytes]]] _wide
    cpdef bint permits(self, ArgumentSpans words)
    cdef bint _match(self, list[list[bytes]] patterns, ArgumentSpans words, Py_ssize_t at, Py_ssize_t end)
