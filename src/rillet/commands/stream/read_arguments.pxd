cimport cython
from rillet.runtime.session cimport Session
from rillet.commands.stream.arguments cimport integer, option
from rillet.commands.stream.lookup cimport lookup_read
from rillet.types.stream.id cimport IDReader
from rillet.types.stream.value cimport Stream


@cython.final
cdef class ReadArguments:
    cdef readonly int level
    cdef readonly bint valkey
    cdef readonly long long timeout
    cdef readonly long long count
    cdef readonly long long max_count
    cdef readonly long long max_size
    cdef readonly long long min_idle
    cdef readonly bytes group
    cdef readonly bytes consumer
    cdef readonly bint noack
    cdef readonly list keys
    cdef readonly list starts
    cdef Py_ssize_t ids_at
    cdef list last_entry_at
    cdef bint read(self, Session session, list[bytes] argv, bint grouped) except -1
    cdef bint _read_timeout(self, Session session, bytes word) except -1
    cdef bint _read_newer_option(self, bytes word, bytes value, bint grouped) except -1
    cdef bint _read_keys(self, list[bytes] argv, Py_ssize_t start, bint grouped) except -1
    cdef list find_streams(self, Session session, list[bytes] argv)
    cdef list find_streams_again(self, Session session)
    cdef Stream _find_stream(self, Session session, bytes key)
    cdef bint reads_history(self, Py_ssize_t index) except -1
