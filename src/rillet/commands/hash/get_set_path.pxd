cimport cython
from rillet.commands.hash.expiry_path cimport FieldPath
from rillet.commands.hash.fast_path cimport has_expired, write_value
from rillet.commands.small_values cimport MISSING
from rillet.keyspace.database cimport Database
from rillet.keyspace.rest_buffer cimport RestBuffer
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.listpack cimport Listpack
from rillet.types.hash cimport FieldExpiry, Hash

cdef class _TimedPath(FieldPath):
    cdef int expiry
    cdef Py_ssize_t time_at
    cdef bint exact
    cdef bint take_expiry(self, Database db, ArgumentSpans words, Py_ssize_t at) except -1

@cython.final
cdef class HgetexFastPath(_TimedPath):
    cdef bint _log(self, Session session, ArgumentSpans words) except -1

@cython.final
cdef class HsetexFastPath(_TimedPath):
    cdef bint _log(self, Session session, ArgumentSpans words) except -1
    cdef int _condition
    cdef bint _take_options(self, Database db, ArgumentSpans words) except -1
    cdef bint _fits_into(self, Database db, ArgumentSpans words, Hash value) except -1
    cdef bint _fits(self, Database db, ArgumentSpans words, Py_ssize_t fields, Py_ssize_t used) except -1
    cdef bint _is_met(self, ArgumentSpans words, Hash value) except -1
    cdef bint _set(self, Session session, Database db, ArgumentSpans words, Hash value) except -1

@cython.final
cdef class HgetdelFastPath(FieldPath):
    cdef bint _log(self, Session session, ArgumentSpans words) except -1
