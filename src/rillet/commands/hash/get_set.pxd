cimport cython
from rillet.commands.hash.lookup cimport find_to_change, has_expired, hash_to_fill, keep_hash
from rillet.commands.hash.read cimport write_value
from rillet.commands.hash.times cimport FieldTimes
from rillet.keyspace.database cimport Database
from rillet.keyspace.rest_buffer cimport RestBuffer
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.types.hash cimport Hash

cdef class _WithOptions(FieldTimes):
    cdef int expiry
    cdef int condition
    cdef Py_ssize_t expiry_at
    cdef bint timed
    cdef bint _mixed
    cdef bint _sets
    cdef bint read_options(self, Session session, ArgumentSpans words)
    cdef bint _read_in_order(self, Session session, ArgumentSpans words)
    cdef bint _read_before_fields(self, Session session, ArgumentSpans words)
    cdef bint _read_any_order(self, Session session, ArgumentSpans words, bint strict)
    cdef Py_ssize_t _read_expiry(self, Session session, ArgumentSpans words, Py_ssize_t at, int option)
    cdef bint _take(self, int option)
    cdef object _one_expiry(self)

@cython.final
cdef class Hgetex(_WithOptions):
    cdef bint _end(self, Session session, ArgumentSpans words, Hash value, list[bytes] updated, list[bytes] deleted, object fields)

@cython.final
cdef class Hsetex(_WithOptions):
    cdef bint _is_met(self, ArgumentSpans words, Hash value, object fields)
    cdef bint _set(self, Session session, ArgumentSpans words, Hash found, list[bytes] expired)

@cython.final
cdef class Hgetdel(FieldTimes):
    pass
