cimport cython
from rillet.runtime.session cimport Session
from rillet.commands.stream.arguments cimport delete_strategy, integer, option, read_id
from rillet.commands.stream.lookup cimport lookup_read, lookup_write
from rillet.types.stream.group cimport Group
from rillet.types.stream.stream cimport Stream
from rillet.types.stream.id cimport IDReader

@cython.final
cdef class DeleteArguments:
    cdef int strategy
    cdef Py_ssize_t start
    cdef Py_ssize_t end
    cdef bint read(self, list[bytes] argv, Py_ssize_t at)

@cython.final
cdef class Deletion:
    cdef Stream stream
    cdef int strategy
    cdef long long deleted
    cdef long long dropped
    cdef bint first
    cdef bint forbids(self, unsigned long long ms, unsigned long long seq)
    cdef bint delete(self, unsigned long long ms, unsigned long long seq)
    cdef bint settle(self, Session session, bytes key)
