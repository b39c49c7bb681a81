cimport cython
from rillet.commands.hash.lookup cimport unpacked
from rillet.keyspace.database cimport Database
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.listpack cimport parse_digits
from rillet.types.hash cimport FieldExpiry, Hash

cdef class FieldTimes(Implementation):
    cdef Py_ssize_t first
    cdef Py_ssize_t end
    cdef long long now
    cdef long long when
    cdef bint past
    cdef long long _registered
    cdef long long _least
    cdef bint read_time(self, Session session, ArgumentSpans words, Py_ssize_t at, int unit, bint relative)
    cdef bint read_fields(self, ArgumentSpans words, Py_ssize_t at, str positive)
    cdef bint read_some_fields(self, ArgumentSpans words, Py_ssize_t at, int width, str positive)
    cdef Hash begin_times(self, Session session, ArgumentSpans words, Hash value)
    cdef int set_time(self, Session session, ArgumentSpans words, Hash value, Py_ssize_t place, Py_ssize_t i, int condition) except -3
    cdef bint end_times(self, Database db, ArgumentSpans words, Hash value)
