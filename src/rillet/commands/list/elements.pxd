cimport cython
from rillet.commands.list.reply cimport write_element, write_range
from rillet.keyspace.database cimport Database
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.listpack cimport is_lowest, parse_digits
from rillet.types.list cimport List, ListLimits

cdef List list_at(Database db, Py_ssize_t n)
cdef bint keep(Database db, ArgumentSpans words, Py_ssize_t n, List value)
cdef long long _integer_at(ArgumentSpans words, Py_ssize_t index) except? -1

@cython.final
cdef class _Push(Implementation):
    cdef bytes _event
    cdef bint _head
    cdef bint _only_existing

@cython.final
cdef class Llen(Implementation):
    pass

@cython.final
cdef class Lrange(Implementation):
    pass
