cimport cython
from rillet.commands.hash.fast_path cimport has_expired
from rillet.commands.small_values cimport MISSING, MOST_WORDS, UNUSUAL, SmallValuePath
from rillet.keyspace.database cimport Database
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.dict cimport Dict
from rillet.structs.listpack cimport parse_digits
from rillet.types.hash cimport FieldExpiry, Hash

cdef class FieldPath(SmallValuePath):
    cdef Py_ssize_t n
    cdef Py_ssize_t first
    cdef long long when
    cdef long long registered
    cdef long long least
    cdef bint take_fields(self, ArgumentSpans words, Py_ssize_t at, Py_ssize_t width) except -1
    cdef bint take_time(self, Database db, ArgumentSpans words, Py_ssize_t at, int unit, bint relative) except -1
    cdef Hash hash_to_change(self, Database db, ArgumentSpans words)
    cdef Hash hash_to_read(self, Database db, ArgumentSpans words)
    cdef Hash _hash(self, Database db, ArgumentSpans words, bint change)
    cdef bint begin_change(self, Database db, Hash value) except -1
    cdef bint rest(self, Database db) except -1
    cdef bint begin_times(self, Session session, Hash value) except -1
    cdef int set_time(self, Hash value, Py_ssize_t place, ArgumentSpans words, Py_ssize_t i, int condition) except -3
    cdef bint end_times(self, Database db, ArgumentSpans words, Hash value) except -1

cdef class FieldTimePath(FieldPath):
    cdef int _unit
    cdef bint _relative

@cython.final
cdef class HexpireFastPath(FieldTimePath):
    cdef bytearray _done
    cdef int _condition(self, ArgumentSpans words) except -1
    cdef bint _log(self, Session session, ArgumentSpans words) except -1

@cython.final
cdef class HttlFastPath(FieldTimePath):
    pass

@cython.final
cdef class HpersistFastPath(FieldPath):
    pass
