cimport cython
from rillet.commands.string.values cimport string_at
from rillet.keyspace.database cimport Database
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.hyperloglog cimport Cursor, add, cache_count, cached_count, forget_count, is_valid
from rillet.structs.hyperloglog_union cimport Union, count_string
from rillet.types.string cimport String, new_string

cpdef bint check_value(object value)
cdef String _made(Database db, ArgumentSpans words, String string)
cdef bint _merge(Database db, ArgumentSpans words, Union union)

@cython.final
cdef class Pfadd(Implementation):
    cdef Cursor _cursor

@cython.final
cdef class Pfcount(Implementation):
    pass

@cython.final
cdef class Pfmerge(Implementation):
    cdef Union _union
