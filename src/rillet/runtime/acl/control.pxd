cimport cython
from rillet.runtime.acl.user cimport User
from rillet.runtime.registry cimport Command
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans

@cython.final
cdef class AccessControl:
    cdef readonly dict users
    cdef readonly User default
    cdef readonly object log
    cdef object _engine
    cdef object _commands
    cdef tuple _made_for
    cdef str _password
    cdef ArgumentSpans _spans
    cpdef bint surely_permits(self, Session session, Command entry, object words)
    cpdef bint check(self, Session session, Command entry, object words)
    cdef ArgumentSpans _spans_of(self, object words)
