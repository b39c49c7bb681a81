cimport cython
from rillet.commands.small_values cimport HEADER, MISSING, MOST_WORDS, UNUSUAL, LengthFastPath, SmallValuePath, write_entries, write_entry
from rillet.keyspace.database cimport Database
from rillet.keyspace.rest_buffer cimport RestBuffer
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.dict cimport Dict
from rillet.structs.listpack cimport Listpack, parse_digits
from rillet.types.hash cimport FieldExpiry, Hash

cdef bint has_expired(Database db, Hash value) except -1
cdef bint write_value(ReplyWriter out, Hash value, Py_ssize_t place) except -1

@cython.final
cdef class HgetFastPath(SmallValuePath):
    pass

@cython.final
cdef class HsetFastPath(SmallValuePath):
    cdef Py_ssize_t set_fields(self, Session session, Database db, ArgumentSpans words) except -2
    cdef Py_ssize_t _set_awake(self, Session session, Database db, ArgumentSpans words, Py_ssize_t n, object value) except -2
    cpdef Py_ssize_t fields(self, Session session, list[bytes] argv) except -2

@cython.final
cdef class HsetnxFastPath(SmallValuePath):
    pass


@cython.final
cdef class HmgetFastPath(SmallValuePath):
    pass


@cython.final
cdef class HgetallFastPath(SmallValuePath):
    pass


@cython.final
cdef class HincrbyFastPath(SmallValuePath):
    pass


@cython.final
cdef class HdelFastPath(SmallValuePath):
    pass
