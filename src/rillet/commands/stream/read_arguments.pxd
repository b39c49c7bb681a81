cimport cython
from rillet.runtime.session cimport Session
from rillet.commands.stream.arguments cimport integer_at, is_named, option
from rillet.commands.stream.lookup cimport stream_at
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.types.stream.id cimport IDReader, format_id
from rillet.types.stream.stream cimport Stream


cdef class ReadArguments:
    cdef object compat
    cdef readonly int level
    cdef readonly bint valkey
    cdef readonly int lag_rule
    cdef readonly bint grouped
    cdef readonly bytes group
    cdef readonly bytes consumer
    cdef readonly bint noack
    cdef readonly long long timeout
    cdef readonly long long count
    cdef readonly long long max_count
    cdef readonly long long max_size
    cdef readonly long long min_idle
    cdef readonly Py_ssize_t keys_at
    cdef readonly Py_ssize_t ids_at
    cdef unsigned long long ms
    cdef unsigned long long seq
    cdef IDReader reader
    cdef bint read(self, Session session, ArgumentSpans words)
    cdef bint _read_timeout(self, Session session, ArgumentSpans words, Py_ssize_t at)
    cdef bint _read_newer_option(self, bytes name, ArgumentSpans words, Py_ssize_t at)
    cdef bint _require_grouped(self, str name)
    cdef bint check(self, Session session, ArgumentSpans words)
    cdef bint find_start(self, ArgumentSpans words, Py_ssize_t key_at, Stream stream)
