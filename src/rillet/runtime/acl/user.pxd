cimport cython
from rillet.runtime.acl.command_decision cimport CommandDecision
from rillet.runtime.registry cimport Command
from rillet.structs.argument_spans cimport ArgumentSpans

@cython.final
cdef class User:
    cdef readonly bytes name
    cdef readonly object commands
    cdef readonly bint enabled
    cdef readonly bint no_password
    cdef readonly bytes sanitize
    cdef readonly list passwords
    cdef readonly list selectors
    cdef readonly bint restricted
    cdef dict _decisions
    cdef Command _last_entry
    cdef CommandDecision _last_decision
    cpdef bint surely_permits(self, Command entry, ArgumentSpans words)
