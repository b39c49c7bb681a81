cimport cython
from rillet.commands.small_values cimport HEADER, MISSING, NOT_INT, UNUSUAL, LengthFastPath, SmallValuePath, write_entries
from rillet.keyspace.database cimport Database
from rillet.keyspace.rest_buffer cimport RestBuffer
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.dict cimport Dict
from rillet.structs.listpack cimport Listpack, parse_digits

@cython.final
cdef class SaddFastPath(SmallValuePath):
    cdef bint _add_awake(self, Session session, Database db, ArgumentSpans words, Py_ssize_t n, object value) except -1
    cdef bint _add_numbers(self, Session session, Database db, ArgumentSpans words, Py_ssize_t n) except -1

@cython.final
cdef class SismemberFastPath(SmallValuePath):
    pass


@cython.final
cdef class SmembersFastPath(SmallValuePath):
    pass


@cython.final
cdef class SremFastPath(SmallValuePath):
    cdef bint _remove_numbers(self, Session session, Database db, ArgumentSpans words) except -1
